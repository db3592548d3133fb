/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequence tables (pooling none): the common code of the payloads of replicas and of rows by id.
  With dedup, a group's ids are made unique, and for each id of a bag its row is found among the
  rows that arrived. Rows are written to the model's matrix, and their gradients come back from it.

    own ids of the group --(unique)--> the payload sends ids, rows come back in the order of the ids
    --mean, maximum or positions of each bag--> model's matrix

  Rows are sent, so the cost of a step grows with the number of ids (with dedup: distinct ids) times
  the width, and not with the number of bags. Internal to shard/.

  Source: TorchRec ShardedEmbeddingCollection (torchrec.distributed.embedding), its index dedup;
          src/RULES.md, rule A26
*/
#pragma once

#include "shard/sharding.h"

/* A piece: columns of one table that come back together. It is a column shard, or all columns. */
typedef struct {
  int table;               /* index among the group's tables */
  int64_t columns, column; /* number of columns, and the first of them in the table */
} TrsSequencePiece;

/*
  The positions at which a piece's rows arrive. Id i of the group has row (index ? index[i] : i) +
  shift.
*/
typedef struct {
  const int64_t *index;
  int64_t shift;
  int64_t n; /* with dedup: upper limit of the entries of index */
} TrsSequenceRows;

/* The group's batch in a slot. */
typedef struct {
  TrsKjt group; /* [n_features][B] the samples' ids */
  /* with dedup: bags like those of `group`, with each table's distinct ids */
  TrsKjt unique;
  int64_t *begin;        /* [n_tables + 1] index of each table's first id in `group` */
  int64_t *unique_begin; /* [n_tables + 1] index of each table's first id in `unique` */
  /* with dedup: int64 [N] index of each id in the list of its table's distinct ids */
  TrsDeviceBuffer reverse;
  TrsDeviceBuffer places;  /* by rows: int64 [N] the position at which each id was sent */
  TrsDeviceBuffer row;     /* by rows with dedup: int64, the row of each id, piece by piece */
  TrsPinnedBuffer lengths; /* int32, the lengths of `unique` */
  int64_t *id_begin;       /* [n_features + 1] index of each feature's first id in `unique` */
  TrsSequenceRows *where;  /* [n_pieces] set by the prepare function of the payload */
  /* With dedup, if the pieces are not the tables: `reverse` as values of bags, piece by piece. */
  TrsKjt pieces;
  /* With dedup, for a training batch: the ids sorted by row. NULL: the backward sorts them. */
  TrsTbeOccurrences occurrences;
} TrsSequenceBatch;

typedef struct {
  PetscBool dedup;
  int n_pieces;
  TrsSequencePiece *piece;
  /* floats from one row to the next: the number of columns of the widest piece */
  int64_t dim;
  PetscBool padded;   /* true: a piece has fewer columns than dim */
  PetscBool by_table; /* true: the pieces are the group's tables, in the same order */
  /* The gradients of the pieces as tables with features, so that one call adds up a whole group. */
  TrsTbe add;
  TrsTbeTable *add_table;     /* [n_pieces] */
  TrsTbeFeature *add_feature; /* [features of all pieces] */
  int *piece_feature;         /* [features of all pieces] the features' indices in the group */
  TrsSequenceBatch batch[TRS_SHARD_SLOTS];
  /*
    int64 0, 1, 2 ...: offsets of bags with one id each, for rows that a layer of the model pools
  */
  TrsDeviceBuffer each;
  TrsPinnedBuffer host_each; /* used on a device whose memory the host cannot write */
  int64_t n_each;
  /* The gradients of rows per id, piece by piece, before the gradients of duplicate ids are
     added up. */
  TrsDeviceBuffer by_id;
  TrsWorkspace unique_workspace, add_workspace, sort_workspace;
} TrsSequence;

/*
  Create the data that the payloads have in common. The pieces are the column blocks of the group's
  route, in the route's order. Not collective.
*/
PetscErrorCode TrsSequenceCreate(TrsSharding sharding, PetscBool dedup, TrsSequence *sequence);
PetscErrorCode TrsSequenceDestroy(TrsSharding sharding, TrsSequence *sequence);

/*
  Extract the group's part of the slot's batch. With dedup, also make its ids unique. *to_send is
  set to the ids that must be sent, borrowed. Not collective.
*/
PetscErrorCode TrsSequencePrepare(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                  TrsStream stream, const TrsKjt **to_send);

/* The pooling that the kernels apply to the k-th feature of a sequence table. */
TrsSequencePooling TrsSequencePoolingOf(const TrsTableConfig *table, int k);

/*
  The number of ids of the group's i-th table that are sent for each of its pieces. Valid after
  Prepare.
*/
int64_t TrsSequenceIds(const TrsSequence *sequence, const TrsSequenceBatch *batch, int i);

static inline TrsSequenceBatch *TrsSequenceBatchOf(TrsSharding sharding, TrsSequence *sequence,
                                                   const TrsShardingSlot *slot)
{
  return &sequence->batch[slot - sharding->slot];
}

/*
  With dedup, on a device that sorts ahead of the update: sort the ids of a training batch for
  TrsSequenceUnpool(). The batch's `where` must be set. All calls with the same `sequence` must use
  the same stream. Not collective.
*/
PetscErrorCode TrsSequenceSort(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream);

/*
  Copy rows to the model's matrix. The rows are in the order in which ids were sent. If a layer of
  the model pools the feature, copy them to the layer's matrix instead. Not collective.
*/
PetscErrorCode TrsSequencePool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream, const float *rows, const TrsPooledMatrix *pooled);

/*
  Compute the gradients of the n_rows rows that TrsSequencePool() has read. The call writes every
  element of grad_rows [n_rows, dim]. Gradients of duplicate ids are added in the order of feature,
  sample and position in the bag. Not collective.
*/
PetscErrorCode TrsSequenceUnpool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                 TrsStream stream, const float *rows, const TrsPooledMatrix *grad,
                                 int64_t n_rows, float *grad_rows);
