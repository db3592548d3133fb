/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The report at the end of a training: speed, stages, messages, memory, and the predictions for
  them.
*/
#pragma once

#include "io/results.h"
#include "report/progress.h"

/*
  TrsReportSummary - Make the report at the end of a training: samples/s, the share of each stage,
    and the peak memory.

  Collective. The shares are averages over ranks. The results get a row for each rank.
  /stages/predicted_ms has the times per step from the plan's cost model, and /stages/measured_ms
  the measured ones (attribute stage_names). If there are steps after the warm-up, only these count.
  /memory/predicted_bytes and /memory/measured_bytes have the memory.
*/
PetscErrorCode TrsReportSummary(const TrsSession *session, const TrsProgress *progress, TrsResults results);
