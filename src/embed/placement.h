/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Placement at the owner: an arrived key gets a place.

  A key is what travels: a raw id, or a row of a shard. A place is the row that the key has now, or
  the memory where this row is read and updated. Places may change from batch to batch: a placement
  gives places to new keys and takes them from old keys. Payloads, updates and kernels see only
  places.

  The placements of a lookup form a stack. Keys enter at the bottom:

    keys  -- ids to rows -->  rows in ids->jagged.values, and after that
          -- rows to lines -->  TrsTbeInput.locations, the lines where these rows are

  Each placement of a stack treats some of the lookup's tables and leaves the other features
  unchanged. A lookup whose tables have no placement has trs_placement_none.

  Calls for a batch, in this order:

    take      when its ids have arrived, before rows are listed or sorted. The previous batch may
              not be updated yet. Takes come in the order of the global batches
    ahead     beside other work, before the forward; optional
    forward   before the rows are read, after the updates of all previous batches
    backward  before the rows are updated, with or without a forward
    done      after the update, or after the forward of a batch without an update

  An evaluation's batches may come between a training's batches. They neither give nor take places.
  A batch uses its places between forward and done, and locks keep its rows there until done. After
  take, a batch is identified by the address of its ids, which no other batch in flight has.

  Rules for every placement:

  - Bits depend on keys and on the order of the global batches, never on ranks, copies, pipelines or
    caches. All column shards of a row range get the same keys in the same order and make the same
    decisions.
  - Random numbers are keyed by table and row, or by table and raw id (src/RULES.md). So a row in
    another place (a line, a frame) must keep its number in ids->jagged.values.
  - take may assign a row to a new key while earlier batches may still update the row. The row's new
    contents are therefore written in forward. Placements above must then hold no old contents: call
    TrsPlacementSettle(self->above, ..., PETSC_TRUE) first.

  A new kind is a table of functions and a line in trs_placements (placement.c).
*/
#pragma once

#include "embed/embedding_shards.h"
#include "sparse/kjt.h"

/* The tables of a lookup. */
typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsEmbeddingShards *shards;
  int n_tables;
  const int *shard;   /* [n_tables] number of each table's shard; -1: it has no rows here */
  TrsTbeTable *table; /* [n_tables] the kernels' input; a placement may set lines in it */
} TrsPlacementTables;

/*
  The order of a batch's samples: block i, of batch[i] samples of each feature, comes from rank
  rank[i]. rank NULL: in the order of the ranks.
*/
typedef struct {
  int n;
  const int64_t *batch; /* [n] */
  const int *rank;      /* [n] */
} TrsPlacementSources;

/* A batch whose keys have arrived. */
typedef struct {
  int slot;           /* its slot among the batches in flight, below TRS_CACHE_BATCHES */
  PetscBool training; /* an update follows */
  const TrsTbe *tbe;  /* maps the features of ids to tables */
  /*
    The keys. take points jagged.values to the rows, in memory of the placement, because the keys'
    memory may belong to the reader.
  */
  TrsKjt *ids;
  TrsPlacementSources sources; /* n 0: the samples are in the order of the global batch */
} TrsPlacementBatch;

typedef struct TrsPlacementImpl *TrsPlacement;

/* A kind of placement. All functions after destroy may be NULL. */
typedef struct TrsPlacementOps {
  const char *name;
  /* True if the kind treats a table. Depends on plan and options, so that all ranks agree. */
  PetscBool (*treats)(const TrsEmbeddingShards *shards, int table);
  /* Set self->data. It stays NULL if this rank has no rows of tables that the kind treats. */
  PetscErrorCode (*create)(TrsPlacement self, const TrsPlacementTables *tables);
  PetscErrorCode (*destroy)(TrsPlacement self);
  PetscErrorCode (*take)(TrsPlacement self, TrsStream stream, const TrsPlacementBatch *batch);
  PetscErrorCode (*ahead)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  PetscErrorCode (*forward)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  PetscErrorCode (*backward)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  PetscErrorCode (*done)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  /*
    Write rows back to their tables, so that other code may read them there. drop: also hold none of
    these rows afterwards, so that other code may change them.
  */
  PetscErrorCode (*settle)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, PetscBool drop);
  /*
    Create and destroy shards->shard[i].keys, the map from keys to rows, with an empty map. Not
    NULL if take turns keys into rows.
  */
  PetscErrorCode (*create_keys)(const TrsEmbeddingShards *shards, int i);
  PetscErrorCode (*destroy_keys)(const TrsEmbeddingShards *shards, int i);
  /*
    Add the tensors of a table's keys and places to a checkpoint's list, on all ranks, with this
    rank's parts. The map from keys to rows belongs to the TrsEmbeddingShard, like the weights:
    lookups of several threads may share it.
  */
  PetscErrorCode (*add_state)(const TrsEmbeddingShards *shards, int table, TrsState *state);
  /* Use these tensors after `path` was read. Errors: DATA with the tensor if they disagree. */
  PetscErrorCode (*state_was_read)(const TrsEmbeddingShards *shards, int table, const char *path);
  /*
    Make a tensor of the table's rows a list (io/state.h) if a file has only those in use, with a
    unit for each TrsTableRowUnit() rows. Its parts will follow.
  */
  PetscErrorCode (*list_rows)(const TrsEmbeddingShards *shards, int table, TrsStateTensor *tensor);
} TrsPlacementOps;

/* A level of a lookup's stack. */
struct TrsPlacementImpl {
  const TrsPlacementOps *ops;
  void *data;
  TrsPlacement above; /* NULL at the top */
};

extern const TrsPlacementOps trs_placement_none, trs_placement_ids, trs_placement_row_cache;

/* All kinds, from the bottom of a stack to its top. Ends with NULL. */
extern const TrsPlacementOps *const trs_placements[];

/*
  TrsPlacementCreate - Stack the placements that the tables of a lookup need.

  Not collective.

  In:     tables     borrowed until Create returns
  Out:    placement  the bottom of the stack; never NULL
  Errors: the errors of the kinds' create
*/
PetscErrorCode TrsPlacementCreate(const TrsPlacementTables *tables, TrsPlacement *placement);
PetscErrorCode TrsPlacementDestroy(TrsPlacement *placement);

/* True for NULL, and for trs_placement_none, which does nothing. */
PetscBool TrsPlacementIsNone(TrsPlacement placement);

/*
  True if some kind treats the table. by_key: a kind that turns keys into rows. Not collective; the
  result is the same on all ranks.
*/
PetscBool TrsPlacementTreats(const TrsEmbeddingShards *shards, int table, PetscBool by_key);

/* The stack's level of this kind, or NULL. */
TrsPlacement TrsPlacementFind(TrsPlacement placement, const TrsPlacementOps *ops);

/*
  Call a function of all levels from the bottom up, settle from the top down. Not collective. For a
  batch without ids only take is called.
*/
PetscErrorCode TrsPlacementTake(TrsPlacement placement, TrsStream stream, const TrsPlacementBatch *batch);
PetscErrorCode TrsPlacementAhead(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe,
                                 TrsTbeInput *input);
PetscErrorCode TrsPlacementForward(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe,
                                   TrsTbeInput *input);
PetscErrorCode TrsPlacementBackward(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe,
                                    TrsTbeInput *input);
PetscErrorCode TrsPlacementDone(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe,
                                TrsTbeInput *input);
PetscErrorCode TrsPlacementSettle(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe,
                                  PetscBool drop);
