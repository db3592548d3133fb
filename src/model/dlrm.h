/* SPDX-License-Identifier: BSD-3-Clause */
/*
  DLRM: dense arch, interaction, over arch and loss for one rank's samples. The embeddings come from
  outside (shard/).

  The interaction's input X [max_batch, stride] is one matrix. The dense arch writes its first
  columns and the embeddings' output dist writes the others, so nothing is copied in between.

  A step runs ForwardDense (while embeddings travel), Forward, BackwardOver, then BackwardDense
  (while the embeddings' gradients travel). After SetUp nothing is allocated. n may be 0: a rank
  without samples takes part with zero gradients. No function here is collective. All work is
  ordered on the given stream.

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
  depends only on the shape. The product library does not state the order of its sums. Must be
  called before SetUp.
*/
void TrsDlrmSetOwnSums(TrsDlrm dlrm);

/*
  Declare that the caller accepts X and its gradient in the operands' type, if the model can give
  it. Must be called before SetUp.
*/
void TrsDlrmSetTypedRows(TrsDlrm dlrm);

/*
  Declare that the caller will place X for every forward (TrsDlrmPlaceRows). The model then has no
  memory for X, and TrsDlrmEmbeddings() and EmbeddingGrads() return no places. Must be called before
  SetUp.
*/
void TrsDlrmSetRowsElsewhere(TrsDlrm dlrm);

/*
  Declare that before every forward the caller can give the place of each embedding
  (TrsDlrmPlaceVectors) and takes the gradients in these places. If the model can do this,
  TrsDlrmTakesVectors() is true after SetUp, and X has no memory before TrsDlrmMakeRows(). Must be
  called before SetUp.
*/
void TrsDlrmSetVectorsAnywhere(TrsDlrm dlrm);
PetscBool TrsDlrmTakesVectors(TrsDlrm dlrm);

/*
  After CountParameters: true if TrsDlrmTakesVectors() would be true after SetUp. Not collective.
*/
PetscBool TrsDlrmMayTakeVectors(TrsDlrm dlrm);

/*
  Make X with `width` columns, for embeddings that the caller has no other place for. Its gradient
  overwrites it. The caller decides how the columns are used. Must be called after SetUp, at most
  once. Errors: MEMORY
*/
PetscErrorCode TrsDlrmMakeRows(TrsDlrm dlrm, int64_t width);

/*
  Set the places of the embeddings [n_embeddings] for the next forward. The end of its BackwardOver
  leaves their gradients there. In model order. `place` is copied. Not collective.
*/
void TrsDlrmPlaceVectors(TrsDlrm dlrm, const TrsVectorPlace *place);

/*
  Set the side of each embedding, a TrsTowerSide of model/two_tower.h. `side` is copied. The query's
  columns of X come first. Without this call all embeddings are the query's. Must be called before
  SetUp.
*/
PetscErrorCode TrsDlrmSetSides(TrsDlrm dlrm, int n_embeddings, const int *side);

/*
  Declare that the caller computes the loss and the gradient of the pairs (TrsDlrmPairs). A Forward
  then takes no labels, and BackwardOver begins with this gradient. Must be called before SetUp.
*/
void TrsDlrmSetPairLoss(TrsDlrm dlrm);

/*
  TrsDlrmSetUp - Allocate parameters and activations, and initialise the parameters.

  Not collective; equal arguments give equal parameters on every rank.

  In:     num_dense      dense features per sample; 0: there is no dense arch
          n_embeddings   pooled vectors per sample, in model order
          dims           [n_embeddings] their widths
          max_batch      samples of this rank's largest batch
          seed           for the initial parameters and the layers' random numbers
  Errors: OPTION if dims differ from each other, or from -dense_arch's last size, under dot or dcn;
          OPTION if -over_arch has less than 2 layers or does not end in 1; MEMORY
  Source: src/RULES.md, rules A2 to A5 and A21
*/
PetscErrorCode TrsDlrmSetUp(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims, int64_t max_batch,
                            uint64_t seed);

/*
  Called in place of SetUp: count the parameters that SetUp would make, without checking widths.
  Errors: MEMORY
*/
PetscErrorCode TrsDlrmCountParameters(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims,
                                      int64_t *n);

/*
  TrsDlrmAddPositionWeights - Add a feature's weights for the positions of ids, as a dense parameter
  position_weights/<feature>/weight that starts with ones.

  Must be called before SetUp, in the order in which the lookups get the features. Not collective.

  In: length   [1, 2^24] entries
      feature  its name, copied
*/
PetscErrorCode TrsDlrmAddPositionWeights(TrsDlrm dlrm, const char *feature, int64_t length);

/*
  The i-th position weights and their gradient, [length]. Must be called after SetUp. Borrowed until
  Destroy.
*/
PetscErrorCode TrsDlrmPositionWeights(TrsDlrm dlrm, int i, const float **weight, float **grad);

/*
  Announce that the position weights' gradients are complete. The lookups' backward computes them as
  the last gradients of a step. Must be called in every step, after BackwardDense.
*/
PetscErrorCode TrsDlrmPositionGradientsReady(TrsDlrm dlrm);

/*
  TrsDlrmAddSequence - Add the layer that pools the rows of a sequence table's k-th feature
    (sequence_pooling), with parameters sequence/<feature>/<part>.

  Must be called before SetUp, in the order of the model's vectors. Not collective.

  In: table   borrowed until Destroy
      vector  place of the layer's output among the model's vectors
      target  place of the vector that the layer compares the rows with; -1: there is none
*/
PetscErrorCode TrsDlrmAddSequence(TrsDlrm dlrm, const TrsTableConfig *table, int k, int vector, int target);

/*
  Set the bags [n] of the next forward's samples for each added sequence. Borrowed until the end of
  the backward. Not needed without sequences.
*/
void TrsDlrmSetBags(TrsDlrm dlrm, const TrsBagRows *bags);

/*
  Get the places of the embeddings: embedding f of sample b goes to column columns[f] of row b. X
  has floats, or after TrsDlrmSetTypedRows() may have the operands' type. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmEmbeddings(TrsDlrm dlrm, TrsMatrix *x, const int64_t **columns);

/*
  Get the embeddings' gradient, in the layout of TrsDlrmEmbeddings(). It is ready after
  BackwardOver, and the caller may change it. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmEmbeddingGrads(TrsDlrm dlrm, TrsMatrix *dx, const int64_t **columns);

/*
  Use the caller's memory for X and its gradient, in their layouts, until the next call. It is read
  and written from a ForwardDense to the end of its backward. The two must not overlap. dx may be
  NULL if there is no backward. Not collective.
*/
void TrsDlrmPlaceRows(TrsDlrm dlrm, float *x, float *dx);

/*
  Let every Forward with labels also write the weighted losses of its n samples, [n, tasks], to the
  caller's device memory, until the next call. NULL: none. Not collective.
*/
void TrsDlrmPlaceLosses(TrsDlrm dlrm, double *losses);

/*
  Lend memory for data that is sent to other ranks: embeddings on their way to X, and their
  gradients. The model does not use this memory before a Forward and after a BackwardOver. Lent
  until Destroy, only for these times.
*/
void TrsDlrmLend(TrsDlrm dlrm, void **memory, int64_t *bytes);

/*
  Set the state of the random numbers for the next forward and its backward.

  Not collective. Layers that draw numbers (dropout) are off until a call with training.

  In: training  false: no layer draws numbers, as in an evaluation
      step      training step
      first     place of the first sample in the epoch's order, on whichever rank it is
*/
void TrsDlrmDraw(TrsDlrm dlrm, PetscBool training, int64_t step, int64_t first);

/*
  Make forwards and backwards read step, first and the loss' scale from device memory instead of the
  arguments of TrsDlrmDraw() and TrsDlrmForward(). Borrowed. NULL: use the arguments again.
*/
void TrsDlrmSetNumbers(TrsDlrm dlrm, const TrsBatchNumbers *now);

/*
  Convert the weights to the operands' type, if it is not fp32. Must be called once a batch, on the
  stream of the next forwards, after every change of the weights. Not collective.
*/
PetscErrorCode TrsDlrmRefresh(TrsDlrm dlrm, TrsStream stream);

/*
  Run the dense arch on n samples, dense [n, num_dense]. The output goes to the first columns of X.
*/
PetscErrorCode TrsDlrmForwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  TrsDlrmForward - Compute the sequences' layers, the interaction, the heads, and the tasks' losses
  with their gradients.

  In:     labels       [n, tasks]; NULL: predictions only. With -tasks, NaN marks a missing label
          weights      [n] the samples' weights in the loss; NULL: 1
          scale        factor of the loss' gradient: 1 / (sum of the global batch's weights)
  Out:    loss_sums    [tasks] weighted sums over the n samples (not divided, without the tasks'
                       weights), valid when the stream has done this work; unchanged without labels
          predictions  [n, columns of all tasks], borrowed until the next Forward; NULL: they are
                       not computed
*/
PetscErrorCode TrsDlrmForward(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *labels,
                              const float *weights, float scale, double *loss_sums,
                              const float **predictions);

/* The two towers' outputs for the samples of the last Forward. */
typedef struct {
  const float *out;      /* [n, 2 D] a query's embedding, then its candidate's */
  float *dout;           /* [n, 2 D] their gradient, until BackwardOver */
  int64_t width, stride; /* D; floats from row to row */
} TrsPairs;

/*
  Get the towers' outputs. After SetFromOptions only their width is valid. D is 0 if the interaction
  has no towers. Borrowed until Destroy. dout may be written after a Forward.
*/
TrsPairs TrsDlrmPairs(TrsDlrm dlrm);

/* The model's tasks, set by SetFromOptions. Borrowed until Destroy. */
const TrsTaskConfigs *TrsDlrmTasks(TrsDlrm dlrm);

/*
  Run the backward of the over arch, the interaction and the sequences' layers, after a Forward with
  labels. The gradients
  are overwritten.
*/
PetscErrorCode TrsDlrmBackwardOver(TrsDlrm dlrm, TrsStream stream, int64_t n);

/* Run the backward of the dense arch, after BackwardOver. */
PetscErrorCode TrsDlrmBackwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  Register `ready`, which is called as soon as the gradients [begin, end) in the flat array are
  complete. The ranges come in order, without gaps, and cover the array once per step. BackwardOver
  and BackwardDense call it on the caller's thread.
*/
PetscErrorCode TrsDlrmSetGradientReady(TrsDlrm dlrm,
                                       PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end),
                                       void *ctx);

/*
  Get the parameters, in the order in which their gradients become ready, and the flat arrays
  [n_values] with their values and gradients. Padding between parameters is zero and stays zero. Any
  pointer may be NULL. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmParameters(TrsDlrm dlrm, int *n, const TrsDenseParameter **params, float **values,
                                 float **grads, int64_t *n_values);

/*
  Add dense/<name> for every parameter, replicated, in layer order. With `averaged`, add the
  averages of a training's weights instead, dense_optimizer/<name>/ema.
*/
PetscErrorCode TrsDlrmAddState(TrsDlrm dlrm, PetscBool averaged, TrsState *state);

/*
  Add dense_optimizer/<name>/<state> for an optimizer that was set up on this model's values. The
  tensors are replicated, and optional in the file.
*/
PetscErrorCode TrsDlrmAddOptimizerState(TrsDlrm dlrm, TrsDenseOptimizer optimizer, TrsState *state);

/* Work of one sample's forward, and the bytes of all parameters. */
typedef struct {
  double flops; /* operations */
  double bytes; /* read and written, without parameters */
  double parameter_bytes;
  /* dot products of a sample's vectors, and their share of flops and bytes */
  double pairs, pair_flops, pair_bytes;
} TrsDlrmWork;

/*
  The work of the model's layers. Must be called after SetUp. A backward has about twice the
  forward's.
*/
TrsDlrmWork TrsDlrmWorkOf(TrsDlrm dlrm);

/*
  Describe the layers on rank 0 of comm for the banner, one line for each part. Logically
  collective.
*/
PetscErrorCode TrsDlrmView(TrsDlrm dlrm, MPI_Comm comm);

PetscErrorCode TrsDlrmDestroy(TrsDlrm *dlrm);
