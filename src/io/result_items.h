/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that writing and reading results share. Internal to io/. */
#pragma once

#include "io/column.h"
#include "io/hdf5_util.h"
#include "io/results.h"

/* An item is a column, an array, or a root attribute. The first three kinds are columns. */
typedef enum {
  TRS_ITEM_REAL,
  TRS_ITEM_INT,
  TRS_ITEM_TEXT,
  TRS_ITEM_ARRAY_REAL,
  TRS_ITEM_ARRAY_FLOAT,
  TRS_ITEM_ARRAY_INT,
  TRS_ITEM_ATTRIBUTE_TEXT,
  TRS_ITEM_ATTRIBUTE_INT
} TrsItemKind;

typedef struct {
  char *name;
  TrsItemKind kind;
  TrsColumn column; /* for columns of numbers */
  char **text;      /* [rows] for a column of texts */
  int64_t rows;     /* for texts and arrays */
  int64_t cols;     /* for arrays and columns of numbers; 0 for one dimension */
  int64_t n_bytes;  /* for arrays and attributes */
  TrsBuffer data;   /* values of arrays and attributes */
  TrsSpill file;    /* file with the values of an array of rows; fd is -1 if they are in memory */
  /* file offset of the reserved numbers while the file is written, or -1 if there are none */
  int64_t offset;
} TrsItem;

/* A group whose rows an earlier part of the run began. */
typedef struct {
  char *prefix; /* "train/" */
  int64_t rows; /* number of loaded rows that still exist */
} TrsLoadedGroup;

struct TrsResultsImpl {
  MPI_Comm comm;
  int rank, size;
  char *path;        /* NULL to collect nothing */
  TrsOutput *output; /* NULL to replace an existing file */
  TrsSpill spill;
  int n, capacity;
  TrsItem *items; /* [n] used on rank 0 */
  int n_loaded;
  TrsLoadedGroup *loaded; /* [n_loaded] */
  TrsBuffer gathered;
};

/*
  Append one row, even if other columns of its group lack earlier rows. If a column had rows of
  another width, they become NaN.

  In:  cols   numbers per row of a matrix, at most TRS_COLUMN_BLOCK_ROWS; 0 for a plain column
       value  8 bytes for each number, or the text
*/
PetscErrorCode TrsResultsAppendAny(TrsResults results, const char *path, TrsItemKind kind, int64_t cols,
                                   const void *value);

/* Return the number of rows in a column. */
int64_t TrsItemRows(const TrsItem *it);

/*
  Extend columns that an earlier part of the run began, so that all columns of a group have equal
  length.
*/
PetscErrorCode TrsResultsEven(TrsResults results);

/*
  Make HDF5's type for texts of variable length, as h5py writes them. Close it with H5Tclose(). Call
  this under the lock.
*/
PetscErrorCode TrsResultsTextType(hid_t *type);
