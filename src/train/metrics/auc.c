/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/auc.h"

#include "train/metrics/exact_sum.h"
#include "train/metrics/record_exchange.h"

#include <math.h>
#include <string.h>

/* A float's leading bits give the bin: 512 bins for each power of two, 65025 for [0, 1]. */
#define KEY_SHIFT 14
#define N_BINS    65536

/* A prediction's bin. Non-negative floats have the same order as their bits. */
static int bin_of(float p)
{
  uint32_t bits;

  if (!(p > 0.0f)) return 0;
  if (p > 1.0f) p = 1.0f;
  memcpy(&bits, &p, sizeof(bits));
  return (int)(bits >> KEY_SHIFT);
}

/*
  Fill owner[bin]: ranks own bins in the order of decreasing predictions, with about equal numbers
  of records.
*/
static PetscErrorCode assign_bins(MPI_Comm comm, int64_t n, const TrsAucRecord *records, int owner[N_BINS])
{
  int64_t *count, total = 0, before = 0;
  int size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PetscCalloc1(N_BINS, &count));
  for (int64_t i = 0; i < n; i++) count[bin_of(records[i].prediction)]++;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, count, N_BINS, MPI_INT64_T, MPI_SUM, comm));
  for (int b = 0; b < N_BINS; b++) total += count[b];
  for (int b = N_BINS - 1; b >= 0; b--) {
    owner[b] = total ? (int)((double)before / (double)total * size) : 0;
    if (owner[b] >= size) owner[b] = size - 1;
    before += count[b];
  }
  PetscCall(PetscFree(count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sort records by owner. displs [size + 1] gets the start of each owner's records. */
static PetscErrorCode sort_by_owner(int size, int64_t n, const TrsAucRecord *records, const int owner[N_BINS],
                                    TrsAucRecord *sorted, int64_t *displs)
{
  int64_t *next;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)size + 1, &next));
  for (int64_t i = 0; i < n; i++) next[owner[bin_of(records[i].prediction)] + 1]++;
  for (int r = 0; r < size; r++) next[r + 1] += next[r];
  PetscCall(PetscArraycpy(displs, next, (size_t)size + 1));
  for (int64_t i = 0; i < n; i++) sorted[next[owner[bin_of(records[i].prediction)]]++] = records[i];
  PetscCall(PetscFree(next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A number that increases as the prediction decreases. The numbers of 0 and -0 are neighbours. */
static uint32_t falling_key(float p)
{
  uint32_t bits;

  memcpy(&bits, &p, sizeof(bits));
  return bits >> 31 ? bits : 0x7fffffffu - bits;
}

enum { TRS_DIGIT_BITS = 11, TRS_KEY_DIGITS = 3, TRS_DIGIT_VALUES = 1 << TRS_DIGIT_BITS };

/* Digit k of a prediction's key, from the lowest digit on. */
static uint32_t digit_of(float p, int k)
{
  return falling_key(p) >> k * TRS_DIGIT_BITS & (TRS_DIGIT_VALUES - 1);
}

/*
  Sort records stably by decreasing predictions, digit by digit of the keys. other: scratch [n].
  Returns the array that holds the result.
*/
static TrsAucRecord *sort_records(int64_t n, TrsAucRecord *records, TrsAucRecord *other)
{
  int64_t next[TRS_KEY_DIGITS][TRS_DIGIT_VALUES] = {{0}};

  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < TRS_KEY_DIGITS; k++) next[k][digit_of(records[i].prediction, k)]++;
  for (int k = 0; k < TRS_KEY_DIGITS; k++) {
    TrsAucRecord *sorted = other;
    int64_t before = 0;

    for (int d = 0; d < TRS_DIGIT_VALUES; d++) {
      const int64_t here = next[k][d];

      next[k][d] = before;
      before += here;
    }
    for (int64_t i = 0; i < n; i++) sorted[next[k][digit_of(records[i].prediction, k)]++] = records[i];
    other = records;
    records = sorted;
  }
  return records;
}

/*
  An area is the sum of its digits, each a multiple of its own unit (2^-20, 2^-40, 2^-60). The
  digits of up to 2^33 points add up exactly in doubles, so the area's bits do not depend on the
  distribution of the points over ranks.
*/
enum { TRS_AREA_DIGITS = 3 };

static void add_to_area(double area[TRS_AREA_DIGITS], double value)
{
  double unit = 0x1p-20;

  for (int k = 0; k < TRS_AREA_DIGITS; k++) {
    const double digit = floor(value / unit) * unit;

    area[k] += digit;
    value -= digit;
    unit *= 0x1p-20;
  }
}

/* Points on the curves up to some prediction, and the areas under the curves. */
typedef struct {
  double tp, fp, n, roc, pr[TRS_AREA_DIGITS];
} TrsCurve;
enum { TRS_CURVE_DOUBLES = 4 + TRS_AREA_DIGITS };

/* Add the areas over this rank's sorted records. The curves continue those of the ranks before. */
static void add_areas(int64_t n, const TrsAucRecord *records, const TrsCurve *before, TrsCurve *here)
{
  double tp = before->tp, fp = before->fp;

  for (int64_t i = 0, end; i < n; i = end) {
    double tp_here = 0.0, fp_here = 0.0;

    for (end = i; end < n && records[end].prediction == records[i].prediction; end++) {
      tp_here += (double)records[end].weight * (double)records[end].label;
      fp_here += (double)records[end].weight * (1.0 - (double)records[end].label);
    }
    if (end == i) end++; /* NaN is not equal to itself */
    if (before->n > 0.0 || i > 0 || end > 1) here->roc += fp_here * (tp + 0.5 * tp_here);
    tp += tp_here;
    fp += fp_here;
    if (tp_here > 0.0) add_to_area(here->pr, tp_here * tp / (tp + fp));
  }
}

/* Add up the curves over all ranks' sorted records in doubles. */
static PetscErrorCode sum_curves(MPI_Comm comm, int64_t n, const TrsAucRecord *records, TrsCurve *total)
{
  TrsCurve here = {0}, before = {0};

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++) {
    here.tp += (double)records[i].weight * (double)records[i].label;
    here.fp += (double)records[i].weight * (1.0 - (double)records[i].label);
  }
  here.n = (double)n;
  /* MPI_Exscan does not change the zeros on rank 0. */
  PetscCallMPI(MPI_Exscan(&here, &before, TRS_CURVE_DOUBLES, MPI_DOUBLE, MPI_SUM, comm));
  add_areas(n, records, &before, &here);
  PetscCallMPI(MPI_Allreduce(&here, total, TRS_CURVE_DOUBLES, MPI_DOUBLE, MPI_SUM, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the same in exact sums --- */

/*
  The sums in a TrsCurve. For n it only matters whether it is 0. A point on a curve is the rounded
  sum of all records up to some prediction, so it does not depend on the ranks that hold them.
*/
enum { TRS_TP, TRS_FP, TRS_N, TRS_ROC, TRS_PR, TRS_N_CURVE };

static void add_record(TrsExactSum *curve, const TrsAucRecord *record)
{
  TrsExactSumAdd(&curve[TRS_TP], (double)record->weight * (double)record->label);
  TrsExactSumAdd(&curve[TRS_FP], (double)record->weight * (1.0 - (double)record->label));
}

/*
  Like add_areas(). The sums up[TRS_TP] and up[TRS_FP] hold the curves' values before this rank's
  records.
*/
static void add_areas_exactly(int64_t n, const TrsAucRecord *records, PetscBool is_first, TrsExactSum *up,
                              TrsExactSum *areas)
{
  for (int64_t i = 0, end; i < n; i = end) {
    const double before = TrsExactSumValue(&up[TRS_TP]);
    TrsExactSum here[TRS_N_CURVE] = {{0}};
    double tp_here, tp, fp;

    for (end = i; end < n && records[end].prediction == records[i].prediction; end++) {
      add_record(here, &records[end]);
      add_record(up, &records[end]);
    }
    if (end == i) end++; /* NaN is not equal to itself */
    tp_here = TrsExactSumValue(&here[TRS_TP]);
    if (!is_first || i > 0 || end > 1)
      TrsExactSumAdd(&areas[TRS_ROC], TrsExactSumValue(&here[TRS_FP]) * (before + 0.5 * tp_here));
    tp = TrsExactSumValue(&up[TRS_TP]);
    fp = TrsExactSumValue(&up[TRS_FP]);
    if (tp_here > 0.0) TrsExactSumAdd(&areas[TRS_PR], tp_here * tp / (tp + fp));
  }
}

/* Like sum_curves(). */
static PetscErrorCode sum_curves_exactly(MPI_Comm comm, int64_t n, const TrsAucRecord *records,
                                         TrsCurve *total)
{
  TrsExactSum here[TRS_N_CURVE] = {{0}}, up[TRS_N_CURVE] = {{0}}, sums[TRS_N_CURVE], *all;
  int size, rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(PetscMalloc1((size_t)size * TRS_N_CURVE, &all));
  for (int64_t i = 0; i < n; i++) add_record(here, &records[i]);
  TrsExactSumAdd(&here[TRS_N], (double)n);
  PetscCallMPI(MPI_Allgather(here, TRS_N_CURVE * TRS_EXACT_INTS, MPI_INT64_T, all,
                             TRS_N_CURVE * TRS_EXACT_INTS, MPI_INT64_T, comm));
  for (int i = 0; i < rank * TRS_N_CURVE; i++) TrsExactSumMerge(&up[i % TRS_N_CURVE], &all[i]);
  PetscCall(PetscFree(all));
  add_areas_exactly(n, records, (PetscBool)(TrsExactSumValue(&up[TRS_N]) == 0.0), up, here);
  PetscCall(TrsExactSumsReduce(comm, TRS_N_CURVE, here, sums));
  *total = (TrsCurve){.tp = TrsExactSumValue(&sums[TRS_TP]),
                      .fp = TrsExactSumValue(&sums[TRS_FP]),
                      .roc = TrsExactSumValue(&sums[TRS_ROC]),
                      .pr = {TrsExactSumValue(&sums[TRS_PR])}};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAucScratchReserve(TrsAucScratch *scratch, int64_t n)
{
  const int64_t bytes = PetscMax(n, 1) * (int64_t)sizeof(TrsAucRecord);

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&scratch->sorted, bytes, PETSC_FALSE));
  PetscCall(TrsBufferReserve(&scratch->mine, bytes + bytes / 2, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAucScratchFree(TrsAucScratch *scratch)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&scratch->sorted));
  PetscCall(TrsBufferFree(&scratch->mine));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gather the records in this rank's range of predictions, with room to sort them. */
static PetscErrorCode gather_records(MPI_Comm comm, int64_t n, const TrsAucRecord *records,
                                     TrsAucScratch *scratch, int64_t *n_mine)
{
  int64_t *displs;
  int *owner, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PetscMalloc2(N_BINS, &owner, (size_t)size + 1, &displs));
  PetscCall(TrsBufferReserve(&scratch->sorted, PetscMax(n, 1) * (int64_t)sizeof(TrsAucRecord), PETSC_FALSE));
  PetscCall(assign_bins(comm, n, records, owner));
  PetscCall(sort_by_owner(size, n, records, owner, scratch->sorted.data, displs));
  PetscCall(
      TrsRecordExchange(comm, sizeof(TrsAucRecord), scratch->sorted.data, displs, n_mine, &scratch->mine));
  PetscCall(PetscFree2(owner, displs));
  PetscCall(
      TrsBufferReserve(&scratch->sorted, PetscMax(*n_mine, 1) * (int64_t)sizeof(TrsAucRecord), PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAuc(MPI_Comm comm, int64_t n, const TrsAucRecord *records, PetscBool exact,
                      TrsAucScratch *scratch, double *auc, double *auprc)
{
  const TrsAucRecord *mine;
  TrsCurve total = {0};
  int64_t n_mine = 0;

  PetscFunctionBegin;
  PetscCall(gather_records(comm, n, records, scratch, &n_mine));
  mine = sort_records(n_mine, scratch->mine.data, scratch->sorted.data);
  PetscCall(exact ? sum_curves_exactly(comm, n_mine, mine, &total) : sum_curves(comm, n_mine, mine, &total));
  *auc = total.tp * total.fp > 0.0 ? total.roc / (total.tp * total.fp) : 0.5;
  *auprc = total.tp > 0.0 ? (total.pr[0] + (total.pr[1] + total.pr[2])) / total.tp : 0.0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
