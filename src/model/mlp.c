/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/mlp.h"

#include <inttypes.h>
#include <math.h>

PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const char *module, int n_layers, int64_t in, int64_t filled,
                             const int64_t *out, PetscBool relu_last)
{
  PetscFunctionBegin;
  mlp->n_layers = n_layers;
  PetscCall(PetscCalloc1((size_t)n_layers, &mlp->layer));
  for (int l = n_layers - 1; l >= 0; l--) {
    TrsMlpLayer *layer = &mlp->layer[l];
    float bound;

    layer->in = l ? out[l - 1] : in;
    layer->filled = l ? layer->in : filled;
    layer->out = out[l];
    layer->activation = l < n_layers - 1 || relu_last ? TRS_ACTIVATION_RELU : TRS_ACTIVATION_NONE;
    bound = (float)(1.0 / sqrt((double)layer->in)); /* as torch.nn.Linear */
    PetscCall(TrsParametersAdd(mlp->params, module, l, "weight", layer->out, layer->in, TRS_INIT_UNIFORM,
                               bound, &layer->weight));
    TrsParametersFillUp(mlp->params, layer->filled);
    PetscCall(TrsParametersAdd(mlp->params, module, l, "bias", layer->out, 0, TRS_INIT_UNIFORM, bound,
                               &layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsWholeLines(int64_t n)
{
  const int64_t line = 64 / (int64_t)sizeof(float);

  return (n + line - 1) / line * line;
}

int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end)
{
  return from < end && from + n > begin ? end : from;
}

TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, float *y, int64_t y_stride)
{
  const int last = mlp->n_layers - 1;
  int64_t dy = 0, dy_end = 0;
  TrsMlpRoom room = {0};

  for (int l = 0; l < last; l++) {
    TrsMlpLayer *layer = &mlp->layer[l];
    const int64_t n = TrsWholeLines(max_batch * layer->out);

    layer->y = inner ? inner + room.outputs : NULL;
    layer->y_stride = layer->out;
    room.outputs += n;
    dy = TrsMlpBeside(room.outputs, n, dy, dy_end);
    dy_end = dy + n;
    layer->dy = inner ? inner + dy : NULL;
    if (l == 0) room.first = n;
    room.end = PetscMax(room.end, dy_end);
  }
  mlp->layer[last].y = y;
  mlp->layer[last].y_stride = y_stride;
  return room;
}

PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x, int64_t x_stride)
{
  PetscFunctionBegin;
  for (int l = 0; l < mlp->n_layers; l++) {
    const TrsMlpLayer *layer = &mlp->layer[l];
    const TrsDenseParameter *param = mlp->params->param;

    PetscCall(mlp->compute->linear_forward(stream, n, layer->filled, layer->out, x, x_stride,
                                           param[layer->weight].value, param[layer->bias].value,
                                           layer->activation, layer->y, layer->y_stride));
    PetscCall(PetscLogFlops(2.0 * (double)n * (double)layer->filled * (double)layer->out));
    x = layer->y;
    x_stride = layer->y_stride;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride)
{
  PetscFunctionBegin;
  for (int l = mlp->n_layers - 1; l >= 0; l--) {
    const TrsMlpLayer *layer = &mlp->layer[l], *below = l ? &mlp->layer[l - 1] : NULL;
    const TrsDenseParameter *weight = &mlp->params->param[layer->weight],
                            *bias = &mlp->params->param[layer->bias];
    float *to = below ? below->dy : dx;
    const int64_t to_stride = below ? below->out : dx_stride;

    PetscCall(mlp->compute->linear_backward(stream, n, layer->filled, layer->out, below ? below->y : x,
                                            below ? below->y_stride : x_stride, weight->value, layer->y,
                                            layer->y_stride, layer->activation, dy, dy_stride, weight->grad,
                                            bias->grad, to, to_stride));
    PetscCall(PetscLogFlops((to ? 4.0 : 2.0) * (double)n * (double)layer->filled * (double)layer->out));
    PetscCall(TrsParametersReady(mlp->params, layer->bias));
    dy = to;
    dy_stride = to_stride;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpView(const TrsMlp *mlp, const char *module, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  %-12s %" PRId64, module, mlp->layer[0].in));
  for (int l = 0; l < mlp->n_layers; l++) PetscCall(PetscPrintf(comm, "-%" PRId64, mlp->layer[l].out));
  PetscCall(PetscPrintf(comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMlpFree(TrsMlp *mlp)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(mlp->layer));
  mlp->n_layers = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
