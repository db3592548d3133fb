/* SPDX-License-Identifier: BSD-3-Clause */
/*
  gru: the last state of a recurrent layer that reads the rows of a bag in their order. An empty bag
  has the state 0.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)      h: the state before, 0 at first
    z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
    the next state is (1 - z) * n + z * h

  Rows are packed by step: the bags are sorted by falling length, so that those that still have a
  row in a step are the first ones. A step is then a product of adjacent rows, and nothing is
  padded.

  Source: torch.nn.GRU (one layer, bias), whose parameters have the same names and order of gates
*/
#include "compute/for_each.h"
#include "model/mlp.h"
#include "model/sequence_layer.h"

#include <math.h>
#include <string.h>

typedef struct {
  int weight_ih, weight_hh, bias_ih, bias_hh;
} TrsGru;

/* The arrays of a batch, in the layer's memory. Floats are packed by step. */
typedef struct {
  int64_t n_rows, n_bags, n_steps; /* bags with a row; steps of the longest bag */
  int64_t *bag;                    /* [n_bags] by falling length */
  int64_t *first;                  /* [n_steps + 1] first packed row of each step */
  float *x, *before;               /* [n_rows, D] rows, and [n_rows, H] the states before them */
  float *from_x, *from_h;          /* [n_rows, 3 H]: r, z, n; what W_h makes; later gradients */
  float *dh;                       /* [n_bags, H] */
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

/* Lay the arrays out in the memory, or count their bytes where it is NULL. */
static void lay_out(const TrsSequenceLayer *layer, void *memory, TrsGruBatch *batch)
{
  const int64_t n = batch->n_rows, H = layer->width;
  const int64_t floats[] = {n * layer->dim, n * H, 3 * n * H, 3 * n * H, batch->n_bags * H};
  float **arrays[] = {&batch->x, &batch->before, &batch->from_x, &batch->from_h, &batch->dh};
  int64_t at = 2 * TrsWholeLines(batch->n_bags + batch->n_steps + 1); /* one takes two floats */

  batch->bag = (int64_t *)memory;
  batch->first = memory ? batch->bag + batch->n_bags : NULL;
  for (int i = 0; i < 5; i++) {
    *arrays[i] = memory ? (float *)memory + at : NULL;
    at += TrsWholeLines(floats[i]);
  }
  batch->bytes = at * (int64_t)sizeof(float);
}

/* Sort the bags by falling length, equal ones by their places, and find where the steps begin. */
static void sort_bags(int64_t n, const int64_t *offsets, TrsGruBatch *batch)
{
  int64_t *first = batch->first;

  memset(first, 0, (size_t)(batch->n_steps + 1) * sizeof(*first));
  /* first[t]: bags with more than t rows, then where the bags with exactly t + 1 rows go */
  for (int64_t b = 0; b < n; b++)
    if (offsets[b + 1] > offsets[b]) first[offsets[b + 1] - offsets[b] - 1]++;
  for (int64_t t = batch->n_steps - 1, at = 0; t >= 0; t--) {
    const int64_t of_length = first[t];

    first[t] = at;
    at += of_length;
  }
  for (int64_t b = 0; b < n; b++)
    if (offsets[b + 1] > offsets[b]) batch->bag[first[offsets[b + 1] - offsets[b] - 1]++] = b;
  /* Now first[t] is the number of bags with more than t rows: make the steps' places of it. */
  for (int64_t t = 0, at = 0; t <= batch->n_steps; t++) {
    const int64_t active = t < batch->n_steps ? first[t] : 0;

    first[t] = at;
    at += active;
  }
}

/* Copy rows of bags to packed ones, or with `back` gradients to the bags. */
static void pack(const TrsSequenceLayer *layer, const TrsGruBatch *batch, const TrsBagRows *bags,
                 PetscBool back)
{
  const int64_t D = layer->dim;

  for (int64_t t = 0; t < batch->n_steps; t++)
    for (int64_t p = batch->first[t]; p < batch->first[t + 1]; p++) {
      const int64_t row = bags->offsets[batch->bag[p - batch->first[t]]] + t;

      if (back)
        memcpy(bags->grads + row * D, batch->x + p * D, (size_t)D * sizeof(float));
      else
        memcpy(batch->x + p * D, bags->rows + row * D, (size_t)D * sizeof(float));
    }
}

/* Make the batch's arrays for n bags. */
static PetscErrorCode begin_batch(TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags,
                                  TrsGruBatch *batch)
{
  PetscFunctionBegin;
  *batch = (TrsGruBatch){.n_rows = bags->offsets[n] - bags->offsets[0]};
  for (int64_t b = 0; b < n; b++) {
    const int64_t length = bags->offsets[b + 1] - bags->offsets[b];

    batch->n_bags += length > 0;
    batch->n_steps = PetscMax(batch->n_steps, length);
  }
  lay_out(layer, NULL, batch);
  PetscCall(TrsDeviceBufferReserve(layer->context->device, &layer->memory, batch->bytes));
  lay_out(layer, layer->memory.data, batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of a step, for TrsForEach(): row k of the step is the packed row first + k. */
typedef struct {
  const TrsGruBatch *batch;
  int64_t H, first, next, going_on; /* rows of this step and the next one; bags that go on */
  float *to;                        /* the layer's columns of X */
  int64_t stride;
} TrsGruStep;

/* Add W_h h + b_h to a row's gates r and z. */
static void add_states(void *context, int64_t k)
{
  const TrsGruStep *step = (const TrsGruStep *)context;
  const int64_t row = step->first + k, H = step->H;
  const float *from_h = step->batch->from_h + 3 * row * H;
  float *gates = step->batch->from_x + 3 * row * H;

  for (int64_t i = 0; i < 2 * H; i++) gates[i] += from_h[i];
}

/* Add the part of W_h h + b_h that r lets through to a row's new state n. */
static void add_reset_states(void *context, int64_t k)
{
  const TrsGruStep *step = (const TrsGruStep *)context;
  const int64_t row = step->first + k, H = step->H;
  const float *from_h = step->batch->from_h + 3 * row * H;
  float *gates = step->batch->from_x + 3 * row * H;

  for (int64_t i = 0; i < H; i++) gates[2 * H + i] += gates[i] * from_h[2 * H + i];
}

/* Make the state behind a row of its gates: that of the bag's next row, or the layer's output. */
static void next_state(void *context, int64_t k)
{
  const TrsGruStep *step = (const TrsGruStep *)context;
  const TrsGruBatch *batch = step->batch;
  const int64_t H = step->H, row = step->first + k;
  const float *gates = batch->from_x + 3 * row * H, *before = batch->before + row * H;
  float *state = k < step->going_on ? batch->before + (step->next + k) * H
                                    : step->to + batch->bag[k] * step->stride;

  for (int64_t i = 0; i < H; i++)
    state[i] = (1.0F - gates[H + i]) * gates[2 * H + i] + gates[H + i] * before[i];
}

/* Go one step forward, in which from_x becomes the gates r, z and n. */
static PetscErrorCode step_forward(const TrsComputeOps *compute, TrsStream stream, TrsGruStep *step)
{
  const int64_t H = step->H, m = step->next - step->first;
  float *gates = step->batch->from_x + 3 * step->first * H;

  PetscFunctionBegin;
  TrsForEach(m, add_states, step);
  PetscCall(compute->activate(stream, m, 2 * H, TRS_ACTIVATION_SIGMOID, gates, 3 * H));
  TrsForEach(m, add_reset_states, step);
  PetscCall(compute->activate(stream, m, H, TRS_ACTIVATION_TANH, gates + 2 * H, 3 * H));
  TrsForEach(m, next_state, step);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                              TrsSequenceMatrix x)
{
  const TrsGru *gru = (const TrsGru *)layer->own;
  const TrsComputeOps *compute = layer->context->compute;
  const TrsDenseParameter *param = layer->context->params->param;
  const int64_t H = layer->width, D = layer->dim;
  TrsGruBatch batch;
  TrsGruStep step;

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, n, bags, &batch));
  sort_bags(n, bags->offsets, &batch);
  pack(layer, &batch, bags, PETSC_FALSE);
  for (int64_t b = 0; b < n; b++)
    if (bags->offsets[b + 1] == bags->offsets[b])
      memset(x.data + b * x.stride + layer->column, 0, (size_t)H * sizeof(float));
  PetscCall(compute->linear_forward(stream, batch.n_rows, D, 3 * H, batch.x, D, param[gru->weight_ih].value,
                                    param[gru->bias_ih].value, TRS_ACTIVATION_NONE, batch.from_x, 3 * H));
  memset(batch.before, 0, (size_t)(batch.n_bags * H) * sizeof(float));
  for (int64_t t = 0; t < batch.n_steps; t++) {
    const int64_t first = batch.first[t], next = batch.first[t + 1],
                  going_on = t + 1 < batch.n_steps ? batch.first[t + 2] - next : 0;

    PetscCall(compute->linear_forward(stream, next - first, H, 3 * H, batch.before + first * H, H,
                                      param[gru->weight_hh].value, param[gru->bias_hh].value,
                                      TRS_ACTIVATION_NONE, batch.from_h + 3 * first * H, 3 * H));
    step = (TrsGruStep){.batch = &batch,
                        .H = H,
                        .first = first,
                        .next = next,
                        .going_on = going_on,
                        .to = x.data + layer->column,
                        .stride = x.stride};
    PetscCall(step_forward(compute, stream, &step));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute the gradients of a row's gates: r, z, n and from_h become the gradients of W_i x + b_i and
  W_h h + b_h, and dh that of the state before, without the part that goes through W_h.
*/
static void gate_gradients(void *context, int64_t k)
{
  const TrsGruStep *step = (const TrsGruStep *)context;
  const int64_t H = step->H, row = step->first + k;
  const float *before = step->batch->before + row * H;
  float *gates = step->batch->from_x + 3 * row * H, *from_h = step->batch->from_h + 3 * row * H,
        *dh = step->batch->dh + k * H;

  for (int64_t i = 0; i < H; i++) {
    const float r = gates[i], z = gates[H + i], n = gates[2 * H + i];
    const float dn = dh[i] * (1.0F - z) * (1.0F - n * n), dz = dh[i] * (before[i] - n) * z * (1.0F - z),
                dr = dn * from_h[2 * H + i] * r * (1.0F - r);

    gates[i] = from_h[i] = dr;
    gates[H + i] = from_h[H + i] = dz;
    gates[2 * H + i] = dn;
    from_h[2 * H + i] = dn * r;
    dh[i] *= z;
  }
}

/* Go back through the steps. The forward's arrays become gradients. */
static PetscErrorCode backward_steps(TrsSequenceLayer *layer, TrsStream stream, const TrsGruBatch *batch)
{
  const TrsGru *gru = (const TrsGru *)layer->own;
  const float *weight_hh = layer->context->params->param[gru->weight_hh].value;
  const int64_t H = layer->width;
  TrsGruStep step;

  PetscFunctionBegin;
  for (int64_t t = batch->n_steps - 1; t >= 0; t--) {
    const int64_t first = batch->first[t], m = batch->first[t + 1] - first;

    step = (TrsGruStep){.batch = batch, .H = H, .first = first};
    TrsForEach(m, gate_gradients, &step);
    PetscCall(layer->context->compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, m, H, 3 * H, 1.0F,
                                            batch->from_h + 3 * first * H, 3 * H, weight_hh, H, 1.0F,
                                            batch->dh, H));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                               TrsSequenceMatrix x, TrsSequenceMatrix dx)
{
  const TrsGru *gru = (const TrsGru *)layer->own;
  const TrsComputeOps *compute = layer->context->compute;
  const TrsDenseParameter *param = layer->context->params->param;
  const int64_t H = layer->width, D = layer->dim;
  TrsGruBatch batch;

  PetscFunctionBegin;
  (void)x; /* the states before each row are kept */
  PetscCall(begin_batch(layer, n, bags, &batch));
  for (int64_t k = 0; k < batch.n_bags; k++)
    memcpy(batch.dh + k * H, dx.data + batch.bag[k] * dx.stride + layer->column, (size_t)H * sizeof(float));
  PetscCall(backward_steps(layer, stream, &batch));
  PetscCall(compute->linear_backward(stream, batch.n_rows, H, 3 * H, batch.before, H,
                                     param[gru->weight_hh].value, batch.from_h, 3 * H, TRS_ACTIVATION_NONE,
                                     batch.from_h, 3 * H, param[gru->weight_hh].grad,
                                     param[gru->bias_hh].grad, NULL, 0));
  /*
    The rows are not needed once the gradient of their weight is there; theirs takes their place.
  */
  PetscCall(compute->linear_backward(stream, batch.n_rows, D, 3 * H, batch.x, D, param[gru->weight_ih].value,
                                     batch.from_x, 3 * H, TRS_ACTIVATION_NONE, batch.from_x, 3 * H,
                                     param[gru->weight_ih].grad, param[gru->bias_ih].grad, batch.x, D));
  pack(layer, &batch, bags, PETSC_TRUE);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsSequenceLayer *layer)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(layer->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsSequenceLayerOps trs_sequence_gru = {.word = "gru",
                                              .declare = declare,
                                              .flops = flops,
                                              .bytes = bytes,
                                              .forward = forward,
                                              .backward = backward,
                                              .free = release};
