/* SPDX-License-Identifier: BSD-3-Clause */
/* How a rank waits for its peers: between two looks in vain. For the folder's own files. */
#pragma once

#include "comm/comm.h"

/* A wait in vain so far. Begin with {0}. */
typedef struct {
  int n_vain;    /* looks */
  int peer;      /* to wait for: of TrsLanesPeers(); -1: no one of this host */
  uint32_t bell; /* the peer's, before it was looked at */
  double since_s;
} TrsPatience;

/* Peer i is what is waited for, or -1: patience begins anew when that is another one, or has done something. Before looking. Not collective. */
void TrsPatienceLook(TrsComm comm, int i, TrsPatience *patience);

/*
  TrsPatienceRelax - The look was in vain: what other groups of the run have under way moves meanwhile.

  A rank spins for 20 us where every thread has a core; then, or at once where threads outnumber cores, it offers its core to others between
  looks; when that, too, was in vain for a while it sleeps until the peer's bell rings. Why not sleep at once: among ranks that all wait for each
  other a yield takes 2 us, a sleep 20. Why not yield for ever: where another program computes a yield lasts its whole time slice, but who is woken
  goes first. After the spin MPI's own progress is due: a peer may wait for a message of this rank that is no operation of this communicator; so sleep is
  short.

  Not collective.
*/
PetscErrorCode TrsPatienceRelax(TrsComm comm, TrsPatience *patience);
