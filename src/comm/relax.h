/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's wait for its peers, after each unsuccessful check. Only for the files of this folder. */
#pragma once

#include "comm/comm.h"

/* The state of a wait. Begin with {0}. */
typedef struct {
  int n_vain;    /* unsuccessful checks so far */
  int peer;      /* the awaited peer, an index of TrsLanesPeers(); -1: no peer on this host */
  uint32_t bell; /* the peer's bell, read before the check */
  double since_s;
} TrsPatience;

/*
  Prepare a check of peer i (-1: no peer). The patience starts again if the peer is a different one
  or has rung its bell. Call it before checking. Not collective.
*/
void TrsPatienceLook(TrsComm comm, int i, TrsPatience *patience);

/*
  TrsPatienceRelax - Wait a little after an unsuccessful check. The run's other communicators make
  progress meanwhile.

  If every thread has a core, a rank spins for 20 us. After that, or at once if threads outnumber
  cores, the rank offers its core to others between checks. After some more checks the rank sleeps
  until the peer's bell rings.

  Why not sleep at once: among ranks that all wait for each other, a yield takes 2 us, a sleep 20.
  Why not yield for ever: if another program computes, a yield lasts its whole time slice, but a
  thread that is woken goes first. After the spin MPI's own progress is due: a peer may wait for a
  message of this rank outside of this communicator's operations. So the sleep is short.

  Not collective.
*/
PetscErrorCode TrsPatienceRelax(TrsComm comm, TrsPatience *patience);
