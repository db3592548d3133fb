/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Which rows a batch touches, and where their gradients are: the first half of an embedding's backward (tbe_occurrences_cuda.cu); the second is the
  update (tbe_backward_cuda.cu).

  Occurrences get the key of their row among all rows of the call's tables and are sorted by it, stably, so a row's are neighbours in order of feature,
  bag and place: a run. A run longer than TRS_SHORT_RUN is cut at places that depend on its length alone into about sqrt(length) pieces. Tables of one
  type, alignment, width and optimizer form a class: neighbours in the key space, one launch. How a class adds up over columns depends on that alone, not on
  where the gradients lie: a row's bits are the same whatever else is in the call (-reproducible). Nothing of this waits: how many runs there are is known on
  the device only.
*/
#pragma once

#include "gpu/scan_cuda.h"

enum { TRS_SHORT_RUN = 64 };

/* A table on the device; its rows have keys from key_begin on. */
struct UpdateTable {
  TrsTbeTable table;
  int64_t key_begin;
};

/* The call's occurrences in sorted order, and the runs in them. Device memory. */
struct Occurrences {
  Runs runs;
  int64_t *source; /* [n] place of the gradient in grad, */
  float *scale;    /* and its factor; NULL: all 1 */
  const float *grad;
  int32_t grad_aligned; /* are all gradients of tables whose rows are taken 16 bytes at once on 16 bytes? */
  int32_t *location;    /* [runs] where the row is, as TrsTbeInput.locations; NULL: all in their tables */
  int64_t *piece_begin; /* [n + 1] pieces of long runs before */
  float *sums;          /* [pieces, sums_stride] */
  int64_t sums_stride;
  const UpdateTable *table; /* [n_tables + 1] in the order of keys */
  int n_tables;
};

/* The same before the sort: item is the number of a value in the batch. */
struct Unsorted {
  uint64_t *key;
  uint32_t *key_32; /* or here, as Runs has them */
  uint32_t *item, *sorted_item;
  int64_t *source;
  float *scale;
};

/* Tables of one kernel and one optimizer. key: type * 12 + aligned * 6 + log2 of lanes */
struct UpdateClass {
  int key, optimizer, first_table, end_table, widest;
};

/* A call: tables in the order of keys, their classes. */
struct Backward {
  const TrsTbe *tbe;
  int64_t grad_stride;
  bool pooled, in_order; /* in_order: keys in the order of tables */
  bool by_table;         /* each table's runs are asked for, too */
  UpdateTable *table;    /* [n_tables + 1] host */
  int *place;            /* [n_tables] of each table in it */
  UpdateClass *classes;  /* [n_tables] */
  int n_classes, widest;
  uint64_t end_key;
  int64_t *class_run; /* device [n_classes + 1] */
  int64_t *table_run; /* device [n_tables + 1], by_table */
  Occurrences o;
  Unsorted u;
};

/*
  TrsCudaFindOccurrences - Sorted occurrences and runs of a batch. b->tbe, pooled, in_order, grad_stride and o.grad are the caller's; the
  rest is filled. Scratch of the workspace holds it until the next call there. Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaFindOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                      Backward *b);

/* Of a batch the rows alone, no gradients: runs in the order of tables, table_run. b->tbe is the caller's. */
PetscErrorCode TrsCudaFindRows(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                               Backward *b);

/* Occurrences given as n keys of the tables' rows in their order, sorted (NULL: 0, 1 ..); index (or NULL): entry i's gradient is row index[i] of b->o.grad. */
PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b);

/* Occurrences of a piece: a power of 2 near the square root of the run's length. */
static __device__ __forceinline__ int64_t piece_length(int64_t run_length)
{
  int64_t length = TRS_SHORT_RUN;

  while (length * length < run_length) length *= 2;
  return length;
}
