/* SPDX-License-Identifier: BSD-3-Clause */
/* What writing and reading results share. Internal to io/. */
#pragma once

#include "io/column.h"
#include "io/hdf5_util.h"
#include "io/results.h"

/* A column, an array, or a root attribute. */
typedef enum {
  TRS_ITEM_REAL, /* columns */
  TRS_ITEM_INT,
  TRS_ITEM_TEXT,
  TRS_ITEM_ARRAY_REAL,
  TRS_ITEM_ARRAY_FLOAT,
  TRS_ITEM_ATTRIBUTE_TEXT,
  TRS_ITEM_ATTRIBUTE_INT
} TrsItemKind;

typedef struct {
  char *name;
  TrsItemKind kind;
  TrsColumn column;   /* of columns of numbers */
  char **text;        /* [rows] of a column of texts */
  int64_t rows, cols; /* of texts and arrays; cols 0: one dimension */
  int64_t n_bytes;    /* of arrays and attributes */
  TrsBuffer data;     /* their values */
  int64_t offset;     /* in the file that is being written; -1: nothing to fill in */
} TrsItem;

/* A group whose rows an earlier part of the run began. */
typedef struct {
  char *prefix; /* "train/" */
  int64_t rows; /* taken over and still there */
} TrsLoadedGroup;

struct TrsResultsImpl {
  MPI_Comm comm;
  int rank, size;
  char *path;        /* NULL: collect nothing */
  TrsOutput *output; /* NULL: whatever stands at the path is replaced */
  TrsSpill spill;
  int n, capacity;
  TrsItem *items; /* [n] rank 0's */
  int n_loaded;
  TrsLoadedGroup *loaded; /* [n_loaded] */
  TrsBuffer gathered;
};

/* The item of that name, NULL where there is none. */
TrsItem *TrsResultsFind(TrsResults results, const char *name);

/* Append one row whatever its group lacks. In: value  8 bytes of a number, or the text. */
PetscErrorCode TrsResultsAppendAny(TrsResults results, const char *path, TrsItemKind kind, const void *value);

/* The rows of a column. */
int64_t TrsItemRows(const TrsItem *it);

/* Fill up the columns of groups that an earlier part of the run began, so that all of a group are
   of equal length. */
PetscErrorCode TrsResultsEven(TrsResults results);

/* Texts as HDF5 holds them, of variable length as h5py writes them. Close with H5Tclose(). Under
   the lock. */
PetscErrorCode TrsResultsTextType(hid_t *type);
