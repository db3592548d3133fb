/* SPDX-License-Identifier: BSD-3-Clause */
/*
  gru: the last state of a recurrent layer that reads a bag's rows in order. An empty bag has the
  state 0.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)      h: the previous state, initially 0
    z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
    the next state is (1 - z) * n + z * h

  Rows are packed by step: the bags are sorted by decreasing length, so that the bags that still
  have a row in a step come first. Each step is then one matrix multiplication on adjacent rows, and
  no bag is padded.

  Source: torch.nn.GRU (one layer, bias), with the same parameter names and order of gates
*/
#include "model/mlp.h"
#include "model/sequence_layer.h"

#include <math.h>
#include <string.h>

typedef struct {
  int weight_ih, weight_hh, bias_ih, bias_hh;
  TrsPinnedBuffer lists; /* the last batch's lists on the host */
  TrsWorkspace workspace;
} TrsGru;

/* A batch's lists, on the host or on the device. */
typedef struct {
  int64_t *bag;   /* [n bags] by decreasing length; empty bags at the end */
  int64_t *row;   /* [n_rows] index of each packed row among the bags' rows */
  int64_t *first; /* [n_steps + 1] index of each step's first packed row; only on the host */
} TrsGruLists;

/* A batch's arrays, in the layer's memory. The arrays of floats are packed by step. */
typedef struct {
  /* number of all bags, of rows, of bags with a row, and of steps of the longest bag */
  int64_t n, n_rows, n_bags, n_steps;
  TrsGruLists host, device;
  float *x, *before; /* [n_rows, D] the rows, and [n_rows, H] the state before each row */
  /* [n_rows, 3 H] r, z, n, and the multiplications by W_h; later their gradients */
  float *from_x, *from_h;
  float *dh; /* [n_bags, H] */
  /*
    Operands of matrix multiplications, in the operands' type: copies of x and before, and in a
    backward of from_x and from_h. With fp32 they are these arrays themselves.
  */
  TrsMatrix x_operand, before_operand, from_x_operand, from_h_operand;
  int64_t bytes;
} TrsGruBatch;

static PetscErrorCode declare(TrsSequenceLayer *layer)
{
  const int64_t H = layer->width;
  const double bound = 1.0 / sqrt((double)H);
  TrsGru *gru;

  PetscFunctionBegin;
  PetscCall(PetscNew(&gru));
  layer->own = gru;
  PetscCall(TrsSequenceLayerParameter(layer, "weight_ih_l0", 3 * H, layer->dim, TRS_INIT_UNIFORM, bound,
                                      &gru->weight_ih));
  PetscCall(
      TrsSequenceLayerParameter(layer, "weight_hh_l0", 3 * H, H, TRS_INIT_UNIFORM, bound, &gru->weight_hh));
  PetscCall(TrsSequenceLayerParameter(layer, "bias_ih_l0", 3 * H, 0, TRS_INIT_UNIFORM, bound, &gru->bias_ih));
  PetscCall(TrsSequenceLayerParameter(layer, "bias_hh_l0", 3 * H, 0, TRS_INIT_UNIFORM, bound, &gru->bias_hh));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsSequenceLayer *layer, double ids)
{
  const double H = (double)layer->width;

  return ids * (6.0 * H * ((double)layer->dim + H) + 13.0 * H);
}

static double bytes(const TrsSequenceLayer *layer, double ids)
{
  return (double)sizeof(float) *
         (ids * (2.0 * (double)layer->dim + 14.0 * (double)layer->width) + (double)layer->width);
}

/* Lay the arrays out in `memory`. If `memory` is NULL, only count their bytes. */
static void lay_out(const TrsSequenceLayer *layer, void *memory, TrsGruBatch *batch)
{
  const int64_t n = batch->n_rows, H = layer->width;
  /* the array of states has a row of zeros even if there are no rows */
  const int64_t floats[] = {n * layer->dim, (n + 1) * H, 3 * n * H, 3 * n * H, batch->n_bags * H};
  float **arrays[] = {&batch->x, &batch->before, &batch->from_x, &batch->from_h, &batch->dh};
  /* number of columns of each operand below */
  const int64_t cols[] = {layer->dim, H, 3 * H, 3 * H};
  TrsMatrix *operands[] = {&batch->x_operand, &batch->before_operand, &batch->from_x_operand,
                           &batch->from_h_operand};
  const TrsDType type = layer->context->params->type;
  int64_t at = 2 * TrsWholeLines(batch->n + batch->n_rows); /* an int64 is as large as two floats */

  batch->device.bag = (int64_t *)memory;
  batch->device.row = memory ? batch->device.bag + batch->n : NULL;
  for (int i = 0; i < 5; i++) {
    *arrays[i] = memory ? (float *)memory + at : NULL;
    at += TrsWholeLines(floats[i]);
  }
  for (int i = 0; i < 4; i++)
    *operands[i] = type == TRS_FP32 ? TrsFloats(*arrays[i], cols[i])
                                    : TrsTakeMatrix((float *)memory, &at, n + 1, cols[i], type);
  batch->bytes = at * (int64_t)sizeof(float);
}

/*
  Sort the bags by decreasing length, and bags of equal length by index. Also find the first packed
  row of each step.
*/
static void sort_bags(int64_t n, const int64_t *offsets, TrsGruBatch *batch)
{
  int64_t *first = batch->host.first, n_empty = 0;

  memset(first, 0, (size_t)(batch->n_steps + 1) * sizeof(*first));
  /*
    At first, first[t] counts the bags with exactly t + 1 rows. Then it is the next position for
    such a bag.
  */
  for (int64_t b = 0; b < n; b++)
    if (offsets[b + 1] > offsets[b]) first[offsets[b + 1] - offsets[b] - 1]++;
  for (int64_t t = batch->n_steps - 1, at = 0; t >= 0; t--) {
    const int64_t of_length = first[t];

    first[t] = at;
    at += of_length;
  }
  for (int64_t b = 0; b < n; b++)
    if (offsets[b + 1] > offsets[b])
      batch->host.bag[first[offsets[b + 1] - offsets[b] - 1]++] = b;
    else
      batch->host.bag[batch->n_bags + n_empty++] = b;
  /* Now first[t] is the number of bags with more than t rows. Compute each step's first packed
     row from it. */
  for (int64_t t = 0, at = 0; t <= batch->n_steps; t++) {
    const int64_t active = t < batch->n_steps ? first[t] : 0;

    first[t] = at;
    at += active;
  }
  for (int64_t t = 0; t < batch->n_steps; t++)
    for (int64_t p = first[t]; p < first[t + 1]; p++)
      batch->host.row[p] = offsets[batch->host.bag[p - first[t]]] + t;
}

/* Make the batch's lists, on the host and on the device. */
static PetscErrorCode make_lists(const TrsSequenceLayer *layer, TrsStream stream, const TrsBagRows *bags,
                                 TrsGruBatch *batch)
{
  const TrsDeviceOps *device = layer->context->device;

  PetscFunctionBegin;
  sort_bags(batch->n, bags->on_host, batch);
  PetscCall(device->copy(batch->device.bag, batch->host.bag,
                         (batch->n + batch->n_rows) * (int64_t)sizeof(int64_t), stream));
  /* Wait, because the next batch's lists use the same memory. */
  if (!device->host_memory) PetscCall(device->stream_synchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the bags' rows to packed rows. With `back`, copy packed gradients to the bags instead. */
static PetscErrorCode pack(const TrsSequenceLayer *layer, TrsStream stream, const TrsGruBatch *batch,
                           const TrsBagRows *bags, PetscBool back)
{
  const int64_t bytes = layer->dim * (int64_t)sizeof(float);
  const TrsRowsCopy copy = {.n = batch->n_rows,
                            .row_bytes = bytes,
                            .from = back ? batch->x : bags->rows,
                            .from_stride = bytes,
                            .from_index = back ? NULL : batch->device.row,
                            .to = back ? bags->grads : batch->x,
                            .to_stride = bytes,
                            .to_index = back ? batch->device.row : NULL};

  PetscFunctionBegin;
  PetscCall(layer->context->compute->copy_rows(stream, ((const TrsGru *)layer->own)->workspace, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lay out the batch's arrays for n bags. */
static PetscErrorCode begin_batch(TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags,
                                  TrsGruBatch *batch)
{
  const TrsDeviceOps *device = layer->context->device;
  TrsGru *gru = (TrsGru *)layer->own;

  PetscFunctionBegin;
  if (!gru->workspace) PetscCall(layer->context->compute->workspace_create(&gru->workspace));
  *batch = (TrsGruBatch){.n = n, .n_rows = bags->n_rows};
  for (int64_t b = 0; b < n; b++) {
    const int64_t length = bags->on_host[b + 1] - bags->on_host[b];

    batch->n_bags += length > 0;
    batch->n_steps = PetscMax(batch->n_steps, length);
  }
  lay_out(layer, NULL, batch);
  PetscCall(TrsDeviceBufferReserve(device, &layer->memory, batch->bytes));
  lay_out(layer, layer->memory.data, batch);
  PetscCall(TrsPinnedBufferReserve(device, &gru->lists,
                                   (n + batch->n_rows + batch->n_steps + 1) * (int64_t)sizeof(int64_t)));
  batch->host.bag = (int64_t *)gru->lists.data;
  batch->host.row = batch->host.bag + n;
  batch->host.first = batch->host.row + batch->n_rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix's rows from row `first` on. */
static TrsMatrix rows_from(TrsMatrix matrix, int64_t first)
{
  matrix.data = (char *)matrix.data + first * matrix.stride * TrsDTypeBytes(matrix.type);
  return matrix;
}

/* The arguments of step t of a batch. */
static TrsGruStep step_of(const TrsSequenceLayer *layer, const TrsGruBatch *batch, int64_t t)
{
  const int64_t H = layer->width, first = batch->host.first[t], next = batch->host.first[t + 1];
  const PetscBool copies = (PetscBool)(layer->context->params->type != TRS_FP32);

  return (TrsGruStep){.m = next - first,
                      .H = H,
                      .going_on = t + 1 < batch->n_steps ? batch->host.first[t + 2] - next : 0,
                      .gates = batch->from_x + 3 * first * H,
                      .from_h = batch->from_h + 3 * first * H,
                      .before = batch->before + first * H,
                      .next = batch->before + next * H,
                      .bag = batch->device.bag,
                      .dh = batch->dh,
                      .next_copy = copies ? rows_from(batch->before_operand, next).data : NULL,
                      .gates_copy = copies ? rows_from(batch->from_x_operand, first).data : NULL,
                      .from_h_copy = copies ? rows_from(batch->from_h_operand, first).data : NULL};
}

/* Write zeros for empty bags. The first step's states `before` are zeros, so they are copied. */
static PetscErrorCode clear_empty(const TrsSequenceLayer *layer, TrsStream stream, const TrsGruBatch *batch,
                                  TrsSequenceMatrix x)
{
  const int64_t bytes = layer->width * (int64_t)sizeof(float);
  const TrsRowsCopy copy = {.n = batch->n - batch->n_bags,
                            .row_bytes = bytes,
                            .from = batch->before,
                            .to = x.data + layer->column,
                            .to_stride = x.stride * (int64_t)sizeof(float),
                            .to_index = batch->device.bag + batch->n_bags};

  PetscFunctionBegin;
  PetscCall(layer->context->device->zero(batch->before, PetscMax(batch->n_bags, 1) * bytes, stream));
  if (batch->before_operand.data != batch->before)
    PetscCall(layer->context->device->zero(
        batch->before_operand.data, batch->n_bags * layer->width * TrsDTypeBytes(batch->before_operand.type),
        stream));
  if (copy.n > 0)
    PetscCall(layer->context->compute->copy_rows(stream, ((const TrsGru *)layer->own)->workspace, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                              TrsSequenceMatrix x)
{
  const TrsGru *gru = (const TrsGru *)layer->own;
  const TrsComputeOps *compute = layer->context->compute;
  const int64_t H = layer->width, D = layer->dim;
  TrsGruBatch batch;

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, n, bags, &batch));
  PetscCall(make_lists(layer, stream, bags, &batch));
  PetscCall(pack(layer, stream, &batch, bags, PETSC_FALSE));
  if (batch.x_operand.data != batch.x)
    PetscCall(compute->convert_matrix(stream, batch.n_rows, D, D, TrsFloats(batch.x, D), batch.x_operand));
  PetscCall(clear_empty(layer, stream, &batch, x));
  PetscCall(TrsLayerLinearForward(
      layer->context, stream, gru->weight_ih, gru->bias_ih,
      (TrsLinear){.batch = batch.n_rows, .x = batch.x_operand, .y = TrsFloats(batch.from_x, 3 * H)}));
  for (int64_t t = 0; t < batch.n_steps; t++) {
    TrsGruStep step = step_of(layer, &batch, t);

    step.to = x.data + layer->column;
    step.to_stride = x.stride;
    PetscCall(TrsLayerLinearForward(layer->context, stream, gru->weight_hh, gru->bias_hh,
                                    (TrsLinear){.batch = step.m,
                                                .x = rows_from(batch.before_operand, batch.host.first[t]),
                                                .y = TrsFloats(step.from_h, 3 * H)}));
    PetscCall(compute->gru_forward(stream, &step));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run the steps backward. Gradients overwrite the forward's arrays. */
static PetscErrorCode backward_steps(TrsSequenceLayer *layer, TrsStream stream, const TrsGruBatch *batch)
{
  const TrsGru *gru = (const TrsGru *)layer->own;
  const TrsComputeOps *compute = layer->context->compute;
  const int64_t H = layer->width;

  PetscFunctionBegin;
  for (int64_t t = batch->n_steps - 1; t >= 0; t--) {
    const TrsGruStep step = step_of(layer, batch, t);

    PetscCall(compute->gru_backward(stream, &step));
    PetscCall(compute->multiply(
        stream, &(TrsMatrixProduct){.m = step.m,
                                    .n = H,
                                    .k = 3 * H,
                                    .alpha = 1.0F,
                                    .a = rows_from(batch->from_h_operand, batch->host.first[t]),
                                    .b = TrsParametersMatrix(layer->context->params, gru->weight_hh),
                                    .beta = 1.0F,
                                    .c = TrsFloats(batch->dh, H)}));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                               TrsSequenceMatrix x, TrsSequenceMatrix dx)
{
  const TrsGru *gru = (const TrsGru *)layer->own;
  const TrsComputeOps *compute = layer->context->compute;
  const int64_t H = layer->width, D = layer->dim, state_bytes = H * (int64_t)sizeof(float);
  const TrsReluMasks none = {.y = {0}};
  TrsMatrix from_h, from_x;
  TrsGruBatch batch;
  TrsRowsCopy copy;

  PetscFunctionBegin;
  (void)x; /* the forward kept the state before each row, and the lists */
  PetscCall(begin_batch(layer, n, bags, &batch));
  from_h = batch.from_h_operand;
  from_x = batch.from_x_operand;
  copy = (TrsRowsCopy){.n = batch.n_bags,
                       .row_bytes = state_bytes,
                       .from = dx.data + layer->column,
                       .from_stride = dx.stride * (int64_t)sizeof(float),
                       .from_index = batch.device.bag,
                       .to = batch.dh,
                       .to_stride = state_bytes};
  PetscCall(compute->copy_rows(stream, gru->workspace, 1, &copy));
  PetscCall(backward_steps(layer, stream, &batch));
  PetscCall(TrsLayerLinearBackward(
      layer->context, stream, gru->weight_hh, gru->bias_hh,
      (TrsLinear){.batch = batch.n_rows, .x = batch.before_operand, .y = from_h, .masks = &none}, from_h,
      TrsFloats(NULL, 0)));
  /*
    As soon as the gradient of the weight is computed, the rows are not needed. Their gradient
    overwrites them.
  */
  PetscCall(TrsLayerLinearBackward(
      layer->context, stream, gru->weight_ih, gru->bias_ih,
      (TrsLinear){.batch = batch.n_rows, .x = batch.x_operand, .y = from_x, .masks = &none}, from_x,
      TrsFloats(batch.x, D)));
  PetscCall(pack(layer, stream, &batch, bags, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsSequenceLayer *layer)
{
  TrsGru *gru = (TrsGru *)layer->own;

  PetscFunctionBegin;
  if (!gru) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferFree(layer->context->device, &gru->lists));
  if (gru->workspace) PetscCall(layer->context->compute->workspace_destroy(&gru->workspace));
  PetscCall(PetscFree(layer->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsSequenceLayerOps trs_sequence_gru = {.word = "gru",
                                              .reads_offsets = PETSC_TRUE,
                                              .declare = declare,
                                              .flops = flops,
                                              .bytes = bytes,
                                              .forward = forward,
                                              .backward = backward,
                                              .free = release};
