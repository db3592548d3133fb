/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/interaction.h"

#include <math.h>

#define ALIGNMENT 16 /* floats: rows of the dot interaction's output start a cache line */

void TrsInteractionShape(TrsInteraction *interaction, int n_vectors, int D, int64_t N, PetscBool has_dense)
{
  const int64_t unit = interaction->compute->product_unit;

  interaction->n_vectors = n_vectors;
  interaction->D = D;
  interaction->N = N;
  interaction->width = interaction->filled = interaction->stride = N;
  if (interaction->kind == TRS_INTERACTION_DOT) {
    interaction->copied = has_dense ? D : 0;
    interaction->width = interaction->copied + (int64_t)n_vectors * (n_vectors - 1) / 2;
    interaction->filled = (interaction->width + unit - 1) / unit * unit;
    interaction->stride = (interaction->filled + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
}

PetscErrorCode TrsInteractionDeclare(TrsInteraction *interaction)
{
  const int64_t N = interaction->N, rank = interaction->rank;

  PetscFunctionBegin;
  if (interaction->kind != TRS_INTERACTION_DCN) interaction->n_layers = 0;
  PetscCall(PetscCalloc1((size_t)interaction->n_layers, &interaction->layer));
  for (int l = interaction->n_layers - 1; l >= 0; l--) {
    TrsCrossLayer *layer = &interaction->layer[l];
    const float std = (float)sqrt(2.0 / (double)(N + rank)); /* torch.nn.init.xavier_normal_ */

    PetscCall(
        TrsParametersAdd(interaction->params, "crossnet", l, "W", N, rank, TRS_INIT_NORMAL, std, &layer->W));
    PetscCall(
        TrsParametersAdd(interaction->params, "crossnet", l, "V", rank, N, TRS_INIT_NORMAL, std, &layer->V));
    PetscCall(TrsParametersAdd(interaction->params, "crossnet", l, "bias", N, 0, TRS_INIT_ZERO, 0.0f,
                               &layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsInteractionAllocate(TrsInteraction *interaction, int64_t max_batch, float *out, float *dx,
                                      float *dout)
{
  const TrsDeviceOps *device = interaction->device;
  const int64_t row_bytes = interaction->N * (int64_t)sizeof(float),
                rank_bytes = interaction->rank * (int64_t)sizeof(float);
  const PetscBool with_gradients = (PetscBool)!interaction->params->forward_only;

  PetscFunctionBegin;
  PetscCall(device->alloc(max_batch * row_bytes, (void **)&interaction->x));
  if (interaction->kind == TRS_INTERACTION_CAT) {
    if (with_gradients) PetscCall(device->alloc(max_batch * row_bytes, (void **)&interaction->own_dx));
    out = interaction->x;
    dx = dout = interaction->own_dx;
  }
  interaction->out = out;
  interaction->dx = dx;
  interaction->dout = dout;
  for (int l = 0; l < interaction->n_layers; l++) {
    TrsCrossLayer *layer = &interaction->layer[l];

    if (l == 0)
      layer->x = interaction->x;
    else
      PetscCall(device->alloc(max_batch * row_bytes, (void **)&layer->x));
    PetscCall(device->alloc(max_batch * rank_bytes, (void **)&layer->v));
    PetscCall(device->alloc(max_batch * row_bytes, (void **)&layer->u));
  }
  if (interaction->n_layers && with_gradients) {
    PetscCall(device->alloc(max_batch * row_bytes, (void **)&interaction->dx0));
    PetscCall(device->alloc(max_batch * row_bytes, (void **)&interaction->h));
    PetscCall(device->alloc(max_batch * rank_bytes, (void **)&interaction->q));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode cross_forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsComputeOps *compute = interaction->compute;
  const TrsDenseParameter *param = interaction->params->param;
  const int64_t N = interaction->N, rank = interaction->rank;

  PetscFunctionBegin;
  for (int l = 0; l < interaction->n_layers; l++) {
    const TrsCrossLayer *layer = &interaction->layer[l];
    float *next = l + 1 < interaction->n_layers ? interaction->layer[l + 1].x : interaction->out;

    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, rank, N, 1.0f, layer->x, N,
                            param[layer->V].value, N, 0.0f, layer->v, rank));
    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, N, rank, 1.0f, layer->v, rank,
                            param[layer->W].value, rank, 0.0f, layer->u, N));
    PetscCall(compute->cross_forward(stream, n, N, interaction->x, layer->u, param[layer->bias].value,
                                     layer->x, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* With g = dout: dx0 += g * (u + b); h = g * x0; db = sum h; dW = h^T v; q = h W; dV = q^T x_l; g += q V; in the end dx = g + dx0. */
static PetscErrorCode cross_backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsComputeOps *compute = interaction->compute;
  const TrsDenseParameter *param = interaction->params->param;
  const int64_t N = interaction->N, rank = interaction->rank;
  float *g = interaction->dout, *h = interaction->h, *q = interaction->q;

  PetscFunctionBegin;
  for (int l = interaction->n_layers - 1; l >= 0; l--) {
    const TrsCrossLayer *layer = &interaction->layer[l];
    const TrsDenseParameter *W = &param[layer->W], *V = &param[layer->V], *bias = &param[layer->bias];
    const int place = (l == interaction->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);

    const TrsCrossBackward backward = {interaction->x,   layer->u, bias->value, g,
                                       interaction->dx0, h,        bias->grad};

    PetscCall(compute->cross_backward(stream, n, N, place, &backward));
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, N, rank, n, 1.0f, h, N, layer->v, rank, 0.0f,
                            W->grad, rank));
    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, rank, N, 1.0f, h, N, W->value, rank, 0.0f, q,
                            rank));
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, rank, N, n, 1.0f, q, rank, layer->x, N, 0.0f,
                            V->grad, N));
    if (l > 0)
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, N, rank, 1.0f, q, rank, V->value, N, 1.0f,
                              g, N));
    else
      PetscCall(compute->cross_input(stream, n, N, rank, q, V->value, g, interaction->dx0, interaction->dx));
    PetscCall(TrsParametersReady(interaction->params, layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsInteractionForward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  PetscFunctionBegin;
  if (interaction->kind == TRS_INTERACTION_DCN) PetscCall(cross_forward(interaction, stream, n));
  if (interaction->kind == TRS_INTERACTION_DOT) {
    PetscCall(interaction->compute->dot_forward(
        stream, n, interaction->n_vectors, interaction->D, interaction->copied,
        (int)(interaction->filled - interaction->width), interaction->x, interaction->N, interaction->out,
        interaction->stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsInteractionBackward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  PetscFunctionBegin;
  if (interaction->kind == TRS_INTERACTION_DCN) PetscCall(cross_backward(interaction, stream, n));
  if (interaction->kind == TRS_INTERACTION_DOT) {
    PetscCall(interaction->compute->dot_backward(
        stream, n, interaction->n_vectors, interaction->D, interaction->copied, interaction->x,
        interaction->N, interaction->dout, interaction->stride, interaction->dx, interaction->N));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsInteractionFree(TrsInteraction *interaction)
{
  const TrsDeviceOps *device = interaction->device;

  PetscFunctionBegin;
  for (int l = 0; interaction->layer && l < interaction->n_layers; l++) { /* none before Declare */
    TrsCrossLayer *layer = &interaction->layer[l];

    if (l > 0) PetscCall(device->release((void **)&layer->x));
    PetscCall(device->release((void **)&layer->v));
    PetscCall(device->release((void **)&layer->u));
  }
  PetscCall(device->release((void **)&interaction->x));
  PetscCall(device->release((void **)&interaction->own_dx));
  PetscCall(device->release((void **)&interaction->dx0));
  PetscCall(device->release((void **)&interaction->h));
  PetscCall(device->release((void **)&interaction->q));
  PetscCall(PetscFree(interaction->layer));
  interaction->n_layers = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
