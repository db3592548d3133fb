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
  TRS_ZCH_AHEAD = 64, /* ids whose cells are fetched together */
  TRS_ZCH_SOON = 16,  /* rows from a fetch of memory to its use, at an eviction */
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
  uint32_t *index;       /* [n_index] row + 1 and a tag of the id, or 0 */
  uint32_t row_mask;     /* the bits of row + 1 */
  int64_t n_index;
  uint32_t *empty; /* [n_empty] rows without an id, in TorchRec's order */
  int64_t n_empty;
  /* [n_cells] the history, a hash table with open addressing; a cell with count 0 is free */
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
  b->n_index = 2 * rows + 2;
  while (b->row_mask < rows) b->row_mask = 2 * b->row_mask + 1;
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

static inline uint64_t hash_of(int64_t id)
{
  return TrsMix((uint64_t)id);
}

/* The cell, of n, where the search for an id begins. */
static inline int64_t home_of(uint64_t hash, int64_t n)
{
  return (int64_t)((hash >> 32) * (uint64_t)n >> 32);
}

static inline int64_t next_cell(int64_t cell, int64_t n)
{
  return cell + 1 == n ? 0 : cell + 1;
}

/* The high bits of the cell of an id. They tell most other ids apart without a look at `raw`. */
static inline uint32_t tag_of(const struct TrsZchImpl *b, uint64_t hash)
{
  return (uint32_t)hash & ~b->row_mask;
}

/* The row in a cell that is not free. */
static inline int64_t row_in(const struct TrsZchImpl *b, int64_t cell)
{
  return (int64_t)(b->index[cell] & b->row_mask) - 1;
}

/* Find the first cell from `cell` on that is free or has the tag. */
static inline int64_t find_tag(const struct TrsZchImpl *b, int64_t cell, uint32_t tag)
{
  while (b->index[cell] && (b->index[cell] & ~b->row_mask) != tag) cell = next_cell(cell, b->n_index);
  return cell;
}

/* Find an id's row from a cell of find_tag() on, or -1. */
static inline int64_t find_from(const struct TrsZchImpl *b, int64_t cell, uint32_t tag, int64_t id)
{
  for (; b->index[cell]; cell = find_tag(b, next_cell(cell, b->n_index), tag))
    if (b->raw[row_in(b, cell)] == id) return row_in(b, cell);
  return -1;
}

static int64_t find(const struct TrsZchImpl *b, int64_t id)
{
  const uint64_t hash = hash_of(id);
  const uint32_t tag = tag_of(b, hash);

  return find_from(b, find_tag(b, home_of(hash, b->n_index), tag), tag, id);
}

/* The index must not have the row's id. */
static void insert(TrsZch b, int64_t row)
{
  const uint64_t hash = hash_of(b->raw[row]);
  int64_t cell = home_of(hash, b->n_index);

  while (b->index[cell]) cell = next_cell(cell, b->n_index);
  b->index[cell] = ((uint32_t)row + 1) | tag_of(b, hash);
}

/*
  Remove the row's id. Cells behind it move up if their search begins at the free cell or before it,
  so that no search ends too early.
*/
static void erase(TrsZch b, int64_t row)
{
  int64_t hole = home_of(hash_of(b->raw[row]), b->n_index), cell;

  while (row_in(b, hole) != row) hole = next_cell(hole, b->n_index);
  for (cell = next_cell(hole, b->n_index); b->index[cell]; cell = next_cell(cell, b->n_index)) {
    const int64_t home = home_of(hash_of(b->raw[row_in(b, cell)]), b->n_index);
    const PetscBool stays = hole < cell ? (PetscBool)(hole < home && home <= cell)
                                        : (PetscBool)(hole < home || home <= cell);

    if (stays) continue;
    b->index[hole] = b->index[cell];
    hole = cell;
  }
  b->index[hole] = 0;
}

/*
  Find the rows of at most TRS_ZCH_AHEAD ids together, so that their cells and entries are fetched
  at the same time; -1: none.
*/
static void find_group(const struct TrsZchImpl *b, int64_t m, const int64_t *ids, int64_t *rows)
{
  int64_t cell[TRS_ZCH_AHEAD];
  uint32_t tag[TRS_ZCH_AHEAD];

  for (int64_t i = 0; i < m; i++) {
    const uint64_t hash = hash_of(ids[i]);

    tag[i] = tag_of(b, hash);
    cell[i] = home_of(hash, b->n_index);
    __builtin_prefetch(&b->index[cell[i]]);
  }
  for (int64_t i = 0; i < m; i++) {
    cell[i] = find_tag(b, cell[i], tag[i]);
    if (b->index[cell[i]]) __builtin_prefetch(&b->raw[row_in(b, cell[i])]);
  }
  for (int64_t i = 0; i < m; i++) rows[i] = find_from(b, cell[i], tag[i], ids[i]);
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
  int64_t n_found = 0;

  for (int64_t first = 0; first < n; first += TRS_ZCH_AHEAD) {
    const int64_t m = PetscMin((int64_t)TRS_ZCH_AHEAD, n - first);

    find_group(b, m, ids + first, rows + first);
    for (int64_t i = first; i < first + m; i++) {
      n_found += rows[i] >= 0;
      if (rows[i] < 0) rows[i] = row_of_unknown(b, ids[i]);
    }
  }
  return n_found;
}

/* --- the history --- */

/* The cell of an id in a table of n cells: its own, or the free one that it would take. */
static inline TrsZchSeen *cell_of(TrsZchSeen *table, int64_t n, int64_t id)
{
  int64_t cell = home_of(hash_of(id), n);

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
  /* TorchRec learns nothing if the first batch has no ids. */
  if (b->number[TRS_ZCH_CAPACITY] >= 0 || (n == 0 && !b->rule.torchrec)) return;
  b->number[TRS_ZCH_CAPACITY] = (int64_t)((double)(n * b->rule.interval) * 1.25);
  b->number[TRS_ZCH_ROOM] = b->number[TRS_ZCH_CAPACITY];
}

PetscErrorCode TrsZchLearn(TrsZch b, int64_t n, const int64_t *ids)
{
  const int64_t iteration = b->number[TRS_ZCH_ITERATION];

  PetscFunctionBegin;
  n = PetscMin(n, PetscMax(b->number[TRS_ZCH_ROOM], 0));
  b->number[TRS_ZCH_ROOM] -= n;
  for (int64_t first = 0; first < n; first += TRS_ZCH_AHEAD) {
    const int64_t m = PetscMin((int64_t)TRS_ZCH_AHEAD, n - first);

    PetscCall(grow_seen(b, m));
    for (int64_t i = 0; i < m; i++)
      __builtin_prefetch(&b->seen[home_of(hash_of(ids[first + i]), b->n_cells)], 1);
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

/* Add an id of the history to its entry, or note it as a candidate: pair[*n]. */
static void meet_seen(TrsZch b, int64_t cell, int64_t row, TrsRadixPair *pair, int64_t *n)
{
  const TrsZchSeen *seen = &b->seen[cell];

  if (row < 0 && b->rule.torchrec && seen->id == EMPTY) row = row_of_unknown(b, EMPTY);
  if (row < 0) {
    pair[(*n)++] = (TrsRadixPair){TrsRadixKey(seen->id), cell};
    return;
  }
  if (b->count) b->count[row] += seen->count;
  if (b->last) b->last[row] = seen->last;
}

/*
  Add the history to the entries that have its ids, and list the other ids as candidates: their
  cells, by count from the largest, and by id.
*/
static PetscErrorCode list_candidates(TrsZch b, int64_t *n_candidates)
{
  int64_t n = 0, m = 0, cell[TRS_ZCH_AHEAD], ids[TRS_ZCH_AHEAD], rows[TRS_ZCH_AHEAD];
  const float threshold = threshold_of(b);
  TrsRadixPair *pair;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->candidates, b->n_seen * (int64_t)sizeof(*pair), PETSC_FALSE));
  pair = (TrsRadixPair *)b->candidates.data;
  for (int64_t i = 0; i <= b->n_cells; i++) {
    if (m == TRS_ZCH_AHEAD || i == b->n_cells) {
      find_group(b, m, ids, rows);
      for (int64_t k = 0; k < m; k++) meet_seen(b, cell[k], rows[k], pair, &n);
      m = 0;
    }
    if (i == b->n_cells || !b->seen[i].count || !((float)b->seen[i].count > threshold)) continue;
    cell[m] = i;
    ids[m++] = b->seen[i].id;
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
    if ((equal ? key[r] == limit : key[r] < limit) && (b->raw[r] != EMPTY || b->number[TRS_ZCH_LARGEST] == r))
      to[n_ids++] = (TrsRadixPair){~TrsRadixKey(b->raw[r]), r};
  PetscCall(keep_smallest(n_ids, most, to, (uint64_t *)b->spare.data));
  n_ids = PetscMin(n_ids, most);
  TrsRadixSort(n_ids, to, (TrsRadixPair *)b->spare.data);
  *n += n_ids;
  PetscFunctionReturn(PETSC_SUCCESS);
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
  int64_t below = 0, n_low, n_equal;
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
  PetscCall(list_entries(b, key, limit, PETSC_FALSE, n, low, &n_low));
  PetscCall(list_entries(b, key, limit, PETSC_TRUE, m - n_low, low + n_low, &n_equal));
  for (int64_t i = 0; i < m; i++) low[i].key = key[low[i].value];
  TrsRadixSort(m, low, (TrsRadixPair *)b->spare.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The age of the row's id; -1: unknown. The history has ids of this interval only, for policies that
  do not keep the last iteration of an id.
*/
static int64_t age_of(const struct TrsZchImpl *b, int64_t row)
{
  const TrsZchSeen *seen = b->last ? NULL : cell_of(b->seen, b->n_cells, b->raw[row]);

  if (seen && seen->count == 0) return -1;
  return b->number[TRS_ZCH_ITERATION] - (seen ? seen->last : b->last[row]);
}

/* Take the row from its id. */
static void release(TrsZch b, int64_t row)
{
  const int64_t age = age_of(b, row);

  erase(b, row);
  b->counts.held--;
  b->counts.taken++;
  b->counts.young += age >= 0 && age < TrsZchYoung(&b->rule);
  if (age >= 0 && (b->counts.youngest < 0 || age < b->counts.youngest)) b->counts.youngest = age;
}

/* Give a row to an id of the history. */
static void give(TrsZch b, int64_t row, const TrsZchSeen *to, TrsGivenRow *given)
{
  if (b->raw[row] != EMPTY || b->number[TRS_ZCH_LARGEST] == row) release(b, row);
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

/* Fetch what give() will use. */
static void fetch(const struct TrsZchImpl *b, int64_t row, const TrsZchSeen *to)
{
  __builtin_prefetch(&b->raw[row], 1);
  __builtin_prefetch(&b->times[row], 1);
  __builtin_prefetch(&b->index[home_of(hash_of(to->id), b->n_index)], 1);
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
  for (int64_t i = 0; i < n; i++) {
    if (i + 2 * TRS_ZCH_SOON < n) __builtin_prefetch(&b->seen[candidate[i + 2 * TRS_ZCH_SOON].value]);
    if (i + TRS_ZCH_SOON < n)
      fetch(b, low[n - 1 - i - TRS_ZCH_SOON].value, &b->seen[candidate[i + TRS_ZCH_SOON].value]);
    give(b, low[n - 1 - i].value, &b->seen[candidate[i].value], &given[i]);
  }
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

TrsDirectoryCounts TrsZchCount(TrsZch b, PetscBool anew)
{
  const int64_t arrays = (int64_t)sizeof(*b->raw) * (1 + (b->count != NULL) + (b->last != NULL));
  TrsDirectoryCounts counts = b->counts;

  counts.bytes = b->rows * (arrays + (int64_t)(sizeof(*b->times) + sizeof(*b->empty))) +
                 b->n_index * (int64_t)sizeof(*b->index) + b->n_cells * (int64_t)sizeof(*b->seen);
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

/* A count or a batch of a file, which additions in training must not overflow. */
static PetscBool is_sane(int64_t number)
{
  return (PetscBool)(number >= 0 && number <= INT64_MAX / 4);
}

/* Set the id of a row, entry i of the arrays. */
static void set_row(TrsZch b, int64_t i, int64_t row, int64_t id, TrsDirectoryFault *fault)
{
  b->raw[row] = id;
  if (row == b->rows - 1) {
    TrsDirectoryFaultNote(fault, (PetscBool)(id != EMPTY || i != b->rows - 1), "raw",
                          "the last row of a bucket has an id");
  } else if (id == EMPTY && b->number[TRS_ZCH_LARGEST] != row) {
    b->empty[b->n_empty++] = (uint32_t)row;
  } else {
    TrsDirectoryFaultNote(fault, (PetscBool)(find(b, id) >= 0), "raw", "an id is there twice");
    TrsDirectoryFaultNote(fault, (PetscBool)(b->count && !is_sane(b->count[row])), "count",
                          "the count of an id is out of range");
    insert(b, row);
    b->counts.held++;
  }
}

/* Set the arrays of rows. */
static void set_rows(TrsZch b, const TrsZchArrays *from, char *is_set, TrsDirectoryFault *fault)
{
  memset(is_set, 0, (size_t)b->rows);
  memset(b->index, 0, (size_t)b->n_index * sizeof(*b->index));
  b->n_empty = b->counts.held = 0;
  for (int64_t i = 0; i < b->rows && !fault->what; i++) {
    const int64_t row = from->slot[i], id = from->raw[i];

    TrsDirectoryFaultNote(fault, (PetscBool)(row < 0 || row >= b->rows), "slot",
                          "a slot is outside its bucket");
    TrsDirectoryFaultNote(fault, (PetscBool)(i > 0 && id < from->raw[i - 1]), "raw",
                          "the raw ids of a bucket are not ascending");
    TrsDirectoryFaultNote(fault, (PetscBool)(from->last && !is_sane(from->last[i])), "last",
                          "the last batch of an id is out of range");
    if (fault->what) return;
    TrsDirectoryFaultNote(fault, (PetscBool)is_set[row], "slot", "two entries have the same slot");
    if (fault->what) return;
    is_set[row] = 1;
    if (b->count) b->count[row] = from->count ? from->count[i] : 0;
    if (b->last) b->last[row] = from->last ? from->last[i] : 0;
    b->times[row] = from->times ? (uint32_t)from->times[i] : 0;
    set_row(b, i, row, id, fault);
  }
}

/* Are these the numbers of a bucket that this rule made? */
static void check_numbers(const struct TrsZchImpl *b, const int64_t *number, TrsDirectoryFault *fault)
{
  const PetscBool fresh = (PetscBool)(number[TRS_ZCH_CAPACITY] < 0);

  TrsDirectoryFaultNote(fault, (PetscBool)!is_sane(number[TRS_ZCH_ITERATION]), "numbers",
                        "the number of batches is out of range");
  TrsDirectoryFaultNote(
      fault, (PetscBool)(number[TRS_ZCH_EVICTED] < 0 || number[TRS_ZCH_ITERATION] < number[TRS_ZCH_EVICTED]),
      "numbers", "the last eviction is after the last iteration");
  TrsDirectoryFaultNote(
      fault,
      (PetscBool)(!fresh && (number[TRS_ZCH_ROOM] < 0 || number[TRS_ZCH_ROOM] > number[TRS_ZCH_CAPACITY])),
      "numbers", "the history has more room than its capacity");
  TrsDirectoryFaultNote(fault,
                        (PetscBool)(number[TRS_ZCH_LARGEST] < -1 || number[TRS_ZCH_LARGEST] >= b->rows - 1),
                        "numbers", "the row of id 2^63 - 1 is outside its bucket");
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
  set_rows(b, arrays, (char *)b->spare.data, fault);
  if (fault->what) PetscFunctionReturn(PETSC_SUCCESS);
  if (b->n_cells) memset(b->seen, 0, (size_t)b->n_cells * sizeof(*b->seen));
  b->n_seen = 0;
  PetscCall(grow_seen(b, n));
  for (int64_t i = 0; i < n && !fault->what; i++) {
    TrsZchSeen *cell = cell_of(b->seen, b->n_cells, seen[i].id);

    TrsDirectoryFaultNote(fault, (PetscBool)(cell->count != 0), "seen",
                          "an id of the history is there twice");
    TrsDirectoryFaultNote(fault,
                          (PetscBool)(seen[i].count < 1 || !is_sane(seen[i].count) || !is_sane(seen[i].last)),
                          "seen", "the count or the last batch of an id is out of range");
    *cell = seen[i];
  }
  b->n_seen = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}
