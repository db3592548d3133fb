/* SPDX-License-Identifier: BSD-3-Clause */
/* Does the plan fit what is free here and now? Asked before tables are allocated: the planner knows what a device has, not what others use of it. */
#pragma once

#include "run/session.h"

/*
  TrsMemoryCheck - Compare the tables and states that the ranks of each device are about to fill with what is free there.

  Collective on the session's communicator. Only what is certain counts: the rows of tables (cached ones: those in the cache), on a GPU their optimizer
  states too (a host makes pages of zeros when they are first used). Exchanges' and dense layers' buffers come on top; where those do not fit, the
  allocation tells.
  Ranks that share a device, or on CPUs the host's memory with its swap, are added up.

  In:     training, quantised  as for TrsSessionBuild()
  Errors: MEMORY on all ranks, naming host, ranks, what is wanted and free, and the options that help
*/
PetscErrorCode TrsMemoryCheck(const TrsSession *session, PetscBool training, PetscBool quantised);
