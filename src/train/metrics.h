/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics of predictions over all ranks: normalised entropy, AUC, AUPRC, accuracy, calibration, CTR, MSE, MAE, loss.

  Samples are added rank by rank, sums are in double; AUC and AUPRC keep every (prediction, label, weight) and are exact: equal predictions are one
  point of the curve. Results are the same bits for any number of threads.
  Source: torchrec.metrics (ne, auc, auprc, accuracy, calibration, ctr, mse, mae); rules A19, A22
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct TrsMetricsImpl *TrsMetrics;

typedef struct {
  int64_t n_samples;
  double loss;        /* weighted mean of the loss sums given */
  double ne;          /* cross entropy over the entropy of the mean label */
  double auc, auprc;  /* 0.5 and 0 when a class is missing; NaN when curves are off */
  double accuracy;    /* share of (p >= 0.5) == label */
  double calibration; /* mean prediction over mean label; 0 without positives */
  double ctr;         /* mean label */
  double mse, rmse, mae;
} TrsMetricValues;

/* curves: keep all predictions for AUC and AUPRC. */
PetscErrorCode TrsMetricsCreate(MPI_Comm comm, PetscBool curves, TrsMetrics *metrics);

/*
  Add n samples of this rank. Not collective.

  In:     predictions, labels  host [n]
          weights              host [n] or NULL (all 1)
          loss_sum             their loss, summed
  Errors: MEMORY
*/
PetscErrorCode TrsMetricsAdd(TrsMetrics metrics, int64_t n, const float *predictions, const float *labels,
                             const float *weights, double loss_sum);

/* The metrics of all samples added on all ranks, on every rank the same. Collective on comm. */
PetscErrorCode TrsMetricsCompute(TrsMetrics metrics, TrsMetricValues *values);

/* Forget all samples. Not collective. */
PetscErrorCode TrsMetricsReset(TrsMetrics metrics);

PetscErrorCode TrsMetricsDestroy(TrsMetrics *metrics);
