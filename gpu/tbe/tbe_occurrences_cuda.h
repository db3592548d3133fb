/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Find the rows that a batch touches, and where the gradient of each occurrence lies. This is the
  first half of an embedding's backward (tbe_occurrences_cuda.cu). The second half is the update
  (tbe_backward_cuda.cu).

  An occurrence is an id in a bag. Its key is the index of its row among all rows of the call's
  tables. Occurrences are sorted stably by key, so all occurrences of a row are adjacent, in the
  order of the batch. They form a run. The place of an occurrence tells where its gradient lies. The
  sort moves it together with the key. A run longer than TRS_SHORT_RUN is cut into about
  sqrt(length) pieces. The cuts depend only on its length. Tables with the same type, alignment,
  width and optimizer form a class. They have adjacent ranges of keys and share one launch. Only the
  class decides how columns are summed. So a row's bits do not depend on other data in the call
  (-reproducible). The host never waits: only the device knows the number of runs.

  All of this depends only on the ids. So it can be done on another stream before the gradients
  exist. A TrsTbeOccurrences keeps the result (compute/tbe.h).
*/
#pragma once

#include "gpu/scan_cuda.h"

enum { TRS_SHORT_RUN = 64 };

/* A table on the device. Its rows have the keys from key_begin on. */
struct UpdateTable {
  TrsTbeTable table;
  int64_t key_begin;
};

/* The occurrences of a batch in sorted order, and their runs. Device memory. */
struct Occurrences {
  int64_t n;             /* number of occurrences, below 2^32 */
  uint64_t *key_of;      /* [runs] key of each run's row */
  uint32_t *begin;       /* [runs + 1] index of each run's first occurrence */
  uint32_t *piece_begin; /* [n + 1] number of pieces of long runs before each run */
  /*
    [n] where the gradient of each occurrence lies: the index of the bag in its feature, with the
    feature in the bits above. If there is a gradient for each id, it is the index of the id. A
    scaled place has the gradient's factor in its upper half. If `weights` is set, the upper half is
    instead the index of the id whose weight is the factor.
  */
  uint32_t *place;
  /* used instead of place if gradients have factors; NULL if all factors are 1 */
  uint64_t *scaled_place;
  /* weights of the ids, if they were not known when the ids were sorted; NULL if not used */
  const float *weights;
  int bag_bits;
};

/* The gradients of the occurrences, and the tables that they update. Device memory. */
struct Gradients {
  const void *grad; /* array of floats or bf16 */
  int64_t stride;
  int32_t narrow;            /* 1 if grad has bf16, 0 if floats */
  const int64_t *out_column; /* [features] first column of each feature in the gradients */
  /*
    1 if all gradients are aligned to four numbers, in the tables whose rows are read 16 bytes at
    once
  */
  int32_t aligned;
  /*
    [runs] location of each row, as in TrsTbeInput.locations; NULL if all rows are in their tables
  */
  int32_t *location;
  float *sums; /* [pieces, sums_stride] sums of the pieces */
  int64_t sums_stride;
  const UpdateTable *table; /* [n_tables + 1] in key order */
  int n_tables;
};

/*
  Tables with the same kernel and optimizer. key is type * 12 + aligned * 6 + log2 of the number of
  lanes.
*/
struct UpdateClass {
  int key, optimizer, first_table, end_table, widest;
};

/* A backward call: its tables in key order, and their classes. */
struct Backward {
  const TrsTbe *tbe;
  TrsTbeUse use;
  UpdateTable *table;   /* [n_tables + 1] in host memory */
  int *place;           /* [n_tables] index of each of the call's tables in `table` */
  UpdateClass *classes; /* [n_classes] */
  int n_classes, widest;
  uint64_t end_key;
  uint64_t order;     /* hash (FNV-1a) of the tables' order and of the classes' first tables */
  int64_t *class_run; /* [n_classes + 1] on the device: index of each class's first run */
  /* [n_tables + 1] on the device: index of each table's first run, for TRS_TBE_LISTS */
  int64_t *table_run;
  Occurrences o;
  Gradients g;
};

/*
  TrsCudaOccurrences - Find the occurrences of a batch, or use input->occurrences if they were found
  before. Upload the tables to the device.

  The caller must set b->tbe and use. The function sets all other fields except the gradients. The
  results are in the workspace's scratch memory, and valid until the next call with this workspace.

  Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                  Backward *b);

/*
  Use n given, sorted keys as occurrences. A key is the index of a row among the rows of all tables.
  If keys is NULL, the keys are 0, 1, 2 and so on. If index is not NULL, the gradient of entry i is
  row index[i] of the gradients.
*/
PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b);

/* Describe the gradients, and reserve memory for the sums of pieces. */
PetscErrorCode TrsCudaGradients(TrsStream stream, TrsWorkspace workspace, TrsMatrix grad, Backward *b);

/* Number of occurrences per piece: a power of 2 near the square root of the run's length. */
static __host__ __device__ __forceinline__ int64_t piece_length(int64_t run_length)
{
  int64_t length = TRS_SHORT_RUN;

  while (length * length < run_length) length *= 2;
  return length;
}
