/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A training starts from its newest checkpoint under -resume, from the weights of -init_from, which
  may be partial, or from initial values.

  Source: TorchRec DistributedModelParallel.load_state_dict (torchrec.distributed.model_parallel),
          strict or not
*/
#pragma once

#include "io/results.h"
#include "run/session.h"

/* -init_from_missing -init_from_tables -init_from_rows */
extern const TrsOptionGroup trs_start_options;

/*
  TrsStartStateLoad - Fill the session's state, and print on rank 0 which parts came from where.

  Collective. If -init_from may lack something, the tables get their initial values first, at the
  cost of one more write. Tensors of the file that the model lacks are named and left out.

  In:     checkpoint_dir  of -resume, or NULL
          results         if a part may do, gets the number of tensors that kept their initial
                          values and the number left out
  Out:    start    updates and samples that the weights have seen; all zero for initial weights.
                   Free with TrsCheckpointInfoFree()
          resumed  the checkpoint that the training goes on from, free with PetscFree(); NULL for a
                   new training
  Errors (agreed): OPTION; those of TrsCheckpointReadWanted()
*/
PetscErrorCode TrsStartStateLoad(TrsSession *session, const char *checkpoint_dir, TrsResults results,
                                 TrsCheckpointInfo *start, char **resumed);
