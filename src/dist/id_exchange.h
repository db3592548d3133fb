/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The all-to-all of ids. Between ranks of one host, ids are copied once, unchanged. If a
  communicator spans hosts, a rank whose ids all fit int32 sends them as int32, which halves the
  bytes without loss. The ranks exchange their choice together with the counts.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

typedef struct {
  TrsComm comm;
  /*
    The communicator spans hosts, and the host can read the device's memory. The same on all ranks.
  */
  PetscBool packs;
  /* All ranks share memory, so ids can be read in their sender's memory. The same on all ranks. */
  PetscBool views;
  TrsDeviceBuffer sent;
  /* int32 words, block after block */
  TrsBuffer arrived;
  int64_t *send_words, *send_displs, *recv_words, *recv_displs; /* [size] */
  TrsReceivedBlocks recv;                                       /* of the exchange in flight */
  const float **block;                                          /* [size] for a view */
  TrsRequest request;
} TrsIdExchange;

PetscErrorCode TrsIdExchangeInit(TrsComm comm, TrsIdExchange *x);
PetscErrorCode TrsIdExchangeFree(TrsIdExchange *x);

/*
  The number of int32 words that each of this rank's ids needs: 1 or 2. values [n] is device memory.
  Not collective.
*/
int64_t TrsIdExchangeWords(const TrsIdExchange *x, int64_t n, const int64_t *values);

/*
  Start TrsCommAlltoallv() for int64. Collective on comm. Arrays and buffers must stay valid until
  the wait.

  In:  words       this rank's TrsIdExchangeWords()
       peer_words  [size] TrsIdExchangeWords() of the other ranks
*/
PetscErrorCode TrsIdExchangeStart(TrsIdExchange *x, TrsStream stream, TrsSentBlocks send, int64_t words,
                                  TrsReceivedBlocks recv, const int64_t *peer_words);
PetscErrorCode TrsIdExchangeWait(TrsIdExchange *x, TrsStream stream);

/*
  If x->views, these may be called instead of Start, and leave ids in their sender's memory. From
  Arrive until Wait block q begins at TrsIdExchangeBlock(): in rank q's memory, or in recv.
  Collective on comm.
*/
PetscErrorCode TrsIdExchangeView(TrsIdExchange *x, TrsStream stream, TrsSentBlocks send,
                                 TrsReceivedBlocks recv);
PetscErrorCode TrsIdExchangeArrive(TrsIdExchange *x, TrsStream stream);
const int64_t *TrsIdExchangeBlock(const TrsIdExchange *x, int rank);
