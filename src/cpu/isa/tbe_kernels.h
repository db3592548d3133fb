/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inner loops of table-batched embedding, compiled once for each instruction set. The files
  tbe_kernels_<isa>.c include tbe_kernels_template.h and are compiled with different flags. Each
  call runs on one thread; tbe_cpu.c divides the work. Internal to cpu/.
*/
#pragma once

#include "compute/tbe.h"

/*
  Largest width of rows for which sums fit the stack. For wider rows the caller must provide scratch
  memory.
*/
enum { TRS_TBE_STACK_COLUMNS = 512 };

/*
  Gradients of one table's rows. key[i] is row << position_bits | position. The keys of a row are
  adjacent, in the order in which the row's gradients are added. The gradient of key i has D floats
  and is multiplied by scale[i]. It is at grad + source[i], or if source is NULL, at grad + position
  * grad_stride.
*/
typedef struct {
  const TrsTbeTable *table;
  const uint64_t *key;
  int64_t n_keys;
  int position_bits;
  const int64_t *source; /* NULL if positions determine the addresses */
  int64_t grad_stride;
  /* by key, or by position if source is NULL; NULL if all factors are 1 */
  const float *scale;
  /* [n_keys] location of each key's row in a cached table (tbe.h); NULL if all rows are in the
     table */
  const int32_t *location;
  const float *grad;
  /* by key, as in TrsTbeInput.row_squares; NULL if the shard has whole rows */
  const float *row_squares;
  float *squares; /* [n_keys, blocks] result of TrsTbeKernels.squares */
  const TrsSparseOptimizerArgs *args;
  float correction1, correction2; /* 1 - beta1^step and 1 - beta2^step */
  /* [3 * D] scratch of this thread, necessary for more than TRS_TBE_STACK_COLUMNS columns */
  float *scratch;
} TrsRowJob;

typedef struct {
  /* Pool bags [begin, end) of a batch. The result of bag b is at out + (b - first) * out_stride. */
  void (*forward)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                  int64_t end, int mean, float *out, int64_t out_stride);
  /*
    For ids values[begin .. end), copy the row of values[begin + i] to row i of out. Ids that are
    not rows give zeros.
  */
  void (*forward_rows)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t begin, int64_t end,
                       float *out, int64_t out_stride);
  /*
    Update the rows whose first keys are in [begin, end). A range that is not empty must begin at a
    row's first key. NULL if an optimizer has no step.
  */
  void (*update[TRS_N_OPTIMS])(const TrsRowJob *job, int64_t begin, int64_t end);
  /* Sum the squares of the rows' gradients, in blocks of columns, without an update. */
  void (*squares)(const TrsRowJob *job, int64_t begin, int64_t end);
  /*
    Sum the gradients of each row, without an update. If `rows` is not NULL, also list the rows.
    Returns the number of rows.
  */
  int64_t (*sum)(const TrsRowJob *job, int64_t begin, int64_t end, int64_t *rows, float *row_grad,
                 int64_t row_stride);
  /*
    For each value p of bags [begin, end), compute the gradient of its weight: to[p] is the dot
    product of the bag's gradient with row values[p].
  */
  void (*weight_gradients)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                           int64_t end, const float *grad, int64_t grad_stride, float *to);
} TrsTbeKernels;

extern const TrsTbeKernels trs_tbe_kernels_portable;
#if defined(__x86_64__)
extern const TrsTbeKernels trs_tbe_kernels_avx2;
extern const TrsTbeKernels trs_tbe_kernels_avx512;
#endif
