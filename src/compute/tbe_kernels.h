/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inner loops of table-batched embedding, once for each instruction set: tbe_kernels_<isa>.c compile one text, tbe_kernels_template.h, with
  their own flags. Internal to compute/. One thread each; tbe_cpu.c cuts the work.
*/
#pragma once

#include "compute/tbe.h"

/* Rows up to this wide need no scratch from the caller. */
enum { TRS_TBE_STACK_COLUMNS = 512 };

/*
  Gradients of one table's rows: key[i] = row << position_bits | position, sorted by row, positions of one row in the order in which
  they are added. Key i's gradient is the D floats at grad + source[i], times scale[i].
*/
typedef struct {
  const TrsTbeTable *table;
  const uint64_t *key;
  int64_t n_keys;
  int position_bits;
  const int64_t *source;
  const float *scale;      /* NULL: all 1 */
  const int32_t *location; /* of a cached table: where key i's row is (tbe.h); NULL: all in the table */
  const float *grad;
  const TrsSparseOptimizerArgs *args;
  float correction1, correction2; /* 1 - beta^step */
  float *scratch;                 /* [3 * D] of this thread, wanted from TRS_TBE_STACK_COLUMNS columns on */
} TrsRowJob;

typedef struct {
  /* Bags [begin, end) of a batch; out row of bag b is out + (b - first) * out_stride. */
  void (*forward)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                  int64_t end, int mean, float *out, int64_t out_stride);
  /* Values [begin, end): row values[begin + i] to out row i, zeros for ids that are not rows. */
  void (*forward_rows)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t begin, int64_t end,
                       float *out, int64_t out_stride);
  /* Update the rows of keys [begin, end), which hold whole rows. */
  void (*update)(const TrsRowJob *job, int64_t begin, int64_t end);
  /* Instead of updating, list rows (unless NULL) and their summed gradients; returns how many. */
  int64_t (*sum)(const TrsRowJob *job, int64_t begin, int64_t end, int64_t *rows, float *row_grad,
                 int64_t row_stride);
  /* to[p] = dot(grad + source, row values[p]) for each value of bags [begin, end): the gradient of its weight. */
  void (*weight_gradients)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                           int64_t end, const float *grad, int64_t grad_stride, float *to);
} TrsTbeKernels;

extern const TrsTbeKernels trs_tbe_kernels_portable;
#if defined(__x86_64__)
extern const TrsTbeKernels trs_tbe_kernels_avx2;
extern const TrsTbeKernels trs_tbe_kernels_avx512;
#endif
