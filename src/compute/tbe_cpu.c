/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Table-batched embedding on the CPU: forward, and backward with the optimizer fused.

  The backward of a table lists the table's occurrences in order of feature, bag and place, and
  brings those of a row together, stably. One thread then owns whole rows, adds a row's gradients in
  this order and updates the row. There are no atomics and no dense gradient, and the bits are the
  same for any number of threads.

  Source: FBGEMM split_embedding_codegen_lookup_*; TorchRec fused optimizers (the formulas:
          src/RULES.md, section 6)
*/
#include "compute/codec_kernels.h"
#include "compute/cpu_kernels.h"
#include "compute/row_sort.h"
#include "compute/tbe_kernels.h"
#include "compute/thread_part.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

/*
  A backward takes the tables group by group. A group has as many tables as give each thread this
  many ids: the lists of a thread stay in its cache until the update, and their memory does not grow
  with the number of tables. With several threads each gets some tables, so that they end together.
*/
enum { TRS_GROUP_VALUES = 32768, TRS_GROUP_TABLES = 4 };

/*
  A table with at least this many ids, and more than a thread's share, is grouped by all threads
  together, who take pieces of a feature's list.
*/
enum { TRS_SHARED_VALUES = 16384, TRS_LIST_PIECES = 16 };

static const TrsTbeKernels *kernels_of_isa(void)
{
  return TRS_KERNELS_OF_ISA(trs_tbe_kernels);
}

/*
  Threads share bags by their work: a bag counts as one item, and each of its ids as one. The first
  of feature f's bags with `item` items or more before it.
*/
static int64_t bag_at(const TrsTbeInput *input, int f, int64_t item)
{
  const int64_t *offsets = input->offsets + f * input->batch;
  int64_t low = 0, high = input->batch;

  while (low < high) {
    const int64_t middle = (low + high) / 2;

    if (offsets[middle] - offsets[0] + middle < item)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int64_t items_of(const TrsTbeInput *input, int f, int n_features)
{
  return input->offsets[(f + n_features) * input->batch] - input->offsets[f * input->batch] +
         n_features * input->batch;
}

PetscBool TrsTbeHasStepCpu(TrsSparseOptimizerKind kind)
{
  return (PetscBool)(kernels_of_isa()->update[kind] != NULL);
}

PetscErrorCode TrsTbeForwardCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                const TrsTbeInput *input, TrsMatrix out)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  const TrsCodecKernels *quantised_kernels = TrsCodecKernelsGet();

  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
  PetscCall(TrsCheckFloats(out.type));
#pragma omp parallel
  {
    TrsThreadParts items = TrsPartsOfThread(items_of(input, 0, tbe->n_features));

    for (int f = 0; f < tbe->n_features; f++) {
      const TrsTbeFeature *feature = &tbe->feature[f];
      const TrsTbeTable *table = &tbe->table[feature->table];
      const PetscBool quantised = (PetscBool)(TrsDTypeBits(table->dtype) <= 8);
      const int64_t first = f * input->batch;

      while (TrsNextPiece(&items, items_of(input, f, 1)))
        (quantised ? quantised_kernels->forward : kernels->forward)(
            table, input, first, first + bag_at(input, f, items.begin), first + bag_at(input, f, items.end),
            feature->mean, (float *)out.data + feature->out_column, out.stride);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeForwardRowsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                    const TrsTbeInput *input, float *out, int64_t out_stride)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  const TrsCodecKernels *quantised_kernels = TrsCodecKernelsGet();

  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
#pragma omp parallel
  {
    TrsThreadParts values = TrsPartsOfThread(input->offsets[tbe->n_features * input->batch] -
                                             input->offsets[0]);

    for (int f = 0; f < tbe->n_features; f++) {
      const int64_t begin = input->offsets[f * input->batch];
      const int64_t n = input->offsets[(f + 1) * input->batch] - begin;
      const TrsTbeTable *table = &tbe->table[tbe->feature[f].table];

      while (TrsNextPiece(&values, n)) {
        const int64_t i = begin + values.begin, end = begin + values.end;

        if (TrsDTypeBits(table->dtype) <= 8)
          quantised_kernels->forward_rows(table, input->values + i, end - i, out + i * out_stride,
                                          out_stride);
        else
          kernels->forward_rows(table, input, i, end, out + i * out_stride, out_stride);
      }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- backward --- */

/* One table's part of the occurrences, by row. */
typedef struct {
  /*
    Index and number of its keys among those of all tables. In the end n leaves out ids that are not
    rows.
  */
  int64_t begin, n;
  int position_bits;
  const uint64_t *key;          /* brought together by row */
  const int64_t *source;        /* as TrsRowJob's */
  int64_t grad_at, grad_stride; /* without source: where position 0 has its gradient; else 0 */
  const float *scale;           /* factors of the gradients, in the order of key; NULL: all 1 */
  /* locations of the rows of a cached table, in the order of key; else NULL */
  const int32_t *location;
} TrsTableRun;

/* Views of the workspace of a backward. N: values of the largest group. */
typedef struct {
  int64_t n, first;        /* N; where the group's keys begin among all keys */
  uint64_t *key, *scratch; /* [N] */
  uint32_t *seen;          /* [N] scratch of TrsRowGroup() */
  int64_t *source;         /* [N] by position within the table's list */
  float *scale;            /* [2 * N] by position, then by key; NULL: all 1 */
  int32_t *location;       /* [2 * N] as scale; NULL: no table is cached */
  TrsRowOrder order;
  TrsTableRun *run;          /* [n_tables] */
  float *wide;               /* [threads, 3 * D] used if rows are wide */
  float *const *row_squares; /* as TrsTbeInput's, or NULL */
} TrsBackward;

static PetscErrorCode reserve(TrsWorkspace w, const TrsTbe *tbe, int64_t n, PetscBool scaled,
                              PetscBool cached, TrsBackward *b)
{
  int64_t widest = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tbe->n_tables; t++) widest = PetscMax(widest, tbe->table[t].dim);
  if (widest <= TRS_TBE_STACK_COLUMNS) widest = 0;
  PetscCall(TrsBufferReserve(&w->keys, n * (int64_t)sizeof(*b->key), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->scratch, n * (int64_t)sizeof(*b->scratch), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->positions,
                             n * (int64_t)(sizeof(*b->source) + sizeof(*b->seen) + 2 * sizeof(*b->scale) +
                                           (cached ? 2 * sizeof(*b->location) : 0)),
                             PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->runs, tbe->n_tables * (int64_t)sizeof(*b->run), PETSC_FALSE));
  PetscCall(TrsBufferReserve(
      &w->by_thread, (int64_t)omp_get_max_threads() * 3 * widest * (int64_t)sizeof(float), PETSC_FALSE));
  b->n = n;
  b->first = 0;
  b->order = TRS_ROWS_TOGETHER;
  b->key = (uint64_t *)w->keys.data;
  b->scratch = (uint64_t *)w->scratch.data;
  b->source = (int64_t *)w->positions.data;
  b->scale = scaled ? (float *)(b->source + n) : NULL;
  b->location = cached ? (int32_t *)(b->source + 2 * n) : NULL; /* behind the memory for scales */
  b->seen = (uint32_t *)(b->source + (cached ? 3 : 2) * n);
  b->run = (TrsTableRun *)w->runs.data;
  b->wide = (float *)w->by_thread.data;
  b->row_squares = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find where each table's keys begin, by adding up the values of its features. */
static void divide_keys(const TrsTbe *tbe, const TrsTbeInput *input, TrsTableRun *run)
{
  for (int t = 0; t < tbe->n_tables; t++) run[t] = (TrsTableRun){.n = 0};
  for (int f = 0; f < tbe->n_features; f++)
    run[tbe->feature[f].table].n += input->offsets[(f + 1) * input->batch] - input->offsets[f * input->batch];
  for (int t = 0; t < tbe->n_tables; t++) run[t].begin = t > 0 ? run[t - 1].begin + run[t - 1].n : 0;
}

/*
  Memory for one table's keys, and for what belongs to their positions: as listed, and [n] further
  on in the order of the keys.
*/
typedef struct {
  uint64_t *key;
  int64_t *source;
  float *scale;      /* or NULL */
  int32_t *location; /* or NULL */
} TrsKeyLists;

/*
  Bring sources and scales into the order of the keys while all of them are in the cache. The update
  then reads them one after the other. The sources take the half of the memory for keys that is not
  needed any more. n: as of TrsKeyLists.
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
  The feature of a table whose keys' positions tell where the gradients are: they are the numbers of
  bags then, or of ids where each id has a gradient. -1: there is more to know of a key.
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
  return features > 1 || lists->scale || lists->location || (pooled && input->batch > n) ? -1 : only;
}

/* The ids of a feature that become keys. */
typedef struct {
  const TrsTbeInput *input;
  const TrsTbeFeature *feature;
  const TrsKeyLists *lists;
  int64_t first, rows; /* its first bag; rows of its table */
  int64_t before;      /* ids of the table before the feature's */
  int64_t grad_stride;
  int position_bits;
  PetscBool pooled;
} TrsListing;

/*
  List the ids of bags [begin, end). linear: a key's position tells where its gradient is, so there
  is no more to list. Returns how many are rows of the table.
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

/* List a feature's ids, by all threads if they share the table. Returns how many are rows. */
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

/* List a table's keys. Returns whether their positions tell where the gradients are. */
static int list_table(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled, PetscBool shared,
                      int64_t grad_stride, TrsTableRun *run, const TrsKeyLists *lists)
{
  const int only = only_feature(tbe, input, lists, t, pooled, run->n), linear = only >= 0;
  int64_t n = 0, before = 0;

  *run = (TrsTableRun){.begin = run->begin, .n = run->n, .key = lists->key};
  run->position_bits = TrsBitsFor((uint64_t)(linear && pooled ? input->batch : run->n));
  if (linear) {
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
  List one table's occurrences, and bring those of a row together. pooled: the ids of a bag share a
  gradient; else gradient row i belongs to values[i]. shared: all threads do it together.
*/
static void group_table(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled,
                        PetscBool shared, int64_t grad_stride, TrsBackward *b)
{
  TrsTableRun *run = &b->run[t];
  const TrsTbeTable *table = &tbe->table[t];
  const int64_t at = run->begin - b->first;
  const TrsKeyLists lists = {.key = b->key + at,
                             .source = b->source + at,
                             .scale = b->scale ? b->scale + at : NULL,
                             .location = b->location && table->lines ? b->location + at : NULL};
  const int linear = list_table(tbe, input, t, pooled, shared, grad_stride, run, &lists);

  TrsRowGroup(run->n, run->position_bits, table->rows, b->order, lists.key, b->scratch + at, b->seen + at);
  if (!linear) follow_keys(run, &lists, b->n, shared, (int64_t *)(b->scratch + at));
}

/*
  Find the table after the group that begins with table t, and the number of the group's keys. From
  table t on run[].n still counts all ids of a table.
*/
static int end_group(const TrsTbe *tbe, const TrsTableRun *run, int t, int64_t *n)
{
  const int threads = omp_get_max_threads(), first = t, fewest = threads > 1 ? TRS_GROUP_TABLES * threads : 1;

  *n = 0;
  while (t < tbe->n_tables && (t - first < fewest || *n + run[t].n <= (int64_t)TRS_GROUP_VALUES * threads))
    *n += run[t++].n;
  return t;
}

/* Divide the keys among the tables, and make room for those of the largest group. */
static PetscErrorCode begin_backward(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                                     PetscBool pooled, TrsBackward *b)
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
  PetscCall(
      reserve(workspace, tbe, most, (PetscBool)(scaled && pooled), (PetscBool)(input->locations != NULL), b));
  b->row_squares = input->row_squares;
  if (input->row_squares) b->order = TRS_ROWS_LISTED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Would the thread of a table be the last of those that group n ids? Lists whose order is fixed are
  no work for several threads.
*/
static PetscBool is_shared(const TrsBackward *b, const TrsTableRun *run, int64_t n)
{
  return (PetscBool)(b->order == TRS_ROWS_TOGETHER && run->n >= TRS_SHARED_VALUES &&
                     run->n * omp_get_max_threads() > n);
}

/* List the keys of the group of tables that begins with table t. Returns the table after it. */
static int group_keys(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled,
                      int64_t grad_stride, TrsBackward *b)
{
  int64_t n;
  const int end = end_group(tbe, b->run, t, &n);

  b->first = b->run[t].begin;
  for (int i = t; i < end; i++)
    if (is_shared(b, &b->run[i], n)) group_table(tbe, input, i, pooled, PETSC_TRUE, grad_stride, b);
#pragma omp parallel for schedule(dynamic, 1)
  for (int i = t; i < end; i++)
    if (!b->run[i].key) /* not listed yet */
      group_table(tbe, input, i, pooled, PETSC_FALSE, grad_stride, b);
  return end;
}

static TrsRowJob job_of(const TrsTbe *tbe, int t, const TrsBackward *b, const float *grad,
                        const TrsSparseOptimizerArgs *args)
{
  const TrsTableRun *run = &b->run[t];
  TrsRowJob job = {.table = &tbe->table[t],
                   .key = run->key,
                   .n_keys = run->n,
                   .position_bits = run->position_bits,
                   .source = run->source,
                   .grad_stride = run->grad_stride,
                   .scale = run->scale,
                   .location = run->location,
                   .grad = grad + run->grad_at};
  if (args) {
    args = &args[tbe->table[t].optimizer];
    job.args = args;
    job.correction1 = (float)(1.0 - pow((double)args->beta1, (double)args->step));
    job.correction2 = (float)(1.0 - pow((double)args->beta2, (double)args->step));
  }
  return job;
}

/* Find the first key in [i, end) that begins a row; end if there is none. */
static int64_t row_start(const TrsRowJob *job, int64_t i, int64_t end)
{
  while (i > 0 && i < end && job->key[i] >> job->position_bits == job->key[i - 1] >> job->position_bits) i++;
  return i;
}

/* The calling thread's parts of the keys of tables [first, end). */
static TrsThreadParts parts_of_tables(const TrsTableRun *run, int first, int end)
{
  int64_t n = 0;

  for (int t = first; t < end; t++) n += run[t].n;
  return TrsPartsOfThread(n);
}

/*
  Do `rows`, a kernel, for the rows that begin in the calling thread's parts of the next table's n
  keys. Without a kernel the table is passed over.
*/
static void for_rows(void (*rows)(const TrsRowJob *, int64_t, int64_t), TrsRowJob job, int64_t n, float *wide,
                     TrsThreadParts *keys)
{
  job.scratch = wide ? wide + (int64_t)omp_get_thread_num() * 3 * job.table->dim : NULL;
  while (TrsNextPiece(keys, n))
    if (rows) rows(&job, row_start(&job, keys->begin, keys->end), keys->end);
}

/* Update the calling thread's rows of tables [first, end), with each table's own optimizer. */
static void update_tables(const TrsTbeKernels *kernels, const TrsTbe *tbe, int first, int end,
                          const TrsBackward *b, const float *grad, const TrsSparseOptimizerArgs *args)
{
  TrsThreadParts keys = parts_of_tables(b->run, first, end);

  for (int t = first; t < end; t++) {
    TrsRowJob job = job_of(tbe, t, b, grad, args);
    job.row_squares = b->row_squares ? b->row_squares[t] : NULL;
    for_rows(kernels->update[job.args->kind], job, b->run[t].n, b->wide, &keys);
  }
}

static PetscErrorCode backward(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                               PetscBool pooled, const float *grad, int64_t grad_stride,
                               const TrsSparseOptimizerArgs *args)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  TrsBackward b;

  PetscFunctionBegin;
  PetscCall(begin_backward(workspace, tbe, input, pooled, &b));
  for (int first = 0, end; first < tbe->n_tables; first = end) {
    end = group_keys(tbe, input, first, pooled, grad_stride, &b);
#pragma omp parallel
    update_tables(kernels, tbe, first, end, &b, grad, args);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeRowSquaresCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                   const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                   float *const *squares)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  TrsBackward b;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(begin_backward(workspace, tbe, input, PETSC_TRUE, &b));
  b.order = TRS_ROWS_LISTED; /* as the ranks that have other columns of the rows list them */
  for (int first = 0, end; first < tbe->n_tables; first = end) {
    end = group_keys(tbe, input, first, PETSC_TRUE, grad_stride, &b);
#pragma omp parallel
    {
      TrsThreadParts keys = parts_of_tables(b.run, first, end);

      for (int t = first; t < end; t++) {
        TrsRowJob job = job_of(tbe, t, &b, grad, NULL);
        job.squares = squares[t];
        for_rows(squares[t] ? kernels->squares : NULL, job, b.run[t].n, b.wide, &keys);
      }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeWeightGradientsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                        float *grad_weights)
{
  const TrsTbeKernels *kernels = kernels_of_isa();

  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
#pragma omp parallel
  {
    TrsThreadParts items = TrsPartsOfThread(items_of(input, 0, tbe->n_features));

    for (int f = 0; f < tbe->n_features; f++) {
      const TrsTbeFeature *feature = &tbe->feature[f];
      const int64_t first = f * input->batch;

      while (TrsNextPiece(&items, items_of(input, f, 1)))
        kernels->weight_gradients(&tbe->table[feature->table], input, first,
                                  first + bag_at(input, f, items.begin), first + bag_at(input, f, items.end),
                                  grad + feature->out_column, grad_stride, grad_weights);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeBackwardCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsCheckFloats(grad.type));
  PetscCall(backward(workspace, tbe, input, PETSC_TRUE, (const float *)grad.data, grad.stride, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeBackwardRowsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                     const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  (void)stream;
  PetscCall(backward(workspace, tbe, input, PETSC_FALSE, grad, grad_stride, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): the function type has many parameters */
PetscErrorCode TrsTbeRowGradientsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, TrsMatrix grad, int64_t *row_begin,
                                     int64_t *rows, float *row_grad, int64_t row_stride)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  TrsBackward b;
  int64_t n = 0;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsCheckFloats(grad.type));
  PetscCall(begin_backward(workspace, tbe, input, PETSC_TRUE, &b));
  b.order = TRS_ROWS_SORTED; /* as tbe_list_rows lists them */
  for (int first = 0, end; first < tbe->n_tables; first = end) {
    end = group_keys(tbe, input, first, PETSC_TRUE, grad.stride, &b);
    for (int t = first; t < end; t++) {
      const TrsRowJob job = job_of(tbe, t, &b, (const float *)grad.data, NULL);
      if (row_begin) row_begin[t] = n;
      n += kernels->sum(&job, 0, b.run[t].n, rows ? rows + n : NULL, row_grad + n * row_stride, row_stride);
    }
  }
  if (row_begin) row_begin[tbe->n_tables] = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeUpdateRowsCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                   const TrsTbeTable *table, int64_t n, const int64_t *keys,
                                   const int64_t *index, const float *grad, int64_t grad_stride,
                                   const TrsSparseOptimizerArgs *args)
{
  const TrsTbe tbe = {.n_tables = n_tables, .table = table};
  const TrsTbeKernels *kernels = kernels_of_isa();
  const int bits = TrsBitsFor((uint64_t)n);
  int64_t first_key = 0, at = 0;
  TrsBackward b;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(reserve(workspace, &tbe, n, PETSC_FALSE, PETSC_FALSE, &b));
  for (int t = 0; t < n_tables; first_key += table[t++].rows) {
    const int64_t begin = at;

    for (; at < n && (keys ? keys[at] : at) - first_key < table[t].rows; at++) {
      b.key[at] = (uint64_t)((keys ? keys[at] : at) - first_key) << bits | (uint64_t)(at - begin);
      b.source[at] = (index ? index[at] : at) * grad_stride;
    }
    b.run[t] = (TrsTableRun){
        .n = at - begin, .position_bits = bits, .key = b.key + begin, .source = b.source + begin};
  }
#pragma omp parallel
  update_tables(kernels, &tbe, 0, n_tables, &b, grad, args);
  PetscFunctionReturn(PETSC_SUCCESS);
}
