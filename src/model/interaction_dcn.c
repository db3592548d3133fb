/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn: a low-rank cross network. dcn_full: one of full matrices.
  Source: torchrec.modules.crossnet (LowRankCrossNet, CrossNet); src/RULES.md, rule A3
*/
#include "model/interaction.h"

#include <math.h>

/* A cross layer x_{l+1} = x0 * (W (V x_l) + b) + x_l. Full layers have no W, and V is [N, N]. */
typedef struct {
  int W, V, bias; /* indices in the parameters */
  float *x;       /* x_l [max_batch, N]; X itself for the first */
  float *v;       /* V x_l [max_batch, rank]; of full layers it is u */
  float *u;       /* W V x_l [max_batch, N] */
} TrsCrossLayer;

typedef struct {
  PetscBool full;
  int n_layers, rank;
  TrsCrossLayer *layer; /* [n_layers] */
  float *dx0, *h, *q;   /* [max_batch, N], [max_batch, N], [max_batch, rank] */
} TrsCrossNet;

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options)
{
  int64_t n_layers, rank;
  TrsCrossNet *cross;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-dcn_num_layers", &n_layers, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dcn_low_rank_dim", &rank, NULL));
  PetscCall(PetscNew(&cross));
  cross->n_layers = (int)n_layers;
  cross->rank = (int)rank;
  cross->full = (PetscBool)(interaction->ops == &trs_interaction_dcn_full);
  interaction->own = cross;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of V. */
static int64_t inner(const TrsInteraction *interaction)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;

  return cross->full ? interaction->N : cross->rank;
}

static double flops(const TrsInteraction *interaction)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;

  return (cross->full ? 2.0 : 4.0) * cross->n_layers * (double)interaction->N * (double)inner(interaction);
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  TrsCrossNet *cross = (TrsCrossNet *)interaction->own;
  const int64_t N = interaction->N, rank = inner(interaction);

  const char *module = cross->full ? "crossnet_full" : "crossnet";

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)cross->n_layers, &cross->layer));
  for (int l = cross->n_layers - 1; l >= 0; l--) {
    TrsCrossLayer *layer = &cross->layer[l];
    const float std = (float)sqrt(2.0 / (double)(N + rank)); /* torch.nn.init.xavier_normal_ */

    if (!cross->full)
      PetscCall(TrsParametersAdd(interaction->context->params, module, l, "W", N, rank, TRS_INIT_NORMAL, std,
                                 &layer->W));
    PetscCall(TrsParametersAdd(interaction->context->params, module, l, cross->full ? "weight" : "V", rank, N,
                               TRS_INIT_NORMAL, std, &layer->V));
    PetscCall(TrsParametersAdd(interaction->context->params, module, l, "bias", N, 0, TRS_INIT_ZERO, 0.0f,
                               &layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsCrossNet *cross = (TrsCrossNet *)interaction->own;
  const TrsDeviceOps *device = interaction->context->device;
  const int64_t row_bytes = interaction->N * (int64_t)sizeof(float),
                rank_bytes = inner(interaction) * (int64_t)sizeof(float);
  const PetscBool with_gradients = (PetscBool)!interaction->context->params->forward_only;

  PetscFunctionBegin;
  for (int l = 0; l < cross->n_layers; l++) {
    TrsCrossLayer *layer = &cross->layer[l];

    if (l == 0)
      layer->x = interaction->x;
    else
      PetscCall(device->alloc(max_batch * row_bytes, (void **)&layer->x));
    PetscCall(device->alloc(max_batch * row_bytes, (void **)&layer->u));
    layer->v = layer->u;
    if (!cross->full) PetscCall(device->alloc(max_batch * rank_bytes, (void **)&layer->v));
  }
  if (with_gradients) {
    PetscCall(device->alloc(max_batch * row_bytes, (void **)&cross->dx0));
    PetscCall(device->alloc(max_batch * row_bytes, (void **)&cross->h));
    if (!cross->full) PetscCall(device->alloc(max_batch * rank_bytes, (void **)&cross->q));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N, rank = inner(interaction);

  PetscFunctionBegin;
  for (int l = 0; l < cross->n_layers; l++) {
    const TrsCrossLayer *layer = &cross->layer[l];
    float *next = l + 1 < cross->n_layers ? cross->layer[l + 1].x : interaction->out;

    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, rank, N, 1.0f, layer->x, N,
                            param[layer->V].value, N, 0.0f, layer->v, rank));
    if (!cross->full)
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, N, rank, 1.0f, layer->v, rank,
                              param[layer->W].value, rank, 0.0f, layer->u, N));
    PetscCall(compute->cross_forward(stream, n, N, interaction->x, layer->u, param[layer->bias].value,
                                     layer->x, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With g = dout: dx0 += g * (u + b); h = g * x0; db = sum h; dW = h^T v; q = h W; dV = q^T x_l;
  g += q V; in the end dx = g + dx0. In full layers q is h.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N, rank = inner(interaction);
  float *g = interaction->dout, *h = cross->h, *q = cross->full ? cross->h : cross->q;

  PetscFunctionBegin;
  for (int l = cross->n_layers - 1; l >= 0; l--) {
    const TrsCrossLayer *layer = &cross->layer[l];
    const TrsDenseParameter *W = cross->full ? NULL : &param[layer->W], *V = &param[layer->V],
                            *bias = &param[layer->bias];
    const int place = (l == cross->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);

    const TrsCrossBackward backward = {interaction->x, layer->u, bias->value, g, cross->dx0, h, bias->grad};

    PetscCall(compute->cross_backward(stream, n, N, place, &backward));
    if (W) {
      PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, N, rank, n, 1.0f, h, N, layer->v, rank, 0.0f,
                              W->grad, rank));
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, rank, N, 1.0f, h, N, W->value, rank, 0.0f,
                              q, rank));
    }
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, rank, N, n, 1.0f, q, rank, layer->x, N, 0.0f,
                            V->grad, N));
    if (l > 0)
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, N, rank, 1.0f, q, rank, V->value, N, 1.0f,
                              g, N));
    else
      PetscCall(compute->cross_input(stream, n, N, rank, q, V->value, g, cross->dx0, interaction->dx));
    PetscCall(TrsParametersReady(interaction->context->params, layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;

  PetscFunctionBegin;
  PetscCall(
      PetscPrintf(comm, "  crossnet     %d layers of rank %d\n", cross->n_layers, (int)inner(interaction)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  const TrsDeviceOps *device = interaction->context->device;
  TrsCrossNet *cross = (TrsCrossNet *)interaction->own;

  PetscFunctionBegin;
  if (!cross) PetscFunctionReturn(PETSC_SUCCESS);
  for (int l = 0; cross->layer && l < cross->n_layers; l++) { /* none before declare */
    TrsCrossLayer *layer = &cross->layer[l];

    if (l > 0) PetscCall(device->release((void **)&layer->x));
    if (!cross->full) PetscCall(device->release((void **)&layer->v));
    PetscCall(device->release((void **)&layer->u));
  }
  PetscCall(device->release((void **)&cross->dx0));
  PetscCall(device->release((void **)&cross->h));
  PetscCall(device->release((void **)&cross->q));
  PetscCall(PetscFree(cross->layer));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define CROSS_TABLE(name, of_one_width) \
  const TrsInteractionOps trs_interaction_##name = {.word = #name, \
                                                    .fewest = 1, \
                                                    .equal_dims = (of_one_width), \
                                                    .read = read, \
                                                    .width = TrsInteractionAll, \
                                                    .flops = flops, \
                                                    .declare = declare, \
                                                    .allocate = allocate, \
                                                    .forward = forward, \
                                                    .backward = backward, \
                                                    .view = view, \
                                                    .free = release};
CROSS_TABLE(dcn, PETSC_TRUE)
CROSS_TABLE(dcn_full, PETSC_FALSE)
