/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -task predict can write the pooled embeddings of features beside the predictions, for retrieval
  and analysis.

  Source: TorchRec KeyedTensor, whose keys are the features of the EmbeddingBagCollection
*/
#pragma once

#include "io/results.h"
#include "model/two_tower.h"
#include "session/session.h"

/* -predict_embeddings, -predict_towers */
extern const TrsOptionGroup trs_predict_options;

typedef struct {
  int n;                        /* features that are written */
  const char *const *feature;   /* [n] their names, borrowed from the options */
  int *place, *width;           /* [n] place among all tables' features; columns */
  TrsBuffer rows;               /* a batch's rows of one feature */
  PetscBool tower[TRS_N_SIDES]; /* the towers whose outputs are written */
} TrsPredictEmbeddings;

/*
  TrsPredictEmbeddingsOpen - Read and check the option. Not collective, the same on all ranks.

  In:     session     opened: its tables are there
  Out:    embeddings  n is 0 without the option. Free with TrsPredictEmbeddingsFree()
  Errors: OPTION for a feature that the model lacks or that is listed twice, for one of a sequence
          table, which has no pooled embedding, and without -output
*/
PetscErrorCode TrsPredictEmbeddingsOpen(const TrsSession *session, TrsPredictEmbeddings *embeddings);

/*
  Let the model keep what will be written. Not collective. Errors: OPTION for towers that it lacks
*/
PetscErrorCode TrsPredictEmbeddingsKeep(const TrsPredictEmbeddings *embeddings, const TrsSession *session);
PetscErrorCode TrsPredictEmbeddingsFree(TrsPredictEmbeddings *embeddings);

/*
  Add a batch's rows to the results as /embeddings/<feature> and /towers/<side>. The model must keep
  what is written (TrsPredictEmbeddingsKeep()).
  Collective on the results' communicator, also if a rank fails. Errors: those of
  TrsResultsAddRows().
*/
PetscErrorCode TrsPredictEmbeddingsAdd(TrsPredictEmbeddings *embeddings, TrsModelParallel model,
                                       const TrsBatch *batch, int64_t n_total, TrsResults results);
