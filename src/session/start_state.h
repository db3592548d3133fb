/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A training starts from its newest checkpoint under -resume, from the weights of -init_from, which
  may be partial, or from initial values.

  Source: TorchRec DistributedModelParallel.load_state_dict (torchrec.distributed.model_parallel),
          strict or not
*/
#pragma once

#include "io/results.h"
#include "session/session.h"

/* -init_from_missing -init_from_tables -init_from_rows */
extern const TrsOptionGroup trs_start_options;

/* The checkpoint to start from. All fields are zero for initial weights. */
typedef struct {
  char *path;
  char *model;       /* of -init_from: the options of its model; NULL if the file has none */
  PetscBool resumed; /* the training goes on */
} TrsStartPoint;

/*
  TrsStartFind - Find the checkpoint to start from.

  Collective on comm. Call this before the session is opened: the model of a training that goes on
  is the checkpoint's, whose options stand below the user's (TrsCheckpointModelTake()).

  In:     checkpoint_dir  of -resume, or NULL
  Errors (agreed): OPTION; those of TrsCheckpointFolderFindNewest(), TrsCheckpointModelTake() and
          TrsCheckpointModel()
*/
PetscErrorCode TrsStartFind(MPI_Comm comm, TrsOptions options, const char *checkpoint_dir,
                            TrsStartPoint *start);
PetscErrorCode TrsStartFree(TrsStartPoint *start);

/*
  TrsStartStateLoad - Fill the session's state, and print on rank 0 which parts came from where.

  Collective. If -init_from may lack something, the tables get their initial values first, at the
  cost of one more write. Tensors of the file that the model lacks are named and left out, and so
  are options of its model that differ. Another order of the tables, which the user did not ask for,
  is an error: the dense layers read their vectors in that order.

  In:     from     as TrsStartFind() found it
          results  if a part may do, gets the number of tensors that kept their initial values and
                   the number left out
  Out:    info     updates and samples that the weights have seen; all zero for initial weights.
                   Free with TrsCheckpointInfoFree()
  Errors (agreed): OPTION; those of TrsCheckpointReadWanted()
*/
PetscErrorCode TrsStartStateLoad(TrsSession *session, const TrsStartPoint *from, TrsResults results,
                                 TrsCheckpointInfo *info);
