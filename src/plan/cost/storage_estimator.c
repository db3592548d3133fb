/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/cost/storage_estimator.h"

#include "plan/cost/topology.h"

#include <math.h>

#define ID_BYTES 8.0

/*
  Convert a number of bytes to an integer. A huge number is limited here, so that the result is
  finite. TrsOptionSummarise() rejects it.
*/
static int64_t to_bytes(double x)
{
  return x < (double)TRS_MAX_SHARD_BYTES ? (int64_t)x : TRS_MAX_SHARD_BYTES;
}

void TrsEstimateIo(const TrsStorageInput *in, int64_t rows, int64_t cols, int64_t *input, int64_t *output)
{
  double W = in->world_size, c = (double)cols, n;

  switch (in->type) {
  case TRS_SHARDING_DATA_PARALLEL:
    *input = to_bytes(ceil(in->ids * ID_BYTES));
    *output = to_bytes(ceil((in->rows_out * (double)in->n_cols) * in->out_bytes));
    return;
  case TRS_SHARDING_TABLE_WISE:
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE:
    *input = to_bytes(ceil((in->ids * W) * ID_BYTES));
    *output = to_bytes(ceil(((in->rows_out * W) * c) * in->out_bytes));
    return;
  case TRS_SHARDING_ROW_WISE:
  case TRS_SHARDING_TABLE_ROW_WISE:
  case TRS_SHARDING_GRID_SHARD: break;
  }
  *input = *output = 0;
  if (rows == 0 || cols == 0) return; /* no ids are sent to an empty shard */
  n = in->type == TRS_SHARDING_ROW_WISE ? W : (double)in->group;
  *input = to_bytes(ceil(((in->ids / n) * W) * ID_BYTES));
  *output = to_bytes(ceil((((in->is_pooled ? in->rows_out : in->ids / n) * W) * c) * in->out_bytes));
}

int64_t TrsEstimatePipelineIo(const TrsStorageInput *in, int64_t input, int64_t output, int64_t prefetch)
{
  int64_t bytes = input + output;

  if (in->is_inference) return 0;
  switch (in->pipeline) {
  case TRS_PLAN_PIPELINE_NONE:
  case TRS_PLAN_PIPELINE_BASE: return bytes;
  case TRS_PLAN_PIPELINE_SPARSE_DIST: bytes = 2 * input; break;
  case TRS_PLAN_PIPELINE_PREFETCH:
    bytes = 3 * input + to_bytes(((1 + 6 / (double)in->n_passes) * (double)prefetch));
    break;
  }
  return in->at_peak_memory ? bytes + output : bytes;
}

int64_t TrsCeilOfRoundedQuotient(TrsInt128 n, TrsInt128 d)
{
  TrsInt128 quotient = n / d, rest = n % d;
  int n_bits = 0;

  if (rest == 0) return (int64_t)quotient;
  if (quotient == 0) return 1;
  for (TrsInt128 q = quotient; q > 0; q >>= 1) n_bits++;
  if (n_bits > 52) return (int64_t)(double)quotient; /* a double this large has no fraction */
  /* Rounding the quotient to double may drop a tiny fraction. Then the result is not rounded up. */
  return (int64_t)((rest << (54 - n_bits)) <= d ? quotient : quotient + 1);
}

/*
  Bytes of a shard's weights and optimizer state, if the whole table has `bytes` bytes in this
  memory.
*/
static int64_t shard_bytes(const TrsStorageInput *in, int64_t bytes, int64_t rows, int64_t cols)
{
  int64_t tensor = bytes;

  if (in->type != TRS_SHARDING_DATA_PARALLEL)
    tensor = TrsCeilOfRoundedQuotient((TrsInt128)bytes * ((TrsInt128)rows * cols),
                                      (TrsInt128)in->n_rows * in->n_cols);
  if (in->is_inference) return tensor;
  switch (in->optimizer_state) {
  case TRS_STATE_NONE: break;
  case TRS_STATE_ROWWISE: return tensor + to_bytes(ceil((double)tensor * (1.0 / (double)in->n_cols)));
  case TRS_STATE_ONE: return 2 * tensor;
  case TRS_STATE_TWO: return 3 * tensor;
  }
  return tensor;
}

TrsStorage TrsEstimateStorage(const TrsStorageInput *in, int64_t rows, int64_t cols)
{
  PetscBool caching = TrsKernelIsCaching(in->kernel);
  double r = in->load_factor != 0 ? in->load_factor : TRS_CACHE_LOAD_FACTOR;
  int64_t hbm = 0, ddr = 0, input, output;
  TrsStorage storage;

  switch (in->is_cuda ? TrsKernelHome(in->kernel) : TRS_ROWS_HOST) {
  case TRS_ROWS_DEVICE: hbm = in->table_bytes; break;
  case TRS_ROWS_HOST: ddr = in->table_bytes; break;
  }
  if (caching) hbm = to_bytes(nearbyint((double)ddr * r));
  TrsEstimateIo(in, rows, cols, &input, &output);
  storage.hbm = shard_bytes(in, hbm, rows, cols);
  if (caching && !in->is_inference) storage.hbm += to_bytes(ceil((double)rows * (4 + r * 16)));
  storage.ddr = shard_bytes(in, ddr, rows, cols);
  if (in->is_cuda) {
    storage.hbm += TrsEstimatePipelineIo(in, input, output, caching ? input : 0);
  } else {
    if (caching) storage.ddr += storage.hbm; /* the cached rows are in host memory as well */
    storage.hbm = 0;
    if (!in->is_inference) storage.ddr += input + output;
    /* Add the ids and gradients of all copies. Each copy has as many as this one. */
    if (!in->is_inference && in->merged_copies > 1) storage.ddr += in->merged_copies * (input + output);
  }
  /* Each column shard has a directory of its own, in host memory. */
  if (cols > 0) storage.ddr += to_bytes((double)rows * (double)in->keys_row_bytes);
  return storage;
}
