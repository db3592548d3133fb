/* SPDX-License-Identifier: BSD-3-Clause */
/*
  din: target attention. Each row k of a bag is compared with the sample's target q, another vector
  of the model: a stack of layers makes the weight of the row from [q, k, q - k, q * k]. The output
  is the sum of the weighted rows. With softmax the weights of a bag are positive and add up to 1.

  The stack works on all rows of the batch side by side, so nothing is padded.

  Source: Zhou et al. 2018, Deep Interest Network for Click-Through Rate Prediction, section 4.3,
          which leaves softmax out; the parts of the input are those of the authors' code
*/
#include "compute/for_each.h"
#include "model/mlp.h"
#include "model/sequence_layer.h"

#include <math.h>

typedef struct {
  TrsMlp mlp;
  int64_t *sizes; /* of the stack: din_arch and 1 */
} TrsDin;

/* A batch's bags and arrays, the latter in the layer's memory. */
typedef struct {
  int64_t n, D; /* rows of the bags */
  PetscBool softmax;
  const TrsBagRows *bags;
  float *parts, *d_parts; /* [n, 4 D] the stack's input and its gradient */
  float *score, *weight;  /* [n] what the stack makes, later its gradient; weights of the rows */
  float *inner;           /* of the stack */
  float *q, *dq, *out;    /* the target's columns, their gradient; the layer's columns of X or dX */
  int64_t q_stride, d_stride, out_stride;
} TrsDinBatch;

static PetscErrorCode declare(TrsSequenceLayer *layer)
{
  const TrsTableConfig *table = layer->table;
  char module[PETSC_MAX_PATH_LEN];
  TrsMlpSpec spec = {
      .n = table->n_din_arch + 1, .plain_last = PETSC_TRUE, .activation = table->din_activation};
  TrsDin *din;

  PetscFunctionBegin;
  PetscCall(PetscNew(&din));
  layer->own = din;
  PetscCall(PetscMalloc1((size_t)spec.n, &din->sizes));
  PetscCall(PetscArraycpy(din->sizes, table->din_arch, (size_t)table->n_din_arch));
  din->sizes[spec.n - 1] = 1;
  spec.sizes = din->sizes;
  PetscCall(PetscSNPrintf(module, sizeof(module), "%s/mlp", layer->module));
  PetscCall(TrsMlpDeclare(&din->mlp, layer->context, module, &spec, 4 * layer->dim, 4 * layer->dim));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsSequenceLayer *layer, double ids)
{
  double of_stack = 0.0, unused = 0.0;

  TrsMlpWork(&((const TrsDin *)layer->own)->mlp, &of_stack, &unused);
  return ids * (of_stack + 4.0 * (double)layer->dim);
}

static double bytes(const TrsSequenceLayer *layer, double ids)
{
  double unused = 0.0, of_stack = 0.0;

  TrsMlpWork(&((const TrsDin *)layer->own)->mlp, &unused, &of_stack);
  return ids * (of_stack + 6.0 * (double)sizeof(float) * (double)layer->dim) +
         2.0 * (double)sizeof(float) * (double)layer->dim;
}

/* Lay out the arrays of n bags, and the stack's outputs. */
static PetscErrorCode begin_batch(TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags,
                                  TrsDinBatch *batch)
{
  TrsDin *din = (TrsDin *)layer->own;
  const int64_t rows = bags->offsets[n] - bags->offsets[0], D = layer->dim;
  const int64_t wide = TrsWholeLines(4 * rows * D), narrow = TrsWholeLines(rows);
  const TrsMlpRoom room = TrsMlpPlace(&din->mlp, rows, NULL, NULL, 1);
  float *memory;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&layer->memory, (2 * wide + 2 * narrow + room.end) * (int64_t)sizeof(float),
                             PETSC_FALSE));
  memory = (float *)layer->memory.data;
  *batch = (TrsDinBatch){.n = rows, .D = D, .softmax = layer->table->din_softmax, .bags = bags};
  batch->parts = memory;
  batch->d_parts = memory + wide;
  batch->score = memory + 2 * wide;
  batch->weight = memory + 2 * wide + narrow;
  batch->inner = memory + 2 * wide + 2 * narrow;
  (void)TrsMlpPlace(&din->mlp, rows, batch->inner, batch->score, 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make the stack's input from the rows of bag b. */
static void make_parts(void *context, int64_t b)
{
  const TrsDinBatch *batch = (const TrsDinBatch *)context;
  const int64_t D = batch->D, first = batch->bags->offsets[0];
  const float *q = batch->q + b * batch->q_stride;

  for (int64_t i = batch->bags->offsets[b]; i < batch->bags->offsets[b + 1]; i++) {
    const float *k = batch->bags->rows + i * D;
    float *parts = batch->parts + 4 * (i - first) * D;

    for (int64_t d = 0; d < D; d++) {
      parts[d] = q[d];
      parts[D + d] = k[d];
      parts[2 * D + d] = q[d] - k[d];
      parts[3 * D + d] = q[d] * k[d];
    }
  }
}

/* Make a bag's weights of its n scores. */
static void make_weights(PetscBool softmax, int64_t n, const float *score, float *weight)
{
  float most = -INFINITY, sum = 0.0F;

  if (!softmax) {
    for (int64_t i = 0; i < n; i++) weight[i] = score[i];
    return;
  }
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, score[i]);
  for (int64_t i = 0; i < n; i++) sum += weight[i] = expf(score[i] - most);
  for (int64_t i = 0; i < n; i++) weight[i] /= sum;
}

/* Add up the weighted rows of bag b. */
static void add_rows(void *context, int64_t b)
{
  const TrsDinBatch *batch = (const TrsDinBatch *)context;
  const int64_t D = batch->D, begin = batch->bags->offsets[b], n = batch->bags->offsets[b + 1] - begin,
                at = begin - batch->bags->offsets[0];
  float *out = batch->out + b * batch->out_stride;

  make_weights(batch->softmax, n, batch->score + at, batch->weight + at);
  memset(out, 0, (size_t)D * sizeof(*out));
  for (int64_t i = 0; i < n; i++)
    for (int64_t d = 0; d < D; d++) out[d] += batch->weight[at + i] * batch->bags->rows[(begin + i) * D + d];
}

static PetscErrorCode forward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                              TrsSequenceMatrix x)
{
  const TrsDin *din = (const TrsDin *)layer->own;
  TrsDinBatch batch;

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, n, bags, &batch));
  batch.q = x.data + layer->target_column;
  batch.out = x.data + layer->column;
  batch.q_stride = batch.out_stride = x.stride;
  TrsForEach(n, make_parts, &batch);
  PetscCall(TrsMlpForward(&din->mlp, stream, batch.n, batch.parts, 4 * layer->dim));
  TrsForEach(n, add_rows, &batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make the gradients of bag b's scores in their place, and of its rows without the stack's part. */
static void score_gradients(void *context, int64_t b)
{
  const TrsDinBatch *batch = (const TrsDinBatch *)context;
  const int64_t D = batch->D, begin = batch->bags->offsets[b], n = batch->bags->offsets[b + 1] - begin,
                at = begin - batch->bags->offsets[0];
  const float *dout = batch->out + b * batch->out_stride, *weight = batch->weight + at;
  float *score = batch->score + at, mean = 0.0F;

  for (int64_t i = 0; i < n; i++) {
    const float *k = batch->bags->rows + (begin + i) * D;
    float *dk = batch->bags->grads + (begin + i) * D;

    score[i] = 0.0F;
    for (int64_t d = 0; d < D; d++) {
      score[i] += dout[d] * k[d];
      dk[d] = weight[i] * dout[d];
    }
    mean += weight[i] * score[i];
  }
  for (int64_t i = 0; batch->softmax && i < n; i++) score[i] = weight[i] * (score[i] - mean);
}

/* Add the stack's part of the gradients of bag b's rows and target. */
static void add_gradients(void *context, int64_t b)
{
  const TrsDinBatch *batch = (const TrsDinBatch *)context;
  const int64_t D = batch->D, first = batch->bags->offsets[0];
  const float *q = batch->q + b * batch->q_stride;
  float *dq = batch->dq + b * batch->d_stride;

  for (int64_t i = batch->bags->offsets[b]; i < batch->bags->offsets[b + 1]; i++) {
    const float *k = batch->bags->rows + i * D, *parts = batch->d_parts + 4 * (i - first) * D;
    float *dk = batch->bags->grads + i * D;

    for (int64_t d = 0; d < D; d++) {
      dq[d] += parts[d] + parts[2 * D + d] + parts[3 * D + d] * k[d];
      dk[d] += parts[D + d] - parts[2 * D + d] + parts[3 * D + d] * q[d];
    }
  }
}

static PetscErrorCode backward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                               TrsSequenceMatrix x, TrsSequenceMatrix dx)
{
  const TrsDin *din = (const TrsDin *)layer->own;
  TrsDinBatch batch;

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, n, bags, &batch));
  batch.q = x.data + layer->target_column;
  batch.q_stride = x.stride;
  batch.dq = dx.data + layer->target_column;
  batch.out = dx.data + layer->column;
  batch.d_stride = batch.out_stride = dx.stride;
  TrsForEach(n, score_gradients, &batch);
  PetscCall(TrsMlpBackward(&din->mlp, stream, batch.n, batch.parts, 4 * layer->dim, batch.score, 1,
                           batch.d_parts, 4 * layer->dim));
  TrsForEach(n, add_gradients, &batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsSequenceLayer *layer)
{
  TrsDin *din = (TrsDin *)layer->own;

  PetscFunctionBegin;
  if (!din) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMlpFree(&din->mlp));
  PetscCall(PetscFree(din->sizes));
  PetscCall(PetscFree(layer->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsSequenceLayerOps trs_sequence_din = {.word = "din",
                                              .declare = declare,
                                              .flops = flops,
                                              .bytes = bytes,
                                              .forward = forward,
                                              .backward = backward,
                                              .free = release};
