/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One phase of an operation of the mpi backend: blocks between all pairs of ranks, by lanes inside a host and by messages across hosts,
  staged where the host cannot read the device's memory. For comm_mpi.c alone.
*/
#pragma once

#include "comm/chunks.h"
#include "comm/comm.h"
#include "comm/shared_lanes.h"
#include "core/buffer.h"

enum { TRS_MPI_PHASES = 2 }; /* that an operation has at most */

typedef enum { TRS_MPI_EXCHANGE, TRS_MPI_REDUCE_SCATTER, TRS_MPI_ALLREDUCE } TrsMpiRequestKind;

/* Blocks to and from every rank; displacements and counts in elements. */
typedef struct {
  const char *send;
  const int64_t *send_counts, *send_displs;
  char *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t elem_bytes;
} TrsMpiBlocks;

typedef struct TrsMpiRequest {
  struct TrsRequestImpl base;
  struct TrsMpiRequest *next; /* in the list of active or of free ones */
  struct TrsMpiRequest
      *earlier; /* the piece before it of the same operation: waited for and given back with it; NULL: none */
  TrsMpiRequestKind kind;
  TrsStream stream;
  int tag, phase, last_phase; /* last_phase: of an allreduce */
  PetscBool done;
  TrsMpiBlocks blocks; /* of the current phase */
  int n_pending;
  TrsBuffer pending;     /* MPI_Request */
  TrsChunks chunks;      /* of a reduction, or of what is gathered */
  TrsDeviceBuffer parts; /* what the ranks have for my chunk */
  const char *source;    /* of a reduction: what travels, */
  int64_t elem_bytes;    /* of one value, */
  float *target;         /* and where the sums go */
  TrsCodec codec;        /* of an allreduce; fp32: its values travel as they are */
  TrsDeviceBuffer encoded;
  TrsPinnedBuffer send_stage, recv_stage;
  /* lanes */
  uint64_t number, lane_phase; /* of the operation on its communicator; of its phase */
  PetscBool entered, small;    /* small: the blocks travel in the slot */
  PetscBool
      by_message; /* no shared memory is left: they travel as messages, which the peers are told in the slot */
  const float **view; /* [size] the caller's, told where blocks stay, which are not copied; NULL: all are */
  PetscBool *taken;   /* [peers] */
  int n_to_take;
  const char **offer;        /* [peers] */
  const char *lane_send;     /* where displacement 0 is in shared memory */
  TrsDeviceBuffer lane_copy; /* of blocks that are not there */
  TrsBuffer late_parts;      /* parts of a sum that peers send as messages */
} TrsMpiRequest;

typedef struct {
  MPI_Comm mpi;
  int64_t max_bytes; /* of one message */
  uint64_t n_started;
  TrsMpiRequest *active, **active_end, *free;
  TrsDeviceBuffer decoded; /* parts of one chunk, until they are added */
} TrsMpiData;

/* Do the values of a sum travel encoded? */
PetscBool TrsMpiIsCoded(const TrsMpiRequest *request);

/* Does the phase bring values that are then added? Those of peers on lanes stay where they are: request->chunks.part_of. */
PetscBool TrsMpiIsSum(const TrsMpiRequest *request);

/* Such a sum reads the own part where it is, unless it is made there by a device that may not do that. */
PetscBool TrsMpiOwnPartStays(const TrsMpiRequest *request);

/* Start request->blocks. The own part is copied while the messages are under way. */
PetscErrorCode TrsMpiBlocksStart(TrsMpiRequest *request);

/* Take what has arrived, without waiting. all: the phase is complete, but for what was sent by lanes. */
PetscErrorCode TrsMpiBlocksDrive(TrsMpiRequest *request, PetscBool *all);

/* What arrived by messages goes from the stage to the device; nothing where the host reads its memory. */
PetscErrorCode TrsMpiBlocksUnstage(TrsMpiRequest *request);

/* After a sum, or a look at blocks that stayed: what lies in the peers' memory is returned. */
PetscErrorCode TrsMpiPartsReturn(TrsMpiRequest *request);

/* A peer on lanes that the phase waits for; -1: none. */
int TrsMpiBlocksAwaited(const TrsMpiRequest *request);

/* Has everyone read what was sent? */
PetscBool TrsMpiBlocksReleased(const TrsMpiRequest *request);
