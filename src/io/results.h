/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Results of a run: the file of -output (format: input/FORMAT.md).

  Rank 0 collects rows and writes the file under a temporary name with one rename. The file can be
  rewritten at any time during the run and is always complete. Calls on other ranks are cheap and do
  nothing unless stated otherwise.

  Memory: a column of numbers keeps at most its last 8192 rows (64 KiB), and 8 bytes for each 8192
  earlier rows, which lie in a file without a name in the folder of -output (io/column.h). Writing
  streams these rows, so it takes no memory for them. Rows of embeddings also lie in such files.
  Texts and other arrays stay in memory: the few texts of a start, one array of predictions.
*/
#pragma once

#include "io/output.h"

#include <stdint.h>

typedef struct TrsResultsImpl *TrsResults;

/*
  Create the results. With path NULL the results collect nothing. The folder must exist and be
  writable; otherwise CANT_CREATE is raised now instead of after hours. Collective on comm.
*/
PetscErrorCode TrsResultsCreate(MPI_Comm comm, const char *path, TrsResults *results);
PetscErrorCode TrsResultsDestroy(TrsResults *results);

/*
  Set the place of the file, borrowed. Without it, an existing file is replaced. Only rank 0's place
  counts.
*/
PetscErrorCode TrsResultsSetOutput(TrsResults results, TrsOutput *output);

/*
  Drop the rows of all columns whose path begins with `prefix`, but keep the memory. Not collective.
*/
PetscErrorCode TrsResultsForget(TrsResults results, const char *prefix);

/*
  Drop the last row of a group ("eval/") if its number in the int64 column `key` is not below
  `value`. The next appended row takes its place. Not collective.
*/
PetscErrorCode TrsResultsDropLast(TrsResults results, const char *group, const char *key, int64_t value);

/* Return the number of rows in a column. Valid on rank 0. */
int64_t TrsResultsRows(TrsResults results, const char *path);

/*
  Return the last number of an int64 column, or `otherwise` if it has none; or the last text that is
  not empty, borrowed, or "". Valid on rank 0.
*/
int64_t TrsResultsLastInt(TrsResults results, const char *path, int64_t otherwise);
const char *TrsResultsLastText(TrsResults results, const char *path);

/*
  Append one row to a column such as "train/loss" (float64, int64 or text). Columns of one group
  must have equal length when the file is written. A column without rows is not written. Only rank
  0's call counts.
*/
PetscErrorCode TrsResultsAppend(TrsResults results, const char *path, double value);
PetscErrorCode TrsResultsAppendInt(TrsResults results, const char *path, int64_t value);
PetscErrorCode TrsResultsAppendText(TrsResults results, const char *path, const char *text);

/*
  Append one row of n numbers to a matrix float64 [rows, n]; n is 1 to 8192. The matrix counts as a
  column. If earlier rows have another width, they become NaN.
*/
PetscErrorCode TrsResultsAppendRow(TrsResults results, const char *path, int n, const double *values);

/*
  Rows of a group to take from another file: the first rows, as long as their number in column `key`
  is below `end`. Without a key all arrays of the group are taken.
*/
typedef struct {
  const char *group, *key; /* "train", "train/step"; or "stages", NULL */
  int64_t end;
} TrsResultsRange;

/*
  TrsResultsLoad - Take rows from the results that an earlier part of the same run wrote to the same
    path.

  Rank 0 does the work. Not collective. Call this before other threads use HDF5. A column may be
  missing from the file, or may get no more rows. Its missing rows are filled with NaN, 0 or "". The
  only attributes taken are those that describe arrays. A later call that sets an array or an
  attribute replaces the loaded one.

  In:     ranges  [n] groups; a group that is missing from the file has no rows
  Errors: NO_INPUT, DATA; then nothing was taken
*/
PetscErrorCode TrsResultsLoad(TrsResults results, int n, const TrsResultsRange *ranges);

/* Set a root attribute. */
PetscErrorCode TrsResultsSetText(TrsResults results, const char *name, const char *text);
PetscErrorCode TrsResultsSetInt(TrsResults results, const char *name, int64_t value);

/* Set a whole array (float64 [n] or [rows, cols]). It replaces an earlier array. */
PetscErrorCode TrsResultsSetArray(TrsResults results, const char *path, int64_t rows, int64_t cols,
                                  const double *values);

/*
  Add predictions float32 [n_total] in dataset order under the path "predictions", or a task's path.
  Each rank passes n values for samples first .. first+n-1, and rank 0 gathers them. Collective.
  Every rank must make the same number of calls.
*/
PetscErrorCode TrsResultsAddPredictions(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                        int64_t n, const float *values);

/* The same for one int64 per sample [n_total], under the given path ("group"). */
PetscErrorCode TrsResultsAddSampleInts(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                       int64_t n, const int64_t *values);

/*
  TrsResultsAddRows - Add rows to an array float32 [n_total, cols] in dataset order.

  Rank 0 gathers the rows and keeps them in a file without a name in the folder of -output, so that
  memory does not grow with n_total. Missing rows are zero. Collective. Every rank must make the
  same number of calls; after an error on rank 0 the ranks can still meet in the next call.

  In:     n, first  this rank's rows are for samples first .. first+n-1
          values    [n, cols]
  Errors (only on rank 0): CANT_CREATE, IO
*/
PetscErrorCode TrsResultsAddRows(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                 int64_t n, int cols, const float *values);

/*
  Return the bytes of the file if it were written now, without HDF5's overhead. 0 if nothing is
  collected. Not collective.
*/
int64_t TrsResultsBytes(TrsResults results);

/* Write the file. Collective. Errors (agreed): CANT_CREATE, IO; the previous file is intact. */
PetscErrorCode TrsResultsWrite(TrsResults results);

/*
  Write the file on rank 0; the other ranks do nothing. Not collective. Errors (only on rank 0):
  those of TrsResultsWrite().
*/
PetscErrorCode TrsResultsWriteAlone(TrsResults results);
