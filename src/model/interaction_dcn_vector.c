/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn_vector: a cross network whose layers have a vector w in the place of a matrix,
  x_{l+1} = x0 (w . x_l) + b + x_l.
  Source: torchrec.modules.crossnet (VectorCrossNet); Wang et al. 2017; src/RULES.md, rule A3
*/
#include "model/interaction.h"
#include "model/mlp.h"

#include <math.h>

typedef struct {
  int weight, bias; /* indices in the parameters */
  float *x;         /* x_l [max_batch, N]; X itself for the first */
  float *s;         /* w . x_l [max_batch] */
} TrsVectorLayer;

typedef struct {
  int n_layers;
  TrsVectorLayer *layer; /* [n_layers] */
  float *memory;         /* all of the following arrays and those of the layers */
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

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsVectorNet *net = (TrsVectorNet *)interaction->own;
  const int64_t matrix = TrsWholeLines(max_batch * interaction->N), vector = TrsWholeLines(max_batch);
  float *next;

  PetscFunctionBegin;
  PetscCall(interaction->context->device->alloc(
      (net->n_layers + 1) * (matrix + vector) * (int64_t)sizeof(float), (void **)&net->memory));
  next = net->memory;
  for (int l = 0; l < net->n_layers; l++, next += matrix + vector) {
    net->layer[l].s = next;
    net->layer[l].x = next + vector; /* of layer 0: the interaction's, see placed() */
  }
  net->ds = next;
  net->dx0 = next + vector;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void placed(const TrsInteraction *interaction)
{
  ((TrsVectorNet *)interaction->own)->layer[0].x = interaction->x;
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsVectorNet *net = (const TrsVectorNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N;

  PetscFunctionBegin;
  for (int l = 0; l < net->n_layers; l++) {
    const TrsVectorLayer *layer = &net->layer[l];
    float *next = l + 1 < net->n_layers ? net->layer[l + 1].x : interaction->out;

    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, 1, N, 1.0F, layer->x, N,
                            param[layer->weight].value, N, 0.0F, layer->s, 1));
    PetscCall(compute->vector_cross_forward(stream, n, N, interaction->x, layer->s, param[layer->bias].value,
                                            layer->x, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* With g = dout: dx0 += g s; db = sum g; ds = g . x0; dw = ds^T x_l; g += ds w; dx = g + dx0. */
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsVectorNet *net = (const TrsVectorNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N;
  float *g = interaction->dout;

  PetscFunctionBegin;
  for (int l = net->n_layers - 1; l >= 0; l--) {
    const TrsVectorLayer *layer = &net->layer[l];
    const TrsDenseParameter *weight = &param[layer->weight], *bias = &param[layer->bias];
    const int place = (l == net->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);
    const TrsCrossBackward backward = {interaction->x, layer->s, bias->value, g,
                                       net->dx0,       net->ds,  bias->grad,  TRS_FP32};

    PetscCall(compute->vector_cross_backward(stream, n, N, place, &backward));
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, 1, N, n, 1.0F, net->ds, 1, layer->x, N, 0.0F,
                            weight->grad, N));
    if (l > 0)
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, N, 1, 1.0F, net->ds, 1, weight->value, N,
                              1.0F, g, N));
    else
      PetscCall(compute->cross_input(stream, n, N, 1, TrsFloats(net->ds, 1), TrsFloats(weight->value, N),
                                     TrsFloats(g, N), net->dx0, interaction->dx));
    PetscCall(TrsParametersReady(interaction->context->params, layer->bias));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  crossnet     %d layers of a vector\n",
                        ((const TrsVectorNet *)interaction->own)->n_layers));
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

/* Vectors may have any widths. */
const TrsInteractionOps trs_interaction_dcn_vector = {.word = "dcn_vector",
                                                      .fewest = 1,
                                                      .read = read,
                                                      .width = TrsInteractionAll,
                                                      .flops = flops,
                                                      .declare = declare,
                                                      .allocate = allocate,
                                                      .placed = placed,
                                                      .forward = forward,
                                                      .backward = backward,
                                                      .view = view,
                                                      .free = release};
