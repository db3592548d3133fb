/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Converts quantised rows (compute/quant.h) to floats: q * scale + bias. Tests compare lookups in
  quantised tables with these floats.
*/
#pragma once

#include "compute/quant.h"
#include "cpu/isa/codec_kernels.h"

#include <string.h>

static inline void dequantise_rows(TrsDType dtype, TrsRowLayout layout, int64_t n_rows, int dim,
                                   const void *from, float *to, int64_t to_stride)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const int64_t bytes = TrsQuantRowBytes(dtype, layout, dim);

  for (int64_t r = 0; r < n_rows; r++) {
    const uint8_t *row = (const uint8_t *)from + r * bytes;

    if (dtype == TRS_FP32)
      memcpy(to + r * to_stride, row, (size_t)dim * sizeof(*to));
    else if (dtype == TRS_FP16 || dtype == TRS_BF16)
      kernels->widen(dtype == TRS_FP16, dim, (const uint16_t *)(const void *)row, to + r * to_stride);
    else
      kernels->dequantise_row(dtype, layout, dim, row, to + r * to_stride);
  }
}
