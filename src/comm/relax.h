/* SPDX-License-Identifier: BSD-3-Clause */
/* The wait of a rank for its peers, after each look in vain. For the files of this folder. */
#pragma once

#include "comm/comm.h"

/* The state of a wait. Begin with {0}. */
typedef struct {
  int n_vain;    /* looks in vain so far */
  int peer;      /* the peer that is waited for, of TrsLanesPeers(); -1: none of this host */
  uint32_t bell; /* the peer's bell, read before the look */
  double since_s;
} TrsPatience;

/*
  Prepare a look at peer i, or at no peer with -1. The patience begins anew if the peer is another
  one, or has done something. Call it before looking. Not collective.
*/
void TrsPatienceLook(TrsComm comm, int i, TrsPatience *patience);

/*
  TrsPatienceRelax - Relax after a look in vain. Operations of the run's other communicators move
  meanwhile.

  A rank spins for 20 us if every thread has a core. After that, or at once if threads outnumber
  cores, the rank offers its core to others between looks. After some more looks in vain the rank
  sleeps until the peer's bell rings.

  Why not sleep at once: among ranks that all wait for each other a yield takes 2 us, a sleep 20.
  Why not yield for ever: if another program computes, a yield lasts its whole time slice, but a
  thread that is woken goes first. After the spin MPI's own progress is due: a peer may wait for a
  message of this rank outside of this communicator's operations. So the sleep is short.

  Not collective.
*/
PetscErrorCode TrsPatienceRelax(TrsComm comm, TrsPatience *patience);
