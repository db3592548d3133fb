/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What the parts of reading a checkpoint share: one dataset (checkpoint_source.c), the checksums (checkpoint_verify.c), what of file and state goes together
  (checkpoint_match.c), one tensor into this rank's parts (checkpoint_tensor.c), and the file with its agreement (checkpoint_read.c). Internal to io/. Everything here is not collective,
  and called under the lock.
*/
#pragma once

#include "io/checkpoint_impl.h"

#define TRS_CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)
enum { TRS_CHECKPOINT_MAX_NAME = 1024 };

/* A dataset of the file, read directly where it can be. */
typedef struct {
  const TrsHDF5File *file;
  const char *name;
  hid_t id, memory; /* memory: element type wanted */
  TrsHDF5Shape shape;
  TrsExtent extent;
} TrsCheckpointSource;

/*
  Open: checks how the dataset is stored; id -1 when absent. Place: finds where its elements lie, to be read as `memory`, which is taken over.
  Close: after Open, placed or not.
  Errors: DATA
*/
PetscErrorCode TrsCheckpointSourceOpen(const TrsHDF5File *file, const char *name, TrsCheckpointSource *s);
PetscErrorCode TrsCheckpointSourcePlace(TrsCheckpointSource *s, hid_t memory);
PetscErrorCode TrsCheckpointSourceClose(TrsCheckpointSource *s);

/* Rows row .. row+rows-1, columns col .. col+cols-1 of a placed dataset, into data [rows, cols] without gaps. Errors: DATA, IO */
PetscErrorCode TrsCheckpointSourceRead(const TrsCheckpointSource *s, int64_t row, int64_t rows, int64_t col,
                                       int64_t cols, void *data);

/*
  Do the checksums hold? Of the parts of all tensors this rank takes every size-th; rank -1: none, the tables alone are looked at. A file
  without checksums passes.
  Errors: DATA naming the part, IO
*/
PetscErrorCode TrsCheckpointVerifyParts(const TrsHDF5File *file, int rank, int size);

/* Is this tensor to be read? Not one that wanted leaves out, nor a state of weights that were not read. wanted NULL: yes. */
PetscBool TrsCheckpointWants(const TrsCheckpointWanted *wanted, const TrsState *state,
                             const TrsStateTensor *tensor);

/* Is the tensor a table's: its weights or a state of theirs? */
PetscBool TrsStateIsOfTable(const TrsStateTensor *tensor);

/* The names of info->unexpected, and info->other_state where it is asked for. Errors: DATA */
PetscErrorCode TrsCheckpointFindUnexpected(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                           const TrsState *state, TrsCheckpointInfo *info);

/*
  This rank's parts of one tensor, converted, spread from a mean, through strips to a device, or handed to tensor->take, as the tensor and
  the state want it. Tensors of the state before this one have been read.

  Out:    tensor->was_read and what follows it
  Errors: DATA naming the dataset (missing, of another shape or type), IO
*/
PetscErrorCode TrsCheckpointReadTensor(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                       const TrsState *state, TrsStateTensor *tensor);

/* Everything of that which asks HDF5 for metadata, and no data: for a child process that may crash on a damaged file. */
PetscErrorCode TrsCheckpointTryTensor(const TrsHDF5File *file, const TrsStateTensor *tensor);
