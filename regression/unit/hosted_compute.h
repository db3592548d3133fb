/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes the kernels of every backend usable for tests whose data is in host memory. A wrapper copies
  arrays to the device before each call, and back after the call.

    for (int i = 0; (compute = trs_hosted(i)); i++) test_with(compute);

  The first backend is the CPU, without wrappers. The other backends are those of this build whose
  device exists on this machine. A wrapper marks each array of its call with IN() or OUT() and its
  size in bytes. AFTER() makes the call, copies the OUT arrays back and frees all copies.
*/
#pragma once

#include "compute/compute_ops.h"
#include "compute/quant.h"
#include "trs_test.h"

#include <string.h>

enum { HOSTED_COPIES = 512, HOSTED_TABLES = 64 };

static const TrsDeviceOps *hosted_device;
static const TrsComputeOps *hosted_ops;

/* The device copies of the arrays of the current call. */
static struct {
  void *copy;
  void *host; /* the array to which it is copied back, or NULL */
  int64_t bytes;
} hosted_copies[HOSTED_COPIES];
static int n_hosted_copies;

/*
  Copy host memory to the device. NULL stays NULL. Arrays that a kernel only writes are copied as
  well, so that a test detects if the kernel changes memory that it must not change.
*/
static void *hosted_copy(const void *host, int64_t bytes, PetscBool back)
{
  void *copy = NULL;

  if (!host) return NULL;
  assert_in_range(n_hosted_copies, 0, HOSTED_COPIES - 1);
  assert_petsc_ok(hosted_device->alloc(bytes > 0 ? bytes : 1, &copy));
  assert_petsc_ok(hosted_device->copy(copy, host, bytes, NULL));
  assert_petsc_ok(hosted_device->stream_synchronize(NULL));
  hosted_copies[n_hosted_copies].copy = copy;
  hosted_copies[n_hosted_copies].host = back ? (void *)(uintptr_t)host : NULL;
  hosted_copies[n_hosted_copies++].bytes = bytes;
  return copy;
}

#define IN(host, bytes)  ((__typeof__(host))hosted_copy(host, bytes, PETSC_FALSE))
#define OUT(host, bytes) ((__typeof__(host))hosted_copy(host, bytes, PETSC_TRUE))

/* Copy the OUT arrays back and free all copies. Returns the code of the call. */
static PetscErrorCode hosted_after(PetscErrorCode code)
{
  for (int i = 0; i < n_hosted_copies; i++) {
    if (hosted_copies[i].host)
      assert_petsc_ok(
          hosted_device->copy(hosted_copies[i].host, hosted_copies[i].copy, hosted_copies[i].bytes, NULL));
    assert_petsc_ok(hosted_device->stream_synchronize(NULL));
    assert_petsc_ok(hosted_device->release(&hosted_copies[i].copy));
  }
  n_hosted_copies = 0;
  return code;
}

#define AFTER(...) return hosted_after(hosted_ops->__VA_ARGS__)

/* --- jagged tensors --- */

static PetscErrorCode hosted_offsets(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets)
{
  AFTER(offsets(stream, n, IN(lengths, n * 4), OUT(offsets, (n + 1) * 8)));
}

static TrsJagged hosted_jagged(const TrsJagged *host, int64_t n_bags, int64_t n_values, PetscBool back)
{
  TrsJagged copy = *host;

  copy.lengths = (int32_t *)hosted_copy(host->lengths, n_bags * 4, back);
  copy.offsets = (int64_t *)hosted_copy(host->offsets, (n_bags + 1) * 8, back);
  copy.values = (int64_t *)hosted_copy(host->values, n_values * 8, back);
  copy.weights = (float *)hosted_copy(host->weights, n_values * 4, back);
  return copy;
}

static PetscErrorCode hosted_permute_blocks(TrsStream stream, TrsWorkspace workspace, int n_in,
                                            const int64_t *block_begin, int n_out, const int *permutation,
                                            const TrsJagged *in, TrsJagged *out)
{
  const int64_t n_in_bags = block_begin[n_in];
  TrsJagged from = hosted_jagged(in, n_in_bags, in->offsets[n_in_bags], PETSC_FALSE), to;
  int64_t n_bags = 0, n_values = 0;

  PetscFunctionBegin;
  for (int j = 0; j < n_out; j++) {
    const int64_t first = block_begin[permutation[j]], end = block_begin[permutation[j] + 1];

    n_bags += end - first;
    n_values += in->offsets[end] - in->offsets[first];
  }
  to = hosted_jagged(out, n_bags, n_values, PETSC_TRUE);
  PetscCall(hosted_after(
      hosted_ops->permute_blocks(stream, workspace, n_in, block_begin, n_out, permutation, &from, &to)));
  out->n_bags = to.n_bags;
  out->n_values = n_values; /* on a device the caller sets this */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_bucketize(TrsStream stream, TrsWorkspace workspace, int n_buckets,
                                       int n_features, int64_t batch, const TrsBucketSpec *spec,
                                       const TrsJagged *in, TrsJagged *out, int64_t *unbucketize)
{
  const int64_t n_bags = n_features * batch, n = in->offsets[n_bags];
  TrsJagged from = hosted_jagged(in, n_bags, n, PETSC_FALSE),
            to = hosted_jagged(out, n_buckets * n_bags, n, PETSC_TRUE);

  PetscFunctionBegin;
  PetscCall(hosted_after(hosted_ops->bucketize(stream, workspace, n_buckets, n_features, batch, spec, &from,
                                               &to, OUT(unbucketize, n * 8))));
  out->n_bags = to.n_bags;
  out->n_values = to.n_values;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_unique(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                    const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                                    int64_t *unique_values, int64_t *reverse)
{
  const int64_t bytes = values_begin[n_tables] * 8;

  AFTER(unique(stream, workspace, n_tables, values_begin, IN(values, bytes), unique_begin,
               OUT(unique_values, bytes), OUT(reverse, bytes)));
}

/* --- bags that samples share --- */

/* The number of blocks or lists that a call uses. */
static int64_t hosted_blocks(int n, const int *block)
{
  int most = -1;

  for (int i = 0; i < n; i++) most = PetscMax(most, block[i]);
  return most + 1;
}

static TrsBagLists hosted_lists(const TrsBagLists *lists, int64_t n, PetscBool back)
{
  return (TrsBagLists){.batch = lists->batch,
                       .sample = (int32_t *)hosted_copy(lists->sample, n * lists->batch * 4, back),
                       .n = (int64_t *)hosted_copy(lists->n, n * 8, back)};
}

static PetscErrorCode hosted_unique_bags(TrsStream stream, TrsWorkspace workspace, int n_features,
                                         const int *feature, const TrsJagged *in, const TrsBagLists *lists,
                                         int64_t *inverse)
{
  const int64_t n_bags = hosted_blocks(n_features, feature) * lists->batch;
  TrsJagged from = hosted_jagged(in, n_bags, in->offsets[n_bags], PETSC_FALSE);
  TrsBagLists found = hosted_lists(lists, n_features, PETSC_TRUE);

  AFTER(unique_bags(stream, workspace, n_features, feature, &from, &found,
                    OUT(inverse, n_features * lists->batch * 8)));
}

/* out->n_values is the number of ids that fit in `out`. */
static PetscErrorCode hosted_take_bags(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                                       const int *list, const TrsBagLists *lists, const TrsJagged *in,
                                       TrsJagged *out, int64_t *limits)
{
  const int64_t n_bags = hosted_blocks(n_out, block) * lists->batch;
  TrsJagged from = hosted_jagged(in, n_bags, in->offsets[n_bags], PETSC_FALSE),
            to = hosted_jagged(out, n_out * lists->batch, out->n_values, PETSC_TRUE);
  TrsBagLists taken = hosted_lists(lists, hosted_blocks(n_out, list), PETSC_FALSE);

  AFTER(
      take_bags(stream, workspace, n_out, block, list, &taken, &from, &to, OUT(limits, (2 * n_out + 1) * 8)));
}

static PetscErrorCode hosted_pad_offsets(TrsStream stream, TrsWorkspace workspace, int n_features,
                                         const int64_t *strides, int64_t batch, const int64_t *offsets,
                                         int64_t *to)
{
  int64_t n_bags = 0;

  for (int f = 0; f < n_features; f++) n_bags += strides[f];
  AFTER(pad_offsets(stream, workspace, n_features, strides, batch, IN(offsets, (n_bags + 1) * 8),
                    OUT(to, (n_features * batch + 1) * 8)));
}

/* --- sequences and positions --- */

/* Copy bags to the device. n_rows gets the number of rows that they use. */
static TrsSequenceBags hosted_bags(const TrsSequenceBags *bags, int64_t *n_rows)
{
  const int64_t n = bags->offsets[bags->batch];
  TrsSequenceBags copy = *bags;

  *n_rows = 0;
  for (int64_t i = 0; i < n; i++)
    *n_rows = PetscMax(*n_rows, (bags->index ? bags->index[i] : i) + bags->shift + 1);
  copy.offsets = IN(bags->offsets, (bags->batch + 1) * 8);
  copy.ids = IN(bags->ids, n * 8);
  copy.index = IN(bags->index, n * 8);
  return copy;
}

static int64_t hosted_bags_bytes(const TrsSequenceBags *bags, int64_t stride)
{
  const int64_t width = bags->pooling == TRS_SEQUENCE_CONCAT
                            ? (bags->places - 1) * bags->place_stride + bags->dim
                            : bags->dim;
  return ((bags->batch - 1) * stride + width) * 4;
}

static PetscErrorCode hosted_sequence_forward(TrsStream stream, const TrsSequenceBags *bags,
                                              const float *rows, float *out, int64_t out_stride)
{
  int64_t n_rows;
  const TrsSequenceBags copy = hosted_bags(bags, &n_rows);

  AFTER(sequence_forward(stream, &copy, IN(rows, n_rows * bags->row_stride * 4),
                         OUT(out, hosted_bags_bytes(bags, out_stride)), out_stride));
}

static PetscErrorCode hosted_sequence_backward(TrsStream stream, const TrsSequenceBags *bags,
                                               const float *rows, const float *grad, int64_t grad_stride,
                                               PetscBool by_id, float *to)
{
  int64_t n_rows;
  const TrsSequenceBags copy = hosted_bags(bags, &n_rows);
  const int64_t n_to = by_id ? bags->offsets[bags->batch] : n_rows;

  AFTER(sequence_backward(stream, &copy, IN(rows, n_rows * bags->row_stride * 4),
                          IN(grad, hosted_bags_bytes(bags, grad_stride)), grad_stride, by_id,
                          OUT(to, n_to * bags->row_stride * 4)));
}

static PetscErrorCode hosted_positions(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                       float *positions)
{
  AFTER(positions(stream, n_bags, IN(offsets, (n_bags + 1) * 8), OUT(positions, offsets[n_bags] * 4)));
}

static PetscErrorCode hosted_position_weights(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                              const float *positions, int64_t length,
                                              const float *by_position, float *weights)
{
  const int64_t bytes = offsets[n_bags] * 4;

  AFTER(position_weights(stream, n_bags, IN(offsets, (n_bags + 1) * 8), IN(positions, bytes), length,
                         IN(by_position, length * 4), OUT(weights, bytes)));
}

static PetscErrorCode hosted_position_gradients(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                                const int64_t *offsets, const float *positions,
                                                const float *grad_weights, int64_t length, float *by_position)
{
  const int64_t bytes = offsets[n_bags] * 4;

  AFTER(position_gradients(stream, workspace, n_bags, IN(offsets, (n_bags + 1) * 8), IN(positions, bytes),
                           IN(grad_weights, bytes), length, OUT(by_position, length * 4)));
}

/* --- embeddings --- */

/* A batch and its tables on the device. */
typedef struct {
  TrsTbeTable table[HOSTED_TABLES];
  TrsTbe tbe;
  TrsTbeInput input;
} TrsHostedTbe;

/* Number of floats in state s of an optimizer. It is 0 if the optimizer has no such state. */
static int64_t hosted_state_floats(const TrsTbeTable *table, const TrsSparseOptimizerArgs *args, int s)
{
  if (!args || !table->state[s]) return 0;
  if (args->kind == TRS_OPTIM_ROWWISE_ADAGRAD) return table->rows;
  if (s == 1 &&
      (args->kind == TRS_OPTIM_PARTIAL_ROWWISE_ADAM || args->kind == TRS_OPTIM_PARTIAL_ROWWISE_LAMB))
    return table->rows;
  return table->rows * table->dim;
}

static int64_t hosted_table_bytes(const TrsTbeTable *table)
{
  return table->rows * table->stride * (TrsDTypeBits(table->dtype) > 8 ? TrsDTypeBytes(table->dtype) : 1);
}

/* Copy a table to the device. With an optimizer, also copy it back after the call. */
static TrsTbeTable hosted_table(const TrsTbeTable *host, const TrsSparseOptimizerArgs *args)
{
  TrsTbeTable copy = *host;

  copy.weight = hosted_copy(host->weight, hosted_table_bytes(host), (PetscBool)(args != NULL));
  copy.row_of = IN(host->row_of, host->rows * 8);
  for (int s = 0; s < 2; s++) {
    const int64_t floats = hosted_state_floats(host, args, s);
    copy.state[s] = floats ? OUT(host->state[s], floats * 4) : NULL;
  }
  return copy;
}

static void hosted_tbe(const TrsTbe *tbe, const TrsTbeInput *input, const TrsSparseOptimizerArgs *args,
                       TrsHostedTbe *copy)
{
  assert_true(tbe->n_tables <= HOSTED_TABLES);
  for (int t = 0; t < tbe->n_tables; t++) copy->table[t] = hosted_table(&tbe->table[t], args);
  copy->tbe = *tbe;
  copy->tbe.table = copy->table;
  copy->input = *input;
  copy->input.offsets = IN(input->offsets, (tbe->n_features * input->batch + 1) * 8);
  copy->input.values = IN(input->values, input->n_values * 8);
  copy->input.weights = IN(input->weights, input->n_values * 4);
}

static TrsMatrix hosted_matrix(TrsMatrix matrix, int64_t rows, PetscBool back)
{
  matrix.data = hosted_copy(matrix.data, rows * matrix.stride * TrsDTypeBytes(matrix.type), back);
  return matrix;
}

static PetscErrorCode hosted_tbe_forward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                         const TrsTbeInput *input, TrsMatrix out)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, NULL, &copy);
  AFTER(tbe_forward(stream, workspace, &copy.tbe, &copy.input, hosted_matrix(out, input->batch, PETSC_TRUE)));
}

static PetscErrorCode hosted_tbe_forward_rows(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                              const TrsTbeInput *input, float *out, int64_t out_stride)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, NULL, &copy);
  AFTER(tbe_forward_rows(stream, workspace, &copy.tbe, &copy.input,
                         OUT(out, input->n_values * out_stride * 4), out_stride));
}

static PetscErrorCode hosted_tbe_backward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                          const TrsTbeInput *input, TrsMatrix grad,
                                          const TrsSparseOptimizerArgs *args)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, args, &copy);
  AFTER(tbe_backward(stream, workspace, &copy.tbe, &copy.input,
                     hosted_matrix(grad, input->batch, PETSC_FALSE), args));
}

static PetscErrorCode hosted_tbe_find_occurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                                  const TrsTbeInput *input, TrsTbeUse use,
                                                  TrsTbeOccurrences *occurrences)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, NULL, &copy);
  AFTER(tbe_find_occurrences(stream, workspace, &copy.tbe, &copy.input, use, occurrences));
}

static PetscErrorCode hosted_tbe_weight_gradients(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                                  const TrsTbeInput *input, const float *grad,
                                                  int64_t grad_stride, float *grad_weights)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, NULL, &copy);
  AFTER(tbe_weight_gradients(stream, workspace, &copy.tbe, &copy.input,
                             IN(grad, input->batch * grad_stride * 4), grad_stride,
                             OUT(grad_weights, input->n_values * 4)));
}

static PetscErrorCode hosted_tbe_backward_rows(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, const float *grad,
                                               int64_t grad_stride, const TrsSparseOptimizerArgs *args)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, args, &copy);
  AFTER(tbe_backward_rows(stream, workspace, &copy.tbe, &copy.input,
                          IN(grad, input->n_values * grad_stride * 4), grad_stride, args));
}

static PetscErrorCode hosted_tbe_row_gradients(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, TrsMatrix grad, int64_t *row_begin,
                                               int64_t *rows, float *row_grad, int64_t row_stride)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, NULL, &copy);
  AFTER(tbe_row_gradients(
      stream, workspace, &copy.tbe, &copy.input, hosted_matrix(grad, input->batch, PETSC_FALSE), row_begin,
      OUT(rows, input->n_values * 8), OUT(row_grad, input->n_values * row_stride * 4), row_stride));
}

static PetscErrorCode hosted_tbe_list_rows(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                           const TrsTbeInput *input, int64_t *row_begin, int64_t *rows)
{
  TrsHostedTbe copy;

  hosted_tbe(tbe, input, NULL, &copy);
  AFTER(tbe_list_rows(stream, workspace, &copy.tbe, &copy.input, row_begin, OUT(rows, input->n_values * 8)));
}

static PetscErrorCode hosted_merge_rows(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                        const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                        const int64_t *rows, int64_t *keys, int64_t *index)
{
  const int64_t bytes = begin[n_lists * n_tables] * 8;

  AFTER(merge_rows(stream, workspace, n_tables, table, n_lists, begin, IN(rows, bytes), OUT(keys, bytes),
                   OUT(index, bytes)));
}

static PetscErrorCode hosted_tbe_update_rows(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                             const TrsTbeTable *table, const TrsRowGradients *host,
                                             const TrsSparseOptimizerArgs *args)
{
  TrsTbeTable copy[HOSTED_TABLES];
  TrsRowGradients gradients = *host;
  int64_t n_grad = host->n;

  assert_true(n_tables <= HOSTED_TABLES);
  for (int t = 0; t < n_tables; t++) copy[t] = hosted_table(&table[t], args);
  for (int64_t e = 0; host->index && e < host->n; e++) n_grad = PetscMax(n_grad, host->index[e] + 1);
  gradients.keys = IN(host->keys, host->n * 8);
  gradients.index = IN(host->index, host->n * 8);
  gradients.grad = IN(host->grad, n_grad * host->stride * 4);
  AFTER(tbe_update_rows(stream, workspace, n_tables, copy, &gradients, args));
}

/* --- matrices --- */

/*
  Number of bytes from the first to the last number of the columns, including the gaps between rows.
*/
static int64_t hosted_columns_bytes(TrsMatrix matrix, int64_t rows, int64_t cols)
{
  return rows > 0 ? ((rows - 1) * matrix.stride + cols) * TrsDTypeBytes(matrix.type) : 0;
}

static PetscErrorCode hosted_copy_columns(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy)
{
  TrsColumnCopy *there;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n + 1, &there));
  for (int i = 0; i < n; i++) {
    const TrsColumnCopy *c = &copy[i];

    there[i] = *c;
    there[i].from.data = hosted_copy(c->from.data, hosted_columns_bytes(c->from, rows, c->cols), PETSC_FALSE);
    there[i].to.data = hosted_copy(c->to.data, hosted_columns_bytes(c->to, rows, c->cols), PETSC_FALSE);
  }
  PetscCall(hosted_ops->copy_columns(stream, rows, n, there));
  /* rows are copied one by one, because the rows of two copies may alternate in memory */
  for (int i = 0; i < n; i++) {
    const TrsColumnCopy *c = &copy[i];
    const int64_t size = TrsDTypeBytes(c->to.type), row_bytes = c->to.stride * size;

    for (int64_t r = 0; r < rows; r++)
      PetscCall(hosted_device->copy((char *)c->to.data + r * row_bytes,
                                    (const char *)there[i].to.data + r * row_bytes, c->cols * size, NULL));
  }
  PetscCall(PetscFree(there));
  PetscFunctionReturn(hosted_after(PETSC_SUCCESS));
}

/* Number of bytes up to the end of the last of n rows. */
static int64_t hosted_rows_bytes(int64_t n, int64_t row_bytes, int64_t stride, const int64_t *index)
{
  int64_t last = n - 1;

  for (int64_t i = 0; index && i < n; i++) last = i == 0 ? index[0] : PetscMax(last, index[i]);
  return n > 0 ? last * stride + row_bytes : 0;
}

static PetscErrorCode hosted_copy_rows(TrsStream stream, TrsWorkspace workspace, int n,
                                       const TrsRowsCopy *copy)
{
  TrsRowsCopy there[8];

  assert_in_range(n, 0, 8);
  for (int k = 0; k < n; k++) {
    const TrsRowsCopy *c = &copy[k];

    there[k] = *c;
    there[k].from = IN(c->from, hosted_rows_bytes(c->n, c->row_bytes, c->from_stride, c->from_index));
    there[k].to = OUT(c->to, hosted_rows_bytes(c->n, c->row_bytes, c->to_stride, c->to_index));
    there[k].from_index = IN(c->from_index, c->n * 8);
    there[k].to_index = IN(c->to_index, c->n * 8);
  }
  AFTER(copy_rows(stream, workspace, n, there));
}

static PetscErrorCode hosted_sum_matrices(TrsStream stream, int n_parts, const float *const *from,
                                          int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                          int64_t to_stride)
{
  const float *parts[HOSTED_COPIES];

  assert_in_range(n_parts, 0, HOSTED_COPIES - 1);
  for (int p = 0; p < n_parts; p++)
    parts[p] = IN(from[p], rows > 0 ? ((rows - 1) * from_stride + cols) * 4 : 0);
  AFTER(sum_matrices(stream, n_parts, parts, from_stride, rows, cols,
                     OUT(to, rows > 0 ? ((rows - 1) * to_stride + cols) * 4 : 0), to_stride));
}

/* All columns must be in one matrix, and the first of them must begin it. */
static PetscErrorCode hosted_divide_columns(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean)
{
  TrsMeanColumns there[HOSTED_COPIES];
  const char *first;
  int64_t bytes = 0;
  char *m;

  if (n == 0 || rows == 0) return PETSC_SUCCESS;
  assert_in_range(n, 0, HOSTED_COPIES - 1);
  first = (const char *)mean[0].columns.data;
  for (int i = 0; i < n; i++)
    bytes = PetscMax(bytes, (const char *)mean[i].columns.data - first +
                                hosted_columns_bytes(mean[i].columns, rows, mean[i].cols));
  m = (char *)hosted_copy(first, bytes, PETSC_TRUE);
  for (int i = 0; i < n; i++) {
    there[i] = mean[i];
    there[i].columns.data = m + ((const char *)mean[i].columns.data - first);
    there[i].lengths = IN(mean[i].lengths, rows * 4);
  }
  AFTER(divide_columns(stream, rows, n, there));
}

static PetscErrorCode hosted_clamp_matrix(TrsStream stream, int64_t rows, int64_t cols, float limit,
                                          float *matrix, int64_t stride)
{
  AFTER(clamp_matrix(stream, rows, cols, limit, OUT(matrix, rows > 0 ? ((rows - 1) * stride + cols) * 4 : 0),
                     stride));
}

/* All kernels that have a wrapper above. */
#define HOSTED_KERNELS(X) \
  X(offsets) \
  X(permute_blocks) \
  X(bucketize) \
  X(unique) \
  X(unique_bags) \
  X(take_bags) \
  X(pad_offsets) \
  X(sequence_forward) \
  X(sequence_backward) \
  X(positions) \
  X(position_weights) \
  X(position_gradients) \
  X(tbe_weight_gradients) \
  X(tbe_forward) \
  X(tbe_forward_rows) \
  X(tbe_find_occurrences) \
  X(tbe_backward) \
  X(tbe_backward_rows) \
  X(tbe_list_rows) \
  X(merge_rows) \
  X(tbe_row_gradients) \
  X(tbe_update_rows) \
  X(copy_columns) \
  X(copy_rows) \
  X(sum_matrices) \
  X(divide_columns) \
  X(clamp_matrix)

/*
  The i-th backend that can run on this machine, or NULL after the last one. Valid until the next
  call.
*/
static const TrsComputeOps *trs_hosted(int i)
{
  static TrsComputeOps table;
  int n_devices = 0;
  char why_not[256];

  for (int b = 0; trs_compute_backends[b]; b++) {
    assert_petsc_ok(TrsDeviceFind(trs_compute_backends[b]->name, &hosted_device));
    assert_petsc_ok(hosted_device->available(&n_devices, why_not, sizeof(why_not)));
    if (n_devices == 0 || i-- > 0) continue;
    hosted_ops = trs_compute_backends[b];
    if (hosted_device->host_memory) return hosted_ops;
    assert_petsc_ok(hosted_device->setup(0, 1));
    table = *hosted_ops;
#define WRAP(kernel) \
  if (table.kernel) table.kernel = hosted_##kernel;
    HOSTED_KERNELS(WRAP)
#undef WRAP
    return &table;
  }
  return NULL;
}
