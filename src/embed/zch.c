/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The arrays are in the order of rows, and a TrsRowIndex finds an id's row. TorchRec
  keeps them in the order of raw ids; this order decides between equal scores, and is made where it
  is needed: among the entries at the threshold of an eviction, and in checkpoints.
*/
#include "embed/zch.h"

#include "compute/for_each.h"
#include "core/buffer.h"
#include "core/radix.h"
#include "embed/row_index.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The raw id of an entry without an id. */
#define EMPTY INT64_MAX

enum {
  TRS_ZCH_SOON = 16,   /* rows from a fetch of memory to its use, at an eviction */
  TRS_ZCH_SOONER = 32, /* likewise for memory that must be there before such a fetch */
  TRS_ZCH_KEYS_AT_ONCE = 1 << 14,
  TRS_ZCH_FIRST_CELLS = 64 /* first size of the history's table */
};

/* The id of a row, and its share of the history. */
typedef struct {
  int64_t raw;
  uint32_t seen;  /* occurrences since the last eviction */
  uint32_t since; /* iterations from the last eviction to the last occurrence; 0: none */
} TrsZchEntry;

struct TrsZchImpl {
  TrsZchRule rule;
  int64_t rows; /* Z */
  int64_t number[TRS_ZCH_NUMBERS];
  float threshold;    /* the present eviction counts an id that has come more often */
  int64_t room;       /* the history takes this many of the batch's first ids */
  TrsZchEntry *entry; /* [Z] */
  int64_t *count;     /* [Z]; NULL if the policy has no use for it, as last */
  uint32_t *last;     /* [Z] iterations */
  uint32_t *times;    /* [Z] how often each row has been given away */
  TrsRowIndex index;
  uint32_t *empty; /* [n_empty] rows without an id, in TorchRec's order */
  int64_t n_empty, empty_room;
  /* [n_cells] the history of ids without rows, by open addressing; a cell with count 0 is free */
  TrsZchSeen *seen;
  int64_t n_cells, n_seen;
  TrsBuffer given, keys, low, candidates, spare;
  TrsDirectoryCounts counts;
};

static PetscBool keeps_counts(const TrsZchRule *rule)
{
  return (PetscBool)(rule->policy != TRS_ZCH_LRU);
}

static PetscBool keeps_last(const TrsZchRule *rule)
{
  return (PetscBool)(rule->policy != TRS_ZCH_LFU);
}

PetscErrorCode TrsZchCreate(const TrsZchRule *rule, int64_t rows, TrsZch *bucket)
{
  TrsZch b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  *bucket = b;
  b->rule = *rule;
  b->rows = rows;
  b->number[TRS_ZCH_CAPACITY] = b->number[TRS_ZCH_LARGEST] = -1;
  b->counts = (TrsDirectoryCounts){.rows = rows - 1, .youngest = -1};
  PetscCall(TrsAlloc(rows, sizeof(*b->entry), &b->entry));
  if (keeps_counts(rule)) PetscCall(TrsAlloc(rows, sizeof(*b->count), &b->count));
  if (keeps_last(rule)) PetscCall(TrsAlloc(rows, sizeof(*b->last), &b->last));
  PetscCall(TrsAlloc(rows, sizeof(*b->times), &b->times));
  PetscCall(TrsRowIndexCreate(rows, &b->entry[0].raw, sizeof(*b->entry), &b->index));
  b->empty_room = rows;
  PetscCall(TrsAlloc(rows, sizeof(*b->empty), &b->empty));
  for (int64_t r = 0; r < rows; r++) b->entry[r].raw = EMPTY;
  for (; b->n_empty < rows - 1; b->n_empty++) b->empty[b->n_empty] = (uint32_t)b->n_empty;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchDestroy(TrsZch *bucket)
{
  TrsZch b = *bucket;

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsFree(&b->entry));
  PetscCall(TrsFree(&b->count));
  PetscCall(TrsFree(&b->last));
  PetscCall(TrsFree(&b->times));
  PetscCall(TrsRowIndexDestroy(&b->index));
  PetscCall(TrsFree(&b->empty));
  PetscCall(TrsFree(&b->seen));
  PetscCall(TrsBufferFree(&b->given));
  PetscCall(TrsBufferFree(&b->keys));
  PetscCall(TrsBufferFree(&b->low));
  PetscCall(TrsBufferFree(&b->candidates));
  PetscCall(TrsBufferFree(&b->spare));
  PetscCall(PetscFree(*bucket));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The row of an id that has none of its own. TorchRec finds id 2^63 - 1 at the first empty entry.
*/
static int64_t row_of_unknown(const struct TrsZchImpl *b, int64_t id)
{
  return b->rule.torchrec && id == EMPTY && b->n_empty ? b->empty[0] : b->rows - 1;
}

/* Note an occurrence of a row's id. Several threads may note the same row. */
static inline void note(TrsZchEntry *entry, uint32_t since)
{
  (void)__atomic_fetch_add(&entry->seen, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->since, since, __ATOMIC_RELAXED);
}

/* The iterations since the last eviction. */
static uint32_t since_eviction(const struct TrsZchImpl *b)
{
  return (uint32_t)PetscMin(b->number[TRS_ZCH_ITERATION] - b->number[TRS_ZCH_EVICTED], (int64_t)UINT32_MAX);
}

int64_t TrsZchFind(TrsZch b, PetscBool training, int64_t place, int64_t n, const int64_t *ids, int64_t *rows)
{
  const int64_t n_learned = training ? b->room - place : 0;
  const uint32_t since = since_eviction(b);
  int64_t n_found = 0;

  for (int64_t first = 0; first < n; first += TRS_ROW_INDEX_AHEAD) {
    const int64_t m = PetscMin((int64_t)TRS_ROW_INDEX_AHEAD, n - first);

    TrsRowIndexFind(&b->index, m, ids + first, rows + first);
    for (int64_t i = first; i < first + m; i++) {
      n_found += rows[i] >= 0;
      if (rows[i] < 0)
        rows[i] = row_of_unknown(b, ids[i]);
      else if (i < n_learned)
        note(&b->entry[rows[i]], since);
    }
  }
  return n_found;
}

/* --- the history --- */

/* The cell of an id in a table of n cells: its own, or the free one that it would take. */
static inline TrsZchSeen *cell_of(TrsZchSeen *table, int64_t n, int64_t id)
{
  int64_t cell = TrsRowIndexHome(TrsRowIndexHash(id), n);

  while (table[cell].count && table[cell].id != id) cell = TrsRowIndexNext(cell, n);
  return &table[cell];
}

/* Make room for n more distinct ids. */
static PetscErrorCode grow_seen(TrsZch b, int64_t n)
{
  int64_t cells = PetscMax(b->n_cells, (int64_t)TRS_ZCH_FIRST_CELLS);
  TrsZchSeen *table;

  PetscFunctionBegin;
  while (cells < 2 * (b->n_seen + n)) cells *= 2;
  if (cells == b->n_cells) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(cells, sizeof(*table), &table));
  for (int64_t i = 0; i < b->n_cells; i++)
    if (b->seen[i].count) *cell_of(table, cells, b->seen[i].id) = b->seen[i];
  PetscCall(TrsFree(&b->seen));
  b->seen = table;
  b->n_cells = cells;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Empty the history. A table of which little was used becomes smaller. */
static PetscErrorCode clear_seen(TrsZch b)
{
  PetscFunctionBegin;
  if (8 * b->n_seen <= b->n_cells) { /* also without a table */
    PetscCall(TrsFree(&b->seen));
    b->n_cells = 0;
  } else {
    memset(b->seen, 0, (size_t)b->n_cells * sizeof(*b->seen));
  }
  b->n_seen = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchBegin(TrsZch b, int64_t n)
{
  PetscFunctionBegin;
  PetscCheck(b->number[TRS_ZCH_ITERATION] < UINT32_MAX - 1, PETSC_COMM_SELF, TRS_ERR_DATA,
             "a table with id_map zch has had %" PRId64 " training batches, and cannot have more",
             b->number[TRS_ZCH_ITERATION]);
  b->number[TRS_ZCH_ITERATION]++;
  /* TorchRec learns nothing if the first batch has no ids. */
  if (b->number[TRS_ZCH_CAPACITY] < 0 && (n > 0 || b->rule.torchrec)) {
    b->number[TRS_ZCH_CAPACITY] = (int64_t)PetscMin((double)(n * b->rule.interval) * 1.25,
                                                    (double)UINT32_MAX);
    b->number[TRS_ZCH_ROOM] = b->number[TRS_ZCH_CAPACITY];
  }
  b->room = PetscMin(n, PetscMax(b->number[TRS_ZCH_ROOM], 0));
  b->number[TRS_ZCH_ROOM] -= b->room;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Is this the row of the id, or a row for ids that have none? */
static inline PetscBool has_row(const struct TrsZchImpl *b, int64_t id, int64_t row)
{
  return id == EMPTY ? (PetscBool)(b->number[TRS_ZCH_LARGEST] == row) : (PetscBool)(row != b->rows - 1);
}

PetscErrorCode TrsZchEnd(TrsZch b, const int64_t *ids, const int64_t *rows)
{
  const int64_t iteration = b->number[TRS_ZCH_ITERATION];
  int64_t unknown[TRS_ROW_INDEX_AHEAD], m = 0;

  PetscFunctionBegin;
  for (int64_t i = 0; i <= b->room; i++) {
    if (m == TRS_ROW_INDEX_AHEAD || (i == b->room && m)) {
      PetscCall(grow_seen(b, m));
      for (int64_t k = 0; k < m; k++)
        __builtin_prefetch(&b->seen[TrsRowIndexHome(TrsRowIndexHash(unknown[k]), b->n_cells)], 1);
      for (int64_t k = 0; k < m; k++) {
        TrsZchSeen *cell = cell_of(b->seen, b->n_cells, unknown[k]);

        b->n_seen += cell->count == 0;
        *cell = (TrsZchSeen){unknown[k], cell->count + 1, iteration};
      }
      m = 0;
    }
    if (i < b->room && !has_row(b, ids[i], rows[i])) unknown[m++] = ids[i];
  }
  b->room = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsZchIsDue(TrsZch b)
{
  return (PetscBool)(b->number[TRS_ZCH_ITERATION] - b->number[TRS_ZCH_EVICTED] >= b->rule.interval);
}

/* The counts that the filter keeps lie above this; all do for a negative number. */
static float threshold_of(const struct TrsZchImpl *b)
{
  double share;
  int64_t sum = 0, n = b->n_seen;

  if (b->rule.filter == TRS_ZCH_FILTER_NONE) return -1.0F;
  for (int64_t i = 0; i < b->n_cells; i++) sum += b->seen[i].count;
  for (int64_t r = 0; r < b->rows; r++) {
    sum += b->entry[r].seen;
    n += b->entry[r].seen > 0;
  }
  if (n == 0) return -1.0F;
  if (b->rule.filter == TRS_ZCH_FILTER_AVERAGE) return (float)sum / (float)n;
  share = 1.0 / (double)n * b->rule.multiplier;
  return (float)share * (float)sum;
}

/*
  List the ids of the history that have no rows as candidates: their cells, by count from the
  largest, and by id.
*/
static PetscErrorCode list_candidates(TrsZch b, int64_t *n_candidates)
{
  const float threshold = b->threshold;
  TrsRadixPair *pair;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->candidates, b->n_seen * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->candidates.data;
  for (int64_t i = 0; i < b->n_cells; i++) {
    const TrsZchSeen *seen = &b->seen[i];

    if (seen->count == 0 || !((float)seen->count > threshold)) continue;
    if (b->rule.torchrec && seen->id == EMPTY) {
      const int64_t row = row_of_unknown(b, EMPTY);

      if (b->count) b->count[row] += seen->count;
      if (b->last) b->last[row] = (uint32_t)seen->last;
    } else {
      pair[n++] = (TrsRadixPair){TrsRadixKey(seen->id), i};
    }
  }
  PetscCall(TrsBufferReserve(&b->spare, n * (int64_t)sizeof(*pair), PETSC_FALSE));
  TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  for (int64_t i = 0; i < n; i++) pair[i].key = ~TrsRadixKey(b->seen[pair[i].value].count);
  TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  *n_candidates = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- eviction --- */

/* A number that sorts as the score does, ascending. */
static uint64_t score_key(const struct TrsZchImpl *b, int64_t count, int64_t last)
{
  float score;
  uint32_t bits;

  if (b->rule.policy == TRS_ZCH_LFU) return TrsRadixKey(count);
  score = (float)(b->number[TRS_ZCH_ITERATION] - last + 1);
  if (b->rule.exponent != 1.0F) score = powf(score, b->rule.exponent);
  score = b->rule.policy == TRS_ZCH_LRU ? -score : (float)count / score;
  score += 0.0F; /* -0 becomes 0 */
  memcpy(&bits, &score, sizeof(bits));
  return bits & UINT32_C(1) << 31 ? ~bits : bits | UINT32_C(1) << 31;
}

static uint64_t key_of_row(const struct TrsZchImpl *b, int64_t row)
{
  return score_key(b, b->count ? b->count[row] : 0, b->last ? b->last[row] : 0);
}

/* Order the candidates by score, from the best. Those of equal score keep their order. */
static PetscErrorCode order_candidates(TrsZch b, int64_t n)
{
  TrsRadixPair *pair = (TrsRadixPair *)b->candidates.data;

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++) {
    const TrsZchSeen *seen = &b->seen[pair[i].value];

    pair[i].key = ~score_key(b, seen->count, seen->last);
  }
  if (b->rule.policy != TRS_ZCH_LFU) TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keep the m smallest of n pairs, whose keys differ, in any order. spare [n] is scratch. */
static PetscErrorCode keep_smallest(int64_t n, int64_t m, TrsRadixPair *pair, uint64_t *spare)
{
  int64_t kept = 0, below;
  uint64_t limit;

  PetscFunctionBegin;
  if (m == 0 || n <= m) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t i = 0; i < n; i++) spare[i] = pair[i].key;
  PetscCall(TrsRadixSelect(n, spare, m, &limit, &below));
  for (int64_t i = 0; i < n; i++)
    if (pair[i].key <= limit) pair[kept++] = pair[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  List the entries whose key is below `limit`, or equal to it, from the last in TorchRec's order to
  the first: empty entries come last there. *n, at most `most`, receives the number of entries.
*/
static PetscErrorCode list_entries(TrsZch b, const uint64_t *key, uint64_t limit, PetscBool equal,
                                   int64_t most, TrsRadixPair *to, int64_t *n)
{
  int64_t n_empty = 0, n_ids = 0;

  PetscFunctionBegin;
  for (int64_t i = b->n_empty - 1; i >= 0 && n_empty < most; i--)
    if (equal ? key[b->empty[i]] == limit : key[b->empty[i]] < limit)
      to[n_empty++] = (TrsRadixPair){0, b->empty[i]};
  *n = n_empty;
  if (n_empty == most) PetscFunctionReturn(PETSC_SUCCESS);
  to += n_empty;
  most -= n_empty;
  for (int64_t r = 0; r < b->rows - 1; r++)
    if ((equal ? key[r] == limit : key[r] < limit) &&
        (b->entry[r].raw != EMPTY || b->number[TRS_ZCH_LARGEST] == r))
      to[n_ids++] = (TrsRadixPair){~TrsRadixKey(b->entry[r].raw), r};
  PetscCall(keep_smallest(n_ids, most, to, (uint64_t *)b->spare.data));
  n_ids = PetscMin(n_ids, most);
  TrsRadixSort(n_ids, to, (TrsRadixPair *)b->spare.data);
  *n += n_ids;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a row's share of the history, which ends, to its entry. */
static inline void close_row(TrsZch b, int64_t row)
{
  TrsZchEntry *entry = &b->entry[row];

  if (entry->seen == 0) {
    entry->since = 0;
    return;
  }
  if ((float)entry->seen > b->threshold) {
    if (b->count) b->count[row] += entry->seen;
    if (b->last) b->last[row] = (uint32_t)(b->number[TRS_ZCH_EVICTED] + entry->since);
  }
  entry->seen = 0;
}

/* Close a piece of the rows, and make their keys. */
static void close_piece(void *context, int64_t i)
{
  TrsZch b = (TrsZch)context;
  const int64_t end = PetscMin((i + 1) * (int64_t)TRS_ZCH_KEYS_AT_ONCE, b->rows - 1);
  uint64_t *key = (uint64_t *)b->keys.data;

  for (int64_t r = i * TRS_ZCH_KEYS_AT_ONCE; r < end; r++) {
    close_row(b, r);
    key[r] = key_of_row(b, r);
  }
}

/* List the m entries that give way first, in this order, with their keys. */
static PetscErrorCode list_lowest(TrsZch b, int64_t m)
{
  const int64_t n = b->rows - 1;
  int64_t below = 0, n_low, n_equal;
  const uint64_t *key = (const uint64_t *)b->keys.data;
  uint64_t limit = 0;
  TrsRadixPair *low;

  PetscFunctionBegin;
  PetscCall(TrsRadixSelect(n, key, m, &limit, &below));
  /* The entries at the threshold may be many more than those that are listed. */
  PetscCall(TrsBufferReserve(&b->low, (n + below) * (int64_t)sizeof(*low), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->spare, n * (int64_t)sizeof(*low), PETSC_FALSE));
  low = (TrsRadixPair *)b->low.data;
  PetscCall(list_entries(b, key, limit, PETSC_FALSE, n, low, &n_low));
  PetscCall(list_entries(b, key, limit, PETSC_TRUE, m - n_low, low + n_low, &n_equal));
  for (int64_t i = 0; i < m; i++) low[i].key = key[low[i].value];
  TrsRadixSort(m, low, (TrsRadixPair *)b->spare.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The age of the row's id; -1: unknown. A policy that does not keep the last iteration of an id
  knows only ids of this interval.
*/
static int64_t age_of(const struct TrsZchImpl *b, int64_t row)
{
  if (b->last) return b->number[TRS_ZCH_ITERATION] - b->last[row];
  return b->entry[row].since ? (int64_t)since_eviction(b) - b->entry[row].since : -1;
}

/* Take the row from its id. */
static void release(TrsZch b, int64_t row)
{
  const int64_t age = age_of(b, row);

  TrsRowIndexErase(&b->index, row);
  b->counts.held--;
  b->counts.taken++;
  b->counts.young += age >= 0 && age < TrsZchYoung(&b->rule);
  if (age >= 0 && (b->counts.youngest < 0 || age < b->counts.youngest)) b->counts.youngest = age;
}

/* Give a row to an id of the history. */
static PetscErrorCode give(TrsZch b, int64_t row, const TrsZchSeen *to, TrsGivenRow *given)
{
  PetscFunctionBegin;
  if (b->entry[row].raw != EMPTY || b->number[TRS_ZCH_LARGEST] == row) release(b, row);
  if (b->number[TRS_ZCH_LARGEST] == row) b->number[TRS_ZCH_LARGEST] = -1;
  b->entry[row] = (TrsZchEntry){.raw = to->id};
  if (to->id == EMPTY) b->number[TRS_ZCH_LARGEST] = row;
  if (b->count) b->count[row] = to->count;
  if (b->last) b->last[row] = (uint32_t)to->last;
  PetscCall(TrsRowIndexInsert(&b->index, row));
  b->counts.held++;
  b->counts.given++;
  *given = (TrsGivenRow){to->id, row, ++b->times[row]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Fetch what give() will use. */
static void fetch(const struct TrsZchImpl *b, int64_t row, const TrsZchSeen *to)
{
  __builtin_prefetch(&b->entry[row].raw, 1);
  __builtin_prefetch(&b->times[row], 1);
  TrsRowIndexFetch(&b->index, to->id);
}

/* Drop the rows that have an id from the list of empty ones, and memory that the list has left. */
static PetscErrorCode shorten_empty(TrsZch b)
{
  uint32_t *shorter;
  int64_t n = 0;

  PetscFunctionBegin;
  for (int64_t i = 0; i < b->n_empty; i++)
    if (b->entry[b->empty[i]].raw == EMPTY && b->number[TRS_ZCH_LARGEST] != b->empty[i])
      b->empty[n++] = b->empty[i];
  b->n_empty = n;
  if (2 * n >= b->empty_room) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(n, sizeof(*shorter), &shorter));
  memcpy(shorter, b->empty, (size_t)n * sizeof(*shorter));
  PetscCall(TrsFree(&b->empty));
  b->empty = shorter;
  b->empty_room = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Give rows to the best candidates. Candidate j (from 0) gets a row if more than j entries have
  lower scores, as in the stable order of all entries and candidates, in which entries come first.
*/
static PetscErrorCode replace_lowest(TrsZch b, int64_t n_candidates, int64_t *n_given)
{
  const int64_t m = PetscMin(n_candidates, b->rows - 1);
  const TrsRadixPair *candidate = (const TrsRadixPair *)b->candidates.data, *low;
  TrsGivenRow *given;
  int64_t n = 0;

  PetscFunctionBegin;
  if (m == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(list_lowest(b, m));
  low = (const TrsRadixPair *)b->low.data;
  while (n < m && low[n].key < ~candidate[n].key) n++;
  PetscCall(TrsBufferReserve(&b->given, n * (int64_t)sizeof(*given), PETSC_FALSE));
  given = (TrsGivenRow *)b->given.data;
  for (int64_t i = 0; i < n; i++) {
    if (i + TRS_ZCH_SOONER < n) __builtin_prefetch(&b->seen[candidate[i + TRS_ZCH_SOONER].value]);
    if (i + TRS_ZCH_SOON < n)
      fetch(b, low[n - 1 - i - TRS_ZCH_SOON].value, &b->seen[candidate[i + TRS_ZCH_SOON].value]);
    PetscCall(give(b, low[n - 1 - i].value, &b->seen[candidate[i].value], &given[i]));
  }
  PetscCall(shorten_empty(b));
  *n_given = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchEvict(TrsZch b, TrsGivenRows *given)
{
  const int64_t iteration = b->number[TRS_ZCH_ITERATION];
  int64_t n_candidates = 0;

  PetscFunctionBegin;
  b->threshold = threshold_of(b);
  PetscCall(list_candidates(b, &n_candidates));
  PetscCall(TrsBufferReserve(&b->keys, (b->rows - 1) * (int64_t)sizeof(uint64_t), PETSC_FALSE));
  TrsForEach((b->rows - 1 + TRS_ZCH_KEYS_AT_ONCE - 1) / TRS_ZCH_KEYS_AT_ONCE, close_piece, b);
  if (b->count) b->count[b->rows - 1] = INT64_MAX;
  if (b->last) b->last[b->rows - 1] = (uint32_t)iteration;
  PetscCall(order_candidates(b, n_candidates));
  PetscCall(replace_lowest(b, n_candidates, &given->n));
  given->row = (const TrsGivenRow *)b->given.data;
  PetscCall(clear_seen(b));
  b->number[TRS_ZCH_ROOM] = b->number[TRS_ZCH_CAPACITY];
  b->number[TRS_ZCH_EVICTED] = iteration;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDirectoryCounts TrsZchCount(TrsZch b, PetscBool anew)
{
  const size_t row_bytes = sizeof(*b->entry) + sizeof(*b->times) + (b->count ? sizeof(*b->count) : 0) +
                           (b->last ? sizeof(*b->last) : 0);
  TrsDirectoryCounts counts = b->counts;

  counts.bytes = b->rows * (int64_t)row_bytes + b->empty_room * (int64_t)sizeof(*b->empty) +
                 TrsRowIndexBytes(&b->index) + b->n_cells * (int64_t)sizeof(*b->seen);
  if (anew) b->counts.youngest = -1;
  return counts;
}

/* --- checkpoints --- */

/* List all rows in TorchRec's order. */
static PetscErrorCode list_rows(TrsZch b)
{
  TrsRadixPair *pair;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->low, b->rows * (int64_t)sizeof(*pair), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->spare, b->rows * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->low.data;
  for (int64_t r = 0; r < b->rows - 1; r++)
    if (b->entry[r].raw != EMPTY || b->number[TRS_ZCH_LARGEST] == r)
      pair[n++] = (TrsRadixPair){TrsRadixKey(b->entry[r].raw), r};
  TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  for (int64_t i = 0; i < b->n_empty; i++) pair[n++].value = b->empty[i];
  pair[n].value = b->rows - 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchGet(TrsZch b, int64_t numbers[TRS_ZCH_NUMBERS], const TrsZchArrays *arrays)
{
  const TrsRadixPair *pair;

  PetscFunctionBegin;
  PetscCall(list_rows(b));
  pair = (const TrsRadixPair *)b->low.data;
  memcpy(numbers, b->number, sizeof(b->number));
  for (int64_t i = 0; i < b->rows; i++) {
    const int64_t row = pair[i].value;

    if (arrays->raw) arrays->raw[i] = b->entry[row].raw;
    if (arrays->slot) arrays->slot[i] = row;
    if (arrays->count) arrays->count[i] = b->count ? b->count[row] : 0;
    if (arrays->last) arrays->last[i] = b->last ? b->last[row] : 0;
    if (arrays->times) arrays->times[i] = b->times[row];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsZchRows(TrsZch b)
{
  return b->rows;
}

int64_t TrsZchIdOf(TrsZch b, int64_t row, uint8_t *held)
{
  *held = b->entry[row].raw != EMPTY || b->number[TRS_ZCH_LARGEST] == row;
  return *held ? b->entry[row].raw : 0;
}

/* --- changes from elsewhere, for lookups only --- */

/* Take the row from its id, if it has one. */
static void empty_row(TrsZch b, int64_t row)
{
  uint8_t held;

  (void)TrsZchIdOf(b, row, &held);
  if (!held) return;
  TrsRowIndexErase(&b->index, row);
  b->entry[row] = (TrsZchEntry){.raw = EMPTY};
  if (b->number[TRS_ZCH_LARGEST] == row) b->number[TRS_ZCH_LARGEST] = -1;
  b->counts.held--;
}

/* List the rows without an id, ascending. */
static PetscErrorCode list_empty(TrsZch b)
{
  PetscFunctionBegin;
  if (b->empty_room < b->rows) {
    PetscCall(TrsFree(&b->empty));
    PetscCall(TrsAlloc(b->rows, sizeof(*b->empty), &b->empty));
    b->empty_room = b->rows;
  }
  b->n_empty = 0;
  for (int64_t row = 0; row < b->rows - 1; row++)
    if (b->entry[row].raw == EMPTY && b->number[TRS_ZCH_LARGEST] != row)
      b->empty[b->n_empty++] = (uint32_t)row;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchChange(TrsZch b, const TrsDirectoryChange *change)
{
  PetscFunctionBegin;
  if (change->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t i = 0; i < change->n; i++) empty_row(b, change->row[i]);
  for (int64_t i = 0; i < change->n; i++) {
    int64_t other;

    if (!change->held[i]) continue;
    TrsRowIndexFind(&b->index, 1, &change->id[i], &other);
    if (other >= 0) empty_row(b, other);
    b->entry[change->row[i]] = (TrsZchEntry){.raw = change->id[i]};
    if (change->id[i] == EMPTY) b->number[TRS_ZCH_LARGEST] = change->row[i];
    PetscCall(TrsRowIndexInsert(&b->index, change->row[i]));
    b->counts.held++;
  }
  PetscCall(list_empty(b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchCopy(const struct TrsZchImpl *b, TrsZch to)
{
  PetscFunctionBegin;
  memcpy(to->number, b->number, sizeof(b->number));
  memcpy(to->entry, b->entry, (size_t)b->rows * sizeof(*b->entry));
  to->counts = b->counts;
  for (int64_t row = 0; row < b->rows - 1; row++)
    if (b->entry[row].raw != EMPTY || b->number[TRS_ZCH_LARGEST] == row)
      PetscCall(TrsRowIndexInsert(&to->index, row));
  PetscCall(list_empty(to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsZchCountSeen(TrsZch b)
{
  int64_t n = b->n_seen;

  for (int64_t r = 0; r < b->rows; r++) n += b->entry[r].seen > 0;
  return n;
}

PetscErrorCode TrsZchGetSeen(TrsZch b, TrsZchSeen *seen)
{
  const int64_t most = TrsZchCountSeen(b);
  TrsRadixPair *pair;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->candidates, most * (int64_t)sizeof(*pair), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->spare, most * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->candidates.data;
  for (int64_t i = 0; i < b->n_cells; i++)
    if (b->seen[i].count) pair[n++] = (TrsRadixPair){TrsRadixKey(b->seen[i].id), b->rows + i};
  for (int64_t r = 0; r < b->rows; r++)
    if (b->entry[r].seen) pair[n++] = (TrsRadixPair){TrsRadixKey(b->entry[r].raw), r};
  TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  for (int64_t i = 0; i < n; i++) {
    const int64_t row = pair[i].value;
    const TrsZchEntry *entry = &b->entry[row < b->rows ? row : 0];

    seen[i] = row < b->rows ? (TrsZchSeen){entry->raw, entry->seen, b->number[TRS_ZCH_EVICTED] + entry->since}
                            : b->seen[row - b->rows];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if a file's count or batch number is valid. The limit keeps additions in training from
  overflowing.
*/
static PetscBool is_sane(int64_t number)
{
  return (PetscBool)(number >= 0 && number <= INT64_MAX / 4);
}

/* Set the id of a row, entry i of the arrays. */
static PetscErrorCode set_row(TrsZch b, int64_t i, int64_t row, int64_t id, TrsDirectoryFault *fault)
{
  int64_t held;

  PetscFunctionBegin;
  b->entry[row] = (TrsZchEntry){.raw = id};
  if (row == b->rows - 1) {
    TrsDirectoryFaultNote(fault, (PetscBool)(id != EMPTY || i != b->rows - 1), "raw",
                          "the last row of a bucket has an id");
  } else if (id == EMPTY && b->number[TRS_ZCH_LARGEST] != row) {
    b->empty[b->n_empty++] = (uint32_t)row;
  } else {
    TrsRowIndexFind(&b->index, 1, &id, &held);
    TrsDirectoryFaultNote(fault, (PetscBool)(held >= 0), "raw", "an id is there twice");
    TrsDirectoryFaultNote(fault, (PetscBool)(b->count && !is_sane(b->count[row])), "count",
                          "the count of an id is out of range");
    PetscCall(TrsRowIndexInsert(&b->index, row));
    b->counts.held++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the arrays of rows. */
static PetscErrorCode set_rows(TrsZch b, const TrsZchArrays *from, char *is_set, TrsDirectoryFault *fault)
{
  PetscFunctionBegin;
  memset(is_set, 0, (size_t)b->rows);
  TrsRowIndexClear(&b->index);
  PetscCall(TrsFree(&b->empty));
  PetscCall(TrsAlloc(b->rows, sizeof(*b->empty), &b->empty));
  b->empty_room = b->rows;
  b->n_empty = b->counts.held = 0;
  for (int64_t i = 0; i < b->rows && !fault->what; i++) {
    const int64_t row = from->slot[i], id = from->raw[i];

    TrsDirectoryFaultNote(fault, (PetscBool)(row < 0 || row >= b->rows), "slot",
                          "a slot is outside its bucket");
    TrsDirectoryFaultNote(fault, (PetscBool)(i > 0 && id < from->raw[i - 1]), "raw",
                          "the raw ids of a bucket are not ascending");
    TrsDirectoryFaultNote(fault, (PetscBool)(from->last && (from->last[i] < 0 || from->last[i] > UINT32_MAX)),
                          "last", "the last batch of an id is out of range");
    if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
    TrsDirectoryFaultNote(fault, (PetscBool)is_set[row], "slot", "two entries have the same slot");
    if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
    is_set[row] = 1;
    if (b->count) b->count[row] = from->count ? from->count[i] : 0;
    if (b->last) b->last[row] = from->last ? (uint32_t)from->last[i] : 0;
    b->times[row] = from->times ? (uint32_t)from->times[i] : 0;
    PetscCall(set_row(b, i, row, id, fault));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Are these the numbers of a bucket that this rule made? */
static void check_numbers(const struct TrsZchImpl *b, const int64_t *number, TrsDirectoryFault *fault)
{
  const PetscBool fresh = (PetscBool)(number[TRS_ZCH_CAPACITY] < 0);

  TrsDirectoryFaultNote(fault,
                        (PetscBool)(number[TRS_ZCH_ITERATION] < 0 || number[TRS_ZCH_ITERATION] >= UINT32_MAX),
                        "numbers", "the number of batches is out of range");
  TrsDirectoryFaultNote(
      fault, (PetscBool)(number[TRS_ZCH_EVICTED] < 0 || number[TRS_ZCH_ITERATION] < number[TRS_ZCH_EVICTED]),
      "numbers", "the last eviction is after the last iteration");
  TrsDirectoryFaultNote(
      fault,
      (PetscBool)(!fresh && (number[TRS_ZCH_ROOM] < 0 || number[TRS_ZCH_ROOM] > number[TRS_ZCH_CAPACITY] ||
                             number[TRS_ZCH_CAPACITY] > UINT32_MAX)),
      "numbers", "the history has more room than its capacity");
  TrsDirectoryFaultNote(fault,
                        (PetscBool)(number[TRS_ZCH_LARGEST] < -1 || number[TRS_ZCH_LARGEST] >= b->rows - 1),
                        "numbers", "the row of id 2^63 - 1 is outside its bucket");
}

/* Set the history. Ids that have rows are in the rows' entries. */
static PetscErrorCode set_seen(TrsZch b, int64_t n, const TrsZchSeen *seen, TrsDirectoryFault *fault)
{
  const int64_t evicted = b->number[TRS_ZCH_EVICTED];

  PetscFunctionBegin;
  PetscCall(clear_seen(b));
  b->room = 0;
  for (int64_t i = 0; i < n && !fault->what; i++) {
    TrsZchSeen *cell;
    int64_t row;

    TrsDirectoryFaultNote(fault,
                          (PetscBool)(seen[i].count < 1 || seen[i].count > UINT32_MAX ||
                                      seen[i].last <= evicted || seen[i].last > b->number[TRS_ZCH_ITERATION]),
                          "seen", "the count or the last batch of an id is out of range");
    if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
    TrsRowIndexFind(&b->index, 1, &seen[i].id, &row);
    if (row >= 0) {
      TrsDirectoryFaultNote(fault, (PetscBool)(b->entry[row].seen > 0), "seen",
                            "an id of the history is there twice");
      b->entry[row].seen = (uint32_t)seen[i].count;
      b->entry[row].since = (uint32_t)PetscMin(seen[i].last - evicted, (int64_t)UINT32_MAX);
      continue;
    }
    PetscCall(grow_seen(b, 1));
    cell = cell_of(b->seen, b->n_cells, seen[i].id);
    TrsDirectoryFaultNote(fault, (PetscBool)(cell->count != 0), "seen",
                          "an id of the history is there twice");
    *cell = seen[i];
    b->n_seen++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchSet(TrsZch b, const int64_t numbers[TRS_ZCH_NUMBERS], const TrsZchArrays *arrays,
                         int64_t n, const TrsZchSeen *seen, TrsDirectoryFault *fault)
{
  PetscFunctionBegin;
  *fault = (TrsDirectoryFault){.what = NULL};
  check_numbers(b, numbers, fault);
  if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
  memcpy(b->number, numbers, sizeof(b->number));
  PetscCall(TrsBufferReserve(&b->spare, b->rows, PETSC_FALSE));
  PetscCall(set_rows(b, arrays, (char *)b->spare.data, fault));
  if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(set_seen(b, n, seen, fault));
  PetscFunctionReturn(PETSC_SUCCESS);
}
