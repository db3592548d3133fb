/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One phase of an operation of the mpi backend: blocks between all pairs of ranks. They travel by
  lanes inside a host and by messages across hosts. They are staged if the host cannot read the
  device's memory. For comm_mpi.c alone.
*/
#pragma once

#include "comm/chunks.h"
#include "comm/comm.h"
#include "comm/relay.h"
#include "core/buffer.h"

enum { TRS_MPI_PHASES = 2 }; /* most phases of an operation */

typedef enum { TRS_MPI_EXCHANGE, TRS_MPI_REDUCE_SCATTER, TRS_MPI_ALLREDUCE } TrsMpiRequestKind;

typedef struct TrsMpiRequest {
  struct TrsRequestImpl base;
  struct TrsMpiRequest *next; /* in the list of active or of free requests */
  /*
    The piece of the same operation that was started before. It is waited for and given back with
    this request. NULL: none.
  */
  struct TrsMpiRequest *earlier;
  TrsMpiRequestKind kind;
  TrsStream stream;
  int tag, phase, last_phase; /* last_phase: of an allreduce */
  PetscBool done;
  TrsMpiBlocks blocks; /* blocks of the current phase */
  int n_pending;
  TrsBuffer pending;     /* array of MPI_Request */
  TrsChunks chunks;      /* for a reduction or an all-gather */
  TrsDeviceBuffer parts; /* the values that the ranks have for this rank's chunk */
  const char *source;    /* reduction: the values that travel */
  int64_t elem_bytes;    /* reduction: bytes of one value */
  float *target;         /* reduction: where the sums go */
  TrsCodec codec;        /* used by an allreduce; fp32: the values travel as floats */
  TrsDeviceBuffer encoded;
  TrsPinnedBuffer send_stage, recv_stage;
  /* The fields from here on are for lanes. */
  /* number of the operation on its communicator, number of its phase */
  uint64_t number, lane_phase;
  PetscBool entered, small; /* small: the blocks travel in the lanes' cell itself */
  /*
    No shared memory is left: the blocks travel as messages, and the lanes' cell tells the peers so.
  */
  PetscBool by_message;
  /*
    [size] array of the caller, set to where blocks stay without being copied; NULL: all are copied
  */
  const float **view;
  /*
    [size] array of the caller, set to whether peers change blocks in this rank's memory; NULL: they
    only read them
  */
  PetscBool *comes_back;
  PetscBool *taken; /* [peers] */
  int n_to_take;
  const char **offer;                    /* [peers] */
  const char *lane_send;                 /* where displacement 0 lies in shared memory */
  TrsDeviceBuffer lane_copy;             /* copy of blocks that do not lie in shared memory */
  TrsBuffer late_parts;                  /* parts of a sum that peers send as messages */
  TrsRelayPhase relayed[TRS_MPI_PHASES]; /* small blocks from and to other hosts */
  PetscBool relay_done;
} TrsMpiRequest;

typedef struct {
  MPI_Comm mpi;
  int64_t max_bytes; /* largest size of one message */
  uint64_t n_started;
  TrsRelay relay; /* NULL: every block of another host's rank is a message */
  TrsMpiRequest *active, **active_end, *free;
  TrsDeviceBuffer decoded; /* parts of one chunk, until they are added */
} TrsMpiData;

/* Do the values of a sum travel encoded? */
PetscBool TrsMpiIsCoded(const TrsMpiRequest *request);

/*
  Does the phase bring values that are then added? Values of peers on lanes stay in the peers'
  memory: request->chunks.part_of.
*/
PetscBool TrsMpiIsSum(const TrsMpiRequest *request);

/*
  A sum reads this rank's own part in its own place. The exception is a sum that is made in this
  place by a device, which may not read what it overwrites.
*/
PetscBool TrsMpiOwnPartStays(const TrsMpiRequest *request);

/*
  Start the phase request->blocks. This rank's own part is copied while the messages are under way.
*/
PetscErrorCode TrsMpiBlocksStart(TrsMpiRequest *request);

/*
  Take the data that has arrived, without waiting. all: the phase is complete, apart from data that
  this rank sends by lanes.
*/
PetscErrorCode TrsMpiBlocksDrive(TrsMpiRequest *request, PetscBool *all);

/*
  Copy the data of arrived messages from the stage to the device. Does nothing if the host reads the
  device's memory.
*/
PetscErrorCode TrsMpiBlocksUnstage(TrsMpiRequest *request);

/* Return the blocks that lie in the peers' memory, after they were added or viewed. */
PetscErrorCode TrsMpiPartsReturn(TrsMpiRequest *request);

/* A peer on lanes that the phase waits for; -1: none. */
int TrsMpiBlocksAwaited(const TrsMpiRequest *request);

/* Have all peers read the data that this rank sent? */
PetscBool TrsMpiBlocksReleased(const TrsMpiRequest *request);
