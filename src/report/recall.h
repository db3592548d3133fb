/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Recall@K of two towers in evaluations (-eval_recall_at): for each query of the evaluation data, is
  its candidate among the K of highest score of all distinct candidates? All scores are computed, so
  the numbers are exact.

  Memory of a rank: both embeddings of its samples, and those of all candidates.
  Source: src/RULES.md, section 20
*/
#pragma once

#include "io/results.h"
#include "session/session.h"

typedef struct {
  int n;             /* values of K; 0: nothing is measured */
  const int64_t *at; /* [n] borrowed from the options */
  TrsModelParallel model;
  int feature;                  /* whose id names a candidate */
  int64_t D;                    /* columns of an embedding */
  int64_t n_rows;               /* samples so far */
  TrsBuffer query, candidate;   /* float [n_rows, D] */
  TrsBuffer id, sample, weight; /* int64, int64, float [n_rows] */
} TrsRecall;

extern const TrsOptionGroup trs_recall_options; /* -eval_recall_at */

/*
  TrsRecallOpen - Read the option, and let the model keep what is needed. Not collective.

  In:     session  built
  Out:    recall   free with TrsRecallFree(); n is 0 without the option
  Errors: OPTION for a model without towers; DATA for data without labels
*/
PetscErrorCode TrsRecallOpen(const TrsSession *session, TrsRecall *recall);
PetscErrorCode TrsRecallFree(TrsRecall *recall);

/* Add a batch of this rank's, a TrsBatchObserver whose context is the TrsRecall. Not collective. */
PetscErrorCode TrsRecallAdd(void *context, const TrsBatch *batch, const float *predictions,
                            const double *losses, double seconds);

/*
  Compute the numbers over all ranks' samples, print them, put them into the results, and forget the
  samples. The row of /eval/step is there already. The bits do not depend on the ranks. Collective
  on comm.
*/
PetscErrorCode TrsRecallReport(TrsRecall *recall, MPI_Comm comm, TrsResults results);
