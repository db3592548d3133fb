/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lanes between ranks of one host: the receiver copies, or adds, directly from the sender's memory.

  Every phase of an operation has a number, the same on all ranks. A rank *offers* its blocks of a
  phase: it writes their addresses to its shared memory, then the phase's number, with release
  order. A peer that reads the number, with acquire order, may read the block. After reading, the
  peer *returns* the block by writing the number into its own flags, and the sender may use the
  memory again. So each word has one writer. If sender and peer have agreed on it, the peer may
  change a block before it returns the block.

  The flags of a phase are a *cell*. TRS_LANE_CELLS cells form a ring, and phases use them in turn.
  The next phase of a cell may be entered when all blocks of the cell's last phase have been
  returned, by the peers and to them. Until then the caller must try again. A small message is
  copied into its cell, and its sender waits for nobody.

  Numbers that every rank sends to every other rank (*counts*) are posted: they are stored beside
  the exchange's number in separate lines for each pair, so the reader misses one line and need not
  answer. A post may be overwritten TRS_LANE_FLIGHT exchanges after every rank has read it, because
  a rank that has posted number m has read all posts up to m - TRS_LANE_FLIGHT.

  Only TrsLanesNap() waits. Each rank has a *bell*, a number that grows with each of the rank's
  actions here. A rank that has waited long naps until the peer's bell rings (a futex), so that the
  core is free for ranks that have work.

  Memory: TRS_LANE_CELLS * (TRS_LANE_SMALL + 128 + 16 for each rank of the host) bytes per
  communicator and 4 KiB of posts for each rank of the host, touched as used.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

enum {
  TRS_LANE_CELLS = 64,
  TRS_LANE_SMALL = 16384, /* total size of the blocks of a small message */
  TRS_LANE_FLIGHT = 8,    /* exchanges of counts in flight at a time */
  TRS_LANE_COUNTS = 31    /* largest number of int64 in a post */
};

typedef struct TrsLanesImpl *TrsLanes;

/*
  Set the largest number of a host's ranks that share memory from now on (-comm_ranks_per_host); 0:
  all.
*/
void TrsSharedRanks(int most);

/*
  TrsSharedHost - Create a communicator of the ranks of mpi that may share memory with this rank.

  Collective on mpi. These are the host's ranks, in groups of TrsSharedRanks() by their ranks in the
  world.

  Out:    host  free with MPI_Comm_free()
*/
PetscErrorCode TrsSharedHost(MPI_Comm mpi, MPI_Comm *host);

/*
  TrsLanesCreate - Create the lanes from this rank to the ranks of mpi on the same host.

  All ranks get lanes, or none does. Without lanes the lowest rank that lacks them reports the
  reason on stderr, once in a run, unless -comm_shared_memory is false. Tests set TRSHARD_CROWDED in
  the environment: 1 means more threads than cores, 0 does not.

  Collective on mpi.

  In:   n_threads  this rank's number of threads
  Out:  lanes      NULL if there are none; free with TrsLanesDestroy()
  Errors: OPTION for another value of this variable
*/
PetscErrorCode TrsLanesCreate(MPI_Comm mpi, int n_threads, TrsLanes *lanes);

/* Collective on the ranks of the host: waits for them, because they may still read. */
PetscErrorCode TrsLanesDestroy(TrsLanes *lanes);

/*
  The peers: the other ranks of mpi on this host, in an order that spreads the load. lanes may be
  NULL.
*/
int TrsLanesPeers(TrsLanes lanes, const int **ranks);

/* True if there is a lane to this rank. lanes may be NULL. */
PetscBool TrsLanesTo(TrsLanes lanes, int rank);

/*
  True if this phase may be entered now. *small is then the room for a small message in the phase's
  cell.
*/
PetscBool TrsLanesMayEnter(TrsLanes lanes, uint64_t phase, char **small);

/* The offer of a block that is sent as a message, because its sender has no shared memory left. */
extern const char trs_lane_by_message[];

/*
  Enter a phase that may be entered. Peer i of TrsLanesPeers() is offered the block at from[i],
  which must be in shared memory. from[i] may be trs_lane_by_message, or NULL if there is no block
  for the peer. The functions below are for phases that were entered.
*/
void TrsLanesEnter(TrsLanes lanes, uint64_t phase, const char *const *from);

/* The block that peer i offers this rank, or trs_lane_by_message. NULL: no offer yet. */
const char *TrsLanesOffered(TrsLanes lanes, uint64_t phase, int i);

/*
  Return peer i's block, exactly once in each phase. If no block is expected, return it at once.
  Call TrsLanesRing() after a large block, because its sender may sleep until then.
*/
void TrsLanesReturn(TrsLanes lanes, uint64_t phase, int i);

/* True if peer i has returned this rank's block. */
PetscBool TrsLanesReturned(TrsLanes lanes, uint64_t phase, int i);

/*
  Post n <= TRS_LANE_COUNTS numbers for peer i in exchange `number`, counted from 1. Each exchange
  must post to all peers, and then call TrsLanesRing().
*/
void TrsLanesPost(TrsLanes lanes, uint64_t number, int i, int n, const int64_t *values);

/* The numbers that peer i posted in an exchange. NULL: not posted yet. */
const int64_t *TrsLanesPosted(TrsLanes lanes, uint64_t number, int i);

/*
  True if the host's ranks have more threads than cores. The result is the same on all of them.
  lanes may be NULL.
*/
PetscBool TrsLanesCrowded(TrsLanes lanes);

/* Ring this rank's bell. TrsLanesEnter() also rings it. */
void TrsLanesRing(TrsLanes lanes);

/* Read peer i's bell. Must be called before checking for what the bell announces. */
uint32_t TrsLanesBell(TrsLanes lanes, int i);

/*
  Sleep until peer i rings, at most nap_us microseconds. Does not sleep if the bell has rung since
  `bell` was read.
*/
void TrsLanesNap(TrsLanes lanes, int i, uint32_t bell, int nap_us);
