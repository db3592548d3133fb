/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn_mixture: a cross network whose layers mix K experts of low rank r,
  x_{l+1} = x0 * (sum_k g_k U_k relu(C_k relu(V_k x_l)) + b) + x_l with g = softmax(G x_l). All
  layers share the gates G. One expert has no gate.
  Source: torchrec.modules.crossnet (LowRankMixtureCrossNet); Wang et al. 2021; src/RULES.md, rule
  A3
*/
#include "model/interaction.h"
#include "model/mlp.h"

#include <math.h>

typedef struct {
  int U, C, V, bias; /* indices in the parameters: [K N, r], [K r, r], [K r, N], [N] */
  float *x;          /* x_l [max_batch, N]; X itself for the first */
  float *p, *q;      /* relu(V x_l) and relu(C p) of all experts [max_batch, K r] */
  float *gate;       /* g [max_batch, K] */
  float *u;          /* the sum of the experts [max_batch, N] */
} TrsMixtureLayer;

typedef struct {
  int n_layers, K;
  int64_t r;
  int gate;               /* index of G [K, N] in the parameters, if K > 1 */
  TrsMixtureLayer *layer; /* [n_layers] */
  float *memory;          /* all of the following arrays and those of the layers */
  /* One layer's experts U_k q_k and their gradients [max_batch, K N]. One expert is u, with h. */
  float *experts, *dexperts;
  float *dx0, *h; /* [max_batch, N] */
  float *dp, *dq; /* [max_batch, K r] */
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

/* Set where the arrays lie in memory, and return how many floats they take. */
static int64_t place(const TrsInteraction *interaction, TrsMixtureNet *net, int64_t B, float *memory)
{
  const int64_t N = interaction->N, K = net->K, r = net->r;
  const PetscBool backward = (PetscBool)!interaction->context->params->forward_only;
  int64_t used = 0;

  for (int l = 0; l < net->n_layers; l++) {
    TrsMixtureLayer *layer = &net->layer[l];

    if (l > 0) layer->x = TrsTakeFloats(memory, &used, B * N); /* layer 0's: placed() */
    layer->p = TrsTakeFloats(memory, &used, B * K * r);
    layer->q = TrsTakeFloats(memory, &used, B * K * r);
    layer->gate = TrsTakeFloats(memory, &used, B * K);
    layer->u = TrsTakeFloats(memory, &used, B * N);
  }
  if (K > 1) net->experts = TrsTakeFloats(memory, &used, B * K * N);
  if (!backward) return used;
  if (K > 1) net->dexperts = TrsTakeFloats(memory, &used, B * K * N);
  net->dx0 = TrsTakeFloats(memory, &used, B * N);
  net->h = TrsTakeFloats(memory, &used, B * N);
  net->dp = TrsTakeFloats(memory, &used, B * K * r);
  net->dq = TrsTakeFloats(memory, &used, B * K * r);
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
  ((TrsMixtureNet *)interaction->own)->layer[0].x = interaction->x;
}

/* The experts of a layer, of n samples. */
static TrsMixture mixture_of(const TrsInteraction *interaction, const TrsMixtureLayer *layer, int64_t n)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;

  return (TrsMixture){.batch = n,
                      .width = interaction->N,
                      .stride = net->K * interaction->N,
                      .n = net->K,
                      .begin = {0, net->K},
                      .end = {net->K, net->K},
                      .experts = net->experts,
                      .dexperts = net->dexperts,
                      .gate = layer->gate};
}

/* Compute U_k q_k of a layer's experts. A backward does this again: they take much memory. */
static PetscErrorCode compute_experts(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                      const TrsMixtureLayer *layer)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const float *U = interaction->context->params->param[layer->U].value;
  const int64_t N = interaction->N, K = net->K, r = net->r;
  float *experts = K > 1 ? net->experts : layer->u;

  PetscFunctionBegin;
  for (int64_t k = 0; k < K; k++)
    PetscCall(interaction->context->compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, N, r, 1.0F,
                                                  layer->q + k * r, K * r, U + k * N * r, r, 0.0F,
                                                  experts + k * N, K * N));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *param = interaction->context->params->param;
  const int64_t N = interaction->N, K = net->K, r = net->r;

  PetscFunctionBegin;
  for (int l = 0; l < net->n_layers; l++) {
    const TrsMixtureLayer *layer = &net->layer[l];
    const TrsMixture mixture = mixture_of(interaction, layer, n);
    float *next = l + 1 < net->n_layers ? net->layer[l + 1].x : interaction->out;

    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, K * r, N, 1.0F, layer->x, N,
                            param[layer->V].value, N, 0.0F, layer->p, K * r));
    PetscCall(compute->activate(stream, n, K * r, TRS_ACTIVATION_RELU, layer->p, K * r));
    for (int64_t k = 0; k < K; k++)
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, r, r, 1.0F, layer->p + k * r, K * r,
                              param[layer->C].value + k * r * r, r, 0.0F, layer->q + k * r, K * r));
    PetscCall(compute->activate(stream, n, K * r, TRS_ACTIVATION_RELU, layer->q, K * r));
    PetscCall(compute_experts(interaction, stream, n, layer));
    if (K > 1) {
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_TRUE, n, K, N, 1.0F, layer->x, N,
                              param[net->gate].value, N, 0.0F, layer->gate, K));
      PetscCall(compute->mix_forward(stream, &mixture, layer->u));
    }
    PetscCall(compute->cross_forward(stream, n, N, TRS_FP32, interaction->x, layer->u,
                                     param[layer->bias].value, layer->x, next));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* From the gradients of a layer's experts to those of U and C, and of V x_l in net->dp. */
static PetscErrorCode backward_experts(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                       const TrsMixtureLayer *layer)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *U = &interaction->context->params->param[layer->U],
                          *C = &interaction->context->params->param[layer->C];
  const int64_t N = interaction->N, K = net->K, r = net->r;
  const float *dexperts = K > 1 ? net->dexperts : net->h;

  PetscFunctionBegin;
  for (int64_t k = 0; k < K; k++) {
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, N, r, n, 1.0F, dexperts + k * N, K * N,
                            layer->q + k * r, K * r, 0.0F, U->grad + k * N * r, r));
    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, r, N, 1.0F, dexperts + k * N, K * N,
                            U->value + k * N * r, r, 0.0F, net->dq + k * r, K * r));
  }
  PetscCall(
      compute->activate_backward(stream, n, K * r, TRS_ACTIVATION_RELU, layer->q, K * r, net->dq, K * r));
  for (int64_t k = 0; k < K; k++) {
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, r, r, n, 1.0F, net->dq + k * r, K * r,
                            layer->p + k * r, K * r, 0.0F, C->grad + k * r * r, r));
    PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, r, r, 1.0F, net->dq + k * r, K * r,
                            C->value + k * r * r, r, 0.0F, net->dp + k * r, K * r));
  }
  PetscCall(
      compute->activate_backward(stream, n, K * r, TRS_ACTIVATION_RELU, layer->p, K * r, net->dp, K * r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Take h, the gradient of the sum of a layer's experts, to the experts and to the gates. What the
  gates add to the gradient of x_l goes to `to`. Gates are summed over layers, the last one first.
*/
static PetscErrorCode backward_gates(const TrsInteraction *interaction, TrsStream stream, int64_t n, int l,
                                     float *to)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsMixtureLayer *layer = &net->layer[l];
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsDenseParameter *gate = &interaction->context->params->param[net->gate];
  const TrsMixture mixture = mixture_of(interaction, layer, n);
  const int64_t N = interaction->N, K = net->K;

  PetscFunctionBegin;
  PetscCall(compute_experts(interaction, stream, n, layer));
  PetscCall(interaction->context->device->zero(net->dexperts, n * K * N * (int64_t)sizeof(float), stream));
  PetscCall(compute->mix_backward(stream, &mixture, net->h));
  PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, K, N, n, 1.0F, layer->gate, K, layer->x, N,
                          l == net->n_layers - 1 ? 0.0F : 1.0F, gate->grad, N));
  PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, N, K, 1.0F, layer->gate, K, gate->value, N,
                          1.0F, to, N));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With g = dout: dx0 += g * (u + b); h = g * x0; db = sum h; experts and gates take h; dV = dp^T
  x_l; g += dp V and what the gates add; in the end dx = g + dx0. At the first layer the gates add
  to dx0, which may have g already.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, Kr = net->K * net->r;
  float *g = interaction->dout;

  PetscFunctionBegin;
  for (int l = net->n_layers - 1; l >= 0; l--) {
    const TrsMixtureLayer *layer = &net->layer[l];
    const TrsDenseParameter *V = &params->param[layer->V], *bias = &params->param[layer->bias];
    const int place = (l == net->n_layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);
    const TrsCrossBackward backward = {interaction->x, layer->u, bias->value, g,
                                       net->dx0,       net->h,   bias->grad,  TRS_FP32};

    PetscCall(compute->cross_backward(stream, n, N, place, &backward));
    if (net->K > 1) PetscCall(backward_gates(interaction, stream, n, l, l ? g : net->dx0));
    PetscCall(backward_experts(interaction, stream, n, layer));
    PetscCall(compute->gemm(stream, PETSC_TRUE, PETSC_FALSE, Kr, N, n, 1.0F, net->dp, Kr, layer->x, N, 0.0F,
                            V->grad, N));
    if (l > 0)
      PetscCall(compute->gemm(stream, PETSC_FALSE, PETSC_FALSE, n, N, Kr, 1.0F, net->dp, Kr, V->value, N,
                              1.0F, g, N));
    else
      PetscCall(compute->cross_input(stream, n, N, Kr, TrsFloats(net->dp, Kr),
                                     TrsParametersMatrix(params, layer->V), TrsFloats(g, N), net->dx0,
                                     interaction->dx));
    PetscCall(TrsParametersReady(params, layer->bias));
  }
  if (net->K > 1) PetscCall(TrsParametersReady(params, net->gate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const TrsMixtureNet *net = (const TrsMixtureNet *)interaction->own;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "  crossnet     %d layers of %d experts of rank %d\n", net->n_layers, net->K,
                        (int)net->r));
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

/* Vectors may have any widths. */
const TrsInteractionOps trs_interaction_dcn_mixture = {.word = "dcn_mixture",
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
