/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Placement at the owner: a key that has arrived gets a place.

  A key is what travels: a raw id, or a row of a shard. A place is the row that the key has now, or
  the memory where this row is read and updated. What the places are may change from batch to batch:
  a placement gives places to new keys and takes them from old ones. Payloads, updates and kernels
  see places and stay as they are.

  The placements of a lookup form a stack. Keys enter at the bottom:

    keys  -- ids to rows -->  rows in ids->jagged.values, and after that
          -- rows to lines -->  TrsTbeInput.locations, the lines where these rows are

  Each placement of a stack treats some of the lookup's tables and leaves other features as they
  are. A lookup whose tables have no placement has trs_placement_none.

  Calls for a batch, in this order:

    take      when its ids have arrived, before rows are listed or sorted. The batch before may
              still be without its update. Takes come in the order of the global batches
    ahead     beside other work, before the forward; may be left out
    forward   before the rows are read; behind the updates of all batches before
    backward  before the rows are updated, with or without a forward
    done      after the update, or after the forward of a batch that has no update

  An evaluation's batches may come between a training's. They give no places and take none. Between
  forward and done a batch uses its places: until then they keep the batch's rows (locks). After
  take, a batch is known by the address of its ids, which no other batch in flight has.

  Laws for every placement:
  - Bits depend on keys and on the order of the global batches, never on ranks, copies, pipelines or
    caches. All column shards of a row range get the same keys in the same order and decide alike.
  - Random numbers are keyed by table and row, or raw id (src/RULES.md): so a row that lies in
    another place (a line, a frame) still has its number in ids->jagged.values.
  - take may decide that a row has a new key, but batches before may still update the row. Its new
    contents are written in forward. Placements above must not hold old contents then:
    TrsPlacementSettle(self->above, ..., PETSC_TRUE) comes first.

  A new kind is a table of functions and its line in trs_placements (placement.c).
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
  TrsTbeTable *table; /* [n_tables] what the kernels get; a placement may set lines in it */
} TrsPlacementTables;

/* A batch whose keys have arrived. */
typedef struct {
  int slot;           /* of the batches in flight, below TRS_CACHE_BATCHES */
  PetscBool training; /* an update follows */
  const TrsTbe *tbe;  /* the table of each feature of ids */
  /*
    The keys. take sets jagged.values to the rows, in memory of the placement: the keys' own memory
    may be the reader's.
  */
  TrsKjt *ids;
} TrsPlacementBatch;

typedef struct TrsPlacementImpl *TrsPlacement;

/* A kind of placement. All functions after destroy may be NULL. */
typedef struct TrsPlacementOps {
  const char *name;
  /* Does the kind treat a table? The plan and the options decide, so that all ranks agree. */
  PetscBool (*treats)(const TrsEmbeddingShards *shards, int table);
  /* Set self->data. It stays NULL if this rank has no rows of a table that the kind treats. */
  PetscErrorCode (*create)(TrsPlacement self, const TrsPlacementTables *tables);
  PetscErrorCode (*destroy)(TrsPlacement self);
  PetscErrorCode (*take)(TrsPlacement self, TrsStream stream, const TrsPlacementBatch *batch);
  PetscErrorCode (*ahead)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  PetscErrorCode (*forward)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  PetscErrorCode (*backward)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  PetscErrorCode (*done)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input);
  /*
    Write rows back to where they live, for whoever reads or changes them there. drop: hold none of
    them afterwards, so that they may be changed.
  */
  PetscErrorCode (*settle)(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, PetscBool drop);
  /*
    Add the tensors of a table's keys and places to a checkpoint's list, on all ranks, with this
    rank's parts. Which key has which row belongs to the TrsEmbeddingShard, as its weights do:
    lookups of several threads may share it.
  */
  PetscErrorCode (*add_state)(const TrsEmbeddingShards *shards, int table, TrsState *state);
} TrsPlacementOps;

/* A level of a lookup's stack. */
struct TrsPlacementImpl {
  const TrsPlacementOps *ops;
  void *data;
  TrsPlacement above; /* NULL: the top */
};

extern const TrsPlacementOps trs_placement_none, trs_placement_row_cache;

/* All kinds, from the bottom of a stack to its top. Ends with NULL. */
extern const TrsPlacementOps *const trs_placements[];

/*
  TrsPlacementCreate - Stack the placements that the tables of a lookup need.

  Not collective.

  In:     tables     borrowed until Create returns
  Out:    placement  the bottom of the stack; never NULL
  Errors: those of the kinds' create
*/
PetscErrorCode TrsPlacementCreate(const TrsPlacementTables *tables, TrsPlacement *placement);
PetscErrorCode TrsPlacementDestroy(TrsPlacement *placement);

/* Is the stack trs_placement_none, which does nothing? Also for NULL. */
PetscBool TrsPlacementIsNone(TrsPlacement placement);

/*
  Does some kind treat the table? by_key: a kind that makes rows of keys. The same on all ranks. Not
  collective.
*/
PetscBool TrsPlacementTreats(const TrsEmbeddingShards *shards, int table, PetscBool by_key);

/* The level of a kind, or NULL. */
TrsPlacement TrsPlacementFind(TrsPlacement placement, const TrsPlacementOps *ops);

/*
  Call a function of all levels from the bottom up; settle from the top down. Not collective. A
  batch without ids has take alone.
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
