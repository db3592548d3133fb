/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A state lists the contents of a checkpoint: logical tensors, and the rectangles of them that this
  rank owns.

  Modules add their tensors; io/ writes and reads them. Every rank lists the same tensors in the
  same order, with its own parts, or with none. No HDF5 here.
*/
#pragma once

#include "core/dtype.h"
#include "core/error.h"

#include <stdint.h>

/* A rectangle of a tensor, in the kind of memory that the state gives. */
typedef struct {
  int64_t row_offset, col_offset, rows, cols;
  void *data;     /* element (r, c) of the part is at data + (r * stride + c) elements */
  int64_t stride; /* in elements */
  /* The part is a copy of numbers that another part has, here or on another rank.
     It is read, but not written. */
  PetscBool copy;
} TrsStatePart;

/*
  Take rows first .. first + n - 1 of part number `part` while a checkpoint is read. `first` counts
  within the part. The rows are [n, part's cols] elements of dtype without gaps, borrowed for the
  call. Called under the HDF5 lock, only on the rank that owns the part: no collective calls.
*/
typedef PetscErrorCode (*TrsStateTake)(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                       const void *rows);

/*
  Give rows first .. first + n - 1 of part number `part` while a checkpoint is written: [n, part's
  cols] elements of the tensor's dtype without gaps, to `rows` in memory of the host. Each row is
  asked for once, in any order, in pieces of at most 64 MiB or one row. Called only on the rank that
  owns the part, without the HDF5 lock: no collective calls.
*/
typedef PetscErrorCode (*TrsStateGive)(void *context, int part, int64_t first, int64_t n, void *rows);

/*
  Offered the rows of part number `part` where they lie in the file: [part's rows, part's cols]
  elements of dtype without gaps, `offset` bytes from the beginning of the open file fd. *to_take is
  true; false says that `take` shall not get the rows.
*/
typedef PetscErrorCode (*TrsStateMap)(void *context, int part, TrsDType dtype, int fd, int64_t offset,
                                      PetscBool *to_take);

/* An attribute of a tensor's dataset. */
typedef struct {
  const char *name, *text; /* both borrowed; if text is NULL, `number` is the value */
  int64_t number;
} TrsStateAttribute;
enum { TRS_STATE_MAX_ATTRIBUTES = 4 };

typedef struct {
  char *path; /* "embedding/user/weight" */
  /* fp32, fp16, bf16 (stored as uint16 with attribute dtype="bf16"), uint8, int64 */
  TrsDType dtype;
  int ndim; /* 1: [rows] with cols = 1; 2: [rows, cols] */
  int64_t rows, cols;
  PetscBool replicated; /* every rank holds all of it as its one part: rank 0 writes, all read */
  int n_parts;
  TrsStatePart *part; /* [n_parts] */
  /* Row-wise states of a table cut by columns (src/RULES.md, rule A12): path is
     ".../<state>_columns" [rows, n_columns], and column_offsets [n_columns] is an attribute. The
     writer makes mean_path [rows] = sum over columns of mean_weights[c] * value. The reader takes
     `path` if its column_offsets equal these, else mean_path into every column. An unsplit row-wise
     state can be read from a split run's file, because mean_path is always there. */
  int n_columns;
  int64_t *column_offsets;
  double *mean_weights;
  char *mean_path; /* NULL for an ordinary tensor */
  /* Reading: if the file lacks the tensor, its data is left alone
     (optimizer state of a file with none). */
  PetscBool optional;
  PetscBool was_read; /* reading: the file has it */
  /* Reading: number of rows taken from the file, from the first on.
     The other rows were left alone. */
  int64_t rows_read;
  PetscBool converted; /* reading: its numbers had another type in the file */
  PetscBool unwanted;  /* reading: it was not asked for (TrsCheckpointWanted) */
  /* Reading: the file's shape, if the tensor was not taken because of it; else empty. */
  char other_shape[96];
  /* The optimizer whose state this is, borrowed, or NULL if this is no state.
     An attribute in the file. */
  const char *optimizer;
  /* Reading: the optimizer of the file's state, if the state was
     not taken because of it; else empty. */
  char other_optimizer[32];
  /* Reading in pieces, for tensors that are not kept as they are stored. Rows go to `take` instead
     of the parts' memory, of which there is none. The file's numbers may have any of the types
     fp32, fp16 and bf16. */
  TrsStateTake take; /* NULL to read to memory */
  TrsStateMap map;   /* called before `take`, if rows lie in one piece; may be NULL */
  void *take_context;
  /* Writing: rows come from `give` instead of the parts' memory, of which there is none. */
  TrsStateGive give; /* NULL to write from memory */
  void *give_context;
  int n_attributes; /* for writing */
  TrsStateAttribute attribute[TRS_STATE_MAX_ATTRIBUTES];
} TrsStateTensor;

/* The states of the tables' optimizers, and of that of the dense layers. */
enum { TRS_STATES_TABLES, TRS_STATES_DENSE, TRS_STATES_KINDS };

/*
  Access to parts that the host cannot read or write itself.
  If all fields are zero, parts are in host memory.
*/
typedef struct {
  const void *context;
  /* Staging memory of the host. */
  PetscErrorCode (*alloc)(const void *context, int64_t bytes, void **host);
  PetscErrorCode (*release)(const void *context, void **host);
  /* Done on return. */
  PetscErrorCode (*copy)(const void *context, void *to, const void *from, int64_t bytes);
} TrsStateMemory;

typedef struct {
  int n, capacity;
  TrsStateTensor *tensor; /* [n] */
  TrsStateMemory memory;  /* memory of all parts */
  /* Reading: convert numbers of one type to another, on the host. If it is NULL, types must be
     equal. Only tensors of fp32, fp16 and bf16 are converted. */
  PetscErrorCode (*convert)(int64_t n, TrsDType from, const void *source, TrsDType to, void *result);
  /* Reading: trust the file's numbers. Its checksums are not compared, which would read it all. */
  PetscBool unverified;
  /* Writing: called first, so that the parts' memory holds what must be written. NULL if it already
     does. Not collective. */
  PetscErrorCode (*settle)(const void *context);
  const void *settle_context;
} TrsState;

/* Is the type one of the numbers that may be converted into each other: fp32, fp16 and bf16? */
static inline PetscBool TrsStateIsNumber(TrsDType dtype)
{
  return (PetscBool)(dtype == TRS_FP32 || dtype == TRS_FP16 || dtype == TRS_BF16);
}

/* Add a tensor without parts. *tensor is borrowed until the next TrsStateAdd(). Not collective. */
PetscErrorCode TrsStateAdd(TrsState *state, const char *path, TrsDType dtype, int ndim, int64_t rows,
                           int64_t cols, TrsStateTensor **tensor);
PetscErrorCode TrsStateAddPart(TrsStateTensor *tensor, int64_t row_offset, int64_t col_offset, int64_t rows,
                               int64_t cols, void *data, int64_t stride);
/* Make the tensor the split form of mean_path. The arrays are copied. */
PetscErrorCode TrsStateSetColumns(TrsStateTensor *tensor, const char *mean_path, int n_columns,
                                  const int64_t *column_offsets, const double *mean_weights);
PetscErrorCode TrsStateFree(TrsState *state);
