/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Early stopping: end a training when an evaluation metric has not become better for some evaluations; and which evaluation was the best.

  Plain data; every rank holds the same, because evaluations give every rank the same values. Nothing here is collective.
*/
#pragma once

#include "core/options.h"
#include "io/checkpoint.h"
#include "train/metrics.h"

enum { TRS_EARLY_STOPPING_NUMBERS = 5 }; /* what a checkpoint keeps */

typedef struct {
  PetscBool
      stops;  /* -early_stopping_metric was given; else the loss is watched for the best checkpoint alone */
  int metric; /* index into the option's choices */
  int64_t patience;
  double min_delta;
  PetscBool has_best;
  double best;
  int64_t best_step; /* updates done before the best evaluation */
  int64_t n_worse;   /* evaluations since then */
  double kept[TRS_EARLY_STOPPING_NUMBERS];
} TrsEarlyStopping;

extern const TrsOptionGroup trs_early_stopping_options;

/* Errors: OPTION for a patience or min_delta without a metric */
PetscErrorCode TrsEarlyStoppingFromOptions(TrsOptions options, TrsEarlyStopping *early);

/* An evaluation's values after `step` updates. Out: better  by more than min_delta than all before; the first one is. NaN never is */
PetscErrorCode TrsEarlyStoppingAdd(TrsEarlyStopping *early, int64_t step, const TrsMetricValues *values,
                                   PetscBool *better);

/* Has the patience run out? */
PetscBool TrsEarlyStoppingIsOver(const TrsEarlyStopping *early);

/* "eval/auc has not risen above 0.7123 (after 300 updates) by more than 0.001 in 3 evaluations" */
void TrsEarlyStoppingText(const TrsEarlyStopping *early, char *text, size_t size);

/* For a checkpoint; borrowed until the next call. Load takes it back (path: where it is from, for messages); *same false (and nothing taken) if it is of another metric. Errors: DATA */
TrsCheckpointNumbers TrsEarlyStoppingSave(TrsEarlyStopping *early);
PetscErrorCode TrsEarlyStoppingLoad(TrsEarlyStopping *early, const char *path,
                                    const TrsCheckpointNumbers *numbers, PetscBool *same);
