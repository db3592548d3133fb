/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics of predictions over all ranks: normalised entropy, AUC, AUPRC, accuracy, calibration, CTR,
  MSE, MAE, loss.

  Samples are added on each rank. Sums are in double, and the sum of samples' weights is exact
  (data/weight_sum.h). With curves every (prediction, label, weight) is kept, and AUC and AUPRC are
  exact: equal predictions count half in AUC and are one point on AUPRC's curve. Without curves
  AUPRC is computed over 1000 bins of the prediction, as TorchRec's lifetime value. Nothing depends
  on the number of threads. If the kind asks for exact sums, nothing depends on the number of ranks
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

/* Something that the samples lack, so that some of their metrics mean nothing. */
typedef enum { TRS_LACK_NOTHING, TRS_LACK_CLASS, TRS_LACK_WEIGHT } TrsMetricLack;

/* If no sample has a weight, all values are NaN. */
typedef struct {
  int64_t n_samples;
  TrsMetricLack lack; /* of labels that are probabilities: all are 0, or all are 1 */
  double loss;        /* weighted mean of the loss sums given */
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
  Set to NaN the values that mean nothing: with one class NE, AUC and AUPRC, and without positives
  the calibration. Files keep TorchRec's values of these. Code that compares or prints metrics
  needs this.
*/
void TrsMetricsKeepMeasured(TrsMetricValues *values);

/* The kind of the samples' labels, on which the metrics depend; zeros: probabilities. */
typedef struct {
  TrsLabelKind labels;
  TrsLossKind loss;
  double huber_delta;
  PetscBool exact; /* sums whose bits do not depend on the ranks and the order of the samples */
} TrsMetricKind;

/* curves: keep all predictions, for AUC. Collective on comm (duplicated). */
PetscErrorCode TrsMetricsCreate(MPI_Comm comm, const TrsMetricKind *kind, PetscBool curves,
                                TrsMetrics *metrics);

/*
  Add n samples of this rank. Not collective.

  In:     predictions, labels  host [n]: probabilities and labels in [0, 1], numbers, or classes as
                               in train/metrics/metric_sums.h
          weights              host [n] or NULL (all 1), the same choice in all calls
  Errors: MEMORY
*/
PetscErrorCode TrsMetricsAdd(TrsMetrics metrics, int64_t n, const float *predictions, const float *labels,
                             const float *weights);

/*
  Add n losses, each the sum of some samples' weighted losses on any rank. Loss i is losses[i *
  stride], host. With exact sums the bits depend on how losses were put together before. Not
  collective.
*/
void TrsMetricsAddLosses(TrsMetrics metrics, int64_t n, const double *losses, int64_t stride);

/*
  Compute the metrics of all samples added on all ranks, the same on every rank. Collective on comm.
*/
PetscErrorCode TrsMetricsCompute(TrsMetrics metrics, TrsMetricValues *values);

/* Collective on comm. */
PetscErrorCode TrsMetricsDestroy(TrsMetrics *metrics);
