/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/directory.h"

#include "core/buffer.h"

TrsIdBuckets TrsDirectoryBuckets(const TrsTableConfig *table)
{
  const int64_t n = TrsTableBuckets(table), range = table->zch.range;
  TrsIdBuckets buckets = {.block = 0};

  if (n == 0) return buckets;
  buckets.n = TrsDivisorMake(n);
  buckets.rows = table->num_embeddings / n;
  if (table->id_map.kind == TRS_ID_MAP_ZCH) buckets.block = (range + n - 1) / n;
  return buckets;
}

int TrsDirectoryFind(const TrsEmbeddingShards *shards, int table, int64_t b, PetscBool column0)
{
  for (int i = 0; i < shards->n; i++) {
    const TrsDirectory *directory = TrsDirectoryOf(shards, i);

    if (shards->shard[i].table == table && directory && (!column0 || shards->shard[i].column == 0) &&
        b >= directory->first && b < directory->first + directory->n)
      return i;
  }
  return -1;
}

void TrsDirectoryCountsAdd(TrsDirectoryCounts *to, const TrsDirectoryCounts *from)
{
  to->rows += from->rows;
  to->held += from->held;
  to->given += from->given;
  to->taken += from->taken;
  to->young += from->young;
  to->lookups += from->lookups;
  to->unknown += from->unknown;
  to->refused += from->refused;
  to->dropped += from->dropped;
  to->bytes += from->bytes;
  if (from->youngest >= 0 && (to->youngest < 0 || from->youngest < to->youngest))
    to->youngest = from->youngest;
}

void TrsDirectoryCount(const TrsEmbeddingShards *shards, int table, PetscBool anew,
                       TrsDirectoryCounts *counts)
{
  *counts = (TrsDirectoryCounts){.youngest = -1};
  for (int i = 0; i < shards->n; i++) {
    const TrsDirectory *directory = TrsDirectoryOf(shards, i);

    if (shards->shard[i].table != table || shards->shard[i].column != 0 || !directory) continue;
    for (int64_t b = 0; b < directory->n; b++) {
      TrsDirectoryCounts of_bucket;

      directory->ops->count(directory->bucket[b], anew, &of_bucket);
      TrsDirectoryCountsAdd(counts, &of_bucket);
    }
    counts->lookups += directory->lookups;
    counts->unknown += directory->unknown;
    counts->dropped += directory->dropped;
  }
}

PetscErrorCode TrsDirectoryChangeRows(const TrsDirectory *d, const TrsDirectoryChange *change,
                                      const int64_t *used)
{
  int64_t *row, end;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(change->n, sizeof(*row), &row));
  for (int64_t b = 0, i = 0; b < d->n; b++, i = end) {
    const int64_t first = b * d->rule.rows;
    TrsDirectoryChange of_bucket = *change;

    for (end = i; end < change->n && change->row[end] < first + d->rule.rows; end++)
      row[end] = change->row[end] - first;
    of_bucket.n = end - i;
    of_bucket.row = row + i;
    if (change->id) of_bucket.id = change->id + i;
    if (change->held) of_bucket.held = change->held + i;
    of_bucket.used = used ? used[b] : -1;
    PetscCall(d->ops->change(d->bucket[b], &of_bucket));
  }
  PetscCall(TrsFree(&row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDirectoryCopy(const TrsDirectory *d, const TrsDirectory *to)
{
  PetscFunctionBegin;
  for (int64_t b = 0; b < d->n; b++) PetscCall(d->ops->copy(d->bucket[b], to->bucket[b]));
  PetscFunctionReturn(PETSC_SUCCESS);
}
