/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/changes_impl.h"

#include <string.h>

/* --- set-up --- */

static int ascending(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

  return (x > y) - (x < y);
}

/*
  Cut a table's rows into units. If the table grows, each of its buckets is a unit. Otherwise a unit
  begins wherever one of the table's shards begins.
*/
static PetscErrorCode make_units(const TrsEmbeddingShards *shards, int t, TrsChangesTable *table)
{
  const TrsTableConfig *config = &shards->tables->table[t];
  const TrsTablePlan *plan = TrsShardingPlanFind(shards->plan, config->name);
  const PetscBool grows = (PetscBool)(config->id_map.kind == TRS_ID_MAP_DYNAMIC);
  const int64_t n = grows ? TrsTableBuckets(config) : plan->n_shards;
  int64_t k = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n + 1, &table->begin));
  for (int64_t i = 0; i < n; i++)
    table->begin[i] = grows ? i * TrsTableRowUnit(config) : plan->shard[i].row_offset;
  qsort(table->begin, (size_t)n, sizeof(*table->begin), ascending);
  for (int64_t i = 0; i < n; i++)
    if ((i == 0 || table->begin[i] != table->begin[i - 1]) && table->begin[i] < config->num_embeddings)
      table->begin[k++] = table->begin[i];
  table->n_units = k;
  table->begin[k] = config->num_embeddings;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_shard(TrsChanges c, int i)
{
  TrsEmbeddingShard *shard = &c->shards->shard[i];
  const TrsChangesTable *table = &c->table[shard->table];
  const int64_t first = shard->tbe.row_offset, end = first + shard->tbe.rows;
  TrsChangesShard *s = &c->shard[i];
  const int64_t words = TrsChangedWords(shard->tbe.rows);

  PetscFunctionBegin;
  while (s->first_unit < table->n_units && table->begin[s->first_unit] < first) s->first_unit++;
  while (s->first_unit + s->n_units < table->n_units && table->begin[s->first_unit + s->n_units] < end)
    s->n_units++;
  PetscCall(TrsAlloc(s->n_units + 1, sizeof(*s->lost_at), &s->lost_at));
  PetscCall(TrsAlloc(words, sizeof(*s->marked), &s->marked));
  shard->tbe.changed = s->marked;
  for (int use = 0; use < TRS_CHANGES_N_USES; use++) {
    if (!TrsChangesAreFor(c, (TrsChangesUse)use)) continue;
    PetscCall(TrsAlloc(words, sizeof(*s->set[use].bits), &s->set[use].bits));
    PetscCall(TrsAlloc(s->n_units + 1, sizeof(*s->set[use].at), &s->set[use].at));
  }
  if (!TrsDirectoryOf(c->shards, i) || !TrsChangesAreFor(c, TRS_CHANGES_OF_DELTAS))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(shard->tbe.rows, sizeof(*s->before), &s->before));
  PetscCall(TrsAlloc(words, sizeof(*s->had), &s->had));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsChangesAreFor(TrsChanges changes, TrsChangesUse use)
{
  return (PetscBool)(changes && (changes->uses >> use & 1));
}

PetscErrorCode TrsChangesCreate(TrsEmbeddingShards *shards, unsigned uses, TrsChanges *changes)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_TABLES);
  TrsChanges c;

  PetscFunctionBegin;
  PetscCall(PetscNew(&c));
  c->shards = shards;
  c->uses = uses;
  PetscCall(PetscCalloc2((size_t)shards->tables->n, &c->table, (size_t)PetscMax(shards->n, 1), &c->shard));
  for (int t = 0; t < shards->tables->n; t++) {
    PetscCall(make_units(shards, t, &c->table[t]));
    for (int k = 0; k < TRS_CHANGES_N_TENSORS; k++)
      c->table[t].context[k] = (TrsChangesContext){c, t, (TrsChangesTensor)k};
  }
  for (int i = 0; i < shards->n; i++) PetscCall(create_shard(c, i));
  (void)TrsMemoryFor(before);
  *changes = c;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChangesDestroy(TrsChanges *changes)
{
  TrsChanges c = *changes;

  PetscFunctionBegin;
  if (!c) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < c->shards->n; i++) {
    TrsChangesShard *s = &c->shard[i];

    for (int use = 0; use < TRS_CHANGES_N_USES; use++) {
      PetscCall(TrsFree(&s->set[use].bits));
      PetscCall(TrsFree(&s->set[use].at));
      PetscCall(TrsBufferFree(&s->set[use].rows));
    }
    PetscCall(TrsFree(&s->marked));
    PetscCall(TrsFree(&s->lost_at));
    PetscCall(TrsFree(&s->before));
    PetscCall(TrsFree(&s->had));
    PetscCall(TrsBufferFree(&s->lost));
  }
  for (int k = 0; k < c->n_copied; k++) PetscCall(PetscFree(c->copied[k]));
  PetscCall(PetscFree(c->copied));
  for (int t = 0; t < c->shards->tables->n; t++) {
    PetscCall(PetscFree(c->table[t].begin));
    PetscCall(TrsBufferFree(&c->table[t].read));
  }
  PetscCall(PetscFree2(c->table, c->shard));
  PetscCall(PetscFree(*changes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- which rows have changed --- */

int64_t TrsChangesIdOf(const TrsDirectory *d, int64_t row, uint8_t *held)
{
  const int64_t b = row / d->rule.rows, r = row % d->rule.rows;

  *held = 0;
  return r < d->ops->in_use(d->bucket[b]) ? d->ops->id_of(d->bucket[b], r, held) : 0;
}

static int64_t count_bits(const uint64_t *bits, int64_t words)
{
  int64_t n = 0;

  for (int64_t w = 0; w < words; w++) n += __builtin_popcountll(bits[w]);
  return n;
}

/* If the id that had this row at the last delta has no row now, note that it has lost its row. */
static PetscErrorCode note_lost(const TrsDirectory *d, TrsChangesShard *s, int64_t row)
{
  const int64_t before = s->before[row];
  int64_t now, found;
  uint8_t held;

  PetscFunctionBegin;
  if (!TrsChangesIsSet(s->had, row)) PetscFunctionReturn(PETSC_SUCCESS);
  now = TrsChangesIdOf(d, row, &held);
  if (held && now == before) PetscFunctionReturn(PETSC_SUCCESS);
  if (d->ops->find(d->bucket[row / d->rule.rows], PETSC_FALSE, 0, 1, &before, &found) > 0)
    PetscFunctionReturn(PETSC_SUCCESS); /* it has another row */
  PetscCall(TrsBufferReserve(&s->lost, (s->n_lost + 1) * (int64_t)sizeof(before), PETSC_TRUE));
  ((int64_t *)s->lost.data)[s->n_lost++] = before;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the rows that updates have marked to all sets of shard i. */
static void add_marks(TrsChanges c, int i)
{
  const int64_t words = TrsChangedWords(c->shards->shard[i].tbe.rows);
  TrsChangesShard *s = &c->shard[i];

  for (int use = 0; use < TRS_CHANGES_N_USES; use++)
    for (int64_t w = 0; s->set[use].bits && w < words; w++) s->set[use].bits[w] |= s->marked[w];
  if (words) memset(s->marked, 0, (size_t)words * sizeof(*s->marked));
}

/* List the changed rows of shard i for a use, unit by unit. */
static PetscErrorCode list_set(TrsChanges c, int i, TrsChangesUse use)
{
  const TrsEmbeddingShard *shard = &c->shards->shard[i];
  const TrsDirectory *d = use == TRS_CHANGES_OF_DELTAS ? TrsDirectoryOf(c->shards, i) : NULL;
  const TrsChangesTable *table = &c->table[shard->table];
  const int64_t words = TrsChangedWords(shard->tbe.rows);
  TrsChangesShard *s = &c->shard[i];
  TrsChangesSet *set = &s->set[use];
  int64_t *rows, unit = 0;

  PetscFunctionBegin;
  set->n = 0;
  if (d) s->n_lost = 0;
  PetscCall(TrsBufferReserve(&set->rows, count_bits(set->bits, words) * (int64_t)sizeof(*rows), PETSC_FALSE));
  rows = (int64_t *)set->rows.data;
  for (int64_t w = 0; w < words; w++)
    for (uint64_t left = set->bits[w]; left; left &= left - 1) {
      const int64_t row = w * TRS_CHANGED_BITS + __builtin_ctzll(left);

      while (unit < s->n_units && row >= table->begin[s->first_unit + unit] - shard->tbe.row_offset) {
        if (d) s->lost_at[unit] = s->n_lost;
        set->at[unit++] = set->n;
      }
      rows[set->n++] = row;
      if (d) PetscCall(note_lost(d, s, row));
    }
  for (; unit <= s->n_units; unit++) {
    if (d) s->lost_at[unit] = s->n_lost;
    set->at[unit] = set->n;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChangesList(TrsChanges c, unsigned uses)
{
  PetscFunctionBegin;
  for (int i = 0; i < c->shards->n; i++) {
    add_marks(c, i);
    for (int use = 0; use < TRS_CHANGES_N_USES; use++)
      if (c->uses & uses & 1u << use) PetscCall(list_set(c, i, (TrsChangesUse)use));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Remember the id that a row of shard i has now. */
static void remember(TrsChanges c, int i, int64_t row)
{
  TrsChangesShard *s = &c->shard[i];
  uint8_t held;

  s->before[row] = TrsChangesIdOf(TrsDirectoryOf(c->shards, i), row, &held);
  TrsChangesSetBit(s->had, row, (PetscBool)held);
}

void TrsChangesWritten(TrsChanges c, TrsChangesUse use)
{
  for (int i = 0; i < c->shards->n; i++) {
    const TrsChangesSet *set = &c->shard[i].set[use];
    const int64_t *rows = (const int64_t *)set->rows.data;

    for (int64_t k = 0; k < set->n; k++) {
      TrsChangesSetBit(set->bits, rows[k], PETSC_FALSE);
      if (use == TRS_CHANGES_OF_DELTAS && c->shard[i].before) remember(c, i, rows[k]);
    }
  }
}

/* --- the start of a training --- */

void TrsChangesForget(TrsChanges c, TrsChangesUse use)
{
  for (int i = 0; i < c->shards->n; i++) {
    const size_t bytes = (size_t)TrsChangedWords(c->shards->shard[i].tbe.rows) * sizeof(uint64_t);

    if (bytes == 0) continue;
    memset(c->shard[i].marked, 0, bytes);
    memset(c->shard[i].set[use].bits, 0, bytes);
  }
}

PetscBool TrsChangesMoved(TrsChanges c)
{
  PetscBool moved = PETSC_FALSE;

  for (int i = 0; i < c->shards->n; i++) {
    const TrsDirectory *d = TrsDirectoryOf(c->shards, i);

    if (d && d->moved) moved = PETSC_TRUE;
  }
  return moved;
}

void TrsChangesRemember(TrsChanges c, int i)
{
  const TrsDirectory *d = TrsDirectoryOf(c->shards, i);
  const int64_t words = TrsChangedWords(c->shards->shard[i].tbe.rows);

  if (!d || !words) return;
  memset(c->shard[i].had, 0, (size_t)words * sizeof(*c->shard[i].had));
  for (int64_t b = 0; b < d->n; b++) {
    const int64_t used = d->ops->in_use(d->bucket[b]);

    for (int64_t r = 0; r < used; r++) remember(c, i, b * d->rule.rows + r);
  }
}

void TrsChangesMark(TrsChanges c, int t, const int64_t *row)
{
  for (int i = 0; i < c->shards->n; i++) {
    const TrsEmbeddingShard *shard = &c->shards->shard[i];
    const int64_t r = row[0] - shard->tbe.row_offset;

    if (shard->table != t || r < 0 || r >= shard->tbe.rows) continue;
    TrsChangesSetBit(c->shard[i].set[TRS_CHANGES_OF_DELTAS].bits, r, PETSC_TRUE);
    if (!c->shard[i].before) continue;
    c->shard[i].before[r] = row[1];
    TrsChangesSetBit(c->shard[i].had, r, (PetscBool)(row[2] != 0));
  }
}
