/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Reports about tables whose rows are given to ids and taken back (id_map zch and dynamic): rows in
  use, lookups of ids without a row, rows taken, and a warning if a table is too small for its ids.
*/
#pragma once

#include "embed/directory.h"
#include "io/results.h"
#include "session/session.h"

/* The numbers of a training's tables that keep ids. All zero before TrsIdReportStart(). */
typedef struct {
  const TrsSession *session; /* borrowed, like results */
  TrsResults results;
  int n;                       /* tables that keep ids */
  int *table;                  /* [n] their numbers among the session's tables */
  TrsDirectoryCounts *row;     /* [n] rank 0: since the last row, sums over ranks */
  TrsDirectoryCounts *whole;   /* [n] rank 0: until the last row, since the start */
  PetscBool *warned;           /* [n] */
  int64_t first_step, at_step; /* updates at the start, and at the last row */
} TrsIdReport;

/*
  Begin the reports at `step` updates. Free them with TrsIdReportFree(). Not collective. Errors:
  MEMORY
*/
PetscErrorCode TrsIdReportStart(const TrsSession *session, TrsResults results, int64_t step,
                                TrsIdReport *report);
PetscErrorCode TrsIdReportFree(TrsIdReport *report);

/*
  TrsIdReportRow - Append a row to /ids/... with the numbers since the last row.

  Collective, so call it where ranks agree anyway; without such tables, or without an update since
  the last row, it does nothing. It warns once for each table in which more than 1 of 100 rows that
  were taken had been used within TrsDirectoryYoung() batches.

  In:     step  updates so far
*/
PetscErrorCode TrsIdReportRow(TrsIdReport *report, int64_t step);

/* Print a line for each table, until the last row. Not collective. */
PetscErrorCode TrsIdReportSummary(const TrsIdReport *report);

/*
  TrsReportDroppedIds - Print how many ids of a checkpoint had no room, for each table.

  Collective. Call it after the checkpoint was read, before the first training batch.
*/
PetscErrorCode TrsReportDroppedIds(const TrsSession *session);
