/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The all-to-all of ids. Between ranks of one host, ids are copied once, unchanged. If the ranks of
  a communicator are on several hosts, a rank whose ids all fit into int32 sends them as int32,
  which halves the bytes without loss. Each rank sends the number of words per id to the other ranks
  together with the counts.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

typedef struct {
  TrsComm comm;
  /*
    True if the ranks are on several hosts, and the host can read the device's memory. All ranks
    have the same value.
  */
  PetscBool packs;
  /*
    True if all ranks share memory, so that ids can be read in their sender's memory. All ranks have
    the same value.
  */
  PetscBool views;
  TrsDeviceBuffer sent;
  /* int32 words that have arrived, one block after another */
  TrsBuffer arrived;
  int64_t *send_words, *send_displs, *recv_words, *recv_displs; /* [size] */
  /* the receive buffer of the exchange in flight */
  TrsReceivedBlocks recv;
  /* [size] addresses of the blocks in a view */
  const float **block;
  TrsRequest request;
} TrsIdExchange;

PetscErrorCode TrsIdExchangeInit(TrsComm comm, TrsIdExchange *x);
PetscErrorCode TrsIdExchangeFree(TrsIdExchange *x);

/*
  Return the number of int32 words that each of this rank's ids needs: 1 or 2. values [n] is device
  memory. Not collective.
*/
int64_t TrsIdExchangeWords(const TrsIdExchange *x, int64_t n, const int64_t *values);

/*
  Start TrsCommAlltoallv() for int64. Collective on comm. Arrays and buffers must stay valid until
  the wait.

  In:  words       the result of TrsIdExchangeWords() on this rank
       peer_words  [size] the result of TrsIdExchangeWords() on each rank
*/
PetscErrorCode TrsIdExchangeStart(TrsIdExchange *x, TrsStream stream, TrsSentBlocks send, int64_t words,
                                  TrsReceivedBlocks recv, const int64_t *peer_words);
PetscErrorCode TrsIdExchangeWait(TrsIdExchange *x, TrsStream stream);

/*
  Use these functions instead of TrsIdExchangeStart() to read ids in their senders' memory; x->views
  must be true. Between arrival and wait, block q begins at TrsIdExchangeBlock(), in rank q's memory
  or in recv. Collective on comm.
*/
PetscErrorCode TrsIdExchangeView(TrsIdExchange *x, TrsStream stream, TrsSentBlocks send,
                                 TrsReceivedBlocks recv);
PetscErrorCode TrsIdExchangeArrive(TrsIdExchange *x, TrsStream stream);
const int64_t *TrsIdExchangeBlock(const TrsIdExchange *x, int rank);
