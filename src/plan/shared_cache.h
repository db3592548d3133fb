/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Hit rates of tables that share a cache, from the curve that each table has alone.

  LRU: a row is in the cache as long as it was used within the cache's characteristic time, which is
  the same for the rows of all tables (Che's approximation). In that time a table fills some lines.
  So the time at which the tables' lines add up to the cache tells each table's lines, and its own
  curve tells its hit rate there. The lines of a table grow by its misses (Denning and Schwartz),
  which its curve gives too. Of a run of few steps, where the start counts, a curve is the mean over
  the steps: those after a row's time, and those before, in which the cache only fills.

  LFU: lines go to the rows that are used most, so to the table whose next lines bring most hits.

  Curves come from tools/dataset_statistics.py, so conflicts of sets are in them. A row needs one
  line, however wide it is: lines have the width of the widest table.

  Limit: where a cache has fewer lines than the tables use in one batch, the order of the tables
  decides who has them, and the hit rate of all is lower: by 0.08 where that was measured.

  Source: Che, Tung, Wang 2002; Denning, Schwartz 1972; src/embed/row_cache.h, compute/cache.h
*/
#pragma once

#include "plan/search_space.h"
#include "spec/sharding_plan.h"

/* A table, or a part of its rows, in a cache. */
typedef struct {
  int n;              /* parts of the histogram */
  const double *hist; /* [n] of reuse distances, as cache_stats_mrc_hist; borrowed */
  double rows;        /* number of rows */
  double lookups;     /* distinct rows in a step */
} TrsCacheUser;

/*
  TrsSharedCacheHits - The hit rate of each user of a cache.

  Not collective.

  In:     users  [n] with rows > 0
          lines  of the cache
          steps  of the run that the histograms are of, from an empty cache; 0: many
  Out:    hit    [n] share of a user's distinct rows of a step that are in the cache
  Errors: MEMORY
*/
PetscErrorCode TrsSharedCacheHits(int n, const TrsCacheUser *users, double lines, double steps, PetscBool lfu,
                                  double *hit);

/*
  TrsSharedMissRates - Miss rates of tables in the caches that they would share if every table that
    may be cached was.

  Not collective. Tables share a cache if they have the same load factor and algorithm.

  Out:    miss  [tables->n] 1 for tables without statistics or that may not be cached
  Errors: MEMORY
*/
PetscErrorCode TrsSharedMissRates(const TrsTableConfigs *tables, double steps, double *miss);

/*
  TrsSharedCachesWrite - Write the hit rates of a plan's caches, the first ranks' caches one by one.

  Not collective. Nothing is written without tables that have statistics and a cache.
*/
PetscErrorCode TrsSharedCachesWrite(const TrsCostModel *model, const TrsShardingPlan *plan, TrsText *text);
