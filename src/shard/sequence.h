/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequence tables (pooling none): the code shared by the payloads of replicas and of rows by id.
  With dedup a group's ids are made unique, and each id of a bag finds its row among the arrived
  rows. Rows go to the model's matrix, and gradients come back.

    own ids of the group --(unique)--> sent by the payload, rows come back in the order of the ids
    --mean, maximum or places of each bag--> model's matrix

  The cost of a step grows with the number of ids (with dedup: distinct ids) times the width, not
  with the number of bags, because rows travel. Internal to shard/.

  Source: TorchRec ShardedEmbeddingCollection (torchrec.distributed.embedding), its index dedup;
          src/RULES.md, rule A26
*/
#pragma once

#include "shard/sharding.h"

/* Columns of one table that come back together: a column shard, or all columns. */
typedef struct {
  int table;               /* index among the group's tables */
  int64_t columns, column; /* number of columns, and the first one in the table */
} TrsSequencePiece;

/*
  The places where a piece's rows arrive: id i of the group has row (index ? index[i] : i) + shift.
*/
typedef struct {
  const int64_t *index;
  int64_t shift;
  int64_t n; /* with dedup: all entries of index are below n */
} TrsSequenceRows;

/* The group's batch in one slot. */
typedef struct {
  TrsKjt group;            /* [n_features][B] the samples' ids */
  TrsKjt unique;           /* with dedup: the bags of `group`, holding each table's distinct ids */
  int64_t *begin;          /* [n_tables + 1] where each table's ids begin in `group` */
  int64_t *unique_begin;   /* [n_tables + 1] where each table's ids begin in `unique` */
  TrsDeviceBuffer reverse; /* with dedup: int64 [N] place of each id in its table's list */
  TrsDeviceBuffer places;  /* by rows: int64 [N] place to which each sent id went */
  TrsDeviceBuffer row;     /* by rows with dedup: int64, each id's row, piece after piece */
  TrsPinnedBuffer lengths; /* int32 lengths of `unique` */
  int64_t *id_begin;       /* [n_features + 1] where the ids of features begin in `unique` */
  TrsSequenceRows *where;  /* [n_pieces] set by the payload's prepare */
  /* With dedup, if the pieces are not the tables: `reverse` of the bags, piece after piece. */
  TrsKjt pieces;
  /* With dedup, for a training batch: ids sorted by row; NULL: the backward sorts them. */
  TrsTbeOccurrences occurrences;
} TrsSequenceBatch;

typedef struct {
  PetscBool dedup;
  int n_pieces;
  TrsSequencePiece *piece;
  int64_t dim;        /* floats from one row to the next: the widest piece's columns */
  PetscBool padded;   /* some piece is narrower than dim */
  PetscBool by_table; /* the pieces are the group's tables, in their order */
  /* The pieces' gradients as tables with features, so that one call adds up a whole group. */
  TrsTbe add;
  TrsTbeTable *add_table;     /* [n_pieces] */
  TrsTbeFeature *add_feature; /* [features of all pieces] */
  int *piece_feature;         /* [features of all pieces] their numbers in the group */
  TrsSequenceBatch batch[TRS_SHARD_SLOTS];
  /*
    int64 0, 1, 2 ...: offsets of bags with one id each, for rows that a layer of the model takes
  */
  TrsDeviceBuffer each;
  TrsPinnedBuffer host_each; /* for a device whose memory the host cannot write */
  int64_t n_each;
  /* Gradients of the rows by id, piece after piece, before duplicates are added up. */
  TrsDeviceBuffer by_id;
  TrsWorkspace unique_workspace, add_workspace, sort_workspace;
} TrsSequence;

/*
  Create the data that the payloads share. The pieces are the column blocks of the group's route, in
  the route's order. Not collective.
*/
PetscErrorCode TrsSequenceCreate(TrsSharding sharding, PetscBool dedup, TrsSequence *sequence);
PetscErrorCode TrsSequenceDestroy(TrsSharding sharding, TrsSequence *sequence);

/*
  Extract the slot's batch of this group, and make it unique with dedup. *to_send is set to the ids
  that must be sent, borrowed. Not collective.
*/
PetscErrorCode TrsSequencePrepare(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                  TrsStream stream, const TrsKjt **to_send);

/* The pooling that the kernels apply to a sequence table's k-th feature. */
TrsSequencePooling TrsSequencePoolingOf(const TrsTableConfig *table, int k);

/*
  Number of ids of the group's table i that are sent for each of its pieces. Valid after Prepare.
*/
int64_t TrsSequenceIds(const TrsSequence *sequence, const TrsSequenceBatch *batch, int i);

static inline TrsSequenceBatch *TrsSequenceBatchOf(TrsSharding sharding, TrsSequence *sequence,
                                                   const TrsShardingSlot *slot)
{
  return &sequence->batch[slot - sharding->slot];
}

/*
  With dedup, on a device that sorts ahead: sort the ids of a training batch for
  TrsSequenceUnpool(). The batch's `where` must be set. All sorts of a sequence must use one stream.
  Not collective.
*/
PetscErrorCode TrsSequenceSort(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream);

/*
  Copy rows, in the order in which ids were sent, to the model's matrix, or to the matrix of ids
  that a layer of the model takes. Not collective.
*/
PetscErrorCode TrsSequencePool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream, const float *rows, const TrsPooledMatrix *pooled);

/*
  Compute the gradients of the n_rows rows that TrsSequencePool() read. Every element of grad_rows
  [n_rows, dim] is written. Gradients of duplicates are added in order of feature, sample, place.
  Not collective.
*/
PetscErrorCode TrsSequenceUnpool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                 TrsStream stream, const float *rows, const TrsPooledMatrix *grad,
                                 int64_t n_rows, float *grad_rows);
