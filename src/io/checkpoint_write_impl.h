/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What the parts of writing a checkpoint share: who writes which rectangle (checkpoint_parts.c), the file as rank 0 lays it out
  (checkpoint_layout.c), and the writing (checkpoint_write.c). Internal to io/.
*/
#pragma once

#include "io/atomic_file.h"
#include "io/checkpoint_impl.h"

/* A tensor of the file: one of the state's, or the mean over one's columns. */
typedef struct {
  const TrsStateTensor *tensor;
  PetscBool mean;
  const char *path;
  int ndim;
  int64_t rows, cols;
  int64_t element_bytes;
  int64_t n_parts;     /* rank 0: over all ranks */
  int64_t sums_offset; /* of its checksum table in the file */
  TrsExtent extent;
} TrsCheckpointFileTensor;

/* A rectangle that this rank writes: on the wire as 6 integers. */
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
  TrsCheckpointPart *parts; /* [n_parts] this rank's */
  const char **data;        /* [n_parts] first element in memory; NULL: a mean */
  int64_t *stride;          /* [n_parts] bytes */
  void *stage;              /* of parts that the host cannot read: at most trs_part_bytes, or one row */
  int64_t stage_bytes;
  int64_t n_all;          /* rank 0 */
  TrsCheckpointPart *all; /* [n_all] by rank */
  int *counts, *places;   /* rank 0: [size] integers of each rank */
  TrsAtomicFile file;     /* rank 0 */
  char *temporary;
  int fd;
} TrsCheckpointWriter;

/*
  This rank's parts of all tensors, of trs_part_bytes at most, and the tensors of the file: the state's, then the means over columns.
  Not collective. Out: tensor, n_tensors, has_means, parts, data, stride, n_parts. Errors: INTERNAL, too many parts
*/
PetscErrorCode TrsCheckpointListParts(TrsCheckpointWriter *w);

/* All ranks' parts to rank 0; called again when the hashes are known. Collective. Out, on rank 0: all, n_all, counts, places */
PetscErrorCode TrsCheckpointGatherParts(TrsCheckpointWriter *w);

/*
  The temporary file with its structure and all its space, from the gathered parts. Rank 0 alone; takes the lock.
  Out: file, temporary, each tensor's n_parts, extent and sums_offset.
  Errors: INTERNAL when the parts do not make up the tensors; CANT_CREATE, IO
*/
PetscErrorCode TrsCheckpointCreateFile(TrsCheckpointWriter *w);

/* What the other ranks must know of that: temporary and the extents. Collective. */
PetscErrorCode TrsCheckpointBroadcastLayout(TrsCheckpointWriter *w);
