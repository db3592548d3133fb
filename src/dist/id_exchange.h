/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The all-to-all of ids. Between the ranks of one host they go as they are, in one copy. Where a group spans hosts, a rank whose ids all fit sends
  them as int32, half of the bytes: nothing is lost, whatever the ids are, and each rank tells its peers with the counts how it does.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

typedef struct {
  TrsComm comm;
  PetscBool packs; /* does the group span hosts, in memory that the host reads? The same on all ranks */
  TrsDeviceBuffer sent;
  TrsBuffer arrived;                                            /* int32 words, blocks one after the other */
  int64_t *send_words, *send_displs, *recv_words, *recv_displs; /* [size] */
  int64_t *recv; /* of the exchange under way, like the following */
  const int64_t *recv_counts, *recv_at;
  TrsRequest request;
} TrsIdExchange;

PetscErrorCode TrsIdExchangeInit(TrsComm comm, TrsIdExchange *x);
PetscErrorCode TrsIdExchangeFree(TrsIdExchange *x);

/* int32 words an id that this rank will send needs: 1 or 2. values [n] on the device. Not collective. */
int64_t TrsIdExchangeWords(const TrsIdExchange *x, int64_t n, const int64_t *values);

/*
  As TrsCommAlltoallv() of int64. Collective on comm; arrays and buffers live until the wait.

  In:  words       this rank's TrsIdExchangeWords()
       peer_words  [size] theirs
*/
PetscErrorCode TrsIdExchangeStart(TrsIdExchange *x, TrsStream stream, const int64_t *send,
                                  const int64_t *send_counts, const int64_t *send_at, int64_t words,
                                  int64_t *recv, const int64_t *recv_counts, const int64_t *recv_at,
                                  const int64_t *peer_words);
PetscErrorCode TrsIdExchangeWait(TrsIdExchange *x, TrsStream stream);
