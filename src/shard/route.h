/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The route of a group: which shards its features go to. It is made once, from the plan. All walks
  over a plan in this folder are here.

  A route lays the W ranks out as a grid of H hosts with L ranks each. Every column block of a table
  lies on one host of the grid, and its rows are spread over the L ranks of this host:

    TRS_GRID_RANKS  L = 1: each rank is a host, and a shard has all rows
                    (table_wise, column_wise, table_column_wise)
    TRS_GRID_HOSTS  the machine's hosts (table_row_wise, grid_shard)
    TRS_GRID_WORLD  H = 1: all ranks are one host
                    (row_wise; any table whose rows travel by id; replicas)
    TRS_GRID_WORLD_BY_HOSTS  as TRS_GRID_WORLD, but sources arrive as with TRS_GRID_HOSTS, for sums
                    that are made inside the machine's hosts first (row_wise)

    own ids
    --permute--> [host][its entries][B]
    --bucketize--> [host][rank of the host][its entries][B]
    --all-to-all--> [my host's entries][source][B], the ids of my rows

  An entry is a feature of a column block: the unit that is sent, looked up and pooled. Sources
  arrive in order of their places in their hosts, then of the hosts. Internal to shard/.
*/
#pragma once

#include "dist/kjt_all_to_all.h"
#include "embed/lookup.h"
#include "spec/sharding_plan.h"

typedef struct TrsShardingImpl *TrsSharding; /* sharding.h */

typedef enum { TRS_GRID_RANKS, TRS_GRID_HOSTS, TRS_GRID_WORLD, TRS_GRID_WORLD_BY_HOSTS } TrsGrid;

typedef struct {
  int table;               /* index among the group's tables */
  TrsColumnBlock block;    /* the block that the entry belongs to */
  int64_t columns, column; /* of the block in the table: number of columns, and the first one */
} TrsRouteEntry;

/* Adjacent columns that the block of a host (or of a rank) has in the model's matrix. */
typedef struct {
  int block;
  int64_t block_column, column, width;
} TrsColumnRun;

/* Where the block of a host has all columns of a feature. */
typedef struct {
  int block, feature; /* the feature's number in the model */
  int64_t block_column;
} TrsWholeFeature;

typedef struct {
  TrsGrid grid;
  int L, H;
  int source_hosts;   /* H, or the machine's hosts, by which sources arrive */
  int n_features;     /* features of the group's tables */
  int *group_feature; /* [n_features] the features' numbers in the model, in order of table */
  int *table_feature; /* [n_tables + 1] the first feature of each table of the group */
  int n_entries;
  TrsRouteEntry *entry; /* [n_entries] by host, then table, column block, feature */
  int *host_entry;      /* [H + 1] the first entry of each host */
  int *place;           /* [n_entries] place of the entry's feature among the group's features */
  int *feature;         /* [n_entries] number of the entry's feature in the model */
  int *n_sent;          /* [W] features sent to each rank */
  /* [L * n_entries] the order in which buckets are sent; NULL: as they are cut */
  int *order;
  TrsBucketSpec *cut_by; /* [n_entries] rows over the ranks of a host; NULL for TRS_GRID_RANKS */
  int64_t *bounds;       /* [n_entries, L + 1] used if a cut is uneven */
  TrsKjt entries, cut;   /* scratch of TrsRouteSend() */
  int n_runs;
  TrsColumnRun *run;   /* [n_runs] */
  TrsColumnCopy *copy; /* [n_runs] scratch */
  int n_whole;
  TrsWholeFeature *whole; /* [n_whole] features that are not among the runs; NULL: all are */
} TrsRoute;

/* The rank whose samples are the i-th ones on arrival. */
static inline int TrsRouteSource(const TrsRoute *route, int i)
{
  return i % route->source_hosts * (route->L * route->H / route->source_hosts) + i / route->source_hosts;
}

/*
  Pooled embeddings as the model lays them out: feature f of sample b begins at column columns[f] of
  row b. They are of floats, or of bf16 where all groups take it (TrsShardedEbcConfig). A feature
  that a layer of the model pools has a matrix of its own, with a row of embedding_dim floats for
  each id of the batch: by_id[f].

  In a model that takes vectors where they lie (TrsShardedEbcConfig.in_place) a forward sets
  place[f] for each feature: in `rows`, or where the vectors have arrived. Their gradients take
  their places.
*/
typedef struct {
  TrsMatrix rows;
  const int64_t *columns;
  float *const *by_id;   /* [features]; NULL if no table has such a pooling */
  TrsVectorPlace *place; /* [features]; NULL: all vectors are in `rows` */
} TrsPooledMatrix;

/* Column `column` of a matrix of floats. */
static inline float *TrsPooledFloats(const TrsPooledMatrix *pooled, int64_t column)
{
  return (float *)pooled->rows.data + column;
}

/* Make the route of a group over its grid. The group's tables must be known. Not collective. */
PetscErrorCode TrsRouteCreate(TrsSharding sharding);
PetscErrorCode TrsRouteDestroy(TrsSharding sharding);

/* This rank's shard of entry e: its index among the rank's shards, or -1 if it has none. */
int TrsRouteShard(TrsSharding sharding, int e);

/*
  TrsRouteCreateLookup - Create the lookup of this rank's shards, with one feature for each entry of
  its host.

  Not collective.

  In:  mean    the lookup divides by the lengths of bags if the model sees means
       direct  the lookup works on the model's matrix; else on a matrix of this rank's entries alone
  Out: dim     columns of this rank's entries; may be NULL
*/
PetscErrorCode TrsRouteCreateLookup(TrsSharding sharding, PetscBool mean, PetscBool direct, TrsLookup *lookup,
                                    int64_t *dim);

/*
  TrsRouteCreateRuns - List the columns of the model's matrix that each host gives.

  Not collective.

  In:  by_rank  list the columns of each rank that has some of their rows instead
       whole    list features whose columns all lie in one block in route->whole instead
  Out: dims     [H, by_rank: W] columns of each block
*/
PetscErrorCode TrsRouteCreateRuns(TrsSharding sharding, PetscBool by_rank, PetscBool whole, int64_t *dims);

/*
  TrsRouteCreateExchanges - Create the exchange of ids for every slot.

  Not collective.

  In: in_turn  a batch's ids are laid out before those of the next batch arrive, so that both share
               memory (TrsKjtExchangeShare()). An evaluation's batches may come between a training's
*/
PetscErrorCode TrsRouteCreateExchanges(TrsSharding sharding, PetscBool in_turn);

/*
  TrsRouteSend - Bring ids into the order in which they are sent.

  Not collective.

  In:    in       the batch
         feature  [n_entries] each entry's feature of `in`: route->feature or route->place
  InOut: entries  the entries' ids before they are cut: &route->entries, or memory in which they
                  stay for the caller
         places   int64, for a grid with one host: the place in `send` of each id of `entries`; or
                  NULL
         send     grows as needed
*/
PetscErrorCode TrsRouteSend(TrsSharding sharding, TrsStream stream, const TrsKjt *in, const int *feature,
                            TrsKjt *entries, TrsDeviceBuffer *places, TrsKjt *send);

/*
  Cut ids of entries, [n_entries][B], by rows. out is [rank of the host][n_entries][B], with ids
  counted from the start of their shard. places: as for TrsRouteSend(). Not collective.
*/
PetscErrorCode TrsRouteCut(TrsSharding sharding, TrsStream stream, const TrsKjt *entries, int64_t *places,
                           TrsKjt *out);

/*
  Copy all runs from the blocks' matrices to the model's (Scatter), or from the model's to the
  blocks' (Gather), which are then written. Block q is [B, dims[q]] of sharding->rows_type, at
  block[q]. Not collective.
*/
PetscErrorCode TrsRouteScatterRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                   const float *const *block, const int64_t *dims,
                                   const TrsPooledMatrix *pooled);
PetscErrorCode TrsRouteGatherRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                  const TrsPooledMatrix *pooled, const float *const *block,
                                  const int64_t *dims);
