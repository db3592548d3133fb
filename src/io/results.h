/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Run results: the file that -output names (format: input/FORMAT.md).

  Rank 0 collects rows and writes the file with a temporary name and one rename; it can be rewritten
  at any time of the run (each
  time complete). Other ranks' calls are cheap no-ops where not said otherwise.

  Memory: a column of numbers keeps its last 8192 rows at most, 64 KiB, and 8 bytes for each 8192
  rows before, which lie in a file
  without a name in the folder of -output (io/column.h). Writing streams them, so it takes no memory
  for them. Texts and arrays are
  all in memory: a start's few texts, one array of predictions.
*/
#pragma once

#include "io/output.h"

#include <stdint.h>

typedef struct TrsResultsImpl *TrsResults;

/*
  path NULL: collect nothing. The folder must exist and be writable: CANT_CREATE, found now and not
  after hours. Collective on comm.
*/
PetscErrorCode TrsResultsCreate(MPI_Comm comm, const char *path, TrsResults *results);
PetscErrorCode TrsResultsDestroy(TrsResults *results);

/* The place of the file, borrowed; without one, whatever stands at the path is replaced. Rank 0's
   counts. */
PetscErrorCode TrsResultsSetOutput(TrsResults results, TrsOutput *output);

/* Drop the rows of all columns whose path begins so, but not their room. Not collective. */
PetscErrorCode TrsResultsForget(TrsResults results, const char *prefix);

/*
  Drop the last row of a group ("eval/") if its number in the int64 column `key` is not below
  `value`: the row that is about to be
  appended takes its place. Not collective.
*/
PetscErrorCode TrsResultsDropLast(TrsResults results, const char *group, const char *key, int64_t value);

/* The rows of a column. Rank 0's counts. */
int64_t TrsResultsRows(TrsResults results, const char *path);

/* The last number of an int64 column, `otherwise` where there is none; the last text that is not
   empty, or "", borrowed. Rank 0's. */
int64_t TrsResultsLastInt(TrsResults results, const char *path, int64_t otherwise);
const char *TrsResultsLastText(TrsResults results, const char *path);

/*
  Append one row to column "train/loss" etc. (float64, int64, or text). Columns of one group are of
  equal length at write time; one
  without rows is not written. Rank 0's count.
*/
PetscErrorCode TrsResultsAppend(TrsResults results, const char *path, double value);
PetscErrorCode TrsResultsAppendInt(TrsResults results, const char *path, int64_t value);
PetscErrorCode TrsResultsAppendText(TrsResults results, const char *path, const char *text);

/* The rows of a group that are taken from another file: the first ones whose number in column `key`
   is below `end`. */
typedef struct {
  const char *group, *key; /* "train", "train/step" */
  int64_t end;
} TrsResultsRange;

/*
  TrsResultsLoad - Take over rows of the results that an earlier part of the same run wrote to the
  same path.

  Rank 0's work, not collective; call before other threads use HDF5. A column that the file lacks,
  or that gets no more rows, is filled
  up with NaN, 0 or "" where rows of its group have none. Attributes and arrays are not taken.

  In:     ranges  [n] groups; one that is missing in the file has no rows
  Errors: NO_INPUT, DATA, and nothing was taken
*/
PetscErrorCode TrsResultsLoad(TrsResults results, int n, const TrsResultsRange *ranges);

/* Root attributes. */
PetscErrorCode TrsResultsSetText(TrsResults results, const char *name, const char *text);
PetscErrorCode TrsResultsSetInt(TrsResults results, const char *name, int64_t value);

/* A whole array (float64 [n] or [rows, cols]), replacing what was there. */
PetscErrorCode TrsResultsSetArray(TrsResults results, const char *path, int64_t rows, int64_t cols,
                                  const double *values);

/*
  Predictions float32 [n_total] in dataset order: each rank gives n values for samples first ..
  first+n-1; gathered on rank 0.
  Collective. Every rank calls equally often.
*/
PetscErrorCode TrsResultsAddPredictions(TrsResults results, int64_t n_total, int64_t first, int64_t n,
                                        const float *values);

/* Bytes of the file as it would be written now, but for HDF5's own. 0 where nothing is collected.
   Not collective. */
int64_t TrsResultsBytes(TrsResults results);

/* Write the file. Collective. Errors (agreed): CANT_CREATE, IO; what was there before is intact. */
PetscErrorCode TrsResultsWrite(TrsResults results);

/* The same, not collective: rank 0 writes and the others do nothing. Errors (on rank 0 alone):
   likewise. */
PetscErrorCode TrsResultsWriteAlone(TrsResults results);
