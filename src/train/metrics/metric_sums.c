/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/metric_sums.h"

#include <math.h>
#include <string.h>

/* In logarithms, predictions and the mean label are clamped to [EPS, 1 - EPS]. */
#define EPS 1e-12

static double clamped(double p)
{
  return fmin(fmax(p, EPS), 1.0 - EPS);
}

static int bin_of(float p)
{
  const float x = p * (float)TRS_METRIC_BINS; /* in fp32, as in TorchRec */

  return x >= (float)TRS_METRIC_BINS ? TRS_METRIC_BINS - 1 : x > 0.0f ? (int)x : 0;
}

/*
  A sample's cross entropy. Hard labels of weight 1 multiply into `product` (kept above 1e-300). The
  caller subtracts the logarithm of `product`.
*/
static double cross_entropy(double in_log, double y, double w, double *product)
{
  double taken;

  if (w != 1.0 || (y != 0.0 && y != 1.0)) return -w * (y * log(in_log) + (1.0 - y) * log(1.0 - in_log));
  *product *= y == 1.0 ? in_log : 1.0 - in_log;
  if (*product > 1e-288) return 0.0;
  taken = -log(*product);
  *product = 1.0;
  return taken;
}

/*
  One logarithm covers about 20 samples, because the probabilities of hard labels are multiplied
  first.
*/
static void add_probabilities(TrsMetricSums *sums, int64_t n, const TrsAucRecord *records)
{
  double product = 1.0;

  for (int64_t i = 0; i < n; i++) {
    const float prediction = records[i].prediction;
    const double p = (double)prediction, y = (double)records[i].label, w = (double)records[i].weight;
    const double error = p - y;
    const int bin = bin_of(prediction);

    sums->sum[TRS_SUM_WEIGHTS] += w;
    sums->sum[TRS_SUM_CROSS_ENTROPY] += cross_entropy(clamped(p), y, w, &product);
    sums->sum[TRS_SUM_POSITIVE] += w * y;
    sums->sum[TRS_SUM_NEGATIVE] += w * (1.0 - y);
    sums->sum[TRS_SUM_PREDICTION] += w * p;
    sums->sum[TRS_SUM_CORRECT] += w * ((p >= 0.5 ? 1.0 : 0.0) == y ? 1.0 : 0.0);
    sums->sum[TRS_SUM_SQUARED_ERROR] += w * error * error;
    sums->sum[TRS_SUM_ABSOLUTE_ERROR] += w * fabs(error);
    sums->positive[bin] += w * y;
    sums->negative[bin] += w * (1.0 - y);
  }
  sums->sum[TRS_SUM_CROSS_ENTROPY] -= log(product);
  sums->sum[TRS_SUM_SAMPLES] += (double)n;
}

static void add_numbers(const TrsMetricKind *kind, TrsMetricSums *sums, int64_t n,
                        const TrsAucRecord *records)
{
  for (int64_t i = 0; i < n; i++) {
    const double p = (double)records[i].prediction, y = (double)records[i].label;
    const double w = (double)records[i].weight, error = fabs(p - y), delta = kind->huber_delta;
    const double huber = error < delta ? 0.5 * error * error : delta * (error - 0.5 * delta);

    sums->sum[TRS_SUM_WEIGHTS] += w;
    sums->sum[TRS_SUM_CROSS_ENTROPY] += w * (kind->loss == TRS_LOSS_HUBER ? huber : error * error);
    sums->sum[TRS_SUM_POSITIVE] += w * y;
    sums->sum[TRS_SUM_PREDICTION] += w * p;
    sums->sum[TRS_SUM_SQUARED_ERROR] += w * error * error;
    sums->sum[TRS_SUM_ABSOLUTE_ERROR] += w * error;
  }
  sums->sum[TRS_SUM_SAMPLES] += (double)n;
}

static void add_classes(TrsMetricSums *sums, int64_t n, const TrsAucRecord *records)
{
  for (int64_t i = 0; i < n; i++) {
    const double w = (double)records[i].weight;

    sums->sum[TRS_SUM_WEIGHTS] += w;
    sums->sum[TRS_SUM_CROSS_ENTROPY] -= w * log(clamped((double)records[i].prediction));
    sums->sum[TRS_SUM_CORRECT] += w * (double)records[i].label;
  }
  sums->sum[TRS_SUM_SAMPLES] += (double)n;
}

void TrsMetricSumsAdd(const TrsMetricKind *kind, TrsMetricSums *sums, int64_t n, const TrsAucRecord *records)
{
  if (kind->labels == TRS_LABEL_PROBABILITY) add_probabilities(sums, n, records);
  if (kind->labels == TRS_LABEL_NUMBER) add_numbers(kind, sums, n, records);
  if (kind->labels == TRS_LABEL_CLASS) add_classes(sums, n, records);
}

void TrsExactMetricSumsAdd(const TrsMetricKind *kind, TrsExactMetricSums *sums, int64_t n,
                           const TrsAucRecord *records)
{
  TrsExactSum *positive = sums->sum + TRS_N_SUMS, *negative = positive + TRS_METRIC_BINS;
  TrsMetricSums one = {0}; /* the sums of one sample */

  for (int64_t i = 0; i < n; i++) {
    const int bin = bin_of(records[i].prediction);

    TrsMetricSumsAdd(kind, &one, 1, &records[i]);
    for (int k = 0; k < TRS_N_SUMS; k++) TrsExactSumAdd(&sums->sum[k], one.sum[k]);
    TrsExactSumAdd(&positive[bin], one.positive[bin]);
    TrsExactSumAdd(&negative[bin], one.negative[bin]);
    memset(one.sum, 0, sizeof(one.sum));
    one.positive[bin] = one.negative[bin] = 0.0;
  }
}

PetscErrorCode TrsExactMetricSumsReduce(MPI_Comm comm, const TrsExactMetricSums *sums,
                                        TrsExactMetricSums *total)
{
  PetscFunctionBegin;
  PetscCall(TrsExactSumsReduce(comm, TRS_METRIC_SUM_DOUBLES, sums->sum, total->sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsExactMetricSumsRound(const TrsExactMetricSums *sums, TrsMetricSums *rounded)
{
  for (int k = 0; k < TRS_N_SUMS; k++) rounded->sum[k] = TrsExactSumValue(&sums->sum[k]);
  for (int b = 0; b < TRS_METRIC_BINS; b++) {
    rounded->positive[b] = TrsExactSumValue(&sums->sum[TRS_N_SUMS + b]);
    rounded->negative[b] = TrsExactSumValue(&sums->sum[TRS_N_SUMS + TRS_METRIC_BINS + b]);
  }
}

/* Numbers have no probabilities, and classes have no means and errors. */
static void leave_out(const TrsMetricKind *kind, TrsMetricValues *values)
{
  const double none = (double)NAN;

  if (kind->labels == TRS_LABEL_PROBABILITY) return;
  values->ne = values->auprc = none;
  if (kind->labels == TRS_LABEL_NUMBER) values->accuracy = none;
  if (kind->labels == TRS_LABEL_CLASS)
    values->calibration = values->ctr = values->prediction = values->mse = values->rmse = values->mae = none;
}

static PetscBool has_one_class(const TrsMetricSums *total)
{
  return (PetscBool)(total->sum[TRS_SUM_POSITIVE] == 0.0 || total->sum[TRS_SUM_NEGATIVE] == 0.0);
}

/*
  The area under precision over recall, as rectangles from bin to bin, starting with the highest
  predictions.
*/
static double precision_recall_area(const TrsMetricSums *total)
{
  const double all = total->sum[TRS_SUM_POSITIVE];
  double tp = 0.0, fp = 0.0, area = 0.0;

  if (all <= 0.0 || total->sum[TRS_SUM_NEGATIVE] <= 0.0) return 0.5;
  for (int b = TRS_METRIC_BINS - 1; b >= 0; b--) {
    tp += total->positive[b];
    fp += total->negative[b];
    if (total->positive[b] > 0.0) area += total->positive[b] / all * (tp / (tp + fp));
  }
  return area;
}

/* The values for samples without a weight: all are unknown. */
static TrsMetricValues no_values(int64_t n_samples)
{
  const double none = (double)NAN;

  return (TrsMetricValues){.n_samples = n_samples,
                           .lack = TRS_LACK_WEIGHT,
                           .loss = none,
                           .ne = none,
                           .auc = none,
                           .auprc = none,
                           .accuracy = none,
                           .calibration = none,
                           .ctr = none,
                           .prediction = none,
                           .mse = none,
                           .rmse = none,
                           .mae = none};
}

void TrsMetricSumsValues(const TrsMetricKind *kind, const TrsMetricSums *total, TrsMetricValues *values)
{
  const double w = total->sum[TRS_SUM_WEIGHTS], positive = total->sum[TRS_SUM_POSITIVE];
  const double mean = clamped(positive / w);
  const double of_mean = -(positive * log(mean) + total->sum[TRS_SUM_NEGATIVE] * log(1.0 - mean));

  if (w == 0.0) {
    *values = no_values((int64_t)total->sum[TRS_SUM_SAMPLES]);
    return;
  }
  *values = (TrsMetricValues){
      .n_samples = (int64_t)total->sum[TRS_SUM_SAMPLES],
      .lack = kind->labels == TRS_LABEL_PROBABILITY && has_one_class(total) ? TRS_LACK_CLASS
                                                                            : TRS_LACK_NOTHING,
      .loss = total->sum[TRS_SUM_LOSS] / w,
      .ne = total->sum[TRS_SUM_CROSS_ENTROPY] / of_mean,
      .auc = (double)NAN,
      .auprc = precision_recall_area(total),
      .accuracy = total->sum[TRS_SUM_CORRECT] / w,
      .calibration = positive > 0.0 ? total->sum[TRS_SUM_PREDICTION] / positive : 0.0,
      .ctr = positive / w,
      .prediction = total->sum[TRS_SUM_PREDICTION] / w,
      .mse = total->sum[TRS_SUM_SQUARED_ERROR] / w,
      .mae = total->sum[TRS_SUM_ABSOLUTE_ERROR] / w,
  };
  values->rmse = sqrt(values->mse);
  leave_out(kind, values);
}
