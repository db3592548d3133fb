/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/tbe_keys.h"

#include "cpu/cpu_kernels.h"
#include "cpu/isa/tbe_kernels.h"

#include <inttypes.h>
#include <omp.h>

/*
  A backward processes the tables in groups. A group has so many tables that each thread has about
  TRS_GROUP_VALUES ids. A thread's lists then stay in its cache until the update, and the memory for
  lists does not grow with the number of tables. If there are several threads, a group has several
  tables for each thread, so that all threads finish at about the same time.
*/
enum { TRS_GROUP_VALUES = 32768, TRS_GROUP_TABLES = 4 };

/*
  A table is grouped by all threads together if it has at least TRS_SHARED_VALUES ids, and more ids
  than a thread's share. Each thread then lists pieces of a feature.
*/
enum { TRS_SHARED_VALUES = 16384, TRS_LIST_PIECES = 16 };

PetscErrorCode TrsTbeKeysReserve(TrsWorkspace workspace, const TrsTbe *tbe, int64_t n, PetscBool scaled,
                                 PetscBool cached, TrsTbeKeys *keys)
{
  int64_t widest = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tbe->n_tables; t++) widest = PetscMax(widest, tbe->table[t].dim);
  if (widest <= TRS_TBE_STACK_COLUMNS) widest = 0;
  PetscCall(TrsBufferReserve(&workspace->keys, n * (int64_t)sizeof(*keys->key), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->scratch, n * (int64_t)sizeof(*keys->scratch), PETSC_FALSE));
  PetscCall(
      TrsBufferReserve(&workspace->positions,
                       n * (int64_t)(sizeof(*keys->source) + sizeof(*keys->seen) + 2 * sizeof(*keys->scale) +
                                     (cached ? 2 * sizeof(*keys->location) : 0)),
                       PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->runs, tbe->n_tables * (int64_t)sizeof(*keys->run), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->by_thread,
                             (int64_t)omp_get_max_threads() * 3 * widest * (int64_t)sizeof(float),
                             PETSC_FALSE));
  keys->n = n;
  keys->first = 0;
  keys->order = TRS_ROWS_TOGETHER;
  keys->key = (uint64_t *)workspace->keys.data;
  keys->scratch = (uint64_t *)workspace->scratch.data;
  keys->source = (int64_t *)workspace->positions.data;
  keys->scale = scaled ? (float *)(keys->source + n) : NULL;
  /* locations are stored after the scales */
  keys->location = cached ? (int32_t *)(keys->source + 2 * n) : NULL;
  keys->seen = (uint32_t *)(keys->source + (cached ? 3 : 2) * n);
  keys->run = (TrsTableRun *)workspace->runs.data;
  keys->widest = widest;
  keys->wide = (float *)workspace->by_thread.data;
  keys->row_squares = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the index of each table's first key, by adding the number of values of the features of all
  earlier tables.
*/
static void divide_keys(const TrsTbe *tbe, const TrsTbeInput *input, TrsTableRun *run)
{
  for (int t = 0; t < tbe->n_tables; t++) run[t] = (TrsTableRun){.n = 0};
  for (int f = 0; f < tbe->n_features; f++)
    run[tbe->feature[f].table].n += input->offsets[(f + 1) * input->batch] - input->offsets[f * input->batch];
  for (int t = 0; t < tbe->n_tables; t++) run[t].begin = t > 0 ? run[t - 1].begin + run[t - 1].n : 0;
}

/*
  Memory for the keys of one table and their attributes. Attributes are stored by position; from
  index n on, they are stored in the order of the keys.
*/
typedef struct {
  uint64_t *key;
  int64_t *source;
  float *scale;      /* NULL if all factors are 1 */
  int32_t *location; /* NULL if the table is not cached */
} TrsKeyLists;

/*
  Sort the attributes by key while they are in the cache, so that the update reads them in sequence.
  The sources are written over the half of the keys' memory that is no longer needed. n is the index
  in TrsKeyLists from which attributes are stored by key.
*/
static void follow_keys(TrsTableRun *run, const TrsKeyLists *lists, int64_t n, PetscBool shared,
                        int64_t *source)
{
  const uint64_t mask = ((uint64_t)1 << run->position_bits) - 1;

  run->source = source;
  run->scale = lists->scale ? lists->scale + n : NULL;
  run->location = lists->location ? lists->location + n : NULL;
#pragma omp parallel for schedule(static) if (shared)
  for (int64_t i = 0; i < run->n; i++) {
    const uint64_t position = run->key[i] & mask;

    source[i] = lists->source[position];
    if (lists->scale) lists->scale[n + i] = lists->scale[position];
    if (lists->location) lists->location[n + i] = lists->location[position];
  }
}

/*
  Return the only feature of table t if the keys' positions determine their gradients' addresses and
  factors. A position is then the index of a bag, or if each id has a gradient, of an id. Returns -1
  if the keys need attributes.
*/
static int only_feature(const TrsTbe *tbe, const TrsTbeInput *input, const TrsKeyLists *lists, int t,
                        PetscBool pooled, int64_t n)
{
  int only = -1, features = 0;

  for (int f = 0; f < tbe->n_features; f++) {
    if (tbe->feature[f].table != t) continue;
    features++;
    only = f;
  }
  if (lists->scale && input->weights) return -1; /* ids of one bag have different factors */
  return features > 1 || lists->location || (pooled && input->batch > n) ? -1 : only;
}

/* The ids of a feature that are listed as keys. */
typedef struct {
  const TrsTbeInput *input;
  const TrsTbeFeature *feature;
  const TrsKeyLists *lists;
  int64_t first, rows; /* the feature's first bag; number of rows of its table */
  int64_t before;      /* number of the table's ids in earlier features */
  int64_t grad_stride;
  int position_bits;
  PetscBool pooled;
} TrsListing;

/*
  List the ids of bags [begin, end). If `linear` is set, a key's position determines its gradient,
  so only keys and the bags' factors are written. Returns the number of ids that are rows of the
  table.
*/
static inline __attribute__((always_inline)) int64_t list_bags(const TrsListing *l, const int linear,
                                                               int64_t begin, int64_t end, uint64_t *key)
{
  const TrsTbeInput *input = l->input;
  const TrsKeyLists *lists = l->lists;
  const int64_t before = l->before - input->offsets[l->first];
  int64_t n = 0;

  for (int64_t bag = begin; bag < end; bag++) {
    const int64_t first = input->offsets[l->first + bag], last = input->offsets[l->first + bag + 1];
    const float share = l->feature->mean && last > first ? 1.0f / (float)(last - first) : 1.0f;

    if (linear && lists->scale) lists->scale[bag] = share;
    for (int64_t i = first; i < last; i++) {
      const int64_t place = before + i, position = linear && l->pooled ? bag : place;

      if (!linear) {
        lists->source[place] = (l->pooled ? bag : i) * l->grad_stride +
                               (l->pooled ? l->feature->out_column : 0);
        if (lists->location) lists->location[place] = input->locations[i];
        if (lists->scale) lists->scale[place] = input->weights ? input->weights[i] * share : share;
      }
      if ((uint64_t)input->values[i] < (uint64_t)l->rows)
        key[n++] = (uint64_t)input->values[i] << l->position_bits | (uint64_t)position;
    }
  }
  return n;
}

static int64_t list_piece(const TrsListing *l, int linear, int64_t begin, int64_t end, uint64_t *key)
{
  return linear ? list_bags(l, 1, begin, end, key) : list_bags(l, 0, begin, end, key);
}

static int64_t count_rows(const TrsListing *l, int64_t begin, int64_t end)
{
  const int64_t *offsets = l->input->offsets + l->first;
  int64_t n = 0;

  for (int64_t i = offsets[begin]; i < offsets[end]; i++)
    n += (uint64_t)l->input->values[i] < (uint64_t)l->rows;
  return n;
}

/*
  List a feature's ids, with all threads if `shared` is set. Returns the number of ids that are rows
  of the table.
*/
static int64_t list_feature(const TrsListing *l, int linear, PetscBool shared, uint64_t *key)
{
  const int64_t B = l->input->batch;
  int64_t begin[TRS_LIST_PIECES + 1] = {0};

  if (!shared) return list_piece(l, linear, 0, B, key);
#pragma omp parallel for schedule(static)
  for (int p = 0; p < TRS_LIST_PIECES; p++)
    begin[p + 1] = count_rows(l, p * B / TRS_LIST_PIECES, (p + 1) * B / TRS_LIST_PIECES);
  for (int p = 0; p < TRS_LIST_PIECES; p++) begin[p + 1] += begin[p];
#pragma omp parallel for schedule(static)
  for (int p = 0; p < TRS_LIST_PIECES; p++)
    (void)list_piece(l, linear, p * B / TRS_LIST_PIECES, (p + 1) * B / TRS_LIST_PIECES, key + begin[p]);
  return begin[TRS_LIST_PIECES];
}

/*
  List a table's keys. Returns true if their positions determine the addresses of their gradients.
*/
static int list_table(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled, PetscBool shared,
                      int64_t grad_stride, TrsTableRun *run, const TrsKeyLists *lists)
{
  const int only = only_feature(tbe, input, lists, t, pooled, run->n), linear = only >= 0;
  int64_t n = 0, before = 0;

  *run = (TrsTableRun){.begin = run->begin, .n = run->n, .key = lists->key};
  run->position_bits = TrsBitsFor((uint64_t)(linear && pooled ? input->batch : run->n));
  if (linear) {
    run->scale = lists->scale;
    run->grad_stride = grad_stride;
    run->grad_at = pooled ? tbe->feature[only].out_column : input->offsets[only * input->batch] * grad_stride;
  }
  for (int f = 0; f < tbe->n_features; f++) {
    const TrsListing listing = {.input = input,
                                .feature = &tbe->feature[f],
                                .lists = lists,
                                .first = f * input->batch,
                                .rows = tbe->table[t].rows,
                                .before = before,
                                .grad_stride = grad_stride,
                                .position_bits = run->position_bits,
                                .pooled = pooled};

    if (tbe->feature[f].table != t) continue;
    n += list_feature(&listing, linear, shared, lists->key + n);
    before += input->offsets[(f + 1) * input->batch] - input->offsets[f * input->batch];
  }
  run->n = n;
  return linear;
}

/*
  List one table's occurrences, grouped by row. If `pooled` is set, the ids of a bag share a
  gradient; if not, gradient row i belongs to values[i]. If `shared` is set, all threads work on
  this table.
*/
static void group_table(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled,
                        PetscBool shared, int64_t grad_stride, TrsTbeKeys *keys)
{
  TrsTableRun *run = &keys->run[t];
  const TrsTbeTable *table = &tbe->table[t];
  const int64_t at = run->begin - keys->first;
  const TrsKeyLists lists = {.key = keys->key + at,
                             .source = keys->source + at,
                             .scale = keys->scale ? keys->scale + at : NULL,
                             .location = keys->location && table->lines ? keys->location + at : NULL};
  const int linear = list_table(tbe, input, t, pooled, shared, grad_stride, run, &lists);

  TrsRowGroup(run->n, run->position_bits, table->rows, keys->order, lists.key, keys->scratch + at,
              keys->seen + at);
  if (!linear) follow_keys(run, &lists, keys->n, shared, (int64_t *)(keys->scratch + at));
}

/*
  Find the end of the group that begins with table t, and the number of its keys. For tables that
  are not yet listed, run[].n is the number of all ids of the table.
*/
static int end_group(const TrsTbe *tbe, const TrsTableRun *run, int t, int64_t *n)
{
  const int threads = omp_get_max_threads(), first = t, fewest = threads > 1 ? TRS_GROUP_TABLES * threads : 1;

  *n = 0;
  while (t < tbe->n_tables && (t - first < fewest || *n + run[t].n <= (int64_t)TRS_GROUP_VALUES * threads))
    *n += run[t++].n;
  return t;
}

PetscErrorCode TrsTbeKeysBegin(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                               PetscBool pooled, TrsTbeKeys *keys)
{
  PetscBool scaled = (PetscBool)(input->weights != NULL);
  int64_t n, most = 0;
  TrsTableRun *run;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&workspace->runs, tbe->n_tables * (int64_t)sizeof(*run), PETSC_FALSE));
  run = (TrsTableRun *)workspace->runs.data;
  divide_keys(tbe, input, run);
  for (int t = 0; t < tbe->n_tables; t++)
    PetscCheck(TrsBitsFor((uint64_t)run[t].n) + TrsBitsFor((uint64_t)PetscMax(tbe->table[t].rows - 1, 0)) <=
                   64,
               PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "%" PRId64 " ids of a table of %" PRId64 " rows in one batch", run[t].n, tbe->table[t].rows);
  for (int t = 0; t < tbe->n_tables; most = PetscMax(most, n)) t = end_group(tbe, run, t, &n);
  for (int f = 0; f < tbe->n_features; f++) scaled = (PetscBool)(scaled || tbe->feature[f].mean);
  PetscCall(TrsTbeKeysReserve(workspace, tbe, most, (PetscBool)(scaled && pooled),
                              (PetscBool)(input->locations != NULL), keys));
  keys->row_squares = input->row_squares;
  if (input->row_squares) keys->order = TRS_ROWS_LISTED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if all threads should group this table together, because a single thread would finish later
  than the threads that group the n ids of all tables. Lists in a fixed order are never shared.
*/
static PetscBool is_shared(const TrsTbeKeys *keys, const TrsTableRun *run, int64_t n)
{
  return (PetscBool)(keys->order == TRS_ROWS_TOGETHER && run->n >= TRS_SHARED_VALUES &&
                     run->n * omp_get_max_threads() > n);
}

int TrsTbeKeysGroup(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled, int64_t grad_stride,
                    TrsTbeKeys *keys)
{
  int64_t n;
  const int end = end_group(tbe, keys->run, t, &n);

  keys->first = keys->run[t].begin;
  for (int i = t; i < end; i++)
    if (is_shared(keys, &keys->run[i], n)) group_table(tbe, input, i, pooled, PETSC_TRUE, grad_stride, keys);
#pragma omp parallel for schedule(dynamic, 1)
  for (int i = t; i < end; i++)
    if (!keys->run[i].key) /* not yet listed */
      group_table(tbe, input, i, pooled, PETSC_FALSE, grad_stride, keys);
  return end;
}
