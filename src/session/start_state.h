/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Starts a training. With -resume it starts from the newest checkpoint, with -init_from from given
  and possibly incomplete weights, and otherwise from initial values.

  Source: TorchRec DistributedModelParallel.load_state_dict (torchrec.distributed.model_parallel),
          strict or not
*/
#pragma once

#include "io/results.h"
#include "session/session.h"

/* the options -init_from_missing, -init_from_tables and -init_from_rows */
extern const TrsOptionGroup trs_start_options;

/* The checkpoint to start from. All fields are zero for initial weights. */
typedef struct {
  char *path;
  char *model;       /* the model's options in the file of -init_from; NULL if the file has none */
  PetscBool resumed; /* true: an interrupted training continues */
} TrsStartPoint;

/*
  TrsStartFind - Find the checkpoint to start from.

  Collective on comm. Must be called before the session is opened, because a resumed training takes
  options from the checkpoint's model (TrsCheckpointModelTake()). The user's options override them.

  In:     checkpoint_dir  folder for -resume, or NULL
  Errors (agreed): OPTION; those of TrsCheckpointFolderFindNewest(), TrsCheckpointModelTake() and
          TrsCheckpointModel()
*/
PetscErrorCode TrsStartFind(MPI_Comm comm, TrsOptions options, const char *checkpoint_dir,
                            TrsStartPoint *start);
PetscErrorCode TrsStartFree(TrsStartPoint *start);

/*
  TrsStartStateLoad - Fill the session's state. Rank 0 prints where each part comes from.

  Collective. If the file of -init_from may lack tensors, the tables first get their initial values,
  which writes them once more. A line is printed for each tensor of the file that the model lacks,
  and for each model option that differs. These tensors and options of the file have no effect. It
  is an error if the default order of the tables differs from the order in the checkpoint, because
  the dense layers read the tables' vectors in this order.

  In:     from     the result of TrsStartFind()
          results  if weights may be incomplete, gets the number of tensors that kept their initial
                   values, and the number of tensors that were left out
  Out:    info     numbers of updates and samples that the weights have seen; all zero for initial
                   weights. Free with TrsCheckpointInfoFree()
  Errors (agreed): OPTION; those of TrsCheckpointReadWanted()
*/
PetscErrorCode TrsStartStateLoad(TrsSession *session, const TrsStartPoint *from, TrsResults results,
                                 TrsCheckpointInfo *info);
