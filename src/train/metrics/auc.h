/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exact areas under the ROC curve and the precision-recall curve over all ranks. Internal to train/;
  users must include metrics.h.
*/
#pragma once

#include "core/buffer.h"
#include "core/error.h"

#include <stdint.h>

typedef struct {
  float prediction, label, weight;
} TrsAucRecord;

/* Memory that grows as needed and is reused. It must be zeroed before the first use. */
typedef struct {
  TrsBuffer sorted, mine;
} TrsAucScratch;
/*
  Reserve memory for n records of a rank, and about as many for the curve. The memory grows if
  predictions are very unevenly distributed.
*/
PetscErrorCode TrsAucScratchReserve(TrsAucScratch *scratch, int64_t n);
PetscErrorCode TrsAucScratchFree(TrsAucScratch *scratch);

/*
  TrsAuc - Compute the areas under true over false positives (ROC) and under precision over recall.

  Collective on comm. The points are in the order of decreasing predictions. Records travel to the
  rank that owns their range of predictions, so no rank holds all of them (unless all predictions
  are equal).

  In:     records  [n] this rank's records, in any order
  Out:    auc      the same on all ranks; 0.5 if a class is missing. Equal predictions are one point
                   of the curve, so ties count half. As in TorchRec the curve begins at its first
                   sample, not at the origin. This only matters if that sample's label is neither 0
                   nor 1
          auprc    rectangles from one distinct prediction to the next; 1 without negatives, 0
                   without positives, like TorchRec's window value
  Errors: MEMORY
  Source: torchrec.metrics.auc, auprc (compute_auprc), which is scikit-learn's
          average_precision_score; Mann-Whitney

  For labels 0 and 1 without weights, the bits of both areas are the same for any number of ranks.
  With `exact` they are for all labels and weights, at a price of some 100 ns for each sample.
*/
PetscErrorCode TrsAuc(MPI_Comm comm, int64_t n, const TrsAucRecord *records, PetscBool exact,
                      TrsAucScratch *scratch, double *auc, double *auprc);
