/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What writing and reading a checkpoint share. Internal to io/.

  Beside the tensors a file holds /checksums/<tensor> int64 [n_parts, 5]: row offset, column offset, rows, columns, XXH3-64 of the rectangle's
  bytes, row by row, as they lie in the file. Its attributes, and those of the group /checksums, are the checksums of large attributes: of the tensor's, and of
  the root's, under their names.
*/
#pragma once

#include "io/checkpoint.h"
#include "io/extent.h"
#include "io/hdf5_util.h"

#define TRS_CHECKPOINT_FORMAT  "trshard-checkpoint"
#define TRS_CHECKPOINT_VERSION 1
#define TRS_CHECKSUMS          "checksums"
/* of a state's dataset: the optimizer it belongs to */
#define TRS_OPTIMIZER_ATTRIBUTE "optimizer"
/* root attributes: TrsCheckpointInfo's numbers */
#define TRS_CHECKPOINT_RUN_ID         "run_id"
#define TRS_CHECKPOINT_METRICS        "metrics"
#define TRS_CHECKPOINT_EARLY_STOPPING "early_stopping"

enum { TRS_CHECKSUM_COLUMNS = 5 };

/* Bytes of a part at most, so that many ranks can verify one tensor, and of what is read or staged at once. */
static const int64_t trs_part_bytes = (int64_t)64 << 20, trs_strip_bytes = (int64_t)4 << 20;

/* What a table's quantised rows are called: its weight's name and this. */
#define TRS_QUANTISED_SUFFIX "_quantised"

/* Open for reading, and check format and version. Not collective, under the lock. Errors: NO_INPUT, DATA */
PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file);

/* Which run wrote the file; "" where the file does not say. Not collective, under the lock. Errors: DATA */
PetscErrorCode TrsCheckpointRunId(const TrsHDF5File *file, char id[TRS_RUN_ID_SIZE]);

/* Element type in the file; bf16 are uint16 with an attribute, bytes uint8. Close with H5Tclose(). Under the lock. */
PetscErrorCode TrsCheckpointType(TrsDType dtype, hid_t *type);

/*
  Checksums of the attributes of `object` that HDF5 does not checksum itself (of 2 KiB or more), as attributes of `sums` under the same names; and do they
  hold? Attributes without a checksum pass. where: "" for the root, or the tensor. Not collective, under the lock. Errors: IO; DATA naming the attribute
*/
PetscErrorCode TrsCheckpointSealAttributes(hid_t object, hid_t sums);
PetscErrorCode TrsCheckpointVerifyAttributes(const TrsHDF5File *file, const char *where, hid_t object,
                                             hid_t sums);

/*
  TrsCheckpointVerify - Is the file a checkpoint whose checksums hold?

  Collective on comm: ranks share the parts. Errors (agreed): NO_INPUT, DATA
*/
PetscErrorCode TrsCheckpointVerify(MPI_Comm comm, const char *path);
