/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One phase of an operation of the mpi backend: blocks between all pairs of ranks. They travel by
  lanes inside a host and by messages across hosts, and are staged if the host cannot read the
  device's memory. Only for comm_mpi.c.
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
  struct TrsMpiRequest *next; /* in the list of active or free requests */
  /*
    The previous piece of the same operation. It is waited for and recycled with this request. NULL:
    none.
  */
  struct TrsMpiRequest *earlier;
  TrsMpiRequestKind kind;
  TrsStream stream;
  int tag, phase, last_phase; /* last_phase: for an allreduce */
  PetscBool done;
  TrsMpiBlocks blocks; /* blocks of the current phase */
  int n_pending;
  TrsBuffer pending;     /* array of MPI_Request */
  TrsChunks chunks;      /* for a reduction or an all-gather */
  TrsDeviceBuffer parts; /* the ranks' values of this rank's chunk */
  const char *source;    /* reduction: the values that travel */
  int64_t elem_bytes;    /* reduction: bytes of one value */
  float *target;         /* reduction: where the sums go */
  TrsCodec codec;        /* for an allreduce; fp32: values travel as floats */
  TrsDeviceBuffer encoded;
  TrsPinnedBuffer send_stage, recv_stage;
  /* The following fields are for lanes. */
  /* number of the operation on its communicator, number of its phase */
  uint64_t number, lane_phase;
  PetscBool entered, small; /* small: the blocks travel in the lanes' cell */
  /*
    Shared memory is full, so the blocks travel as messages; the lanes' cell says so to the peers.
  */
  PetscBool by_message;
  /*
    [size] array of the caller, set to the addresses of blocks that are not copied; NULL: all blocks
    are copied
  */
  const float **view;
  /*
    [size] array of the caller, set to true for blocks that peers may change in this rank's memory;
    NULL: peers only read blocks
  */
  PetscBool *comes_back;
  PetscBool *taken; /* [peers] */
  int n_to_take;
  const char **offer;                    /* [peers] */
  const char *lane_send;                 /* address of displacement 0 in shared memory */
  TrsDeviceBuffer lane_copy;             /* copy of blocks that are not in shared memory */
  TrsBuffer late_parts;                  /* parts of a sum that peers send as messages */
  TrsRelayPhase relayed[TRS_MPI_PHASES]; /* small blocks from and to other hosts */
  PetscBool relay_done;
} TrsMpiRequest;

typedef struct {
  MPI_Comm mpi;
  int64_t max_bytes; /* largest size of one message */
  uint64_t n_started;
  TrsRelay relay; /* NULL: every block for another host is a message */
  TrsMpiRequest *active, **active_end, *free;
  TrsDeviceBuffer decoded; /* decoded parts of one chunk, until they are added */
} TrsMpiData;

/* True if the values of a sum travel encoded. */
PetscBool TrsMpiIsCoded(const TrsMpiRequest *request);

/*
  True if the phase brings values that are then added. Values of peers on lanes stay in the peers'
  memory: request->chunks.part_of.
*/
PetscBool TrsMpiIsSum(const TrsMpiRequest *request);

/*
  True if a sum reads this rank's own part in its place. False if a device would store the sum
  there, because it may not read what it overwrites.
*/
PetscBool TrsMpiOwnPartStays(const TrsMpiRequest *request);

/* Start the phase request->blocks, and copy this rank's own part while the messages travel. */
PetscErrorCode TrsMpiBlocksStart(TrsMpiRequest *request);

/*
  Take arrived data, without waiting. all: the phase is complete, except that peers may still read
  this rank's data on lanes.
*/
PetscErrorCode TrsMpiBlocksDrive(TrsMpiRequest *request, PetscBool *all);

/*
  Copy the data of arrived messages from the stage to the device. Does nothing if the host can read
  the device's memory.
*/
PetscErrorCode TrsMpiBlocksUnstage(TrsMpiRequest *request);

/* Return the blocks in the peers' memory, after they have been added or viewed. */
PetscErrorCode TrsMpiPartsReturn(TrsMpiRequest *request);

/* A peer on lanes that the phase waits for; -1: none. */
int TrsMpiBlocksAwaited(const TrsMpiRequest *request);

/* True if all peers have read the data that this rank sent. */
PetscBool TrsMpiBlocksReleased(const TrsMpiRequest *request);
