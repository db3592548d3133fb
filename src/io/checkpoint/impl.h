/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declarations that this folder's files share. write.c writes the ranks' parts into the file that
  rank 0 lays out in layout.c. read.c opens a file, reads all of it and answers queries about it.
  tensor.c matches the file's datasets with a state and reads them. checksums.c makes and verifies
  checksums. Internal to io/.

  Beside the tensors a file holds /checksums/<tensor> int64 [n_parts, 5]: row offset, column offset,
  rows, columns, and XXH3-64 of the rectangle's bytes, row by row, as they lie in the file. Large
  attributes of a tensor or of the root also have checksums: attributes with the same names on these
  datasets and on the group /checksums.
*/
#pragma once

#include "io/atomic_file.h"
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
#define TRS_CHECKPOINT_METRICS_EXACT  "metrics_exact"
#define TRS_CHECKPOINT_METRICS_WINDOW "metrics_window"
#define TRS_CHECKPOINT_EARLY_STOPPING "early_stopping"

enum { TRS_CHECKSUM_COLUMNS = 5, TRS_CHECKPOINT_MAX_NAME = 1024 };

/*
  The path of a tensor's checksums. It is the longest path that a checkpoint has for the tensor, so
  a name fits if this path does. Returns false if it does not.
*/
PetscBool TrsCheckpointSumsPath(const char *tensor, char path[TRS_CHECKPOINT_MAX_NAME]);

#define TRS_CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/*
  Limits in bytes: for a part, so that many ranks can verify one tensor, and for data that is read
  or staged at once.
*/
static const int64_t trs_part_bytes = (int64_t)64 << 20, trs_strip_bytes = (int64_t)4 << 20;

/* A table's quantised rows have the name of its weights plus this suffix. */
#define TRS_QUANTISED_SUFFIX "_quantised"

/*
  Open a file for reading, and check its format and version. Not collective, under the lock.
  Errors: NO_INPUT, DATA, OPTION for a file of another user (core/trust.h).
*/
PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file);

/*
  Read the id of the run that wrote the file, or "" if the file has none. Not collective, under the
  lock. Errors: DATA.
*/
PetscErrorCode TrsCheckpointRunId(const TrsHDF5File *file, char id[TRS_RUN_ID_SIZE]);

/*
  Make the element type in the file: bf16 is uint16 with an attribute, bytes are uint8, integers
  int64. Close it with H5Tclose(). Call this under the lock.
*/
PetscErrorCode TrsCheckpointType(TrsDType dtype, hid_t *type);

/*
  Write (Seal) or verify checksums of the attributes of `object` that HDF5 does not checksum itself
  (2 KiB or more). The checksums are attributes of `sums` with the same names. Attributes without a
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

/* --- reading: under the lock, not collective --- */

/* A dataset of the file. It is read directly if possible. */
typedef struct {
  const TrsHDF5File *file;
  const char *name;
  hid_t id, memory; /* memory: the element type to read */
  TrsHDF5Shape shape;
  TrsExtent extent;
} TrsCheckpointSource;

/*
  Open checks how the dataset is stored; id is -1 if the dataset is missing. Place finds the file
  offsets of the elements, which are then read as type `memory`; it takes ownership of this type.
  Close must follow Open, with or without Place. Errors: DATA.
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
  Must a tensor be read? No if `wanted` leaves it out, or if it is a state whose weights were not
  read. wanted NULL reads everything.
*/
PetscBool TrsCheckpointWants(const TrsCheckpointWanted *wanted, const TrsState *state,
                             const TrsStateTensor *tensor);

/* Fill info->unexpected, and info->other_state if requested. Errors: DATA. */
PetscErrorCode TrsCheckpointFindUnexpected(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                           const TrsState *state, TrsCheckpointInfo *info);

/*
  Read this rank's parts of one tensor. Depending on the tensor and the state, the numbers are
  converted, copied from a mean to all columns, staged in strips for a device, or passed to
  tensor->take. The tensors before this one must have been read.

  Out:    tensor->was_read and the fields below it
  Errors: DATA with the dataset if it is missing or has another shape or type, IO
*/
PetscErrorCode TrsCheckpointReadTensor(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                       const TrsState *state, TrsStateTensor *tensor);

/*
  Make all metadata calls that TrsCheckpointReadTensor() makes, but read no data. For a child
  process, because HDF5 may crash on a damaged file.
*/
PetscErrorCode TrsCheckpointTryTensor(const TrsHDF5File *file, const TrsStateTensor *tensor);

/* --- writing --- */

/* A tensor of the file: a tensor of the state, or the mean over a tensor's columns. */
typedef struct {
  const TrsStateTensor *tensor;
  PetscBool mean;
  const char *path;
  int ndim;
  int64_t rows, cols;
  int64_t element_bytes;
  int64_t n_parts;     /* rank 0: parts of all ranks */
  int64_t sums_offset; /* offset of its table of checksums in the file */
  TrsExtent extent;
} TrsCheckpointFileTensor;

/* A rectangle that this rank writes. A message carries it as 6 integers. */
typedef struct {
  int64_t tensor, row, col, rows, cols, hash;
} TrsCheckpointPart;

typedef struct {
  MPI_Comm comm;
  int rank, size;
  const char *path;
  const TrsState *state;
  const TrsCheckpointInfo *info;
  int n_tensors;
  TrsCheckpointFileTensor *tensor;
  PetscBool has_means;
  int64_t n_parts, capacity;
  TrsCheckpointPart *parts;  /* [n_parts] parts of this rank */
  const TrsStatePart **from; /* [n_parts] part of the state, or NULL for a mean */
  /* Staging memory for parts that the host cannot read: at most trs_part_bytes, or one row. */
  void *stage;
  int64_t stage_bytes;
  int64_t n_all;          /* rank 0 only */
  TrsCheckpointPart *all; /* [n_all] sorted by rank */
  int *counts, *places;   /* rank 0: [size] number and place of each rank's integers */
  TrsAtomicFile file;     /* rank 0 only */
  char *temporary;
  int fd;
} TrsCheckpointWriter;

/*
  List this rank's parts of all tensors, with at most trs_part_bytes each, and the tensors of the
  file: the state's tensors, then the means over columns. Not collective.

  Out:    tensor, n_tensors, has_means, parts, data, stride, n_parts
  Errors: INTERNAL for too many parts
*/
PetscErrorCode TrsCheckpointListParts(TrsCheckpointWriter *w);

/*
  Gather all ranks' parts on rank 0. Called again when the hashes are known. Collective. Out, on
  rank 0: all, n_all, counts, places.
*/
PetscErrorCode TrsCheckpointGatherParts(TrsCheckpointWriter *w);

/*
  Make the temporary file with its structure and all its space from the gathered parts. Only rank 0
  calls this. Takes the lock.

  Out:    file, temporary, each tensor's n_parts, extent and sums_offset
  Errors: INTERNAL if the parts do not cover the tensors exactly; CANT_CREATE, IO
*/
PetscErrorCode TrsCheckpointCreateFile(TrsCheckpointWriter *w);

/* Send the file's layout to the other ranks: temporary and the extents. Collective. */
PetscErrorCode TrsCheckpointBroadcastLayout(TrsCheckpointWriter *w);
