/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lanes between ranks of one host: the receiver copies, or adds, straight from the sender's memory.

  Every phase of an operation has a number, the same on all ranks. A rank *offers* its blocks of a phase: it writes where they lie in its
  shared memory, then the phase's number, with release order. A peer that reads the number, with acquire order, may read the block; when it
  has, it *returns* the block by writing the number into its own flags, and the sender may use the memory again. So each word has one writer,
  and peers map each other's memory to read only.

  The flags of TRS_LANE_SLOTS phases stand in a ring. A slot's next phase is entered when all blocks of its last one have been returned, by
  the peers and to them; until then the caller tries again. A small message is copied into its slot, and its sender waits for nobody.

  Numbers that every rank tells every other one (*counts*) are posted: they stand beside their number in lines of their own for each pair, so
  the reader misses one line and answers nothing. A post may be overwritten TRS_LANE_FLIGHT exchanges after every rank has read it, because
  whoever has posted number m has read all posts up to m - TRS_LANE_FLIGHT.

  Nothing here waits but TrsLanesNap(). Each rank has a *bell*, a number that grows with all it does here: who has waited long naps until the
  peer's bell rings (a futex), so that the core is free for those who have work.

  Memory: TRS_LANE_SLOTS * (TRS_LANE_SMALL + 128 + 16 for each rank of the host) bytes a communicator and 4 KiB of posts for each rank of the
  host, touched as used.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

enum {
  TRS_LANE_SLOTS = 64,
  TRS_LANE_SMALL = 16384, /* bytes of all blocks of a small message */
  TRS_LANE_FLIGHT = 8,    /* exchanges of counts under way at a time */
  TRS_LANE_COUNTS = 31    /* int64 that a post can have */
};

typedef struct TrsLanesImpl *TrsLanes;

/*
  TrsLanesCreate - Lanes of this rank to the ranks of mpi on the same host.

  Collective on mpi. All ranks get lanes, or none does: then rank 0 says why on stderr, once in a run, unless -comm_shared_memory false.

  In:   n_threads  of this rank
  Out:  lanes      NULL where there are none; free with TrsLanesDestroy()
  Errors: OPTION for a bad variable in the environment, with which tests choose: TRSHARD_SHARED_RANKS, the most ranks that share memory;
          TRSHARD_CROWDED, 1: as if there were more threads than cores, 0: as if there were not
*/
PetscErrorCode TrsLanesCreate(MPI_Comm mpi, int n_threads, TrsLanes *lanes);

/* Collective on the ranks of the host: waits for them, who may still read. */
PetscErrorCode TrsLanesDestroy(TrsLanes *lanes);

/* Peers: ranks of mpi, this one excluded, in an order that spreads the load. lanes may be NULL. */
int TrsLanesPeers(TrsLanes lanes, const int **ranks);

/* Is there a lane to this rank? lanes may be NULL. */
PetscBool TrsLanesTo(TrsLanes lanes, int rank);

/* May this phase be entered yet? Then *small is the slot's room for a small message. */
PetscBool TrsLanesMayEnter(TrsLanes lanes, uint64_t phase, char **small);

/* Stands for a block that comes as a message, because its sender had no shared memory left. */
extern const char trs_lane_by_message[];

/*
  Enter a phase that may be entered: offer peer i of TrsLanesPeers() the block at from[i], in shared memory; or trs_lane_by_message; NULL where
  there is none for it. What follows is for phases entered.
*/
void TrsLanesEnter(TrsLanes lanes, uint64_t phase, const char *const *from);

/* The block that peer i offers this rank, or trs_lane_by_message; NULL until it does. */
const char *TrsLanesOffered(TrsLanes lanes, uint64_t phase, int i);

/* Return peer i's block, once in each phase; at once where none is expected. TrsLanesRing() after a large one, whose sender may sleep until then. */
void TrsLanesReturn(TrsLanes lanes, uint64_t phase, int i);

/* Has peer i returned this rank's block? */
PetscBool TrsLanesReturned(TrsLanes lanes, uint64_t phase, int i);

/* Post n <= TRS_LANE_COUNTS numbers for peer i: exchange `number`, from 1 on. All peers are posted to in each exchange, then TrsLanesRing(). */
void TrsLanesPost(TrsLanes lanes, uint64_t number, int i, int n, const int64_t *values);

/* What peer i posted in that exchange; NULL until it does. */
const int64_t *TrsLanesPosted(TrsLanes lanes, uint64_t number, int i);

/* Have the threads of the host's ranks more than a core each? The same on all of them; lanes may be NULL. */
PetscBool TrsLanesCrowded(TrsLanes lanes);

/* Ring this rank's bell. TrsLanesEnter() does. */
void TrsLanesRing(TrsLanes lanes);

/* Peer i's bell: read it before what it announces is looked for. */
uint32_t TrsLanesBell(TrsLanes lanes, int i);

/* Sleep until peer i rings, at most nap_us microseconds; not at all when it has rung since `bell` was read. */
void TrsLanesNap(TrsLanes lanes, int i, uint32_t bell, int nap_us);
