/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Variable batch per feature, made from an ordinary batch: samples that have equal bags of a feature
  share one bag.

  No function here waits for a device. The numbers of bags and ids that are left reach the host with
  the counts of the exchange (TrsKjt.limits_pending).

  Source: TorchRec KeyedJaggedTensor with stride_per_key_per_rank and inverse_indices
*/
#pragma once

#include "sparse/kjt.h"

typedef struct {
  /*
    each feature's distinct bags, in the order in which samples first have them; views of sample and
    n
  */
  TrsBagLists lists;
  TrsDeviceBuffer sample, n; /* memory of lists */
  TrsDeviceBuffer limits;    /* scratch of TrsUniqueBagsTake() */
} TrsUniqueBags;

PetscErrorCode TrsUniqueBagsFree(const TrsDeviceOps *device, TrsUniqueBags *bags);

/*
  TrsUniqueBagsFind - Find the distinct bags of some features of a batch. Two bags are equal if
  their ids (and weights, bit for bit) are equal, in equal order.

  Not collective. Time and memory grow with the ids and with n_features * batch.

  In:    batch    offsets filled
         feature  host [n_features]
  InOut: bags     lists, one a feature; valid until the next call
         inverse  int64 [n_features][batch] the place of each sample's bag in its feature's list
*/
PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, const TrsKjt *batch, int n_features,
                                 const int *feature, TrsUniqueBags *bags, TrsDeviceBuffer *inverse);

/*
  TrsUniqueBagsTake - Fill place j of out with the bags of list[j], taken from bag block block[j] of
  `from`.

  Not collective.

  In:    lists        of TrsUniqueBagsFind(); without samples the first bags of a bag block are
                      taken
         block, list  host [n_out]
         n_values     no fewer ids than out will have
  InOut: limits       pinned host memory for out's strides and id_begin (limits_pending if the
                      stream must be waited for). NULL: out is an ordinary batch, where empty bags
                      follow those of a list
         out          offsets filled; grows as needed
*/
PetscErrorCode TrsUniqueBagsTake(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, TrsUniqueBags *bags, const TrsBagLists *lists,
                                 const TrsKjt *from, int n_out, const int *block, const int *list,
                                 int64_t n_values, TrsPinnedBuffer *limits, TrsKjt *out);
