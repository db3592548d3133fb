/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declarations that the files which read a checkpoint share: one dataset (checkpoint_source.c), the
  checksums (checkpoint_verify.c), the match of file and state (checkpoint_match.c), one tensor
  (checkpoint_tensor.c), and the whole file (checkpoint_read.c). Internal to io/. All functions here
  are called under the lock and are not collective.
*/
#pragma once

#include "io/checkpoint/impl.h"

#define TRS_CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)
enum { TRS_CHECKPOINT_MAX_NAME = 1024 };

/* A dataset of the file, which is read directly if possible. */
typedef struct {
  const TrsHDF5File *file;
  const char *name;
  hid_t id, memory; /* memory: the wanted element type */
  TrsHDF5Shape shape;
  TrsExtent extent;
} TrsCheckpointSource;

/*
  Open checks how the dataset is stored; id is -1 if it is absent. Place finds where the elements
  lie, to be read as type `memory`, which it takes over. Close follows Open, with or without Place.
  Errors: DATA.
*/
PetscErrorCode TrsCheckpointSourceOpen(const TrsHDF5File *file, const char *name, TrsCheckpointSource *s);
PetscErrorCode TrsCheckpointSourcePlace(TrsCheckpointSource *s, hid_t memory);
PetscErrorCode TrsCheckpointSourceClose(TrsCheckpointSource *s);

/*
  Read rows row .. row+rows-1 and columns col .. col+cols-1 of a placed dataset into data [rows,
  cols] without gaps. Errors: DATA, IO.
*/
PetscErrorCode TrsCheckpointSourceRead(const TrsCheckpointSource *s, int64_t row, int64_t rows, int64_t col,
                                       int64_t cols, void *data);

/*
  Verify the checksums. This rank takes every size-th part of all tensors. Rank -1 reads only the
  tables of checksums. A file without checksums passes. Errors: DATA with the part, IO.
*/
PetscErrorCode TrsCheckpointVerifyParts(const TrsHDF5File *file, int rank, int size);

/*
  Tell whether a tensor must be read. `wanted` can leave it out, and so can weights that were not
  read, for their states. wanted NULL reads everything.
*/
PetscBool TrsCheckpointWants(const TrsCheckpointWanted *wanted, const TrsState *state,
                             const TrsStateTensor *tensor);

/* Fill info->unexpected, and info->other_state if it is asked for. Errors: DATA. */
PetscErrorCode TrsCheckpointFindUnexpected(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                           const TrsState *state, TrsCheckpointInfo *info);

/*
  Read this rank's parts of one tensor. As the tensor and the state ask, the numbers are converted,
  spread from a mean, staged in strips for a device, or handed to tensor->take. The tensors before
  this one have been read.

  Out:    tensor->was_read and the fields below it
  Errors: DATA with the dataset if it is missing or has another shape or type, IO
*/
PetscErrorCode TrsCheckpointReadTensor(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                       const TrsState *state, TrsStateTensor *tensor);

/*
  Make all calls of TrsCheckpointReadTensor() that ask HDF5 for metadata, but read no data. For a
  child process, which may crash on a damaged file.
*/
PetscErrorCode TrsCheckpointTryTensor(const TrsHDF5File *file, const TrsStateTensor *tensor);
