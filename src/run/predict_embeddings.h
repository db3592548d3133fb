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
  int n;                        /* number of features to write */
  const char *const *feature;   /* [n] their names, borrowed from the options */
  int *place, *width;           /* [n] place among all tables' features; number of columns */
  char **path;                  /* [n] paths of their arrays in -output */
  TrsBuffer rows;               /* one feature's rows of a batch */
  PetscBool tower[TRS_N_SIDES]; /* the towers whose outputs to write */
} TrsPredictEmbeddings;

/*
  TrsPredictEmbeddingsOpen - Read and check the option. Not collective, the same on all ranks.

  In:     session     must be open, so that its tables exist
  Out:    embeddings  n is 0 without the option. Free with TrsPredictEmbeddingsFree()
  Errors: OPTION without -output, and for a feature that the model lacks, that is listed twice, or
          that belongs to a sequence table, which has no pooled embedding
*/
PetscErrorCode TrsPredictEmbeddingsOpen(const TrsSession *session, TrsPredictEmbeddings *embeddings);

/*
  Make the model keep the rows and outputs to write. Not collective. Errors: OPTION for towers that
  the model lacks
*/
PetscErrorCode TrsPredictEmbeddingsKeep(const TrsPredictEmbeddings *embeddings, const TrsSession *session);
PetscErrorCode TrsPredictEmbeddingsFree(TrsPredictEmbeddings *embeddings);

/*
  Add a batch's rows to the results as /embeddings/<feature> and /towers/<side>. The model must have
  kept them (TrsPredictEmbeddingsKeep()).
  Collective on the results' communicator, even if a rank fails. Errors: those of
  TrsResultsAddRows().
*/
PetscErrorCode TrsPredictEmbeddingsAdd(TrsPredictEmbeddings *embeddings, TrsModelParallel model,
                                       const TrsBatch *batch, int64_t n_total, TrsResults results);
