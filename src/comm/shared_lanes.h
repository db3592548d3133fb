/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lanes between ranks of one host: the receiver copies blocks directly from the sender's memory, or
  adds them without a copy.

  Every phase of an operation has a number, which is the same on all ranks. A rank *offers* its
  blocks of a phase: it writes their addresses and then the phase's number, with release order, to
  its shared memory. A peer that reads the number, with acquire order, may read the block. After
  reading, the peer *returns* the block by writing the number into its own flags. The sender may
  then use the memory again. So each word is written by one rank only. If sender and peer have
  agreed on it, the peer may change a block before it returns the block.

  The flags of a phase are a *cell*. TRS_LANE_CELLS cells form a ring, and phases use them in turn.
  The next phase of a cell may be entered when the peers have returned all blocks of the cell's last
  phase, and this rank has returned the peers' blocks. Until then the caller must try again. A small
  message is copied into its cell, and its sender waits for nobody.

  Numbers that every rank sends to every other rank (*counts*) are posted. Each pair of ranks has
  cache lines of its own, which have the numbers and the exchange's number. So the reader has only
  one cache miss, and need not answer. A post may be overwritten TRS_LANE_FLIGHT exchanges after
  every rank has read it, because a rank that has posted number m has read all posts up to m -
  TRS_LANE_FLIGHT.

  Only TrsLanesNap() waits. Each rank has a *bell*, a number that grows with each action of the rank
  on the lanes. A rank that has waited long sleeps until the peer's bell rings (a futex), so that
  ranks with work can use its core.

  Memory: TRS_LANE_CELLS * (TRS_LANE_SMALL + 128 + 16 for each rank of the host) bytes per
  communicator and 4 KiB of posts for each rank of the host. Only the used part occupies memory.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

enum {
  TRS_LANE_CELLS = 64,
  TRS_LANE_SMALL = 16384, /* bytes of all blocks of a small message together */
  TRS_LANE_FLIGHT = 8,    /* exchanges of counts that may be in flight at the same time */
  TRS_LANE_COUNTS = 31    /* largest number of int64 in a post */
};

typedef struct TrsLanesImpl *TrsLanes;

/*
  Set how many ranks of a host may share memory in communicators that are created later
  (-comm_ranks_per_host); 0: all ranks.
*/
void TrsSharedRanks(int most);

/*
  TrsSharedHost - Create a communicator of the ranks of mpi that may share memory with this rank.

  Collective on mpi. These are the ranks of the host. If TrsSharedRanks() has set a limit, the
  host's ranks are divided into groups of this size, by their ranks in MPI_COMM_WORLD.

  Out:    host  free with MPI_Comm_free()
*/
PetscErrorCode TrsSharedHost(MPI_Comm mpi, MPI_Comm *host);

/*
  TrsLanesCreate - Create the lanes from this rank to the ranks of mpi on the same host.

  Either all ranks get lanes, or no rank does. If a rank cannot have lanes, it reports the reason on
  stderr, unless -comm_shared_memory is false; only the first such rank reports, once in a run.
  Tests set TRSHARD_CROWDED in the environment: 1 means that there are more threads than cores, 0
  that there are not.

  Collective on mpi.

  In:   n_threads  this rank's number of threads
  Out:  lanes      NULL if there are none; free with TrsLanesDestroy()
  Errors: OPTION for another value of TRSHARD_CROWDED
*/
PetscErrorCode TrsLanesCreate(MPI_Comm mpi, int n_threads, TrsLanes *lanes);

/*
  Free the lanes. Collective on the ranks of the host: the function waits until no rank reads the
  shared memory.
*/
PetscErrorCode TrsLanesDestroy(TrsLanes *lanes);

/*
  Return the number of peers, which are the other ranks of mpi on this host, and their ranks, in an
  order that spreads the load. lanes may be NULL.
*/
int TrsLanesPeers(TrsLanes lanes, const int **ranks);

/* True if there is a lane to `rank`. lanes may be NULL. */
PetscBool TrsLanesTo(TrsLanes lanes, int rank);

/*
  True if this phase may be entered now. Then *small becomes the memory for a small message in the
  phase's cell.
*/
PetscBool TrsLanesMayEnter(TrsLanes lanes, uint64_t phase, char **small);

/*
  A rank offers this address instead of a block if it has no shared memory left and sends the block
  as a message.
*/
extern const char trs_lane_by_message[];

/*
  Enter a phase for which TrsLanesMayEnter() has returned true. Peer i of TrsLanesPeers() is offered
  the block at from[i], which must be in shared memory. from[i] may also be trs_lane_by_message, or
  NULL if there is no block for the peer. The functions below may be called only for phases that
  were entered.
*/
void TrsLanesEnter(TrsLanes lanes, uint64_t phase, const char *const *from);

/*
  Return the block that peer i offers to this rank, or trs_lane_by_message. Returns NULL if the peer
  has not yet offered a block.
*/
const char *TrsLanesOffered(TrsLanes lanes, uint64_t phase, int i);

/*
  Return peer i's block, exactly once in each phase. If this rank expects no block from peer i, it
  must return immediately. After a large block the caller must call TrsLanesRing(), because the
  block's sender may be sleeping.
*/
void TrsLanesReturn(TrsLanes lanes, uint64_t phase, int i);

/* True if peer i has returned this rank's block. */
PetscBool TrsLanesReturned(TrsLanes lanes, uint64_t phase, int i);

/*
  Post n <= TRS_LANE_COUNTS numbers for peer i in exchange `number`, counted from 1. In each
  exchange a rank must post to all peers, and then call TrsLanesRing().
*/
void TrsLanesPost(TrsLanes lanes, uint64_t number, int i, int n, const int64_t *values);

/* Return the numbers that peer i posted in an exchange, or NULL if it has not posted yet. */
const int64_t *TrsLanesPosted(TrsLanes lanes, uint64_t number, int i);

/*
  True if the host's ranks together have more threads than cores. All ranks of the host get the same
  result. lanes may be NULL.
*/
PetscBool TrsLanesCrowded(TrsLanes lanes);

/* Ring this rank's bell. TrsLanesEnter() also rings the bell. */
void TrsLanesRing(TrsLanes lanes);

/*
  Read the value of peer i's bell. Must be called before the check for the data that the bell
  announces.
*/
uint32_t TrsLanesBell(TrsLanes lanes, int i);

/*
  Sleep until peer i rings its bell, but at most nap_us microseconds. If the bell has rung since its
  value `bell` was read, do not sleep.
*/
void TrsLanesNap(TrsLanes lanes, int i, uint32_t bell, int nap_us);
