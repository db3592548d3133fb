/* SPDX-License-Identifier: BSD-3-Clause */
/*
  KeyedJaggedTensor: the bags of F features for the B samples of a batch, feature by feature.

  lengths [F*B] are int32. The bag of sample b for feature f has index f*B + b. offsets is [F*B +
  1]. values [N] has the ids in the order of the bags. weights [N] may be NULL. The arrays are in
  the memory of the owner's device. They are reused from batch to batch, and grow if needed.

  Source: TorchRec KeyedJaggedTensor (torchrec.sparse.jagged_tensor)
*/
#pragma once

#include "compute/compute_ops.h"

enum { TRS_KJT_VARIABLE = -1 };

typedef struct {
  int n_features;
  int64_t batch; /* B; TRS_KJT_VARIABLE if features have different numbers of bags */
  PetscBool is_weighted;
  TrsJagged jagged; /* borrowed views of the buffers below */
  TrsDeviceBuffer lengths, offsets, values, weights;
  /* host [n_features] number of bags of each feature in a variable batch, borrowed; otherwise
     NULL */
  const int64_t *strides;
  /* host [n_features + 1] index of each feature's first id; NULL: only the offsets have it */
  const int64_t *id_begin;
  /* true: strides and id_begin are being copied, and are valid after the stream is synchronised */
  PetscBool limits_pending;
  TrsBuffer scratch;      /* scratch of TrsKjtPermute() in host memory */
  TrsDeviceBuffer limits; /* scratch of TrsKjtPermute() */
} TrsKjt;

/*
  Allocate memory for n_features * batch bags and n_values ids, and set the views. If a buffer
  grows, its contents become undefined.
*/
PetscErrorCode TrsKjtReserve(const TrsDeviceOps *device, TrsKjt *kjt, int n_features, int64_t batch,
                             int64_t n_values, PetscBool weighted);

/*
  Like TrsKjtReserve(), for a variable batch: feature f has strides[f] bags. The lengths of all
  features are contiguous. strides is borrowed.
*/
PetscErrorCode TrsKjtReserveVariable(const TrsDeviceOps *device, TrsKjt *kjt, int n_features,
                                     const int64_t *strides, int64_t n_values, PetscBool weighted);
PetscErrorCode TrsKjtFree(const TrsDeviceOps *device, TrsKjt *kjt);

/* The number of bags of feature f. */
static inline int64_t TrsKjtStride(const TrsKjt *kjt, int f)
{
  return kjt->strides ? kjt->strides[f] : kjt->batch;
}

/*
  TrsKjtReadLimits - Get the index of each feature's first id.

  If the host does not know these limits yet, they are copied from the device's offsets in one
  transfer. A variable batch needs one transfer per feature.

  Not collective.

  InOut: limits    scratch; must exist as long as id_begin is pending
  Out:   id_begin  host [n_features + 1]; if *pending is true, valid after the caller has
                   synchronised the stream
*/
PetscErrorCode TrsKjtReadLimits(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                const TrsKjt *kjt, TrsDeviceBuffer *limits, int64_t *id_begin,
                                PetscBool *pending);

/* Compute the offsets from the lengths. */
PetscErrorCode TrsKjtOffsets(const TrsComputeOps *compute, TrsStream stream, TrsKjt *kjt);

/*
  TrsKjtPermute - Make feature j of out a copy of feature indices[j] of `in`. A feature may occur
    several times, or be missing.

  Not collective.

  In:    in       its offsets must be filled
         indices  host [n_out]
  InOut: out      grows as needed; its offsets are also computed
*/
PetscErrorCode TrsKjtPermute(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                             TrsWorkspace workspace, const TrsKjt *in, int n_out, const int *indices,
                             TrsKjt *out);

/*
  TrsKjtView - Make a view of the features begin .. begin + n - 1 of kjt, like a part of
    kjt.split(segments).

  Nothing is copied. The view is valid as long as kjt is unchanged, and must not be freed. Its
  offsets count from the first id of the whole kjt, so they index jagged.values, which is the whole
  array.

  Not collective.
*/
PetscErrorCode TrsKjtView(const TrsKjt *kjt, int begin, int n, TrsKjt *view);
