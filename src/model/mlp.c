/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/mlp.h"

#include "core/events.h"

#include <inttypes.h>

enum { TRS_MOST_LAYERS = 5 }; /* at most, per perceptron */

#define TABLE_OF(KIND, word) &trs_layer_##word,
static const TrsLayerOps *const activations[] = {TRS_MLP_ACTIVATIONS(TABLE_OF)};

PetscErrorCode TrsMlpSpecRead(TrsOptions options, const char *option, TrsMlpSpec *spec)
{
  char name[64];
  int kind;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(name, sizeof(name), "%s_activation", option));
  PetscCall(TrsOptionsGetEnum(options, name, &kind, NULL));
  spec->activation = (TrsMlpActivation)kind;
  PetscCall(PetscSNPrintf(name, sizeof(name), "%s_layer_norm", option));
  PetscCall(TrsOptionsGetBool(options, name, &spec->layer_norm, NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "%s_dropout", option));
  PetscCall(TrsOptionsGetReal(options, name, &spec->dropout, NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "%s_residual", option));
  PetscCall(TrsOptionsGetBool(options, name, &spec->residual, NULL));
  spec->option = option;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsMlpSpecIsTyped(const TrsMlpSpec *spec)
{
  return (PetscBool)(activations[spec->activation]->in_place && !spec->layer_norm && spec->dropout == 0.0 &&
                     !spec->residual);
}

/* Append a layer with `width` columns to the stack, as part of the current perceptron. */
static TrsLayer *add_layer(TrsMlp *mlp, const TrsLayerContext *context, const TrsLayerOps *ops, int64_t width)
{
  TrsLayer *layer = &mlp->layer[mlp->n_layers++];

  *layer = (TrsLayer){
      .ops = ops, .context = context, .in = width, .filled = width, .out = width, .weight = -1, .bias = -1};
  layer->y = (TrsMatrix){.type = TRS_FP32, .stride = width};
  return layer;
}

/* Append the layers of perceptron p. */
static void add_perceptron(TrsMlp *mlp, const TrsLayerContext *context, const TrsMlpSpec *spec, int p,
                           int64_t in, int64_t filled)
{
  const PetscBool plain = (PetscBool)(spec->plain_last && p == spec->n - 1);
  TrsLayer *linear = add_layer(mlp, context, spec->pair ? &trs_layer_pair : &trs_layer_linear,
                               spec->sizes[p]);

  linear->in = in;
  linear->filled = filled;
  if (!plain && spec->activation == TRS_MLP_RELU && !spec->layer_norm)
    linear->activation = TRS_ACTIVATION_RELU; /* the linear layer's kernel applies it */
  else if (!plain) {
    if (spec->layer_norm) (void)add_layer(mlp, context, &trs_layer_layer_norm, spec->sizes[p]);
    (void)add_layer(mlp, context, activations[spec->activation], spec->sizes[p]);
  }
  if (!plain && spec->dropout > 0.0)
    add_layer(mlp, context, &trs_layer_dropout, spec->sizes[p])->rate = spec->dropout;
  if (!plain && spec->residual && in == spec->sizes[p]) {
    (void)add_layer(mlp, context, &trs_layer_residual, spec->sizes[p]);
    mlp->n_saved = PetscMax(mlp->n_saved, in);
  }
  mlp->end[p] = mlp->n_layers;
}

int64_t TrsOperandStride(TrsDType type, int64_t cols)
{
  const int64_t unit = type == TRS_FP32 ? 1 : 16 / TrsDTypeBytes(type);

  return (cols + unit - 1) / unit * unit;
}

/* The layer that reads layer l's output, after in-place activations; NULL: there is none. */
static const TrsLayer *above(const TrsMlp *mlp, int l)
{
  for (l++; l < mlp->n_layers; l++)
    if (mlp->layer[l].ops->activation == TRS_ACTIVATION_NONE) return &mlp->layer[l];
  return NULL;
}

/*
  Choose the types of the matrices between layers. A matrix that only linear layers read and write
  has the operands' type. If other layers read an input as well, the linear layer gets a copy of it
  in the operands' type.
*/
static void choose_types(TrsMlp *mlp, const TrsMlpSpec *spec, TrsDType type)
{
  TrsDType before = spec->x_type;

  for (int l = 0; l < mlp->n_layers; l++) {
    TrsLayer *layer = &mlp->layer[l];
    const TrsLayer *next = above(mlp, l);

    layer->x.type = type;
    layer->x.stride = layer->ops == &trs_layer_linear && before != type
                          ? TrsOperandStride(type, layer->filled)
                          : 0;
    if (layer->ops->activation != TRS_ACTIVATION_NONE)
      layer->y = mlp->layer[l - 1].y; /* in place: the same matrix, thus the same type */
    else if (layer->ops == &trs_layer_linear && next && next->ops == &trs_layer_linear && !mlp->n_saved)
      layer->y = (TrsMatrix){.type = type, .stride = TrsOperandStride(type, layer->out)};
    before = layer->y.type;
  }
}

/* Choose the linear layers that keep their ReLU's mask for the backward. */
static void choose_masks(TrsMlp *mlp, const TrsLayerContext *context)
{
  if (!context->fused || context->params->forward_only || mlp->n_saved) return;
  for (int l = 0; l + 1 < mlp->n_layers; l++) {
    TrsLayer *layer = &mlp->layer[l], *next = layer + 1;

    if (layer->activation != TRS_ACTIVATION_RELU || next->ops != &trs_layer_linear) continue;
    layer->mask.row_bytes = context->compute->relu_mask_bytes(layer->out);
    if (layer->mask.row_bytes) next->below = layer;
  }
}

PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const TrsLayerContext *context, const char *module,
                             const TrsMlpSpec *spec, int64_t in, int64_t filled)
{
  PetscFunctionBegin;
  *mlp = (TrsMlp){.n_perceptrons = spec->n};
  PetscCall(PetscCalloc3((size_t)spec->n * TRS_MOST_LAYERS, &mlp->layer, (size_t)spec->n, &mlp->end,
                         (size_t)spec->n, &mlp->dy));
  for (int p = 0; p < spec->n; p++)
    add_perceptron(mlp, context, spec, p, p ? spec->sizes[p - 1] : in, p ? spec->sizes[p - 1] : filled);
  PetscCheck(!spec->residual || mlp->n_saved, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s_residual: no layer of %s has an output as wide as its input, %" PRId64
             " columns and then those of %s",
             spec->option, module, in, spec->option);
  choose_types(mlp, spec, context->params->type);
  choose_masks(mlp, context);
  for (int p = spec->n - 1, l = mlp->n_layers - 1; p >= 0; p--) {
    for (; l >= (p ? mlp->end[p - 1] : 0); l--) {
      TrsLayer *layer = &mlp->layer[l];

      PetscCall(TrsLayerCheck(layer->ops));
      if (layer->ops->declare) PetscCall(layer->ops->declare(layer, module, p));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsWholeLines(int64_t n)
{
  const int64_t line = 64 / (int64_t)sizeof(float);

  return (n + line - 1) / line * line;
}

float *TrsTakeFloats(float *memory, int64_t *used, int64_t n)
{
  float *place = memory ? memory + *used : NULL;

  *used += TrsWholeLines(n);
  return place;
}

TrsMatrix TrsTakeMatrix(float *memory, int64_t *used, int64_t rows, int64_t cols, TrsDType type)
{
  TrsMatrix matrix = {.type = type, .stride = cols};

  matrix.data = TrsTakeFloats(memory, used, TrsMatrixFloats(rows, matrix));
  return matrix;
}

int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end)
{
  return from < end && from + n > begin ? end : from;
}

int64_t TrsMatrixFloats(int64_t rows, TrsMatrix matrix)
{
  return TrsWholeLines((rows * matrix.stride * TrsDTypeBytes(matrix.type) + 3) / (int64_t)sizeof(float));
}

void TrsMlpPlaceOutput(TrsMlp *mlp, TrsMatrix y)
{
  /* In-place layers use the output of the layer before them. */
  for (int l = mlp->n_layers - 1; l >= 0; l--) {
    mlp->layer[l].y = y;
    if (!mlp->layer[l].ops->in_place) break;
  }
}

TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, TrsMatrix y)
{
  int64_t dy = 0, dy_end = 0;
  TrsMlpRoom room = {0};

  for (int p = 0, l = 0; p < mlp->n_perceptrons; p++) {
    const TrsLayer *end = &mlp->layer[mlp->end[p] - 1];
    /* The caller provides memory for the stack's output. Until then, the last perceptron's
       output is taken as fp32. */
    const TrsMatrix inner_y = p + 1 == mlp->n_perceptrons ? TrsFloats(NULL, end->out) : end->y;
    const int64_t n = TrsMatrixFloats(max_batch, inner_y);

    for (; l < mlp->end[p]; l++) {
      TrsLayer *layer = &mlp->layer[l];
      /* In-place layers after this layer use its output. */
      int last = l;

      if (layer->ops->kept) {
        layer->kept = inner ? inner + room.outputs : NULL;
        room.outputs += TrsWholeLines(max_batch * layer->ops->kept);
      }
      if (layer->x.stride) {
        layer->x.data = inner ? inner + room.outputs : NULL;
        room.outputs += TrsMatrixFloats(max_batch, layer->x);
      }
      if (layer->mask.row_bytes) {
        layer->mask.data = inner ? inner + room.outputs : NULL;
        room.outputs += TrsWholeLines(max_batch * layer->mask.row_bytes / (int64_t)sizeof(float));
      }
      while (last + 1 < mlp->end[p] && mlp->layer[last + 1].ops->in_place) last++;
      if (last + 1 == mlp->n_layers) continue;
      layer->y.data = inner ? inner + room.outputs : NULL;
      if (last == l) room.outputs += n;
    }
    if (p + 1 == mlp->n_perceptrons) break;
    dy = end->mask.row_bytes ? room.outputs - n : TrsMlpBeside(room.outputs, n, dy, dy_end);
    dy_end = dy + n;
    mlp->dy[p] = inner ? inner + dy : NULL;
    if (p == 0) {
      room.grad = dy;
      room.grad_end = dy_end;
    }
    room.end = PetscMax(room.end, dy_end);
  }
  room.end = PetscMax(room.end, room.outputs);
  mlp->saved = inner ? inner + room.end : NULL;
  room.end += TrsWholeLines(max_batch * mlp->n_saved);
  TrsMlpPlaceOutput(mlp, y);
  return room;
}

PetscBool TrsMlpEndsInUnit(const TrsMlp *mlp)
{
  const TrsLayer *last = &mlp->layer[mlp->n_layers - 1];

  return (PetscBool)(last->ops == &trs_layer_linear && last->out == 1 &&
                     last->activation == TRS_ACTIVATION_NONE);
}

/* Run all layers. If `last` is not NULL, the last layer is only prepared. */
static PetscErrorCode run_layers(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x, TrsLinear *last)
{
  PetscFunctionBegin;
  for (int p = 0, l = 0; p < mlp->n_perceptrons; p++) {
    mlp->layer[mlp->end[p] - 1].skipped = x;
    for (; l < mlp->end[p]; l++) {
      const TrsLayer *layer = &mlp->layer[l];

      if (last && l == mlp->n_layers - 1)
        PetscCall(TrsLayerLinearPrepare(layer, stream, n, x, last));
      else
        PetscCall(layer->ops->forward(layer, stream, n, x));
      PetscCall(TrsLogFlops((double)n * layer->ops->flops(layer)));
      PetscCall(TrsParametersBetween(layer->context->params));
      x = layer->y;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x)
{
  PetscFunctionBegin;
  PetscCall(run_layers(mlp, stream, n, x, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpForwardToUnit(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x,
                                   TrsLinear *last)
{
  PetscFunctionBegin;
  PetscCall(run_layers(mlp, stream, n, x, last));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Keep the gradient of a residual layer's output. The backward later adds it to the gradient of the
  perceptron's input.
*/
static PetscErrorCode save_gradient(const TrsMlp *mlp, const TrsLayer *layer, TrsStream stream, int64_t n,
                                    TrsMatrix dy)
{
  const TrsColumnCopy copy = {.from = dy, .to = TrsFloats(mlp->saved, layer->out), .cols = layer->out};

  PetscFunctionBegin;
  PetscCall(layer->context->compute->copy_columns(stream, n, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The gradient of perceptron p's output, in the output's layout. */
static TrsMatrix gradient_of(const TrsMlp *mlp, int p)
{
  TrsMatrix dy = mlp->layer[mlp->end[p] - 1].y;

  dy.data = mlp->dy[p];
  return dy;
}

PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                              TrsMatrix dx)
{
  int p = mlp->n_perceptrons - 1;   /* perceptron of layer l */
  PetscBool residual = PETSC_FALSE; /* true: the gradient of the sum in perceptron p is saved */

  PetscFunctionBegin;
  for (int l = mlp->n_layers - 1; l >= 0; l--) {
    const TrsLayer *layer = &mlp->layer[l], *below = l ? &mlp->layer[l - 1] : NULL;
    const TrsMatrix to = layer->ops->same_width ? dy : p ? gradient_of(mlp, p - 1) : dx;

    if (layer->ops == &trs_layer_residual && (p || dx.data)) {
      PetscCall(save_gradient(mlp, layer, stream, n, dy));
      residual = PETSC_TRUE;
    }
    PetscCall(layer->ops->backward(layer, stream, n, below ? below->y : x, dy, to));
    PetscCall(TrsLogFlops((to.data ? 2.0 : 1.0) * (double)n * layer->ops->flops(layer)));
    if (layer->bias >= 0) PetscCall(TrsParametersReady(layer->context->params, layer->bias));
    PetscCall(TrsParametersBetween(layer->context->params));
    if (!layer->ops->same_width) {
      if (residual)
        PetscCall(layer->context->compute->join_forward(
            stream, n, layer->in, PETSC_FALSE, TrsFloats((const float *)to.data, to.stride),
            TrsFloats(mlp->saved, layer->in), TrsFloats((float *)to.data, to.stride)));
      residual = PETSC_FALSE;
      p--;
    }
    dy = to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMlpWork(const TrsMlp *mlp, double *flops, double *bytes)
{
  for (int l = 0; l < mlp->n_layers; l++) {
    *flops += mlp->layer[l].ops->flops(&mlp->layer[l]);
    *bytes += mlp->layer[l].ops->bytes(&mlp->layer[l]);
  }
}

PetscErrorCode TrsMlpView(const TrsMlp *mlp, const char *module, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  %-12s %" PRId64, module, mlp->layer[0].in));
  for (int p = 0; p < mlp->n_perceptrons; p++)
    PetscCall(PetscPrintf(comm, "-%" PRId64, mlp->layer[mlp->end[p] - 1].out));
  PetscCall(PetscPrintf(comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpFree(TrsMlp *mlp)
{
  PetscFunctionBegin;
  PetscCall(PetscFree3(mlp->layer, mlp->end, mlp->dy));
  *mlp = (TrsMlp){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
