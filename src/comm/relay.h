/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A relay combines small blocks between H hosts with L ranks each. The ranks of host A give their
  blocks for host B to one rank of A, the *carrier*. The carrier sends these blocks in one message
  to a carrier of B, which distributes them. So the number of messages of a phase grows with the
  number of hosts instead of ranks.

  Blocks of more than -comm_relay_bytes are sent without the relay, each as a message. If a rank
  sends the same block to all ranks, the relay sends this block only once to each host, so a host
  receives 1 / L of the bytes. Therefore the limit for such blocks is TRS_RELAY_ALIKE times
  -comm_relay_bytes.

  The carriers between hosts A and B are rank (A + B) mod L of A and rank (A + B) mod L of B. Inside
  a host, the relay has its own lanes: blocks go to the carriers through `gather`, and from the
  carriers to the other ranks through `scatter`.

      bundle of a rank for a carrier   for each host that the carrier serves: a parcel
      parcel                           int32 bytes[L] of the blocks for the host's ranks, and the
                                       blocks; only one block if all are the same
      message of a carrier             the parcels of its host's ranks, in their order

  A rank knows how many bytes each rank sends to it. So sender and receiver both know, without
  communication, which blocks are relayed.

  In a phase, a rank sends (H - 1) / L messages on average, instead of (H - 1) L without a relay.
  Each byte is copied three times. The relay reserves address space for the largest messages, at
  most TRS_RELAY_ROOM bytes. Only the used part occupies memory.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

enum { TRS_RELAY_ALIKE = 32, TRS_RELAY_ROOM = 1 << 24 };

typedef struct TrsRelayImpl *TrsRelay;

/*
  Set the size of the largest relayed block (-comm_relay_bytes) for communicators that are created
  later. If it is 0, nothing is relayed. If `everywhere` is true, blocks are relayed even between
  few ranks, where a relay saves hardly any time. Not collective.
*/
void TrsRelayAllow(int64_t most_bytes, PetscBool everywhere);

/*
  TrsRelayCreate - Create a relay among hosts with equally many, consecutive ranks.

  Collective on comm, which is borrowed and counts the messages.

  Out: relay  free with TrsRelayDestroy(), which is collective. NULL if a relay does not help: there
              is only one host, hosts have one rank or no lanes, or other hosts have few ranks
*/
PetscErrorCode TrsRelayCreate(TrsComm comm, TrsRelay *relay);
PetscErrorCode TrsRelayDestroy(TrsRelay *relay);

/*
  Blocks from this rank to every rank, and from every rank to this rank. Displacements and counts
  are in elements.
*/
typedef struct {
  const char *send;
  const int64_t *send_counts, *send_displs;
  char *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t elem_bytes;
  PetscBool alike; /* every rank sends the same block to all ranks */
} TrsMpiBlocks;

/*
  A phase that has started. Set it to zero before its first use. After its release it may be used
  for another phase.
*/
typedef struct {
  TrsMpiBlocks blocks;
  uint64_t phase;
  int tag;
  /* true if the phase has entered the lanes `gather`, or `scatter` */
  PetscBool gathering, scattering;
  PetscBool sent; /* the messages to other hosts have started */
  /* number of peers whose bundle was seen; number of carriers whose blocks were copied */
  int n_offered, n_taken;
  /* [L] address of each local rank's bundle; NULL if it was not yet offered */
  const char **offered;
  const char **offer, **parcel; /* [L] scratch */
  PetscBool *taken;             /* [L] true if this carrier's blocks were copied */
  /* In shared memory: this rank's bundles for the carriers, and the messages from other hosts. */
  TrsDeviceBuffer bundle, messages;
  /* used by a carrier; `at` has the offset of each bundle in `bundle` */
  TrsBuffer outgoing, requests, at;
  int n_requests;
} TrsRelayPhase;

PetscErrorCode TrsRelayPhaseFree(TrsRelay relay, TrsRelayPhase *phase);

/* True if the relay sends a block of this size between this rank and rank q. relay may be NULL. */
PetscBool TrsRelayTakes(TrsRelay relay, const TrsMpiBlocks *blocks, int q, int64_t bytes);

/*
  Start a phase. Phases are numbered from 1; the ranks must use the same numbers, and may skip the
  same numbers. `tag` distinguishes phases that are in flight at the same time. blocks must stay
  valid until the phase is released. Errors: MEMORY, INTERNAL
*/
PetscErrorCode TrsRelayStart(TrsRelay relay, const TrsMpiBlocks *blocks, uint64_t number, int tag,
                             TrsRelayPhase *phase);

/*
  Advance a phase, without waiting. may_enter must be true only if the previous phases in this
  phase's cells have been entered (comm/shared_lanes.h).

  Out: all  true if all blocks for this rank have arrived, and its messages have been sent
*/
PetscErrorCode TrsRelayDrive(TrsRelay relay, TrsRelayPhase *phase, PetscBool may_enter, PetscBool *all);

/* True if the peers have read all data that this rank has offered to them. */
PetscBool TrsRelayReleased(TrsRelay relay, const TrsRelayPhase *phase);
