/* SPDX-License-Identifier: BSD-3-Clause */
/* Types and functions for the changed rows (changes.c) and their tensors (changes_state.c). */
#pragma once

#include "compute/changed_rows.h"
#include "core/buffer.h"
#include "embed/changes.h"
#include "embed/directory.h"

/* The tensors of a table: those of deltas, that of checkpoints, and those of increments. */
typedef enum {
  TRS_CHANGES_ROWS,
  TRS_CHANGES_IDS,
  TRS_CHANGES_HELD,
  TRS_CHANGES_LOST,
  TRS_CHANGES_USED,
  TRS_CHANGES_WEIGHT,
  TRS_CHANGES_OPEN,       /* of checkpoints: rows that no delta has yet */
  TRS_CHANGES_SINCE_FILE, /* of increments: numbers of rows */
  TRS_CHANGES_COPIED,     /* of increments: weights or an optimizer's state */
  TRS_CHANGES_N_TENSORS
} TrsChangesTensor;

typedef struct {
  TrsChanges changes;
  int table;
  TrsChangesTensor tensor;
} TrsChangesContext;

/* Weights or a state of a table, whose changed rows are copied to increments. */
typedef struct {
  TrsChangesContext context;
  TrsDType dtype;
  TrsStatePart source[]; /* [shards->n] the rows of each shard */
} TrsChangesCopied;

typedef struct {
  int64_t n_units, *begin; /* [n_units + 1] the first row of each unit */
  TrsChangesContext context[TRS_CHANGES_N_TENSORS];
  TrsDType dtype; /* of the weights in deltas */
  TrsBuffer read; /* int64 [n_read, columns] rows of the tensor of a checkpoint */
  int64_t n_read;
} TrsChangesTable;

/* The changed rows of a shard for one use. */
typedef struct {
  uint64_t *bits; /* NULL: the rows are not noted for this use */
  TrsBuffer rows; /* int64 [n] the listed rows, ascending */
  int64_t n, *at; /* at [n_units + 1]: where the rows of each unit begin in `rows` */
} TrsChangesSet;

typedef struct {
  uint64_t *marked; /* the rows that updates have marked since the last list */
  int64_t first_unit, n_units;
  TrsChangesSet set[TRS_CHANGES_N_USES];
  TrsBuffer lost; /* int64 [n_lost] ids */
  int64_t n_lost, *lost_at;
  /*
    For deltas, if the table keeps ids: the id that each row had at the last delta, and the bits of
    the rows that had one; else NULL.
  */
  int64_t *before;
  uint64_t *had;
} TrsChangesShard;

struct TrsChangesImpl {
  TrsEmbeddingShards *shards;
  unsigned uses;
  TrsChangesTable *table; /* [T] */
  TrsChangesShard *shard; /* [shards->n] */
  int n_copied;
  TrsChangesCopied **copied; /* [n_copied] */
};

static inline PetscBool TrsChangesIsSet(const uint64_t *bits, int64_t row)
{
  return (PetscBool)(bits[row / TRS_CHANGED_BITS] >> row % TRS_CHANGED_BITS & 1);
}

static inline void TrsChangesSetBit(uint64_t *bits, int64_t row, PetscBool value)
{
  const uint64_t bit = UINT64_C(1) << row % TRS_CHANGED_BITS;

  if (value)
    bits[row / TRS_CHANGED_BITS] |= bit;
  else
    bits[row / TRS_CHANGED_BITS] &= ~bit;
}

/* Return the id that a row of a shard has now. If the row has no id, *held is 0. */
int64_t TrsChangesIdOf(const TrsDirectory *d, int64_t row, uint8_t *held);

/* Remember the ids that the rows of shard i have now. */
void TrsChangesRemember(TrsChanges changes, int i);

/* Mark a changed row of a checkpoint in this rank's shards, and note the id that the row had. */
void TrsChangesMark(TrsChanges changes, int t, const int64_t *row);
