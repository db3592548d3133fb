/* SPDX-License-Identifier: BSD-3-Clause */
/* What a training reports at its end: speed, stages, messages, memory, and their predictions. */
#pragma once

#include "io/results.h"
#include "report/progress.h"

/*
  TrsReportSummary - Report the end of a training: samples/s, share of each stage, peak memory.

  Collective. The shares are means over ranks. The results get a row for each rank, with times for
  each step: /stages/predicted_ms of the plan's cost model beside /stages/measured_ms (attribute
  stage_names), without the warm-up if there are steps after it, and /memory/predicted_bytes beside
  /memory/measured_bytes.
*/
PetscErrorCode TrsReportSummary(const TrsSession *session, const TrsProgress *progress, TrsResults results);
