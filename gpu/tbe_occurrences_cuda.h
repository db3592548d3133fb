/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rows that a batch touches, and the places of their gradients: the first half of an embedding's
  backward (tbe_occurrences_cuda.cu). The second half is the update (tbe_backward_cuda.cu).

  An occurrence's key is the number of its row among all rows of the call's tables. Occurrences are
  sorted stably by key, so a row's occurrences are neighbours in order of feature, bag and place: a
  run. The sort carries along the gradient's place. A run longer than TRS_SHORT_RUN is cut into
  about sqrt(length) pieces, at places that depend only on its length. Tables with the same type,
  alignment, width and optimizer form a class: they are neighbours in the key space and share one
  launch. Only the class decides how columns are added up, not the gradients' places: a row's bits
  do not depend on other data in the call (-reproducible). No step waits: only the device knows the
  number of runs.

  All of this depends only on the ids. It can therefore be done before there are gradients, on
  another stream: a TrsTbeOccurrences keeps it (compute/tbe.h).
*/
#pragma once

#include "gpu/scan_cuda.h"

enum { TRS_SHORT_RUN = 64 };

/* A table on the device. Its rows have the keys from key_begin on. */
struct UpdateTable {
  TrsTbeTable table;
  int64_t key_begin;
};

/* A batch's occurrences in sorted order, and their runs. Device memory. */
struct Occurrences {
  int64_t n;             /* fewer than 2^32 */
  uint64_t *key_of;      /* [runs] the row's key */
  uint32_t *begin;       /* [runs + 1] */
  uint32_t *piece_begin; /* [n + 1] number of earlier pieces of long runs */
  /*
    [n] the gradient's place: the bag's place in its feature, with the feature in the bits above. By
    ids: the id's number. A scaled place has the gradient's factor in its upper half, or with
    `weights` the number of the id whose weight is the factor.
  */
  uint32_t *place;
  uint64_t *scaled_place; /* used instead of place; NULL: all factors are 1 */
  const float *weights;   /* the ids' weights, unknown when they were sorted; NULL: none */
  int bag_bits;
};

/* The occurrences' gradients, and the tables that they update. Device memory. */
struct Gradients {
  const void *grad; /* floats or bf16 */
  int64_t stride;
  int32_t narrow;            /* true: bf16 */
  const int64_t *out_column; /* [features] */
  /* For tables whose rows are read 16 bytes at once, are all gradients aligned to four numbers? */
  int32_t aligned;
  /* [runs] the row's location, as in TrsTbeInput.locations; NULL: all rows are in their tables */
  int32_t *location;
  float *sums; /* [pieces, sums_stride] */
  int64_t sums_stride;
  const UpdateTable *table; /* [n_tables + 1] in key order */
  int n_tables;
};

/* Tables with the same kernel and optimizer. key: type * 12 + aligned * 6 + log2 of lanes. */
struct UpdateClass {
  int key, optimizer, first_table, end_table, widest;
};

/* A call: its tables in key order, and their classes. */
struct Backward {
  const TrsTbe *tbe;
  TrsTbeUse use;
  UpdateTable *table;   /* [n_tables + 1] host */
  int *place;           /* [n_tables] index of each table in `table` */
  UpdateClass *classes; /* [n_classes] */
  int n_classes, widest;
  uint64_t end_key;
  uint64_t order;     /* hash (FNV-1a) of the tables' order and the starts of the classes */
  int64_t *class_run; /* device [n_classes + 1] */
  int64_t *table_run; /* device [n_tables + 1], for TRS_TBE_LISTS */
  Occurrences o;
  Gradients g;
};

/*
  TrsCudaOccurrences - Take a batch's occurrences from input->occurrences, or find them, and upload
  the tables to the device.

  The caller must set b->tbe and use. The function sets all other fields except the gradients. The
  results are in the workspace's scratch memory until its next call.

  Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                  Backward *b);

/*
  Use n given, sorted keys as occurrences. They number the rows of all tables in table order. keys
  NULL: 0, 1, ... index (or NULL): entry i's gradient is row index[i] of the gradients.
*/
PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b);

/* Set the gradients' places, and reserve memory for the sums of pieces. */
PetscErrorCode TrsCudaGradients(TrsStream stream, TrsWorkspace workspace, TrsMatrix grad, Backward *b);

/* Occurrences per piece: a power of 2 near the square root of the run's length. */
static __host__ __device__ __forceinline__ int64_t piece_length(int64_t run_length)
{
  int64_t length = TRS_SHORT_RUN;

  while (length * length < run_length) length *= 2;
  return length;
}
