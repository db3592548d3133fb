/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A training starts from the newest checkpoint with -resume, from the (possibly partial) weights of
  -init_from, or from initial values.

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
  char *model;       /* model options of -init_from; NULL if the file has none */
  PetscBool resumed; /* an interrupted training continues */
} TrsStartPoint;

/*
  TrsStartFind - Find the checkpoint to start from.

  Collective on comm. Call this before the session is opened: a resumed training takes the options
  of the checkpoint's model, which the user's options override (TrsCheckpointModelTake()).

  In:     checkpoint_dir  folder for -resume, or NULL
  Errors (agreed): OPTION; those of TrsCheckpointFolderFindNewest(), TrsCheckpointModelTake() and
          TrsCheckpointModel()
*/
PetscErrorCode TrsStartFind(MPI_Comm comm, TrsOptions options, const char *checkpoint_dir,
                            TrsStartPoint *start);
PetscErrorCode TrsStartFree(TrsStartPoint *start);

/*
  TrsStartStateLoad - Fill the session's state, and print on rank 0 the origin of each part.

  Collective. If -init_from may lack tensors, the tables first get their initial values, at the cost
  of one more write. A line is printed for each tensor of the file that the model lacks, and for
  each model option that differs; they have no effect. If the default order of the tables differs
  from the checkpoint's, it is an error: the dense layers read their vectors in that order.

  In:     from     as TrsStartFind() found it
          results  if weights may be partial, gets the number of tensors that kept their initial
                   values and the number left out
  Out:    info     updates and samples that the weights have seen; all zero for initial weights.
                   Free with TrsCheckpointInfoFree()
  Errors (agreed): OPTION; those of TrsCheckpointReadWanted()
*/
PetscErrorCode TrsStartStateLoad(TrsSession *session, const TrsStartPoint *from, TrsResults results,
                                 TrsCheckpointInfo *info);
