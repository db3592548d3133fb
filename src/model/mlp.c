/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/mlp.h"

#include "core/events.h"

#include <inttypes.h>

enum { TRS_MOST_LAYERS = 5 }; /* of a perceptron */

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

/* Append a layer of a perceptron of `width` columns to the stack. */
static TrsLayer *add_layer(TrsMlp *mlp, const TrsLayerContext *context, const TrsLayerOps *ops, int64_t width)
{
  TrsLayer *layer = &mlp->layer[mlp->n_layers++];

  *layer = (TrsLayer){
      .ops = ops, .context = context, .in = width, .filled = width, .out = width, .weight = -1, .bias = -1};
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
    linear->activation = TRS_ACTIVATION_RELU; /* in the same kernel */
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

int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end)
{
  return from < end && from + n > begin ? end : from;
}

TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, float *y, int64_t y_stride)
{
  int64_t dy = 0, dy_end = 0;
  TrsMlpRoom room = {0};

  for (int p = 0, l = 0; p < mlp->n_perceptrons; p++) {
    const int64_t width = mlp->layer[mlp->end[p] - 1].out, n = TrsWholeLines(max_batch * width);

    for (; l < mlp->end[p]; l++) {
      TrsLayer *layer = &mlp->layer[l];
      /* The place of the output is that of the layers behind it that are in place. */
      int last = l;

      if (layer->ops->kept) {
        layer->kept = inner ? inner + room.outputs : NULL;
        room.outputs += TrsWholeLines(max_batch * layer->ops->kept);
      }
      while (last + 1 < mlp->end[p] && mlp->layer[last + 1].ops->in_place) last++;
      if (last + 1 == mlp->n_layers) {
        layer->y = y;
        layer->y_stride = y_stride;
        continue;
      }
      layer->y = inner ? inner + room.outputs : NULL;
      layer->y_stride = width;
      if (last == l) room.outputs += n;
    }
    if (p + 1 == mlp->n_perceptrons) break;
    dy = TrsMlpBeside(room.outputs, n, dy, dy_end);
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
  return room;
}

PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x, int64_t x_stride)
{
  PetscFunctionBegin;
  for (int p = 0, l = 0; p < mlp->n_perceptrons; p++) {
    TrsLayer *last = &mlp->layer[mlp->end[p] - 1];

    last->skipped = x;
    last->skipped_stride = x_stride;
    for (; l < mlp->end[p]; l++) {
      const TrsLayer *layer = &mlp->layer[l];

      PetscCall(layer->ops->forward(layer, stream, n, x, x_stride));
      PetscCall(TrsLogFlops((double)n * layer->ops->flops(layer)));
      x = layer->y;
      x_stride = layer->y_stride;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keep the gradient of a residual layer's output, which is also one of its perceptron's input. */
static PetscErrorCode save_gradient(const TrsMlp *mlp, const TrsLayer *layer, TrsStream stream, int64_t n,
                                    const float *dy, int64_t dy_stride)
{
  const TrsColumnCopy copy = {
      .from = dy, .to = mlp->saved, .from_stride = dy_stride, .to_stride = layer->out, .cols = layer->out};

  PetscFunctionBegin;
  PetscCall(layer->context->compute->copy_columns(stream, n, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride)
{
  int p = mlp->n_perceptrons - 1;   /* of layer l */
  PetscBool residual = PETSC_FALSE; /* whether the gradient of p's sum was saved */

  PetscFunctionBegin;
  for (int l = mlp->n_layers - 1; l >= 0; l--) {
    const TrsLayer *layer = &mlp->layer[l], *below = l ? &mlp->layer[l - 1] : NULL;
    float *to = layer->ops->same_width ? dy : p ? mlp->dy[p - 1] : dx;
    const int64_t to_stride = layer->ops->same_width ? dy_stride : p ? layer->in : dx_stride;

    if (layer->ops == &trs_layer_residual && (p || dx)) {
      PetscCall(save_gradient(mlp, layer, stream, n, dy, dy_stride));
      residual = PETSC_TRUE;
    }
    PetscCall(layer->ops->backward(layer, stream, n, below ? below->y : x, below ? below->y_stride : x_stride,
                                   dy, dy_stride, to, to_stride));
    PetscCall(TrsLogFlops((to ? 2.0 : 1.0) * (double)n * layer->ops->flops(layer)));
    if (layer->bias >= 0) PetscCall(TrsParametersReady(layer->context->params, layer->bias));
    if (!layer->ops->same_width) {
      if (residual)
        PetscCall(layer->context->compute->join_forward(stream, n, layer->in, PETSC_FALSE, to, to_stride,
                                                        mlp->saved, layer->in, to, to_stride));
      residual = PETSC_FALSE;
      p--;
    }
    dy = to;
    dy_stride = to_stride;
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
