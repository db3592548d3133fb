/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lanes between ranks of one host: the receiver copies, or adds, straight from the sender's memory.

  Every phase of an operation has a number, the same on all ranks. A rank *offers* its blocks of a
  phase: it writes where they lie in its shared memory, then the phase's number, with release order.
  A peer that reads the number, with acquire order, may read the block. After reading, the peer
  *returns* the block by writing the number into its own flags, and the sender may use the memory
  again. So each word has one writer. A peer may change a block before it returns it, where sender
  and peer have agreed on that: then the block comes back changed.

  The flags of a phase are a *cell*. TRS_LANE_CELLS cells form a ring, and phases use them in turn.
  The next phase of a cell is entered when all blocks of the cell's last phase have been returned,
  by the peers and to them. Until then the caller tries again. A small message is copied into its
  cell, and its sender waits for nobody.

  Numbers that every rank tells every other one (*counts*) are posted: they stand beside their
  number in lines of their own for each pair, so the reader misses one line and answers nothing. A
  post may be overwritten TRS_LANE_FLIGHT exchanges after every rank has read it, because a rank
  that has posted number m has read all posts up to m - TRS_LANE_FLIGHT.

  Only TrsLanesNap() waits. Each rank has a *bell*, a number that grows whenever the rank does
  something here. A rank that has waited long naps until the peer's bell rings (a futex), so that
  the core is free for ranks that have work.

  Memory: TRS_LANE_CELLS * (TRS_LANE_SMALL + 128 + 16 for each rank of the host) bytes a
  communicator and 4 KiB of posts for each rank of the host, touched as used.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

enum {
  TRS_LANE_CELLS = 64,
  TRS_LANE_SMALL = 16384, /* bytes of all blocks of a small message */
  TRS_LANE_FLIGHT = 8,    /* exchanges of counts under way at a time */
  TRS_LANE_COUNTS = 31    /* most int64 of a post */
};

typedef struct TrsLanesImpl *TrsLanes;

/* The most ranks of a host that share memory from now on (-comm_ranks_per_host); 0: all. */
void TrsSharedRanks(int most);

/*
  TrsSharedHost - The ranks of mpi that may share memory with this one, as a communicator.

  Collective on mpi. Those of the host, in groups of TrsSharedRanks() by their ranks in the world.
  Out:    host  free with MPI_Comm_free()
*/
PetscErrorCode TrsSharedHost(MPI_Comm mpi, MPI_Comm *host);

/*
  TrsLanesCreate - Create the lanes of this rank to the ranks of mpi on the same host.

  All ranks get lanes, or none does. Without lanes rank 0 says why on stderr, once in a run, unless
  -comm_shared_memory is false. Tests set TRSHARD_CROWDED in the environment: 1 is as if there were
  more threads than cores, 0 as if there were not.

  Collective on mpi.

  In:   n_threads  of this rank
  Out:  lanes      NULL if there are none; free with TrsLanesDestroy()
  Errors: OPTION for another value of this variable
*/
PetscErrorCode TrsLanesCreate(MPI_Comm mpi, int n_threads, TrsLanes *lanes);

/* Collective on the ranks of the host: waits for them, because they may still read. */
PetscErrorCode TrsLanesDestroy(TrsLanes *lanes);

/*
  The peers: the ranks of mpi on this host without this one, in an order that spreads the load.
  lanes may be NULL.
*/
int TrsLanesPeers(TrsLanes lanes, const int **ranks);

/* Is there a lane to this rank? lanes may be NULL. */
PetscBool TrsLanesTo(TrsLanes lanes, int rank);

/*
  May this phase be entered yet? If so, *small is the room for a small message in the phase's cell.
*/
PetscBool TrsLanesMayEnter(TrsLanes lanes, uint64_t phase, char **small);

/* The offer of a block that comes as a message, because its sender had no shared memory left. */
extern const char trs_lane_by_message[];

/*
  Enter a phase that may be entered. Peer i of TrsLanesPeers() is offered the block at from[i], in
  shared memory. from[i] may be trs_lane_by_message, or NULL if there is no block for the peer. The
  functions below are for phases that were entered.
*/
void TrsLanesEnter(TrsLanes lanes, uint64_t phase, const char *const *from);

/* The block that peer i offers this rank, or trs_lane_by_message. NULL: no offer yet. */
const char *TrsLanesOffered(TrsLanes lanes, uint64_t phase, int i);

/*
  Return peer i's block, once in each phase. If no block is expected, return it at once. Call
  TrsLanesRing() after a large block, because its sender may sleep until then.
*/
void TrsLanesReturn(TrsLanes lanes, uint64_t phase, int i);

/* Has peer i returned this rank's block? */
PetscBool TrsLanesReturned(TrsLanes lanes, uint64_t phase, int i);

/*
  Post n <= TRS_LANE_COUNTS numbers for peer i in exchange `number`, counted from 1. Each exchange
  posts to all peers, and then calls TrsLanesRing().
*/
void TrsLanesPost(TrsLanes lanes, uint64_t number, int i, int n, const int64_t *values);

/* The numbers that peer i posted in an exchange. NULL: no post yet. */
const int64_t *TrsLanesPosted(TrsLanes lanes, uint64_t number, int i);

/*
  Do the ranks of the host have more threads than cores? The answer is the same on all of them.
  lanes may be NULL.
*/
PetscBool TrsLanesCrowded(TrsLanes lanes);

/* Ring this rank's bell. TrsLanesEnter() does so, too. */
void TrsLanesRing(TrsLanes lanes);

/* Read peer i's bell. Read it before looking for what the bell announces. */
uint32_t TrsLanesBell(TrsLanes lanes, int i);

/*
  Sleep until peer i rings, at most nap_us microseconds. Does not sleep if the bell has rung since
  `bell` was read.
*/
void TrsLanesNap(TrsLanes lanes, int i, uint32_t bell, int nap_us);
