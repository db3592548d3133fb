/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics of predictions within groups of samples (sessions, users), over all ranks: GAUC; NDCG,
  recall, hit rate and precision of the first K; and NE, MSE and MAE of a group. If there are few
  groups, they are segments, each with its own NE.

  A group's samples travel to the rank that owns the group, by a hash of its number, and are sorted
  there in an order that depends only on the samples. Sums over groups are exact
  (data/weight_sum.h). So values have the same bits for any number of ranks and any order of
  samples. Equal predictions count as the mean over all their orders. If a metric is undefined for a
  group, its mean leaves out the group, and the values say how many groups counted.

  Memory: 24 bytes per kept sample, and about three times as much while values are computed.

  Source: torchrec.metrics (gauc, ndcg, recall_session, precision_session, segmented_ne);
          scikit-learn's roc_auc_score and ndcg_score; src/RULES.md, section 18
*/
#pragma once

#include "core/options/options.h"

enum { TRS_GROUP_MAX_AT = 8, TRS_GROUP_MAX_SEGMENTS = 256 };

/* Values are NaN if no group counted. */
typedef struct {
  int64_t n_groups;    /* groups whose samples have weight; 0 without -metrics_group */
  int64_t n_positive;  /* groups with a positive: they count in ndcg, recall and hit_rate */
  int64_t n_both;      /* groups with both classes: they count in gauc and ne */
  double gauc;         /* mean of the groups' AUC */
  double ne, mse, mae; /* means of the groups' values */
  int n_at;
  int64_t at[TRS_GROUP_MAX_AT];                              /* K */
  double ndcg[TRS_GROUP_MAX_AT], hit_rate[TRS_GROUP_MAX_AT]; /* means over groups */
  /*
    For the first K of all groups together, as in TorchRec: their share of all positives, and the
    share of positives among them.
  */
  double recall[TRS_GROUP_MAX_AT], precision[TRS_GROUP_MAX_AT];
  int n_segments; /* 0 without -metrics_segments */
  /*
    NE of the samples in group 0, 1 ... as in a whole evaluation: with one class the mean label is
    clamped and NE is meaningless, without samples NE is NaN.
  */
  double segment_ne[TRS_GROUP_MAX_SEGMENTS];
  double segment_samples[TRS_GROUP_MAX_SEGMENTS]; /* number of samples */
  double segment_both[TRS_GROUP_MAX_SEGMENTS];    /* 1 with both classes, else 0 */
} TrsGroupValues;

typedef struct TrsGroupMetricsImpl *TrsGroupMetrics;

/*
  TrsGroupMetricsCreate - Create metrics of groups from -metrics_group, -metrics_at and
  -metrics_segments.

  Collective on comm (duplicated). Without -metrics_group *metrics is NULL. The other functions
  accept NULL and then do nothing.

  In:     window_samples  number of last samples, over all ranks, to keep; 0 keeps all
  Errors: OPTION, MEMORY
*/
PetscErrorCode TrsGroupMetricsCreate(MPI_Comm comm, TrsOptions options, int64_t window_samples,
                                     TrsGroupMetrics *metrics);

/*
  Add n samples of this rank: predictions, labels, weights (NULL: all 1) and groups, host [n]. Not
  collective. Errors: MEMORY.
*/
PetscErrorCode TrsGroupMetricsAdd(TrsGroupMetrics metrics, int64_t n, const float *predictions,
                                  const float *labels, const float *weights, const int64_t *group);

/*
  Drop all samples, and reserve memory for n samples in metrics without a window. Not collective.
  Errors: MEMORY.
*/
PetscErrorCode TrsGroupMetricsRestart(TrsGroupMetrics metrics, int64_t n);

/* Compute the values for the samples that all ranks keep, the same on each rank. Collective. */
PetscErrorCode TrsGroupMetricsCompute(TrsGroupMetrics metrics, TrsGroupValues *values);

/* Collective on comm. */
PetscErrorCode TrsGroupMetricsDestroy(TrsGroupMetrics *metrics);
