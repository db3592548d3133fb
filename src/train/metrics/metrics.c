/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/metrics.h"

#include "core/buffer.h"
#include "data/weight_sum.h"
#include "train/metrics/metric_sums.h"

#include <math.h>

/* The values that are summed over ranks. All fields are doubles. */
typedef struct {
  TrsMetricSums metrics;
  double weight_digits[TRS_WEIGHT_DIGITS]; /* for samples with weights: data/weight_sum.h */
} TrsSums;

struct TrsMetricsImpl {
  MPI_Comm comm;
  TrsMetricKind kind;
  PetscBool curves;
  TrsSums sums; /* this rank's sums */
  /*
    This rank's exact sums, used instead of `sums`, and the sums over all ranks. NULL if not wanted.
  */
  TrsExactMetricSums *exact, *exact_total;
  TrsBuffer records; /* TrsAucRecord [n_records]; without curves only those of the last call */
  int64_t n_records;
  TrsAucScratch scratch;
};

PetscErrorCode TrsMetricsCreate(MPI_Comm comm, const TrsMetricKind *kind, PetscBool curves,
                                TrsMetrics *metrics)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(metrics));
  PetscCallMPI(MPI_Comm_dup(comm, &(*metrics)->comm));
  (*metrics)->kind = *kind;
  (*metrics)->curves = (PetscBool)(curves && kind->labels == TRS_LABEL_PROBABILITY);
  if (kind->exact) PetscCall(PetscCalloc2(1, &(*metrics)->exact, 1, &(*metrics)->exact_total));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMetricsAdd(TrsMetrics metrics, int64_t n, const float *predictions, const float *labels,
                             const float *weights)
{
  const int64_t kept = metrics->curves ? metrics->n_records : 0;
  TrsAucRecord *records;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&metrics->records, (kept + n) * (int64_t)sizeof(TrsAucRecord), PETSC_TRUE));
  records = (TrsAucRecord *)metrics->records.data + kept;
  for (int64_t i = 0; i < n; i++)
    records[i] = (TrsAucRecord){predictions[i], labels[i], weights ? weights[i] : 1.0f};
  if (metrics->exact)
    TrsExactMetricSumsAdd(&metrics->kind, metrics->exact, n, records);
  else
    TrsMetricSumsAdd(&metrics->kind, &metrics->sums.metrics, n, records);
  if (weights) TrsWeightSumAdd(metrics->sums.weight_digits, n, weights);
  metrics->n_records = kept + n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMetricsAddLosses(TrsMetrics metrics, int64_t n, const double *losses, int64_t stride)
{
  for (int64_t i = 0; i < n; i++)
    if (metrics->exact)
      TrsExactSumAdd(&metrics->exact->sum[TRS_SUM_LOSS], losses[i * stride]);
    else
      metrics->sums.metrics.sum[TRS_SUM_LOSS] += losses[i * stride];
}

PetscErrorCode TrsMetricsCompute(TrsMetrics metrics, TrsMetricValues *values)
{
  const int n = (int)(sizeof(TrsSums) / sizeof(double));
  double weight;
  TrsSums total;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(&metrics->sums, &total, n, MPI_DOUBLE, MPI_SUM, metrics->comm));
  weight = TrsWeightSumTotal(total.weight_digits);
  if (metrics->exact) {
    PetscCall(TrsExactMetricSumsReduce(metrics->comm, metrics->exact, metrics->exact_total));
    TrsExactMetricSumsRound(metrics->exact_total, &total.metrics);
  }
  /* Without weights the sum is the number of samples. */
  if (weight != 0.0) total.metrics.sum[TRS_SUM_WEIGHTS] = weight;
  TrsMetricSumsValues(&metrics->kind, &total.metrics, values);
  if (metrics->curves && values->lack != TRS_LACK_WEIGHT)
    PetscCall(TrsAuc(metrics->comm, metrics->n_records, metrics->records.data, metrics->kind.exact,
                     &metrics->scratch, &values->auc, &values->auprc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMetricsKeepMeasured(TrsMetricValues *values)
{
  if (values->lack != TRS_LACK_CLASS) return;
  values->ne = values->auc = values->auprc = (double)NAN;
  if (!(values->ctr > 0.0)) values->calibration = (double)NAN;
}

PetscErrorCode TrsMetricsDestroy(TrsMetrics *metrics)
{
  PetscFunctionBegin;
  if (!*metrics) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_free(&(*metrics)->comm));
  PetscCall(TrsBufferFree(&(*metrics)->records));
  PetscCall(TrsAucScratchFree(&(*metrics)->scratch));
  PetscCall(PetscFree2((*metrics)->exact, (*metrics)->exact_total));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
