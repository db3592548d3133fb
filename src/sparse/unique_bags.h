/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes a variable batch from an ordinary batch: samples with equal bags in a feature use one bag.

  No function here waits for a device. The host receives the new numbers of bags and ids together
  with the counts of the exchange (TrsKjt.limits_pending).

  Source: TorchRec KeyedJaggedTensor with stride_per_key_per_rank and inverse_indices
*/
#pragma once

#include "sparse/kjt.h"

typedef struct {
  /* each feature's distinct bags, in the order of their first occurrence; its arrays are
     `sample` and `n` */
  TrsBagLists lists;
  TrsDeviceBuffer sample, n; /* memory of `lists` */
  TrsDeviceBuffer limits;    /* scratch of TrsUniqueBagsTake() */
} TrsUniqueBags;

PetscErrorCode TrsUniqueBagsFree(const TrsDeviceOps *device, TrsUniqueBags *bags);

/*
  TrsUniqueBagsFind - Find the distinct bags of some features of a batch. Two bags are equal if they
    have the same ids in the same order, and weights that are equal bit for bit.

  Not collective. Time and memory grow with the ids and with n_features * batch.

  In:    batch    must have offsets
         feature  host [n_features] indices of the features
  InOut: bags     its lists are set, one per feature; valid until the next call
         inverse  int64 [n_features][batch] index of each sample's bag in its feature's list
*/
PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, const TrsKjt *batch, int n_features,
                                 const int *feature, TrsUniqueBags *bags, TrsDeviceBuffer *inverse);

/*
  Selects bags of a batch `from`. For j < n, it selects the bags in list[j] from bag block block[j].
*/
typedef struct {
  /* if its `sample` is NULL, the first bags of each bag block are selected */
  const TrsBagLists *lists;
  const TrsKjt *from;
  int n;
  const int *block, *list; /* host [n] */
  int64_t n_values;        /* upper bound on the number of ids */
} TrsTakenBags;

/*
  TrsUniqueBagsTake - Copy the bags that `taken` selects. Bag block j of `out` gets the bags of
    list[j].

  Not collective.

  InOut: limits  pinned host memory for the strides and id_begin of `out` (limits_pending is set if
                 the stream must be synchronised first). NULL: `out` is an ordinary batch, in which
                 each list is padded with empty bags
         out     grows as needed; its offsets are also computed
*/
PetscErrorCode TrsUniqueBagsTake(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, TrsUniqueBags *bags, const TrsTakenBags *taken,
                                 TrsPinnedBuffer *limits, TrsKjt *out);
