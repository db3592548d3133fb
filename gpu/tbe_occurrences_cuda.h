/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rows that a batch touches, and where their gradients are: the first half of an embedding's
  backward (tbe_occurrences_cuda.cu). The second half is the update (tbe_backward_cuda.cu).

  An occurrence gets the key of its row among all rows of the call's tables. Occurrences are sorted
  by key, stably, so the occurrences of a row are neighbours in order of feature, bag and place: a
  run. What the sort carries along tells where the gradient is. A run longer than TRS_SHORT_RUN is
  cut into about sqrt(length) pieces, at places that depend on its length alone. Tables of one type,
  alignment, width and optimizer form a class: neighbours in the key space, and one launch. The
  class alone decides how columns are added up, and not where the gradients lie: a row's bits are
  the same whatever else is in the call (-reproducible). Nothing here waits: only the device knows
  the number of runs.

  All of this follows from the ids. So it may be done before there are gradients, on another stream:
  a TrsTbeOccurrences keeps it (compute/tbe.h).
*/
#pragma once

#include "gpu/scan_cuda.h"

enum { TRS_SHORT_RUN = 64 };

/* A table on the device. Its rows have keys from key_begin on. */
struct UpdateTable {
  TrsTbeTable table;
  int64_t key_begin;
};

/* The occurrences of a batch in sorted order, and their runs. Device memory. */
struct Occurrences {
  int64_t n;             /* fewer than 2^32 */
  uint64_t *key_of;      /* [runs] key of the row */
  uint32_t *begin;       /* [runs + 1] */
  uint32_t *piece_begin; /* [n + 1] number of earlier pieces of long runs */
  /*
    [n] where the gradient is: the bag's place in its feature, above it the feature. By ids: the
    number of the id. A scaled place has the gradient's factor in its upper half, or with `weights`
    the number of the id, whose weight is the factor.
  */
  uint32_t *place;
  uint64_t *scaled_place; /* replaces place; NULL: all factors are 1 */
  const float *weights;   /* of the ids, unknown when they were sorted; NULL: none */
  int bag_bits;
};

/* The gradients of occurrences, and the tables that they are for. Device memory. */
struct Gradients {
  const void *grad; /* of floats or bf16 */
  int64_t stride;
  int32_t narrow;            /* of bf16 */
  const int64_t *out_column; /* [features] */
  /* All gradients of tables whose rows are taken 16 bytes at once are aligned to four numbers. */
  int32_t aligned;
  /* [runs] location of the row, as in TrsTbeInput.locations; NULL: all rows are in their tables */
  int32_t *location;
  float *sums; /* [pieces, sums_stride] */
  int64_t sums_stride;
  const UpdateTable *table; /* [n_tables + 1] in the order of keys */
  int n_tables;
};

/* Tables of one kernel and one optimizer. key: type * 12 + aligned * 6 + log2 of lanes. */
struct UpdateClass {
  int key, optimizer, first_table, end_table, widest;
};

/* A call: its tables in the order of keys, and their classes. */
struct Backward {
  const TrsTbe *tbe;
  TrsTbeUse use;
  UpdateTable *table;   /* [n_tables + 1] host */
  int *place;           /* [n_tables] index of each table in `table` */
  UpdateClass *classes; /* [n_classes] */
  int n_classes, widest;
  uint64_t end_key;
  uint64_t order;     /* hash (FNV-1a) of the tables' order and of where classes begin */
  int64_t *class_run; /* device [n_classes + 1] */
  int64_t *table_run; /* device [n_tables + 1], for TRS_TBE_LISTS */
  Occurrences o;
  Gradients g;
};

/*
  TrsCudaOccurrences - Take the occurrences of a batch from input->occurrences, or find them, and
  bring the tables to the device.

  The caller sets b->tbe and use; the function fills the rest but for the gradients. The workspace's
  scratch holds what it finds until its next call.

  Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                  Backward *b);

/*
  Take n given, sorted keys of the tables' rows in their order as occurrences (NULL: 0, 1, ..).
  index (or NULL): entry i's gradient is row index[i] of the gradients.
*/
PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b);

/* Say where the gradients are, and make room for the sums of pieces. */
PetscErrorCode TrsCudaGradients(TrsStream stream, TrsWorkspace workspace, TrsMatrix grad, Backward *b);

/* Occurrences of a piece: a power of 2 near the square root of the run's length. */
static __host__ __device__ __forceinline__ int64_t piece_length(int64_t run_length)
{
  int64_t length = TRS_SHORT_RUN;

  while (length * length < run_length) length *= 2;
  return length;
}
