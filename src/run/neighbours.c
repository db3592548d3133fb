/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/neighbours.h"

#include "compute/pair_softmax.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of candidates that are read and sent at once. */
enum { TRS_BLOCK_BYTES = 4 << 20 };

static const char option[] = "-predict_neighbours", file_option[] = "-predict_candidates";

static const TrsOptionSpec specs[] = {
    {"-predict_neighbours", TRS_OPTION_INT, NULL, "[1,10000]", NULL, "candidates",
     "two towers: -task predict finds this number of candidates in -predict_candidates for each sample. They "
     "have the largest products with the query tower's output. The search is exact. The result is "
     "/neighbours in -output"},
    {"-predict_candidates", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "the -output of an earlier -task predict with -predict_towers candidate. If several candidates have the "
     "same id, only the first counts"},
};
const TrsOptionGroup trs_neighbours_options = TRS_OPTION_GROUP("Nearest candidates", specs);

/* --- the candidates --- */

typedef struct {
  int64_t id, row;
} TrsIdOfRow;

static int by_id(const void *a, const void *b)
{
  const TrsIdOfRow *x = (const TrsIdOfRow *)a, *y = (const TrsIdOfRow *)b;

  if (x->id != y->id) return x->id < y->id ? -1 : 1;
  return x->row < y->row ? -1 : x->row > y->row;
}

/* Mark the first row of each id. A row whose id is unknown (-1) is no candidate. */
static PetscErrorCode keep_first(TrsNeighbours *s)
{
  TrsIdOfRow *all;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)s->n_rows, &all));
  for (int64_t i = 0; i < s->n_rows; i++) all[i] = (TrsIdOfRow){s->id[i], i};
  qsort(all, (size_t)s->n_rows, sizeof(*all), by_id);
  s->n_kept = 0;
  for (int64_t i = 0; i < s->n_rows; i++) {
    const PetscBool first = (PetscBool)(all[i].id >= 0 && (i == 0 || all[i].id != all[i - 1].id));

    s->keep[all[i].row] = first;
    s->n_kept += first;
  }
  PetscCall(PetscFree(all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open the file on rank 0, and find its distinct candidates. */
static PetscErrorCode open_candidates(TrsNeighbours *s, int64_t width)
{
  PetscFunctionBegin;
  PetscCall(TrsCandidateRowsOpen(s->path, &s->source, &s->n_rows, &s->D, &s->has_ids));
  PetscCheck(s->D == width, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /towers/candidate has %" PRId64 " columns, the model's towers have %" PRId64, s->path, s->D,
             width);
  PetscCall(PetscMalloc1((size_t)s->n_rows, &s->keep));
  s->n_kept = s->n_rows;
  for (int64_t i = 0; i < s->n_rows; i++) s->keep[i] = PETSC_TRUE;
  if (s->has_ids) {
    PetscCall(PetscMalloc1((size_t)s->n_rows, &s->id));
    PetscCall(TrsCandidateRowsIds(s->source, s->id));
    PetscCall(keep_first(s));
  }
  PetscCheck(s->k <= s->n_kept, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has %" PRId64 " distinct candidates, expected at least %" PRId64 " (%s)", s->path, s->n_kept,
             s->k, option);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsNeighboursOpen(const TrsSession *session, TrsNeighbours *s)
{
  const TrsOptions options = session->options;
  const int64_t width = TrsModelParallelPairWidth(session->model);
  const char *output = NULL;
  int64_t shape[4];

  PetscFunctionBegin;
  *s = (TrsNeighbours){.model = session->model};
  PetscCall(TrsOptionsGetInt(options, option, &s->k, NULL));
  PetscCall(TrsOptionsGetString(options, file_option, &s->path, NULL));
  PetscCall(TrsOptionsGetString(options, "-output", &output, NULL));
  if (s->path && !s->k)
    PetscCall(TrsOptionError(options, file_option, "needs %s, the number of candidates per query", option));
  if (!s->k) PetscFunctionReturn(PETSC_SUCCESS);
  if (!s->path)
    PetscCall(TrsOptionError(options, option, "needs %s, the file with the candidates", file_option));
  if (!output) PetscCall(TrsOptionError(options, option, "needs -output, the file to write them to"));
  if (!width) PetscCall(TrsOptionError(options, option, "only -interaction two_tower has towers"));
  PetscCall(TrsAgree(session->comm, session->rank == 0 ? open_candidates(s, width) : PETSC_SUCCESS));
  memcpy(shape, (int64_t[]){s->n_rows, s->D, s->n_kept, s->has_ids}, sizeof(shape));
  PetscCallMPI(MPI_Bcast(shape, 4, MPI_INT64_T, 0, session->comm));
  s->n_rows = shape[0];
  s->D = shape[1];
  s->n_kept = shape[2];
  s->has_ids = (PetscBool)(shape[3] != 0);
  PetscCall(TrsModelParallelKeepPairs(session->model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsNeighboursFree(TrsNeighbours *s)
{
  PetscFunctionBegin;
  PetscCall(TrsCandidateRowsClose(&s->source));
  PetscCall(PetscFree(s->id));
  PetscCall(PetscFree(s->keep));
  PetscCall(TrsBufferFree(&s->query));
  PetscCall(TrsBufferFree(&s->batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the queries --- */

PetscErrorCode TrsNeighboursAdd(TrsNeighbours *s, const TrsBatch *batch)
{
  const int64_t n = s->n_queries + batch->batch, bytes = s->D * (int64_t)sizeof(float);
  const float *pairs;
  int64_t *range;

  PetscFunctionBegin;
  if (!s->k) PetscFunctionReturn(PETSC_SUCCESS);
  if (n * bytes > s->query.capacity_bytes) /* let the buffer grow by half */
    PetscCall(TrsBufferReserve(&s->query, (n + n / 2) * bytes, PETSC_TRUE));
  if ((s->n_batches + 1) * 16 > s->batch.capacity_bytes)
    PetscCall(TrsBufferReserve(&s->batch, (s->n_batches + s->n_batches / 2 + 1) * 16, PETSC_TRUE));
  range = (int64_t *)s->batch.data + 2 * s->n_batches++;
  range[0] = batch->first;
  range[1] = batch->batch;
  PetscCall(TrsModelParallelPairs(s->model, batch, &pairs));
  for (int64_t b = 0; b < batch->batch; b++)
    memcpy((char *)s->query.data + (s->n_queries + b) * bytes, pairs + 2 * b * s->D, (size_t)bytes);
  s->n_queries = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the search --- */

/* A block of candidates. The arrays have space for `most` of them. */
typedef struct {
  int64_t first, n, most; /* row of the file after the last that was read; number of candidates */
  float *rows;            /* [n, D] */
  int64_t *row, *id;      /* [n] row in the file, and id or -1 */
} TrsCandidateBlock;

/* Refuse a candidate with a number that is not finite: products with it have no order. */
static PetscErrorCode check_row(const TrsNeighbours *s, int64_t row, const float *numbers)
{
  PetscFunctionBegin;
  for (int64_t d = 0; d < s->D; d++)
    PetscCheck(isfinite(numbers[d]), PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /towers/candidate, row %" PRId64 ", column %" PRId64 " is %g, expected a finite number",
               s->path, row, d, (double)numbers[d]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the next candidates on rank 0, without rows that are not kept. */
static PetscErrorCode read_block(TrsNeighbours *s, TrsCandidateBlock *block)
{
  const int64_t first = block->first, n = PetscMin(s->n_rows - first, block->most);

  PetscFunctionBegin;
  block->n = 0;
  PetscCall(TrsCandidateRowsRead(s->source, first, n, block->rows));
  for (int64_t i = 0; i < n; i++) {
    if (!s->keep[first + i]) continue;
    PetscCall(check_row(s, first + i, block->rows + i * s->D));
    if (block->n < i)
      memcpy(block->rows + block->n * s->D, block->rows + i * s->D, (size_t)s->D * sizeof(float));
    block->row[block->n] = first + i;
    block->id[block->n++] = s->id ? s->id[first + i] : -1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Send a block to all ranks, and find the best candidates of this rank's queries so far. */
static PetscErrorCode search_block(TrsNeighbours *s, MPI_Comm comm, int rank, TrsCandidateBlock *block,
                                   TrsPairBest *best)
{
  const int64_t n = PetscMin(s->n_rows - block->first, block->most);

  PetscFunctionBegin;
  PetscCall(TrsAgree(comm, rank == 0 ? read_block(s, block) : PETSC_SUCCESS));
  PetscCallMPI(MPI_Bcast(&block->n, 1, MPI_INT64_T, 0, comm));
  PetscCallMPI(MPI_Bcast(block->rows, (int)(block->n * s->D), MPI_FLOAT, 0, comm));
  PetscCallMPI(MPI_Bcast(block->row, (int)block->n, MPI_INT64_T, 0, comm));
  PetscCallMPI(MPI_Bcast(block->id, (int)block->n, MPI_INT64_T, 0, comm));
  TrsPairFindBest(s->D, s->n_queries, (const float *)s->query.data, block->n, block->rows, block->row,
                  block->id, s->k, best);
  block->first += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode search(TrsNeighbours *s, MPI_Comm comm, TrsPairBest *best)
{
  TrsCandidateBlock block = {.most = PetscMax(TRS_BLOCK_BYTES / (s->D * (int64_t)sizeof(float)), 1)};
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  block.most = PetscMin(block.most, s->n_rows);
  PetscCall(PetscMalloc3((size_t)(block.most * s->D), &block.rows, (size_t)block.most, &block.row,
                         (size_t)block.most, &block.id));
  for (int64_t i = 0; i < s->n_queries * s->k; i++) best[i] = (TrsPairBest){.row = -1, .id = -1};
  while (block.first < s->n_rows) PetscCall(search_block(s, comm, rank, &block, best));
  PetscCall(PetscFree3(block.rows, block.row, block.id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the candidates of one batch to the results. */
static PetscErrorCode add_batch(const TrsNeighbours *s, const int64_t *range, int64_t n_total,
                                const TrsPairBest *best, TrsResults results)
{
  const int64_t n = range[1] * s->k;
  PetscErrorCode failed[3] = {PETSC_SUCCESS};
  float *score;
  int64_t *row, *id;

  PetscFunctionBegin;
  PetscCall(PetscMalloc3((size_t)n, &score, (size_t)n, &row, (size_t)n, &id));
  for (int64_t i = 0; i < n; i++) {
    score[i] = (float)best[i].score;
    row[i] = best[i].row;
    id[i] = best[i].id;
  }
  /* each call is made, even after an error, because the other ranks make it */
  failed[0] = TrsResultsAddRows(results, "neighbours/score", n_total, range[0], range[1], (int)s->k, score);
  failed[1] = TrsResultsAddIntRows(results, "neighbours/row", n_total, range[0], range[1], (int)s->k, row);
  if (s->has_ids)
    failed[2] = TrsResultsAddIntRows(results, "neighbours/id", n_total, range[0], range[1], (int)s->k, id);
  PetscCall(PetscFree3(score, row, id));
  for (int i = 0; i < 3; i++) PetscCall(failed[i]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsNeighboursFind(TrsNeighbours *s, MPI_Comm comm, int64_t n_total, TrsResults results)
{
  const int64_t *range = (const int64_t *)s->batch.data;
  TrsPairBest *best = NULL;
  PetscErrorCode failed = PETSC_SUCCESS;
  int64_t at = 0;

  PetscFunctionBegin;
  if (!s->k) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAgree(comm, PetscMalloc1((size_t)(s->n_queries * s->k), &best)));
  PetscCall(search(s, comm, best));
  for (int64_t i = 0; i < s->n_batches; i++) {
    const PetscErrorCode ierr = add_batch(s, range + 2 * i, n_total, best + at * s->k, results);

    if (!failed) failed = ierr; /* go on with the next batch, because the other ranks do so */
    at += range[2 * i + 1];
  }
  PetscCall(PetscFree(best));
  PetscCall(TrsAgree(comm, failed));
  PetscCall(PetscPrintf(comm, "%-10s the first %" PRId64 " of %" PRId64 " candidates for each sample: %s\n",
                        "neighbours", s->k, s->n_kept, s->path));
  PetscFunctionReturn(PETSC_SUCCESS);
}
