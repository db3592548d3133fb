/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/random_rows.h"

#include "core/error.h"

/* Number of elements that a thread fills at a time. */
enum { TRS_RANDOM_PART = 1 << 14 };

void TrsRandomRows(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t rows,
                   int64_t dim, int64_t table_dim, const TrsRandomLaw *law, float *to)
{
  const int64_t part_rows = PetscMax((int64_t)1, TRS_RANDOM_PART / dim);
  const int64_t parts = (rows + part_rows - 1) / part_rows;

#pragma omp parallel for schedule(static) if (parts > 1)
  for (int64_t part = 0; part < parts; part++) {
    const int64_t begin = part * part_rows, end = PetscMin(begin + part_rows, rows);

    if (dim == table_dim) { /* the elements of all rows are consecutive in the tensor */
      TrsRandomFill(seed, purpose, a, first + (uint64_t)(begin * dim), (end - begin) * dim, law,
                    to + begin * dim);
      continue;
    }
    for (int64_t r = begin; r < end; r++)
      TrsRandomFill(seed, purpose, a, first + (uint64_t)(r * table_dim), dim, law, to + r * dim);
  }
}
