/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Small blocks between hosts travel together. The ranks of host A hand their blocks for host B to
  one rank of A, the *carrier*. It sends them in one message to a carrier of B, which hands them
  out. So the messages of a phase grow with the number of hosts and not with that of ranks. Larger
  blocks are worth a message each and are none of the relay's concern. A block that all ranks get
  alike goes once to each host, which divides its bytes by L, too. It may be TRS_RELAY_ALIKE times
  as large.

  Of H hosts with L ranks each, rank (A + B) mod L of A and of B carries between A and B. Inside a
  host blocks go by lanes of the relay's own: `gather` to the carriers, `scatter` from them.

      bundle of a rank for a carrier   for each host that it carries to: a parcel
      parcel                           int32 bytes[L] of the blocks for the host's ranks, and the
                                       blocks; one, if they are alike
      message of a carrier             the parcels of its host's ranks, in their order

  A rank knows how many bytes each rank sends to it. So both ends know without a word which blocks
  travel here, and a parcel tells the rest.

  Cost per phase and rank: (H - 1) / L messages, where without a relay there are (H - 1) L; each
  byte is copied three times. Memory: address space for the largest messages, at most
  TRS_RELAY_ROOM, of which the part that is used is touched.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

enum { TRS_RELAY_ALIKE = 32, TRS_RELAY_ROOM = 1 << 24 };

typedef struct TrsRelayImpl *TrsRelay;

/*
  Set the largest block that is relayed (-comm_relay_bytes), for communicators that are created
  later. 0: nothing is relayed. everywhere: also between few ranks, where it hardly pays. Not
  collective.
*/
void TrsRelayAllow(int64_t most_bytes, PetscBool everywhere);

/*
  TrsRelayCreate - Create a relay among hosts of equally many, consecutive ranks.

  Collective on comm, which is borrowed and counts the messages.

  Out: relay  NULL where there is none: one host, hosts of one rank, no lanes, few ranks elsewhere;
              free with TrsRelayDestroy(), collective
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
  PetscBool alike; /* every rank sends one block, the same to all ranks */
} TrsMpiBlocks;

/* A phase under way. Begin with zeros; a phase after the last one's release may use it again. */
typedef struct {
  TrsMpiBlocks blocks;
  uint64_t phase;
  int tag;
  PetscBool gathering, scattering;  /* has entered the lanes of this name */
  PetscBool sent;                   /* the messages are under way */
  int n_offered, n_taken;           /* peers whose bundle was seen, and whose blocks were taken */
  const char **offered;             /* [L] by peer, their bundles; NULL: not yet */
  const char **offer, **parcel;     /* [L] scratch */
  PetscBool *taken;                 /* [L] by peer */
  TrsDeviceBuffer bundle, messages; /* in shared memory: for the carriers; from other hosts */
  TrsBuffer outgoing, requests, at; /* of a carrier; where each bundle begins in `bundle` */
  int n_requests;
} TrsRelayPhase;

PetscErrorCode TrsRelayPhaseFree(TrsRelay relay, TrsRelayPhase *phase);

/* Does a block of so many bytes between this rank and rank q go by the relay? relay may be NULL. */
PetscBool TrsRelayTakes(TrsRelay relay, const TrsMpiBlocks *blocks, int q, int64_t bytes);

/*
  Start a phase: every rank starts those of the same numbers, from 1 on, with gaps that are the same
  on all ranks. `tag` tells phases apart that are under way together. blocks must stay until the
  phase is released. Errors: MEMORY, INTERNAL
*/
PetscErrorCode TrsRelayStart(TrsRelay relay, const TrsMpiBlocks *blocks, uint64_t number, int tag,
                             TrsRelayPhase *phase);

/*
  Go on, without waiting. may_enter: the phases of the lanes' cells of this phase were entered
  (comm/shared_lanes.h).

  Out: all  the blocks for this rank are in their places, and its messages have left
*/
PetscErrorCode TrsRelayDrive(TrsRelay relay, TrsRelayPhase *phase, PetscBool may_enter, PetscBool *all);

/* Have the peers read what this rank hands them? */
PetscBool TrsRelayReleased(TrsRelay relay, const TrsRelayPhase *phase);
