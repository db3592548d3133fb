/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The common code of the cross networks, and the three kinds without experts. dcn has matrices of
  low rank, dcn_full has full matrices. dcn_vector has vectors: x_{l+1} = x0 (w . x_l) + b + x_l.
  Source: torchrec.modules.crossnet (LowRankCrossNet, CrossNet, VectorCrossNet); Wang et al. 2017;
  src/RULES.md, rule A3
*/
#include "model/interaction_dcn.h"

#include "core/names.h"
#include "model/mlp.h"

#include <math.h>

/* --- common code --- */

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options, const TrsCrossKind *kind)
{
  int64_t n_layers, n_experts = 1;
  TrsCrossNet *net;

  PetscFunctionBegin;
  PetscCall(PetscNew(&net));
  net->kind = kind;
  net->r = 1;
  PetscCall(TrsOptionsGetInt(options, "-dcn_num_layers", &n_layers, NULL));
  if (kind->mixes) PetscCall(TrsOptionsGetInt(options, "-dcn_num_experts", &n_experts, NULL));
  if (!kind->vector) PetscCall(TrsOptionsGetInt(options, "-dcn_low_rank_dim", &net->r, NULL));
  net->n_layers = (int)n_layers;
  net->K = (int)n_experts;
  interaction->own = net;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsInteraction *interaction)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;

  return net->n_layers * net->kind->flops(net, (double)interaction->N);
}

/* Bytes of one sample's forward. The first layer reads X, and the last layer writes the output. */
static double bytes(const TrsInteraction *interaction)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const double N = (double)interaction->N;

  return TrsDTypeBytes(interaction->type) * (net->n_layers * net->kind->elements(net, N) - 2.0 * N);
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  TrsCrossNet *net = (TrsCrossNet *)interaction->own;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N;

  PetscFunctionBegin;
  net->R = net->kind->square ? N : net->K * net->r;
  net->keeps = (PetscBool)(interaction->x.type != TRS_FP32 && !net->kind->vector && !net->kind->mixes &&
                           net->n_layers > 1 && net->n_layers <= TRS_CROSS_MOST_KEPT + 1);
  PetscCall(PetscCalloc1((size_t)net->n_layers, &net->layer));
  for (int l = net->n_layers - 1; l >= 0; l--) {
    PetscCall(net->kind->declare(interaction, &net->layer[l], l));
    PetscCall(TrsParametersAdd(params, net->kind->module, l, "bias", N, 0, TRS_INIT_ZERO, 0.0F,
                               &net->layer[l].bias));
  }
  if (net->K > 1)
    PetscCall(TrsParametersAddNamed(params, "crossnet_mixture/gate/weight", net->K, N, TRS_INIT_UNIFORM,
                                    (float)(1.0 / sqrt((double)N)), &net->gate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the arrays' addresses in `memory`, and return the number of floats that they need. */
static int64_t place(const TrsInteraction *interaction, TrsCrossNet *net, int64_t B, float *memory)
{
  const TrsCrossKind *kind = net->kind;
  const TrsDType type = interaction->type, u_type = kind->vector ? TRS_FP32 : type;
  const int64_t N = interaction->N, u_columns = kind->vector ? 1 : N;
  int64_t used = 0;

  net->x0 = (TrsMatrix){.type = type, .stride = N}; /* see placed() */
  if (TrsInteractionCopiesX(interaction)) net->x0 = TrsTakeMatrix(memory, &used, B, N, type);
  for (int l = 0; l < net->n_layers; l++) {
    TrsCrossLayer *layer = &net->layer[l];

    layer->x = l ? TrsTakeMatrix(memory, &used, B, N, type) : net->x0;
    layer->u = TrsTakeMatrix(memory, &used, B, u_columns, u_type);
    layer->v = kind->backward ? TrsTakeMatrix(memory, &used, B, net->R, type) : layer->u;
  }
  if (!interaction->context->params->forward_only) {
    if (!net->keeps) net->dx0 = TrsTakeFloats(memory, &used, B * N);
    for (int l = 0; net->keeps && l + 1 < net->n_layers; l++)
      net->layer[l].g = TrsTakeMatrix(memory, &used, B, N, type);
    net->h = TrsTakeMatrix(memory, &used, B, u_columns, u_type);
    net->dv = kind->backward ? TrsTakeMatrix(memory, &used, B, net->R, type) : net->h;
  }
  if (kind->place) kind->place(interaction, B, memory, &used);
  return used;
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsCrossNet *net = (TrsCrossNet *)interaction->own;
  const int64_t n = place(interaction, net, max_batch, NULL);

  PetscFunctionBegin;
  PetscCall(interaction->context->device->alloc(n * (int64_t)sizeof(float), (void **)&net->memory));
  (void)place(interaction, net, max_batch, net->memory);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void placed(const TrsInteraction *interaction)
{
  TrsCrossNet *net = (TrsCrossNet *)interaction->own;

  if (!TrsInteractionCopiesX(interaction)) net->x0.data = net->layer[0].x.data = interaction->x.data;
}

/* A layer's V as a matrix with rows of N columns. */
static TrsMatrix rows_of_v(const TrsInteraction *interaction, const TrsCrossLayer *layer)
{
  TrsMatrix rows = TrsParametersMatrix(interaction->context->params, layer->V);

  rows.stride = interaction->N; /* w of dcn_vector is one row */
  return rows;
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const int64_t N = interaction->N;

  PetscFunctionBegin;
  if (TrsInteractionCopiesX(interaction))
    PetscCall(compute->convert_matrix(stream, n, N, N, interaction->x, net->x0));
  for (int l = 0; l < net->n_layers; l++) {
    const TrsCrossLayer *layer = &net->layer[l];
    void *next = l + 1 < net->n_layers ? net->layer[l + 1].x.data : interaction->out;

    if (!net->kind->square)
      PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                                 (TrsMatrixProduct){.m = n,
                                                    .n = net->R,
                                                    .k = N,
                                                    .a = layer->x,
                                                    .b = rows_of_v(interaction, layer),
                                                    .c = layer->v}));
    PetscCall(net->kind->forward(interaction, stream, n, layer, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The gradient of x_{l+1}, the output of layer l. It is one array for all layers, unless they are
  kept.
*/
static TrsMatrix gradient_of(const TrsInteraction *interaction, const TrsCrossNet *net, int l)
{
  return net->keeps && l + 1 < net->n_layers ? net->layer[l].g
                                             : TrsInteractionMatrix(interaction, interaction->dout);
}

/* The arrays for the backward of layer l, and its place in the backward. */
static TrsCrossBackward cross_of(const TrsInteraction *interaction, const TrsCrossNet *net, int l, int *place)
{
  const TrsCrossLayer *layer = &net->layer[l];
  TrsCrossBackward cross = TrsInteractionCross(interaction, (PetscBool)(l == 0), net->x0, layer->u.data,
                                               layer->bias, net->dx0, net->h.data);

  *place = (l == net->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);
  if (!net->keeps) return cross;
  cross.g = gradient_of(interaction, net, l).data;
  if (l > 0) {
    *place |= TRS_CROSS_KEPT;
    return cross;
  }
  cross.total = gradient_of(interaction, net, 0).data;
  for (int k = net->n_layers - 1; k > 0; k--) {
    const int i = cross.n_kept++;

    cross.kept[i].g = gradient_of(interaction, net, k).data;
    cross.kept[i].u = net->layer[k].u.data;
    cross.kept[i].bias = interaction->context->params->param[net->layer[k].bias].value;
  }
  return cross;
}

/* Compute the gradient of layer l's input, and the element-wise backward of layer l - 1. */
static PetscErrorCode descend(const TrsInteraction *interaction, TrsStream stream, int64_t n, int l)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  TrsCrossInputBackward layers = {.batch = n,
                                  .n = interaction->N,
                                  .rank = net->R,
                                  .q = net->dv,
                                  .V = rows_of_v(interaction, &net->layer[l]),
                                  .g = gradient_of(interaction, net, l),
                                  .dx = gradient_of(interaction, net, l - 1),
                                  .fused = interaction->context->fused};

  PetscFunctionBegin;
  layers.lower = cross_of(interaction, net, l - 1, &layers.place);
  PetscCall(interaction->context->compute->cross_input_backward(stream, &layers));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With g = dout, each layer computes dx0 += g * (u + b), h = g * x0, db = sum h, dv from h, dV =
  dv^T x_l and g += dv V. At the end dx = g + dx0. For dcn_vector, dx0 += g u, h = g . x0 and db =
  sum g. If the layers' gradients are kept, the first layer computes all parts of dx0. One call then
  computes g + dv V of layer l, and h and db of layer l - 1.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, R = net->R;
  const TrsMatrix dv = net->dv;

  PetscFunctionBegin;
  for (int l = net->n_layers - 1; l >= 0; l--) {
    const TrsCrossLayer *layer = &net->layer[l];
    const TrsMatrix V = rows_of_v(interaction, layer), dV = TrsFloats(params->param[layer->V].grad, N);
    const TrsMatrix g = gradient_of(interaction, net, l);

    if (l == net->n_layers - 1 || !net->keeps) {
      int place;
      const TrsCrossBackward cross = cross_of(interaction, net, l, &place);

      PetscCall((net->kind->vector ? compute->vector_cross_backward
                                   : compute->cross_backward)(stream, n, N, place, &cross));
    }
    if (net->kind->backward) PetscCall(net->kind->backward(interaction, stream, n, layer));
    PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                               (TrsMatrixProduct){.m = R, .n = N, .k = n, .a = dv, .b = layer->x, .c = dV}));
    if (l > 0 && net->keeps)
      PetscCall(descend(interaction, stream, n, l));
    else if (l > 0)
      PetscCall(TrsLayerMultiply(
          interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
          (TrsMatrixProduct){.m = n, .n = N, .k = R, .a = dv, .b = V, .beta = 1.0F, .c = g}));
    else
      PetscCall(compute->cross_input(stream, n, N, R, dv, V, g, net->dx0, interaction->dx));
    PetscCall(TrsParametersReady(params, layer->bias));
  }
  if (net->K > 1) PetscCall(TrsParametersReady(params, net->gate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  crossnet     %d layer%s of ", net->n_layers, TrsPlural(net->n_layers, "s")));
  if (net->kind->mixes) PetscCall(PetscPrintf(comm, "%d expert%s of ", net->K, TrsPlural(net->K, "s")));
  if (net->kind->vector)
    PetscCall(PetscPrintf(comm, "a vector\n"));
  else
    PetscCall(PetscPrintf(comm, "rank %d\n", (int)(net->kind->square ? interaction->N : net->r)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  TrsCrossNet *net = (TrsCrossNet *)interaction->own;

  PetscFunctionBegin;
  if (!net) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(interaction->context->device->release((void **)&net->memory));
  PetscCall(PetscFree(net->layer));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the kinds without experts --- */

static double flops_of_layer(const TrsCrossNet *net, double N)
{
  return net->kind->vector ? 5.0 * N : (net->kind->square ? 2.0 : 4.0) * N * (double)net->R;
}

/*
  A layer reads x_l twice, reads x0 and u, and writes u and x_{l+1}. dcn also writes and reads v.
*/
static double elements_of_layer(const TrsCrossNet *net, double N)
{
  return net->kind->vector ? 4.0 * N : 6.0 * N + (net->kind->square ? 0.0 : 2.0 * (double)net->R);
}

static PetscErrorCode declare_layer(const TrsInteraction *interaction, TrsCrossLayer *layer, int l)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsCrossKind *kind = net->kind;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, R = net->R;
  /* standard deviation of torch.nn.init.xavier_normal_ */
  const float std = (float)sqrt(2.0 / (double)(N + R));

  PetscFunctionBegin;
  if (kind->backward)
    PetscCall(TrsParametersAdd(params, kind->module, l, "W", N, R, TRS_INIT_NORMAL, std, &layer->U));
  PetscCall(TrsParametersAdd(params, kind->module, l, kind->V, kind->vector ? N : R, kind->vector ? 0 : N,
                             TRS_INIT_NORMAL, std, &layer->V));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* u = a b^T, where a has k columns, and the next x from it */
static PetscErrorCode cross(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                            const TrsCrossLayer *layer, TrsMatrix a, TrsMatrix b, int64_t k, void *next)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsLayerContext *context = interaction->context;
  const TrsCrossProduct product = {.product = {.trans_b = PETSC_TRUE,
                                               .m = n,
                                               .n = interaction->N,
                                               .k = k,
                                               .alpha = 1.0F,
                                               .a = a,
                                               .b = b,
                                               .c = layer->u},
                                   .x0 = net->x0.data,
                                   .bias = context->params->param[layer->bias].value,
                                   .x = layer->x.data,
                                   .y = next,
                                   .fused = context->fused};

  PetscFunctionBegin;
  PetscCall(context->compute->cross_product(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* u = W v */
static PetscErrorCode forward_w(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                const TrsCrossLayer *layer, void *next)
{
  const TrsMatrix W = TrsParametersMatrix(interaction->context->params, layer->U);

  PetscFunctionBegin;
  PetscCall(cross(interaction, stream, n, layer, layer->v, W, W.stride, next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* u = V x */
static PetscErrorCode forward_full(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                   const TrsCrossLayer *layer, void *next)
{
  PetscFunctionBegin;
  PetscCall(
      cross(interaction, stream, n, layer, layer->x, rows_of_v(interaction, layer), interaction->N, next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* u, which is v, has one number per sample. */
static PetscErrorCode forward_vector(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                     const TrsCrossLayer *layer, void *next)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;

  PetscFunctionBegin;
  PetscCall(interaction->context->compute->vector_cross_forward(
      stream, n, interaction->N, interaction->type, net->x0.data, (const float *)layer->u.data,
      interaction->context->params->param[layer->bias].value, layer->x.data, next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* dW = h^T v and dv = h W */
static PetscErrorCode backward_w(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                 const TrsCrossLayer *layer)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, R = net->R;
  const TrsMatrix W = TrsParametersMatrix(params, layer->U), dW = TrsFloats(params->param[layer->U].grad, R);

  PetscFunctionBegin;
  PetscCall(
      TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                       (TrsMatrixProduct){.m = N, .n = R, .k = n, .a = net->h, .b = layer->v, .c = dW}));
  PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
                             (TrsMatrixProduct){.m = n, .n = R, .k = N, .a = net->h, .b = W, .c = net->dv}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define PLAIN .flops = flops_of_layer, .elements = elements_of_layer, .declare = declare_layer
static const TrsCrossKind trs_cross_dcn = {
    .module = "crossnet", .V = "V", PLAIN, .forward = forward_w, .backward = backward_w};
static const TrsCrossKind trs_cross_dcn_full = {
    .module = "crossnet_full", .V = "weight", .square = PETSC_TRUE, PLAIN, .forward = forward_full};
static const TrsCrossKind trs_cross_dcn_vector = {
    .module = "crossnet_vector", .V = "weight", .vector = PETSC_TRUE, PLAIN, .forward = forward_vector};

/* Vectors may have different widths, except in dcn. */
#define CROSS_TABLE(name, of_one_width) \
  static PetscErrorCode read_##name(TrsInteraction *interaction, TrsOptions options) \
  { \
    return read(interaction, options, &trs_cross_##name); \
  } \
  const TrsInteractionOps trs_interaction_##name = {.word = #name, \
                                                    .fewest = 1, \
                                                    .equal_dims = (of_one_width), \
                                                    .typed = PETSC_TRUE, \
                                                    .read = read_##name, \
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
CROSS_TABLE(dcn_vector, PETSC_FALSE)
CROSS_TABLE(dcn_mixture, PETSC_FALSE)
