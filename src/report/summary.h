/* SPDX-License-Identifier: BSD-3-Clause */
/* The report at the end of a training: speed, stages, messages, memory, and their predictions. */
#pragma once

#include "io/results.h"
#include "report/progress.h"

/*
  TrsReportSummary - Report at the end of a training: samples/s, share of each stage, peak memory.

  Collective. The shares are means over ranks. The results get a row for each rank, with times per
  step: /stages/predicted_ms from the plan's cost model and /stages/measured_ms (attribute
  stage_names), without the warm-up if there are later steps, and /memory/predicted_bytes and
  /memory/measured_bytes.
*/
PetscErrorCode TrsReportSummary(const TrsSession *session, const TrsProgress *progress, TrsResults results);
