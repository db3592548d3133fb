/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics.h"

#include "core/buffer.h"
#include "train/auc.h"

#include <math.h>

#define EPS    1e-12 /* predictions and mean label are clamped to [EPS, 1 - EPS] in logarithms */
#define N_BINS 1000  /* of the precision-recall curve */

enum {
  TRS_SUM_SAMPLES,
  TRS_SUM_LOSS,
  TRS_SUM_WEIGHTS,
  TRS_SUM_CROSS_ENTROPY,
  TRS_SUM_POSITIVE, /* w y */
  TRS_SUM_NEGATIVE, /* w (1 - y) */
  TRS_SUM_PREDICTION,
  TRS_SUM_CORRECT,
  TRS_SUM_SQUARED_ERROR,
  TRS_SUM_ABSOLUTE_ERROR,
  TRS_N_SUMS
};

typedef struct {
  double sum[TRS_N_SUMS];
  double positive[N_BINS], negative[N_BINS]; /* by bin of the prediction */
} TrsMetricSums;

struct TrsMetricsImpl {
  MPI_Comm comm;
  PetscBool curves;
  TrsMetricSums sums; /* of this rank */
  TrsBuffer records;  /* TrsAucRecord [n_records] */
  int64_t n_records;
};

PetscErrorCode TrsMetricsCreate(MPI_Comm comm, PetscBool curves, TrsMetrics *metrics)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(metrics));
  PetscCallMPI(MPI_Comm_dup(comm, &(*metrics)->comm));
  (*metrics)->curves = curves;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double clamped(double p)
{
  return fmin(fmax(p, EPS), 1.0 - EPS);
}

static int bin_of(float p)
{
  const float x = p * (float)N_BINS; /* in fp32, as TorchRec */

  return x >= (float)N_BINS ? N_BINS - 1 : x > 0.0f ? (int)x : 0;
}

static void add_sample(TrsMetricSums *sums, float prediction, float label, double w)
{
  const double p = (double)prediction, y = (double)label, error = p - y;
  const double in_log = clamped(p);

  sums->sum[TRS_SUM_WEIGHTS] += w;
  sums->sum[TRS_SUM_CROSS_ENTROPY] -= w * (y * log(in_log) + (1.0 - y) * log(1.0 - in_log));
  sums->sum[TRS_SUM_POSITIVE] += w * y;
  sums->sum[TRS_SUM_NEGATIVE] += w * (1.0 - y);
  sums->sum[TRS_SUM_PREDICTION] += w * p;
  sums->sum[TRS_SUM_CORRECT] += w * ((p >= 0.5 ? 1.0 : 0.0) == y ? 1.0 : 0.0);
  sums->sum[TRS_SUM_SQUARED_ERROR] += w * error * error;
  sums->sum[TRS_SUM_ABSOLUTE_ERROR] += w * fabs(error);
  sums->positive[bin_of(prediction)] += w * y;
  sums->negative[bin_of(prediction)] += w * (1.0 - y);
}

PetscErrorCode TrsMetricsAdd(TrsMetrics metrics, int64_t n, const float *predictions, const float *labels,
                             const float *weights, double loss_sum)
{
  TrsAucRecord *records = NULL;

  PetscFunctionBegin;
  if (metrics->curves) {
    PetscCall(TrsBufferReserve(&metrics->records, (metrics->n_records + n) * (int64_t)sizeof(TrsAucRecord),
                               PETSC_TRUE));
    records = (TrsAucRecord *)metrics->records.data + metrics->n_records;
    metrics->n_records += n;
  }
  metrics->sums.sum[TRS_SUM_SAMPLES] += (double)n;
  metrics->sums.sum[TRS_SUM_LOSS] += loss_sum;
  for (int64_t i = 0; i < n; i++) {
    const float w = weights ? weights[i] : 1.0f;

    add_sample(&metrics->sums, predictions[i], labels[i], (double)w);
    if (records) records[i] = (TrsAucRecord){predictions[i], labels[i], w};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Area under precision over recall, as rectangles from bin to bin, from the highest predictions on. */
static double precision_recall_area(const TrsMetricSums *total)
{
  const double all = total->sum[TRS_SUM_POSITIVE];
  double tp = 0.0, fp = 0.0, area = 0.0;

  if (all <= 0.0 || total->sum[TRS_SUM_NEGATIVE] <= 0.0) return 0.5;
  for (int b = N_BINS - 1; b >= 0; b--) {
    tp += total->positive[b];
    fp += total->negative[b];
    if (total->positive[b] > 0.0) area += total->positive[b] / all * (tp / (tp + fp));
  }
  return area;
}

PetscErrorCode TrsMetricsCompute(TrsMetrics metrics, TrsMetricValues *values)
{
  const int n_doubles = (int)(sizeof(TrsMetricSums) / sizeof(double));
  double w, positive, negative, mean;
  TrsMetricSums *total;

  PetscFunctionBegin;
  PetscCall(PetscNew(&total));
  PetscCallMPI(MPI_Allreduce(&metrics->sums, total, n_doubles, MPI_DOUBLE, MPI_SUM, metrics->comm));
  w = total->sum[TRS_SUM_WEIGHTS];
  positive = total->sum[TRS_SUM_POSITIVE];
  negative = total->sum[TRS_SUM_NEGATIVE];
  mean = clamped(w > 0.0 ? positive / w : 0.0);
  *values = (TrsMetricValues){
      .n_samples = (int64_t)total->sum[TRS_SUM_SAMPLES],
      .loss = total->sum[TRS_SUM_LOSS] / fmax(total->sum[TRS_SUM_SAMPLES], 1.0),
      .ne = w > 0.0 ? total->sum[TRS_SUM_CROSS_ENTROPY] / -(positive * log(mean) + negative * log(1.0 - mean))
                    : 0.0,
      .auc = NAN,
      .auprc = precision_recall_area(total),
      .accuracy = w > 0.0 ? total->sum[TRS_SUM_CORRECT] / w : 0.0,
      .calibration = positive > 0.0 ? total->sum[TRS_SUM_PREDICTION] / positive : 0.0,
      .ctr = w > 0.0 ? positive / w : 0.0,
      .prediction = w > 0.0 ? total->sum[TRS_SUM_PREDICTION] / w : 0.0,
      .mse = w > 0.0 ? total->sum[TRS_SUM_SQUARED_ERROR] / w : 0.0,
      .mae = w > 0.0 ? total->sum[TRS_SUM_ABSOLUTE_ERROR] / w : 0.0,
  };
  values->rmse = sqrt(values->mse);
  if (metrics->curves)
    PetscCall(TrsAuc(metrics->comm, metrics->n_records, metrics->records.data, &values->auc));
  PetscCall(PetscFree(total));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMetricsReset(TrsMetrics metrics)
{
  PetscFunctionBegin;
  metrics->sums = (TrsMetricSums){0};
  metrics->n_records = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMetricsDestroy(TrsMetrics *metrics)
{
  PetscFunctionBegin;
  if (!*metrics) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_free(&(*metrics)->comm));
  PetscCall(TrsBufferFree(&(*metrics)->records));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
