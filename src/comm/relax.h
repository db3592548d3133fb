/* SPDX-License-Identifier: BSD-3-Clause */
/* How a rank waits for its peers: between two looks in vain. For the folder's own files. */
#pragma once

#include "comm/comm.h"

/* Whom to wait for, and its bell before it was looked at. */
typedef struct {
  int peer; /* of TrsLanesPeers(); -1: no one of this host */
  uint32_t bell;
} TrsAwaited;

/* Peer i is waited for, or -1. Before looking. */
TrsAwaited TrsCommAwait(TrsComm comm, int i);

/*
  TrsCommRelax - Between two looks in vain.

  Where every thread has a core: a short spin, then the core is offered to others. Where threads outnumber cores: a shorter spin, then sleep until
  the peer's bell rings. After the spin MPI's own progress is due: a peer may wait for a message of this rank that is no operation of this
  communicator; so sleep is short.

  Not collective.

  In:  awaited  of before the look
       n_vain   looks in vain so far
*/
PetscErrorCode TrsCommRelax(TrsComm comm, TrsAwaited awaited, int n_vain);
