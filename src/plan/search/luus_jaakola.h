/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A random search on an interval, with a step that shrinks, and the generator of its random numbers.

  Source: TorchRec LuusJaakolaSearch (Luus and Jaakola, AIChE J. 19(4), 1973); MT19937 (Matsumoto
          and Nishimura, ACM TOMACS 8(1), 1998) as torch.rand uses it
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  uint32_t state[624];
  int next;
} TrsMersenne;

void TrsMersenneSeed(TrsMersenne *generator, uint32_t seed);
/* A uniformly distributed number in [0, 1) with 24 bits, like torch's float32. */
float TrsMersenneUniform(TrsMersenne *generator);

typedef struct {
  TrsMersenne random;
  double left, right, step, x, fx, y;
  int iteration, max_iterations;
  PetscBool left_known, right_known; /* true: the cost at this end is known */
} TrsLuusJaakola;

void TrsLuusJaakolaStart(TrsLuusJaakola *search, double left, double right, int max_iterations, uint32_t seed,
                         PetscBool left_known);
/*
  Report the cost of the last probe, and get the next probe. The first call ignores `cost`. Returns
  false if the search is over.
*/
PetscBool TrsLuusJaakolaNext(TrsLuusJaakola *search, double cost, double *probe);
/* Limit the search to probes of at most `right`. */
void TrsLuusJaakolaShrinkRight(TrsLuusJaakola *search, double right);
