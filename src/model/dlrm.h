/* SPDX-License-Identifier: BSD-3-Clause */
/*
  DLRM: dense arch, interaction, over arch and loss of one rank's samples; the embeddings come from outside (shard/).

  The interaction's input X [max_batch, stride] is one matrix: the dense arch writes its first columns, the output dist of the embeddings
  writes the rest, so that nothing is copied in between. A step runs ForwardDense (while embeddings travel), Forward, BackwardOver,
  then BackwardDense (while gradients of embeddings travel). After SetUp nothing is allocated. n may be 0: a rank without samples takes
  part with zero gradients. Nothing here is collective; all work is ordered on the stream that is passed.
  Source: torchrec.models.dlrm (DLRM, DLRM_DCN, DenseArch, InteractionArch, InteractionDCNArch, OverArch)
*/
#pragma once

#include "compute/compute_ops.h"
#include "core/options.h"
#include "io/state.h"
#include "optim/dense_optimizer.h"

typedef struct TrsDlrmImpl *TrsDlrm;

extern const TrsOptionGroup trs_model_options;

/* One dense parameter; its values and gradient lie inside the model's flat arrays. */
typedef struct {
  const char *name;    /* "dense_arch/0/weight", "over_arch/1/bias", "crossnet/0/W" */
  int64_t rows, cols;  /* a bias has rows = N, cols = 1 */
  int ndim;            /* 1 or 2 */
  int64_t stride;      /* floats from row to row: cols, or more, then with zeros behind them */
  float *value, *grad; /* [rows, stride] device memory */
} TrsDenseParameter;

PetscErrorCode TrsDlrmCreate(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsDlrm *dlrm);

/* Read trs_model_options. The options must live as long as the model: messages name them. Errors: OPTION */
PetscErrorCode TrsDlrmSetFromOptions(TrsDlrm dlrm, TrsOptions options);

/* There will be no backward: no memory for gradients, and no Backward*() or EmbeddingGrads. Before SetUp. */
PetscErrorCode TrsDlrmSetForwardOnly(TrsDlrm dlrm);

/*
  TrsDlrmSetUp - Allocate parameters and activations, and initialise the parameters.

  Not collective; equal arguments give equal parameters on every rank.

  In:     num_dense      dense features of a sample; 0: there is no dense arch
          n_embeddings   pooled vectors of a sample, in model order
          dims           [n_embeddings] their widths
          max_batch      samples of this rank's largest batch
          seed           of the initial parameters
  Errors: OPTION when dims differ under dot or dcn, or from -dense_arch's last size; -over_arch with
          less than 2 layers or not ending in 1; MEMORY
  Source: src/RULES.md, rules A2 to A5 and A21
*/
PetscErrorCode TrsDlrmSetUp(TrsDlrm dlrm, int num_dense, int n_embeddings, const int *dims, int64_t max_batch,
                            uint64_t seed);

/*
  TrsDlrmAddPositionWeights - Weights of a feature's ids by their place, from 1 on: dense parameter position_weights/<feature>/weight.

  Before SetUp, in the order in which the lookups are told of them. Not collective. In: length [1, 2^24] entries; feature  its name, copied
*/
PetscErrorCode TrsDlrmAddPositionWeights(TrsDlrm dlrm, const char *feature, int64_t length);

/* The i-th ones and their gradient, [length], after SetUp. Borrowed until Destroy. */
PetscErrorCode TrsDlrmPositionWeights(TrsDlrm dlrm, int i, const float **weight, float **grad);

/*
  The gradients of position weights, which the lookups' backward computes, are complete: the last ones of a step. Call it in any case, after
  BackwardDense.
*/
PetscErrorCode TrsDlrmPositionGradientsReady(TrsDlrm dlrm);

/* Where the embeddings go: number f of sample b to x + b*stride + columns[f]. Borrowed until Destroy. */
PetscErrorCode TrsDlrmEmbeddings(TrsDlrm dlrm, float **x, int64_t *stride, const int64_t **columns);

/* The gradient of the embeddings, in the same layout, ready after BackwardOver; the caller may change it. Borrowed until Destroy. */
PetscErrorCode TrsDlrmEmbeddingGrads(TrsDlrm dlrm, float **dx, int64_t *stride, const int64_t **columns);

/*
  Memory for what is sent to other ranks that the model does not need before a Forward and after a BackwardOver: for embeddings on their way to X, and for
  their gradients. Lent until Destroy, at those times.
*/
void TrsDlrmLend(TrsDlrm dlrm, void **memory, int64_t *bytes);

/* Dense arch of n samples, dense [n, num_dense], into the first columns of X. */
PetscErrorCode TrsDlrmForwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  TrsDlrmForward - Interaction, over arch, and the loss with its gradient.

  In:     labels       [n] in [0, 1]; NULL: predictions only
          weights      [n] of the samples in the loss; NULL: 1
          scale        1 over the weights of the global batch: factor of the loss' gradient
  Out:    loss_sum     weighted sum over the n samples (not divided), valid when the stream has come here; untouched without labels
          predictions  probabilities [n], borrowed until the next Forward; NULL: not wanted, not computed
*/
PetscErrorCode TrsDlrmForward(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *labels,
                              const float *weights, float scale, double *loss_sum, const float **predictions);

/* Backward of the over arch and the interaction, after a Forward with labels. Overwrites the gradients. */
PetscErrorCode TrsDlrmBackwardOver(TrsDlrm dlrm, TrsStream stream, int64_t n);

/* Backward of the dense arch, after BackwardOver. */
PetscErrorCode TrsDlrmBackwardDense(TrsDlrm dlrm, TrsStream stream, int64_t n, const float *dense);

/*
  Have `ready` called as soon as the gradients [begin, end) of the flat array are complete: ranges come in order, without gaps, and cover
  the array once a step. BackwardOver and BackwardDense call it on the caller's thread.
*/
PetscErrorCode TrsDlrmSetGradientReady(TrsDlrm dlrm,
                                       PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end),
                                       void *ctx);

/*
  The parameters, in the order in which their gradients become ready, and the flat arrays they lie in (both [n_values]).
  Padding between parameters is zero and stays so. Any pointer may be NULL. Borrowed until Destroy.
*/
PetscErrorCode TrsDlrmParameters(TrsDlrm dlrm, int *n, const TrsDenseParameter **params, float **values,
                                 float **grads, int64_t *n_values);

/* Add dense/<name> of every parameter, replicated, in the order of layers. */
PetscErrorCode TrsDlrmAddState(TrsDlrm dlrm, TrsState *state);

/* Add dense_optimizer/<name>/<state> of an optimizer set up on this model's values: replicated, optional in the file. */
PetscErrorCode TrsDlrmAddOptimizerState(TrsDlrm dlrm, TrsDenseOptimizer optimizer, TrsState *state);

/* Describe the layers on rank 0 of comm, one line each part, for the banner. Logically collective. */
PetscErrorCode TrsDlrmView(TrsDlrm dlrm, MPI_Comm comm);

PetscErrorCode TrsDlrmDestroy(TrsDlrm *dlrm);
