/* SPDX-License-Identifier: BSD-3-Clause */
/* Times of calls that compute the same result, to choose one of them. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

enum { TRS_TIMED_CALLS = 8 /* at most */ };

/* Enqueue call i once. *failed: set to true if this call is not possible. */
typedef PetscErrorCode TrsTimedCallFn(TrsStream stream, const void *context, int i, bool *failed);

/*
  Time n calls between events, in several rounds of all of them, and wait for the end. ms[i] is the
  time of call i in its fastest round, or negative if it failed; it is then not enqueued again. The
  first round does not count. It loads kernels, and its calls may time something themselves.
*/
PetscErrorCode TrsTimeCalls(TrsStream stream, int n, TrsTimedCallFn *call, const void *context, float *ms);
