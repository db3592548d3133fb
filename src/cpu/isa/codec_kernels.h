/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inner loops that convert number formats, compiled once for each instruction set. The files
  codec_kernels_<isa>.c include codec_kernels_template.h and are compiled with different flags. Each
  call runs on one thread; codec_cpu.c and quant_cpu.c divide the work. All instruction sets have
  the same results, byte for byte. Internal to cpu/.
*/
#pragma once

#include "compute/compute_ops.h"
#include "compute/quant.h"

typedef struct {
  /* Encode n values. n must be a multiple of the number of values in the format's row. */
  void (*encode)(const TrsCodec *codec, int64_t n, const float *from, uint8_t *to);
  void (*decode)(const TrsCodec *codec, int64_t n, const uint8_t *from, float *to);
  /* Convert to fp16 or bf16, rounded to nearest even. */
  void (*narrow)(int fp16, int64_t n, const float *from, uint16_t *to);
  void (*widen)(int fp16, int64_t n, const uint16_t *from, float *to);
  /* Convert one row to int8, int4 or int2. */
  void (*quantise_row)(TrsDType dtype, TrsRowLayout layout, int dim, const float *from, uint8_t *to);
  void (*dequantise_row)(TrsDType dtype, TrsRowLayout layout, int dim, const uint8_t *from, float *to);
  /*
    Pool bags [begin, end) in a table of TRS_ROWS_TBE. The result of bag b is at out + (b - first) *
    out_stride.
  */
  void (*forward)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                  int64_t end, int mean, float *out, int64_t out_stride);
  /* Look up one row of a table of TRS_ROWS_TBE for each id. Ids that are not rows of the table
     give zeros. */
  void (*forward_rows)(const TrsTbeTable *table, const int64_t *values, int64_t n, float *out,
                       int64_t out_stride);
} TrsCodecKernels;

extern const TrsCodecKernels trs_codec_kernels_portable;
#if defined(__x86_64__)
extern const TrsCodecKernels trs_codec_kernels_avx2;
extern const TrsCodecKernels trs_codec_kernels_avx512;
#endif

/* Return the kernels for TrsComputeIsa(). Not collective. */
const TrsCodecKernels *TrsCodecKernelsGet(void);
