/* SPDX-License-Identifier: BSD-3-Clause */
/* Initial values of a table's rows, computed by all threads of the process. */
#pragma once

#include "core/random/random.h"

/*
  TrsRandomRows - Fill consecutive rows of `dim` numbers with TrsRandomFill()'s numbers for tensor
    `a`.

  The rows are host memory. The thread that writes a row is the first to touch its memory, which
  places the memory near the thread.

  Not collective.

  In:  first      index in the tensor of the first element to fill
       table_dim  distance in the tensor from one row to the next
*/
void TrsRandomRows(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t rows,
                   int64_t dim, int64_t table_dim, const TrsRandomLaw *law, float *to);
