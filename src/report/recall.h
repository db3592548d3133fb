/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Recall@K of two towers in evaluations (-eval_recall_at). It is the share of queries in the
  evaluation data whose candidate is among the K distinct candidates with the highest scores. All
  scores are computed, so the numbers are exact.

  Each rank needs memory for both embeddings of its samples, and for the embeddings of all
  candidates.
  Source: src/RULES.md, section 20
*/
#pragma once

#include "io/results.h"
#include "session/session.h"

typedef struct {
  int n;             /* number of values of K; 0: recall is not measured */
  const int64_t *at; /* [n] values of K; borrowed from the options */
  TrsModelParallel model;
  int feature;                  /* index of the feature whose id identifies a candidate */
  int64_t D;                    /* number of columns of an embedding */
  int64_t n_rows;               /* number of samples so far */
  TrsBuffer query, candidate;   /* float [n_rows, D] */
  TrsBuffer id, sample, weight; /* int64, int64, float [n_rows] */
} TrsRecall;

extern const TrsOptionGroup trs_recall_options; /* -eval_recall_at */

/*
  TrsRecallOpen - Read -eval_recall_at, and make the model keep its embeddings. Not collective.

  In:     session  must be built
  Out:    recall   free with TrsRecallFree(); n is 0 without the option
  Errors: OPTION for a model without towers; DATA for data without labels
*/
PetscErrorCode TrsRecallOpen(const TrsSession *session, TrsRecall *recall);
PetscErrorCode TrsRecallFree(TrsRecall *recall);

/*
  Add a batch of this rank. The function is a TrsBatchObserver whose context is the TrsRecall. Not
  collective.
*/
PetscErrorCode TrsRecallAdd(void *context, const TrsBatch *batch, const float *predictions,
                            const double *losses, double seconds);

/*
  Compute the recall over all ranks' samples, print and record it, and clear the samples. If no
  query has a weight, the numbers are NaN. The row of /eval/step must exist. The numbers are equal
  bit for bit for any number of ranks. Collective on comm.
*/
PetscErrorCode TrsRecallReport(TrsRecall *recall, MPI_Comm comm, TrsResults results);
