/* SPDX-License-Identifier: BSD-3-Clause */
/*
  DLRM: dense arch, interaction, over arch and loss for one rank's samples. The embeddings come from
  outside (shard/).

  The interaction's input X [max_batch, stride] is one matrix. The dense arch writes the first
  columns, and the embeddings' output dist writes the others, so neither has to be copied into X.

  A step calls ForwardDense (while embeddings are sent), Forward, BackwardOver, then BackwardDense
  (while the embeddings' gradients are sent). After SetUp nothing is allocated. The number n of
  samples may be 0: then this rank's gradients are zero. No function here is collective. All work
  runs in order on the given stream.

  Source: torchrec.models.dlrm (DLRM, DLRM_DCN, DenseArch, InteractionArch, InteractionDCNArch,
          OverArch)
*/
#pragma once

#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "io/state.h"
#include "model/model_data.h"
#include "optim/dense_optimizer.h"
#include "spec/table_config.h"
#include "spec/task_configs.h"

typedef struct TrsDlrmImpl *TrsDlrm;

extern const TrsOptionGroup trs_model_options, trs_heads_options;

PetscErrorCode TrsDlrmCreate(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsDlrm *dlrm);

/*
  Read trs_model_options. The options must live as long as the model, because messages name them.
  Errors: OPTION.
*/
PetscErrorCode TrsDlrmSetFromOptions(TrsDlrm dlrm, TrsOptions options);

/*
  Declare that there will be no backward. The model then has no memory for gradients, and
  Backward*() and EmbeddingGrads must not be called. Must be called before SetUp.
*/
PetscErrorCode TrsDlrmSetForwardOnly(TrsDlrm dlrm);

/*
  For -reproducible: make all sums over samples with the program's own kernels, in an order that
  depends only on the shape. The BLAS library does not specify the order of its sums. Must be called
  before SetUp.
*/
void TrsDlrmSetOwnSums(TrsDlrm dlrm);

/*
  Declare that the caller accepts X and its gradient in the operands' type, if the model can give
  it. Must be called before SetUp.
*/
void TrsDlrmSetTypedRows(TrsDlrm dlrm);

/*
  Declare that the caller will provide memory for X before every forward (TrsDlrmPlaceRows). The
  model then allocates no X, and TrsDlrmEmbeddings() and EmbeddingGrads() return no memory. Must be
  called before SetUp.
*/
void TrsDlrmSetRowsElsewhere(TrsDlrm dlrm);

/*
  Declare that the caller can state the address of each embedding before every forward
  (TrsDlrmPlaceVectors) and reads the embedding's gradient at the same address. If the model
  supports this, TrsDlrmTakesVectors() is true after SetUp, and X has no memory before
  TrsDlrmMakeRows(). Must be called before SetUp.
*/
void TrsDlrmSetVectorsAnywhere(TrsDlrm dlrm);
PetscBool TrsDlrmTakesVectors(TrsDlrm dlrm);

/*
  After CountParameters: true if TrsDlrmTakesVectors() would be true after SetUp. Not collective.
*/
PetscBool TrsDlrmMayTakeVectors(TrsDlrm dlrm);

/*
  Allocate X with `width` columns, for the embeddings that the caller stores nowhere else. The
  gradient of X overwrites X. The caller decides how the columns are used. Must be called after
  SetUp, at most once. Errors: MEMORY
*/
PetscErrorCode TrsDlrmMakeRows(TrsDlrm dlrm, int64_t width);

/*
  Set the addresses of the embeddings [n_embeddings], in model order, for the next forward. Its
  BackwardOver stores their gradients at the same addresses. The model copies `place`. Not
  collective.
*/
void TrsDlrmPlaceVectors(TrsDlrm dlrm, const TrsVectorPlace *place);

/*
  Assign each embedding to a tower, a TrsTowerSide of model/two_tower.h. The model copies `side`.
  The query's columns of X come first. Without this call, all embeddings belong to the query. Must
  be called before SetUp.
*/
PetscErrorCode TrsDlrmSetSides(TrsDlrm dlrm, int n_embeddings, const int *side);

/*
  Declare that the caller computes the loss of the pairs and its gradient (TrsDlrmPairs). Then
  Forward takes no labels, and BackwardOver starts from the caller's gradient. Must be called before
  SetUp.
*/
void TrsDlrmSetPairLoss(TrsDlrm dlrm);

/*
  TrsDlrmSetUp - Allocate parameters and activations, and initialise the parameters.

  Not collective; equal arguments give equal parameters on every rank.

  In:     num_dense      number of dense features per sample; 0: there is no dense arch
          n_embeddings   number of pooled vectors per sample
          dims           [n_embeddings] widths of the pooled vectors, in model order
          max_batch      number of samples in this rank's largest batch
          seed           for the initial parameters and the layers' random numbers
  Errors: OPTION if, under dot or dcn, dims differ from each other or from -dense_arch's last size;
          OPTION if -over_arch has less than 2 layers or does not end in 1; MEMORY
  Source: src/RULES.md, rules A2 to A5 and A21
*/
PetscErrorCode TrsDlrmSetUp(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims, int64_t max_batch,
                            uint64_t seed);

/*
  Count the parameters that SetUp would make, without checking widths. Must be called instead of
  SetUp.
  Errors: MEMORY
*/
PetscErrorCode TrsDlrmCountParameters(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims,
                                      int64_t *n);

/*
  TrsDlrmAddPositionWeights - Add a feature's weights for the positions of ids, as a dense parameter
    position_weights/<feature>/weight that starts with ones.

  Must be called before SetUp, for the features in the lookups' order. Not collective.

  In: length   number of entries, from 1 to 2^24
      feature  the feature's name; the model copies it
*/
PetscErrorCode TrsDlrmAddPositionWeights(TrsDlrm dlrm, const char *feature, int64_t length);

/*
  Get the i-th position weights and their gradient, [length]. Must be called after SetUp. Both are
  borrowed until Destroy.
*/
PetscErrorCode TrsDlrmPositionWeights(TrsDlrm dlrm, int i, const float **weight, float **grad);

/*
  Announce that the position weights' gradients are complete. They are the last gradients of a step,
  because the lookups' backward computes them. Must be called in every step, after BackwardDense.
*/
PetscErrorCode TrsDlrmPositionGradientsReady(TrsDlrm dlrm);

/*
  TrsDlrmAddSequence - Add the layer that pools the rows of a sequence table's k-th feature
    (sequence_pooling). Its parameters are named sequence/<feature>/<part>.

  Must be called before SetUp, in the order of the model's vectors. Not collective.

  In: table   borrowed until Destroy
      vector  index of the layer's output among the model's vectors
      target  index of the vector that the layer compares the rows with; -1: there is none
*/
PetscErrorCode TrsDlrmAddSequence(TrsDlrm dlrm, const TrsTableConfig *table, int k, int vector, int target);

/*
  Set the bags [n] of the next forward's samples for each added sequence. The bags are borrowed
  until the end of the backward. A model without sequences does not need this call.
*/
void TrsDlrmSetBags(TrsDlrm dlrm, const TrsBagRows *bags);

/*
  Get X and its columns: embedding f of sample b begins at column columns[f] of row b. X has floats.
  After TrsDlrmSetTypedRows() it may have the operands' type. Both are borrowed until Destroy.
*/
PetscErrorCode TrsDlrmEmbeddings(TrsDlrm dlrm, TrsMatrix *x, const int64_t **columns);

/*
  Get the embeddings' gradient, in the layout of TrsDlrmEmbeddings(). The gradient is complete after
  BackwardOver, and the caller may change it. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmEmbeddingGrads(TrsDlrm dlrm, TrsMatrix *dx, const int64_t **columns);

/*
  Use the caller's memory for X and its gradient, in their layouts, until the next call. The model
  reads and writes this memory from a ForwardDense to the end of the backward. x and dx must not
  overlap. dx may be NULL if there is no backward. Not collective.
*/
void TrsDlrmPlaceRows(TrsDlrm dlrm, float *x, float *dx);

/*
  Make every Forward with labels also write the weighted losses of its n samples, [n, tasks], to the
  caller's device memory, until the next call. NULL: write none. Not collective.
*/
void TrsDlrmPlaceLosses(TrsDlrm dlrm, double *losses);

/*
  Lend memory for data that is sent to other ranks: embeddings on their way to X, and their
  gradients. The model does not use this memory before a Forward and after a BackwardOver, so the
  caller may use it only then. Valid until Destroy.
*/
void TrsDlrmLend(TrsDlrm dlrm, void **memory, int64_t *bytes);

/*
  Set the state of the random numbers for the next forward and its backward.

  Not collective. Layers that draw random numbers (dropout) are off until the first call with
  training.

  In: training  false: no layer draws random numbers, as in an evaluation
      step      index of the training step
      first     position of this rank's first sample in the epoch's order of samples
*/
void TrsDlrmDraw(TrsDlrm dlrm, PetscBool training, int64_t step, int64_t first);

/*
  Make forwards and backwards read step, first and the loss' scale from device memory instead of
  from the arguments of TrsDlrmDraw() and TrsDlrmForward(). `now` is borrowed. NULL: use the
  arguments again.
*/
void TrsDlrmSetNumbers(TrsDlrm dlrm, const TrsBatchNumbers *now);

/*
  If the operands' type is not fp32, convert the weights to it. Must be called on the stream of the
  next forwards, after every change of the weights that did not write TrsDlrmOperands(). Not
  collective.
*/
PetscErrorCode TrsDlrmRefresh(TrsDlrm dlrm, TrsStream stream);

/*
  Return the weights in the operands' type, in the order of the values of TrsDlrmParameters(). NULL
  if this type is fp32. A function that changes the weights may write them, instead of
  TrsDlrmRefresh(). Borrowed.
*/
void *TrsDlrmOperands(TrsDlrm dlrm);

/*
  Run the dense arch on n samples, dense [n, num_dense]. The output goes to the first columns of X.
*/
PetscErrorCode TrsDlrmForwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  TrsDlrmForward - Run the sequences' layers, the interaction and the heads, and compute the tasks'
    losses and the gradients of the losses.

  In:     labels       [n, tasks]; NULL: compute only predictions. With -tasks, NaN marks a missing
                       label
          weights      [n] the samples' weights in the loss; NULL: all weights are 1
          scale        factor of the loss' gradient: 1 / (sum of the global batch's weights)
  Out:    loss_sums    [tasks] for each task the sum of its weighted losses over the n samples,
                       without the task's own weight and not divided by the sum of weights; valid as
                       soon as the stream has done this work; unchanged without labels
          predictions  [n, columns of all tasks], borrowed until the next Forward; NULL: do not
                       compute predictions
*/
PetscErrorCode TrsDlrmForward(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *labels,
                              const float *weights, float scale, double *loss_sums,
                              const float **predictions);

/* The two towers' outputs for the samples of the last Forward. */
typedef struct {
  const float *out;      /* [n, 2 D] per pair the query's embedding, then the candidate's */
  float *dout;           /* [n, 2 D] gradient of `out`, valid until BackwardOver */
  int64_t width, stride; /* D, and the number of floats from row to row */
} TrsPairs;

/*
  Get the towers' outputs. After SetFromOptions only the width D is valid. D is 0 if the interaction
  has no towers. The outputs are borrowed until Destroy. The caller may write dout after a Forward.
*/
TrsPairs TrsDlrmPairs(TrsDlrm dlrm);

/* The model's tasks, set by SetFromOptions. Borrowed until Destroy. */
const TrsTaskConfigs *TrsDlrmTasks(TrsDlrm dlrm);

/*
  Run the backward of the over arch, the interaction and the sequences' layers, after a Forward with
  labels. It overwrites the parameters' gradients.
*/
PetscErrorCode TrsDlrmBackwardOver(TrsDlrm dlrm, TrsStream stream, int64_t n);

/* Run the backward of the dense arch, after BackwardOver. */
PetscErrorCode TrsDlrmBackwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  Register `ready`. BackwardOver and BackwardDense call it on the caller's thread as soon as the
  gradients [begin, end) in the flat array are complete. The ranges come in order, without gaps, and
  cover the array once per step.
*/
PetscErrorCode TrsDlrmSetGradientReady(TrsDlrm dlrm,
                                       PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end),
                                       void *ctx);

/*
  Register `between`. Forward, ForwardDense and the backwards call it on the caller's thread after
  each layer, for short work that must be done often. Not for devices whose streams run
  independently of the host. Not collective.
*/
void TrsDlrmSetBetweenLayers(TrsDlrm dlrm, PetscErrorCode (*between)(void *ctx), void *ctx);

/*
  Get the parameters, in the order in which their gradients become ready, and the flat arrays
  [n_values] with their values and gradients. Padding between parameters is always zero. Any pointer
  may be NULL. The arrays are borrowed until Destroy.
*/
PetscErrorCode TrsDlrmParameters(TrsDlrm dlrm, int *n, const TrsDenseParameter **params, float **values,
                                 float **grads, int64_t *n_values);

/*
  Add dense/<name> for every parameter, replicated, in layer order. With `averaged`, add
  dense_optimizer/<name>/ema instead: the averages of the weights that a training has kept.
*/
PetscErrorCode TrsDlrmAddState(TrsDlrm dlrm, PetscBool averaged, TrsState *state);

/*
  Add dense_optimizer/<name>/<state> for an optimizer that was set up on this model's values. The
  tensors are replicated. A file may lack them.
*/
PetscErrorCode TrsDlrmAddOptimizerState(TrsDlrm dlrm, TrsDenseOptimizer optimizer, TrsState *state);

/* The work of one sample's forward. */
typedef struct {
  double flops; /* operations */
  double bytes; /* read and written, without the parameters */
  double parameter_bytes;
  /* number of dot products of a sample's vectors, and the parts of flops and bytes that they
     cause */
  double pairs, pair_flops, pair_bytes;
} TrsDlrmWork;

/*
  Count the work of the model's layers. Must be called after SetUp. A backward has about twice as
  much work as a forward.
*/
TrsDlrmWork TrsDlrmWorkOf(TrsDlrm dlrm);

/*
  Describe the layers on rank 0 of comm for the banner, one line for each part. Logically
  collective.
*/
PetscErrorCode TrsDlrmView(TrsDlrm dlrm, MPI_Comm comm);

PetscErrorCode TrsDlrmDestroy(TrsDlrm *dlrm);
