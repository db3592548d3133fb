/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include "bench/rates.h"

/*
  TrsBenchSparse - Measure lookups of random rows, rows by their widths and types, and cuts of ids.

  Collective. It sets rates->memory and ->rows. The slowest rank counts.

  In: table_bytes  size of the table that is looked up; below 64 MiB other work is less, too
*/
PetscErrorCode TrsBenchSparse(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates);
