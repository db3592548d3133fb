/* SPDX-License-Identifier: BSD-3-Clause */
/*
  KeyedJaggedTensor: F features of a batch, feature-major.

  lengths [F*B] int32: bag b of feature f is at f*B + b. offsets [F*B + 1]. values [N] has the ids
  in the order of the bags, weights [N] may be NULL. The arrays are in the memory of the owner's
  device. They grow and are reused from batch to batch.

  Source: TorchRec KeyedJaggedTensor (torchrec.sparse.jagged_tensor)
*/
#pragma once

#include "compute/compute_ops.h"

enum { TRS_KJT_VARIABLE = -1 };

typedef struct {
  int n_features;
  int64_t batch; /* B; TRS_KJT_VARIABLE if the features differ */
  PetscBool is_weighted;
  TrsJagged jagged; /* borrowed views of the buffers below */
  TrsDeviceBuffer lengths, offsets, values, weights;
  /* host [n_features] bags of each feature of a variable batch, borrowed; else NULL */
  const int64_t *strides;
  /* host [n_features + 1] first id of each feature; NULL: known only from offsets */
  const int64_t *id_begin;
  /* strides and id_begin are being copied; valid after the stream is synchronised */
  PetscBool limits_pending;
  TrsBuffer scratch;      /* host memory for TrsKjtPermute() */
  TrsDeviceBuffer limits; /* for TrsKjtPermute() */
} TrsKjt;

/*
  Make room for n_features * batch bags and n_values ids, and set the views. If a buffer grows, its
  contents are undefined.
*/
PetscErrorCode TrsKjtReserve(const TrsDeviceOps *device, TrsKjt *kjt, int n_features, int64_t batch,
                             int64_t n_values, PetscBool weighted);

/*
  TrsKjtReserve() for a variable batch: feature f has strides[f] bags. The features' lengths are
  contiguous. strides is borrowed.
*/
PetscErrorCode TrsKjtReserveVariable(const TrsDeviceOps *device, TrsKjt *kjt, int n_features,
                                     const int64_t *strides, int64_t n_values, PetscBool weighted);
PetscErrorCode TrsKjtFree(const TrsDeviceOps *device, TrsKjt *kjt);

/* Number of bags of feature f. */
static inline int64_t TrsKjtStride(const TrsKjt *kjt, int f)
{
  return kjt->strides ? kjt->strides[f] : kjt->batch;
}

/*
  TrsKjtReadLimits - Find the first id of each feature.

  Limits that the host does not know yet are copied from the device's offsets in one transfer (for a
  variable batch, one per feature).

  Not collective.

  InOut: limits    scratch; must live while id_begin is pending
  Out:   id_begin  host [n_features + 1]; if *pending is set, valid after the caller has
                   synchronised the stream
*/
PetscErrorCode TrsKjtReadLimits(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                const TrsKjt *kjt, TrsDeviceBuffer *limits, int64_t *id_begin,
                                PetscBool *pending);

/* Fill offsets from lengths. */
PetscErrorCode TrsKjtOffsets(const TrsComputeOps *compute, TrsStream stream, TrsKjt *kjt);

/*
  TrsKjtPermute - Make feature j of out a copy of feature indices[j] of `in`. A feature may occur
  several times or not at all.

  Not collective.

  In:    in       its offsets must be filled
         indices  host [n_out]
  InOut: out      grows as needed; its offsets are filled in
*/
PetscErrorCode TrsKjtPermute(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                             TrsWorkspace workspace, const TrsKjt *in, int n_out, const int *indices,
                             TrsKjt *out);

/*
  TrsKjtView - Part p of kjt.split(segments): features begin .. begin + n as a view into kjt.

  Nothing is copied. The view is valid while kjt is unchanged, and must not be freed. Its offsets
  count from the first id of the whole kjt, so they index jagged.values, which is the whole array.

  Not collective.
*/
PetscErrorCode TrsKjtView(const TrsKjt *kjt, int begin, int n, TrsKjt *view);
