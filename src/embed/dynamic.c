/* SPDX-License-Identifier: BSD-3-Clause */
/* Entries are in the order of rows. A TrsRowIndex finds an id's row. */
#include "embed/dynamic.h"

#include "core/buffer.h"
#include "core/radix.h"
#include "embed/row_index.h"

#include <string.h>

enum {
  TRS_DYNAMIC_FIRST_CELLS = 16,
  TRS_DYNAMIC_PORTION = 64,       /* an eviction frees at least 1 of this many rows */
  TRS_DYNAMIC_SKETCH_ROWS = 4,    /* counters of an id */
  TRS_DYNAMIC_SKETCH_LEAST = 256, /* counters of a row of the sketch */
  TRS_DYNAMIC_SKETCH_LIFE = 8,    /* occurrences for each counter of a row until all are halved */
  TRS_DYNAMIC_WORD = 64           /* rows of a word of the bits for free rows */
};

/* An entry of the bucket, or a candidate. last 0: none. */
typedef struct {
  int64_t id;
  uint32_t last;  /* the time of the last training batch that had the id */
  uint32_t count; /* occurrences, at most UINT32_MAX */
} TrsDynamicEntry;

struct TrsDynamicImpl {
  TrsDynamicRule rule;
  uint64_t key;
  int64_t rows; /* Z */
  uint32_t time;
  int64_t used;           /* rows in use: 0 .. used - 1 */
  TrsDynamicEntry *entry; /* [Z] */
  TrsRowIndex index;
  uint64_t *free;             /* [Z / 64 + 1] bits of rows below `used` that have no id */
  int64_t n_free, first_free; /* no row below the word first_free is free */
  uint32_t full_at;           /* the last time at which no row could be had */
  /* candidates, by open addressing */
  TrsDynamicEntry *candidate; /* [n_cells] */
  int64_t n_cells, n_candidates;
  uint8_t *sketch; /* [TRS_DYNAMIC_SKETCH_ROWS, width], or NULL before its first use */
  int64_t width, aged;
  TrsBuffer given, keys, spare;
  TrsBuffer released; /* int64 [n_released] rows that lost their ids since TrsDynamicGaps() */
  int64_t n_released;
  TrsDirectoryCounts counts;
};

PetscErrorCode TrsDynamicCreate(const TrsDynamicRule *rule, uint64_t key, int64_t rows, TrsDynamic *bucket)
{
  TrsDynamic b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  *bucket = b;
  b->rule = *rule;
  b->key = key;
  b->rows = rows;
  b->used = 1;
  b->width = TRS_DYNAMIC_SKETCH_LEAST;
  while (b->width < rule->candidates) b->width *= 2;
  b->counts = (TrsDirectoryCounts){.rows = rows - 1, .youngest = -1};
  PetscCall(TrsAlloc(rows, sizeof(*b->entry), &b->entry));
  PetscCall(TrsAlloc(rows / TRS_DYNAMIC_WORD + 1, sizeof(*b->free), &b->free));
  PetscCall(TrsRowIndexCreate(rows, &b->entry[0].id, sizeof(*b->entry), &b->index));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDynamicDestroy(TrsDynamic *bucket)
{
  TrsDynamic b = *bucket;

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRowIndexDestroy(&b->index));
  PetscCall(TrsFree(&b->entry));
  PetscCall(TrsFree(&b->free));
  PetscCall(TrsFree(&b->candidate));
  PetscCall(TrsFree(&b->sketch));
  PetscCall(TrsBufferFree(&b->given));
  PetscCall(TrsBufferFree(&b->released));
  PetscCall(TrsBufferFree(&b->keys));
  PetscCall(TrsBufferFree(&b->spare));
  PetscCall(PetscFree(*bucket));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find an id's row; 0 if it has none. */
static int64_t find(TrsDynamic b, int64_t id)
{
  int64_t row;

  TrsRowIndexFind(&b->index, 1, &id, &row);
  return PetscMax(row, 0);
}

/* --- rows --- */

static inline PetscBool is_old(const struct TrsDynamicImpl *b, uint32_t last)
{
  return (PetscBool)(b->rule.ttl && (int64_t)b->time - last > b->rule.ttl);
}

/* Note that a row in use has no id. */
static void add_free(TrsDynamic b, int64_t row)
{
  b->free[row / TRS_DYNAMIC_WORD] |= UINT64_C(1) << row % TRS_DYNAMIC_WORD;
  b->first_free = PetscMin(b->first_free, row / TRS_DYNAMIC_WORD);
  b->n_free++;
}

/* Note that a row in use has lost its id. */
static PetscErrorCode note_gap(TrsDynamic b, int64_t row)
{
  PetscFunctionBegin;
  add_free(b, row);
  PetscCall(TrsBufferReserve(&b->released, (b->n_released + 1) * (int64_t)sizeof(row), PETSC_TRUE));
  ((int64_t *)b->released.data)[b->n_released++] = row;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Take the row from its id. */
static PetscErrorCode release(TrsDynamic b, int64_t row)
{
  const int64_t age = (int64_t)b->time - b->entry[row].last;

  PetscFunctionBegin;
  TrsRowIndexErase(&b->index, row);
  b->entry[row] = (TrsDynamicEntry){.last = 0};
  PetscCall(note_gap(b, row));
  b->counts.held--;
  b->counts.taken++;
  b->counts.young += age < TrsDynamicYoung(&b->rule);
  if (b->counts.youngest < 0 || age < b->counts.youngest) b->counts.youngest = age;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t lowest_free(TrsDynamic b)
{
  while (!b->free[b->first_free]) b->first_free++;
  return b->first_free * TRS_DYNAMIC_WORD + __builtin_ctzll(b->free[b->first_free]);
}

/* The key by which a row gives way, from the lowest; UINT64_MAX: it must stay. */
static uint64_t key_of(const struct TrsDynamicImpl *b, int64_t row)
{
  const TrsDynamicEntry *e = &b->entry[row];

  if (e->last == 0 || e->last == b->time) return UINT64_MAX;
  if (is_old(b, e->last)) return 0;
  switch (b->rule.policy) {
  case TRS_DYNAMIC_LRU: return e->last;
  case TRS_DYNAMIC_LFU: return (uint64_t)e->count << 32 | e->last;
  case TRS_DYNAMIC_TTL: break;
  }
  return UINT64_MAX;
}

/*
  Free a portion of the rows by the policy. Rows of ids that this batch has had so far must stay.
  Among equal keys the lowest rows go first.
*/
static PetscErrorCode evict(TrsDynamic b)
{
  const int64_t n = b->used - 1;
  int64_t n_equal, m = 0, below = 0;
  uint64_t *key, limit = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->keys, n * (int64_t)sizeof(*key), PETSC_FALSE));
  key = (uint64_t *)b->keys.data;
  for (int64_t i = 0; i < n; i++) {
    key[i] = key_of(b, i + 1);
    m += key[i] != UINT64_MAX;
  }
  m = PetscMin(m, n / TRS_DYNAMIC_PORTION + 1);
  if (m == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRadixSelect(n, key, m, &limit, &below));
  n_equal = m - below;
  for (int64_t i = 0; i < n; i++)
    if (key[i] < limit || (key[i] == limit && n_equal-- > 0)) PetscCall(release(b, i + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Take a row for a new id. *row is 0 if none can be had in this batch. */
static PetscErrorCode take_row(TrsDynamic b, int64_t *row)
{
  PetscFunctionBegin;
  *row = 0;
  if (b->n_free == 0 && b->used == b->rows && b->full_at != b->time) PetscCall(evict(b));
  if (b->n_free) {
    *row = lowest_free(b);
    b->free[*row / TRS_DYNAMIC_WORD] &= ~(UINT64_C(1) << *row % TRS_DYNAMIC_WORD);
    b->n_free--;
  } else if (b->used < b->rows) {
    *row = b->used++;
  } else {
    b->full_at = b->time;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- candidates: ids that are counted before they get a row --- */

static TrsDynamicEntry *cell_of(TrsDynamicEntry *table, int64_t n, int64_t id)
{
  int64_t cell = TrsRowIndexHome(TrsRowIndexHash(id), n);

  while (table[cell].last && table[cell].id != id) cell = TrsRowIndexNext(cell, n);
  return &table[cell];
}

/* Move the candidates to a table of n cells. Those that are too old are dropped. */
static PetscErrorCode move_candidates(TrsDynamic b, int64_t n)
{
  TrsDynamicEntry *table;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(n, sizeof(*table), &table));
  b->n_candidates = 0;
  for (int64_t i = 0; i < b->n_cells; i++) {
    if (!b->candidate[i].last || is_old(b, b->candidate[i].last)) continue;
    *cell_of(table, n, b->candidate[i].id) = b->candidate[i];
    b->n_candidates++;
  }
  PetscCall(TrsFree(&b->candidate));
  b->candidate = table;
  b->n_cells = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void forget_candidate(TrsDynamic b, TrsDynamicEntry *candidate)
{
  int64_t hole = candidate - b->candidate;

  for (int64_t cell = TrsRowIndexNext(hole, b->n_cells); b->candidate[cell].last;
       cell = TrsRowIndexNext(cell, b->n_cells)) {
    if (TrsRowIndexStays(hole, TrsRowIndexHome(TrsRowIndexHash(b->candidate[cell].id), b->n_cells), cell))
      continue;
    b->candidate[hole] = b->candidate[cell];
    hole = cell;
  }
  b->candidate[hole].last = 0;
  b->n_candidates--;
}

/* Halve all counters of the sketch after a time, so that ids seen long ago do not fill it. */
static void age_sketch(TrsDynamic b)
{
  if (++b->aged < TRS_DYNAMIC_SKETCH_LIFE * b->width) return;
  for (int64_t i = 0; i < TRS_DYNAMIC_SKETCH_ROWS * b->width; i++) b->sketch[i] /= 2;
  b->aged = 0;
}

/*
  Count an occurrence of an id in a count-min sketch, with conservative update. Returns the count,
  which may be too large, but not too small.
*/
static PetscErrorCode count_in_sketch(TrsDynamic b, int64_t id, int64_t *count)
{
  uint8_t *counter[TRS_DYNAMIC_SKETCH_ROWS], least = UINT8_MAX;
  uint64_t hash = TrsMix((uint64_t)id ^ b->key);

  PetscFunctionBegin;
  if (!b->sketch) PetscCall(TrsAlloc(TRS_DYNAMIC_SKETCH_ROWS * b->width, sizeof(*b->sketch), &b->sketch));
  age_sketch(b);
  for (int r = 0; r < TRS_DYNAMIC_SKETCH_ROWS; r++) {
    counter[r] = b->sketch + r * b->width + (int64_t)(hash & (uint64_t)(b->width - 1));
    least = PetscMin(least, *counter[r]);
    hash = TrsMix(hash + 1);
  }
  for (int r = 0; r < TRS_DYNAMIC_SKETCH_ROWS; r++)
    if (*counter[r] == least && least < UINT8_MAX) ++*counter[r];
  *count = PetscMin(least + 1, UINT8_MAX);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Count an occurrence of an id that has no row. *admitted becomes true if the id must get a row. */
static PetscErrorCode count_candidate(TrsDynamic b, int64_t id, PetscBool *admitted)
{
  const double share = (double)(TrsMix((uint64_t)id ^ TrsMix(b->key ^ b->time)) >> 11) * 0x1p-53;
  TrsDynamicEntry *candidate;
  int64_t count = 0;

  PetscFunctionBegin;
  *admitted = PETSC_FALSE;
  if (share >= b->rule.admit_probability) PetscFunctionReturn(PETSC_SUCCESS);
  *admitted = (PetscBool)(b->rule.admit_after == 1);
  if (*admitted) PetscFunctionReturn(PETSC_SUCCESS);
  if (2 * (b->n_candidates + 1) > b->n_cells)
    PetscCall(move_candidates(b, PetscMax(2 * b->n_cells, (int64_t)TRS_DYNAMIC_FIRST_CELLS)));
  candidate = cell_of(b->candidate, b->n_cells, id);
  if (!candidate->last && b->n_candidates >= b->rule.candidates) {
    PetscCall(count_in_sketch(b, id, &count));
    *admitted = (PetscBool)(count >= b->rule.admit_after);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!candidate->last || is_old(b, candidate->last)) {
    b->n_candidates += candidate->last == 0;
    *candidate = (TrsDynamicEntry){.id = id};
  }
  candidate->last = b->time;
  candidate->count++;
  *admitted = (PetscBool)(candidate->count >= b->rule.admit_after);
  if (*admitted) forget_candidate(b, candidate);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a batch --- */

PetscErrorCode TrsDynamicBegin(TrsDynamic b)
{
  PetscFunctionBegin;
  PetscCheck(b->time < UINT32_MAX - 1, PETSC_COMM_SELF, TRS_ERR_DATA,
             "a table with id_map dynamic has had %u training batches, and cannot have more", b->time);
  b->time++;
  if (!b->rule.ttl || b->time % PetscMax(b->rule.ttl / 2, 1) != 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t row = 1; row < b->used; row++)
    if (b->entry[row].last && is_old(b, b->entry[row].last)) PetscCall(release(b, row));
  if (b->n_cells) PetscCall(move_candidates(b, b->n_cells));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Note that training has seen the id of an entry. Several threads may note the same entry. */
static inline void note(const struct TrsDynamicImpl *b, TrsDynamicEntry *entry)
{
  if (__atomic_load_n(&entry->last, __ATOMIC_RELAXED) != b->time)
    __atomic_store_n(&entry->last, b->time, __ATOMIC_RELAXED);
  if (b->rule.policy == TRS_DYNAMIC_LFU && __atomic_load_n(&entry->count, __ATOMIC_RELAXED) < UINT32_MAX / 2)
    (void)__atomic_fetch_add(&entry->count, 1, __ATOMIC_RELAXED);
}

int64_t TrsDynamicFind(TrsDynamic b, PetscBool training, int64_t n, const int64_t *ids, int64_t *rows)
{
  int64_t n_found = 0;

  for (int64_t first = 0; first < n; first += TRS_ROW_INDEX_AHEAD) {
    const int64_t m = PetscMin((int64_t)TRS_ROW_INDEX_AHEAD, n - first);

    TrsRowIndexFind(&b->index, m, ids + first, rows + first);
    for (int64_t i = first; i < first + m; i++) {
      int64_t row = PetscMax(rows[i], 0);

      if (row && is_old(b, __atomic_load_n(&b->entry[row].last, __ATOMIC_RELAXED))) row = 0;
      if (row && training) note(b, &b->entry[row]);
      rows[i] = row;
      n_found += row > 0;
    }
  }
  return n_found;
}

/* Give a row to an id that has none. *row is 0 if no row can be had. */
static PetscErrorCode give(TrsDynamic b, int64_t id, int64_t *n_given, int64_t *row)
{
  TrsGivenRow *given;

  PetscFunctionBegin;
  PetscCall(take_row(b, row));
  if (!*row) {
    b->counts.refused++;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  b->entry[*row] = (TrsDynamicEntry){.id = id, .last = b->time, .count = 1};
  PetscCall(TrsRowIndexInsert(&b->index, *row));
  b->counts.held++;
  b->counts.given++;
  PetscCall(TrsBufferReserve(&b->given, (*n_given + 1) * (int64_t)sizeof(*given), PETSC_TRUE));
  given = (TrsGivenRow *)b->given.data;
  given[(*n_given)++] = (TrsGivenRow){.id = id, .row = *row};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Treat an occurrence of an id for which Find found no row. */
static PetscErrorCode admit(TrsDynamic b, int64_t id, PetscBool counts, int64_t *n_given, int64_t *row)
{
  const int64_t old = find(b, id);
  PetscBool admitted = PETSC_TRUE;

  PetscFunctionBegin;
  *row = old;
  if (old && b->entry[old].last == b->time) {
    note(b, &b->entry[old]);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (old) PetscCall(release(b, old)); /* its time is over */
  *row = 0;
  if (counts) PetscCall(count_candidate(b, id, &admitted));
  if (admitted) PetscCall(give(b, id, n_given, row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDynamicAdmit(TrsDynamic b, int64_t n, const int64_t *ids, int64_t *rows, int64_t *n_known,
                               TrsGivenRows *given)
{
  const PetscBool counts = (PetscBool)(b->rule.admit_after > 1 || b->rule.admit_probability < 1);

  PetscFunctionBegin;
  given->n = 0;
  for (int64_t i = 0; i < n; i++) {
    if (rows[i]) continue;
    PetscCall(admit(b, ids[i], counts, &given->n, &rows[i]));
    *n_known += rows[i] > 0;
  }
  /* An id that was admitted has its row in the whole batch. */
  for (int64_t i = 0; i < n && counts && given->n; i++) {
    if (rows[i]) continue;
    rows[i] = find(b, ids[i]);
    *n_known += rows[i] > 0;
  }
  given->row = (const TrsGivenRow *)b->given.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDynamicGaps(TrsDynamic b, TrsGivenRows *gaps)
{
  const int64_t *released = (const int64_t *)b->released.data;
  TrsGivenRow *gap;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->given, b->n_released * (int64_t)sizeof(*gap), PETSC_FALSE));
  gap = (TrsGivenRow *)b->given.data;
  gaps->n = 0;
  gaps->row = gap;
  for (int64_t i = 0; i < b->n_released; i++)
    if (!b->entry[released[i]].last) gap[gaps->n++] = (TrsGivenRow){.row = released[i]};
  b->n_released = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDirectoryCounts TrsDynamicCount(TrsDynamic b, PetscBool anew)
{
  TrsDirectoryCounts counts = b->counts;

  counts.bytes = TrsRowIndexBytes(&b->index) + b->used * (int64_t)sizeof(*b->entry) + b->used / 8 +
                 b->n_cells * (int64_t)sizeof(*b->candidate);
  if (b->sketch) counts.bytes += TRS_DYNAMIC_SKETCH_ROWS * b->width;
  if (anew) b->counts.youngest = -1;
  return counts;
}

/* --- changes from elsewhere, for lookups only --- */

/* Take the row from its id, if it has one. */
static void empty_row(TrsDynamic b, int64_t row)
{
  if (!b->entry[row].last) return;
  TrsRowIndexErase(&b->index, row);
  b->entry[row] = (TrsDynamicEntry){.last = 0};
  add_free(b, row);
  b->counts.held--;
}

PetscErrorCode TrsDynamicChange(TrsDynamic b, const TrsDirectoryChange *change)
{
  const int64_t time = PetscMin(PetscMax(b->time + change->batches, 1), (int64_t)UINT32_MAX - 1);

  PetscFunctionBegin;
  b->time = (uint32_t)time;
  for (; b->used < change->used; b->used++) add_free(b, b->used);
  for (int64_t i = 0; i < change->n; i++) empty_row(b, change->row[i]);
  for (int64_t i = 0; i < change->n; i++) {
    const int64_t row = change->row[i];

    if (!change->held[i]) continue;
    empty_row(b, find(b, change->id[i]));
    b->free[row / TRS_DYNAMIC_WORD] &= ~(UINT64_C(1) << row % TRS_DYNAMIC_WORD);
    b->n_free--;
    b->entry[row] = (TrsDynamicEntry){.id = change->id[i], .last = b->time, .count = 1};
    PetscCall(TrsRowIndexInsert(&b->index, row));
    b->counts.held++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDynamicCopy(const struct TrsDynamicImpl *b, TrsDynamic to)
{
  PetscFunctionBegin;
  to->time = b->time;
  to->used = b->used;
  to->n_free = b->n_free;
  to->first_free = b->first_free;
  to->counts = b->counts;
  memcpy(to->free, b->free, (size_t)(b->rows / TRS_DYNAMIC_WORD + 1) * sizeof(*b->free));
  memcpy(to->entry, b->entry, (size_t)b->used * sizeof(*b->entry));
  for (int64_t row = 1; row < b->used; row++)
    if (b->entry[row].last) PetscCall(TrsRowIndexInsert(&to->index, row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- checkpoints --- */

void TrsDynamicNumbers(TrsDynamic b, int64_t number[TRS_DYNAMIC_NUMBERS])
{
  number[TRS_DYNAMIC_USED] = b->used;
  number[TRS_DYNAMIC_TIME] = b->time;
  number[TRS_DYNAMIC_AGED] = b->aged;
}

void TrsDynamicRows(TrsDynamic b, int64_t first, int64_t n, TrsDynamicRow *rows)
{
  for (int64_t i = 0; i < n; i++) {
    const TrsDynamicEntry *e = &b->entry[first + i];

    rows[i] = (TrsDynamicRow){e->id, e->last, e->count};
  }
}

int64_t TrsDynamicCountCandidates(TrsDynamic b)
{
  return b->n_candidates;
}

PetscErrorCode TrsDynamicCandidates(TrsDynamic b, TrsDynamicRow *candidates)
{
  TrsRadixPair *pair;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->keys, b->n_candidates * (int64_t)sizeof(*pair), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->spare, b->n_candidates * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->keys.data;
  for (int64_t i = 0; i < b->n_cells; i++)
    if (b->candidate[i].last) pair[n++] = (TrsRadixPair){TrsRadixKey(b->candidate[i].id), i};
  TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  for (int64_t i = 0; i < n; i++) {
    const TrsDynamicEntry *e = &b->candidate[pair[i].value];

    candidates[i] = (TrsDynamicRow){e->id, e->last, e->count};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsDynamicCountCells(TrsDynamic b)
{
  int64_t n = 0;

  for (int64_t i = 0; b->sketch && i < TRS_DYNAMIC_SKETCH_ROWS * b->width; i++) n += b->sketch[i] > 0;
  return n;
}

void TrsDynamicCells(TrsDynamic b, int64_t number, TrsDynamicCell *cells)
{
  int64_t n = 0;

  for (int64_t i = 0; b->sketch && i < TRS_DYNAMIC_SKETCH_ROWS * b->width; i++)
    if (b->sketch[i]) cells[n++] = (TrsDynamicCell){number, i, b->sketch[i]};
}

/* Set the rows' ids. */
static PetscErrorCode set_rows(TrsDynamic b, const TrsDynamicState *state, TrsDirectoryFault *fault)
{
  PetscFunctionBegin;
  for (int64_t i = 0; i < state->n_rows; i++) {
    const TrsDynamicRow *from = &state->row[i];
    const int64_t row = state->place[i];

    TrsDirectoryFaultNote(fault, (PetscBool)(row < 1 || row >= b->used), "ids",
                          "an id has the first row of a bucket, or a row of another bucket");
    TrsDirectoryFaultNote(fault, (PetscBool)(from->last < 1 || from->last > b->time), "ids",
                          "an id was seen after the last training batch");
    TrsDirectoryFaultNote(fault, (PetscBool)(from->count < 0 || from->count > UINT32_MAX), "ids",
                          "the count of an id is out of range");
    TrsDirectoryFaultNote(fault, (PetscBool)(find(b, from->id) > 0), "ids", "an id is there twice");
    if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
    b->entry[row] = (TrsDynamicEntry){from->id, (uint32_t)from->last, (uint32_t)from->count};
    PetscCall(TrsRowIndexInsert(&b->index, row));
    b->counts.held++;
  }
  for (int64_t row = 1; row < b->used; row++)
    if (!b->entry[row].last) PetscCall(note_gap(b, row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_candidates(TrsDynamic b, const TrsDynamicState *state, TrsDirectoryFault *fault)
{
  PetscFunctionBegin;
  for (int64_t i = 0; i < state->n_candidates; i++) {
    const TrsDynamicRow *from = &state->candidate[i];
    TrsDynamicEntry *cell;

    if (2 * (b->n_candidates + 1) > b->n_cells)
      PetscCall(move_candidates(b, PetscMax(2 * b->n_cells, (int64_t)TRS_DYNAMIC_FIRST_CELLS)));
    cell = cell_of(b->candidate, b->n_cells, from->id);
    TrsDirectoryFaultNote(fault, (PetscBool)(cell->last > 0), "candidates", "an id is there twice");
    TrsDirectoryFaultNote(
        fault,
        (PetscBool)(from->last < 1 || from->last > b->time || from->count < 1 || from->count > UINT8_MAX),
        "candidates", "an id has no count, or was seen after the last training batch");
    if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
    *cell = (TrsDynamicEntry){from->id, (uint32_t)from->last, (uint32_t)from->count};
    b->n_candidates++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_sketch(TrsDynamic b, const TrsDynamicState *state)
{
  PetscFunctionBegin;
  if (state->n_cells == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(TRS_DYNAMIC_SKETCH_ROWS * b->width, sizeof(*b->sketch), &b->sketch));
  for (int64_t i = 0; i < state->n_cells; i++) {
    const TrsDynamicCell *cell = &state->cell[i];

    /* A sketch of another width is lost, and begins anew. */
    if (cell->cell >= 0 && cell->cell < TRS_DYNAMIC_SKETCH_ROWS * b->width)
      b->sketch[cell->cell] = (uint8_t)PetscMin(PetscMax(cell->count, 0), UINT8_MAX);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDynamicSet(TrsDynamic b, const TrsDynamicState *state, TrsDirectoryFault *fault)
{
  const int64_t *number = state->number;

  PetscFunctionBegin;
  *fault = (TrsDirectoryFault){.what = NULL};
  TrsDirectoryFaultNote(fault,
                        (PetscBool)(number[TRS_DYNAMIC_USED] < 1 || number[TRS_DYNAMIC_USED] > b->rows),
                        "buckets", "it has more rows in use than the bucket");
  TrsDirectoryFaultNote(fault,
                        (PetscBool)(number[TRS_DYNAMIC_TIME] < 0 || number[TRS_DYNAMIC_TIME] >= UINT32_MAX),
                        "buckets", "the number of training batches is out of range");
  TrsDirectoryFaultNote(fault,
                        (PetscBool)(number[TRS_DYNAMIC_AGED] < 0 || number[TRS_DYNAMIC_AGED] > INT64_MAX / 4),
                        "buckets", "the age of the sketch is out of range");
  if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
  b->used = number[TRS_DYNAMIC_USED];
  b->time = (uint32_t)number[TRS_DYNAMIC_TIME];
  b->aged = number[TRS_DYNAMIC_AGED];
  PetscCall(set_rows(b, state, fault));
  if (!fault->what) PetscCall(set_candidates(b, state, fault));
  if (!fault->what) PetscCall(set_sketch(b, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
