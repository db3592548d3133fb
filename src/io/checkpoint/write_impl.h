/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declarations that the files which write a checkpoint share: the list of rectangles that each rank
  writes (checkpoint_parts.c), the file's layout by rank 0 (checkpoint_layout.c), and the writing
  (checkpoint_write.c). Internal to io/.
*/
#pragma once

#include "io/atomic_file.h"
#include "io/checkpoint/impl.h"

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
  TrsCheckpointPart *parts; /* [n_parts] parts of this rank */
  const char **data;        /* [n_parts] first element in memory, or NULL for a mean */
  int64_t *stride;          /* [n_parts] in bytes */
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
  file: those of the state, then the means over columns. Not collective.

  Out:    tensor, n_tensors, has_means, parts, data, stride, n_parts
  Errors: INTERNAL for too many parts
*/
PetscErrorCode TrsCheckpointListParts(TrsCheckpointWriter *w);

/*
  Gather all ranks' parts on rank 0. This is called again when the hashes are known. Collective.
  Out, on rank 0: all, n_all, counts, places.
*/
PetscErrorCode TrsCheckpointGatherParts(TrsCheckpointWriter *w);

/*
  Make the temporary file with its structure and all its space from the gathered parts. Only rank 0
  calls this. Takes the lock.

  Out:    file, temporary, each tensor's n_parts, extent and sums_offset
  Errors: INTERNAL if the parts do not make up the tensors; CANT_CREATE, IO
*/
PetscErrorCode TrsCheckpointCreateFile(TrsCheckpointWriter *w);

/* Tell the other ranks the file's layout: temporary and the extents. Collective. */
PetscErrorCode TrsCheckpointBroadcastLayout(TrsCheckpointWriter *w);
