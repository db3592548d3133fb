/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a training starts from: its newest checkpoint under -resume, the weights of -init_from, of which part may do, or the initial values.
  Source: TorchRec DistributedModelParallel.load_state_dict (torchrec.distributed.model_parallel), strict or not.
*/
#pragma once

#include "io/results.h"
#include "run/session.h"

extern const TrsOptionGroup trs_start_options; /* -init_from_missing -init_from_tables -init_from_rows */

/*
  TrsStartStateLoad - Fill the session's state, and say on rank 0 what came from where.

  Collective. Where -init_from may lack something the tables get their initial values first, once more than they need be written. What the file has
  and the model has not is named and left out.

  In:     checkpoint_dir  of -resume; NULL: none
          results         gets how many tensors kept their initial values and how many were left out, where less than all may do
  Out:    start    what the weights have seen; all zero for initial ones. Free with TrsCheckpointInfoFree()
          resumed  the checkpoint that the training goes on from, free with PetscFree(); NULL: it begins
  Errors (agreed): OPTION; those of TrsCheckpointReadWanted()
*/
PetscErrorCode TrsStartStateLoad(TrsSession *session, const char *checkpoint_dir, TrsResults results,
                                 TrsCheckpointInfo *start, char **resumed);
