/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Computes the hit rates of tables that share a cache. The input is each table's own curve.

  LRU: a row is in the cache if it was used within the cache's characteristic time, which is the
  same for the rows of all tables (Che's approximation). During this time, each table fills some
  lines. The right time is the one at which all tables' lines add up to the cache's size. It gives
  each table's lines, and the table's curve gives the hit rate for them. A table's lines grow by its
  misses (Denning and Schwartz), which also follow from its curve. In a run of few steps, the start
  matters, because at first the cache only fills. The curve is then an average over all steps.

  LFU: lines go to the rows that are used most, so to the table whose next lines bring the most
  hits.

  The curves come from tools/dataset_statistics.py, so they include set conflicts. A row needs one
  line, whatever its width, because lines are as wide as the widest table.

  Limit: if a cache has fewer lines than the tables use in one batch, the lines depend on the
  tables' order, and the common hit rate is lower: by 0.08 in a measurement.

  Source: Che, Tung, Wang 2002; Denning, Schwartz 1972; src/embed/row_cache.h, compute/cache.h
*/
#pragma once

#include "plan/search/search_space.h"
#include "spec/sharding_plan.h"

/* A user of a cache: a table, or some of its rows. */
typedef struct {
  int n;              /* number of parts in the histogram */
  const double *hist; /* [n] histogram of reuse distances, as in cache_stats_mrc_hist; borrowed */
  double rows;        /* number of rows */
  double lookups;     /* number of distinct rows per step */
} TrsCacheUser;

/*
  TrsSharedCacheHits - Compute the hit rate of each user of a cache.

  Not collective.

  In:     users  [n] rows must be > 0
          lines  number of lines in the cache
          steps  number of steps that the histograms cover, starting with an empty cache; 0: many
  Out:    hit    [n] share of a user's distinct rows per step that are in the cache
  Errors: MEMORY
*/
PetscErrorCode TrsSharedCacheHits(int n, const TrsCacheUser *users, double lines, double steps, PetscBool lfu,
                                  double *hit);

/*
  TrsSharedMissRates - Compute the miss rates in shared caches. The call assumes that every table is
    cached if its constraints allow it.

  Not collective. Tables share a cache if they have the same load factor and algorithm.

  Out:    miss  [tables->n] 1 for tables that have no statistics or may not be cached
  Errors: MEMORY
*/
PetscErrorCode TrsSharedMissRates(const TrsTableConfigs *tables, double steps, double *miss);

/*
  TrsSharedCachesWrite - Write the hit rates of a plan's caches. Only the first ranks' caches are
    listed one by one.

  Not collective. Writes nothing if no table has both statistics and a cache.
*/
PetscErrorCode TrsSharedCachesWrite(const TrsCostModel *model, const TrsShardingPlan *plan, TrsText *text);
