/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn_vector: a cross network whose layers have a vector w instead of a matrix, x_{l+1} = x0 (w .
  x_l) + b + x_l.
  Source: torchrec.modules.crossnet (VectorCrossNet); Wang et al. 2017; src/RULES.md, rule A3
*/
#include "core/names.h"
#include "model/interaction.h"
#include "model/mlp.h"

#include <math.h>

typedef struct {
  int weight, bias; /* indices in the parameters */
  TrsMatrix x;      /* x_l [max_batch, N]; for the first layer X itself or its copy */
  float *s;         /* w . x_l [max_batch] */
} TrsVectorLayer;

typedef struct {
  int n_layers;
  TrsVectorLayer *layer; /* [n_layers] */
  float *memory;         /* holds all following arrays and the layers' arrays */
  TrsMatrix x0;          /* X, or its copy in the output's type [max_batch, N] */
  float *dx0, *ds;       /* [max_batch, N], [max_batch] */
} TrsVectorNet;

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options)
{
  int64_t n_layers;
  TrsVectorNet *net;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-dcn_num_layers", &n_layers, NULL));
  PetscCall(PetscNew(&net));
  net->n_layers = (int)n_layers;
  interaction->own = net;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsInteraction *interaction)
{
  return 5.0 * ((const TrsVectorNet *)interaction->own)->n_layers * (double)interaction->N;
}

/* A layer reads x_l twice and x0, and writes x_{l+1}. */
static double bytes(const TrsInteraction *interaction)
{
  const int n_layers = ((const TrsVectorNet *)interaction->own)->n_layers;

  return TrsDTypeBytes(interaction->type) * (4.0 * n_layers - 2.0) * (double)interaction->N;
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  TrsVectorNet *net = (TrsVectorNet *)interaction->own;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N;
  const float std = (float)sqrt(2.0 / (double)(N + 1)); /* torch.nn.init.xavier_normal_ */

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)net->n_layers, &net->layer));
  for (int l = net->n_layers - 1; l >= 0; l--) {
    TrsVectorLayer *layer = &net->layer[l];

    PetscCall(
        TrsParametersAdd(params, "crossnet_vector", l, "weight", N, 0, TRS_INIT_NORMAL, std, &layer->weight));
    PetscCall(
        TrsParametersAdd(params, "crossnet_vector", l, "bias", N, 0, TRS_INIT_ZERO, 0.0F, &layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the arrays' places in memory, and return the number of floats they take. */
static int64_t place(const TrsInteraction *interaction, TrsVectorNet *net, int64_t B, float *memory)
{
  const int64_t N = interaction->N;
  int64_t used = 0;

  net->x0 = (TrsMatrix){.type = interaction->type, .stride = N}; /* see placed() */
  if (TrsInteractionCopiesX(interaction)) net->x0 = TrsTakeMatrix(memory, &used, B, N, interaction->type);
  for (int l = 0; l < net->n_layers; l++) {
    net->layer[l].s = TrsTakeFloats(memory, &used, B);
    net->layer[l].x = l ? TrsTakeMatrix(memory, &used, B, N, interaction->type) : net->x0;
  }
  net->ds = TrsTakeFloats(memory, &used, B);
  net->dx0 = TrsTakeFloats(memory, &used, B * N);
  return used;
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsVectorNet *net = (TrsVectorNet *)interaction->own;
  const int64_t n = place(interaction, net, max_batch, NULL);

  PetscFunctionBegin;
  PetscCall(interaction->context->device->alloc(n * (int64_t)sizeof(float), (void **)&net->memory));
  (void)place(interaction, net, max_batch, net->memory);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void placed(const TrsInteraction *interaction)
{
  TrsVectorNet *net = (TrsVectorNet *)interaction->own;

  if (!TrsInteractionCopiesX(interaction)) net->x0.data = net->layer[0].x.data = interaction->x.data;
}

/* w as a matrix with one row. */
static TrsMatrix row_of(const TrsInteraction *interaction, const TrsVectorLayer *layer)
{
  TrsMatrix row = TrsParametersMatrix(interaction->context->params, layer->weight);

  row.stride = interaction->N;
  return row;
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsVectorNet *net = (const TrsVectorNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N;

  PetscFunctionBegin;
  if (TrsInteractionCopiesX(interaction))
    PetscCall(compute->convert_matrix(stream, n, N, N, interaction->x, net->x0));
  for (int l = 0; l < net->n_layers; l++) {
    const TrsVectorLayer *layer = &net->layer[l];
    void *next = l + 1 < net->n_layers ? net->layer[l + 1].x.data : interaction->out;

    PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                               (TrsMatrixProduct){.m = n,
                                                  .n = 1,
                                                  .k = N,
                                                  .a = layer->x,
                                                  .b = row_of(interaction, layer),
                                                  .c = TrsFloats(layer->s, 1)}));
    PetscCall(compute->vector_cross_forward(stream, n, N, interaction->type, net->x0.data, layer->s,
                                            param[layer->bias].value, layer->x.data, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With g = dout: dx0 += g s; db = sum g; ds = g . x0; dw = ds^T x_l; g += ds w; at the end dx = g +
  dx0.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsVectorNet *net = (const TrsVectorNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N;
  const TrsMatrix g = TrsInteractionMatrix(interaction, interaction->dout), ds = TrsFloats(net->ds, 1);

  PetscFunctionBegin;
  for (int l = net->n_layers - 1; l >= 0; l--) {
    const TrsVectorLayer *layer = &net->layer[l];
    const TrsMatrix w = row_of(interaction, layer), dw = TrsFloats(param[layer->weight].grad, N);
    const int place = (l == net->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);
    const TrsCrossBackward backward = TrsInteractionCross(interaction, (PetscBool)(l == 0), net->x0, layer->s,
                                                          layer->bias, net->dx0, net->ds);

    PetscCall(compute->vector_cross_backward(stream, n, N, place, &backward));
    PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                               (TrsMatrixProduct){.m = 1, .n = N, .k = n, .a = ds, .b = layer->x, .c = dw}));
    if (l > 0)
      PetscCall(TrsLayerMultiply(
          interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
          (TrsMatrixProduct){.m = n, .n = N, .k = 1, .a = ds, .b = w, .beta = 1.0F, .c = g}));
    else
      PetscCall(compute->cross_input(stream, n, N, 1, ds, w, g, net->dx0, interaction->dx));
    PetscCall(TrsParametersReady(interaction->context->params, layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const int n = ((const TrsVectorNet *)interaction->own)->n_layers;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  crossnet     %d layer%s of a vector\n", n, TrsPlural(n, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  TrsVectorNet *net = (TrsVectorNet *)interaction->own;

  PetscFunctionBegin;
  if (!net) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(interaction->context->device->release((void **)&net->memory));
  PetscCall(PetscFree(net->layer));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Vectors may have different widths. */
const TrsInteractionOps trs_interaction_dcn_vector = {.word = "dcn_vector",
                                                      .fewest = 1,
                                                      .typed = PETSC_TRUE,
                                                      .read = read,
                                                      .width = TrsInteractionAll,
                                                      .flops = flops,
                                                      .bytes = bytes,
                                                      .declare = declare,
                                                      .allocate = allocate,
                                                      .placed = placed,
                                                      .forward = forward,
                                                      .backward = backward,
                                                      .view = view,
                                                      .free = release};
