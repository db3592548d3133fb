/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The route of a group: the shards to which its features are sent. It is made once, from the plan.
  Only this code of the folder reads the shards of a plan.

  A route arranges the W ranks as a grid of H hosts with L ranks each. Every column block of a table
  lies on one host of the grid, and its rows are split over the L ranks of this host:

    TRS_GRID_RANKS  L = 1: each rank is a host, and a shard has all rows
                    (table_wise, column_wise, table_column_wise)
    TRS_GRID_HOSTS  the machine's hosts (table_row_wise, grid_shard)
    TRS_GRID_WORLD  H = 1: all ranks are one host (row_wise; any table whose rows are sent by id;
                    replicas)
    TRS_GRID_WORLD_BY_HOSTS  as TRS_GRID_WORLD, but blocks arrive in the order of TRS_GRID_HOSTS,
                             for sums that are first made inside the machine's hosts (row_wise)

    own ids
    --permute--> [host][its entries][B]
    --bucketize--> [host][rank of the host][its entries][B]
    --all-to-all--> [my host's entries][source][B], the ids of my rows

  An entry is a feature of a column block. It is the unit that is sent, looked up and pooled. A
  source is a rank whose samples arrive. Sources are sorted by their position in the host, then by
  host. Internal to shard/.
*/
#pragma once

#include "dist/kjt_all_to_all.h"
#include "embed/lookup.h"
#include "spec/sharding_plan.h"

typedef struct TrsShardingImpl *TrsSharding; /* defined in sharding.h */

typedef enum { TRS_GRID_RANKS, TRS_GRID_HOSTS, TRS_GRID_WORLD, TRS_GRID_WORLD_BY_HOSTS } TrsGrid;

typedef struct {
  int table;               /* index among the group's tables */
  TrsColumnBlock block;    /* the block to which the entry belongs */
  int64_t columns, column; /* number of columns of the block, and its first column in the table */
} TrsRouteEntry;

/* Adjacent columns of the model's matrix that belong to the block of one host or rank. */
typedef struct {
  int block;
  int64_t block_column, column, width;
} TrsColumnRun;

/* A feature of which all columns lie in the block of one host. */
typedef struct {
  int block, feature; /* the feature's index in the model */
  int64_t block_column;
} TrsWholeFeature;

typedef struct {
  TrsGrid grid;
  int L, H;
  int source_hosts;   /* H; for TRS_GRID_WORLD_BY_HOSTS the number of the machine's hosts */
  int n_features;     /* number of features of the group's tables */
  int *group_feature; /* [n_features] indices of the features in the model, by table */
  int *table_feature; /* [n_tables + 1] index of the first feature of each of the group's tables */
  int n_entries;
  TrsRouteEntry *entry; /* [n_entries] sorted by host, then table, column block and feature */
  int *host_entry;      /* [H + 1] index of the first entry of each host */
  int *place;           /* [n_entries] index of the entry's feature in the group */
  int *feature;         /* [n_entries] index of the entry's feature in the model */
  int *n_sent;          /* [W] number of features sent to each rank */
  /* [W] TrsRouteSource() of each block; NULL: the blocks are in the order of ranks */
  int *source;
  /* [L * n_entries] the order in which buckets are sent; NULL: the order in which they are cut */
  int *order;
  /* [n_entries] the cut of an entry's rows over a host's ranks; NULL for TRS_GRID_RANKS */
  TrsBucketSpec *cut_by;
  int64_t *bounds;     /* [n_entries, L + 1] limits of rows, used for uneven cuts */
  TrsKjt entries, cut; /* scratch of TrsRouteSend() */
  int n_runs;
  TrsColumnRun *run;   /* [n_runs] */
  TrsColumnCopy *copy; /* [n_runs] scratch */
  int n_whole;
  /* [n_whole] features that are not in the runs; NULL: the runs have all features */
  TrsWholeFeature *whole;
} TrsRoute;

/* The rank whose samples arrive in the i-th block. */
static inline int TrsRouteSource(const TrsRoute *route, int i)
{
  return i % route->source_hosts * (route->L * route->H / route->source_hosts) + i / route->source_hosts;
}

/*
  Pooled embeddings in the model's layout: feature f of sample b begins at column columns[f] of row
  b. The elements are fp32, or bf16 if all groups support it (TrsShardedEbcConfig). A feature that a
  layer of the model pools has its own matrix by_id[f], with a row of embedding_dim floats for each
  id of the batch.

  If the model reads vectors in place (TrsShardedEbcConfig.in_place), a forward sets place[f] to the
  address of each feature's vectors. It lies in `rows`, or in the memory in which the vectors have
  arrived. The gradients overwrite the vectors.
*/
typedef struct {
  TrsMatrix rows;
  const int64_t *columns;
  float *const *by_id;   /* [features]; NULL: the model has no layer that pools a feature */
  TrsVectorPlace *place; /* [features]; NULL: all vectors are in `rows` */
} TrsPooledMatrix;

/* The address of column `column` in the matrix, which must have floats. */
static inline float *TrsPooledFloats(const TrsPooledMatrix *pooled, int64_t column)
{
  return (float *)pooled->rows.data + column;
}

/* Make the route of a group on its grid. The group's tables must be known. Not collective. */
PetscErrorCode TrsRouteCreate(TrsSharding sharding);
PetscErrorCode TrsRouteDestroy(TrsSharding sharding);

/*
  The index of entry e's shard among this rank's shards. -1: this rank has no shard of the entry.
*/
int TrsRouteShard(TrsSharding sharding, int e);

/*
  TrsRouteCreateLookup - Create the lookup of this rank's shards. It has one feature for each entry
    of the rank's host.

  Not collective.

  In:  mean    true: if the model uses means, the lookup divides by bag lengths
       direct  true: the lookup works on the model's matrix; false: on a matrix with only this
               rank's entries
  Out: dim     number of columns of this rank's entries; may be NULL
*/
PetscErrorCode TrsRouteCreateLookup(TrsSharding sharding, PetscBool mean, PetscBool direct, TrsLookup *lookup,
                                    int64_t *dim);

/*
  TrsRouteCreateRuns - List the columns of the model's matrix that each host provides.

  Not collective.

  In:  by_rank  true: list the columns by rank instead, for each rank that has some of their rows
       whole    true: features whose columns all lie in one block are listed in route->whole instead
  Out: dims     [H; W if by_rank] number of columns of each block
*/
PetscErrorCode TrsRouteCreateRuns(TrsSharding sharding, PetscBool by_rank, PetscBool whole, int64_t *dims);

/*
  TrsRouteCreateExchanges - Create the exchange of ids of every slot.

  Not collective.

  In: in_turn  true: a batch's ids are laid out before the next batch's ids arrive, so both batches
               can share memory (TrsKjtExchangeShare()). Evaluation batches may come between
               training batches
*/
PetscErrorCode TrsRouteCreateExchanges(TrsSharding sharding, PetscBool in_turn);

/*
  TrsRouteSend - Copy ids into the order in which they are sent.

  Not collective.

  In:    in       the batch
         feature  [n_entries] index of each entry's feature in `in`: route->feature or route->place
  InOut: entries  gets the entries' ids before they are cut: &route->entries, or memory in which the
                  caller keeps them
         places   int64, for a grid with one host: gets the index in `send` of each id of `entries`;
                  or NULL
         send     gets the result; grows as needed
*/
PetscErrorCode TrsRouteSend(TrsSharding sharding, TrsStream stream, const TrsKjt *in, const int *feature,
                            TrsKjt *entries, TrsDeviceBuffer *places, TrsKjt *send);

/*
  Cut the ids of entries, [n_entries][B], by rows. The result `out` is [rank of the
  host][n_entries][B], and its ids count from the start of their shard. places: as for
  TrsRouteSend(). Not collective.
*/
PetscErrorCode TrsRouteCut(TrsSharding sharding, TrsStream stream, const TrsKjt *entries, int64_t *places,
                           TrsKjt *out);

/*
  Scatter copies all runs from the blocks' matrices to the model's matrix. Gather copies them from
  the model's matrix to the blocks. Block q is a matrix [B, dims[q]] of sharding->rows_type at
  block[q]. Not collective.
*/
PetscErrorCode TrsRouteScatterRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                   const float *const *block, const int64_t *dims,
                                   const TrsPooledMatrix *pooled);
PetscErrorCode TrsRouteGatherRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                  const TrsPooledMatrix *pooled, const float *const *block,
                                  const int64_t *dims);
