/* SPDX-License-Identifier: BSD-3-Clause */
/*
  DLRM: dense arch, interaction, over arch and loss of one rank's samples. The embeddings come from
  outside (shard/).

  The input X [max_batch, stride] of the interaction is one matrix. The dense arch writes its first
  columns and the output dist of the embeddings writes the others, so nothing is copied in between.

  A step runs ForwardDense (while embeddings travel), Forward, BackwardOver, then BackwardDense
  (while gradients of embeddings travel). After SetUp nothing is allocated. n may be 0: a rank
  without samples takes part with zero gradients. No function here is collective, and all work is
  ordered on the stream that is passed.

  Source: torchrec.models.dlrm (DLRM, DLRM_DCN, DenseArch, InteractionArch, InteractionDCNArch,
          OverArch)
*/
#pragma once

#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "io/state.h"
#include "optim/dense_optimizer.h"
#include "spec/table_config.h"
#include "spec/task_configs.h"

typedef struct TrsDlrmImpl *TrsDlrm;

extern const TrsOptionGroup trs_model_options, trs_heads_options;

/* One dense parameter. Its values and its gradient lie in the model's flat arrays. */
typedef struct {
  const char *name;    /* "dense_arch/0/weight", "over_arch/1/bias", "crossnet/0/W" */
  int64_t rows, cols;  /* a bias has rows = N, cols = 1 */
  int ndim;            /* 1 or 2 */
  int64_t stride;      /* floats from row to row: cols, or more with zeros after the columns */
  float *value, *grad; /* [rows, stride] device memory */
} TrsDenseParameter;

/*
  Rows of the bags of a feature whose pooling is a layer. Row i is at rows + i * D, and its gradient
  at grads + i * D; those of bag b are i = offsets[b] .. offsets[b + 1] - 1. The host knows the
  numbers.
*/
typedef struct {
  int64_t first, n_rows;  /* offsets[0], which need not be 0; rows of all n bags */
  const int64_t *offsets; /* device [n + 1] */
  const int64_t *on_host; /* the same on the host; NULL unless TrsSequenceReadsOffsets() */
  const float *rows;      /* device */
  float *grads;           /* device; NULL without a backward */
} TrsBagRows;

/* Does the layer of this pooling read the offsets of bags on the host? Not collective. */
PetscBool TrsSequenceReadsOffsets(TrsSequencePoolingKind pooling);

PetscErrorCode TrsDlrmCreate(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsDlrm *dlrm);

/*
  Read trs_model_options. The options must live as long as the model, because messages name them.
  Errors: OPTION.
*/
PetscErrorCode TrsDlrmSetFromOptions(TrsDlrm dlrm, TrsOptions options);

/*
  Announce that there will be no backward. The model then has no memory for gradients; do not call
  Backward*() or EmbeddingGrads. Call it before SetUp.
*/
PetscErrorCode TrsDlrmSetForwardOnly(TrsDlrm dlrm);

/*
  Make all sums over samples by the program's own kernels, in an order that the shape alone defines,
  for -reproducible. The library of the products states no order of its sums. Call it before SetUp.
*/
void TrsDlrmSetOwnSums(TrsDlrm dlrm);

/*
  Announce that the caller takes X and its gradient in the type that products want, where the model
  can give it. Call it before SetUp.
*/
void TrsDlrmSetTypedRows(TrsDlrm dlrm);

/*
  Announce that the caller will place X for every forward (TrsDlrmPlaceRows). The model then has no
  memory for it, and TrsDlrmEmbeddings() and EmbeddingGrads() give no places. Call it before SetUp.
*/
void TrsDlrmSetRowsElsewhere(TrsDlrm dlrm);

/*
  Announce that before every forward the caller can say where each embedding lies
  (TrsDlrmPlaceVectors), and wants the gradients in the embeddings' places. Where the model can do
  so, TrsDlrmTakesVectors() is true after SetUp; X then has no memory before TrsDlrmMakeRows(). Call
  it before SetUp.
*/
void TrsDlrmSetVectorsAnywhere(TrsDlrm dlrm);
PetscBool TrsDlrmTakesVectors(TrsDlrm dlrm);

/* After CountParameters: would it be true? Not collective. */
PetscBool TrsDlrmMayTakeVectors(TrsDlrm dlrm);

/*
  Make X with `width` columns, for embeddings that the caller has nowhere else. Its gradient takes
  its place, and the caller says which columns are whose. Call it after SetUp, at most once. Errors:
  MEMORY
*/
PetscErrorCode TrsDlrmMakeRows(TrsDlrm dlrm, int64_t width);

/*
  Say where the embeddings [n_embeddings] of the next forward lie, and take their gradients until
  the end of its BackwardOver. In model order; copied. Not collective.
*/
void TrsDlrmPlaceVectors(TrsDlrm dlrm, const TrsVectorPlace *place);

/*
  Set the side of each embedding, a TrsTowerSide of model/two_tower.h, copied. The query's columns
  of X come first. Without this call all are the query's. Call it before SetUp.
*/
PetscErrorCode TrsDlrmSetSides(TrsDlrm dlrm, int n_embeddings, const int *side);

/*
  Announce that the caller computes the loss, and the gradient of the pairs (TrsDlrmPairs). A
  Forward then takes no labels, and BackwardOver begins with this gradient. Call it before SetUp.
*/
void TrsDlrmSetPairLoss(TrsDlrm dlrm);

/*
  TrsDlrmSetUp - Allocate parameters and activations, and initialise the parameters.

  Not collective; equal arguments give equal parameters on every rank.

  In:     num_dense      dense features of a sample; 0: there is no dense arch
          n_embeddings   pooled vectors of a sample, in model order
          dims           [n_embeddings] their widths
          max_batch      samples of this rank's largest batch
          seed           of the initial parameters and of the layers' random numbers
  Errors: OPTION if dims differ from each other, or from -dense_arch's last size, under dot or dcn;
          OPTION if -over_arch has less than 2 layers or does not end in 1; MEMORY
  Source: src/RULES.md, rules A2 to A5 and A21
*/
PetscErrorCode TrsDlrmSetUp(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims, int64_t max_batch,
                            uint64_t seed);

/*
  In place of SetUp: the number of parameters that it would make, without a check of widths. Errors:
  MEMORY
*/
PetscErrorCode TrsDlrmCountParameters(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims,
                                      int64_t *n);

/*
  TrsDlrmAddPositionWeights - Add the weights of a feature's ids by their places, as a dense
  parameter position_weights/<feature>/weight that starts with ones.

  Call it before SetUp, in the order in which the lookups get the features. Not collective.

  In: length   [1, 2^24] entries
      feature  its name, copied
*/
PetscErrorCode TrsDlrmAddPositionWeights(TrsDlrm dlrm, const char *feature, int64_t length);

/*
  The i-th position weights and their gradient, [length]. Call after SetUp. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmPositionWeights(TrsDlrm dlrm, int i, const float **weight, float **grad);

/*
  Announce that the gradients of the position weights are complete. The lookups' backward computes
  them, and they are the last ones of a step. Call it in every step, after BackwardDense.
*/
PetscErrorCode TrsDlrmPositionGradientsReady(TrsDlrm dlrm);

/*
  TrsDlrmAddSequence - Add the layer that pools the rows of a sequence table's k-th feature
    (sequence_pooling), with parameters sequence/<feature>/<part>.

  Call it before SetUp, in the order of the model's vectors. Not collective.

  In: table   borrowed until Destroy
      vector  place of the layer's output among the model's vectors
      target  place of the vector that the layer compares the rows with; -1: it takes none
*/
PetscErrorCode TrsDlrmAddSequence(TrsDlrm dlrm, const TrsTableConfig *table, int k, int vector, int target);

/*
  The bags [n] of the next forward's samples, one for each added sequence. Borrowed until the end of
  the backward. Not needed without sequences.
*/
void TrsDlrmSetBags(TrsDlrm dlrm, const TrsBagRows *bags);

/*
  The places of the embeddings: embedding f of sample b goes to column columns[f] of row b. X is of
  floats, or after TrsDlrmSetTypedRows() may have the type that products want. Borrowed until
  Destroy.
*/
PetscErrorCode TrsDlrmEmbeddings(TrsDlrm dlrm, TrsMatrix *x, const int64_t **columns);

/*
  The gradient of the embeddings, in the layout of TrsDlrmEmbeddings(). It is ready after
  BackwardOver, and the caller may change it. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmEmbeddingGrads(TrsDlrm dlrm, TrsMatrix *dx, const int64_t **columns);

/*
  Let X and its gradient lie in the caller's memory, in their layouts, until the next call: from a
  ForwardDense to the end of its backward they are read and written there. The two must not
  overlap. dx may be NULL if there is no backward. Not collective.
*/
void TrsDlrmPlaceRows(TrsDlrm dlrm, float *x, float *dx);

/*
  Lend memory for data that is sent to other ranks: embeddings on their way to X, and their
  gradients. The model does not need this memory before a Forward and after a BackwardOver. Lent
  until Destroy, for these times only.
*/
void TrsDlrmLend(TrsDlrm dlrm, void **memory, int64_t *bytes);

/*
  Say what the random numbers of the next forward and its backward belong to.

  Not collective. Layers that draw numbers (dropout) are off until this is called with training.

  In: training  false: layers draw none, as in an evaluation
      step      of the training
      first     place of the first sample in the epoch's order, whatever rank has it
*/
void TrsDlrmDraw(TrsDlrm dlrm, PetscBool training, int64_t step, int64_t first);

/*
  Let forwards and backwards read step, first and the loss' scale from device memory, in place of
  TrsDlrmDraw's and TrsDlrmForward's. Borrowed. NULL: as before.
*/
void TrsDlrmSetNumbers(TrsDlrm dlrm, const TrsBatchNumbers *now);

/*
  Make the copies of the weights that products read, if products want another type than fp32. Call
  it on the stream of the forwards that follow, after all that may have changed the weights: once
  a batch. Not collective.
*/
PetscErrorCode TrsDlrmRefresh(TrsDlrm dlrm, TrsStream stream);

/*
  Run the dense arch on n samples, dense [n, num_dense]. The output goes to the first columns of X.
*/
PetscErrorCode TrsDlrmForwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  TrsDlrmForward - Compute the sequences' layers, interaction, heads, and the losses of the tasks
  with their gradient.

  In:     labels       [n, tasks]; NULL: predictions only. With -tasks NaN is a missing label
          weights      [n] of the samples in the loss; NULL: 1
          scale        factor of the loss' gradient: 1 over the weights of the global batch
  Out:    loss_sums    [tasks] weighted sums over the n samples (not divided, and without the tasks'
                       weights), valid when the stream has done this work; unchanged without labels
          predictions  [n, columns of all tasks], borrowed until the next Forward; NULL: they are
                       not computed
*/
PetscErrorCode TrsDlrmForward(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *labels,
                              const float *weights, float scale, double *loss_sums,
                              const float **predictions);

/* The outputs of two towers, of the samples of the last Forward. */
typedef struct {
  const float *out;      /* [n, 2 D] a query's embedding, then its candidate's */
  float *dout;           /* [n, 2 D] their gradient, until BackwardOver */
  int64_t width, stride; /* D; floats from row to row */
} TrsPairs;

/*
  The towers' outputs, after SetFromOptions their width alone. D is 0 under an interaction that has
  no towers. Borrowed until Destroy; dout may be written from a Forward on.
*/
TrsPairs TrsDlrmPairs(TrsDlrm dlrm);

/* The tasks of the model, set by SetFromOptions. Borrowed until Destroy. */
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
  Register `ready`, which is called as soon as the gradients [begin, end) of the flat array are
  complete. The ranges come in order, without gaps, and cover the array once a step. BackwardOver
  and BackwardDense call it on the caller's thread.
*/
PetscErrorCode TrsDlrmSetGradientReady(TrsDlrm dlrm,
                                       PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end),
                                       void *ctx);

/*
  The parameters, in the order in which their gradients become ready, and the flat arrays [n_values]
  of their values and gradients. Padding between parameters is zero and stays zero. Any pointer may
  be NULL. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmParameters(TrsDlrm dlrm, int *n, const TrsDenseParameter **params, float **values,
                                 float **grads, int64_t *n_values);

/*
  Add dense/<name> for every parameter, replicated, in the order of layers. With `averaged` the
  parameters are the averages of a training's weights, dense_optimizer/<name>/ema.
*/
PetscErrorCode TrsDlrmAddState(TrsDlrm dlrm, PetscBool averaged, TrsState *state);

/*
  Add dense_optimizer/<name>/<state> of an optimizer that was set up on this model's values. The
  tensors are replicated, and optional in the file.
*/
PetscErrorCode TrsDlrmAddOptimizerState(TrsDlrm dlrm, TrsDenseOptimizer optimizer, TrsState *state);

/* A sample's forward, and the bytes of all parameters. */
typedef struct {
  double flops; /* operations */
  double bytes; /* read and written, without those of parameters */
  double parameter_bytes;
  /* Dot products of a sample's vectors, and what of the operations and bytes is theirs. */
  double pairs, pair_flops, pair_bytes;
} TrsDlrmWork;

/* The work of the model's layers, after SetUp. A backward has about twice the forward's. */
TrsDlrmWork TrsDlrmWorkOf(TrsDlrm dlrm);

/*
  Describe the layers on rank 0 of comm, with one line for each part, for the banner. Logically
  collective.
*/
PetscErrorCode TrsDlrmView(TrsDlrm dlrm, MPI_Comm comm);

PetscErrorCode TrsDlrmDestroy(TrsDlrm *dlrm);
