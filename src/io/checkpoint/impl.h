/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declarations that the files of this folder share. layout.c makes the file's structure on rank 0.
  write.c writes the ranks' parts into this file. chain.c finds the files of incremental checkpoints
  and their rows. read.c opens a file, reads all of it and answers queries about it. tensor.c
  matches the file's datasets with a state and reads them. checksums.c makes and verifies checksums.
  Internal to io/.

  In addition to the tensors, a file has datasets /checksums/<tensor>, int64 [n_parts, 5]. Each row
  describes a part: row offset, column offset, rows, columns, and XXH3-64 of the part's bytes in the
  file, row by row. Large attributes of a tensor or of the root also have checksums: attributes with
  the same names on these datasets and on the group /checksums.
*/
#pragma once

#include "io/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/extent.h"
#include "io/hdf5_util.h"

#define TRS_CHECKPOINT_FORMAT  "trshard-checkpoint"
#define TRS_CHECKPOINT_VERSION 1
#define TRS_DELTA_FORMAT       "trshard-delta"
#define TRS_DELTA_VERSION      1
#define TRS_INCREMENT_FORMAT   "trshard-increment"
#define TRS_INCREMENT_VERSION  1
#define TRS_CHECKSUMS          "checksums"
/* Attribute of a state's dataset: the name of the optimizer to which the state belongs. */
#define TRS_OPTIMIZER_ATTRIBUTE "optimizer"
/* Names of root attributes for the id and the numbers of TrsCheckpointInfo. */
#define TRS_CHECKPOINT_RUN_ID         "run_id"
#define TRS_CHECKPOINT_MODEL          "model"
#define TRS_CHECKPOINT_METRICS        "metrics"
#define TRS_CHECKPOINT_METRICS_EXACT  "metrics_exact"
#define TRS_CHECKPOINT_METRICS_WINDOW "metrics_window"
#define TRS_CHECKPOINT_EARLY_STOPPING "early_stopping"

enum { TRS_CHECKSUM_COLUMNS = 5, TRS_CHECKPOINT_MAX_NAME = 1024 };

/*
  Make the path of a tensor's checksums. This path is the longest that a checkpoint has for a
  tensor. So if it fits, all paths for the tensor fit. Returns false if it does not fit.
*/
PetscBool TrsCheckpointSumsPath(const char *tensor, char path[TRS_CHECKPOINT_MAX_NAME]);

#define TRS_CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/*
  Limits in bytes. trs_part_bytes is the limit for a part, so that many ranks can share the
  verification of one tensor. trs_strip_bytes is the limit for data that is read or staged at once.
*/
static const int64_t trs_part_bytes = (int64_t)64 << 20, trs_strip_bytes = (int64_t)4 << 20;

/* The dataset of a table's quantised rows has the name of its weights plus this suffix. */
#define TRS_QUANTISED_SUFFIX "_quantised"

/*
  Open a checkpoint for reading, which may be incremental, and check its format and version. Not
  collective, under the lock. Errors: NO_INPUT, DATA, OPTION for a file of another user
  (core/trust.h).
*/
PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file);
PetscErrorCode TrsCheckpointOpenAny(const char *path, TrsHDF5File *file); /* also accepts a delta */

/*
  Write and read the root attributes with a file's place in a chain of deltas. If the file lacks
  these attributes, place->base becomes "". Not collective, under the lock. Errors: IO; DATA.
*/
PetscErrorCode TrsCheckpointWritePlace(hid_t file, const TrsCheckpointInfo *info);
PetscErrorCode TrsCheckpointReadPlace(const TrsHDF5File *file, TrsDeltaPlace *place);
/* The same for a delta: the place of the file before it, with the number of the delta. */
PetscErrorCode TrsCheckpointReadPrevious(const TrsHDF5File *file, TrsDeltaPlace *place);

/*
  Read the place of an increment in its chain: its own number, and the step and the id of the file
  before it. For a full checkpoint, all fields are zero. Not collective, under the lock. Errors:
  DATA.
*/
PetscErrorCode TrsCheckpointReadChain(const TrsHDF5File *file, TrsDeltaPlace *place);

/* --- chains of increments: under the lock, not collective unless stated otherwise --- */

/* The files that a checkpoint consists of, newest first. A full checkpoint is one file. */
typedef struct {
  const char *path; /* of the newest file; the others are in its folder */
  int n;
  int64_t *step; /* [n] free with PetscFree() */
  /*
    If it is not NULL, the step of the file at fault when an error is raised. It may be in memory
    that a child process shares.
  */
  int64_t *fault;
} TrsCheckpointChain;

/*
  Find the files of the chain that ends with chain->path, and check that each continues the one
  before it. Errors: DATA with the file that is missing or does not fit; those of
  TrsCheckpointOpen()
*/
PetscErrorCode TrsCheckpointChainFind(TrsCheckpointChain *chain);

/* Send rank 0's chain to all ranks. Collective. */
PetscErrorCode TrsCheckpointChainShare(MPI_Comm comm, TrsCheckpointChain *chain);

/* The path of file k. Free it with PetscFree(). */
PetscErrorCode TrsCheckpointChainPath(const TrsCheckpointChain *chain, int k, char **path);

/* Compute the id of a file, as TrsCheckpointId() does. */
PetscErrorCode TrsCheckpointFileId(const char *path, char id[TRS_FILE_ID_SIZE]);

/* The buckets of a table that grows: in a file with its rows in use, where each bucket begins. */
typedef struct {
  int64_t n, *begin; /* begin [n + 1] */
} TrsFileBuckets;

/* The rows of a table that one file of a chain has. */
typedef struct {
  PetscBool full; /* the full checkpoint: it has all rows in use */
  /*
    For an increment, the numbers of its rows in the table, ascending, as far as this rank needs
    them. Row first + i of the file has number[i]. The file has `all` rows.
  */
  int64_t n, *number, first, all;
  int64_t limit, bucket_rows; /* rows of the table, and of one bucket */
  /* for a table that grows, the full checkpoint's buckets, and those of the newest file */
  TrsFileBuckets own, newest;
} TrsFileRows;

PetscErrorCode TrsCheckpointBucketsRead(const TrsHDF5File *file, const char *table, TrsFileBuckets *buckets);

/*
  Read the numbers of the rows that an increment has of the table of `tensor`. The full checkpoint
  must have been read before. Errors: DATA.
*/
PetscErrorCode TrsCheckpointRowsRead(const TrsHDF5File *file, const TrsStateTensor *tensor,
                                     TrsFileRows *rows);
PetscErrorCode TrsCheckpointRowsFree(TrsFileRows *rows);

/* Make the metadata calls of TrsCheckpointRowsRead(), but read no numbers. Errors: DATA. */
PetscErrorCode TrsCheckpointRowsTry(const TrsHDF5File *file, const char *table);

/*
  Find the rows of the file that belong to part k of a tensor: row from[i] of the file is row to[i]
  of the part, both ascending. Free both with PetscFree2(). Errors: DATA.
*/
PetscErrorCode TrsCheckpointRowsFind(const TrsFileRows *rows, const TrsStateTensor *tensor, int k,
                                     const char *path, int64_t *n, int64_t **from, int64_t **to);

/*
  Read the id of the run that wrote the file, or "" if the file has none. Not collective, under the
  lock. Errors: DATA.
*/
PetscErrorCode TrsCheckpointRunId(const TrsHDF5File *file, char id[TRS_RUN_ID_SIZE]);

/*
  TrsCheckpointQuery - Read something of a file on rank 0.

  A child process runs `body` first, because HDF5 may crash on a damaged file. So the body runs
  twice, with the lock held, and must set all its results each time. Collective on comm. Errors
  (agreed): those of body and of TrsPreflight()
*/
PetscErrorCode TrsCheckpointQuery(MPI_Comm comm, const char *path, PetscErrorCode (*body)(void *context),
                                  void *context);

/*
  Make the element type that the file uses: bf16 is stored as uint16 with an attribute, bytes as
  uint8, and integers as int32 or int64. Close it with H5Tclose(). Call this under the lock.
*/
PetscErrorCode TrsCheckpointType(TrsDType dtype, hid_t *type);

/*
  Write (Seal) or verify checksums of the attributes of `object` that HDF5 does not checksum itself
  (2 KiB or more). The checksums are attributes of `sums` with the same names. Attributes without a
  checksum are accepted. `where` is "" for the root, or the tensor's name. Not collective, under the
  lock. Errors: IO; DATA with the attribute's name.
*/
PetscErrorCode TrsCheckpointSealAttributes(hid_t object, hid_t sums);
PetscErrorCode TrsCheckpointVerifyAttributes(const TrsHDF5File *file, const char *where, hid_t object,
                                             hid_t sums);

/* Verify the checksums of the root's attributes. Not collective, under the lock. Errors: DATA. */
PetscErrorCode TrsCheckpointVerifyRoot(const TrsHDF5File *file);

/*
  TrsCheckpointVerify - Check that the file is a checkpoint and that its checksums are right. For an
    increment, check all files of its chain.

  Collective on comm. Each rank verifies some of the parts.

  Out:    fault  if there is an error, the step of the file at fault, or -1 if it is not known
  Errors (agreed): NO_INPUT, DATA
*/
PetscErrorCode TrsCheckpointVerify(MPI_Comm comm, const char *path, int64_t *fault);

/* --- reading: under the lock, not collective --- */

/* A dataset of the file. Its elements are read with pread if possible, and by HDF5 if not. */
typedef struct {
  const TrsHDF5File *file;
  const char *name;
  /* the dataset; the element type in memory to which its elements are converted */
  hid_t id, memory;
  TrsHDF5Shape shape;
  TrsExtent extent;
} TrsCheckpointSource;

/*
  Open checks how the dataset is stored. If the dataset is missing, id is -1. Place finds the file
  offsets of the elements, which are then read as type `memory`; it takes ownership of this type.
  Close must follow Open, even if Place was not called. Errors: DATA.
*/
PetscErrorCode TrsCheckpointSourceOpen(const TrsHDF5File *file, const char *name, TrsCheckpointSource *s);
PetscErrorCode TrsCheckpointSourcePlace(TrsCheckpointSource *s, hid_t memory);
PetscErrorCode TrsCheckpointSourceClose(TrsCheckpointSource *s);

/*
  Read rows row .. row+rows-1 and columns col .. col+cols-1 into data [rows, cols] without gaps.
  TrsCheckpointSourcePlace() must have been called. Errors: DATA, IO.
*/
PetscErrorCode TrsCheckpointSourceRead(const TrsCheckpointSource *s, int64_t row, int64_t rows, int64_t col,
                                       int64_t cols, void *data);

/*
  Verify the checksums. This rank takes every size-th part of all tensors. If rank is -1, only the
  tables of checksums are read. A file without checksums is accepted. Errors: DATA with the part,
  IO.
*/
PetscErrorCode TrsCheckpointVerifyParts(const TrsHDF5File *file, int rank, int size);

/*
  True if a tensor must be read. False if `wanted` excludes the tensor, or if it is a state whose
  weights were not read. If `wanted` is NULL, every tensor must be read.
*/
PetscBool TrsCheckpointWants(const TrsCheckpointWanted *wanted, const TrsState *state,
                             const TrsStateTensor *tensor);

/* Fill info->unexpected, and info->other_state if requested. Errors: DATA. */
PetscErrorCode TrsCheckpointFindUnexpected(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                           const TrsState *state, TrsCheckpointInfo *info);

/*
  The rest of a path from the slash after the folder of a table's ids: "/raw" for "/zch/raw". Any
  other path is returned as it is.
*/
const char *TrsCheckpointKeysFolder(const char *path);

/*
  Check that the file has the ids of a table if id_map gives its rows to ids, and has no ids of any
  other kind. may_leave_out: the run may read only other tables. Errors: DATA with the file, the
  tensor of ids and the option.
*/
PetscErrorCode TrsCheckpointCheckKeys(const TrsHDF5File *file, const char *table, const char *id_map,
                                      PetscBool may_leave_out);

/*
  Read this rank's parts of one tensor. Depending on the tensor and the state, the numbers are
  converted, copied from a mean to all columns, staged in strips for a device, or passed to
  tensor->take. All earlier tensors of the state must have been read before.

  In:     rows  if the file is the full checkpoint of a chain: its rows of the tensor's table; else
                NULL
  Out:    tensor->was_read and the fields below it
  Errors: DATA with the dataset if it is missing or has another shape or type, IO
*/
PetscErrorCode TrsCheckpointReadTensor(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                       const TrsState *state, const TrsFileRows *rows,
                                       TrsStateTensor *tensor);

/*
  Read the changed rows of one tensor from an increment. The full checkpoint must have been read
  before. Errors: as for TrsCheckpointReadTensor()
*/
PetscErrorCode TrsCheckpointReadChanged(const TrsHDF5File *file, const TrsState *state,
                                        const TrsFileRows *rows, const TrsStateTensor *tensor);

/*
  Make all metadata calls that TrsCheckpointReadTensor() makes, but read no data. A child process
  calls this first, because HDF5 may crash on a damaged file.
*/
PetscErrorCode TrsCheckpointTryTensor(const TrsHDF5File *file, const TrsStateTensor *tensor);

/*
  The contribution of a part to the id of its file: XXH3-64 of its row in the table of checksums,
  and of the tensor's name. The id is the sum over all parts, so their order does not matter.
*/
uint64_t TrsCheckpointPartId(const char *tensor, const int64_t row[TRS_CHECKSUM_COLUMNS]);
void TrsCheckpointIdText(uint64_t sum, char id[TRS_FILE_ID_SIZE]);

/* --- writing --- */

/* A tensor of the file: a tensor of the state, or the mean over the columns of such a tensor. */
typedef struct {
  const TrsStateTensor *tensor;
  PetscBool mean;
  const char *path;
  int ndim;
  int64_t rows, cols;
  int64_t element_bytes;
  int64_t n_parts;     /* on rank 0: number of parts of all ranks */
  int64_t sums_offset; /* file offset of the tensor's table of checksums */
  TrsExtent extent;
} TrsCheckpointFileTensor;

/* A part: a rectangle of a tensor that one rank writes. A message sends it as 6 integers. */
typedef struct {
  int64_t tensor, row, col, rows, cols, hash;
} TrsCheckpointPart;

struct TrsCheckpointWriterImpl {
  MPI_Comm comm;
  int rank, size;
  char *path;
  const TrsState *state;
  const TrsCheckpointInfo *info; /* only during TrsCheckpointBegin() */
  TrsOutput *output;             /* as in TrsCheckpointInfo, like id */
  char *id;
  TrsCheckpointStage stage_of_file;
  int n_tensors;
  TrsCheckpointFileTensor *tensor;
  PetscBool has_means;
  int64_t n_parts, capacity;
  TrsCheckpointPart *parts; /* [n_parts] the parts that this rank writes */
  /* [n_parts] the part of the state from which each part is written; NULL for a part of a mean */
  const TrsStatePart **from;
  /* Memory for a piece that is not in memory that the host can read. */
  void *stage;
  int64_t stage_bytes;
  int64_t n_all;          /* number of all ranks' parts, on rank 0 only */
  TrsCheckpointPart *all; /* [n_all] all ranks' parts, sorted by rank */
  /*
    [size] on rank 0: number of integers that each rank sends, and the offset of its first integer
  */
  int *counts, *places;
  TrsAtomicFile file; /* on rank 0 only */
  char *temporary;
  int fd;
  int64_t unflushed; /* bytes that this rank has written since it last flushed them to disk */
  /* For a writer in a thread: other threads set `stop` to end it, and read written_bytes. */
  int stop;
  int64_t written_bytes;
};

/*
  List the tensors of the file: the state's tensors, then the means over columns. List also this
  rank's parts of all tensors, with at most trs_part_bytes each. Not collective.

  Out:    tensor, n_tensors, has_means, parts, data, stride, n_parts
  Errors: INTERNAL for too many parts
*/
PetscErrorCode TrsCheckpointListParts(TrsCheckpointWriter w);

/*
  Gather all ranks' parts on rank 0. It is called a second time when the hashes of the parts are
  known. Collective. Out, on rank 0: all, n_all, counts, places.
*/
PetscErrorCode TrsCheckpointGatherParts(TrsCheckpointWriter w);

/*
  Make the temporary file for the gathered parts, with its whole structure, and reserve all of its
  space. Only rank 0 calls this. The function takes the lock.

  Out:    file, temporary, each tensor's n_parts, extent and sums_offset
  Errors: INTERNAL if the parts do not cover the tensors exactly; CANT_CREATE, IO
*/
PetscErrorCode TrsCheckpointCreateFile(TrsCheckpointWriter w);

/*
  Send the file's layout from rank 0 to the other ranks: the fields temporary and extent.
  Collective.
*/
PetscErrorCode TrsCheckpointBroadcastLayout(TrsCheckpointWriter w);
