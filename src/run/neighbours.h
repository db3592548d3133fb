/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The nearest candidates of each query (-task predict with -predict_neighbours): an exact search
  over the outputs of a candidate tower, which an earlier run wrote.

  Each rank keeps the query tower's outputs of its samples. After the last batch, rank 0 reads the
  candidates block by block and sends each block to all ranks. So memory does not grow with the
  number of candidates, except for their ids on rank 0.
*/
#pragma once

#include "io/results.h"
#include "session/session.h"

/* the options -predict_neighbours and -predict_candidates */
extern const TrsOptionGroup trs_neighbours_options;

typedef struct {
  int64_t k;               /* number of candidates per query; 0 without the option */
  const char *path;        /* the file with the candidates; borrowed from the options */
  TrsCandidateRows source; /* open on rank 0 */
  /* number of the file's rows, of columns, and of distinct candidates */
  int64_t n_rows, D, n_kept;
  PetscBool has_ids;
  int64_t *id;     /* rank 0: [n_rows] ids of the candidates; NULL if the file has none */
  PetscBool *keep; /* rank 0: [n_rows] true for the first row of each id */
  TrsModelParallel model;
  TrsBuffer query;   /* [n_queries, D] */
  int64_t n_queries; /* this rank's samples so far */
  TrsBuffer batch;   /* [n_batches, 2] first sample and number of samples of each batch */
  int64_t n_batches;
} TrsNeighbours;

/*
  TrsNeighboursOpen - Read the options, and open the candidates.

  Collective. The session's model must exist.

  Out:    neighbours  k is 0 without the option. Free with TrsNeighboursFree(), also after an error
  Errors (agreed): OPTION, NO_INPUT; DATA also if the file has too few candidates, or rows of
          another width than the model's towers
*/
PetscErrorCode TrsNeighboursOpen(const TrsSession *session, TrsNeighbours *neighbours);
PetscErrorCode TrsNeighboursFree(TrsNeighbours *neighbours);

/* Keep the queries of a batch. Every rank must add the same number of batches. Not collective. */
PetscErrorCode TrsNeighboursAdd(TrsNeighbours *neighbours, const TrsBatch *batch);

/*
  Search, and add /neighbours to the results, in dataset order. Collective. Errors (agreed): DATA,
  MEMORY, and those of TrsResultsAddRows()
*/
PetscErrorCode TrsNeighboursFind(TrsNeighbours *neighbours, MPI_Comm comm, int64_t n_total,
                                 TrsResults results);
