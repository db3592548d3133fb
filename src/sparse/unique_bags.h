/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Variable batch per feature, made from an ordinary batch: samples with equal bags in a feature
  share one bag.

  No function here waits for a device. The remaining numbers of bags and ids reach the host with the
  counts of the exchange (TrsKjt.limits_pending).

  Source: TorchRec KeyedJaggedTensor with stride_per_key_per_rank and inverse_indices
*/
#pragma once

#include "sparse/kjt.h"

typedef struct {
  /* each feature's distinct bags, in order of first occurrence; views of sample and n */
  TrsBagLists lists;
  TrsDeviceBuffer sample, n; /* memory of lists */
  TrsDeviceBuffer limits;    /* scratch of TrsUniqueBagsTake() */
} TrsUniqueBags;

PetscErrorCode TrsUniqueBagsFree(const TrsDeviceOps *device, TrsUniqueBags *bags);

/*
  TrsUniqueBagsFind - Find the distinct bags of some features of a batch. Two bags are equal if they
  have the same ids (and weights, bit for bit) in the same order.

  Not collective. Time and memory grow with the ids and with n_features * batch.

  In:    batch    offsets filled
         feature  host [n_features]
  InOut: bags     its lists are set, one per feature; valid until the next call
         inverse  int64 [n_features][batch] position of each sample's bag in its feature's list
*/
PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, const TrsKjt *batch, int n_features,
                                 const int *feature, TrsUniqueBags *bags, TrsDeviceBuffer *inverse);

/* For j < n: the bags of list[j] in bag block block[j] of `from`. */
typedef struct {
  const TrsBagLists *lists; /* if its sample is NULL, the first bags of each bag block */
  const TrsKjt *from;
  int n;
  const int *block, *list; /* host [n] */
  int64_t n_values;        /* upper bound on the number of ids */
} TrsTakenBags;

/*
  TrsUniqueBagsTake - Fill bag block j of out with the j-th of the taken lists of bags.

  Not collective.

  InOut: limits  pinned host memory for out's strides and id_begin (limits_pending is set if the
                 stream must be synchronised first). NULL: out is an ordinary batch, in which each
                 list is padded with empty bags
         out     offsets filled; grows as needed
*/
PetscErrorCode TrsUniqueBagsTake(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, TrsUniqueBags *bags, const TrsTakenBags *taken,
                                 TrsPinnedBuffer *limits, TrsKjt *out);
