/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declarations that writing and reading a checkpoint share. Internal to io/.

  Beside the tensors a file holds /checksums/<tensor> int64 [n_parts, 5]: row offset, column offset,
  rows, columns, and XXH3-64 of the rectangle's bytes, row by row, as they lie in the file.
  Attributes of these datasets and of the group /checksums are the checksums of large attributes of
  the tensor and of the root, under the same names.
*/
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "io/extent.h"
#include "io/hdf5_util.h"

#define TRS_CHECKPOINT_FORMAT  "trshard-checkpoint"
#define TRS_CHECKPOINT_VERSION 1
#define TRS_CHECKSUMS          "checksums"
/* Attribute of a state's dataset: the optimizer that the state belongs to. */
#define TRS_OPTIMIZER_ATTRIBUTE "optimizer"
/* Root attributes: the id and the numbers of TrsCheckpointInfo. */
#define TRS_CHECKPOINT_RUN_ID         "run_id"
#define TRS_CHECKPOINT_MODEL          "model"
#define TRS_CHECKPOINT_METRICS        "metrics"
#define TRS_CHECKPOINT_EARLY_STOPPING "early_stopping"

enum { TRS_CHECKSUM_COLUMNS = 5 };

/*
  The most bytes of a part, so that many ranks can verify one tensor, and the most bytes that are
  read or staged at once.
*/
static const int64_t trs_part_bytes = (int64_t)64 << 20, trs_strip_bytes = (int64_t)4 << 20;

/* A table's quantised rows have the name of its weights plus this suffix. */
#define TRS_QUANTISED_SUFFIX "_quantised"

/*
  Open a file for reading and check format and version. Not collective, under the lock.
  Errors: NO_INPUT, DATA.
*/
PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file);

/*
  The id of the run that wrote the file, or "" if the file does not say. Not collective, under the
  lock. Errors: DATA.
*/
PetscErrorCode TrsCheckpointRunId(const TrsHDF5File *file, char id[TRS_RUN_ID_SIZE]);

/*
  The element type in the file: bf16 is uint16 with an attribute, bytes are uint8. Close it with
  H5Tclose(). Call this under the lock.
*/
PetscErrorCode TrsCheckpointType(TrsDType dtype, hid_t *type);

/*
  Write and verify checksums of the attributes of `object` that HDF5 does not checksum itself (2 KiB
  or more). The checksums are attributes of `sums` under the same names. Attributes without a
  checksum pass. `where` is "" for the root, or the tensor. Not collective, under the lock. Errors:
  IO; DATA with the attribute's name.
*/
PetscErrorCode TrsCheckpointSealAttributes(hid_t object, hid_t sums);
PetscErrorCode TrsCheckpointVerifyAttributes(const TrsHDF5File *file, const char *where, hid_t object,
                                             hid_t sums);

/* Verify the checksums of the root's attributes. Not collective, under the lock. Errors: DATA. */
PetscErrorCode TrsCheckpointVerifyRoot(const TrsHDF5File *file);

/*
  TrsCheckpointVerify - Check that the file is a checkpoint and that its checksums are right.

  Collective on comm: the ranks share the parts. Errors (agreed): NO_INPUT, DATA
*/
PetscErrorCode TrsCheckpointVerify(MPI_Comm comm, const char *path);
