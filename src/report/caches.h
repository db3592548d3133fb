/* SPDX-License-Identifier: BSD-3-Clause */
/* The work of the caches of fused_uvm_caching, in a run's report. */
#pragma once

#include "io/results.h"
#include "session/session.h"

/*
  TrsReportCaches - Report every rank's caches: size, hits and ids without a line.

  Collective. Hits are given as a share of the distinct ids of a batch, and ids that found no line
  as a share of all ids. Evaluations during the training count, too. The function prints a line for
  each cache, up to a limit, and records all as /cache in the results. It does nothing without
  caches.
*/
PetscErrorCode TrsReportCaches(const TrsSession *session, TrsResults results);
