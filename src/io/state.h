/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A state lists the contents of a checkpoint: logical tensors, and this rank's rectangles of them.

  Modules add their tensors; io/ writes and reads them. Every rank lists the same tensors in the
  same order, each with its own parts or with none. This module does not use HDF5.
*/
#pragma once

#include "core/dtype.h"
#include "core/error.h"

#include <stdint.h>

/* A rectangle of a tensor, in the memory that the state describes. */
typedef struct {
  int64_t row_offset, col_offset, rows, cols;
  void *data;     /* element (r, c) of the part is at data + (r * stride + c) elements */
  int64_t stride; /* in elements */
  /*
    The part is a copy of numbers in another part, here or on another rank. It is read, but not
    written.
  */
  PetscBool copy;
  int64_t unit; /* of a list: number of the unit whose rows the part has */
} TrsStatePart;

/*
  Take rows first .. first + n - 1 of part number `part` while a checkpoint is read. `first` counts
  within the part. The rows are [n, part's cols] elements of dtype without gaps, borrowed for the
  call. Called under the HDF5 lock, only on the rank that owns the part, so it must make no
  collective calls.
*/
typedef PetscErrorCode (*TrsStateTake)(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                       const void *rows);

/*
  Supply rows first .. first + n - 1 of part number `part` while a checkpoint is written: [n, part's
  cols] elements of the tensor's dtype without gaps, to `rows` in host memory. Each row is requested
  once, in any order, in pieces of at most 64 MiB or one row. Called without the HDF5 lock, only on
  the rank that owns the part, so it must make no collective calls.
*/
typedef PetscErrorCode (*TrsStateGive)(void *context, int part, int64_t first, int64_t n, void *rows);

/*
  Announce that `give` will supply these rows, perhaps in several pieces, but in the order of the
  announcements. Called while the file is created, for each part of it that this rank will write.
  Not collective. Errors: MEMORY
*/
typedef PetscErrorCode (*TrsStateExpect)(void *context, int part, int64_t first, int64_t n);

/*
  Offer the rows of part number `part` in the file itself: [part's rows, part's cols] elements of
  dtype without gaps, `offset` bytes from the beginning of the open file fd. *to_take is true; set
  it to false if `take` must not get the rows.
*/
typedef PetscErrorCode (*TrsStateMap)(void *context, int part, TrsDType dtype, int fd, int64_t offset,
                                      PetscBool *to_take);

/*
  Count the rows of a list before a checkpoint is written: rows [n_units], for each unit that this
  rank supplies; 0 for the others. Ranks that supply columns of the same unit return the same
  number. Not collective.
*/
typedef PetscErrorCode (*TrsStateCount)(void *context, int64_t *rows);

/*
  Find the rows of a list that belong to part number `part`, while the checkpoint `path` is read:
  row from[i] of the file, ascending, belongs to row to[i] of the part. Both [n], borrowed until the
  next call. Errors: DATA. Not collective.
*/
typedef PetscErrorCode (*TrsStateFind)(void *context, int part, const char *path, int64_t *n,
                                       const int64_t **from, const int64_t **to);

/*
  Called after a file was read, on every rank, if some tensor of the state was read. It may check
  that tensors agree. Errors: DATA with the tensor's name. Not collective.
*/
typedef PetscErrorCode (*TrsStateWasRead)(const void *context, const char *path);

/* An attribute of a tensor's dataset. */
typedef struct {
  const char *name, *text; /* both borrowed; if text is NULL, `number` is the value */
  int64_t number;
} TrsStateAttribute;
enum { TRS_STATE_MAX_ATTRIBUTES = 4 };

typedef struct {
  char *path; /* "embedding/user/weight" */
  /* fp32, fp16, bf16 (stored as uint16 with attribute dtype="bf16"), uint8, int32, int64 */
  TrsDType dtype;
  int ndim; /* 1: [rows] with cols = 1; 2: [rows, cols] */
  int64_t rows, cols;
  PetscBool replicated; /* every rank's one part is the whole tensor: rank 0 writes, all read */
  int n_parts;
  TrsStatePart *part; /* [n_parts] */
  /*
    Row-wise states of a table cut by columns (src/RULES.md, rule A12): path is
    ".../<state>_columns" [rows, n_columns], and column_offsets [n_columns] is an attribute. The
    writer makes mean_path [rows] = sum over columns of mean_weights[c] * value. The reader takes
    `path` if its column_offsets equal these; otherwise it copies mean_path into every column. An
    unsplit row-wise state can be read from a split run's file, because mean_path is always there.
  */
  int n_columns;
  int64_t *column_offsets;
  double *mean_weights;
  char *mean_path; /* NULL for an ordinary tensor */
  /* Reading: the file may lack the tensor (an optimizer state), whose data then stays unchanged. */
  PetscBool optional;
  /*
    The weights of a table: the word of its id_map, borrowed; else NULL. Reading: the file must have
    the ids of this table if the rows are given to ids, and no ids otherwise.
  */
  const char *id_map;
  /* Weights or a state of a table: the table's name, borrowed; else NULL. */
  const char *rows_of;
  PetscBool was_read; /* reading: the tensor was read */
  /* Reading: number of rows taken from the file, from the first on. The others stay unchanged. */
  int64_t rows_read;
  PetscBool converted; /* reading: the numbers had another type in the file */
  /* Reading: the file has other columns of a row-wise state, so their mean was taken. */
  PetscBool averaged;
  PetscBool unwanted; /* reading: it was not requested (TrsCheckpointWanted) */
  /* Reading: the file's shape, if the tensor was not read because of its shape; else empty. */
  char other_shape[96];
  /*
    The optimizer that this state belongs to, borrowed, or NULL if the tensor is not a state. An
    attribute in the file.
  */
  const char *optimizer;
  /* Reading: the optimizer of the file's state, if the state was not read because of it; else
     empty. */
  char other_optimizer[32];
  /*
    Reading in pieces, for tensors that are not kept as stored. The parts have no memory, and `take`
    gets their rows. The file's numbers may have any of the types fp32, fp16 and bf16.
  */
  TrsStateTake take; /* NULL to read to memory */
  TrsStateMap map;   /* called before `take` if the rows are contiguous; may be NULL */
  void *take_context;
  /* Writing: the parts have no memory, and `give` supplies their rows. */
  TrsStateGive give;     /* NULL to write from memory */
  TrsStateExpect expect; /* NULL: `give` needs no announcement */
  void *give_context;    /* also of `expect` */
  /*
    The tensor is a list, whose rows change from one checkpoint to the next. Its units follow one
    another in the file. A part has all rows of its unit. Reading: a part gets the rows that `find`
    returns; without `find`, `take` gets all rows of the file on every rank, with part number -1. A
    list without rows is not written.
  */
  TrsStateCount count; /* NULL for an ordinary tensor */
  int64_t n_units;
  TrsStateFind find;
  void *list_context; /* of count and find */
  int n_attributes;   /* for writing */
  TrsStateAttribute attribute[TRS_STATE_MAX_ATTRIBUTES];
} TrsStateTensor;

/* Optimizer states of the tables, and of the dense layers. */
enum { TRS_STATES_TABLES, TRS_STATES_DENSE, TRS_STATES_KINDS };

/*
  Access to parts that the host cannot read or write itself. If all fields are zero, parts are in
  host memory.
*/
typedef struct {
  const void *context;
  /* Allocate staging memory of the host. */
  PetscErrorCode (*alloc)(const void *context, int64_t bytes, void **host);
  PetscErrorCode (*release)(const void *context, void **host);
  /* Copy bytes. The copy is complete on return. */
  PetscErrorCode (*copy)(const void *context, void *to, const void *from, int64_t bytes);
} TrsStateMemory;

typedef struct {
  int n, capacity;
  TrsStateTensor *tensor; /* [n] */
  TrsStateMemory memory;  /* memory of all parts */
  /*
    Reading: convert numbers of one type to another, on the host. If it is NULL, types must be
    equal. Only tensors of fp32, fp16 and bf16 are converted.
  */
  PetscErrorCode (*convert)(int64_t n, TrsDType from, const void *source, TrsDType to, void *result);
  /* Reading: trust the file's numbers, and skip their checksums, which would need all of them. */
  PetscBool unverified;
  /*
    Writing: called first, so that the parts' memory gets its final contents. NULL if it already has
    them. Not collective.
  */
  PetscErrorCode (*settle)(const void *context);
  const void *settle_context;
  TrsStateWasRead was_read; /* NULL: nothing to check */
  const void *was_read_context;
} TrsState;

/* Is the type one of fp32, fp16 and bf16, which may be converted into each other? */
static inline PetscBool TrsStateIsNumber(TrsDType dtype)
{
  return (PetscBool)(dtype == TRS_FP32 || dtype == TRS_FP16 || dtype == TRS_BF16);
}

/* Add a tensor without parts. *tensor is borrowed until the next TrsStateAdd(). Not collective. */
PetscErrorCode TrsStateAdd(TrsState *state, const char *path, TrsDType dtype, int ndim, int64_t rows,
                           int64_t cols, TrsStateTensor **tensor);
/* Add a copy of a tensor with its parts. *tensor as for TrsStateAdd(). Not collective. */
PetscErrorCode TrsStateCopy(const TrsStateTensor *from, TrsState *state, TrsStateTensor **tensor);
PetscErrorCode TrsStateAddPart(TrsStateTensor *tensor, int64_t row_offset, int64_t col_offset, int64_t rows,
                               int64_t cols, void *data, int64_t stride);
/* Make the tensor the states of a table cut by columns, with their mean in mean_path. The arrays
   are copied. */
PetscErrorCode TrsStateSetColumns(TrsStateTensor *tensor, const char *mean_path, int n_columns,
                                  const int64_t *column_offsets, const double *mean_weights);
PetscErrorCode TrsStateFree(TrsState *state);
