/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A relay combines small blocks between hosts. The ranks of host A hand their blocks for host B to
  one rank of A, the *carrier*. The carrier sends these blocks in one message to a carrier of B,
  which distributes them. So the number of messages of a phase grows with the number of hosts, not
  of ranks. Larger blocks are sent without the relay, because each is worth a message. A block that
  all ranks get alike is sent once to each host, which divides its bytes by L as well; it may be
  TRS_RELAY_ALIKE times as large.

  Among H hosts with L ranks each, rank (A + B) mod L of A and of B carries between A and B. Inside
  a host, blocks use the relay's own lanes: `gather` to the carriers, `scatter` from them.

      bundle of a rank for a carrier   for each host that the carrier serves: a parcel
      parcel                           int32 bytes[L] of the blocks for the host's ranks, and the
                                       blocks; one block if they are alike
      message of a carrier             the parcels of its host's ranks, in their order

  A rank knows how many bytes each rank sends to it, so both ends know without communication which
  blocks are relayed.

  Cost per phase and rank: (H - 1) / L messages, instead of (H - 1) L without a relay; each byte is
  copied three times. Memory: address space for the largest messages, at most TRS_RELAY_ROOM, of
  which only the used part is touched.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

enum { TRS_RELAY_ALIKE = 32, TRS_RELAY_ROOM = 1 << 24 };

typedef struct TrsRelayImpl *TrsRelay;

/*
  Set the size of the largest relayed block (-comm_relay_bytes) for communicators that are created
  later. 0: nothing is relayed. everywhere: also relay between few ranks, although it hardly pays.
  Not collective.
*/
void TrsRelayAllow(int64_t most_bytes, PetscBool everywhere);

/*
  TrsRelayCreate - Create a relay among hosts with equally many, consecutive ranks.

  Collective on comm, which is borrowed and counts the messages.

  Out: relay  NULL without a relay: one host, hosts of one rank, no lanes, few ranks elsewhere;
              free with TrsRelayDestroy(), which is collective
*/
PetscErrorCode TrsRelayCreate(TrsComm comm, TrsRelay *relay);
PetscErrorCode TrsRelayDestroy(TrsRelay *relay);

/* Blocks to and from every rank. Displacements and counts are in elements. */
typedef struct {
  const char *send;
  const int64_t *send_counts, *send_displs;
  char *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t elem_bytes;
  PetscBool alike; /* every rank sends the same block to all ranks */
} TrsMpiBlocks;

/*
  A phase in flight. Set it to zero at first; after its release it may be used for another phase.
*/
typedef struct {
  TrsMpiBlocks blocks;
  uint64_t phase;
  int tag;
  PetscBool gathering, scattering; /* true if the phase has entered the lanes of this name */
  PetscBool sent;                  /* the messages are in flight */
  int n_offered, n_taken;          /* number of peers with a bundle seen, and with blocks taken */
  const char **offered;            /* [L] by peer: their bundles; NULL: not yet offered */
  const char **offer, **parcel;    /* [L] scratch */
  PetscBool *taken;                /* [L] by peer */
  /* in shared memory: bundles for the carriers; messages from other hosts */
  TrsDeviceBuffer bundle, messages;
  TrsBuffer outgoing, requests, at; /* for a carrier; at: where each bundle begins in `bundle` */
  int n_requests;
} TrsRelayPhase;

PetscErrorCode TrsRelayPhaseFree(TrsRelay relay, TrsRelayPhase *phase);

/* True if the relay takes a block of this size between this rank and rank q. relay may be NULL. */
PetscBool TrsRelayTakes(TrsRelay relay, const TrsMpiBlocks *blocks, int q, int64_t bytes);

/*
  Start a phase. All ranks must start phases with the same numbers, from 1 on; gaps must be the same
  on all ranks. `tag` distinguishes phases that are in flight together. blocks must stay valid until
  the phase is released. Errors: MEMORY, INTERNAL
*/
PetscErrorCode TrsRelayStart(TrsRelay relay, const TrsMpiBlocks *blocks, uint64_t number, int tag,
                             TrsRelayPhase *phase);

/*
  Continue, without waiting. may_enter: the previous phases in this phase's cells have been entered
  (comm/shared_lanes.h).

  Out: all  this rank's blocks have arrived, and its messages have been sent
*/
PetscErrorCode TrsRelayDrive(TrsRelay relay, TrsRelayPhase *phase, PetscBool may_enter, PetscBool *all);

/* True if the peers have read the data that this rank hands them. */
PetscBool TrsRelayReleased(TrsRelay relay, const TrsRelayPhase *phase);
