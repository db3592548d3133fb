/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/caches.h"

#include <stdio.h>
#include <string.h>

enum { TRS_CACHE_NAMES = 96, TRS_CACHE_LINES = 8 };

/* The facts about one cache that a rank sends to rank 0. */
typedef struct {
  int64_t rank, algorithm, n_tables, rows, capacity_rows, bytes;
  int64_t counters[TRS_CACHE_N_COUNTERS];
  char tables[TRS_CACHE_NAMES]; /* names of the tables, truncated if they are too long */
} TrsCacheRecord;

static void name_tables(const TrsSession *session, const TrsRowCacheInfo *info, char *text, size_t size)
{
  text[0] = '\0';
  for (int i = 0; i < info->n_tables; i++) {
    const size_t used = strlen(text);
    const char *name = session->tables.table[info->table[i]].name;

    if (used + strlen(name) + 6 > size) {
      snprintf(text + used, size - used, ",...");
      return;
    }
    snprintf(text + used, size - used, "%s%s", i ? "," : "", name);
  }
}

/*
  Gather the facts about all caches on rank 0, in the order of ranks. *n is set on all ranks. Free
  `all` with PetscFree(). Collective.
*/
static PetscErrorCode gather(const TrsSession *session, int *n, TrsCacheRecord **all)
{
  const int mine = TrsModelParallelCaches(session->model);
  TrsCacheRecord *own;
  int *counts, *begin;

  PetscFunctionBegin;
  PetscCall(PetscCalloc3((size_t)PetscMax(mine, 1), &own, (size_t)session->size, &counts,
                         (size_t)session->size, &begin));
  for (int i = 0; i < mine; i++) {
    TrsRowCacheInfo info;

    PetscCall(TrsModelParallelCacheInfo(session->model, i, &info));
    own[i] = (TrsCacheRecord){.rank = session->rank,
                              .algorithm = (int64_t)info.algorithm,
                              .n_tables = info.n_tables,
                              .rows = info.rows,
                              .capacity_rows = info.capacity_rows,
                              .bytes = info.bytes};
    memcpy(own[i].counters, info.counters, sizeof(info.counters));
    name_tables(session, &info, own[i].tables, sizeof(own[i].tables));
  }
  PetscCallMPI(MPI_Allgather(&mine, 1, MPI_INT, counts, 1, MPI_INT, session->comm));
  *n = 0;
  for (int r = 0; r < session->size; r++) {
    begin[r] = *n * (int)sizeof(*own);
    *n += counts[r];
    counts[r] *= (int)sizeof(*own);
  }
  PetscCall(PetscMalloc1((size_t)PetscMax(*n, 1), all));
  PetscCallMPI(
      MPI_Gatherv(own, mine * (int)sizeof(*own), MPI_BYTE, *all, counts, begin, MPI_BYTE, 0, session->comm));
  PetscCall(PetscFree3(own, counts, begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double percent(int64_t part, int64_t whole)
{
  return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static PetscErrorCode print_caches(int n, const TrsCacheRecord *cache)
{
  PetscFunctionBegin;
  for (int i = 0; i < PetscMin(n, TRS_CACHE_LINES); i++) {
    const TrsCacheRecord *c = &cache[i];
    const int64_t *k = c->counters;

    PetscCall(PetscPrintf(
        PETSC_COMM_SELF,
        "%-10s rank %" PRId64 " %s, %" PRId64 " of %" PRId64 " rows (%s): hit rate %.1f%% of %" PRId64
        " distinct ids, %" PRId64 " conflict misses (%.1f%% of %" PRId64 " ids)\n",
        "cache", c->rank, c->algorithm == TRS_CACHE_LFU ? "lfu" : "lru", c->capacity_rows, c->rows, c->tables,
        percent(k[TRS_CACHE_UNIQUE] - k[TRS_CACHE_UNIQUE_MISSES], k[TRS_CACHE_UNIQUE]), k[TRS_CACHE_UNIQUE],
        k[TRS_CACHE_CONFLICT_MISSES], percent(k[TRS_CACHE_CONFLICT_MISSES], k[TRS_CACHE_REQUESTED]),
        k[TRS_CACHE_REQUESTED]));
  }
  if (n > TRS_CACHE_LINES)
    PetscCall(
        PetscPrintf(PETSC_COMM_SELF, "%-10s and %d more (/cache of -output)\n", "", n - TRS_CACHE_LINES));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Record the caches on rank 0. On other ranks the call has no effect. */
static PetscErrorCode record_caches(TrsResults results, int n, const TrsCacheRecord *cache)
{
  static const char *const counter[] = {
      "cache/calls",         "cache/requested_ids",          "cache/unique_ids",
      "cache/unique_misses", "cache/conflict_unique_misses", "cache/conflict_misses"};

  PetscFunctionBegin;
  PetscCall(TrsResultsForget(results, "cache/"));
  for (int i = 0; i < n; i++) {
    const TrsCacheRecord *c = &cache[i];

    PetscCall(TrsResultsAppendInt(results, "cache/rank", c->rank));
    PetscCall(TrsResultsAppendInt(results, "cache/is_lfu", c->algorithm == TRS_CACHE_LFU));
    PetscCall(TrsResultsAppendInt(results, "cache/tables", c->n_tables));
    PetscCall(TrsResultsAppendInt(results, "cache/rows", c->rows));
    PetscCall(TrsResultsAppendInt(results, "cache/capacity_rows", c->capacity_rows));
    PetscCall(TrsResultsAppendInt(results, "cache/bytes", c->bytes));
    for (int k = 0; k < TRS_CACHE_N_COUNTERS; k++)
      PetscCall(TrsResultsAppendInt(results, counter[k], c->counters[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportCaches(const TrsSession *session, TrsResults results)
{
  TrsCacheRecord *cache;
  int n;

  PetscFunctionBegin;
  PetscCall(gather(session, &n, &cache));
  if (session->rank == 0) {
    PetscCall(print_caches(n, cache));
    PetscCall(record_caches(results, n, cache));
  }
  PetscCall(PetscFree(cache));
  PetscFunctionReturn(PETSC_SUCCESS);
}
