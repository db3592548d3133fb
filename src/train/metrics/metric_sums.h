/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The sums behind the metrics, for one rank or for all ranks (they add up). Internal to train/;
  users must include metrics.h or running_metrics.h.
*/
#pragma once

#include "train/metrics/auc.h"
#include "train/metrics/exact_sum.h"
#include "train/metrics/metrics.h"

#define TRS_METRIC_BINS 1000 /* bins of the precision-recall curve */

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
  double positive[TRS_METRIC_BINS], negative[TRS_METRIC_BINS]; /* per bin of the prediction */
} TrsMetricSums;
enum { TRS_METRIC_SUM_DOUBLES = TRS_N_SUMS + 2 * TRS_METRIC_BINS };

/*
  The sums of TrsMetricSums, with bits that do not depend on the order of the samples. Starts as
  zeros.
*/
typedef struct {
  TrsExactSum sum[TRS_METRIC_SUM_DOUBLES]; /* in the order of TrsMetricSums */
} TrsExactMetricSums;

/*
  Add samples to all sums except the loss, according to the task's kind of labels. For numbers, the
  loss is stored as the cross entropy. A class record has the probability of the sample's class, and
  as its label whether this class is the most probable one. Not collective.
*/
void TrsMetricSumsAdd(const TrsMetricKind *kind, TrsMetricSums *sums, int64_t n, const TrsAucRecord *records);

/*
  Like TrsMetricSumsAdd(). A sample's part of each sum is rounded separately, so cross entropy takes
  one logarithm per sample. Not collective.
*/
void TrsExactMetricSumsAdd(const TrsMetricKind *kind, TrsExactMetricSums *sums, int64_t n,
                           const TrsAucRecord *records);

/*
  Add the sums over all ranks, with the same result on every rank. Collective on comm. Errors:
  MEMORY
*/
PetscErrorCode TrsExactMetricSumsReduce(MPI_Comm comm, const TrsExactMetricSums *sums,
                                        TrsExactMetricSums *total);

/* Round the sums. Not collective. */
void TrsExactMetricSumsRound(const TrsExactMetricSums *sums, TrsMetricSums *rounded);

/*
  Compute the metrics from sums over all ranks. auc is NaN, because it needs the samples themselves.
  Metrics that the kind of labels does not have, and all metrics of samples without a weight, are
  NaN, too.
*/
void TrsMetricSumsValues(const TrsMetricKind *kind, const TrsMetricSums *total, TrsMetricValues *values);
