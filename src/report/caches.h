/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of a run's report about the caches of fused_uvm_caching. */
#pragma once

#include "io/results.h"
#include "session/session.h"

/*
  TrsReportCaches - Report every rank's caches: their size, their hits, and the ids that got no
    cache line.

  Collective. Hits are a share of the distinct ids of a batch. Ids without a cache line are a share
  of all ids. Evaluations during the training are included. The function prints one text line per
  cache, up to a limit, and records all caches as /cache in the results. Without caches it does
  nothing.
*/
PetscErrorCode TrsReportCaches(const TrsSession *session, TrsResults results);
