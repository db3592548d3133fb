/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include "bench/rates.h"

/*
  TrsBenchSparse - Measure lookups of random rows, lookups and updates by width and type, and the
    splitting of ids.

  Collective. Sets rates->memory and ->rows to the rates of the slowest rank.

  In: table_bytes  size of the table for lookups; if it is below 64 MiB, other work is reduced in
                   proportion
*/
PetscErrorCode TrsBenchSparse(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates);
