/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The arrays are in the order of rows, and an index of open addressing finds an id's row. TorchRec
  keeps them in the order of raw ids; this order decides between equal scores, and is made where it
  is needed: among the entries at the threshold of an eviction, and in checkpoints.
*/
#include "embed/zch.h"

#include "compute/for_each.h"
#include "core/buffer.h"
#include "core/radix.h"

#include <math.h>
#include <string.h>

/* The raw id of an entry without an id. */
#define EMPTY INT64_MAX

enum {
  TRS_ZCH_AHEAD = 16, /* ids whose cells are fetched together */
  TRS_ZCH_KEYS_AT_ONCE = 1 << 14,
  TRS_ZCH_FIRST_CELLS = 64 /* first size of the history's table */
};

struct TrsZchImpl {
  TrsZchRule rule;
  int64_t rows; /* Z */
  int64_t number[TRS_ZCH_NUMBERS];
  int64_t *raw;          /* [Z] */
  int64_t *count, *last; /* [Z]; NULL where the policy has no use for them */
  uint32_t *times;       /* [Z] how often each row has been given away */
  uint32_t *index;       /* [n_index] row + 1, or 0 */
  int64_t n_index;
  uint32_t *empty; /* [n_empty] rows without an id, in TorchRec's order */
  int64_t n_empty;
  TrsZchSeen *seen; /* [n_cells] the history, by open addressing; count 0: a free cell */
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
  b->n_index = 2 * rows + 2;
  b->number[TRS_ZCH_CAPACITY] = b->number[TRS_ZCH_LARGEST] = -1;
  b->counts = (TrsDirectoryCounts){.rows = rows - 1, .youngest = -1};
  PetscCall(TrsAlloc(rows, sizeof(*b->raw), &b->raw));
  if (keeps_counts(rule)) PetscCall(TrsAlloc(rows, sizeof(*b->count), &b->count));
  if (keeps_last(rule)) PetscCall(TrsAlloc(rows, sizeof(*b->last), &b->last));
  PetscCall(TrsAlloc(rows, sizeof(*b->times), &b->times));
  PetscCall(TrsAlloc(b->n_index, sizeof(*b->index), &b->index));
  PetscCall(TrsAlloc(rows, sizeof(*b->empty), &b->empty));
  for (int64_t r = 0; r < rows; r++) b->raw[r] = EMPTY;
  for (; b->n_empty < rows - 1; b->n_empty++) b->empty[b->n_empty] = (uint32_t)b->n_empty;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchDestroy(TrsZch *bucket)
{
  TrsZch b = *bucket;

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsFree(&b->raw));
  PetscCall(TrsFree(&b->count));
  PetscCall(TrsFree(&b->last));
  PetscCall(TrsFree(&b->times));
  PetscCall(TrsFree(&b->index));
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

/* --- the index --- */

/* The cell, of n, where the search for an id begins. */
static inline int64_t home_of(int64_t id, int64_t n)
{
  return (int64_t)((TrsIdHash((uint64_t)id) >> 32) * (uint64_t)n >> 32);
}

static inline int64_t next_cell(int64_t cell, int64_t n)
{
  return cell + 1 == n ? 0 : cell + 1;
}

/* Find an id's row from the cell where its search begins, or -1. */
static inline int64_t find_from(const struct TrsZchImpl *b, int64_t cell, int64_t id)
{
  for (; b->index[cell]; cell = next_cell(cell, b->n_index))
    if (b->raw[b->index[cell] - 1] == id) return b->index[cell] - 1;
  return -1;
}

static int64_t find(const struct TrsZchImpl *b, int64_t id)
{
  return find_from(b, home_of(id, b->n_index), id);
}

/* The index must not have the row's id. */
static void insert(TrsZch b, int64_t row)
{
  int64_t cell = home_of(b->raw[row], b->n_index);

  while (b->index[cell]) cell = next_cell(cell, b->n_index);
  b->index[cell] = (uint32_t)row + 1;
}

/*
  Remove the row's id. Cells behind it move up if their search begins at the free cell or before it,
  so that no search ends too early.
*/
static void erase(TrsZch b, int64_t row)
{
  int64_t hole = home_of(b->raw[row], b->n_index), cell;

  while (b->index[hole] != row + 1) hole = next_cell(hole, b->n_index);
  for (cell = next_cell(hole, b->n_index); b->index[cell]; cell = next_cell(cell, b->n_index)) {
    const int64_t home = home_of(b->raw[b->index[cell] - 1], b->n_index);
    const PetscBool stays = hole < cell ? (PetscBool)(hole < home && home <= cell)
                                        : (PetscBool)(hole < home || home <= cell);

    if (stays) continue;
    b->index[hole] = b->index[cell];
    hole = cell;
  }
  b->index[hole] = 0;
}

/*
  The row of an id that has none of its own. TorchRec finds id 2^63 - 1 at the first empty entry.
*/
static int64_t row_of_unknown(const struct TrsZchImpl *b, int64_t id)
{
  return b->rule.torchrec && id == EMPTY && b->n_empty ? b->empty[0] : b->rows - 1;
}

int64_t TrsZchFind(TrsZch b, int64_t n, const int64_t *ids, int64_t *rows)
{
  int64_t home[TRS_ZCH_AHEAD], n_found = 0;

  for (int64_t first = 0; first < n; first += TRS_ZCH_AHEAD) {
    const int64_t m = PetscMin((int64_t)TRS_ZCH_AHEAD, n - first);

    for (int64_t i = 0; i < m; i++) {
      home[i] = home_of(ids[first + i], b->n_index);
      __builtin_prefetch(&b->index[home[i]]);
    }
    for (int64_t i = 0; i < m; i++)
      if (b->index[home[i]]) __builtin_prefetch(&b->raw[b->index[home[i]] - 1]);
    for (int64_t i = 0; i < m; i++) {
      const int64_t id = ids[first + i], row = find_from(b, home[i], id);

      rows[first + i] = row >= 0 ? row : row_of_unknown(b, id);
      n_found += row >= 0;
    }
  }
  return n_found;
}

/* --- the history --- */

/* The cell of an id in a table of n cells: its own, or the free one that it would take. */
static inline TrsZchSeen *cell_of(TrsZchSeen *table, int64_t n, int64_t id)
{
  int64_t cell = home_of(id, n);

  while (table[cell].count && table[cell].id != id) cell = next_cell(cell, n);
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

void TrsZchBegin(TrsZch b, int64_t n)
{
  b->number[TRS_ZCH_ITERATION]++;
  if (b->number[TRS_ZCH_CAPACITY] >= 0) return;
  b->number[TRS_ZCH_CAPACITY] = (int64_t)((double)(n * b->rule.interval) * 1.25);
  b->number[TRS_ZCH_ROOM] = b->number[TRS_ZCH_CAPACITY];
}

PetscErrorCode TrsZchLearn(TrsZch b, int64_t n, const int64_t *ids)
{
  const int64_t iteration = b->number[TRS_ZCH_ITERATION];

  PetscFunctionBegin;
  n = PetscMin(n, b->number[TRS_ZCH_ROOM]);
  b->number[TRS_ZCH_ROOM] -= n;
  for (int64_t first = 0; first < n; first += TRS_ZCH_AHEAD) {
    const int64_t m = PetscMin((int64_t)TRS_ZCH_AHEAD, n - first);

    PetscCall(grow_seen(b, m));
    for (int64_t i = 0; i < m; i++) __builtin_prefetch(&b->seen[home_of(ids[first + i], b->n_cells)], 1);
    for (int64_t i = 0; i < m; i++) {
      TrsZchSeen *cell = cell_of(b->seen, b->n_cells, ids[first + i]);

      b->n_seen += cell->count == 0;
      *cell = (TrsZchSeen){ids[first + i], cell->count + 1, iteration};
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The counts that the filter keeps lie above this; all do for a negative number. */
static float threshold_of(const struct TrsZchImpl *b)
{
  double share;
  int64_t sum = 0;

  if (b->rule.filter == TRS_ZCH_FILTER_NONE || b->n_seen == 0) return -1.0F;
  for (int64_t i = 0; i < b->n_cells; i++) sum += b->seen[i].count;
  if (b->rule.filter == TRS_ZCH_FILTER_AVERAGE) return (float)sum / (float)b->n_seen;
  share = 1.0 / (double)b->n_seen * b->rule.multiplier;
  return (float)share * (float)sum;
}

/*
  Add the history to the entries that have its ids, and list the other ids as candidates: their
  cells, by count from the largest, and by id.
*/
static PetscErrorCode list_candidates(TrsZch b, int64_t *n_candidates)
{
  const float threshold = threshold_of(b);
  TrsRadixPair *pair;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->candidates, b->n_seen * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->candidates.data;
  for (int64_t i = 0; i < b->n_cells; i++) {
    const TrsZchSeen *seen = &b->seen[i];
    int64_t row;

    if (!seen->count || !((float)seen->count > threshold)) continue;
    row = find(b, seen->id);
    if (row < 0 && b->rule.torchrec && seen->id == EMPTY) row = row_of_unknown(b, EMPTY);
    if (row < 0) {
      pair[n++] = (TrsRadixPair){TrsRadixKey(seen->id), i};
      continue;
    }
    if (b->count) b->count[row] += seen->count;
    if (b->last) b->last[row] = seen->last;
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

/*
  List the entries whose key is below `limit`, or equal to it, from the last in TorchRec's order to
  the first: empty entries come last there. At most `most` entries are listed. Returns their number.
*/
static int64_t list_entries(TrsZch b, const uint64_t *key, uint64_t limit, PetscBool equal, int64_t most,
                            TrsRadixPair *to)
{
  int64_t n = 0, n_empty;

  for (int64_t i = b->n_empty - 1; i >= 0 && n < most; i--)
    if (equal ? key[b->empty[i]] == limit : key[b->empty[i]] < limit)
      to[n++] = (TrsRadixPair){0, b->empty[i]};
  n_empty = n;
  if (n == most) return n;
  for (int64_t r = 0; r < b->rows - 1; r++)
    if ((equal ? key[r] == limit : key[r] < limit) && (b->raw[r] != EMPTY || b->number[TRS_ZCH_LARGEST] == r))
      to[n++] = (TrsRadixPair){~TrsRadixKey(b->raw[r]), r};
  TrsRadixSort(n - n_empty, to + n_empty, (TrsRadixPair *)b->spare.data);
  return PetscMin(n, most);
}

/* Make a piece of the keys of all rows. */
static void make_keys(void *context, int64_t i)
{
  const struct TrsZchImpl *b = (const struct TrsZchImpl *)context;
  const int64_t end = PetscMin((i + 1) * (int64_t)TRS_ZCH_KEYS_AT_ONCE, b->rows - 1);
  uint64_t *key = (uint64_t *)b->keys.data;

  for (int64_t r = i * TRS_ZCH_KEYS_AT_ONCE; r < end; r++) key[r] = key_of_row(b, r);
}

/* List the m entries that give way first, in this order, with their keys. */
static PetscErrorCode list_lowest(TrsZch b, int64_t m)
{
  const int64_t n = b->rows - 1;
  int64_t below = 0, n_low;
  uint64_t *key, limit = 0;
  TrsRadixPair *low;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->keys, n * (int64_t)sizeof(*key), PETSC_FALSE));
  key = (uint64_t *)b->keys.data;
  TrsForEach((n + TRS_ZCH_KEYS_AT_ONCE - 1) / TRS_ZCH_KEYS_AT_ONCE, make_keys, b);
  PetscCall(TrsRadixSelect(n, key, m, &limit, &below));
  /* The entries at the threshold may be many more than those that are listed. */
  PetscCall(TrsBufferReserve(&b->low, (n + below) * (int64_t)sizeof(*low), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->spare, n * (int64_t)sizeof(*low), PETSC_FALSE));
  low = (TrsRadixPair *)b->low.data;
  n_low = list_entries(b, key, limit, PETSC_FALSE, n, low);
  (void)list_entries(b, key, limit, PETSC_TRUE, m - n_low, low + n_low);
  for (int64_t i = 0; i < m; i++) low[i].key = key[low[i].value];
  TrsRadixSort(m, low, (TrsRadixPair *)b->spare.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Give a row to an id of the history. */
static void give(TrsZch b, int64_t row, const TrsZchSeen *to, TrsGivenRow *given)
{
  const int64_t age = b->last ? b->number[TRS_ZCH_ITERATION] - b->last[row] : -1;

  if (b->raw[row] != EMPTY || b->number[TRS_ZCH_LARGEST] == row) {
    erase(b, row);
    b->counts.held--;
    b->counts.taken++;
    if (age >= 0 && (b->counts.youngest < 0 || age < b->counts.youngest)) b->counts.youngest = age;
  }
  if (b->number[TRS_ZCH_LARGEST] == row) b->number[TRS_ZCH_LARGEST] = -1;
  b->raw[row] = to->id;
  if (to->id == EMPTY) b->number[TRS_ZCH_LARGEST] = row;
  if (b->count) b->count[row] = to->count;
  if (b->last) b->last[row] = to->last;
  insert(b, row);
  b->counts.held++;
  b->counts.given++;
  *given = (TrsGivenRow){to->id, row, ++b->times[row]};
}

/* Drop the rows that have an id from the list of empty ones. */
static void shorten_empty(TrsZch b)
{
  int64_t n = 0;

  for (int64_t i = 0; i < b->n_empty; i++)
    if (b->raw[b->empty[i]] == EMPTY && b->number[TRS_ZCH_LARGEST] != b->empty[i])
      b->empty[n++] = b->empty[i];
  b->n_empty = n;
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
  for (int64_t i = 0; i < n; i++) give(b, low[n - 1 - i].value, &b->seen[candidate[i].value], &given[i]);
  shorten_empty(b);
  *n_given = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsZchEvict(TrsZch b, TrsGivenRows *given)
{
  const int64_t iteration = b->number[TRS_ZCH_ITERATION];
  int64_t n_candidates = 0;

  PetscFunctionBegin;
  given->n = 0;
  if (iteration - b->number[TRS_ZCH_EVICTED] < b->rule.interval) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(list_candidates(b, &n_candidates));
  if (b->count) b->count[b->rows - 1] = INT64_MAX;
  if (b->last) b->last[b->rows - 1] = iteration;
  PetscCall(order_candidates(b, n_candidates));
  PetscCall(replace_lowest(b, n_candidates, &given->n));
  given->row = (const TrsGivenRow *)b->given.data;
  if (b->n_cells) memset(b->seen, 0, (size_t)b->n_cells * sizeof(*b->seen));
  b->n_seen = 0;
  b->number[TRS_ZCH_ROOM] = b->number[TRS_ZCH_CAPACITY];
  b->number[TRS_ZCH_EVICTED] = iteration;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDirectoryCounts TrsZchCount(TrsZch b)
{
  const int64_t arrays = (int64_t)sizeof(*b->raw) * (1 + (b->count != NULL) + (b->last != NULL));
  TrsDirectoryCounts counts = b->counts;

  counts.bytes = b->rows * (arrays + (int64_t)(sizeof(*b->times) + sizeof(*b->empty))) +
                 b->n_index * (int64_t)sizeof(*b->index) + b->n_cells * (int64_t)sizeof(*b->seen);
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
    if (b->raw[r] != EMPTY || b->number[TRS_ZCH_LARGEST] == r)
      pair[n++] = (TrsRadixPair){TrsRadixKey(b->raw[r]), r};
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

    if (arrays->raw) arrays->raw[i] = b->raw[row];
    if (arrays->slot) arrays->slot[i] = row;
    if (arrays->count) arrays->count[i] = b->count ? b->count[row] : 0;
    if (arrays->last) arrays->last[i] = b->last ? b->last[row] : 0;
    if (arrays->times) arrays->times[i] = b->times[row];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsZchCountSeen(TrsZch b)
{
  return b->n_seen;
}

PetscErrorCode TrsZchGetSeen(TrsZch b, TrsZchSeen *seen)
{
  TrsRadixPair *pair;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->candidates, b->n_seen * (int64_t)sizeof(*pair), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->spare, b->n_seen * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->candidates.data;
  for (int64_t i = 0; i < b->n_cells; i++)
    if (b->seen[i].count) pair[n++] = (TrsRadixPair){TrsRadixKey(b->seen[i].id), i};
  TrsRadixSort(n, pair, (TrsRadixPair *)b->spare.data);
  for (int64_t i = 0; i < n; i++) seen[i] = b->seen[pair[i].value];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the arrays of rows. Returns a sentence that says what is wrong, or NULL. */
static const char *set_rows(TrsZch b, const TrsZchArrays *from, char *is_set)
{
  memset(is_set, 0, (size_t)b->rows);
  memset(b->index, 0, (size_t)b->n_index * sizeof(*b->index));
  b->n_empty = b->counts.held = 0;
  for (int64_t i = 0; i < b->rows; i++) {
    const int64_t row = from->slot[i], id = from->raw[i];

    if (row < 0 || row >= b->rows) return "a slot is outside its bucket";
    if (i > 0 && id < from->raw[i - 1]) return "the raw ids of a bucket are not ascending";
    if (is_set[row]) return "two entries have the same slot";
    is_set[row] = 1;
    b->raw[row] = id;
    if (b->count) b->count[row] = from->count ? from->count[i] : 0;
    if (b->last) b->last[row] = from->last ? from->last[i] : 0;
    b->times[row] = from->times ? (uint32_t)from->times[i] : 0;
    if (row == b->rows - 1) {
      if (id != EMPTY || i != b->rows - 1) return "the last row of a bucket has an id";
    } else if (id == EMPTY && b->number[TRS_ZCH_LARGEST] != row) {
      b->empty[b->n_empty++] = (uint32_t)row;
    } else {
      if (find(b, id) >= 0) return "an id is there twice";
      insert(b, row);
      b->counts.held++;
    }
  }
  return NULL;
}

/* Are these the numbers of a bucket that this rule made? */
static const char *check_numbers(const struct TrsZchImpl *b, const int64_t *number)
{
  const int64_t since = number[TRS_ZCH_ITERATION] - number[TRS_ZCH_EVICTED];
  const PetscBool fresh = (PetscBool)(number[TRS_ZCH_CAPACITY] < 0);

  if (number[TRS_ZCH_EVICTED] < 0 || since < 0) return "the last eviction is after the last iteration";
  if (!fresh && (number[TRS_ZCH_ROOM] < 0 || number[TRS_ZCH_ROOM] > number[TRS_ZCH_CAPACITY]))
    return "the history has more room than its capacity";
  if (number[TRS_ZCH_LARGEST] < -1 || number[TRS_ZCH_LARGEST] >= b->rows - 1)
    return "the row of id 2^63 - 1 is outside its bucket";
  return NULL;
}

PetscErrorCode TrsZchSet(TrsZch b, const int64_t numbers[TRS_ZCH_NUMBERS], const TrsZchArrays *arrays,
                         int64_t n, const TrsZchSeen *seen, const char **what)
{
  PetscFunctionBegin;
  *what = check_numbers(b, numbers);
  if (*what) PetscFunctionReturn(PETSC_SUCCESS);
  memcpy(b->number, numbers, sizeof(b->number));
  PetscCall(TrsBufferReserve(&b->spare, b->rows, PETSC_FALSE));
  *what = set_rows(b, arrays, (char *)b->spare.data);
  if (*what) PetscFunctionReturn(PETSC_SUCCESS);
  if (b->n_cells) memset(b->seen, 0, (size_t)b->n_cells * sizeof(*b->seen));
  b->n_seen = 0;
  PetscCall(grow_seen(b, n));
  for (int64_t i = 0; i < n && !*what; i++) {
    TrsZchSeen *cell = cell_of(b->seen, b->n_cells, seen[i].id);

    if (cell->count || seen[i].count < 1) *what = "an id of the history is there twice, or has no count";
    *cell = seen[i];
  }
  b->n_seen = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}
