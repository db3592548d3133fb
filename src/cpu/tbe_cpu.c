/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Table-batched embedding on the CPU: forward, and backward with the optimizer fused.

  The backward of a table lists the occurrences of its rows in the order of features, bags and
  positions, and groups them stably by row. Each row then belongs to one thread, which adds the
  row's gradients in this order and updates the row. This needs no atomics and no dense gradient,
  and the bits are the same for any number of threads.

  Source: FBGEMM split_embedding_codegen_lookup_*; TorchRec fused optimizers (formulas in
          src/RULES.md, section 6)
*/
#include "compute/changed_rows.h"
#include "cpu/cpu_kernels.h"
#include "cpu/isa/codec_kernels.h"
#include "cpu/isa/tbe_kernels.h"
#include "cpu/tbe_keys.h"
#include "cpu/thread_part.h"

#include <math.h>
#include <omp.h>

enum { TRS_SAVED_AT_ONCE = 64 }; /* rows that a thread saves for a snapshot in one call */

static const TrsTbeKernels *kernels_of_isa(void)
{
  return TRS_KERNELS_OF_ISA(trs_tbe_kernels);
}

/*
  Return the first bag of feature f with at least `item` items before it. Threads share the bags by
  their work: a bag is one item, and each of its ids is one more item.
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

static TrsRowJob job_of(const TrsTbe *tbe, int t, const TrsTbeKeys *lists, const float *grad,
                        const TrsSparseOptimizerArgs *args)
{
  const TrsTableRun *run = &lists->run[t];
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

/* Return the first key in [i, end) that begins a row, or end. */
static int64_t row_start(const TrsRowJob *job, int64_t i, int64_t end)
{
  while (i > 0 && i < end && job->key[i] >> job->position_bits == job->key[i - 1] >> job->position_bits) i++;
  return i;
}

/* Return the calling thread's parts of the keys of tables [first, end). */
static TrsThreadParts parts_of_tables(const TrsTableRun *run, int first, int end)
{
  int64_t n = 0;

  for (int t = first; t < end; t++) n += run[t].n;
  return TrsPartsOfThread(n);
}

/* Mark the rows whose keys are in [i, end), which begins a row. */
static void mark_rows(const TrsRowJob *job, int64_t i, int64_t end)
{
  const TrsTbeTable *table = job->table;
  int64_t last = -1;

  for (; i < end; i++) {
    const int64_t row = (int64_t)(job->key[i] >> job->position_bits);

    if (row != last) TrsChangedMark(table->changed, table->row_of ? table->row_of[row] : row);
    last = row;
  }
}

/* Save those rows with keys in [i, end), which begins a row, that must be saved. */
static void save_rows(const TrsRowJob *job, int64_t i, int64_t end)
{
  const TrsTbeTable *table = job->table;
  const uint64_t *bits = TrsRowsToSaveBits(table->to_save);
  int64_t row[TRS_SAVED_AT_ONCE], n = 0, last = -1;

  for (; bits && i < end; i++) {
    const int64_t key = (int64_t)(job->key[i] >> job->position_bits);

    if (key == last) continue;
    last = key;
    row[n] = table->row_of ? table->row_of[key] : key;
    if (TrsRowMustBeSaved(bits, row[n])) n++;
    if (n < TRS_SAVED_AT_ONCE) continue;
    table->to_save->save(table->to_save, n, row);
    n = 0;
  }
  if (n) table->to_save->save(table->to_save, n, row);
}

/*
  Call the kernel `rows` for the rows that begin in the calling thread's parts of the next table's n
  keys. If `rows` is NULL, skip the table. At the same time, other threads may process other tables,
  so scratch memory belongs to a thread instead of a table.
*/
static void for_rows(void (*rows)(const TrsRowJob *, int64_t, int64_t), TrsRowJob job, int64_t n,
                     const TrsTbeKeys *lists, TrsThreadParts *keys)
{
  job.scratch = lists->widest ? lists->wide + omp_get_thread_num() * 3 * lists->widest : NULL;
  while (TrsNextPiece(keys, n)) {
    const int64_t begin = row_start(&job, keys->begin, keys->end);

    if (job.args && job.table->to_save) save_rows(&job, begin, keys->end);
    if (rows) rows(&job, begin, keys->end);
    if (job.args && job.table->changed) mark_rows(&job, begin, keys->end);
  }
}

/* Update the calling thread's rows of tables [first, end), each table with its own optimizer. */
static void update_tables(const TrsTbeKernels *kernels, const TrsTbe *tbe, int first, int end,
                          const TrsTbeKeys *lists, const float *grad, const TrsSparseOptimizerArgs *args)
{
  TrsThreadParts keys = parts_of_tables(lists->run, first, end);

  for (int t = first; t < end; t++) {
    TrsRowJob job = job_of(tbe, t, lists, grad, args);
    job.row_squares = lists->row_squares ? lists->row_squares[t] : NULL;
    for_rows(kernels->update[job.args->kind], job, lists->run[t].n, lists, &keys);
  }
}

static PetscErrorCode backward(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                               PetscBool pooled, const float *grad, int64_t grad_stride,
                               const TrsSparseOptimizerArgs *args)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  TrsTbeKeys lists;

  PetscFunctionBegin;
  PetscCall(TrsTbeKeysBegin(workspace, tbe, input, pooled, &lists));
  for (int first = 0, end; first < tbe->n_tables; first = end) {
    end = TrsTbeKeysGroup(tbe, input, first, pooled, grad_stride, &lists);
#pragma omp parallel
    update_tables(kernels, tbe, first, end, &lists, grad, args);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeRowSquaresCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                   const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                   float *const *squares)
{
  const TrsTbeKernels *kernels = kernels_of_isa();
  TrsTbeKeys lists;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsTbeKeysBegin(workspace, tbe, input, PETSC_TRUE, &lists));
  /* this order is the same on all ranks that have columns of these rows */
  lists.order = TRS_ROWS_LISTED;
  for (int first = 0, end; first < tbe->n_tables; first = end) {
    end = TrsTbeKeysGroup(tbe, input, first, PETSC_TRUE, grad_stride, &lists);
#pragma omp parallel
    {
      TrsThreadParts keys = parts_of_tables(lists.run, first, end);

      for (int t = first; t < end; t++) {
        TrsRowJob job = job_of(tbe, t, &lists, grad, NULL);
        job.squares = squares[t];
        for_rows(squares[t] ? kernels->squares : NULL, job, lists.run[t].n, &lists, &keys);
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
  TrsTbeKeys lists;
  int64_t n = 0;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsCheckFloats(grad.type));
  PetscCall(TrsTbeKeysBegin(workspace, tbe, input, PETSC_TRUE, &lists));
  lists.order = TRS_ROWS_SORTED; /* the same order as in tbe_list_rows */
  for (int first = 0, end; first < tbe->n_tables; first = end) {
    end = TrsTbeKeysGroup(tbe, input, first, PETSC_TRUE, grad.stride, &lists);
    for (int t = first; t < end; t++) {
      const TrsRowJob job = job_of(tbe, t, &lists, (const float *)grad.data, NULL);
      if (row_begin) row_begin[t] = n;
      n += kernels->sum(&job, 0, lists.run[t].n, rows ? rows + n : NULL, row_grad + n * row_stride,
                        row_stride);
    }
  }
  if (row_begin) row_begin[tbe->n_tables] = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeUpdateRowsCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                   const TrsTbeTable *table, const TrsRowGradients *gradients,
                                   const TrsSparseOptimizerArgs *args)
{
  const int64_t n = gradients->n, *keys = gradients->keys, *index = gradients->index;
  const TrsTbe tbe = {.n_tables = n_tables, .table = table};
  const TrsTbeKernels *kernels = kernels_of_isa();
  const int bits = TrsBitsFor((uint64_t)n);
  int64_t first_key = 0, at = 0;
  TrsTbeKeys lists;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsTbeKeysReserve(workspace, &tbe, n, PETSC_FALSE, PETSC_FALSE, &lists));
  for (int t = 0; t < n_tables; first_key += table[t++].rows) {
    const int64_t begin = at;

    for (; at < n && (keys ? keys[at] : at) - first_key < table[t].rows; at++) {
      lists.key[at] = (uint64_t)((keys ? keys[at] : at) - first_key) << bits | (uint64_t)(at - begin);
      lists.source[at] = (index ? index[at] : at) * gradients->stride;
    }
    lists.run[t] = (TrsTableRun){
        .n = at - begin, .position_bits = bits, .key = lists.key + begin, .source = lists.source + begin};
  }
#pragma omp parallel
  update_tables(kernels, &tbe, 0, n_tables, &lists, gradients->grad, args);
  PetscFunctionReturn(PETSC_SUCCESS);
}
