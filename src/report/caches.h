/* SPDX-License-Identifier: BSD-3-Clause */
/* The statistics of fused_uvm_caching's caches in a run's report. */
#pragma once

#include "io/results.h"
#include "session/session.h"

/*
  TrsReportCaches - Report every rank's caches: size, hits and ids without a line.

  Collective. Hits are given as a share of the distinct ids of a batch, and ids without a line as a
  share of all ids. Evaluations during the training are included. The function prints a line for
  each cache, up to a limit, and records all as /cache in the results. Without caches it does
  nothing.
*/
PetscErrorCode TrsReportCaches(const TrsSession *session, TrsResults results);
