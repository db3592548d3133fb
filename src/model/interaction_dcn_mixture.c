/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dcn_mixture: a cross network whose layers mix K experts of low rank r: x_{l+1} = x0 * (sum_k g_k
  U_k relu(C_k relu(V_k x_l)) + b) + x_l with g = softmax(G x_l). All layers share the gates G. A
  single expert has no gate.
  Source: torchrec.modules.crossnet (LowRankMixtureCrossNet); Wang et al. 2021; src/RULES.md, rule
  A3
*/
#include "model/interaction_dcn.h"
#include "model/mlp.h"

#include <math.h>

static double flops(const TrsCrossNet *net, double N)
{
  const double r = (double)net->r;

  return (double)net->K * (4.0 * N * r + 2.0 * r * r + 4.0 * N);
}

/*
  Count the elements that a layer reads and writes: those of a dcn layer, those of q, and one
  activation each for v and q. With gates, the layer also reads x_l once more and reads and writes
  its experts.
*/
static double elements(const TrsCrossNet *net, double N)
{
  const double K = (double)net->K, gated = net->K > 1 ? (2.0 * K + 1.0) * N : 0.0;

  return 6.0 * N + 8.0 * K * (double)net->r + gated;
}

/* The standard deviation that torch.nn.init.xavier_normal_ uses for a tensor [K, rows, cols]. */
static float xavier(int64_t K, int64_t rows, int64_t cols)
{
  return (float)sqrt(2.0 / (double)((rows + K) * cols));
}

static PetscErrorCode declare(const TrsInteraction *interaction, TrsCrossLayer *layer, int l)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const char *module = net->kind->module;
  TrsParameters *params = interaction->context->params;
  const int64_t N = interaction->N, K = net->K, r = net->r;

  PetscFunctionBegin;
  PetscCall(TrsParametersAdd(params, module, l, "U", K * N, r, TRS_INIT_NORMAL, xavier(K, N, r), &layer->U));
  PetscCall(TrsParametersAdd(params, module, l, "C", K * r, r, TRS_INIT_NORMAL, xavier(K, r, r), &layer->C));
  PetscCall(TrsParametersAdd(params, module, l, "V", K * r, N, TRS_INIT_NORMAL, xavier(K, r, N), &layer->V));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void place(const TrsInteraction *interaction, int64_t B, float *memory, int64_t *used)
{
  TrsCrossNet *net = (TrsCrossNet *)interaction->own;
  const PetscBool backward = (PetscBool)!interaction->context->params->forward_only;
  const TrsDType type = interaction->type;

  for (int l = 0; l < net->n_layers; l++) {
    net->layer[l].q = TrsTakeMatrix(memory, used, B, net->R, type);
    net->layer[l].gate = TrsTakeFloats(memory, used, B * net->K);
  }
  if (backward) net->dq = TrsTakeMatrix(memory, used, B, net->R, type);
  if (net->K == 1) return;
  net->experts = TrsTakeMatrix(memory, used, B, net->K * interaction->N, type);
  if (backward) net->dexperts = TrsTakeMatrix(memory, used, B, net->K * interaction->N, type);
}

/* A layer's experts for n samples. */
static TrsMixture mixture_of(const TrsInteraction *interaction, const TrsCrossLayer *layer, int64_t n)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;

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

/* A parameter's rows from row `first` on. */
static TrsMatrix rows_from(const TrsInteraction *interaction, int index, int64_t first)
{
  const TrsMatrix all = TrsParametersMatrix(interaction->context->params, index);

  return TrsMatrixColumns(all, first * all.stride);
}

/*
  Compute U_k q_k for a layer's experts. A backward computes them again instead of keeping them,
  because they need much memory.
*/
static PetscErrorCode compute_experts(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                      const TrsCrossLayer *layer)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
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

/*
  Activate v, and compute q and the experts' outputs from it. Then u is the sum of these outputs,
  weighted by the gates.
*/
static PetscErrorCode mix(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                          const TrsCrossLayer *layer)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsMixture mixture = mixture_of(interaction, layer, n);
  const int64_t K = net->K, r = net->r;

  PetscFunctionBegin;
  PetscCall(compute->activate(stream, n, K * r, TRS_ACTIVATION_RELU, layer->v));
  for (int64_t k = 0; k < K; k++)
    PetscCall(TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                               (TrsMatrixProduct){.m = n,
                                                  .n = r,
                                                  .k = r,
                                                  .a = TrsMatrixColumns(layer->v, k * r),
                                                  .b = rows_from(interaction, layer->C, k * r),
                                                  .c = TrsMatrixColumns(layer->q, k * r)}));
  PetscCall(compute->activate(stream, n, K * r, TRS_ACTIVATION_RELU, layer->q));
  PetscCall(compute_experts(interaction, stream, n, layer));
  if (K == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_TRUE,
                       (TrsMatrixProduct){.m = n,
                                          .n = K,
                                          .k = interaction->N,
                                          .a = layer->x,
                                          .b = TrsParametersMatrix(interaction->context->params, net->gate),
                                          .c = TrsFloats(layer->gate, K)}));
  PetscCall(compute->mix_forward(stream, &mixture, layer->u.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                              const TrsCrossLayer *layer, void *next)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsLayerContext *context = interaction->context;

  PetscFunctionBegin;
  PetscCall(mix(interaction, stream, n, layer));
  PetscCall(context->compute->cross_forward(stream, n, interaction->N, interaction->type, net->x0.data,
                                            layer->u.data, context->params->param[layer->bias].value,
                                            layer->x.data, next));
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
  const int64_t r = ((const TrsCrossNet *)interaction->own)->r;
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
  From h, the gradient of the weighted sum of a layer's experts, compute the gradients of the
  experts and the gates. All layers share the gates, so the gates' gradients are summed over layers,
  last layer first. The gates also contribute to x_l's gradient. This part is added to g. At the
  first layer it is added to dx0, which may already include g. If X is not fp32, this part is added
  to g also at the first layer, because g then has the total of both.
*/
static PetscErrorCode backward_gates(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                     const TrsCrossLayer *layer)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const PetscBool in_g = (PetscBool)(layer > net->layer || interaction->dx.type != TRS_FP32);
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
                                                .beta = layer == net->layer + net->n_layers - 1 ? 0.0F : 1.0F,
                                                .c = TrsFloats(params->param[net->gate].grad, N)}));
  PetscCall(
      TrsLayerMultiply(interaction->context, stream, PETSC_FALSE, PETSC_FALSE,
                       (TrsMatrixProduct){.m = n,
                                          .n = N,
                                          .k = K,
                                          .a = dgate,
                                          .b = gate,
                                          .beta = 1.0F,
                                          .c = in_g ? TrsInteractionMatrix(interaction, interaction->dout)
                                                    : TrsFloats(net->dx0, N)}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute the gradients of the gates and experts, then dv, which is the gradient before v's
  activation.
*/
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                               const TrsCrossLayer *layer)
{
  const TrsCrossNet *net = (const TrsCrossNet *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsMatrix dexperts = net->K > 1 ? net->dexperts : net->h;
  const int64_t K = net->K, r = net->r;

  PetscFunctionBegin;
  if (K > 1) PetscCall(backward_gates(interaction, stream, n, layer));
  for (int64_t k = 0; k < K; k++)
    PetscCall(
        backward_expert(interaction, stream, n, k, layer->U, interaction->N, dexperts, layer->q, net->dq));
  PetscCall(compute->activate_backward(stream, n, K * r, TRS_ACTIVATION_RELU, layer->q, net->dq));
  for (int64_t k = 0; k < K; k++)
    PetscCall(backward_expert(interaction, stream, n, k, layer->C, r, net->dq, layer->v, net->dv));
  PetscCall(compute->activate_backward(stream, n, K * r, TRS_ACTIVATION_RELU, layer->v, net->dv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsCrossKind trs_cross_dcn_mixture = {.module = "crossnet_mixture",
                                            .V = "V",
                                            .mixes = PETSC_TRUE,
                                            .flops = flops,
                                            .elements = elements,
                                            .declare = declare,
                                            .place = place,
                                            .forward = forward,
                                            .backward = backward};
