/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rows that a batch touches, and where their gradients are: the first half of an embedding's
  backward (tbe_occurrences_cuda.cu). The second half is the update (tbe_backward_cuda.cu).

  An occurrence gets the key of its row among all rows of the call's tables. Occurrences are sorted
  by key, stably, so the occurrences of a row are neighbours in order of feature, bag and place: a
  run. A run longer than TRS_SHORT_RUN is cut into about sqrt(length) pieces, at places that depend
  on its length alone. Tables of one type, alignment, width and optimizer form a class: neighbours
  in the key space, and one launch. The class alone decides how columns are added up, and not where
  the gradients lie: a row's bits are the same whatever else is in the call (-reproducible). Nothing
  here waits: only the device knows the number of runs.
*/
#pragma once

#include "gpu/scan_cuda.h"

enum { TRS_SHORT_RUN = 64 };

/* A table on the device. Its rows have keys from key_begin on. */
struct UpdateTable {
  TrsTbeTable table;
  int64_t key_begin;
};

/* The occurrences of a call in sorted order, and their runs. Device memory. */
struct Occurrences {
  Runs runs;
  int64_t *source; /* [n] place of the gradient in grad */
  float *scale;    /* [n] factor of the gradient; NULL: all 1 */
  const float *grad;
  /* All gradients of tables whose rows are taken 16 bytes at once are aligned to 16 bytes. */
  int32_t grad_aligned;
  /* [runs] location of the row, as in TrsTbeInput.locations; NULL: all rows are in their tables */
  int32_t *location;
  int64_t *piece_begin; /* [n + 1] number of earlier pieces of long runs */
  float *sums;          /* [pieces, sums_stride] */
  int64_t sums_stride;
  const UpdateTable *table; /* [n_tables + 1] in the order of keys */
  int n_tables;
};

/* The occurrences before the sort. item is the number of a value in the batch. */
struct Unsorted {
  uint64_t *key;
  uint32_t *key_32; /* replaces key as in Runs */
  uint32_t *item, *sorted_item;
  int64_t *source;
  float *scale;
};

/* Tables of one kernel and one optimizer. key: type * 12 + aligned * 6 + log2 of lanes. */
struct UpdateClass {
  int key, optimizer, first_table, end_table, widest;
};

/* A call: its tables in the order of keys, and their classes. */
struct Backward {
  const TrsTbe *tbe;
  int64_t grad_stride;
  bool pooled, in_order; /* in_order: keys are in the order of tables */
  bool by_table;         /* the runs of each table are needed, too */
  UpdateTable *table;    /* [n_tables + 1] host */
  int *place;            /* [n_tables] index of each table in `table` */
  UpdateClass *classes;  /* [n_tables] */
  int n_classes, widest;
  uint64_t end_key;
  int64_t *class_run; /* device [n_classes + 1] */
  int64_t *table_run; /* device [n_tables + 1], by_table */
  Occurrences o;
  Unsorted u;
};

/*
  TrsCudaFindOccurrences - Find the sorted occurrences and runs of a batch.

  The caller sets b->tbe, pooled, in_order, grad_stride and o.grad; the function fills the rest. The
  workspace's scratch holds the result until its next call.

  Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaFindOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                      Backward *b);

/*
  Find only the rows of a batch, without gradients: runs in the order of tables, table_run. The
  caller sets b->tbe.
*/
PetscErrorCode TrsCudaFindRows(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                               Backward *b);

/*
  Take n given, sorted keys of the tables' rows in their order as occurrences (NULL: 0, 1, ..).
  index (or NULL): entry i's gradient is row index[i] of b->o.grad.
*/
PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b);

/* Occurrences of a piece: a power of 2 near the square root of the run's length. */
static __device__ __forceinline__ int64_t piece_length(int64_t run_length)
{
  int64_t length = TRS_SHORT_RUN;

  while (length * length < run_length) length *= 2;
  return length;
}
