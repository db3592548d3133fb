/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn: a cross network with low-rank matrices. dcn_full: a cross network with full matrices.
  Source: torchrec.modules.crossnet (LowRankCrossNet, CrossNet); src/RULES.md, rule A3
*/
#include "core/names.h"
#include "model/interaction.h"

#include <math.h>

/*
  A cross layer x_{l+1} = x0 * (W (V x_l) + b) + x_l. Full layers have no W, and V is [N, N].
  Matrices have the output's type, except dx0, a sum of the layers' gradients.
*/
typedef struct {
  int W, V, bias; /* indices in the parameters */
  TrsMatrix x;    /* x_l [max_batch, N]; for the first layer X itself or its copy */
  TrsMatrix v;    /* V x_l [max_batch, rank]; in full layers this is u */
  TrsMatrix u;    /* W V x_l [max_batch, N] */
} TrsCrossLayer;

typedef struct {
  PetscBool full;
  int n_layers, rank;
  TrsCrossLayer *layer; /* [n_layers] */
  float *dx0;           /* [max_batch, N] */
  TrsMatrix x0, h, q;   /* [max_batch, N], [max_batch, N], [max_batch, rank]; x0: a copy of X */
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

/* Number of rows of V. */
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

/* A layer reads x_l twice, x0 and u, and writes u and x_{l+1}; v is written and read. */
static double bytes(const TrsInteraction *interaction)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;
  const double N = (double)interaction->N, v = cross->full ? 0.0 : (double)cross->rank;

  return TrsDTypeBytes(interaction->type) * (cross->n_layers * (6.0 * N + 2.0 * v) - 2.0 * N);
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

/* Allocate a matrix with max_batch rows. */
static PetscErrorCode make(const TrsInteraction *interaction, int64_t max_batch, int64_t cols,
                           TrsMatrix *matrix)
{
  PetscFunctionBegin;
  *matrix = (TrsMatrix){.type = interaction->type, .stride = cols};
  PetscCall(interaction->context->device->alloc(max_batch * cols * TrsDTypeBytes(interaction->type),
                                                &matrix->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsCrossNet *cross = (TrsCrossNet *)interaction->own;
  const int64_t N = interaction->N, rank = inner(interaction);

  PetscFunctionBegin;
  cross->x0 = (TrsMatrix){.type = interaction->type, .stride = N}; /* see placed() */
  if (TrsInteractionCopiesX(interaction)) PetscCall(make(interaction, max_batch, N, &cross->x0));
  for (int l = 0; l < cross->n_layers; l++) {
    TrsCrossLayer *layer = &cross->layer[l];

    layer->x = cross->x0;
    if (l > 0) PetscCall(make(interaction, max_batch, N, &layer->x));
    PetscCall(make(interaction, max_batch, N, &layer->u));
    layer->v = layer->u;
    if (!cross->full) PetscCall(make(interaction, max_batch, rank, &layer->v));
  }
  if (interaction->context->params->forward_only) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      interaction->context->device->alloc(max_batch * N * (int64_t)sizeof(float), (void **)&cross->dx0));
  PetscCall(make(interaction, max_batch, N, &cross->h));
  cross->q = cross->h;
  if (!cross->full) PetscCall(make(interaction, max_batch, rank, &cross->q));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void placed(const TrsInteraction *interaction)
{
  TrsCrossNet *cross = (TrsCrossNet *)interaction->own;

  if (!TrsInteractionCopiesX(interaction)) cross->x0.data = cross->layer[0].x.data = interaction->x.data;
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, rank = inner(interaction);

  PetscFunctionBegin;
  if (TrsInteractionCopiesX(interaction))
    PetscCall(compute->convert_matrix(stream, n, N, N, interaction->x, cross->x0));
  for (int l = 0; l < cross->n_layers; l++) {
    const TrsCrossLayer *layer = &cross->layer[l];
    void *next = l + 1 < cross->n_layers ? cross->layer[l + 1].x.data : interaction->out;

    PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                               (TrsMatrixProduct){.m = n,
                                                  .n = rank,
                                                  .k = N,
                                                  .a = layer->x,
                                                  .b = TrsParametersMatrix(params, layer->V),
                                                  .c = layer->v}));
    if (!cross->full)
      PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                                 (TrsMatrixProduct){.m = n,
                                                    .n = N,
                                                    .k = rank,
                                                    .a = layer->v,
                                                    .b = TrsParametersMatrix(params, layer->W),
                                                    .c = layer->u}));
    PetscCall(compute->cross_forward(stream, n, N, interaction->type, cross->x0.data, layer->u.data,
                                     params->param[layer->bias].value, layer->x.data, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* From h compute dW = h^T v and q = h W. */
static PetscErrorCode backward_w(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                 const TrsCrossLayer *layer)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;
  const TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, rank = cross->rank;

  PetscFunctionBegin;
  PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                             (TrsMatrixProduct){.m = N,
                                                .n = rank,
                                                .k = n,
                                                .a = cross->h,
                                                .b = layer->v,
                                                .c = TrsFloats(params->param[layer->W].grad, rank)}));
  PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
                             (TrsMatrixProduct){.m = n,
                                                .n = rank,
                                                .k = N,
                                                .a = cross->h,
                                                .b = TrsParametersMatrix(params, layer->W),
                                                .c = cross->q}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With g = dout: dx0 += g * (u + b); h = g * x0; db = sum h; dW = h^T v; q = h W; dV = q^T x_l; g +=
  q V; at the end dx = g + dx0. In full layers q is h.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, rank = inner(interaction);
  const TrsMatrix g = TrsInteractionMatrix(interaction, interaction->dout);

  PetscFunctionBegin;
  for (int l = cross->n_layers - 1; l >= 0; l--) {
    const TrsCrossLayer *layer = &cross->layer[l];
    const TrsMatrix V = TrsParametersMatrix(params, layer->V);
    const int place = (l == cross->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);
    const TrsCrossBackward backward = TrsInteractionCross(
        interaction, (PetscBool)(l == 0), cross->x0, layer->u.data, layer->bias, cross->dx0, cross->h.data);

    PetscCall(compute->cross_backward(stream, n, N, place, &backward));
    if (!cross->full) PetscCall(backward_w(interaction, stream, n, layer));
    PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                               (TrsMatrixProduct){.m = rank,
                                                  .n = N,
                                                  .k = n,
                                                  .a = cross->q,
                                                  .b = layer->x,
                                                  .c = TrsFloats(params->param[layer->V].grad, N)}));
    if (l > 0)
      PetscCall(TrsLayerMultiply(
          interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
          (TrsMatrixProduct){.m = n, .n = N, .k = rank, .a = cross->q, .b = V, .beta = 1.0F, .c = g}));
    else
      PetscCall(compute->cross_input(stream, n, N, rank, cross->q, V, g, cross->dx0, interaction->dx));
    PetscCall(TrsParametersReady(interaction->context->params, layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const TrsCrossNet *cross = (const TrsCrossNet *)interaction->own;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  crossnet     %d layer%s of rank %d\n", cross->n_layers,
                        TrsPlural(cross->n_layers, "s"), (int)inner(interaction)));
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

    if (l > 0) PetscCall(device->release(&layer->x.data));
    if (!cross->full) PetscCall(device->release(&layer->v.data));
    PetscCall(device->release(&layer->u.data));
  }
  PetscCall(device->release((void **)&cross->dx0));
  if (TrsInteractionCopiesX(interaction)) PetscCall(device->release(&cross->x0.data));
  if (!cross->full) PetscCall(device->release(&cross->q.data));
  PetscCall(device->release(&cross->h.data));
  PetscCall(PetscFree(cross->layer));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define CROSS_TABLE(name, of_one_width) \
  const TrsInteractionOps trs_interaction_##name = {.word = #name, \
                                                    .fewest = 1, \
                                                    .equal_dims = (of_one_width), \
                                                    .typed = PETSC_TRUE, \
                                                    .read = read, \
                                                    .width = TrsInteractionAll, \
                                                    .flops = flops, \
                                                    .bytes = bytes, \
                                                    .declare = declare, \
                                                    .allocate = allocate, \
                                                    .placed = placed, \
                                                    .forward = forward, \
                                                    .backward = backward, \
                                                    .view = view, \
                                                    .free = release};
CROSS_TABLE(dcn, PETSC_TRUE)
CROSS_TABLE(dcn_full, PETSC_FALSE)
