/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Directories: which id has which row of a table whose rows are given to ids and taken back
  (placement_ids.c calls them).

  The rows of such a table are cut into buckets of Z rows. Each bucket has a map of its own, and one
  row for all ids that have none. The bucket of an id is a function of the id, and a shard holds
  whole buckets, so that bits never depend on ranks. Each kind of map (id_map zch, dynamic) is a
  table of functions.
*/
#pragma once

#include "compute/id_map.h"
#include "embed/embedding_shards.h"

/* The buckets of a table's ids; none if the table does not keep ids. */
TrsIdBuckets TrsDirectoryBuckets(const TrsTableConfig *table);

/* A row that was given to an id, and must get new contents before its next use. */
typedef struct {
  int64_t id;
  int64_t row;   /* of the bucket */
  int64_t times; /* key of its random numbers, beside table and id */
} TrsGivenRow;

/* Rows in the order in which they were given; borrowed until the bucket's next call. */
typedef struct {
  int64_t n;
  const TrsGivenRow *row; /* [n] */
} TrsGivenRows;

/*
  Numbers for reports, counted since a bucket's creation except for youngest. Those of several
  buckets can be added.
*/
typedef struct {
  int64_t rows;         /* rows that ids may have */
  int64_t held;         /* ids that have a row now */
  int64_t given, taken; /* rows given to ids, and how many of them other ids lost */
  int64_t young;        /* how many of these were younger than TrsDirectoryYoung() */
  int64_t lookups;      /* occurrences of ids in training batches */
  int64_t unknown;      /* how many of them had no row */
  int64_t refused;      /* occurrences of new ids for which no row could be had */
  int64_t dropped;      /* ids of a checkpoint for which there was no room */
  /*
    Least age in batches of an id that lost its row since the last call with `anew`; -1: unknown.
    With zch_policy lfu only ages below the interval are known.
  */
  int64_t youngest;
  int64_t bytes; /* memory beside the rows now */
} TrsDirectoryCounts;

/* Add the numbers of `from` to `to`. */
void TrsDirectoryCountsAdd(TrsDirectoryCounts *to, const TrsDirectoryCounts *from);

typedef struct TrsDirectoryOps TrsDirectoryOps;

/* The map of a shard, which TrsEmbeddingShard.keys points to. */
typedef struct {
  const TrsDirectoryOps *ops;
  int64_t n, first; /* number of buckets, and the first one's number in the table */
  TrsIdBuckets rule;
  void **bucket; /* [n] */
  void *state;   /* of ops, for checkpoints; NULL at first. ops->destroy_state frees it */
  /* of training batches, as in TrsDirectoryCounts */
  int64_t lookups, unknown, dropped;
  PetscBool moved; /* true: ids have other rows than in the checkpoint that was read */
} TrsDirectory;

/* A fault in the state of a bucket from a checkpoint. what is NULL if there is none. */
typedef struct {
  const char *tensor; /* of the directory's folder */
  const char *what;
} TrsDirectoryFault;

/* Note a fault of a tensor if it is wrong. Only the first fault counts. */
static inline void TrsDirectoryFaultNote(TrsDirectoryFault *fault, PetscBool wrong, const char *tensor,
                                         const char *what)
{
  if (wrong && !fault->what) *fault = (TrsDirectoryFault){tensor, what};
}

/*
  New ids of some rows of a bucket. These rows lose the ids that they had, and an id of the list
  loses any other row.
*/
typedef struct {
  int64_t n;
  const int64_t *row;  /* [n] of the bucket */
  const int64_t *id;   /* [n] */
  const uint8_t *held; /* [n] 0: the row has no id now */
  int64_t used;        /* rows in use from now on, at least as many as before; -1: unchanged */
  int64_t batches;     /* training batches since the bucket's present state */
} TrsDirectoryChange;

struct TrsDirectoryOps {
  const char *name; /* the folder of its tensors in a checkpoint */
  /* Create an empty bucket. `rows` is Z, which is at least 2. */
  PetscErrorCode (*create)(const TrsTableConfig *table, int64_t rows, void **bucket);
  PetscErrorCode (*destroy)(void **bucket);
  PetscErrorCode (*destroy_state)(TrsDirectory *directory);
  /*
    A training batch calls begin, find and end; any other batch calls only find. ids [n] are the
    bucket's ids in the order of the global batch. begin and end list rows that they give; each may
    be NULL.
  */
  PetscErrorCode (*begin)(void *bucket, int64_t n, const int64_t *ids, TrsGivenRows *given);
  /*
    Several threads may call find for pieces of the ids, which begin at number `place` of them.
    rows: of the bucket, 0 .. Z - 1. Returns the number of ids that have a row.
  */
  int64_t (*find)(void *bucket, PetscBool training, int64_t place, int64_t n, const int64_t *ids,
                  int64_t *rows);
  /* Called if ids have no row. Adds the number of ids that get one to *n_known. */
  PetscErrorCode (*end)(void *bucket, int64_t n, const int64_t *ids, int64_t *rows, int64_t *n_known,
                        TrsGivenRows *given);
  /*
    After end: list the rows that ids have lost and that have no new ids, so that checkpoints have
    zeros there. Only `row` of a TrsGivenRow is set. NULL if there are no such rows.
  */
  PetscErrorCode (*gaps)(void *bucket, TrsGivenRows *gaps);
  /* Return the number of rows in use, which begin with row 0. The other rows have no ids. */
  int64_t (*in_use)(void *bucket);
  /* Return the id of a row in use. If the row has no id, return 0 and set *held to 0, else to 1. */
  int64_t (*id_of)(void *bucket, int64_t row, uint8_t *held);
  /* The row of ids that have none, 0 or Z - 1. */
  int64_t (*unknown_row)(int64_t rows);
  /*
    For lookups only: change the ids of rows, and make an empty bucket equal to another one. The
    bucket must not be trained afterwards, because numbers that only training uses are not kept.
    Errors: MEMORY
  */
  PetscErrorCode (*change)(void *bucket, const TrsDirectoryChange *change);
  PetscErrorCode (*copy)(const void *bucket, void *to);
  /* anew: from now on, youngest covers only ids that lose their rows later. */
  void (*count)(void *bucket, PetscBool anew, TrsDirectoryCounts *counts);
  /* As the functions of TrsPlacementOps with these names (placement.h). */
  PetscErrorCode (*add_state)(const TrsEmbeddingShards *shards, int table, TrsState *state);
  PetscErrorCode (*state_was_read)(const TrsEmbeddingShards *shards, int table, const char *path);
  /*
    Make a tensor of the table's rows a list of those in use; NULL: all rows are in the file. The
    tensor's parts are this rank's buckets.
  */
  void (*list_rows)(const TrsEmbeddingShards *shards, int table, TrsStateTensor *tensor);
};

extern const TrsDirectoryOps trs_directory_zch, trs_directory_dynamic;

/* The directory of shard i; NULL if its table does not keep ids. */
static inline TrsDirectory *TrsDirectoryOf(const TrsEmbeddingShards *shards, int i)
{
  return (TrsDirectory *)shards->shard[i].keys;
}

/*
  Find bucket b of a table among this rank's shards. column0: only in shards that have the table's
  first columns. Returns the shard's number, or -1.
*/
int TrsDirectoryFind(const TrsEmbeddingShards *shards, int table, int64_t b, PetscBool column0);

/*
  Change the ids of rows of a directory that has the whole table: change->row [n] are rows of the
  table, ascending, and used [buckets] is NULL if the numbers of rows in use are unchanged. Lookups
  must not run meanwhile. For lookups only, as ops->change. Errors: MEMORY
*/
PetscErrorCode TrsDirectoryChangeRows(const TrsDirectory *directory, const TrsDirectoryChange *change,
                                      const int64_t *used);

/* Make the empty buckets of `to` equal to those of `directory`, for lookups only. Errors: MEMORY */
PetscErrorCode TrsDirectoryCopy(const TrsDirectory *directory, const TrsDirectory *to);

/*
  Add the numbers of a table's buckets, over the shards of this rank that have the table's first
  columns. So the buckets of column shards are counted once. anew: as in TrsDirectoryOps.count.
*/
void TrsDirectoryCount(const TrsEmbeddingShards *shards, int table, PetscBool anew,
                       TrsDirectoryCounts *counts);

/*
  The age in batches that an id should reach before it loses its row. Younger ids show that a table
  is too small for the ids that training uses at a time. zch: an interval between evictions, at
  least 2 batches. dynamic: the ttl, or 2 batches without one.
*/
static inline int64_t TrsZchYoung(const TrsZchRule *rule)
{
  return PetscMax(rule->interval, 2);
}

static inline int64_t TrsDynamicYoung(const TrsDynamicRule *rule)
{
  return rule->ttl ? rule->ttl : 2;
}

/* This age for a table with id_map zch or dynamic. */
static inline int64_t TrsDirectoryYoung(const TrsTableConfig *table)
{
  return table->id_map.kind == TRS_ID_MAP_DYNAMIC ? TrsDynamicYoung(&table->dynamic)
                                                  : TrsZchYoung(&table->zch);
}
