/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inner loops of table-batched embedding, compiled once for each instruction set. The files
  tbe_kernels_<isa>.c include tbe_kernels_template.h and are compiled with different flags. Each
  call runs on one thread; tbe_cpu.c divides the work. Internal to cpu/.
*/
#pragma once

#include "compute/tbe.h"

/* Wider rows need scratch from the caller. */
enum { TRS_TBE_STACK_COLUMNS = 512 };

/*
  Gradients of one table's rows. key[i] = row << position_bits | position; the keys of a row are
  adjacent, in the order in which its gradients are added. Key i's gradient is the D floats at grad
  + source[i] (if source is NULL: grad + position * grad_stride), times scale[i].
*/
typedef struct {
  const TrsTbeTable *table;
  const uint64_t *key;
  int64_t n_keys;
  int position_bits;
  const int64_t *source; /* or NULL */
  int64_t grad_stride;
  const float *scale; /* NULL: all 1 */
  /* location of key i's row in a cached table (tbe.h); NULL: all rows are in the table */
  const int32_t *location;
  const float *grad;
  /* by key, as in TrsTbeInput.row_squares; NULL: the rows are whole */
  const float *row_squares;
  float *squares; /* [n_keys, blocks] result of TrsTbeKernels.squares */
  const TrsSparseOptimizerArgs *args;
  float correction1, correction2; /* 1 - beta^step */
  /* [3 * D] for this thread, required above TRS_TBE_STACK_COLUMNS columns */
  float *scratch;
} TrsRowJob;

typedef struct {
  /* Look up bags [begin, end) of a batch. Bag b's result is at out + (b - first) * out_stride. */
  void (*forward)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                  int64_t end, int mean, float *out, int64_t out_stride);
  /*
    Copy row values[begin + i] to out row i for values [begin, end). Ids that are not rows give
    zeros.
  */
  void (*forward_rows)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t begin, int64_t end,
                       float *out, int64_t out_stride);
  /*
    Update the rows whose first keys are in [begin, end). A non-empty range must begin with a row's
    first key. NULL: the optimizer has no step.
  */
  void (*update[TRS_N_OPTIMS])(const TrsRowJob *job, int64_t begin, int64_t end);
  /* Sum the squares of the rows' gradients by blocks of columns, without an update. */
  void (*squares)(const TrsRowJob *job, int64_t begin, int64_t end);
  /*
    List the rows (unless NULL) and their summed gradients, without an update. Returns their number.
  */
  int64_t (*sum)(const TrsRowJob *job, int64_t begin, int64_t end, int64_t *rows, float *row_grad,
                 int64_t row_stride);
  /*
    For each value p of bags [begin, end), compute the gradient of its weight: to[p] = the bag's
    gradient . row values[p].
  */
  void (*weight_gradients)(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                           int64_t end, const float *grad, int64_t grad_stride, float *to);
} TrsTbeKernels;

extern const TrsTbeKernels trs_tbe_kernels_portable;
#if defined(__x86_64__)
extern const TrsTbeKernels trs_tbe_kernels_avx2;
extern const TrsTbeKernels trs_tbe_kernels_avx512;
#endif
