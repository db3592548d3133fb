/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include "bench/rates.h"

/*
  TrsBenchLayers - Measure matrix products, passes over matrices, and dot products of vectors.

  Collective. It sets rates->products, ->stream and ->pairs. The slowest rank counts.

  In: table_bytes  size of the tables of the same bench; below 64 MiB most work is less, too
*/
PetscErrorCode TrsBenchLayers(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates);
