/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn_mixture: a cross network whose layers mix K experts of low rank r, x_{l+1} = x0 * (sum_k g_k
  U_k relu(C_k relu(V_k x_l)) + b) + x_l with g = softmax(G x_l). All layers share the gates G. A
  single expert has no gate.
  Source: torchrec.modules.crossnet (LowRankMixtureCrossNet); Wang et al. 2021; src/RULES.md, rule
  A3
*/
#include "core/names.h"
#include "model/interaction.h"
#include "model/mlp.h"

#include <math.h>

/* Matrices have the output's type, except the gates and dx0. */
typedef struct {
  int U, C, V, bias; /* indices in the parameters: [K N, r], [K r, r], [K r, N], [N] */
  TrsMatrix x;       /* x_l [max_batch, N]; for the first layer X itself or its copy */
  TrsMatrix p, q;    /* relu(V x_l) and relu(C p) for all experts [max_batch, K r] */
  float *gate;       /* g [max_batch, K] */
  TrsMatrix u;       /* sum of the experts [max_batch, N] */
} TrsMixtureLayer;

typedef struct {
  int n_layers, K;
  int64_t r;
  int gate;               /* index of G [K, N] in the parameters, if K > 1 */
  TrsMixtureLayer *layer; /* [n_layers] */
  float *memory;          /* holds all following arrays and the layers' arrays */
  /* One layer's experts U_k q_k and their gradients [max_batch, K N]. With one expert, u and h. */
  TrsMatrix experts, dexperts;
  TrsMatrix x0, h;  /* [max_batch, N]; x0: X or its copy */
  TrsMatrix dp, dq; /* [max_batch, K r] */
  float *dx0;       /* [max_batch, N] */
} TrsMixtureNet;

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options)
{
  int64_t n_layers, n_experts;
  TrsMixtureNet *net;

  PetscFunctionBegin;
  PetscCall(PetscNew(&net));
  PetscCall(TrsOptionsGetInt(options, "-dcn_num_layers", &n_layers, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dcn_num_experts", &n_experts, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dcn_low_rank_dim", &net->r, NULL));
  net->n_layers = (int)n_layers;
  net->K = (int)n_experts;
  interaction->own = net;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsInteraction *interaction)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const double N = (double)interaction->N, r = (double)net->r;

  return net->n_layers * (double)net->K * (4.0 * N * r + 2.0 * r * r + 4.0 * N);
}

/*
  A layer moves the bytes of a dcn layer, with p and q instead of v, each with its activation. With
  gates it also moves x_l once more and its experts.
*/
static double bytes(const TrsInteraction *interaction)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const double N = (double)interaction->N, K = (double)net->K, gated = net->K > 1 ? (2.0 * K + 1.0) * N : 0.0;

  return TrsDTypeBytes(interaction->type) *
         (net->n_layers * (6.0 * N + 8.0 * K * (double)net->r + gated) - 2.0 * N);
}

/* The standard deviation of torch.nn.init.xavier_normal_ for a tensor [K, rows, cols]. */
static float xavier(int64_t K, int64_t rows, int64_t cols)
{
  return (float)sqrt(2.0 / (double)((rows + K) * cols));
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  static const char module[] = "crossnet_mixture";
  TrsMixtureNet *net = (TrsMixtureNet *)interaction->own;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, K = net->K, r = net->r;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)net->n_layers, &net->layer));
  for (int l = net->n_layers - 1; l >= 0; l--) {
    TrsMixtureLayer *layer = &net->layer[l];

    PetscCall(
        TrsParametersAdd(params, module, l, "U", K * N, r, TRS_INIT_NORMAL, xavier(K, N, r), &layer->U));
    PetscCall(
        TrsParametersAdd(params, module, l, "C", K * r, r, TRS_INIT_NORMAL, xavier(K, r, r), &layer->C));
    PetscCall(
        TrsParametersAdd(params, module, l, "V", K * r, N, TRS_INIT_NORMAL, xavier(K, r, N), &layer->V));
    PetscCall(TrsParametersAdd(params, module, l, "bias", N, 0, TRS_INIT_ZERO, 0.0F, &layer->bias));
  }
  if (K > 1)
    PetscCall(TrsParametersAddNamed(params, "crossnet_mixture/gate/weight", K, N, TRS_INIT_UNIFORM,
                                    (float)(1.0 / sqrt((double)N)), &net->gate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the arrays' places in memory, and return the number of floats they take. */
static int64_t place(const TrsInteraction *interaction, TrsMixtureNet *net, int64_t B, float *memory)
{
  const int64_t N = interaction->N, K = net->K, r = net->r;
  const PetscBool backward = (PetscBool)!interaction->context->params->forward_only;
  const TrsDType type = interaction->type;
  int64_t used = 0;

  net->x0 = (TrsMatrix){.type = interaction->type, .stride = N}; /* see placed() */
  if (TrsInteractionCopiesX(interaction)) net->x0 = TrsTakeMatrix(memory, &used, B, N, type);
  for (int l = 0; l < net->n_layers; l++) {
    TrsMixtureLayer *layer = &net->layer[l];

    layer->x = l ? TrsTakeMatrix(memory, &used, B, N, type) : net->x0;
    layer->p = TrsTakeMatrix(memory, &used, B, K * r, type);
    layer->q = TrsTakeMatrix(memory, &used, B, K * r, type);
    layer->gate = TrsTakeFloats(memory, &used, B * K);
    layer->u = TrsTakeMatrix(memory, &used, B, N, type);
  }
  if (K > 1) net->experts = TrsTakeMatrix(memory, &used, B, K * N, type);
  if (!backward) return used;
  if (K > 1) net->dexperts = TrsTakeMatrix(memory, &used, B, K * N, type);
  net->dx0 = TrsTakeFloats(memory, &used, B * N);
  net->h = TrsTakeMatrix(memory, &used, B, N, type);
  net->dp = TrsTakeMatrix(memory, &used, B, K * r, type);
  net->dq = TrsTakeMatrix(memory, &used, B, K * r, type);
  return used;
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsMixtureNet *net = (TrsMixtureNet *)interaction->own;
  const int64_t n = place(interaction, net, max_batch, NULL);

  PetscFunctionBegin;
  PetscCall(interaction->context->device->alloc(n * (int64_t)sizeof(float), (void **)&net->memory));
  (void)place(interaction, net, max_batch, net->memory);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void placed(const TrsInteraction *interaction)
{
  TrsMixtureNet *net = (TrsMixtureNet *)interaction->own;

  if (!TrsInteractionCopiesX(interaction)) net->x0.data = net->layer[0].x.data = interaction->x.data;
}

/* A layer's experts for n samples. */
static TrsMixture mixture_of(const TrsInteraction *interaction, const TrsMixtureLayer *layer, int64_t n)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;

  return (TrsMixture){.batch = n,
                      .width = interaction->N,
                      .stride = net->K * interaction->N,
                      .n = net->K,
                      .begin = {0, net->K},
                      .end = {net->K, net->K},
                      .type = interaction->type,
                      .experts = net->experts.data,
                      .dexperts = net->dexperts.data,
                      .gate = layer->gate};
}

/* A parameter without its first rows. */
static TrsMatrix rows_from(const TrsInteraction *interaction, int index, int64_t first)
{
  const TrsMatrix all = TrsParametersMatrix(interaction->context->params, index);

  return TrsMatrixColumns(all, first * all.stride);
}

/*
  Compute U_k q_k for a layer's experts. A backward computes them again, because they take much
  memory.
*/
static PetscErrorCode compute_experts(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                      const TrsMixtureLayer *layer)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const int64_t N = interaction->N, K = net->K, r = net->r;

  PetscFunctionBegin;
  for (int64_t k = 0; k < K; k++)
    PetscCall(
        TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                         (TrsMatrixProduct){.m = n,
                                            .n = N,
                                            .k = r,
                                            .a = TrsMatrixColumns(layer->q, k * r),
                                            .b = rows_from(interaction, layer->U, k * N),
                                            .c = TrsMatrixColumns(K > 1 ? net->experts : layer->u, k * N)}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, K = net->K, r = net->r;

  PetscFunctionBegin;
  if (TrsInteractionCopiesX(interaction))
    PetscCall(compute->convert_matrix(stream, n, N, N, interaction->x, net->x0));
  for (int l = 0; l < net->n_layers; l++) {
    const TrsMixtureLayer *layer = &net->layer[l];
    const TrsMixture mixture = mixture_of(interaction, layer, n);
    const TrsMatrix V = TrsParametersMatrix(params, layer->V);
    void *next = l + 1 < net->n_layers ? net->layer[l + 1].x.data : interaction->out;

    PetscCall(TrsLayerMultiply(
        interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
        (TrsMatrixProduct){.m = n, .n = K * r, .k = N, .a = layer->x, .b = V, .c = layer->p}));
    PetscCall(compute->activate(stream, n, K * r, TRS_ACTIVATION_RELU, layer->p));
    for (int64_t k = 0; k < K; k++)
      PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                                 (TrsMatrixProduct){.m = n,
                                                    .n = r,
                                                    .k = r,
                                                    .a = TrsMatrixColumns(layer->p, k * r),
                                                    .b = rows_from(interaction, layer->C, k * r),
                                                    .c = TrsMatrixColumns(layer->q, k * r)}));
    PetscCall(compute->activate(stream, n, K * r, TRS_ACTIVATION_RELU, layer->q));
    PetscCall(compute_experts(interaction, stream, n, layer));
    if (K > 1) {
      PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                                 (TrsMatrixProduct){.m = n,
                                                    .n = K,
                                                    .k = N,
                                                    .a = layer->x,
                                                    .b = TrsParametersMatrix(params, net->gate),
                                                    .c = TrsFloats(layer->gate, K)}));
      PetscCall(compute->mix_forward(stream, &mixture, layer->u.data));
    }
    PetscCall(compute->cross_forward(stream, n, N, interaction->type, net->x0.data, layer->u.data,
                                     params->param[layer->bias].value, layer->x.data, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The backward of y = x W^T in expert k: dW = dy^T x and dx = dy W, where W [rows, r] belongs to
  parameter `index`.
*/
static PetscErrorCode backward_expert(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                      int64_t k, int index, int64_t rows, TrsMatrix dy, TrsMatrix x,
                                      TrsMatrix dx)
{
  const int64_t r = ((const TrsMixtureNet *)interaction->own)->r;
  float *grad = interaction->context->params->param[index].grad + k * rows * r;

  PetscFunctionBegin;
  dy = TrsMatrixColumns(dy, k * rows);
  PetscCall(TrsLayerMultiply(
      interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
      (TrsMatrixProduct){
          .m = rows, .n = r, .k = n, .a = dy, .b = TrsMatrixColumns(x, k * r), .c = TrsFloats(grad, r)}));
  PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
                             (TrsMatrixProduct){.m = n,
                                                .n = r,
                                                .k = rows,
                                                .a = dy,
                                                .b = rows_from(interaction, index, k * rows),
                                                .c = TrsMatrixColumns(dx, k * r)}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  From the gradients of a layer's experts compute the gradients of U and C, and of V x_l in net->dp.
*/
static PetscErrorCode backward_experts(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                       const TrsMixtureLayer *layer)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsMatrix dexperts = net->K > 1 ? net->dexperts : net->h;
  const int64_t K = net->K, r = net->r;

  PetscFunctionBegin;
  for (int64_t k = 0; k < K; k++)
    PetscCall(
        backward_expert(interaction, stream, n, k, layer->U, interaction->N, dexperts, layer->q, net->dq));
  PetscCall(compute->activate_backward(stream, n, K * r, TRS_ACTIVATION_RELU, layer->q, net->dq));
  for (int64_t k = 0; k < K; k++)
    PetscCall(backward_expert(interaction, stream, n, k, layer->C, r, net->dq, layer->p, net->dp));
  PetscCall(compute->activate_backward(stream, n, K * r, TRS_ACTIVATION_RELU, layer->p, net->dp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  From h, the gradient of the sum of a layer's experts, compute the gradients of the experts and the
  gates. The gates' share of x_l's gradient is added to `to`. The gates' gradients are summed over
  layers, last layer first.
*/
static PetscErrorCode backward_gates(const TrsInteraction *interaction, TrsStream stream, int64_t n, int l,
                                     TrsMatrix to)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsMixtureLayer *layer = &net->layer[l];
  const TrsParameters *params = interaction->context->params;
  const TrsMixture mixture = mixture_of(interaction, layer, n);
  const int64_t N = interaction->N, K = net->K;
  const TrsMatrix dgate = TrsFloats(layer->gate, K), gate = TrsParametersMatrix(params, net->gate);

  PetscFunctionBegin;
  PetscCall(compute_experts(interaction, stream, n, layer));
  PetscCall(interaction->context->device->zero(net->dexperts.data,
                                               n * K * N * TrsDTypeBytes(interaction->type), stream));
  PetscCall(interaction->context->compute->mix_backward(stream, &mixture, net->h.data));
  PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                             (TrsMatrixProduct){.m = K,
                                                .n = N,
                                                .k = n,
                                                .a = dgate,
                                                .b = layer->x,
                                                .beta = l == net->n_layers - 1 ? 0.0F : 1.0F,
                                                .c = TrsFloats(params->param[net->gate].grad, N)}));
  PetscCall(TrsLayerMultiply(
      interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
      (TrsMatrixProduct){.m = n, .n = N, .k = K, .a = dgate, .b = gate, .beta = 1.0F, .c = to}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With g = dout: dx0 += g * (u + b); h = g * x0; db = sum h; experts and gates get h; dV = dp^T x_l;
  g += dp V and the gates' share; at the end dx = g + dx0. At the first layer the gates' share is
  added to dx0, which may already include g, or to the total of both in g.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, Kr = net->K * net->r;
  const TrsMatrix g = TrsInteractionMatrix(interaction, interaction->dout);

  PetscFunctionBegin;
  for (int l = net->n_layers - 1; l >= 0; l--) {
    const TrsMixtureLayer *layer = &net->layer[l];
    const TrsMatrix V = TrsParametersMatrix(params, layer->V),
                    dV = TrsFloats(params->param[layer->V].grad, N);
    const int place = (l == net->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);
    const PetscBool in_g = (PetscBool)(l > 0 || interaction->dx.type != TRS_FP32);
    const TrsCrossBackward backward = TrsInteractionCross(interaction, (PetscBool)(l == 0), net->x0,
                                                          layer->u.data, layer->bias, net->dx0, net->h.data);

    PetscCall(compute->cross_backward(stream, n, N, place, &backward));
    if (net->K > 1) PetscCall(backward_gates(interaction, stream, n, l, in_g ? g : TrsFloats(net->dx0, N)));
    PetscCall(backward_experts(interaction, stream, n, layer));
    PetscCall(
        TrsLayerMultiply(interaction->context, stream, PETSC_TRUE, PETSC_FALSE,
                         (TrsMatrixProduct){.m = Kr, .n = N, .k = n, .a = net->dp, .b = layer->x, .c = dV}));
    if (l > 0)
      PetscCall(TrsLayerMultiply(
          interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
          (TrsMatrixProduct){.m = n, .n = N, .k = Kr, .a = net->dp, .b = V, .beta = 1.0F, .c = g}));
    else
      PetscCall(compute->cross_input(stream, n, N, Kr, net->dp, V, g, net->dx0, interaction->dx));
    PetscCall(TrsParametersReady(params, layer->bias));
  }
  if (net->K > 1) PetscCall(TrsParametersReady(params, net->gate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  crossnet     %d layer%s of %d expert%s of rank %d\n", net->n_layers,
                        TrsPlural(net->n_layers, "s"), net->K, TrsPlural(net->K, "s"), (int)net->r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  TrsMixtureNet *net = (TrsMixtureNet *)interaction->own;

  PetscFunctionBegin;
  if (!net) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(interaction->context->device->release((void **)&net->memory));
  PetscCall(PetscFree(net->layer));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Vectors may have different widths. */
const TrsInteractionOps trs_interaction_dcn_mixture = {.word = "dcn_mixture",
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
