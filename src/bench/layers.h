/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include "bench/rates.h"

/*
  TrsBenchLayers - Measure matrix products, passes over matrices, and dot products of vectors.

  Collective. Sets rates->products, ->stream and ->pairs to the rates of the slowest rank.

  In: table_bytes  size of the tables in this bench; below 64 MiB most work is reduced, too
*/
PetscErrorCode TrsBenchLayers(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates);
