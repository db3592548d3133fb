/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequence tables (pooling none): what their sharding families share. The ids of a group, made unique where asked; which row a bag's id has
  among those that arrive; the rows' way into the model's matrix and the gradients' way back. Source: TorchRec
  ShardedEmbeddingCollection (torchrec.distributed.embedding), its index dedup; rule A26. Internal to shard/.

    own ids of the group --(unique)--> sent by the family, rows come back in the order in which ids were sent
    --mean, maximum or places of each bag--> model's matrix

  Rows travel, so what a step costs grows with the ids (with dedup: with the distinct ids) times the width, not with the bags.
*/
#pragma once

#include "shard/sharding.h"

/* Columns of one table that come back together: a column shard, or all of them. */
typedef struct {
  int table;               /* the group's */
  int64_t columns, column; /* how many, and the first one's place in the table */
} TrsSequencePiece;

/* A batch of the group; one for each slot. */
typedef struct {
  TrsKjt group;          /* [n_features][B] the samples' ids */
  TrsKjt unique;         /* the same bags, holding each table's distinct ids; only with dedup */
  int64_t *begin;        /* [n_tables + 1] where each table's ids begin in `group`, */
  int64_t *unique_begin; /* and in `unique` */
  TrsDeviceBuffer
      reverse; /* int64 [N] with dedup: place of each id of `group` among its table's distinct ones */
  TrsDeviceBuffer places;  /* int64 [N] by rows: where each id that is sent went, */
  TrsDeviceBuffer row;     /* int64 and with dedup the same for each id of `group`, piece after piece */
  TrsPinnedBuffer lengths; /* int32 of `unique`, */
  int64_t *id_begin;       /* [n_features + 1] and where its features' ids begin */
} TrsSequenceBatch;

typedef struct {
  PetscBool dedup;
  int n_pieces;
  TrsSequencePiece *piece;
  int64_t dim;      /* floats from row to row: the widest piece */
  PetscBool padded; /* is there a narrower one? */
  TrsSequenceBatch batch[TRS_SHARD_SLOTS];
  TrsDeviceBuffer by_id; /* gradients of the ids' rows before duplicates are added up */
  TrsWorkspace unique_workspace, add_workspace;
} TrsSequence;

/* Where the rows of a piece are among those that arrive: id i of the group has row (index ? index[i] : i) + shift. */
typedef struct {
  const int64_t *index;
  int64_t shift;
  int64_t n; /* with dedup: index is below n */
} TrsSequenceRows;

/* The pieces are the column blocks of the group's route, in its order. Not collective. */
PetscErrorCode TrsSequenceCreate(TrsSharding sharding, PetscBool dedup, TrsSequence *sequence);
PetscErrorCode TrsSequenceDestroy(TrsSharding sharding, TrsSequence *sequence);

/* The slot's batch as a group, made unique with dedup. Out: to_send  borrowed, the ids to be sent */
PetscErrorCode TrsSequencePrepare(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                  TrsStream stream, const TrsKjt **to_send);

/* Number of ids of the group's table i that are sent for each of its pieces, after Prepare. */
int64_t TrsSequenceIds(const TrsSequence *sequence, const TrsSequenceBatch *batch, int i);

static inline TrsSequenceBatch *TrsSequenceBatchOf(TrsSharding sharding, TrsSequence *sequence,
                                                   const TrsShardingSlot *slot)
{
  return &sequence->batch[slot - sharding->slot];
}

/* rows, in the order in which ids were sent, to the model's matrix; where [n_pieces]. */
PetscErrorCode TrsSequencePool(TrsSharding sharding, const TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream, const TrsSequenceRows *where, const float *rows,
                               const TrsPooledMatrix *pooled);

/*
  The gradient of those rows, n_rows of them: every element of grad_rows [n_rows, dim] is written, duplicates added up in order of feature,
  sample, place. rows: as pooled.
*/
PetscErrorCode TrsSequenceUnpool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                 TrsStream stream, const TrsSequenceRows *where, const float *rows,
                                 const TrsPooledMatrix *grad, int64_t n_rows, float *grad_rows);
