/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exact areas under the ROC and the precision-recall curve over all ranks. Internal to train/;
  users take metrics.h.
*/
#pragma once

#include "core/buffer.h"
#include "core/error.h"

#include <stdint.h>

typedef struct {
  float prediction, label, weight;
} TrsAucRecord;

/* Memory that grows as needed and is used again. It must be zeroed before the first use. */
typedef struct {
  TrsBuffer sorted, mine;
} TrsAucScratch;
/*
  Make room for n records of a rank, and about as many for the curve. The memory grows if
  predictions are very unevenly spread.
*/
PetscErrorCode TrsAucScratchReserve(TrsAucScratch *scratch, int64_t n);
PetscErrorCode TrsAucScratchFree(TrsAucScratch *scratch);

/*
  TrsAuc - The areas under true over false positives (ROC) and under precision over recall.

  Collective on comm. The points follow each other in the order of falling predictions. Records
  travel to the rank that owns their range of predictions, so no rank holds them all (unless all are
  equal).

  In:     records  [n] of this rank, in any order
  Out:    auc      the same on all ranks; 0.5 if a class is missing. Equal predictions are one point
                   of the curve, so ties count half. As in TorchRec the curve begins at its first
                   sample and not at the origin. This makes a difference only if that sample's label
                   is neither 0 nor 1
          auprc    rectangles from one distinct prediction to the next; 1 without negatives, 0
                   without positives, as TorchRec's window value
  Errors: MEMORY
  Source: torchrec.metrics.auc, auprc (compute_auprc), which is scikit-learn's
          average_precision_score; Mann-Whitney

  For labels 0 and 1 without weights, the bits of both areas are the same for any number of ranks.
*/
PetscErrorCode TrsAuc(MPI_Comm comm, int64_t n, const TrsAucRecord *records, TrsAucScratch *scratch,
                      double *auc, double *auprc);
