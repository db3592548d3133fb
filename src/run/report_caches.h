/* SPDX-License-Identifier: BSD-3-Clause */
/* What the caches of fused_uvm_caching did, in a run's report. */
#pragma once

#include "io/results.h"
#include "run/session.h"

/*
  TrsReportCaches - Every rank's caches: their size, part of the distinct ids of a batch that were found, part of all ids that found no line.

  Collective. Evaluations during the training count, too. Prints a line each, the first of many, and records all as /cache in the results. Nothing without caches.
*/
PetscErrorCode TrsReportCaches(const TrsSession *session, TrsResults results);
