/* SPDX-License-Identifier: BSD-3-Clause */
/*
  KeyedJaggedTensor: F features of a batch, feature-major. Source: TorchRec KeyedJaggedTensor
  (torchrec.sparse.jagged_tensor).

  lengths [F*B] int32: bag b of feature f is at f*B + b. offsets [F*B + 1]. values [N] ids in that order,
  weights [N] or NULL. Arrays are device memory of the owner's device; they grow and are reused from batch to
  batch.
*/
#pragma once

#include "compute/compute_ops.h"

enum { TRS_KJT_VARIABLE = -1 };

typedef struct {
  int n_features;
  int64_t batch; /* B; TRS_KJT_VARIABLE when features differ */
  PetscBool is_weighted;
  TrsJagged jagged; /* borrowed views of the buffers below */
  TrsDeviceBuffer lengths, offsets, values, weights;
  const int64_t
      *strides; /* host [n_features] bags of each feature of a variable batch, borrowed; else NULL */
  const int64_t
      *id_begin; /* host [n_features + 1] where each feature's ids begin; NULL: only offsets say so */
  PetscBool
      limits_pending; /* strides and id_begin are on their way: valid once the stream has been waited for */
  TrsBuffer scratch;  /* host memory of TrsKjtPermute() */
  TrsDeviceBuffer limits; /* of TrsKjtPermute() */
} TrsKjt;

/*
  Room for n_features * batch bags and n_values ids; sets the views. Contents are undefined where a buffer
  grew.
*/
PetscErrorCode TrsKjtReserve(const TrsDeviceOps *device, TrsKjt *kjt, int n_features, int64_t batch,
                             int64_t n_values, PetscBool weighted);

/*
  The same for a variable batch: feature f has strides[f] bags; lengths are the features' blocks one after the
  other. strides is borrowed.
*/
PetscErrorCode TrsKjtReserveVariable(const TrsDeviceOps *device, TrsKjt *kjt, int n_features,
                                     const int64_t *strides, int64_t n_values, PetscBool weighted);
PetscErrorCode TrsKjtFree(const TrsDeviceOps *device, TrsKjt *kjt);

/* Bags of feature f. */
static inline int64_t TrsKjtStride(const TrsKjt *kjt, int f)
{
  return kjt->strides ? kjt->strides[f] : kjt->batch;
}

/*
  Where each feature's ids begin: id_begin host [n_features + 1]. What the host does not know already is copied from the device's
  offsets, in one transfer (a variable batch: one a feature): valid once the caller has synchronised the stream, if *pending was set.
  limits is scratch that lives as long. Not collective.
*/
PetscErrorCode TrsKjtReadLimits(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                const TrsKjt *kjt, TrsDeviceBuffer *limits, int64_t *id_begin,
                                PetscBool *pending);

/* Fill offsets from lengths. */
PetscErrorCode TrsKjtOffsets(const TrsComputeOps *compute, TrsStream stream, TrsKjt *kjt);

/*
  TrsKjtPermute - Feature j of out is feature indices[j] of in (repeats and omissions allowed). in's offsets
  must be filled; out's are. Not collective. In: indices host [n_out]. InOut: out grows as needed.
*/
PetscErrorCode TrsKjtPermute(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                             TrsWorkspace workspace, const TrsKjt *in, int n_out, const int *indices,
                             TrsKjt *out);

/*
  Part p of kjt.split(segments): features begin .. begin+n as a view into kjt (no copy; valid as long as kjt
  is unchanged; don't free). Its offsets go on counting from the whole kjt's first id, so they index
  jagged.values, which is the whole array. Not collective.
*/
PetscErrorCode TrsKjtView(const TrsKjt *kjt, int begin, int n, TrsKjt *view);
