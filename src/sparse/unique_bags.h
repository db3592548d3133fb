/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Variable batch per feature from an ordinary batch: samples that have the same bag of a feature share one. Source: TorchRec
  KeyedJaggedTensor with stride_per_key_per_rank and inverse_indices.

  Nothing here waits for a device: how many bags and ids are left comes to the host with the counts of the exchange (TrsKjt.limits_pending).
*/
#pragma once

#include "sparse/kjt.h"

typedef struct {
  TrsBagLists
      lists; /* each feature's distinct bags, in the order in which samples first have them: views of */
  TrsDeviceBuffer sample, n; /* these */
  TrsDeviceBuffer limits;    /* scratch of TrsUniqueBagsTake() */
} TrsUniqueBags;

PetscErrorCode TrsUniqueBagsFree(const TrsDeviceOps *device, TrsUniqueBags *bags);

/*
  TrsUniqueBagsFind - Distinct bags of some features of a batch: equal ids (and weights, bit for bit) in equal order.

  Not collective. Time and memory grow with the ids and with n_features * batch.

  In:    batch    offsets filled
         feature  host [n_features]
  InOut: bags     lists, one a feature; until the next call
         inverse  int64 [n_features][batch] the place in its list of each sample's bag
*/
PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, const TrsKjt *batch, int n_features,
                                 const int *feature, TrsUniqueBags *bags, TrsDeviceBuffer *inverse);

/*
  TrsUniqueBagsTake - Place j of out: the bags of list list[j], out of block[j] of `from`.

  Not collective.

  In:    lists     of TrsUniqueBagsFind(); or without samples, where a block's first bags are meant
         block, list  host [n_out]
         n_values  no fewer ids than out will have
  InOut: limits    pinned host memory, where out's strides and id_begin are (limits_pending if the stream must be waited for). NULL: out is an ordinary
                   batch, a list's bags are followed by empty ones
         out       offsets filled; grows as needed
*/
PetscErrorCode TrsUniqueBagsTake(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, TrsUniqueBags *bags, const TrsBagLists *lists,
                                 const TrsKjt *from, int n_out, const int *block, const int *list,
                                 int64_t n_values, TrsPinnedBuffer *limits, TrsKjt *out);
