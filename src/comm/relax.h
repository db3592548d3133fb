/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A rank waits for a peer by repeated checks; after each unsuccessful check it calls these
  functions. Only for the files of this folder.
*/
#pragma once

#include "comm/comm.h"

/* The state of a wait. Start a wait with {0}. */
typedef struct {
  int n_vain;    /* number of unsuccessful checks so far */
  int peer;      /* the peer to wait for, an index of TrsLanesPeers(); -1: a rank of another host */
  uint32_t bell; /* the value of the peer's bell before the check */
  double since_s;
} TrsPatience;

/*
  Prepare a check for data of peer i (-1: a rank of another host). Must be called before each check.
  If the peer has changed or has rung its bell, the count of unsuccessful checks starts again. Not
  collective.
*/
void TrsPatienceLook(TrsComm comm, int i, TrsPatience *patience);

/*
  TrsPatienceRelax - Wait a short time after an unsuccessful check. Meanwhile the run's other
    communicators make progress.

  If every thread has a core, a rank first spins for 20 us. If there are more threads than cores, it
  does not spin. In the next checks, the rank yields its core after each check. After some more
  time, it sleeps until the peer's bell rings.

  The rank does not sleep immediately, because among ranks that all wait for each other a yield
  takes 2 us and a sleep 20 us. It does not yield forever, because a yield to another program that
  computes lasts that program's whole time slice, whereas a thread that is woken runs immediately.
  The sleep is short, because MPI must also make progress: a peer may be waiting for a message of
  this rank that does not belong to this communicator's operations.

  Not collective.
*/
PetscErrorCode TrsPatienceRelax(TrsComm comm, TrsPatience *patience);
