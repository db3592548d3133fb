/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels for any processor. */
#include "cpu/isa/assemble_kernels.h"
#include "cpu/isa/assemble_scalar.h"

INLINE void transpose_8(const int32_t *const *row, int col, int32_t *to)
{
  for (int c = 0; c < 8; c++)
    for (int r = 0; r < 8; r++) to[TrsTilePlace(c, r)] = row[r][col + c];
}

INLINE Good copy_narrow(int32_t n, const int32_t *from, uint32_t limit, int64_t *to, int most)
{
  (void)most;
  return copy_narrow_ids(n, from, limit, to);
}

#include "cpu/isa/assemble_kernels_template.h"

const TrsAssembleKernels trs_assemble_kernels_portable = ASSEMBLE_KERNELS;
