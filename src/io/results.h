/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The results of a run, in the file of -output (format: input/FORMAT.md).

  Rank 0 collects rows, writes the file under a temporary name and renames it. The file can be
  rewritten at any time during the run and is always complete. On other ranks the functions do
  nothing unless stated otherwise.

  A column of numbers keeps at most its last 8192 rows (64 KiB) in memory. Earlier rows are in a
  file without a name in the folder of -output (io/column.h), and need 8 bytes of memory for every
  8192 rows. When the results are written, these rows are copied piece by piece. Rows of embeddings
  are also in such files. Texts and other arrays stay in memory.
*/
#pragma once

#include "io/output.h"

#include <stdint.h>

typedef struct TrsResultsImpl *TrsResults;

/*
  Create the results. If path is NULL, nothing is collected. The folder must exist and be writable.
  If it is not, CANT_CREATE is raised now, before hours of work. Collective on comm.
*/
PetscErrorCode TrsResultsCreate(MPI_Comm comm, const char *path, TrsResults *results);
PetscErrorCode TrsResultsDestroy(TrsResults *results);

/*
  Set how an existing file at the path is treated. The output is borrowed. Without this call an
  existing file is replaced. Only rank 0's output is used.
*/
PetscErrorCode TrsResultsSetOutput(TrsResults results, TrsOutput *output);

/*
  Drop the rows of all columns whose path begins with `prefix`, but keep the memory for later rows.
  Not collective.
*/
PetscErrorCode TrsResultsForget(TrsResults results, const char *prefix);

/*
  Drop the last row of a group (for example "eval/") if its number in the int64 column `key` is at
  least `value`. The next appended row replaces it. Not collective.
*/
PetscErrorCode TrsResultsDropLast(TrsResults results, const char *group, const char *key, int64_t value);

/* Return the number of rows in a column. Valid on rank 0. */
int64_t TrsResultsRows(TrsResults results, const char *path);

/*
  Return the last number of an int64 column, or `otherwise` if the column has none.
  TrsResultsLastText() returns the last text that is not empty, or "". It is borrowed. Valid on rank
  0.
*/
int64_t TrsResultsLastInt(TrsResults results, const char *path, int64_t otherwise);
const char *TrsResultsLastText(TrsResults results, const char *path);

/*
  Append one row to a column such as "train/loss". Columns have float64, int64 or text. When the
  file is written, all columns of a group must have the same number of rows. A column without rows
  is not written. Only rank 0 does anything.
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
  The rows of a group to load from another file: the first rows, as long as their number in column
  `key` is below `end`. If key is NULL, all arrays of the group are loaded.
*/
typedef struct {
  const char *group, *key; /* for example "train" and "train/step", or "stages" and NULL */
  int64_t end;
} TrsResultsRange;

/*
  TrsResultsLoad - Load rows of the results that an earlier part of the same run wrote to the same
    path.

  Only rank 0 does anything. Not collective. Call this before other threads use HDF5. A column may
  be missing from the file, or may get no more rows later. Its missing rows are filled with NaN, 0
  or "". Only attributes that describe arrays are loaded. If the program later sets an array or
  attribute that was loaded, the new value replaces the loaded one.

  In:     ranges  [n] groups; a group that the file does not have has no rows
  Errors: NO_INPUT, DATA; after an error nothing is loaded
*/
PetscErrorCode TrsResultsLoad(TrsResults results, int n, const TrsResultsRange *ranges);

/* Set a root attribute. */
PetscErrorCode TrsResultsSetText(TrsResults results, const char *name, const char *text);
PetscErrorCode TrsResultsSetInt(TrsResults results, const char *name, int64_t value);

/*
  Set a whole array, float64 [n] or [rows, cols]. It replaces an earlier array with the same path.
*/
PetscErrorCode TrsResultsSetArray(TrsResults results, const char *path, int64_t rows, int64_t cols,
                                  const double *values);

/*
  Add predictions float32 [n_total] in dataset order under the path "predictions", or a task's path.
  Each rank passes n values for samples first .. first+n-1, and rank 0 gathers them. Collective.
  Every rank must make the same number of calls.
*/
PetscErrorCode TrsResultsAddPredictions(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                        int64_t n, const float *values);

/*
  Like TrsResultsAddPredictions(), for one int64 per sample, [n_total], at the given path (for
  example "group").
*/
PetscErrorCode TrsResultsAddSampleInts(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                       int64_t n, const int64_t *values);

/*
  TrsResultsAddRows - Add rows to an array float32 [n_total, cols] in dataset order.

  Rank 0 gathers the rows and keeps them in a file without a name in the folder of -output, so that
  memory does not grow with n_total. Missing rows are zero. Collective. Every rank must make the
  same number of calls; after an error on rank 0, all ranks may still make the next call.

  In:     n, first  this rank's rows are for samples first .. first+n-1
          values    [n, cols]
  Errors (only on rank 0): CANT_CREATE, IO
*/
PetscErrorCode TrsResultsAddRows(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                 int64_t n, int cols, const float *values);

/* Like TrsResultsAddRows(), for an array int64 [n_total, cols]. */
PetscErrorCode TrsResultsAddIntRows(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                    int64_t n, int cols, const int64_t *values);

/*
  Return the bytes that the file would have if it were written now, without HDF5's overhead. Returns
  0 if nothing is collected. Not collective.
*/
int64_t TrsResultsBytes(TrsResults results);

/* Write the file. Collective. Errors (agreed): CANT_CREATE, IO; the previous file is intact. */
PetscErrorCode TrsResultsWrite(TrsResults results);

/*
  Write the file on rank 0; the other ranks do nothing. Not collective. Errors (only on rank 0):
  those of TrsResultsWrite().
*/
PetscErrorCode TrsResultsWriteAlone(TrsResults results);

/*
  The outputs of a candidate tower in a file of results (-predict_towers candidate):
  /towers/candidate, and the candidates' ids.
*/
typedef struct TrsCandidateRowsImpl *TrsCandidateRows;

/*
  TrsCandidateRowsOpen - Open a file of results, which must not change until it is closed.

  Not collective.

  Out:    rows     also after an error, for TrsCandidateRowsClose()
          n, D     number of rows, and of columns
          has_ids  true if the file has ids
  Errors: NO_INPUT, DATA
*/
PetscErrorCode TrsCandidateRowsOpen(const char *path, TrsCandidateRows *rows, int64_t *n, int64_t *D,
                                    PetscBool *has_ids);

/* Read all ids [n]. The file must have ids. Not collective. Errors: DATA */
PetscErrorCode TrsCandidateRowsIds(TrsCandidateRows rows, int64_t *ids);

/* Read `count` rows [count, D] from row `first` on. Not collective. Errors: DATA */
PetscErrorCode TrsCandidateRowsRead(TrsCandidateRows rows, int64_t first, int64_t count, float *values);

/* Accepts NULL, and sets *rows to NULL. Not collective. */
PetscErrorCode TrsCandidateRowsClose(TrsCandidateRows *rows);
