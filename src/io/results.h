/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Run results: the file that -output names (format: input/FORMAT.md).

  Rank 0 collects rows in memory and writes the file with a temporary name and one rename; it can be rewritten at any time of the run (each
  time complete). Other ranks' calls are cheap no-ops where not said otherwise.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct TrsResultsImpl *TrsResults;

/* path NULL: collect nothing. The folder must exist and be writable: CANT_CREATE, found now and not after hours. Collective on comm. */
PetscErrorCode TrsResultsCreate(MPI_Comm comm, const char *path, TrsResults *results);
PetscErrorCode TrsResultsDestroy(TrsResults *results);

/* So many rows are to come in each column: room for them is made with the first, and appending allocates nothing. Not collective. */
PetscErrorCode TrsResultsExpect(TrsResults results, int64_t rows);

/* Drop the rows of all columns whose path begins so, but not their room. Not collective. */
PetscErrorCode TrsResultsForget(TrsResults results, const char *prefix);

/* Append one row to column "train/loss" etc. (float64, or int64 when integer). Columns of one group are of equal length at write time; one without rows is not written. Rank 0's count. */
PetscErrorCode TrsResultsAppend(TrsResults results, const char *path, double value);
PetscErrorCode TrsResultsAppendInt(TrsResults results, const char *path, int64_t value);

/* Root attributes. */
PetscErrorCode TrsResultsSetText(TrsResults results, const char *name, const char *text);
PetscErrorCode TrsResultsSetInt(TrsResults results, const char *name, int64_t value);

/* A whole array (float64 [n] or [rows, cols]), replacing what was there. */
PetscErrorCode TrsResultsSetArray(TrsResults results, const char *path, int64_t rows, int64_t cols,
                                  const double *values);

/*
  Predictions float32 [n_total] in dataset order: each rank gives n values for samples first .. first+n-1; gathered on rank 0.
  Collective. Every rank calls equally often.
*/
PetscErrorCode TrsResultsAddPredictions(TrsResults results, int64_t n_total, int64_t first, int64_t n,
                                        const float *values);

/* Write the file. Collective. Errors (agreed): CANT_CREATE, IO; what was there before is intact. */
PetscErrorCode TrsResultsWrite(TrsResults results);
