/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -task predict can write the pooled embeddings of features next to the predictions. They serve
  retrieval and analysis.

  Source: TorchRec KeyedTensor, whose keys are the features of the EmbeddingBagCollection
*/
#pragma once

#include "io/results.h"
#include "model/two_tower.h"
#include "session/session.h"

/* the options -predict_embeddings and -predict_towers */
extern const TrsOptionGroup trs_predict_options;

typedef struct {
  int n;                      /* number of features whose embeddings are written */
  const char *const *feature; /* [n] names of these features, borrowed from the options */
  /* [n] the feature's index among all tables' features, and its number of columns */
  int *place, *width;
  char **path;                  /* [n] paths of the features' arrays in -output */
  TrsBuffer rows;               /* the rows of one feature for a batch */
  PetscBool tower[TRS_N_SIDES]; /* true: the outputs of this tower are written */
  /* index of the feature with the candidates' ids; -1 if there is none */
  int candidate;
} TrsPredictEmbeddings;

/*
  TrsPredictEmbeddingsOpen - Read and check -predict_embeddings. Not collective; the result is the
    same on all ranks.

  In:     session     must be open, so that its tables exist
  Out:    embeddings  n is 0 without the option. Free with TrsPredictEmbeddingsFree()
  Errors: OPTION without -output, and for a feature that the model lacks, that is listed twice, or
          that belongs to a sequence table, which has no pooled embedding
*/
PetscErrorCode TrsPredictEmbeddingsOpen(const TrsSession *session, TrsPredictEmbeddings *embeddings);

/*
  Make the model keep the embeddings and tower outputs that will be written. Not collective. Errors:
  OPTION for towers that the model lacks
*/
PetscErrorCode TrsPredictEmbeddingsKeep(TrsPredictEmbeddings *embeddings, const TrsSession *session);
PetscErrorCode TrsPredictEmbeddingsFree(TrsPredictEmbeddings *embeddings);

/*
  Add a batch's rows to the results, as /embeddings/<feature> and /towers/<side>, and the
  candidates' ids as /towers/candidate_id. The model must
  have kept them (TrsPredictEmbeddingsKeep()). Collective on the results' communicator, even if a
  rank fails. Errors: those of TrsResultsAddRows().
*/
PetscErrorCode TrsPredictEmbeddingsAdd(TrsPredictEmbeddings *embeddings, TrsModelParallel model,
                                       const TrsBatch *batch, int64_t n_total, TrsResults results);
