/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequence tables (pooling none): what the payloads of replicas and of rows by id share. A group's
  ids are made unique where asked; each id of a bag finds its row among those that arrive; rows go
  to the model's matrix, and gradients come back.

    own ids of the group --(unique)--> sent by the payload, rows come back in the order of the ids
    --mean, maximum or places of each bag--> model's matrix

  Rows travel: a step costs in proportion to the ids (with dedup: to the distinct ids) times the
  width, not to the bags. Internal to shard/.

  Source: TorchRec ShardedEmbeddingCollection (torchrec.distributed.embedding), its index dedup;
  src/RULES.md, rule A26.
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
  TrsKjt group;            /* [n_features][B] the samples' ids */
  TrsKjt unique;           /* only with dedup: these bags, holding each table's distinct ids */
  int64_t *begin;          /* [n_tables + 1] where each table's ids begin in `group` */
  int64_t *unique_begin;   /* [n_tables + 1] where each table's ids begin in `unique` */
  TrsDeviceBuffer reverse; /* with dedup: int64 [N] each id's place in its table's list */
  TrsDeviceBuffer places;  /* by rows: int64 [N] where each id that is sent went */
  TrsDeviceBuffer row;     /* by rows with dedup: int64, piece after piece, each id's row */
  TrsPinnedBuffer lengths; /* int32 lengths of `unique` */
  int64_t *id_begin;       /* [n_features + 1] where the ids of features begin in `unique` */
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

/* Where a piece's rows arrive: id i of the group has row (index ? index[i] : i) + shift. */
typedef struct {
  const int64_t *index;
  int64_t shift;
  int64_t n; /* with dedup: index is below n */
} TrsSequenceRows;

/* The pieces are the column blocks of the group's route, in its order. Not collective. */
PetscErrorCode TrsSequenceCreate(TrsSharding sharding, PetscBool dedup, TrsSequence *sequence);
PetscErrorCode TrsSequenceDestroy(TrsSharding sharding, TrsSequence *sequence);

/*
  The slot's batch as a group, made unique with dedup. Out: to_send  the ids to be sent, borrowed
*/
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
  The gradients of the n_rows rows that TrsSequencePool() read. Every element of grad_rows
  [n_rows, dim] is written. Duplicates are added up in order of feature, sample, place.
*/
PetscErrorCode TrsSequenceUnpool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                 TrsStream stream, const TrsSequenceRows *where, const float *rows,
                                 const TrsPooledMatrix *grad, int64_t n_rows, float *grad_rows);
