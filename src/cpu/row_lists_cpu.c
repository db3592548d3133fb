/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables of which every rank has all rows, on the CPU: list the rows of a batch, and merge all
  ranks' lists.

  A batch's rows are marked in a bit map of each table, from which they are read in order. This
  touches N ids and R / 64 words, whereas a sort would move 16 N bytes in each pass. Lists are
  merged in pairs, log2(lists) times, with 32 bytes for each entry.
*/
#include "cpu/cpu_kernels.h"

#include <string.h>

/* An entry of a merged list: a row, and its index in the lists that are merged. */
typedef struct {
  int64_t row, index;
} TrsRowEntry;

/* The part of all entries that belongs to a table. */
typedef struct {
  int64_t first, n;
  const TrsRowEntry *entry;
} TrsTableEntries;

/* Mark the rows of table t that occur in the batch. Returns their number. */
static int64_t mark_rows(const TrsTbe *tbe, const TrsTbeInput *input, int t, int64_t n_words, uint64_t *word)
{
  const int64_t rows = tbe->table[t].rows;
  int64_t n = 0;

  if (n_words > 0) memset(word, 0, (size_t)n_words * sizeof(*word));
  for (int f = 0; f < tbe->n_features; f++) {
    if (tbe->feature[f].table != t) continue;
    for (int64_t i = input->offsets[f * input->batch]; i < input->offsets[(f + 1) * input->batch]; i++) {
      const int64_t id = input->values[i];

      if ((uint64_t)id < (uint64_t)rows) word[id / 64] |= (uint64_t)1 << id % 64;
    }
  }
  for (int64_t w = 0; w < n_words; w++) n += __builtin_popcountll(word[w]);
  return n;
}

static void read_marks(int64_t n_words, const uint64_t *word, int64_t *rows)
{
  for (int64_t w = 0; w < n_words; w++)
    for (uint64_t left = word[w]; left; left &= left - 1) *rows++ = w * 64 + __builtin_ctzll(left);
}

PetscErrorCode TrsTbeListRowsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, int64_t *row_begin, int64_t *rows)
{
  int64_t *first_word;
  uint64_t *word;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(
      TrsBufferReserve(&workspace->runs, (tbe->n_tables + 1) * (int64_t)sizeof(*first_word), PETSC_FALSE));
  first_word = (int64_t *)workspace->runs.data;
  first_word[0] = 0;
  for (int t = 0; t < tbe->n_tables; t++) first_word[t + 1] = first_word[t] + (tbe->table[t].rows + 63) / 64;
  PetscCall(
      TrsBufferReserve(&workspace->keys, first_word[tbe->n_tables] * (int64_t)sizeof(*word), PETSC_FALSE));
  word = (uint64_t *)workspace->keys.data;
  row_begin[0] = 0;
#pragma omp parallel for schedule(dynamic, 1)
  for (int t = 0; t < tbe->n_tables; t++)
    row_begin[t + 1] = mark_rows(tbe, input, t, first_word[t + 1] - first_word[t], word + first_word[t]);
  for (int t = 0; t < tbe->n_tables; t++) row_begin[t + 1] += row_begin[t];
#pragma omp parallel for schedule(dynamic, 1)
  for (int t = 0; t < tbe->n_tables; t++)
    read_marks(first_word[t + 1] - first_word[t], word + first_word[t], rows + row_begin[t]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- merging --- */

/* Merge two adjacent sorted lists, stably. */
static void merge_runs(const TrsRowEntry *a, int64_t na, const TrsRowEntry *b, int64_t nb, TrsRowEntry *out)
{
  int64_t i = 0, j = 0;

  while (i < na && j < nb) *out++ = b[j].row < a[i].row ? b[j++] : a[i++];
  while (i < na) *out++ = a[i++];
  while (j < nb) *out++ = b[j++];
}

/*
  Merge table t's entries of all lists, by row, and for equal rows by list. `from` and `to` must
  have space for the entries. Returns `from` or `to`, whichever has the result.
*/
static const TrsRowEntry *merge_table(int n_tables, int t, int n_lists, const int64_t *begin,
                                      const int64_t *rows, TrsRowEntry *from, TrsRowEntry *to)
{
  int64_t n = 0;

  for (int q = 0; q < n_lists; q++) {
    const int64_t *list = begin + (int64_t)q * n_tables + t;

    for (int64_t i = list[0]; i < list[1]; i++) from[n++] = (TrsRowEntry){.row = rows[i], .index = i};
  }
  for (int width = 1; width < n_lists; width *= 2) { /* each group of `width` lists is sorted */
    TrsRowEntry *const swap = from;
    int64_t at = 0;

    for (int q = 0; q < n_lists; q += 2 * width) {
      int64_t length[2] = {0, 0};

      for (int p = q; p < PetscMin(n_lists, q + 2 * width); p++) {
        const int64_t *list = begin + (int64_t)p * n_tables + t;
        length[p >= q + width] += list[1] - list[0];
      }
      merge_runs(from + at, length[0], from + at + length[0], length[1], to + at);
      at += length[0] + length[1];
    }
    from = to;
    to = swap;
  }
  return from;
}

/* Write the entries that are rows of a table with table_rows rows. Returns their number. */
static int64_t write_rows(int64_t n, const TrsRowEntry *entry, int64_t table_rows, int64_t first_key,
                          int64_t *keys, int64_t *index)
{
  int64_t at = 0;

  for (int64_t i = 0; i < n; i++) {
    if ((uint64_t)entry[i].row >= (uint64_t)table_rows) continue;
    keys[at] = first_key + entry[i].row;
    index[at++] = entry[i].index;
  }
  return at;
}

/* Write the entries that are not rows of the table. Returns their number. */
static int64_t write_strangers(int64_t n, const TrsRowEntry *entry, int64_t table_rows, int64_t key,
                               int64_t *keys, int64_t *index)
{
  int64_t at = 0;

  for (int64_t i = 0; i < n; i++) {
    if ((uint64_t)entry[i].row < (uint64_t)table_rows) continue;
    keys[at] = key;
    index[at++] = entry[i].index;
  }
  return at;
}

/* Allocate memory for a merge of n entries of all tables. */
static PetscErrorCode reserve(TrsWorkspace workspace, int n_tables, int64_t n, TrsRowEntry *entries[2],
                              TrsTableEntries **run)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&workspace->keys, n * (int64_t)sizeof(**entries), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->scratch, n * (int64_t)sizeof(**entries), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->runs, n_tables * (int64_t)sizeof(**run), PETSC_FALSE));
  entries[0] = (TrsRowEntry *)workspace->keys.data;
  entries[1] = (TrsRowEntry *)workspace->scratch.data;
  *run = (TrsTableEntries *)workspace->runs.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMergeRowsCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                               const TrsTbeTable *table, int n_lists, const int64_t *begin,
                               const int64_t *rows, int64_t *keys, int64_t *index)
{
  int64_t first = 0, at = 0, key = 0;
  TrsRowEntry *entries[2] = {NULL, NULL};
  TrsTableEntries *run = NULL;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(reserve(workspace, n_tables, begin[(int64_t)n_lists * n_tables], entries, &run));
  for (int t = 0; t < n_tables; first += run[t++].n) {
    run[t] = (TrsTableEntries){.first = first};
    for (int q = 0; q < n_lists; q++)
      run[t].n += begin[(int64_t)q * n_tables + t + 1] - begin[(int64_t)q * n_tables + t];
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (int t = 0; t < n_tables; t++)
    run[t].entry = merge_table(n_tables, t, n_lists, begin, rows, entries[0] + run[t].first,
                               entries[1] + run[t].first);
  for (int t = 0; t < n_tables; key += table[t++].rows)
    at += write_rows(run[t].n, run[t].entry, table[t].rows, key, keys + at, index + at);
  for (int t = 0; t < n_tables && at < first; t++)
    at += write_strangers(run[t].n, run[t].entry, table[t].rows, key, keys + at, index + at);
  PetscFunctionReturn(PETSC_SUCCESS);
}
