/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One phase of an operation of the mpi backend: each rank sends a block to each rank. Blocks travel
  by lanes inside a host and by messages between hosts. If the host cannot read the device's memory,
  they are copied through pinned memory. Only comm_mpi.c uses this file.
*/
#pragma once

#include "comm/chunks.h"
#include "comm/comm.h"
#include "comm/relay.h"
#include "core/buffer.h"

enum { TRS_MPI_PHASES = 2 }; /* largest number of phases of an operation */

typedef enum { TRS_MPI_EXCHANGE, TRS_MPI_REDUCE_SCATTER, TRS_MPI_ALLREDUCE } TrsMpiRequestKind;

typedef struct TrsMpiRequest {
  struct TrsRequestImpl base;
  struct TrsMpiRequest *next; /* next in the list of active or unused requests */
  /*
    The previous piece of the same operation, which is waited for and recycled together with this
    request. NULL if there is none.
  */
  struct TrsMpiRequest *earlier;
  TrsMpiRequestKind kind;
  TrsStream stream;
  int tag, phase, last_phase; /* last_phase is the operation's last phase */
  PetscBool done;
  TrsMpiBlocks blocks; /* the blocks of the current phase */
  int n_pending;
  TrsBuffer pending;     /* MPI requests that are not yet complete */
  TrsChunks chunks;      /* used by a sum or an all-gather */
  TrsDeviceBuffer parts; /* all ranks' values of this rank's chunk, if they are not read in place */
  const char *source;    /* for a sum: the values that travel */
  int64_t elem_bytes;    /* for a sum: bytes of one value */
  float *target;         /* for a sum: where the sums are written */
  TrsCodec codec;        /* for an allreduce; if fp32, values travel as floats */
  TrsDeviceBuffer encoded;
  TrsPinnedBuffer send_stage, recv_stage;
  /* The following fields are used if the host has lanes. */
  /* number: index of the operation on its communicator; lane_phase: number of this phase on the
     lanes */
  uint64_t number, lane_phase;
  PetscBool entered, small; /* if small, the blocks travel in the lanes' cell */
  /*
    True if shared memory is full. The blocks then travel as messages, and the offer in the lanes'
    cell informs the peers.
  */
  PetscBool by_message;
  /*
    [size] array of the caller; it becomes the addresses of blocks that are not copied. If NULL, all
    blocks are copied
  */
  const float **view;
  /*
    [size] array of the caller; it becomes true for blocks that peers may change in this rank's
    memory. If NULL, peers only read blocks
  */
  PetscBool *comes_back;
  PetscBool *taken; /* [peers] true if the peer's block was processed */
  int n_to_take;
  /* [peers] address of the block that is offered to the peer */
  const char **offer;
  /* address of displacement 0 of the sent data in shared memory */
  const char *lane_send;
  /* copy of the sent blocks, if they are not in shared memory */
  TrsDeviceBuffer lane_copy;
  TrsBuffer late_parts;                  /* values of a sum that peers send as messages */
  TrsRelayPhase relayed[TRS_MPI_PHASES]; /* small blocks from and to other hosts, in each phase */
  PetscBool relay_done;
} TrsMpiRequest;

typedef struct {
  MPI_Comm mpi;
  int64_t max_bytes; /* largest size of one message */
  uint64_t n_started;
  TrsRelay relay; /* NULL if every block for another host is a message of its own */
  TrsMpiRequest *active, **active_end, *free;
  TrsDeviceBuffer decoded; /* decoded values of one chunk, until they are added */
} TrsMpiData;

/* True if the values of a sum travel encoded. */
PetscBool TrsMpiIsCoded(const TrsMpiRequest *request);

/*
  True if the values that arrive in this phase are then added. Values of peers on lanes stay in the
  peers' memory, at request->chunks.part_of.
*/
PetscBool TrsMpiIsSum(const TrsMpiRequest *request);

/*
  True if a sum reads this rank's own values in their array. False if a device would write the sum
  to this array, because a device may not read what it overwrites.
*/
PetscBool TrsMpiOwnPartStays(const TrsMpiRequest *request);

/* Start the phase request->blocks, and copy this rank's own block while the messages travel. */
PetscErrorCode TrsMpiBlocksStart(TrsMpiRequest *request);

/*
  Process the data that has arrived, without waiting. `all` becomes true if the phase is complete,
  although peers may still read this rank's data on lanes.
*/
PetscErrorCode TrsMpiBlocksDrive(TrsMpiRequest *request, PetscBool *all);

/*
  Copy the data of messages that have arrived from pinned memory to the device. Does nothing if the
  host can read the device's memory.
*/
PetscErrorCode TrsMpiBlocksUnstage(TrsMpiRequest *request);

/* Return the peers' blocks, after they were added or viewed in the peers' memory. */
PetscErrorCode TrsMpiPartsReturn(TrsMpiRequest *request);

/* Find a peer on lanes for which the phase waits. Returns -1 if there is none. */
int TrsMpiBlocksAwaited(const TrsMpiRequest *request);

/* True if all peers have read the data that this rank sent. */
PetscBool TrsMpiBlocksReleased(const TrsMpiRequest *request);
