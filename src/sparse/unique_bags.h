/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Variable batch per feature from an ordinary batch: samples that have the same bag of a feature share one. Source: TorchRec
  KeyedJaggedTensor with stride_per_key_per_rank and inverse_indices.
*/
#pragma once

#include "sparse/kjt.h"

typedef struct {
  TrsKjt kjt;              /* each feature's distinct bags, in the order in which samples first have them */
  int64_t *strides;        /* [n_features] how many */
  TrsDeviceBuffer inverse; /* int64 [n_features][batch] the bag of every sample */
  TrsBuffer table, beginning; /* scratch */
} TrsUniqueBags;

PetscErrorCode TrsUniqueBagsCreate(int n_features, TrsUniqueBags *bags);
PetscErrorCode TrsUniqueBagsDestroy(const TrsDeviceOps *device, TrsUniqueBags *bags);

/*
  TrsUniqueBagsFind - Distinct bags of a batch: equal ids (and weights, bit for bit) in equal order.

  Not collective. Time and memory grow with the ids. In: batch on a device whose memory the host reads, offsets filled
  Errors: UNAVAILABLE on another device
*/
PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 const TrsKjt *batch, TrsUniqueBags *bags);
