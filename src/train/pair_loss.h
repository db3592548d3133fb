/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The two-tower loss over the whole global batch (-loss in_batch_softmax, sampled_softmax): each
  query is compared with the candidates of all ranks' samples, or with some of them.

  One all-gather brings all pairs' embeddings to all ranks. A rank computes the losses and gradients
  of its own queries, and the ranks gather the logs of the queries' sums. Then a rank computes the
  gradients of its own candidates over all queries. These equal the sums that a reduce-scatter of
  the candidates' gradients would give, for the same number of bytes, and one rank adds up each sum.

  Scores are computed in tiles of TRS_BLOCK_SAMPLES rows. With -reproducible a tile is a sample
  block, so that its bits do not depend on the ranks.

  Source: Yi et al. 2019; TorchRec's retrieval example; src/RULES.md, section 20
*/
#pragma once

#include "comm/comm.h"
#include "compute/pair_softmax.h"
#include "data/reader.h"
#include "model/dlrm.h"

typedef struct TrsPairLossImpl *TrsPairLoss;

extern const TrsOptionGroup trs_pair_loss_options; /* -loss, -softmax_temperature ... */

/*
  TrsPairLossCreate - Read the options, and create the loss if it needs more than one pair at a
  time.

  Not collective. The model must have read its options and must not be set up.

  In:     comm        all ranks, borrowed
          seed        seed for drawing negatives
          tables      tables whose features have the candidates' ids
  Out:    loss        NULL with -loss bce
  Errors: OPTION for a loss without towers, for a -candidate_id that is no feature or whose table is
          split
*/
PetscErrorCode TrsPairLossCreate(TrsComm comm, TrsOptions options, TrsDlrm dlrm,
                                 const TrsTableConfigs *tables, uint64_t seed, TrsPairLoss *loss);

/* Add a training's estimated candidate frequencies, if there are any. Not collective. */
PetscErrorCode TrsPairLossAddState(TrsPairLoss loss, TrsState *state);
PetscErrorCode TrsPairLossDestroy(TrsPairLoss *loss);

/*
  Find the feature whose id identifies a candidate, -candidate_id: its index among the features of
  all tables. Not collective. Errors: OPTION
*/
PetscErrorCode TrsPairCandidate(TrsOptions options, const TrsTableConfigs *tables, int *feature,
                                const char **name);

/* List the pairs of a batch that has labels [B]. Borrowed until the next call. Not collective. */
PetscErrorCode TrsPairLossPairs(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch,
                                const TrsPair **pairs);

/* A rank's rows in the global batch. */
typedef struct {
  const int64_t *first; /* [W + 1] first row of each rank, then the number of rows */
  const float *out;     /* [n, 2 D] own rows, without gaps */
  const TrsPair *pair;  /* [n] */
  float scale;          /* factor of the gradients: 1 / (sum of the global batch's weights) */
  int64_t step;         /* training step */
  PetscBool backward;   /* on all ranks; false: not a training step */
} TrsPairRows;

/*
  TrsPairLossRun - Compute the losses of own queries and the gradients of own rows.

  Collective.

  In:    stride  from the loss of a tile to the loss of the next tile
  InOut: losses  [tiles] in device memory: the sum over each tile's rows is added
  Out:   dout    [n, 2 D]; unused without a backward. In that case all candidates are used, without
                 correction
*/
PetscErrorCode TrsPairLossRun(TrsPairLoss loss, TrsStream stream, const TrsPairRows *rows, double *losses,
                              int stride, float *dout);

/*
  Run TrsPairLossRun() with ranks that keep their own samples: out [B, 2 D]. When the stream has
  reached this point, *sum, in host memory, is the sum of own losses. Collective.
*/
PetscErrorCode TrsPairLossByRanks(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch, const float *out,
                                  float scale, double *sum, float *dout);

/* Print the loss and its cost on rank 0 of comm. Logically collective. */
PetscErrorCode TrsPairLossView(TrsPairLoss loss, int64_t global_batch, MPI_Comm comm);
