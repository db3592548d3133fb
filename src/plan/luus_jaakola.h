/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Random search on an interval with a shrinking step, and the generator of its random numbers.

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
/* A uniform number in [0, 1) with 24 bits, like torch's float32. */
float TrsMersenneUniform(TrsMersenne *generator);

typedef struct {
  TrsMersenne random;
  double left, right, step, x, fx, y;
  int iteration, max_iterations;
  PetscBool left_known, right_known; /* whether the cost at this end is known */
} TrsLuusJaakola;

void TrsLuusJaakolaStart(TrsLuusJaakola *search, double left, double right, int max_iterations, uint32_t seed,
                         PetscBool left_known);
/*
  Pass the cost of the last probe (any value the first time) and get the next probe. Returns false
  if the search is over.
*/
PetscBool TrsLuusJaakolaNext(TrsLuusJaakola *search, double cost, double *probe);
/* Limit the search to probes up to `right`. */
void TrsLuusJaakolaShrinkRight(TrsLuusJaakola *search, double right);
