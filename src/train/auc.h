/* SPDX-License-Identifier: BSD-3-Clause */
/* Exact area under the ROC curve over all ranks. Internal to train/; users take metrics.h. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  float prediction, label, weight;
} TrsAucRecord;

/*
  TrsAuc - Area under the curve of true over false positives, in the order of falling predictions.

  Collective on comm. Records travel to the rank that owns their range of predictions, so no rank holds them all (unless all are equal).

  In:     records  [n] of this rank
  Out:    auc      the same on all ranks; 0.5 when a class is missing. Equal predictions are one point of the curve: ties count half. As in TorchRec
                   the curve begins at its first sample, not at the origin: it shows only when that sample's label is neither 0 nor 1.
  Errors: MEMORY
  Source: torchrec.metrics.auc; Mann-Whitney
*/
PetscErrorCode TrsAuc(MPI_Comm comm, int64_t n, const TrsAucRecord *records, double *auc);
