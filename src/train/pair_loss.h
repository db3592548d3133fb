/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The loss of two towers over the whole global batch (-loss in_batch_softmax, sampled_softmax): each
  query is told from the candidates of all ranks' samples, or from some of them.

  All ranks get all pairs' embeddings in one all-gather. A rank computes losses and gradients of its
  own queries, and the ranks gather the logs of their sums. Then a rank computes the gradients of
  its own candidates among all queries. These are the sums that a reduce-scatter of the candidates'
  gradients would give, with as many bytes, and each is added up in one place.

  The scores are made TRS_BLOCK_SAMPLES rows at a time. With -reproducible such a tile is a sample
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
  TrsPairLossCreate - Read the options, and make the loss if it is not that of each pair alone.

  Not collective. The model must have its options, but must not be set up.

  In:     comm        all ranks, borrowed
          seed        of the draws of negatives
          tables      whose features have the candidates' ids
  Out:    loss        NULL with -loss bce
  Errors: OPTION for a loss without towers, for a -candidate_id that is no feature or whose table is
          split
*/
PetscErrorCode TrsPairLossCreate(TrsComm comm, TrsOptions options, TrsDlrm dlrm,
                                 const TrsTableConfigs *tables, uint64_t seed, TrsPairLoss *loss);

/* Add a training's estimated frequencies of candidates, if there are any. Not collective. */
PetscErrorCode TrsPairLossAddState(TrsPairLoss loss, TrsState *state);
PetscErrorCode TrsPairLossDestroy(TrsPairLoss *loss);

/*
  Find the feature whose id names a candidate, -candidate_id: its place among the features of all
  tables. Not collective. Errors: OPTION
*/
PetscErrorCode TrsPairCandidate(TrsOptions options, const TrsTableConfigs *tables, int *feature,
                                const char **name);

/* List the pairs of a batch with labels [B]. Borrowed until the next call. Not collective. */
PetscErrorCode TrsPairLossPairs(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch,
                                const TrsPair **pairs);

/* The rows of a rank in the global batch. */
typedef struct {
  const int64_t *first; /* [W + 1] first row of each rank, then the number of rows */
  const float *out;     /* [n, 2 D] own rows, without gaps */
  const TrsPair *pair;  /* [n] */
  float scale;          /* of the gradients: 1 over the weights of the global batch */
  int64_t step;         /* of the training */
  PetscBool backward;   /* on all ranks; else this is no step of a training */
} TrsPairRows;

/*
  TrsPairLossRun - The losses of own queries, and the gradients of own rows.

  Collective.

  In:    stride  from the loss of a tile's rows to that of the next tile's
  InOut: losses  [tiles] (in the device's memory): the sum over the rows of each is added
  Out:   dout    [n, 2 D]; not used without a backward. Then all candidates take part, uncorrected
*/
PetscErrorCode TrsPairLossRun(TrsPairLoss loss, TrsStream stream, const TrsPairRows *rows, double *losses,
                              int stride, float *dout);

/*
  TrsPairLossRun() where ranks keep their own samples: out [B, 2 D]. *sum, in memory of the host, is
  that of own losses when the stream has come here. Collective.
*/
PetscErrorCode TrsPairLossByRanks(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch, const float *out,
                                  float scale, double *sum, float *dout);

/* Print what the loss is and what it costs on rank 0 of comm. Logically collective. */
PetscErrorCode TrsPairLossView(TrsPairLoss loss, int64_t global_batch, MPI_Comm comm);
