/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics of predictions over all ranks: normalised entropy, AUC, AUPRC, accuracy, calibration, CTR,
  MSE, MAE, loss.

  Samples are added on each rank. Sums are in double, and the sum of samples' weights is exact
  (data/weight_sum.h). With curves every (prediction, label, weight) is kept, and AUC and AUPRC are
  exact: equal predictions count half in AUC and are one point on AUPRC's curve. Without curves
  AUPRC is computed over 1000 bins of the prediction, like TorchRec's lifetime value. Nothing
  depends on the number of threads. With exact sums, the values do not depend on the number of ranks
  or the order of the samples either.

  Source: torchrec.metrics (ne, auc, auprc, accuracy, calibration, ctr, mse, mae); src/RULES.md,
          rules A19, A22
*/
#pragma once

#include "core/error.h"
#include "spec/vocabulary.h"
#include "train/metrics/group_metrics.h"

#include <stdint.h>

typedef struct TrsMetricsImpl *TrsMetrics;

/* Data that the samples lack. Some of their metrics are then meaningless. */
typedef enum { TRS_LACK_NOTHING, TRS_LACK_CLASS, TRS_LACK_WEIGHT } TrsMetricLack;

/* If no sample has a weight, all values are NaN. */
typedef struct {
  int64_t n_samples;
  TrsMetricLack lack; /* CLASS: all labels (probabilities) are 0, or all are 1 */
  double loss;        /* weighted mean of the given loss sums */
  double ne;          /* cross entropy divided by the entropy of the mean label */
  double auc;         /* 0.5 if a class is missing; NaN without curves */
  double auprc;       /* 1 without negatives, 0 without positives; without curves both are 0.5 */
  double accuracy;    /* share of (p >= 0.5) == label */
  double calibration; /* mean prediction divided by the mean label; 0 without positives */
  double ctr;         /* mean label */
  double prediction;  /* mean prediction */
  double mse, rmse, mae;
  TrsGroupValues groups; /* for an evaluation and a window; no groups without -metrics_group */
} TrsMetricValues;

/*
  Set meaningless values to NaN: with one class NE, AUC and AUPRC, and without positives the
  calibration. Files keep TorchRec's values. Code that compares or prints metrics must call this.
*/
void TrsMetricsKeepMeasured(TrsMetricValues *values);

/* The kind of the samples' labels, on which the metrics depend. Zeros mean probabilities. */
typedef struct {
  TrsLabelKind labels;
  TrsLossKind loss;
  double huber_delta;
  PetscBool exact; /* use sums whose bits do not depend on the ranks and the order of the samples */
} TrsMetricKind;

/* curves: keep all predictions, for AUC. Collective on comm (duplicated). */
PetscErrorCode TrsMetricsCreate(MPI_Comm comm, const TrsMetricKind *kind, PetscBool curves,
                                TrsMetrics *metrics);

/*
  Add n samples of this rank. Not collective.

  In:     predictions, labels  host [n]: probabilities and labels in [0, 1], numbers, or classes as
                               in train/metrics/metric_sums.h
          weights              host [n] or NULL (all 1); all calls must make the same choice
  Errors: MEMORY
*/
PetscErrorCode TrsMetricsAdd(TrsMetrics metrics, int64_t n, const float *predictions, const float *labels,
                             const float *weights);

/*
  Add n losses, each a sum of weighted losses over some samples on any rank. Loss i is losses[i *
  stride], host. With exact sums the bits still depend on the grouping of samples into losses. Not
  collective.
*/
void TrsMetricsAddLosses(TrsMetrics metrics, int64_t n, const double *losses, int64_t stride);

/*
  Compute the metrics of all samples added on all ranks, the same on every rank. Collective on comm.
*/
PetscErrorCode TrsMetricsCompute(TrsMetrics metrics, TrsMetricValues *values);

/* Collective on comm. */
PetscErrorCode TrsMetricsDestroy(TrsMetrics *metrics);
