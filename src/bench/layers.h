/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include "bench/rates.h"

/*
  TrsBenchLayers - Measure matrix multiplications, passes over matrices, and dot products of
    vectors.

  Collective. Sets rates->products, ->stream and ->pairs to the rates of the slowest rank.

  In: table_bytes  size of the tables in this bench; if it is below 64 MiB, most work is reduced in
                   proportion
*/
PetscErrorCode TrsBenchLayers(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates);
