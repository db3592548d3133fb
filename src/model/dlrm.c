/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/dlrm.h"

#include "core/buffer.h"
#include "core/events.h"
#include "core/names.h"
#include "model/heads.h"
#include "model/interaction.h"
#include "model/mlp.h"
#include "model/sequence_layer.h"
#include "model/two_tower.h"

#include <inttypes.h>
#include <string.h>

struct TrsDlrmImpl {
  const TrsDeviceOps *device;
  TrsOptions options; /* borrowed; messages name the source of a value */
  /*
    The stacks as the options give them. Without -dense_arch, the dense arch's sizes are set as soon
    as the embeddings' width is known.
  */
  TrsMlpSpec dense_arch, over_arch;
  int64_t *dense_sizes, *over_sizes; /* memory that holds the stacks' sizes */
  int num_dense, n_embeddings;
  int64_t *columns; /* [n_embeddings] each embedding's first column in X */
  /* [n_embeddings] the tower of each embedding; NULL: all embeddings belong to the query */
  int *side;
  PetscBool pair_loss;
  PetscBool typed_rows; /* X may have the operands' type */
  PetscBool anywhere;   /* embeddings may lie outside of X */
  int64_t max_batch;
  TrsParameters params;
  TrsLayerContext context; /* common to all layers */
  TrsMlp dense;            /* only if num_dense > 0 */
  TrsHeads heads;          /* the layers above the interaction, and the tasks' losses */
  TrsInteraction interaction;
  TrsSequenceLayers sequences;
  int n_positions; /* features with position weights; these weights are the last parameters */
  struct {
    char *name;
    int64_t length;
    int param;
  } * position; /* [n_positions] */
  /*
    The outputs of the heads and their gradients. In a backward of dot or dcn, also X's gradient.
  */
  float *over_inner;
  /* The size of X's gradient at the front of over_inner, and the size of over_inner, in bytes. */
  int64_t kept_bytes, over_bytes;
  /* The outputs of the dense arch, then the interaction's output. A backward overwrites them
     with gradients. */
  float *dense_inner;
};

static const TrsOptionSpec specs[] = {
    {"-num_dense", TRS_OPTION_INT, NULL, "[0,1000000]", NULL, "features",
     "dense features of a sample, for a dry run; default: the dataset's, else 0"},
    {"-dense_arch", TRS_OPTION_INTS, NULL, "[1,1000000]", NULL, NULL,
     "output sizes of the dense arch's layers, each ending in its activation; default: 512,256 and the "
     "embeddings' "
     "dim. Ignored without dense features"},
    {"-over_arch", TRS_OPTION_INTS, "512,512,256,1", "[1,1000000]", NULL, NULL,
     "output sizes of the over arch's layers, at least 2; an activation after each except the last, which "
     "has size 1"},
    TRS_MLP_OPTIONS("-dense_arch", "the dense arch"),
    TRS_MLP_OPTIONS("-over_arch", "the over arch except the last"),
    {"-interaction", TRS_OPTION_ENUM, "dot", NULL, TRS_CHOICES(TRS_INTERACTIONS), NULL,
     "how the dense vector and the embeddings are combined. dot: products of pairs. dcn: a cross network "
     "of low rank. dcn_full: a cross network of full matrices. dcn_vector: a cross network of vectors. "
     "dcn_mixture: a cross network of mixed experts of low rank. cat: side by side. none: only the "
     "embeddings, side by side. fm: a factorization machine. deepfm: a factorization machine with deep "
     "layers. projection: products of two projections. two_tower: retrieval, where the product of the "
     "towers' outputs is the score, without -over_arch and -tasks"},
    {"-dense_precision", TRS_OPTION_ENUM, "fp32", NULL, "fp32,tf32,bf16", NULL,
     "format to which the operands of the dense layers' products are rounded. Weights and sums stay fp32. "
     "tf32: -device cuda only. bf16: faster on GPUs, and on CPUs with AMX or AMD's AVX512_BF16. With bf16 "
     "and -device cuda, the layers store what products read in 2 bytes: activations, pooled embeddings "
     "and their gradients are rounded, too"},
    {"-dense_product_algorithms", TRS_OPTION_INT, "1", "[1,8]", NULL, NULL,
     "with -device cuda: when a product's shape occurs for the second time, time up to this many "
     "algorithms of cuBLASLt and keep the fastest. In bf16, kernels that join a cross layer's product and "
     "the element-wise part after it are timed, too. -log_view prints the choices. With 1, cuBLASLt's first "
     "algorithm is used. Above 1, bits may differ from run to run; not with -reproducible"},
    {"-dense_product_table", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "with -device cuda: use the algorithms of cuBLASLt that this file lists for the products' shapes. "
     "tools/product_table.py makes it from the times of -log_view_products. Bits are then the same in "
     "every run; not with -reproducible"},
#define INTERACTION_NUMBER(word, type, fallback, range, help) \
  {"-" #word, TRS_OPTION_##type, fallback, range, NULL, NULL, help},
    TRS_INTERACTION_NUMBERS(INTERACTION_NUMBER)};
#define INTERACTION_OPTION(word, ...) ",-" #word
const TrsOptionGroup trs_model_options = TRS_OPTION_GROUP_OF_MODEL(
    "Model", NULL, specs,
    "-dense_arch,-over_arch,-interaction" TRS_MLP_MODEL_OPTIONS("-dense_arch")
        TRS_MLP_MODEL_OPTIONS("-over_arch") TRS_INTERACTION_NUMBERS(INTERACTION_OPTION),
    "-num_dense");

PetscErrorCode TrsDlrmCreate(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsDlrm *dlrm)
{
  TrsDlrm d;

  PetscFunctionBegin;
  PetscCall(PetscNew(&d));
  d->device = device;
  d->context = (TrsLayerContext){
      .device = device, .compute = compute, .params = &d->params, .fused = PETSC_TRUE};
  d->interaction.context = &d->context;
  *dlrm = d;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmSetForwardOnly(TrsDlrm dlrm)
{
  PetscFunctionBegin;
  dlrm->params.forward_only = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmSetSides(TrsDlrm dlrm, int n_embeddings, const int *side)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n_embeddings, &dlrm->side));
  PetscCall(PetscArraycpy(dlrm->side, side, (size_t)n_embeddings));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsDlrmSetOwnSums(TrsDlrm dlrm)
{
  dlrm->context.fused = PETSC_FALSE;
}

void TrsDlrmSetTypedRows(TrsDlrm dlrm)
{
  dlrm->typed_rows = PETSC_TRUE;
}

void TrsDlrmSetRowsElsewhere(TrsDlrm dlrm)
{
  dlrm->interaction.elsewhere = PETSC_TRUE;
}

void TrsDlrmSetVectorsAnywhere(TrsDlrm dlrm)
{
  dlrm->anywhere = PETSC_TRUE;
}

PetscBool TrsDlrmTakesVectors(TrsDlrm dlrm)
{
  return (PetscBool)(dlrm->interaction.x_at != NULL);
}

PetscBool TrsDlrmMayTakeVectors(TrsDlrm dlrm)
{
  return (PetscBool)(dlrm->n_embeddings && !dlrm->sequences.n &&
                     TrsInteractionMayScatter(&dlrm->interaction));
}

PetscErrorCode TrsDlrmMakeRows(TrsDlrm dlrm, int64_t width)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_ACTIVATIONS);

  PetscFunctionBegin;
  PetscCall(TrsInteractionMakeX(&dlrm->interaction, dlrm->max_batch, width));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsDlrmPlaceVectors(TrsDlrm dlrm, const TrsVectorPlace *place)
{
  const int first = dlrm->num_dense > 0;

  for (int v = 0; v < dlrm->n_embeddings; v++)
    dlrm->interaction.x_at[first + v] = dlrm->interaction.dx_at[first + v] = place[v];
}

void TrsDlrmSetPairLoss(TrsDlrm dlrm)
{
  dlrm->pair_loss = PETSC_TRUE;
}

static PetscErrorCode copy_sizes(int n, const int64_t *sizes, TrsMlpSpec *spec, int64_t **copy)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n, copy));
  PetscCall(PetscArraycpy(*copy, sizes, (size_t)n));
  spec->n = n;
  spec->sizes = *copy;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Set up an interaction that scores pairs. A pair has one score, so the only layer above the towers
  is the one that computes it.
*/
static PetscErrorCode read_pairs(TrsDlrm dlrm, TrsOptions options)
{
  static const int64_t score = 1;
  const char *const *tasks = NULL;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, "-tasks", &n, &tasks, NULL));
  if (n) PetscCall(TrsOptionError(options, "-tasks", "-interaction two_tower has one task, without a name"));
  dlrm->over_arch = (TrsMlpSpec){.n = 1, .sizes = &score, .plain_last = PETSC_TRUE, .pair = PETSC_TRUE};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmSetFromOptions(TrsDlrm dlrm, TrsOptions options)
{
  const int64_t *sizes = NULL;
  PetscBool set;
  int n = 0, kind;

  PetscFunctionBegin;
  dlrm->options = options;
  PetscCall(TrsOptionsGetInts(options, "-dense_arch", &n, &sizes, &set));
  if (set) PetscCall(copy_sizes(n, sizes, &dlrm->dense_arch, &dlrm->dense_sizes));
  PetscCall(TrsOptionsGetInts(options, "-over_arch", &n, &sizes, NULL));
  if (n < 2) PetscCall(TrsOptionError(options, "-over_arch", "%d layer given, at least 2 are needed", n));
  if (sizes[n - 1] != 1) {
    PetscCall(TrsOptionError(options, "-over_arch",
                             "the last layer has size %" PRId64 ", it must be 1: the logit", sizes[n - 1]));
  }
  PetscCall(copy_sizes(n, sizes, &dlrm->over_arch, &dlrm->over_sizes));
  dlrm->over_arch.plain_last = PETSC_TRUE;
  PetscCall(TrsMlpSpecRead(options, "-dense_arch", &dlrm->dense_arch));
  PetscCall(TrsMlpSpecRead(options, "-over_arch", &dlrm->over_arch));
  PetscCall(TrsOptionsGetEnum(options, "-interaction", &kind, NULL));
  PetscCall(TrsInteractionFind((TrsInteractionKind)kind, &dlrm->interaction.ops));
  if (dlrm->interaction.ops->pairs) PetscCall(read_pairs(dlrm, options));
  PetscCall(TrsHeadsRead(&dlrm->heads, options, &dlrm->over_arch));
  if (dlrm->interaction.ops->read) PetscCall(dlrm->interaction.ops->read(&dlrm->interaction, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmAddPositionWeights(TrsDlrm dlrm, const char *feature, int64_t length)
{
  static const char prefix[] = "position_weights/", suffix[] = "/weight";
  const size_t size = strlen(feature) + sizeof(prefix) + sizeof(suffix);
  const int n = dlrm->n_positions;

  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(n + 1) * sizeof(*dlrm->position), &dlrm->position));
  PetscCall(PetscMalloc1(size, &dlrm->position[n].name));
  PetscCall(PetscSNPrintf(dlrm->position[n].name, size, "%s%s%s", prefix, feature, suffix));
  dlrm->position[n].length = length;
  dlrm->n_positions++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmPositionWeights(TrsDlrm dlrm, int i, const float **weight, float **grad)
{
  const TrsDenseParameter *param = &dlrm->params.param[dlrm->position[i].param];

  PetscFunctionBegin;
  *weight = param->value;
  *grad = param->grad;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmAddSequence(TrsDlrm dlrm, const TrsTableConfig *table, int k, int vector, int target)
{
  PetscFunctionBegin;
  PetscCall(TrsSequenceLayersAdd(&dlrm->sequences, &dlrm->context, table, k, vector, target));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsDlrmSetBags(TrsDlrm dlrm, const TrsBagRows *bags)
{
  dlrm->sequences.bags = bags;
}

PetscErrorCode TrsDlrmPositionGradientsReady(TrsDlrm dlrm)
{
  PetscFunctionBegin;
  if (dlrm->n_positions)
    PetscCall(TrsParametersReady(&dlrm->params, dlrm->position[dlrm->n_positions - 1].param));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the dense arch's sizes, and check the rules on widths (src/RULES.md, rules A2 and A4). */
static PetscErrorCode check_widths(TrsDlrm dlrm, const int *dims)
{
  const TrsInteractionOps *ops = dlrm->interaction.ops;
  const int n = dlrm->n_embeddings;

  PetscFunctionBegin;
  if (!dlrm->num_dense && !n && !ops->sparse)
    PetscCall(TrsOptionError(dlrm->options, "-num_dense", "a model needs dense features or embeddings"));
  for (int f = 1; ops->equal_dims && f < n; f++) {
    if (dims[f] != dims[0]) {
      PetscCall(TrsOptionError(dlrm->options, "-interaction",
                               "%s needs equal embedding dims, found %d and %d; use cat", ops->word, dims[0],
                               dims[f]));
    }
  }
  if (ops->equal_dims && dlrm->num_dense && n && dlrm->dense_arch.sizes[dlrm->dense_arch.n - 1] != dims[0]) {
    PetscCall(TrsOptionError(dlrm->options, "-dense_arch",
                             "%s needs its last size, %" PRId64 ", to be the embeddings' dim, %d", ops->word,
                             dlrm->dense_arch.sizes[dlrm->dense_arch.n - 1], dims[0]));
  }
  if (!dlrm->num_dense && n < ops->fewest)
    PetscCall(TrsOptionError(dlrm->options, "-interaction", "%s needs %d embeddings, found %d; use cat",
                             ops->word, ops->fewest, n));
  if (ops->check) PetscCall(ops->check(&dlrm->interaction));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Allocate memory for max_batch samples. Arrays that are not needed at the same time share memory.
*/
static PetscErrorCode allocate(TrsDlrm dlrm, int64_t max_batch)
{
  const TrsDeviceOps *device = dlrm->device;
  const PetscBool backward = (PetscBool)!dlrm->params.forward_only;
  const PetscBool inner_out = (PetscBool)!dlrm->interaction.ops->in_place;
  TrsInteraction *interaction = &dlrm->interaction;
  const TrsMlpRoom over = TrsHeadsPlace(&dlrm->heads, max_batch, interaction->stride, NULL);
  const TrsMlpRoom dense = dlrm->num_dense ? TrsMlpPlace(&dlrm->dense, max_batch, NULL, TrsFloats(NULL, 1))
                                           : (TrsMlpRoom){.end = 0};
  const int64_t dx_floats = interaction->x_at ? 0 : TrsMatrixFloats(max_batch, interaction->x),
                out_floats = inner_out ? TrsMatrixFloats(max_batch, TrsInteractionMatrix(interaction, NULL))
                                       : 0;
  /*
    A backward computes three gradients, each from the one before: the output of the over arch's
    first layer, the interaction's output, and X, the interaction's input. Successive gradients must
    not overlap in memory.
  */
  const int64_t dout = TrsMlpBeside(dx_floats, out_floats, over.grad, over.grad_end);
  int64_t over_floats = backward ? over.end : over.outputs,
          dense_floats = PetscMax(backward ? dense.end : 0, dense.outputs + out_floats);

  PetscFunctionBegin;
  if (backward && inner_out) over_floats = PetscMax(over_floats, dout + out_floats);
  PetscCall(TrsHeadsAllocate(&dlrm->heads, max_batch));
  dlrm->kept_bytes = backward && inner_out ? dx_floats * (int64_t)sizeof(float) : 0;
  dlrm->over_bytes = over_floats * (int64_t)sizeof(float);
  /* shared, because TrsDlrmLend() lends it */
  PetscCall(TrsDeviceAllocShared(device, dlrm->over_bytes, (void **)&dlrm->over_inner));
  if (dense_floats > 0)
    PetscCall(device->alloc(dense_floats * (int64_t)sizeof(float), (void **)&dlrm->dense_inner));
  PetscCall(
      TrsInteractionAllocate(interaction, max_batch, inner_out ? dlrm->dense_inner + dense.outputs : NULL,
                             backward ? dlrm->over_inner : NULL, backward ? dlrm->over_inner + dout : NULL));
  (void)TrsHeadsPlace(&dlrm->heads, max_batch, interaction->stride, dlrm->over_inner);
  if (dlrm->num_dense) (void)TrsMlpPlace(&dlrm->dense, max_batch, dlrm->dense_inner, interaction->dense_x);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if X may have the operands' type. For this, each vector must fill a whole number of 16-byte
  units. If there is a dense arch, its last layer must also write this type.
*/
static PetscBool has_typed_x(const TrsDlrm dlrm, int64_t N, int64_t n_dense)
{
  const int64_t unit = 16 / TrsDTypeBytes(dlrm->params.type);
  PetscBool whole = (PetscBool)(N % unit == 0 && n_dense % unit == 0);

  for (int f = 0; f < dlrm->n_embeddings; f++) whole = (PetscBool)(whole && dlrm->columns[f] % unit == 0);
  return (PetscBool)(dlrm->typed_rows && whole && !dlrm->sequences.n && !dlrm->n_positions &&
                     (!n_dense || TrsMlpSpecIsTyped(&dlrm->dense_arch)));
}

/*
  Set the widths, and declare the parameters in the order in which the backward completes gradients.
*/
static PetscErrorCode declare(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims)
{
  TrsInteraction *interaction = &dlrm->interaction;
  /* If the dense features are copied for matrix multiplications, the copy's rows fill whole
     16-byte units. */
  const int64_t unit = dlrm->params.type == TRS_FP32 ? 1 : 16 / TrsDTypeBytes(dlrm->params.type);
  int64_t N = 0, n_dense, filled;
  char text[64];

  PetscFunctionBegin;
  if (interaction->ops->sparse) num_dense = 0;
  filled = (num_dense + unit - 1) / unit * unit;
  dlrm->num_dense = num_dense;
  dlrm->n_embeddings = n_embeddings;
  if (num_dense && !dlrm->dense_arch.n) {
    const int64_t sizes[3] = {512, 256, n_embeddings ? dims[0] : 64};

    PetscCall(copy_sizes(3, sizes, &dlrm->dense_arch, &dlrm->dense_sizes));
    PetscCall(PetscSNPrintf(text, sizeof(text), "%d,%d,%d", (int)sizes[0], (int)sizes[1], (int)sizes[2]));
    PetscCall(TrsOptionsSettle(dlrm->options, "-dense_arch", text));
  }
  n_dense = N = num_dense ? dlrm->dense_arch.sizes[dlrm->dense_arch.n - 1] : 0;
  PetscCall(PetscMalloc1((size_t)n_embeddings, &dlrm->columns));
  for (int side = 0; side < TRS_N_SIDES; side++) {
    for (int f = 0; f < n_embeddings; f++) {
      if ((dlrm->side ? dlrm->side[f] : 0) != side) continue;
      dlrm->columns[f] = N;
      N += dims[f];
    }
    if (side == TRS_SIDE_QUERY) interaction->query_columns = N;
  }
  TrsInteractionShape(interaction, n_embeddings + (num_dense > 0), n_embeddings ? dims[0] : (int)N,
                      (int)n_dense, N, TrsHeadsTakeOperands(&dlrm->heads), has_typed_x(dlrm, N, n_dense));
  PetscCall(TrsHeadsDeclare(&dlrm->heads, &dlrm->context, interaction->width, interaction->filled,
                            interaction->type));
  if (interaction->ops->declare) PetscCall(interaction->ops->declare(interaction));
  PetscCall(TrsSequenceLayersDeclare(&dlrm->sequences, dlrm->columns));
  if (num_dense)
    PetscCall(
        TrsMlpDeclare(&dlrm->dense, &dlrm->context, "dense_arch", &dlrm->dense_arch, num_dense, filled));
  for (int i = 0; i < dlrm->n_positions; i++)
    PetscCall(TrsParametersAddNamed(&dlrm->params, dlrm->position[i].name, dlrm->position[i].length, 0,
                                    TRS_INIT_ONE, 0.0F, &dlrm->position[i].param));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmCountParameters(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims,
                                      int64_t *n)
{
  PetscFunctionBegin;
  PetscCall(declare(dlrm, num_dense, n_embeddings, dims));
  *n = 0;
  for (int p = 0; p < dlrm->params.n; p++) *n += dlrm->params.param[p].rows * dlrm->params.param[p].cols;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmSetUp(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims, int64_t max_batch,
                            uint64_t seed)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_DENSE);
  int64_t algorithms;
  int precision;

  PetscFunctionBegin;
  dlrm->context.draw.seed = seed;
  PetscCall(TrsOptionsGetEnum(dlrm->options, "-dense_precision", &precision, NULL));
  PetscCall(dlrm->context.compute->dense_precision((TrsDensePrecision)precision));
  PetscCall(TrsOptionsGetInt(dlrm->options, "-dense_product_algorithms", &algorithms, NULL));
  PetscCall(dlrm->context.compute->product_algorithms((int)algorithms));
  dlrm->params.type = dlrm->context.compute->operand_type();
  PetscCall(declare(dlrm, num_dense, n_embeddings, dims));
  PetscCall(check_widths(dlrm, dims));
  dlrm->max_batch = max_batch;
  if (dlrm->anywhere && TrsDlrmMayTakeVectors(dlrm))
    PetscCall(PetscCalloc2((size_t)dlrm->interaction.n_vectors, &dlrm->interaction.x_at,
                           (size_t)dlrm->interaction.n_vectors, &dlrm->interaction.dx_at));
  PetscCall(TrsParametersAllocate(&dlrm->params, dlrm->device, seed));
  (void)TrsMemoryFor(TRS_MEMORY_ACTIVATIONS);
  PetscCall(allocate(dlrm, max_batch));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmRefresh(TrsDlrm dlrm, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsParametersRefresh(&dlrm->params, dlrm->context.compute, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void *TrsDlrmOperands(TrsDlrm dlrm)
{
  return dlrm->params.operands;
}

PetscErrorCode TrsDlrmEmbeddings(TrsDlrm dlrm, TrsMatrix *x, const int64_t **columns)
{
  PetscFunctionBegin;
  *x = dlrm->interaction.x;
  if (columns) *columns = dlrm->columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmEmbeddingGrads(TrsDlrm dlrm, TrsMatrix *dx, const int64_t **columns)
{
  PetscFunctionBegin;
  *dx = dlrm->interaction.dx;
  if (columns) *columns = dlrm->columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsDlrmPlaceRows(TrsDlrm dlrm, float *x, float *dx)
{
  TrsInteractionPlace(&dlrm->interaction, x, dx);
  if (dlrm->num_dense) TrsMlpPlaceOutput(&dlrm->dense, dlrm->interaction.dense_x);
}

void TrsDlrmPlaceLosses(TrsDlrm dlrm, double *losses)
{
  dlrm->heads.of_sample = losses;
}

void TrsDlrmLend(TrsDlrm dlrm, void **memory, int64_t *bytes)
{
  *memory = (char *)dlrm->over_inner + dlrm->kept_bytes;
  *bytes = dlrm->over_bytes - dlrm->kept_bytes;
}

void TrsDlrmDraw(TrsDlrm dlrm, PetscBool training, int64_t step, int64_t first)
{
  dlrm->context.draw.training = training;
  dlrm->context.draw.step = step;
  dlrm->context.draw.first = first;
}

void TrsDlrmSetNumbers(TrsDlrm dlrm, const TrsBatchNumbers *now)
{
  dlrm->context.now = now;
}

PetscErrorCode TrsDlrmForwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense)
{
  PetscFunctionBegin;
  if (dlrm->num_dense) PetscCall(TrsMlpForward(&dlrm->dense, stream, n, TrsFloats(dense, dlrm->num_dense)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The interaction's input. */
static TrsSequenceMatrix x_of(TrsDlrm dlrm)
{
  return (TrsSequenceMatrix){.data = (float *)dlrm->interaction.x.data, .stride = dlrm->interaction.N};
}

/* The heads' input. */
static TrsHeadInput heads_input(TrsDlrm dlrm)
{
  const TrsInteraction *interaction = &dlrm->interaction;

  return (TrsHeadInput){.x = TrsInteractionMatrix(interaction, interaction->out),
                        .dx = TrsInteractionMatrix(interaction, interaction->dout),
                        .columns = interaction->filled};
}

PetscErrorCode TrsDlrmForward(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *labels,
                              const float *weights, float scale, double *loss_sums, const float **predictions)
{
  const int64_t loss_bytes = dlrm->heads.tasks.n * (int64_t)sizeof(double);
  const TrsInteraction *interaction = &dlrm->interaction;
  const TrsHeadInput input = heads_input(dlrm);

  PetscFunctionBegin;
  PetscCall(TrsSequenceLayersForward(&dlrm->sequences, stream, n, x_of(dlrm)));
  PetscCall(TrsLogFlops((double)n * interaction->ops->flops(interaction)));
  PetscCall(interaction->ops->forward(interaction, stream, n));
  PetscCall(TrsParametersBetween(&dlrm->params));
  PetscCall(TrsHeadsForward(&dlrm->heads, stream, n, &input, labels, weights, scale,
                            (PetscBool)(predictions != NULL)));
  if (labels && loss_sums) PetscCall(dlrm->device->copy(loss_sums, dlrm->heads.loss, loss_bytes, stream));
  if (predictions) *predictions = dlrm->heads.predictions;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsPairs TrsDlrmPairs(TrsDlrm dlrm)
{
  const TrsInteraction *interaction = &dlrm->interaction;

  if (!interaction->ops->pairs) return (TrsPairs){.width = 0};
  return (TrsPairs){.out = interaction->out,
                    .dout = interaction->dout,
                    .width = interaction->ops->width(interaction) / 2,
                    .stride = interaction->stride};
}

const TrsTaskConfigs *TrsDlrmTasks(TrsDlrm dlrm)
{
  return &dlrm->heads.tasks;
}

PetscErrorCode TrsDlrmBackwardOver(TrsDlrm dlrm, TrsStream stream, int64_t n)
{
  const TrsInteraction *interaction = &dlrm->interaction;
  const TrsHeadInput input = heads_input(dlrm);

  PetscFunctionBegin;
  dlrm->params.n_ready = 0;
  if (!dlrm->pair_loss) PetscCall(TrsHeadsBackward(&dlrm->heads, stream, n, &input));
  PetscCall(TrsLogFlops(2.0 * (double)n * interaction->ops->flops(interaction)));
  PetscCall(interaction->ops->backward(interaction, stream, n));
  PetscCall(TrsParametersBetween(&dlrm->params));
  PetscCall(TrsSequenceLayersBackward(
      &dlrm->sequences, stream, n, x_of(dlrm),
      (TrsSequenceMatrix){.data = (float *)interaction->dx.data, .stride = interaction->N}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmBackwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense)
{
  PetscFunctionBegin;
  if (dlrm->num_dense) {
    PetscCall(TrsMlpBackward(&dlrm->dense, stream, n, TrsFloats(dense, dlrm->num_dense),
                             dlrm->interaction.dense_dx, TrsFloats(NULL, 0)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmSetGradientReady(TrsDlrm dlrm,
                                       PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end),
                                       void *ctx)
{
  PetscFunctionBegin;
  dlrm->params.ready = ready;
  dlrm->params.ready_ctx = ctx;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsDlrmSetBetweenLayers(TrsDlrm dlrm, PetscErrorCode (*between)(void *ctx), void *ctx)
{
  dlrm->params.between = between;
  dlrm->params.between_ctx = ctx;
}

PetscErrorCode TrsDlrmParameters(TrsDlrm dlrm, int *n, const TrsDenseParameter **params, float **values,
                                 float **grads, int64_t *n_values)
{
  PetscFunctionBegin;
  if (n) *n = dlrm->params.n;
  if (params) *params = dlrm->params.param;
  if (values) *values = dlrm->params.values;
  if (grads) *grads = dlrm->params.grads;
  if (n_values) *n_values = dlrm->params.n_values;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_tensor(TrsState *state, const TrsDenseParameter *param, const char *path,
                                 float *data, const char *optimizer)
{
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(TrsStateAdd(state, path, TRS_FP32, param->ndim, param->rows, param->cols, &tensor));
  tensor->replicated = PETSC_TRUE;
  tensor->optional = (PetscBool)(optimizer != NULL);
  tensor->optimizer = optimizer;
  PetscCall(TrsStateAddPart(tensor, 0, 0, param->rows, param->cols, data, param->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmAddState(TrsDlrm dlrm, PetscBool averaged, TrsState *state)
{
  PetscFunctionBegin;
  for (int p = 0; p < dlrm->params.n; p++) {
    const TrsDenseParameter *param = &dlrm->params.param[p];
    char path[PETSC_MAX_PATH_LEN];

    if (averaged)
      PetscCall(PetscSNPrintf(path, sizeof(path), "dense_optimizer/%s/" TRS_DENSE_AVERAGE, param->name));
    else
      PetscCall(PetscSNPrintf(path, sizeof(path), "dense/%s", param->name));
    PetscCall(add_tensor(state, param, path, param->value, NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmAddOptimizerState(TrsDlrm dlrm, TrsDenseOptimizer optimizer, TrsState *state)
{
  const char *names[TRS_DENSE_MAX_STATES];
  float *states[TRS_DENSE_MAX_STATES];
  int n_states;

  PetscFunctionBegin;
  PetscCall(TrsDenseOptimizerStates(optimizer, &n_states, names, states));
  for (int p = 0; p < dlrm->params.n; p++) {
    for (int i = 0; i < n_states; i++) {
      const TrsDenseParameter *param = &dlrm->params.param[p];
      char path[PETSC_MAX_PATH_LEN];

      PetscCall(PetscSNPrintf(path, sizeof(path), "dense_optimizer/%s/%s", param->name, names[i]));
      PetscCall(add_tensor(state, param, path, states[i] + dlrm->params.offset[p],
                           TrsDenseOptimizerName(optimizer)));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDlrmWork TrsDlrmWorkOf(TrsDlrm dlrm)
{
  const TrsInteraction *interaction = &dlrm->interaction;
  TrsDlrmWork work = {.flops = interaction->ops->flops(interaction),
                      .bytes = TrsDTypeBytes(interaction->x.type) * (double)interaction->N +
                               TrsDTypeBytes(interaction->type) * (double)interaction->stride,
                      .parameter_bytes = (double)sizeof(float) * (double)dlrm->params.n_values};

  if (interaction->ops->bytes) work.bytes += interaction->ops->bytes(interaction);
  if (interaction->ops->products) {
    work.pairs = interaction->ops->products(interaction);
    work.pair_flops = work.flops;
    work.pair_bytes = work.bytes;
  }
  TrsHeadsWork(&dlrm->heads, &work.flops, &work.bytes);
  if (interaction->ops->work) interaction->ops->work(interaction, &work.flops, &work.bytes);
  TrsSequenceLayersWork(&dlrm->sequences, &work.flops, &work.bytes);
  if (dlrm->num_dense) TrsMlpWork(&dlrm->dense, &work.flops, &work.bytes);
  return work;
}

PetscErrorCode TrsDlrmView(TrsDlrm dlrm, MPI_Comm comm)
{
  const TrsInteraction *interaction = &dlrm->interaction;
  const TrsDlrmWork work = TrsDlrmWorkOf(dlrm);

  PetscFunctionBegin;
  if (dlrm->num_dense) PetscCall(TrsMlpView(&dlrm->dense, "dense_arch", comm));
  PetscCall(TrsSequenceLayersView(&dlrm->sequences, comm));
  PetscCall(
      PetscPrintf(comm, "  interaction  %s of %d vector%s%s, %" PRId64 " -> %" PRId64 "\n",
                  interaction->ops->word, interaction->n_vectors, TrsPlural(interaction->n_vectors, "s"),
                  interaction->x.type == TRS_FP32 ? "" : " of bf16", interaction->N, interaction->width));
  if (interaction->ops->view) PetscCall(interaction->ops->view(interaction, comm));
  PetscCall(TrsHeadsView(&dlrm->heads, comm));
  PetscCall(PetscPrintf(comm, "  per sample   %.4g kflop and %.4g kB in a forward\n", work.flops / 1e3,
                        work.bytes / 1e3));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDlrmDestroy(TrsDlrm *dlrm)
{
  TrsDlrm d = *dlrm;

  PetscFunctionBegin;
  if (!d) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMlpFree(&d->dense));
  PetscCall(TrsHeadsFree(&d->heads));
  PetscCall(TrsInteractionFree(&d->interaction));
  PetscCall(TrsSequenceLayersFree(&d->sequences));
  PetscCall(TrsParametersFree(&d->params, d->device));
  PetscCall(d->device->release((void **)&d->over_inner));
  PetscCall(d->device->release((void **)&d->dense_inner));
  for (int i = 0; i < d->n_positions; i++) PetscCall(PetscFree(d->position[i].name));
  PetscCall(PetscFree(d->position));
  PetscCall(PetscFree(d->dense_sizes));
  PetscCall(PetscFree(d->over_sizes));
  PetscCall(PetscFree(d->columns));
  PetscCall(PetscFree(d->side));
  PetscCall(PetscFree(*dlrm));
  PetscFunctionReturn(PETSC_SUCCESS);
}
