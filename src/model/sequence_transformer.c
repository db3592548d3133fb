/* SPDX-License-Identifier: BSD-3-Clause */
/*
  transformer: encoder layers process a bag's rows, and the output is the mean of the resulting
  rows. An empty bag gives zeros.

    a = x + W_o attention(W_in x + b_in) + b_o       y = norm1(a)
    c = y + W_2 relu(W_1 y + b_1) + b_2              the next layer's x is norm2(c)

  Each matrix multiplication handles all rows in the batch, in the order of their bags, so no bag is
  padded. For each row, each layer keeps 8 D + F floats, and two more for each head. The gradients
  need 8 D + F floats per row, once for all layers. With bf16 operands, the F numbers have 2 bytes
  each. There are also bf16 copies: 3 D numbers per row in each layer, and 3 D once for all layers.

  Source: torch.nn.TransformerEncoderLayer (activation relu, norm_first false, no dropout), with the
          same parameter names
*/
#include "model/mlp.h"
#include "model/sequence_layer.h"

#include <math.h>
#include <string.h>

/* The indices of the parameters of a linear layer or a layer norm. */
typedef struct {
  int weight, bias;
} TrsPart;

typedef struct {
  TrsPart in, out, linear1, linear2, norm1, norm2;
} TrsEncoder;

/* Arrays [n_rows, ...] that a forward keeps for one encoder layer, in the layer's memory. */
typedef struct {
  const float *x;        /* [D] the input */
  float *qkv, *attended; /* [3 D], [D] */
  float *a, *y;          /* [D] before and after norm1 */
  TrsMatrix hidden;      /* [F] in the operands' type */
  float *c, *result;     /* [D] before and after norm2 */
  float *log_sums;       /* [heads] kept for the attention's backward */
  float *moments[2];     /* [2] kept for the norms' backwards */
  TrsReluMask mask;      /* mask of `hidden`, for the backward */
  void *copy[3];         /* [D] x, attended and y in the operands' type, or NULL */
} TrsEncoderBatch;

typedef struct {
  int64_t n_rows;
  TrsEncoderBatch *encoder; /* [layers] */
  float *scratch;           /* scratch for the attention */
  float *d, *d_part;        /* [n_rows, D] gradients of the rows, and of a parallel branch */
  float *dqkv;              /* [n_rows, 3 D] */
  TrsMatrix dhidden;        /* [n_rows, F] in the operands' type */
  void *d_copy;             /* [n_rows, 3 D] a gradient in the operands' type, or NULL */
  int64_t bytes;
} TrsTransformerBatch;

typedef struct {
  TrsEncoder *encoder; /* [layers] */
  TrsTransformerBatch batch;
} TrsTransformer;

/* --- parameters --- */

/*
  Declare a weight [rows, cols] and its bias, initialised as in torch. For a layer norm, initialise
  them as torch's layer norm does.
*/
static PetscErrorCode declare_part(TrsSequenceLayer *layer, int64_t i, const char *name, int64_t rows,
                                   int64_t cols, TrsPart *part)
{
  const double bound = cols ? 1.0 / sqrt((double)cols) : 0.0;
  char weight[64], bias[64];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(weight, sizeof(weight), "layers/%d/%s/weight", (int)i, name));
  PetscCall(PetscSNPrintf(bias, sizeof(bias), "layers/%d/%s/bias", (int)i, name));
  PetscCall(TrsSequenceLayerParameter(layer, weight, rows, cols, cols ? TRS_INIT_UNIFORM : TRS_INIT_ONE,
                                      bound, &part->weight));
  PetscCall(TrsSequenceLayerParameter(layer, bias, rows, 0, cols ? TRS_INIT_UNIFORM : TRS_INIT_ZERO, bound,
                                      &part->bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Declare the attention's projections. Their biases start at zero. */
static PetscErrorCode declare_attention(TrsSequenceLayer *layer, int64_t i, TrsEncoder *encoder)
{
  const int64_t D = layer->dim;
  const struct {
    const char *name;
    int64_t rows, cols;
    double bound;
    int *index;
  } parts[] = {{"in_proj_weight", 3 * D, D, sqrt(6.0 / (double)(4 * D)), &encoder->in.weight},
               {"in_proj_bias", 3 * D, 0, 0.0, &encoder->in.bias},
               {"out_proj/weight", D, D, 1.0 / sqrt((double)D), &encoder->out.weight},
               {"out_proj/bias", D, 0, 0.0, &encoder->out.bias}};
  char name[64];

  PetscFunctionBegin;
  for (int p = 0; p < 4; p++) {
    PetscCall(PetscSNPrintf(name, sizeof(name), "layers/%d/self_attn/%s", (int)i, parts[p].name));
    PetscCall(TrsSequenceLayerParameter(layer, name, parts[p].rows, parts[p].cols,
                                        parts[p].cols ? TRS_INIT_UNIFORM : TRS_INIT_ZERO, parts[p].bound,
                                        parts[p].index));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode declare(TrsSequenceLayer *layer)
{
  const int64_t D = layer->dim, F = layer->table->transformer_width,
                layers = layer->table->transformer_layers;
  TrsTransformer *own;

  PetscFunctionBegin;
  PetscCall(PetscNew(&own));
  layer->own = own;
  PetscCall(PetscCalloc2((size_t)layers, &own->encoder, (size_t)layers, &own->batch.encoder));
  for (int64_t i = 0; i < layers; i++) {
    TrsEncoder *encoder = &own->encoder[i];

    PetscCall(declare_attention(layer, i, encoder));
    PetscCall(declare_part(layer, i, "linear1", F, D, &encoder->linear1));
    PetscCall(declare_part(layer, i, "linear2", D, F, &encoder->linear2));
    PetscCall(declare_part(layer, i, "norm1", D, 0, &encoder->norm1));
    PetscCall(declare_part(layer, i, "norm2", D, 0, &encoder->norm2));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- work --- */

static double flops(const TrsSequenceLayer *layer, double ids)
{
  const double D = (double)layer->dim, F = (double)layer->table->transformer_width;
  const double pairs = ids * (layer->table->transformer_causal ? (ids + 1.0) / 2.0 : ids);

  return (double)layer->table->transformer_layers * (ids * D * (8.0 * D + 4.0 * F + 20.0) + 4.0 * pairs * D) +
         ids * D;
}

static double bytes(const TrsSequenceLayer *layer, double ids)
{
  const double D = (double)layer->dim, F = (double)layer->table->transformer_width;

  return (double)sizeof(float) *
         (ids * (double)layer->table->transformer_layers * (22.0 * D + 3.0 * F) + (ids + 1.0) * D);
}

/* --- a batch --- */

/* Reserve the next n floats in `memory`. If `memory` is NULL, only count them. */
static float *take(void *memory, int64_t *at, int64_t n)
{
  float *floats = memory ? (float *)memory + *at : NULL;

  *at += TrsWholeLines(n);
  return floats;
}

/* Lay the arrays out in `memory`. If `memory` is NULL, only count their bytes. */
static void lay_out(const TrsSequenceLayer *layer, void *memory, const TrsBagRows *bags,
                    TrsTransformerBatch *batch)
{
  const TrsTableConfig *table = layer->table;
  const int64_t n = batch->n_rows, D = layer->dim, F = table->transformer_width,
                heads = table->transformer_heads;
  const int64_t mask_bytes = layer->context->fused && !layer->context->params->forward_only
                                 ? layer->context->compute->relu_mask_bytes(F)
                                 : 0;
  const TrsDType type = layer->context->params->type;
  int64_t at = 0;

  for (int64_t i = 0; i < table->transformer_layers; i++) {
    TrsEncoderBatch *e = &batch->encoder[i];

    e->x = i == 0 ? bags->rows + bags->first * D : batch->encoder[i - 1].result;
    e->qkv = take(memory, &at, 3 * n * D);
    e->attended = take(memory, &at, n * D);
    e->a = take(memory, &at, n * D);
    e->y = take(memory, &at, n * D);
    e->hidden = TrsTakeMatrix((float *)memory, &at, n, F, type);
    e->c = take(memory, &at, n * D);
    e->result = take(memory, &at, n * D);
    e->log_sums = take(memory, &at, n * heads);
    for (int k = 0; k < 2; k++) e->moments[k] = take(memory, &at, 2 * n);
    for (int k = 0; type != TRS_FP32 && k < 3; k++)
      e->copy[k] = TrsTakeMatrix((float *)memory, &at, n, D, type).data;
    e->mask = (TrsReluMask){.row_bytes = mask_bytes};
    if (mask_bytes) e->mask.data = take(memory, &at, n * mask_bytes / (int64_t)sizeof(float));
  }
  batch->scratch = take(memory, &at,
                        layer->context->device->host_memory ? TrsAttentionScratch(n, D, heads) : n * heads);
  batch->d = take(memory, &at, n * D);
  batch->d_part = take(memory, &at, n * D);
  batch->dqkv = take(memory, &at, 3 * n * D);
  batch->dhidden = TrsTakeMatrix((float *)memory, &at, n, F, type);
  batch->d_copy = type == TRS_FP32 ? NULL : TrsTakeMatrix((float *)memory, &at, n, 3 * D, type).data;
  batch->bytes = at * (int64_t)sizeof(float);
}

/* Lay out the batch's arrays. */
static PetscErrorCode begin_batch(TrsSequenceLayer *layer, const TrsBagRows *bags)
{
  TrsTransformerBatch *batch = &((TrsTransformer *)layer->own)->batch;

  PetscFunctionBegin;
  batch->n_rows = bags->n_rows;
  lay_out(layer, NULL, bags, batch);
  PetscCall(TrsDeviceBufferReserve(layer->context->device, &layer->memory, batch->bytes));
  lay_out(layer, layer->memory.data, bags, batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsLayerNorm norm_of(const TrsSequenceLayer *layer, TrsPart part, float *moments)
{
  const TrsDenseParameter *param = layer->context->params->param;

  return (TrsLayerNorm){.weight = param[part.weight].value,
                        .bias = param[part.bias].value,
                        .eps = 1e-5F,
                        .rows = moments,
                        .grad_weight = param[part.weight].grad,
                        .grad_bias = param[part.bias].grad};
}

static TrsAttention attention_of(const TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags,
                                 const TrsTransformerBatch *batch, const TrsEncoderBatch *e)
{
  return (TrsAttention){.n = n,
                        .first = bags->first,
                        .offsets = bags->offsets,
                        .dim = layer->dim,
                        .heads = layer->table->transformer_heads,
                        .causal = layer->table->transformer_causal,
                        .qkv = e->qkv,
                        .out = e->attended,
                        .log_sums = e->log_sums,
                        .scratch = batch->scratch,
                        .dout = batch->d_part,
                        .dqkv = batch->dqkv};
}

/* --- forward --- */

/*
  A matrix of floats [rows, cols] as an operand of a matrix multiplication: the matrix itself, or
  its copy.
*/
static TrsMatrix operand(const TrsSequenceLayer *layer, const float *from, int64_t cols, void *copy)
{
  if (!copy) return TrsFloats(from, cols);
  return (TrsMatrix){.type = layer->context->params->type, .stride = cols, .data = copy};
}

/* If the operands' type is not fp32, copy a matrix [rows, cols] to this type. */
static PetscErrorCode make_operand(const TrsSequenceLayer *layer, TrsStream stream, int64_t rows,
                                   const float *from, int64_t cols, void *copy, TrsMatrix *made)
{
  PetscFunctionBegin;
  *made = operand(layer, from, cols, copy);
  if (copy)
    PetscCall(
        layer->context->compute->convert_matrix(stream, rows, cols, cols, TrsFloats(from, cols), *made));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run a part as a linear layer. `given` has x, activation, y and masks. */
static PetscErrorCode linear(const TrsSequenceLayer *layer, TrsStream stream, int64_t rows, TrsPart part,
                             TrsLinear given)
{
  given.batch = rows;
  return TrsLayerLinearForward(layer->context, stream, part.weight, part.bias, given);
}

/* Add x to `sum` [rows, D], and write the normalised sum to y. */
static PetscErrorCode add_and_norm(const TrsSequenceLayer *layer, TrsStream stream, int64_t rows,
                                   TrsPart part, const float *x, float *sum, float *moments, float *y)
{
  const TrsComputeOps *compute = layer->context->compute;
  const TrsLayerNorm norm = norm_of(layer, part, moments);
  const int64_t D = layer->dim;

  PetscFunctionBegin;
  PetscCall(compute->join_forward(stream, rows, D, PETSC_FALSE, TrsFloats(sum, D), TrsFloats(x, D),
                                  TrsFloats(sum, D)));
  PetscCall(compute->layer_norm_forward(stream, rows, D, &norm, sum, D, y, D));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A bag's output vector is the mean of its rows after the last layer. */
static TrsSequenceBags means_of(const TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags)
{
  return (TrsSequenceBags){.pooling = TRS_SEQUENCE_MEAN,
                           .batch = n,
                           .dim = layer->dim,
                           .row_stride = layer->dim,
                           .offsets = bags->offsets,
                           .shift = -bags->first};
}

/* Run the forward of encoder layer i, from its x to its result. */
static PetscErrorCode encoder_forward(const TrsSequenceLayer *layer, TrsStream stream, int64_t n,
                                      const TrsBagRows *bags, int64_t i)
{
  const TrsTransformer *own = (const TrsTransformer *)layer->own;
  const TrsEncoder *encoder = &own->encoder[i];
  const TrsEncoderBatch *e = &own->batch.encoder[i];
  const TrsAttention attention = attention_of(layer, n, bags, &own->batch, e);
  const TrsReluMasks kept = {.y = e->mask};
  const int64_t rows = own->batch.n_rows, D = layer->dim;
  TrsMatrix x, attended, y;

  PetscFunctionBegin;
  PetscCall(make_operand(layer, stream, rows, e->x, D, e->copy[0], &x));
  PetscCall(linear(layer, stream, rows, encoder->in, (TrsLinear){.x = x, .y = TrsFloats(e->qkv, 3 * D)}));
  PetscCall(layer->context->compute->attention_forward(stream, &attention));
  PetscCall(make_operand(layer, stream, rows, e->attended, D, e->copy[1], &attended));
  PetscCall(linear(layer, stream, rows, encoder->out, (TrsLinear){.x = attended, .y = TrsFloats(e->a, D)}));
  PetscCall(add_and_norm(layer, stream, rows, encoder->norm1, e->x, e->a, e->moments[0], e->y));
  PetscCall(make_operand(layer, stream, rows, e->y, D, e->copy[2], &y));
  PetscCall(linear(layer, stream, rows, encoder->linear1,
                   (TrsLinear){.x = y, .activation = TRS_ACTIVATION_RELU, .y = e->hidden, .masks = &kept}));
  PetscCall(
      linear(layer, stream, rows, encoder->linear2, (TrsLinear){.x = e->hidden, .y = TrsFloats(e->c, D)}));
  PetscCall(add_and_norm(layer, stream, rows, encoder->norm2, e->y, e->c, e->moments[1], e->result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                              TrsSequenceMatrix x)
{
  const TrsTransformer *own = (const TrsTransformer *)layer->own;
  const TrsTransformerBatch *batch = &own->batch;
  const int64_t layers = layer->table->transformer_layers;
  const TrsSequenceBags means = means_of(layer, n, bags);

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, bags));
  for (int64_t i = 0; i < layers; i++) PetscCall(encoder_forward(layer, stream, n, bags, i));
  PetscCall(layer->context->compute->sequence_forward(stream, &means, batch->encoder[layers - 1].result,
                                                      x.data + layer->column, x.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- backward --- */

/* From dy [rows, out], compute the gradients of the weight and the bias, and dx [rows, in]. */
static PetscErrorCode linear_gradients(const TrsSequenceLayer *layer, TrsStream stream, int64_t rows,
                                       TrsPart part, TrsLinear linear, TrsMatrix dy, TrsMatrix dx)
{
  linear.batch = rows;
  return TrsLayerLinearBackward(layer->context, stream, part.weight, part.bias, linear, dy, dx);
}

/* Replace the gradient d of a norm's output with the gradient of its input. */
static PetscErrorCode norm_gradients(const TrsSequenceLayer *layer, TrsStream stream, int64_t rows,
                                     TrsPart part, const float *x, float *moments, float *d)
{
  const TrsLayerNorm norm = norm_of(layer, part, moments);

  PetscFunctionBegin;
  PetscCall(layer->context->compute->layer_norm_backward(stream, rows, layer->dim, &norm, x, layer->dim, d,
                                                         layer->dim));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Run the backward of encoder layer i. From batch->d, the gradient of its result, compute dx, the
  gradient of its input.
*/
static PetscErrorCode encoder_backward(TrsSequenceLayer *layer, TrsStream stream, int64_t n,
                                       const TrsBagRows *bags, int64_t i, float *dx)
{
  const TrsTransformer *own = (const TrsTransformer *)layer->own;
  const TrsTransformerBatch *batch = &own->batch;
  const TrsEncoder *encoder = &own->encoder[i];
  const TrsEncoderBatch *e = &batch->encoder[i];
  const TrsAttention attention = attention_of(layer, n, bags, batch, e);
  const TrsComputeOps *compute = layer->context->compute;
  const TrsReluMasks kept = {.y = e->mask}, applied = {.x = e->mask}, none = {.y = {0}};
  const int64_t rows = batch->n_rows, D = layer->dim;
  float *d = batch->d;
  const TrsMatrix part = TrsFloats(batch->d_part, D);
  TrsMatrix dy;

  PetscFunctionBegin;
  PetscCall(norm_gradients(layer, stream, rows, encoder->norm2, e->c, e->moments[1], d));
  PetscCall(make_operand(layer, stream, rows, d, D, batch->d_copy, &dy));
  PetscCall(linear_gradients(layer, stream, rows, encoder->linear2,
                             (TrsLinear){.x = e->hidden, .y = dy, .masks = &applied}, dy, batch->dhidden));
  PetscCall(linear_gradients(layer, stream, rows, encoder->linear1,
                             (TrsLinear){.x = operand(layer, e->y, D, e->copy[2]),
                                         .activation = TRS_ACTIVATION_RELU,
                                         .y = e->hidden,
                                         .masks = &kept},
                             batch->dhidden, part));
  PetscCall(compute->join_forward(stream, rows, D, PETSC_FALSE, TrsFloats(d, D), TrsFloats(batch->d_part, D),
                                  TrsFloats(d, D)));
  PetscCall(norm_gradients(layer, stream, rows, encoder->norm1, e->a, e->moments[0], d));
  PetscCall(make_operand(layer, stream, rows, d, D, batch->d_copy, &dy));
  PetscCall(linear_gradients(
      layer, stream, rows, encoder->out,
      (TrsLinear){.x = operand(layer, e->attended, D, e->copy[1]), .y = dy, .masks = &none}, dy, part));
  PetscCall(compute->attention_backward(stream, &attention));
  PetscCall(make_operand(layer, stream, rows, batch->dqkv, 3 * D, batch->d_copy, &dy));
  PetscCall(linear_gradients(layer, stream, rows, encoder->in,
                             (TrsLinear){.x = operand(layer, e->x, D, e->copy[0]), .y = dy, .masks = &none},
                             dy, part));
  PetscCall(compute->join_forward(stream, rows, D, PETSC_FALSE, TrsFloats(d, D), TrsFloats(batch->d_part, D),
                                  TrsFloats(dx, D)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                               TrsSequenceMatrix x, TrsSequenceMatrix dx)
{
  TrsTransformerBatch *batch = &((TrsTransformer *)layer->own)->batch;
  const TrsSequenceBags means = means_of(layer, n, bags);

  PetscFunctionBegin;
  (void)x; /* the gradient of the mean does not depend on the output */
  PetscCall(begin_batch(layer, bags));
  PetscCall(layer->context->compute->sequence_backward(stream, &means, NULL, dx.data + layer->column,
                                                       dx.stride, PETSC_FALSE, batch->d));
  for (int64_t i = layer->table->transformer_layers - 1; i >= 0; i--)
    PetscCall(encoder_backward(layer, stream, n, bags, i,
                               i == 0 ? bags->grads + bags->first * layer->dim : batch->d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsSequenceLayer *layer)
{
  TrsTransformer *own = (TrsTransformer *)layer->own;

  PetscFunctionBegin;
  if (own) PetscCall(PetscFree2(own->encoder, own->batch.encoder));
  PetscCall(PetscFree(layer->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsSequenceLayerOps trs_sequence_transformer = {.word = "transformer",
                                                      .declare = declare,
                                                      .flops = flops,
                                                      .bytes = bytes,
                                                      .forward = forward,
                                                      .backward = backward,
                                                      .free = release};
