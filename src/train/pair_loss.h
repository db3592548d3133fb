/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The two-tower loss over the whole global batch (-loss in_batch_softmax, sampled_softmax): each
  query is compared with all candidates in the batch, or with some of them.

  One all-gather brings all pairs' embeddings to all ranks. A rank computes the losses and gradients
  of its own queries, and the ranks gather the logs of the queries' sums. Then a rank computes the
  gradients of its own candidates over all queries. A reduce-scatter of the candidates' gradients
  would send the same number of bytes. Here one rank makes each sum.

  Scores are computed in tiles of TRS_BLOCK_SAMPLES rows. With -reproducible a tile is a sample
  block, so its results do not depend on the distribution over ranks.

  Source: Yi et al. 2019; TorchRec's retrieval example; src/RULES.md, section 20
*/
#pragma once

#include "comm/comm.h"
#include "compute/pair_softmax.h"
#include "data/reader.h"
#include "model/dlrm.h"

typedef struct TrsPairLossImpl *TrsPairLoss;

extern const TrsOptionGroup trs_pair_loss_options; /* the options -loss, -softmax_temperature ... */

/*
  TrsPairLossCreate - Read the options. If the loss compares several pairs, create it.

  Not collective. The model must have read its options and must not be set up.

  In:     comm        all ranks, borrowed
          seed        seed of the random numbers that draw negatives
          tables      tables whose features have the candidates' ids
  Out:    loss        NULL with -loss bce
  Errors: OPTION for a loss without towers, and for a -candidate_id that is not a feature or whose
          table is split
*/
PetscErrorCode TrsPairLossCreate(TrsComm comm, TrsOptions options, TrsDlrm dlrm,
                                 const TrsTableConfigs *tables, uint64_t seed, TrsPairLoss *loss);

/* If a training estimates the frequencies of candidates, add them to the state. Not collective. */
PetscErrorCode TrsPairLossAddState(TrsPairLoss loss, TrsState *state);
PetscErrorCode TrsPairLossDestroy(TrsPairLoss *loss);

/*
  Get the feature of -candidate_id, whose id identifies a candidate. *feature is its index among the
  features of all tables. Not collective. Errors: OPTION
*/
PetscErrorCode TrsPairCandidate(TrsOptions options, const TrsTableConfigs *tables, int *feature,
                                const char **name);

/* Make the pairs of a batch with labels [B]. Borrowed until the next call. Not collective. */
PetscErrorCode TrsPairLossPairs(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch,
                                const TrsPair **pairs);

/* The rows of this rank in the global batch. */
typedef struct {
  const int64_t *first; /* [W + 1] index of each rank's first row, then the number of all rows */
  const float *out;     /* [n, 2 D] this rank's rows, without gaps */
  const TrsPair *pair;  /* [n] */
  float scale;          /* factor of the gradients: 1 / (sum of the global batch's weights) */
  int64_t step;         /* training step */
  PetscBool backward;   /* the same on all ranks; false: this is not a training step */
} TrsPairRows;

/*
  TrsPairLossRun - Compute the losses of this rank's queries, and the gradients of this rank's rows.

  Collective.

  In:    stride  distance from the loss of a tile to the loss of the next tile
  InOut: losses  [tiles] in device memory; the sum over each tile's rows is added to them
  Out:   dout    [n, 2 D] the gradients; unused without a backward. Without a backward, all
                 candidates are used, without correction
*/
PetscErrorCode TrsPairLossRun(TrsPairLoss loss, TrsStream stream, const TrsPairRows *rows, double *losses,
                              int stride, float *dout);

/*
  Call TrsPairLossRun() for ranks that keep their own samples: out is [B, 2 D]. When the stream has
  done this work, *sum in host memory is the sum of this rank's losses. Collective.
*/
PetscErrorCode TrsPairLossByRanks(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch, const float *out,
                                  float scale, double *sum, float *dout);

/* Print the loss and its cost on rank 0 of comm. Logically collective. */
PetscErrorCode TrsPairLossView(TrsPairLoss loss, int64_t global_batch, MPI_Comm comm);
