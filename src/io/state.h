/* SPDX-License-Identifier: BSD-3-Clause */
/*
  State: what a checkpoint holds, as a list of logical tensors and the rectangles of them that this rank owns.

  Modules add their tensors; io/ writes and reads them. Every rank lists the same tensors in the same order, with its own parts (maybe none).
  No HDF5 here.
*/
#pragma once

#include "core/dtype.h"
#include "core/error.h"

#include <stdint.h>

/* A rectangle of a tensor, in the memory that the state says. */
typedef struct {
  int64_t row_offset, col_offset, rows, cols;
  void *data;     /* element (r, c) of the part at data + (r * stride + c) elements */
  int64_t stride; /* elements */
  PetscBool copy; /* of numbers that another part has, here or on another rank: read, not written */
} TrsStatePart;

/*
  Takes rows first .. first + n - 1 (counted in the part) of part number `part` while a checkpoint is read: [n, part's cols] elements of dtype, without gaps,
  borrowed for the call. Under the HDF5 lock, on the rank that owns the part alone: no collective calls.
*/
typedef PetscErrorCode (*TrsStateTake)(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                       const void *rows);

/* An attribute of a tensor's dataset. */
typedef struct {
  const char *name, *text; /* borrowed; text NULL: `number` */
  int64_t number;
} TrsStateAttribute;
enum { TRS_STATE_MAX_ATTRIBUTES = 4 };

typedef struct {
  char *path;     /* "embedding/user/weight" */
  TrsDType dtype; /* fp32, fp16, bf16 (stored as uint16 with attribute dtype="bf16"), uint8 */
  int ndim;       /* 1: [rows], cols = 1; 2: [rows, cols] */
  int64_t rows, cols;
  PetscBool replicated; /* every rank holds all of it as its one part: rank 0 writes, all read */
  int n_parts;
  TrsStatePart *part; /* [n_parts] */
  /*
    Row-wise states of a table cut by columns (src/RULES.md, rule A12): path is
    ".../<state>_columns" [rows, n_columns], column_offsets [n_columns] is an attribute. The writer
    makes mean_path [rows] = sum over columns of mean_weights[c] * value. The reader takes `path` if
    its column_offsets equal these, else mean_path into every column.
  */
  int n_columns;
  int64_t *column_offsets;
  double *mean_weights;
  char *mean_path; /* NULL for an ordinary tensor */
  /*
    An unsplit row-wise state when the file has only what a split run wrote needs nothing special: mean_path is always there.
  */
  PetscBool
      optional; /* reading: absent in the file leaves the data alone (optimizer state of a file with none) */
  PetscBool was_read;    /* out of reading: the file has it */
  int64_t rows_read;     /* and so many rows of it, from the first on; the others were left alone */
  PetscBool converted;   /* out of reading: its numbers were of another type in the file */
  PetscBool unwanted;    /* out of reading: it was not asked for (TrsCheckpointWanted) */
  char other_shape[96];  /* out of reading: the file's, of a tensor that was not taken for it; else empty */
  const char *optimizer; /* whose state it is, borrowed: an attribute of the file; NULL: no state */
  char other_optimizer[32]; /* out of reading: whose the file's is, which was not taken; else empty */
  /*
    Reading in pieces: rows go to `take` instead of to the parts' memory, which there is none of, and numbers may be of any type of fp32, fp16 and bf16. For what
    is not kept as it is stored.
  */
  TrsStateTake take; /* NULL: to memory */
  void *take_context;
  int n_attributes; /* writing */
  TrsStateAttribute attribute[TRS_STATE_MAX_ATTRIBUTES];
} TrsStateTensor;

/* How to reach parts that the host cannot read or write itself. All zero: they are in host memory. */
typedef struct {
  const void *context;
  PetscErrorCode (*alloc)(const void *context, int64_t bytes, void **host); /* staging memory of the host */
  PetscErrorCode (*release)(const void *context, void **host);
  PetscErrorCode (*copy)(const void *context, void *to, const void *from, int64_t bytes); /* done on return */
} TrsStateMemory;

typedef struct {
  int n, capacity;
  TrsStateTensor *tensor; /* [n] */
  TrsStateMemory memory;  /* of all parts */
  /*
    Reading: numbers of one type from another, on the host; NULL: types must be equal. Tensors of fp32, fp16 and bf16 alone are converted.
  */
  PetscErrorCode (*convert)(int64_t n, TrsDType from, const void *source, TrsDType to, void *result);
  /* Writing: called first, so that the parts' memory holds what is to be written; NULL: it does. Not collective. */
  PetscErrorCode (*settle)(const void *context);
  const void *settle_context;
} TrsState;

/* Add a tensor without parts; *tensor is borrowed until the next Add. Not collective. */
PetscErrorCode TrsStateAdd(TrsState *state, const char *path, TrsDType dtype, int ndim, int64_t rows,
                           int64_t cols, TrsStateTensor **tensor);
PetscErrorCode TrsStateAddPart(TrsStateTensor *tensor, int64_t row_offset, int64_t col_offset, int64_t rows,
                               int64_t cols, void *data, int64_t stride);
/* Make the tensor the split form of mean_path; copies the arrays. */
PetscErrorCode TrsStateSetColumns(TrsStateTensor *tensor, const char *mean_path, int n_columns,
                                  const int64_t *column_offsets, const double *mean_weights);
PetscErrorCode TrsStateFree(TrsState *state);
