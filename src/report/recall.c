/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/recall.h"

#include "compute/pair_softmax.h"
#include "core/names.h"
#include "train/pair_loss.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-eval_recall_at", TRS_OPTION_INTS, NULL, "[1,1000000000]", NULL, NULL,
     "evaluations of two towers: Recall@K for these K, exact, over all distinct candidates (-candidate_id) "
     "of "
     "the evaluation data"},
};
const TrsOptionGroup trs_recall_options = TRS_OPTION_GROUP("Retrieval", specs);

PetscErrorCode TrsRecallOpen(const TrsSession *session, TrsRecall *recall)
{
  const TrsDatasetInfo *info;
  const char *name;

  PetscFunctionBegin;
  *recall = (TrsRecall){.model = session->model};
  PetscCall(TrsOptionsGetInts(session->options, "-eval_recall_at", &recall->n, &recall->at, NULL));
  if (!recall->n) PetscFunctionReturn(PETSC_SUCCESS);
  recall->D = TrsModelParallelPairWidth(session->model);
  if (!recall->D)
    PetscCall(TrsOptionError(session->options, "-eval_recall_at",
                             "only -interaction two_tower has queries and candidates"));
  PetscCall(TrsDatasetGetInfo(session->eval, &info));
  PetscCheck(info->has_labels, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has no /labels, which tell what is a query of -eval_recall_at", info->path);
  PetscCall(TrsPairCandidate(session->options, &session->tables, &recall->feature, &name));
  PetscCall(TrsModelParallelKeepPairs(session->model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRecallFree(TrsRecall *recall)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&recall->query));
  PetscCall(TrsBufferFree(&recall->candidate));
  PetscCall(TrsBufferFree(&recall->id));
  PetscCall(TrsBufferFree(&recall->sample));
  PetscCall(TrsBufferFree(&recall->weight));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRecallAdd(void *context, const TrsBatch *batch, const float *predictions,
                            const double *losses, double seconds)
{
  TrsRecall *r = (TrsRecall *)context;
  const int64_t n = r->n_rows + batch->batch, D = r->D;
  const size_t bytes = (size_t)D * sizeof(float);
  const float *pairs;

  PetscFunctionBegin;
  (void)predictions, (void)losses, (void)seconds;
  if (n * D * (int64_t)sizeof(float) > r->query.capacity_bytes) { /* let the buffers grow by half */
    const int64_t room = n + n / 2;

    PetscCall(TrsBufferReserve(&r->query, room * (int64_t)bytes, PETSC_TRUE));
    PetscCall(TrsBufferReserve(&r->candidate, room * (int64_t)bytes, PETSC_TRUE));
    PetscCall(TrsBufferReserve(&r->id, room * (int64_t)sizeof(int64_t), PETSC_TRUE));
    PetscCall(TrsBufferReserve(&r->sample, room * (int64_t)sizeof(int64_t), PETSC_TRUE));
    PetscCall(TrsBufferReserve(&r->weight, room * (int64_t)sizeof(float), PETSC_TRUE));
  }
  PetscCall(TrsModelParallelPairs(r->model, batch, &pairs));
  for (int64_t b = 0; b < batch->batch; b++) {
    const int64_t i = r->n_rows + b;

    memcpy((char *)r->query.data + (size_t)i * bytes, pairs + 2 * b * D, bytes);
    memcpy((char *)r->candidate.data + (size_t)i * bytes, pairs + (2 * b + 1) * D, bytes);
    ((int64_t *)r->id.data)[i] = TrsBatchFirstId(batch, r->feature, b);
    ((int64_t *)r->sample.data)[i] = batch->first + b;
    ((float *)r->weight.data)[i] = batch->labels[b] * (batch->weights ? batch->weights[b] : 1.0F);
  }
  r->n_rows = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A sample's candidate. `place` is the index of its embedding in a contiguous array. */
typedef struct {
  int64_t id, sample, place;
} TrsCandidate;

static int by_id(const void *a, const void *b)
{
  const TrsCandidate *x = (const TrsCandidate *)a, *y = (const TrsCandidate *)b;

  if (x->id != y->id) return x->id < y->id ? -1 : 1;
  return x->sample < y->sample ? -1 : x->sample > y->sample;
}

/*
  Sort candidates by id. If several have the same id, keep the one of the first sample. Returns the
  number of candidates that are kept.
*/
static int64_t keep_first(int64_t n, TrsCandidate *candidate)
{
  int64_t kept = 0;

  qsort(candidate, (size_t)n, sizeof(*candidate), by_id);
  for (int64_t i = 0; i < n; i++)
    if (i == 0 || candidate[i].id != candidate[i - 1].id) candidate[kept++] = candidate[i];
  return kept;
}

/* All distinct candidates, sorted by id. */
typedef struct {
  int64_t n;
  int64_t *id; /* [n] */
  float *rows; /* [n, D] */
} TrsCandidates;

/*
  List this rank's distinct candidates and their embeddings, stored contiguously. The caller frees
  both arrays.
*/
static PetscErrorCode list_own(const TrsRecall *r, int64_t *n, TrsCandidate **own, float **rows)
{
  const int64_t *id = (const int64_t *)r->id.data, *sample = (const int64_t *)r->sample.data;
  const size_t D = (size_t)r->D;

  PetscFunctionBegin;
  *n = 0;
  PetscCall(PetscMalloc1((size_t)r->n_rows, own));
  for (int64_t i = 0; i < r->n_rows; i++)
    if (id[i] >= 0) (*own)[(*n)++] = (TrsCandidate){id[i], sample[i], i};
  *n = keep_first(*n, *own);
  PetscCall(PetscMalloc1((size_t)*n * D, rows));
  for (int64_t i = 0; i < *n; i++)
    PetscCall(
        PetscArraycpy(*rows + (size_t)i * D, (const float *)r->candidate.data + (*own)[i].place * r->D, D));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gather n elements from this rank, and the other ranks' elements, in the order of ranks. */
static PetscErrorCode gather(MPI_Comm comm, const int *counts, const int *displs, int64_t n, const void *own,
                             size_t bytes, void *all)
{
  MPI_Datatype element;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_contiguous((int)bytes, MPI_BYTE, &element));
  PetscCallMPI(MPI_Type_commit(&element));
  PetscCallMPI(MPI_Allgatherv(own, (int)n, element, all, counts, displs, element, comm));
  PetscCallMPI(MPI_Type_free(&element));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gather all ranks' candidates on every rank. */
static PetscErrorCode gather_candidates(const TrsRecall *r, MPI_Comm comm, TrsCandidates *all)
{
  const size_t bytes = (size_t)r->D * sizeof(float);
  int size, mine, *counts, *displs;
  TrsCandidate *own, *every;
  float *own_rows, *rows;
  int64_t n, total;

  PetscFunctionBegin;
  PetscCall(list_own(r, &n, &own, &own_rows));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PetscMalloc2((size_t)size, &counts, (size_t)size + 1, &displs));
  mine = (int)n;
  PetscCallMPI(MPI_Allgather(&mine, 1, MPI_INT, counts, 1, MPI_INT, comm));
  total = displs[0] = 0;
  for (int q = 0; q < size; q++) {
    total += counts[q];
    PetscCheck(total <= INT_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
               "-eval_recall_at: the ranks have more than %d distinct candidates", INT_MAX);
    displs[q + 1] = (int)total;
  }
  PetscCall(PetscMalloc2((size_t)total, &every, (size_t)(total * r->D), &rows));
  PetscCall(gather(comm, counts, displs, n, own, sizeof(*own), every));
  PetscCall(gather(comm, counts, displs, n, own_rows, bytes, rows));
  for (int64_t i = 0; i < total; i++) every[i].place = i;
  all->n = keep_first(total, every);
  PetscCall(PetscMalloc2((size_t)all->n, &all->id, (size_t)(all->n * r->D), &all->rows));
  for (int64_t i = 0; i < all->n; i++) {
    all->id[i] = every[i].id;
    memcpy(all->rows + i * r->D, rows + every[i].place * r->D, bytes);
  }
  PetscCall(PetscFree2(every, rows));
  PetscCall(PetscFree2(counts, displs));
  PetscCall(PetscFree(own));
  PetscCall(PetscFree(own_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_ids(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

  return x < y ? -1 : x > y;
}

/*
  Add up exactly the weights of all queries in digits[0]. Add up the weights of the queries whose
  candidate is among the first at[k] in digits[1 + k].
*/
static void count(const TrsRecall *r, const TrsCandidates *all, double *digits)
{
  const int64_t *id = (const int64_t *)r->id.data;

  for (int64_t i = 0; i < r->n_rows; i++) {
    const float weight = ((const float *)r->weight.data)[i];
    const int64_t *own;
    int64_t place;

    if (id[i] < 0 || weight == 0.0F) continue;
    own = (const int64_t *)bsearch(&id[i], all->id, (size_t)all->n, sizeof(int64_t), compare_ids);
    place = TrsPairPlace(r->D, (const float *)r->query.data + i * r->D, all->n, all->rows, own - all->id);
    TrsWeightSumAdd(digits, 1, &weight);
    for (int k = 0; k < r->n; k++)
      if (place < r->at[k]) TrsWeightSumAdd(digits + (size_t)(1 + k) * TRS_WEIGHT_DIGITS, 1, &weight);
  }
}

PetscErrorCode TrsRecallReport(TrsRecall *r, MPI_Comm comm, TrsResults results)
{
  const size_t n_digits = (size_t)(1 + r->n) * TRS_WEIGHT_DIGITS;
  double *digits, *at, *recall, total;
  char path[64];
  TrsCandidates all;

  PetscFunctionBegin;
  if (!r->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(gather_candidates(r, comm, &all));
  PetscCall(PetscCalloc1(n_digits, &digits));
  PetscCall(PetscMalloc2((size_t)r->n, &at, (size_t)r->n, &recall));
  count(r, &all, digits);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, digits, (int)n_digits, MPI_DOUBLE, MPI_SUM, comm));
  total = TrsWeightSumTotal(digits);
  PetscCall(
      PetscPrintf(comm, "%-10s among %" PRId64 " candidate%s:", "recall", all.n, TrsPlural(all.n, "s")));
  for (int k = 0; k < r->n; k++) {
    at[k] = (double)r->at[k];
    recall[k] = (double)NAN;
    if (total > 0.0) recall[k] = TrsWeightSumTotal(digits + (size_t)(1 + k) * TRS_WEIGHT_DIGITS) / total;
    if (total > 0.0) PetscCall(PetscPrintf(comm, " @%" PRId64 " %.6f", r->at[k], recall[k]));
    PetscCall(PetscSNPrintf(path, sizeof(path), "eval/retrieval_recall_at_%" PRId64, r->at[k]));
    PetscCall(TrsResultsAppend(results, path, recall[k]));
  }
  PetscCall(PetscPrintf(comm, "%s\n", total > 0.0 ? "" : " no number: no sample is a query with a weight"));
  PetscCall(TrsResultsSetArray(results, "retrieval/at", r->n, 0, at));
  PetscCall(TrsResultsSetArray(results, "retrieval/recall", r->n, 0, recall));
  PetscCall(TrsResultsSetInt(results, "retrieval_candidates", all.n));
  PetscCall(PetscFree2(all.id, all.rows));
  PetscCall(PetscFree(digits));
  PetscCall(PetscFree2(at, recall));
  r->n_rows = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
