/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Every backend's kernels for tests that hold their data in host memory: around each call arrays go to the device and back.

    for (int i = 0; (compute = trs_hosted(i)); i++) test_with(compute);

  The first is the CPU's own table; the others are what this build has and this machine has a device for.
*/
#pragma once

#include "compute/compute_ops.h"
#include "compute/quant.h"
#include "trs_test.h"

#include <string.h>

static const TrsDeviceOps *hosted_device;
static const TrsComputeOps *hosted_ops;

/* A device copy of host memory, or NULL for NULL. Nothing is there to copy in arrays that are only written: they are copied all the same,
   so that what a kernel must leave alone stays. */
static void *hosted_in(const void *host, int64_t bytes)
{
  void *copy = NULL;

  if (!host) return NULL;
  assert_petsc_ok(hosted_device->alloc(bytes > 0 ? bytes : 1, &copy));
  assert_petsc_ok(hosted_device->copy(copy, host, bytes, NULL));
  assert_petsc_ok(hosted_device->stream_synchronize(NULL));
  return copy;
}

/* The end of a device copy: its contents go to `host` unless that is NULL. */
static void hosted_out(void *copy, void *host, int64_t bytes)
{
  if (!copy) return;
  if (host) assert_petsc_ok(hosted_device->copy(host, copy, bytes, NULL));
  assert_petsc_ok(hosted_device->stream_synchronize(NULL));
  assert_petsc_ok(hosted_device->release(&copy));
}

/* --- jagged tensors --- */

static PetscErrorCode hosted_offsets(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets)
{
  int32_t *in = (int32_t *)hosted_in(lengths, n * 4);
  int64_t *out = (int64_t *)hosted_in(offsets, (n + 1) * 8);

  PetscFunctionBegin;
  PetscCall(hosted_ops->offsets(stream, n, in, out));
  hosted_out(in, NULL, 0);
  hosted_out(out, offsets, (n + 1) * 8);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsJagged hosted_jagged_in(const TrsJagged *host, int64_t n_bags, int64_t n_values)
{
  TrsJagged copy = *host;

  copy.lengths = (int32_t *)hosted_in(host->lengths, n_bags * 4);
  copy.offsets = (int64_t *)hosted_in(host->offsets, (n_bags + 1) * 8);
  copy.values = (int64_t *)hosted_in(host->values, n_values * 8);
  copy.weights = (float *)hosted_in(host->weights, n_values * 4);
  return copy;
}

static void hosted_jagged_out(TrsJagged *copy, TrsJagged *host, int64_t n_bags, int64_t n_values)
{
  hosted_out(copy->lengths, host ? host->lengths : NULL, n_bags * 4);
  hosted_out(copy->offsets, host ? host->offsets : NULL, (n_bags + 1) * 8);
  hosted_out(copy->values, host ? host->values : NULL, n_values * 8);
  hosted_out(copy->weights, host ? host->weights : NULL, n_values * 4);
}

static PetscErrorCode hosted_permute_blocks(TrsStream stream, TrsWorkspace workspace, int n_in,
                                            const int64_t *block_begin, int n_out, const int *permutation,
                                            const TrsJagged *in, TrsJagged *out)
{
  const int64_t n_in_bags = block_begin[n_in];
  TrsJagged from = hosted_jagged_in(in, n_in_bags, in->offsets[n_in_bags]), to;
  int64_t n_bags = 0, n_values = 0;

  PetscFunctionBegin;
  for (int j = 0; j < n_out; j++) {
    const int64_t first = block_begin[permutation[j]], end = block_begin[permutation[j] + 1];

    n_bags += end - first;
    n_values += in->offsets[end] - in->offsets[first];
  }
  to = hosted_jagged_in(out, n_bags, n_values);
  PetscCall(hosted_ops->permute_blocks(stream, workspace, n_in, block_begin, n_out, permutation, &from, &to));
  hosted_jagged_out(&from, NULL, 0, 0);
  hosted_jagged_out(&to, out, n_bags, n_values);
  out->n_bags = to.n_bags;
  out->n_values = n_values; /* a device leaves this to the caller */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_bucketize(TrsStream stream, TrsWorkspace workspace, int n_buckets,
                                       int n_features, int64_t batch, const TrsBucketSpec *spec,
                                       const TrsJagged *in, TrsJagged *out, int64_t *unbucketize)
{
  const int64_t n_bags = n_features * batch, n = in->offsets[n_bags];
  TrsJagged from = hosted_jagged_in(in, n_bags, n), to = hosted_jagged_in(out, n_buckets * n_bags, n);
  int64_t *where = (int64_t *)hosted_in(unbucketize, n * 8);

  PetscFunctionBegin;
  PetscCall(hosted_ops->bucketize(stream, workspace, n_buckets, n_features, batch, spec, &from, &to, where));
  hosted_jagged_out(&from, NULL, 0, 0);
  hosted_jagged_out(&to, out, n_buckets * n_bags, n);
  hosted_out(where, unbucketize, n * 8);
  out->n_bags = to.n_bags;
  out->n_values = to.n_values;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_unique(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                    const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                                    int64_t *unique_values, int64_t *reverse)
{
  const int64_t n = values_begin[n_tables];
  int64_t *in = (int64_t *)hosted_in(values, n * 8), *unique = (int64_t *)hosted_in(unique_values, n * 8),
          *back = (int64_t *)hosted_in(reverse, n * 8);

  PetscFunctionBegin;
  PetscCall(hosted_ops->unique(stream, workspace, n_tables, values_begin, in, unique_begin, unique, back));
  hosted_out(in, NULL, 0);
  hosted_out(unique, unique_values, n * 8);
  hosted_out(back, reverse, n * 8);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- bags that samples share --- */

/* Bags of a call: as many blocks as it names. */
static int64_t hosted_blocks(int n, const int *block)
{
  int most = -1;

  for (int i = 0; i < n; i++) most = PetscMax(most, block[i]);
  return most + 1;
}

static TrsBagLists hosted_lists_in(const TrsBagLists *lists, int64_t n)
{
  return (TrsBagLists){.batch = lists->batch,
                       .sample = (int32_t *)hosted_in(lists->sample, n * lists->batch * 4),
                       .n = (int64_t *)hosted_in(lists->n, n * 8)};
}

static PetscErrorCode hosted_unique_bags(TrsStream stream, TrsWorkspace workspace, int n_features,
                                         const int *feature, const TrsJagged *in, const TrsBagLists *lists,
                                         int64_t *inverse)
{
  const int64_t n_bags = hosted_blocks(n_features, feature) * lists->batch, n = n_features * lists->batch;
  TrsJagged from = hosted_jagged_in(in, n_bags, in->offsets[n_bags]);
  TrsBagLists found = hosted_lists_in(lists, n_features);
  int64_t *back = (int64_t *)hosted_in(inverse, n * 8);

  PetscFunctionBegin;
  PetscCall(hosted_ops->unique_bags(stream, workspace, n_features, feature, &from, &found, back));
  hosted_jagged_out(&from, NULL, 0, 0);
  hosted_out(found.sample, lists->sample, n * 4);
  hosted_out(found.n, lists->n, n_features * 8);
  hosted_out(back, inverse, n * 8);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* out->n_values: the room there is for ids. */
static PetscErrorCode hosted_take_bags(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                                       const int *list, const TrsBagLists *lists, const TrsJagged *in,
                                       TrsJagged *out, int64_t *limits)
{
  const int64_t n_bags = hosted_blocks(n_out, block) * lists->batch, n = n_out * lists->batch;
  TrsJagged from = hosted_jagged_in(in, n_bags, in->offsets[n_bags]),
            to = hosted_jagged_in(out, n, out->n_values);
  TrsBagLists taken = hosted_lists_in(lists, hosted_blocks(n_out, list));
  int64_t *where = (int64_t *)hosted_in(limits, (2 * n_out + 1) * 8);

  PetscFunctionBegin;
  PetscCall(hosted_ops->take_bags(stream, workspace, n_out, block, list, &taken, &from, &to, where));
  hosted_jagged_out(&from, NULL, 0, 0);
  hosted_jagged_out(&to, out, n, out->n_values);
  hosted_out(taken.sample, NULL, 0);
  hosted_out(taken.n, NULL, 0);
  hosted_out(where, limits, (2 * n_out + 1) * 8);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_pad_offsets(TrsStream stream, TrsWorkspace workspace, int n_features,
                                         const int64_t *strides, int64_t batch, const int64_t *offsets,
                                         int64_t *to)
{
  int64_t n_bags = 0, *from, *there;

  PetscFunctionBegin;
  for (int f = 0; f < n_features; f++) n_bags += strides[f];
  from = (int64_t *)hosted_in(offsets, (n_bags + 1) * 8);
  there = (int64_t *)hosted_in(to, (n_features * batch + 1) * 8);
  PetscCall(hosted_ops->pad_offsets(stream, workspace, n_features, strides, batch, from, there));
  hosted_out(from, NULL, 0);
  hosted_out(there, to, (n_features * batch + 1) * 8);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- sequences and positions --- */

/* Device copies of bags; n_rows: rows they reach. */
static TrsSequenceBags hosted_bags_in(const TrsSequenceBags *bags, int64_t *n_rows)
{
  const int64_t n = bags->offsets[bags->batch];
  TrsSequenceBags copy = *bags;

  *n_rows = 0;
  for (int64_t i = 0; i < n; i++)
    *n_rows = PetscMax(*n_rows, (bags->index ? bags->index[i] : i) + bags->shift + 1);
  copy.offsets = (const int64_t *)hosted_in(bags->offsets, (bags->batch + 1) * 8);
  copy.ids = (const int64_t *)hosted_in(bags->ids, n * 8);
  copy.index = (const int64_t *)hosted_in(bags->index, n * 8);
  return copy;
}

static void hosted_bags_out(TrsSequenceBags *copy)
{
  hosted_out((void *)(uintptr_t)copy->offsets, NULL, 0);
  hosted_out((void *)(uintptr_t)copy->ids, NULL, 0);
  hosted_out((void *)(uintptr_t)copy->index, NULL, 0);
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
  const int64_t bytes = hosted_bags_bytes(bags, out_stride);
  int64_t n_rows;
  TrsSequenceBags copy = hosted_bags_in(bags, &n_rows);
  float *r = (float *)hosted_in(rows, n_rows * bags->row_stride * 4), *o = (float *)hosted_in(out, bytes);

  PetscFunctionBegin;
  PetscCall(hosted_ops->sequence_forward(stream, &copy, r, o, out_stride));
  hosted_bags_out(&copy);
  hosted_out(r, NULL, 0);
  hosted_out(o, out, bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_sequence_backward(TrsStream stream, const TrsSequenceBags *bags,
                                               const float *rows, const float *grad, int64_t grad_stride,
                                               PetscBool by_id, float *to)
{
  int64_t n_rows;
  TrsSequenceBags copy = hosted_bags_in(bags, &n_rows);
  const int64_t bytes = (by_id ? bags->offsets[bags->batch] : n_rows) * bags->row_stride * 4;
  float *r = (float *)hosted_in(rows, n_rows * bags->row_stride * 4),
        *g = (float *)hosted_in(grad, hosted_bags_bytes(bags, grad_stride)),
        *t = (float *)hosted_in(to, bytes);

  PetscFunctionBegin;
  PetscCall(hosted_ops->sequence_backward(stream, &copy, r, g, grad_stride, by_id, t));
  hosted_bags_out(&copy);
  hosted_out(r, NULL, 0);
  hosted_out(g, NULL, 0);
  hosted_out(t, to, bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_positions(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                       float *positions)
{
  const int64_t n = offsets[n_bags];
  int64_t *o = (int64_t *)hosted_in(offsets, (n_bags + 1) * 8);
  float *p = (float *)hosted_in(positions, n * 4);

  PetscFunctionBegin;
  PetscCall(hosted_ops->positions(stream, n_bags, o, p));
  hosted_out(o, NULL, 0);
  hosted_out(p, positions, n * 4);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_position_weights(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                              const float *positions, int64_t length,
                                              const float *by_position, float *weights)
{
  const int64_t n = offsets[n_bags];
  int64_t *o = (int64_t *)hosted_in(offsets, (n_bags + 1) * 8);
  float *p = (float *)hosted_in(positions, n * 4), *b = (float *)hosted_in(by_position, length * 4),
        *w = (float *)hosted_in(weights, n * 4);

  PetscFunctionBegin;
  PetscCall(hosted_ops->position_weights(stream, n_bags, o, p, length, b, w));
  hosted_out(o, NULL, 0);
  hosted_out(p, NULL, 0);
  hosted_out(b, NULL, 0);
  hosted_out(w, weights, n * 4);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_position_gradients(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                                const int64_t *offsets, const float *positions,
                                                const float *grad_weights, int64_t length, float *by_position)
{
  const int64_t n = offsets[n_bags];
  int64_t *o = (int64_t *)hosted_in(offsets, (n_bags + 1) * 8);
  float *p = (float *)hosted_in(positions, n * 4), *g = (float *)hosted_in(grad_weights, n * 4),
        *b = (float *)hosted_in(by_position, length * 4);

  PetscFunctionBegin;
  PetscCall(hosted_ops->position_gradients(stream, workspace, n_bags, o, p, g, length, b));
  hosted_out(o, NULL, 0);
  hosted_out(p, NULL, 0);
  hosted_out(g, NULL, 0);
  hosted_out(b, by_position, length * 4);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- embeddings --- */

enum { HOSTED_TABLES = 64 };

/* A batch and its tables on the device. */
typedef struct {
  TrsTbeTable table[HOSTED_TABLES];
  TrsTbe tbe;
  TrsTbeInput input;
} TrsHostedTbe;

/* Floats of one of an optimizer's states, 0: it has none. */
static int64_t hosted_state_floats(const TrsTbeTable *table, const TrsSparseOptimizerArgs *args, int s)
{
  const int64_t all = table->rows * table->dim;

  if (!args || !table->state[s]) return 0;
  if (args->kind == TRS_OPTIM_ROWWISE_ADAGRAD) return table->rows;
  if (s == 1 &&
      (args->kind == TRS_OPTIM_PARTIAL_ROWWISE_ADAM || args->kind == TRS_OPTIM_PARTIAL_ROWWISE_LAMB))
    return table->rows;
  return all;
}

static int64_t hosted_table_bytes(const TrsTbeTable *table)
{
  return table->rows * table->stride * (TrsDTypeBits(table->dtype) > 8 ? TrsDTypeBytes(table->dtype) : 1);
}

static TrsTbeTable hosted_table_in(const TrsTbeTable *host, const TrsSparseOptimizerArgs *args)
{
  TrsTbeTable copy = *host;

  copy.weight = hosted_in(host->weight, hosted_table_bytes(host));
  copy.row_of = (const int64_t *)hosted_in(host->row_of, host->rows * 8);
  for (int s = 0; s < 2; s++) {
    const int64_t floats = hosted_state_floats(host, args, s);
    copy.state[s] = floats ? (float *)hosted_in(host->state[s], floats * 4) : NULL;
  }
  return copy;
}

static void hosted_table_out(TrsTbeTable *copy, const TrsTbeTable *host, const TrsSparseOptimizerArgs *args)
{
  hosted_out(copy->weight, args ? host->weight : NULL, hosted_table_bytes(host));
  hosted_out((void *)(uintptr_t)copy->row_of, NULL, 0);
  for (int s = 0; s < 2; s++)
    hosted_out(copy->state[s], host->state[s], hosted_state_floats(host, args, s) * 4);
}

static void hosted_tbe_in(const TrsTbe *tbe, const TrsTbeInput *input, const TrsSparseOptimizerArgs *args,
                          TrsHostedTbe *copy)
{
  assert_true(tbe->n_tables <= HOSTED_TABLES);
  for (int t = 0; t < tbe->n_tables; t++) copy->table[t] = hosted_table_in(&tbe->table[t], args);
  copy->tbe = *tbe;
  copy->tbe.table = copy->table;
  copy->input = *input;
  copy->input.offsets = (const int64_t *)hosted_in(input->offsets, (tbe->n_features * input->batch + 1) * 8);
  copy->input.values = (const int64_t *)hosted_in(input->values, input->n_values * 8);
  copy->input.weights = (const float *)hosted_in(input->weights, input->n_values * 4);
}

static void hosted_tbe_out(const TrsTbe *tbe, const TrsSparseOptimizerArgs *args, TrsHostedTbe *copy)
{
  for (int t = 0; t < tbe->n_tables; t++) hosted_table_out(&copy->table[t], &tbe->table[t], args);
  hosted_out((void *)(uintptr_t)copy->input.offsets, NULL, 0);
  hosted_out((void *)(uintptr_t)copy->input.values, NULL, 0);
  hosted_out((void *)(uintptr_t)copy->input.weights, NULL, 0);
}

/* Bytes of the rows of a matrix, and a copy of it on the device. */
static int64_t hosted_matrix_bytes(TrsMatrix matrix, int64_t rows)
{
  return rows * matrix.stride * TrsDTypeBytes(matrix.type);
}

static TrsMatrix hosted_matrix_in(TrsMatrix matrix, int64_t rows)
{
  matrix.data = hosted_in(matrix.data, hosted_matrix_bytes(matrix, rows));
  return matrix;
}

static PetscErrorCode hosted_tbe_forward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                         const TrsTbeInput *input, TrsMatrix out)
{
  TrsMatrix to = hosted_matrix_in(out, input->batch);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, NULL, &copy);
  PetscCall(hosted_ops->tbe_forward(stream, workspace, &copy.tbe, &copy.input, to));
  hosted_tbe_out(tbe, NULL, &copy);
  hosted_out(to.data, out.data, hosted_matrix_bytes(out, input->batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_forward_rows(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                              const TrsTbeInput *input, float *out, int64_t out_stride)
{
  const int64_t bytes = input->n_values * out_stride * 4;
  float *to = (float *)hosted_in(out, bytes);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, NULL, &copy);
  PetscCall(hosted_ops->tbe_forward_rows(stream, workspace, &copy.tbe, &copy.input, to, out_stride));
  hosted_tbe_out(tbe, NULL, &copy);
  hosted_out(to, out, bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_backward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                          const TrsTbeInput *input, TrsMatrix grad,
                                          const TrsSparseOptimizerArgs *args)
{
  TrsMatrix g = hosted_matrix_in(grad, input->batch);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, args, &copy);
  PetscCall(hosted_ops->tbe_backward(stream, workspace, &copy.tbe, &copy.input, g, args));
  hosted_tbe_out(tbe, args, &copy);
  hosted_out(g.data, NULL, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_find_occurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                                  const TrsTbeInput *input, TrsTbeUse use,
                                                  TrsTbeOccurrences *occurrences)
{
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, NULL, &copy);
  PetscCall(hosted_ops->tbe_find_occurrences(stream, workspace, &copy.tbe, &copy.input, use, occurrences));
  hosted_tbe_out(tbe, NULL, &copy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_weight_gradients(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                                  const TrsTbeInput *input, const float *grad,
                                                  int64_t grad_stride, float *grad_weights)
{
  float *g = (float *)hosted_in(grad, input->batch * grad_stride * 4),
        *w = (float *)hosted_in(grad_weights, input->n_values * 4);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, NULL, &copy);
  PetscCall(hosted_ops->tbe_weight_gradients(stream, workspace, &copy.tbe, &copy.input, g, grad_stride, w));
  hosted_tbe_out(tbe, NULL, &copy);
  hosted_out(g, NULL, 0);
  hosted_out(w, grad_weights, input->n_values * 4);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_backward_rows(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, const float *grad,
                                               int64_t grad_stride, const TrsSparseOptimizerArgs *args)
{
  float *g = (float *)hosted_in(grad, input->n_values * grad_stride * 4);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, args, &copy);
  PetscCall(hosted_ops->tbe_backward_rows(stream, workspace, &copy.tbe, &copy.input, g, grad_stride, args));
  hosted_tbe_out(tbe, args, &copy);
  hosted_out(g, NULL, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_row_gradients(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, TrsMatrix grad, int64_t *row_begin,
                                               int64_t *rows, float *row_grad, int64_t row_stride)
{
  const int64_t n = input->n_values;
  TrsMatrix g = hosted_matrix_in(grad, input->batch);
  float *to = (float *)hosted_in(row_grad, n * row_stride * 4);
  int64_t *ids = (int64_t *)hosted_in(rows, n * 8);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, NULL, &copy);
  PetscCall(hosted_ops->tbe_row_gradients(stream, workspace, &copy.tbe, &copy.input, g, row_begin, ids, to,
                                          row_stride));
  hosted_tbe_out(tbe, NULL, &copy);
  hosted_out(g.data, NULL, 0);
  hosted_out(ids, rows, n * 8);
  hosted_out(to, row_grad, n * row_stride * 4);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_list_rows(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                           const TrsTbeInput *input, int64_t *row_begin, int64_t *rows)
{
  int64_t *ids = (int64_t *)hosted_in(rows, input->n_values * 8);
  TrsHostedTbe copy;

  PetscFunctionBegin;
  hosted_tbe_in(tbe, input, NULL, &copy);
  PetscCall(hosted_ops->tbe_list_rows(stream, workspace, &copy.tbe, &copy.input, row_begin, ids));
  hosted_tbe_out(tbe, NULL, &copy);
  hosted_out(ids, rows, input->n_values * 8);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_merge_rows(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                        const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                        const int64_t *rows, int64_t *keys, int64_t *index)
{
  const int64_t bytes = begin[n_lists * n_tables] * 8;
  int64_t *r = (int64_t *)hosted_in(rows, bytes), *k = (int64_t *)hosted_in(keys, bytes),
          *i = (int64_t *)hosted_in(index, bytes);

  PetscFunctionBegin;
  PetscCall(hosted_ops->merge_rows(stream, workspace, n_tables, table, n_lists, begin, r, k, i));
  hosted_out(r, NULL, 0);
  hosted_out(k, keys, bytes);
  hosted_out(i, index, bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_tbe_update_rows(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                             const TrsTbeTable *table, int64_t n, const int64_t *keys,
                                             const int64_t *index, const float *grad, int64_t grad_stride,
                                             const TrsSparseOptimizerArgs *args)
{
  TrsTbeTable copy[HOSTED_TABLES];
  int64_t n_grad = n;
  int64_t *k = (int64_t *)hosted_in(keys, n * 8), *i = (int64_t *)hosted_in(index, n * 8);
  float *g;

  PetscFunctionBegin;
  assert_true(n_tables <= HOSTED_TABLES);
  for (int t = 0; t < n_tables; t++) copy[t] = hosted_table_in(&table[t], args);
  for (int64_t e = 0; index && e < n; e++) n_grad = PetscMax(n_grad, index[e] + 1);
  g = (float *)hosted_in(grad, n_grad * grad_stride * 4);
  PetscCall(hosted_ops->tbe_update_rows(stream, workspace, n_tables, copy, n, k, i, g, grad_stride, args));
  for (int t = 0; t < n_tables; t++) hosted_table_out(&copy[t], &table[t], args);
  hosted_out(k, NULL, 0);
  hosted_out(i, NULL, 0);
  hosted_out(g, NULL, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- matrices --- */

/* Bytes of columns of rows, from the first number to the last. */
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
    there[i].from.data = hosted_in(c->from.data, hosted_columns_bytes(c->from, rows, c->cols));
    there[i].to.data = hosted_in(c->to.data, hosted_columns_bytes(c->to, rows, c->cols));
  }
  PetscCall(hosted_ops->copy_columns(stream, rows, n, there));
  for (int i = 0; i < n; i++) { /* run by run: what lies between one's rows may be another's */
    const TrsColumnCopy *c = &copy[i];
    const int64_t row_bytes = c->to.stride * TrsDTypeBytes(c->to.type);
    char *all;

    hosted_out(there[i].from.data, NULL, 0);
    PetscCall(PetscMalloc1((size_t)hosted_columns_bytes(c->to, rows, c->cols) + 1, &all));
    hosted_out(there[i].to.data, all, hosted_columns_bytes(c->to, rows, c->cols));
    for (int64_t r = 0; r < rows; r++)
      memcpy((char *)c->to.data + r * row_bytes, all + r * row_bytes,
             (size_t)(c->cols * TrsDTypeBytes(c->to.type)));
    PetscCall(PetscFree(all));
  }
  PetscCall(PetscFree(there));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bytes up to the end of the last of n rows. */
static int64_t hosted_rows_bytes(int64_t n, int64_t row_bytes, int64_t stride, const int64_t *index)
{
  int64_t last = n - 1;

  for (int64_t i = 0; index && i < n; i++) last = i == 0 ? index[0] : PetscMax(last, index[i]);
  return n > 0 ? last * stride + row_bytes : 0;
}

enum { HOSTED_COPIES = 8 };

static PetscErrorCode hosted_copy_rows(TrsStream stream, TrsWorkspace workspace, int n,
                                       const TrsRowsCopy *copy)
{
  TrsRowsCopy there[HOSTED_COPIES];

  PetscFunctionBegin;
  assert_in_range(n, 0, HOSTED_COPIES);
  for (int k = 0; k < n; k++) {
    const TrsRowsCopy *c = &copy[k];

    there[k] = *c;
    there[k].from = hosted_in(c->from, hosted_rows_bytes(c->n, c->row_bytes, c->from_stride, c->from_index));
    there[k].to = hosted_in(c->to, hosted_rows_bytes(c->n, c->row_bytes, c->to_stride, c->to_index));
    there[k].from_index = (const int64_t *)hosted_in(c->from_index, c->n * 8);
    there[k].to_index = (const int64_t *)hosted_in(c->to_index, c->n * 8);
  }
  PetscCall(hosted_ops->copy_rows(stream, workspace, n, there));
  for (int k = 0; k < n; k++) {
    const TrsRowsCopy *c = &copy[k];

    hosted_out((void *)(uintptr_t)there[k].from, NULL, 0);
    hosted_out((void *)(uintptr_t)there[k].from_index, NULL, 0);
    hosted_out((void *)(uintptr_t)there[k].to_index, NULL, 0);
    hosted_out(there[k].to, c->to, hosted_rows_bytes(c->n, c->row_bytes, c->to_stride, c->to_index));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_sum_matrices(TrsStream stream, int n_parts, const float *const *from,
                                          int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                          int64_t to_stride)
{
  const int64_t from_bytes = rows > 0 ? ((rows - 1) * from_stride + cols) * 4 : 0,
                to_bytes = rows > 0 ? ((rows - 1) * to_stride + cols) * 4 : 0;
  const float **parts;
  float *out = (float *)hosted_in(to, to_bytes);

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n_parts, &parts));
  for (int p = 0; p < n_parts; p++) parts[p] = (const float *)hosted_in(from[p], from_bytes);
  PetscCall(hosted_ops->sum_matrices(stream, n_parts, parts, from_stride, rows, cols, out, to_stride));
  for (int p = 0; p < n_parts; p++) hosted_out((void *)(uintptr_t)parts[p], NULL, 0);
  hosted_out(out, to, to_bytes);
  PetscCall(PetscFree(parts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Runs lie in one matrix, the first of them at its beginning. */
static PetscErrorCode hosted_divide_columns(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean)
{
  const char *first;
  TrsMeanColumns *there;
  int64_t bytes = 0;
  char *m;

  PetscFunctionBegin;
  if (n == 0 || rows == 0) PetscFunctionReturn(PETSC_SUCCESS);
  first = (const char *)mean[0].columns.data;
  PetscCall(PetscMalloc1((size_t)n, &there));
  for (int i = 0; i < n; i++)
    bytes = PetscMax(bytes, (const char *)mean[i].columns.data - first +
                                hosted_columns_bytes(mean[i].columns, rows, mean[i].cols));
  m = (char *)hosted_in(first, bytes);
  for (int i = 0; i < n; i++) {
    there[i] = mean[i];
    there[i].columns.data = m + ((const char *)mean[i].columns.data - first);
    there[i].lengths = (const int32_t *)hosted_in(mean[i].lengths, rows * 4);
  }
  PetscCall(hosted_ops->divide_columns(stream, rows, n, there));
  for (int i = 0; i < n; i++) hosted_out((void *)(uintptr_t)there[i].lengths, NULL, 0);
  hosted_out(m, mean[0].columns.data, bytes);
  PetscCall(PetscFree(there));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode hosted_clamp_matrix(TrsStream stream, int64_t rows, int64_t cols, float limit,
                                          float *matrix, int64_t stride)
{
  const int64_t bytes = rows > 0 ? ((rows - 1) * stride + cols) * 4 : 0;
  float *m = (float *)hosted_in(matrix, bytes);

  PetscFunctionBegin;
  PetscCall(hosted_ops->clamp_matrix(stream, rows, cols, limit, m, stride));
  hosted_out(m, matrix, bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The i-th backend that can run here, NULL behind the last. Valid until the next call. */
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
    table.offsets = hosted_offsets;
    table.permute_blocks = hosted_permute_blocks;
    table.bucketize = hosted_bucketize;
    table.unique = hosted_unique;
    table.unique_bags = hosted_unique_bags;
    table.take_bags = hosted_take_bags;
    table.pad_offsets = hosted_pad_offsets;
    table.sequence_forward = hosted_sequence_forward;
    table.sequence_backward = hosted_sequence_backward;
    table.positions = hosted_positions;
    table.position_weights = hosted_position_weights;
    table.position_gradients = hosted_position_gradients;
    table.tbe_weight_gradients = hosted_tbe_weight_gradients;
    table.tbe_forward = hosted_tbe_forward;
    table.tbe_forward_rows = hosted_tbe_forward_rows;
    if (table.tbe_find_occurrences) table.tbe_find_occurrences = hosted_tbe_find_occurrences;
    table.tbe_backward = hosted_tbe_backward;
    table.tbe_backward_rows = hosted_tbe_backward_rows;
    table.tbe_list_rows = hosted_tbe_list_rows;
    table.merge_rows = hosted_merge_rows;
    table.tbe_row_gradients = hosted_tbe_row_gradients;
    table.tbe_update_rows = hosted_tbe_update_rows;
    table.copy_columns = hosted_copy_columns;
    table.copy_rows = hosted_copy_rows;
    table.sum_matrices = hosted_sum_matrices;
    table.divide_columns = hosted_divide_columns;
    table.clamp_matrix = hosted_clamp_matrix;
    return &table;
  }
  return NULL;
}
