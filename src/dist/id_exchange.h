/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The all-to-all of ids. Between the ranks of one host ids are copied once, as they are. If a
  communicator spans hosts, a rank whose ids all fit sends them as int32, which halves the bytes and
  loses nothing. A rank tells its peers with the counts which form it sends.
*/
#pragma once

#include "comm/comm.h"
#include "core/buffer.h"

typedef struct {
  TrsComm comm;
  /* The communicator spans hosts, in memory that the host reads. The same on all ranks. */
  PetscBool packs;
  /* All ranks share memory: ids may be read where they lie. The same on all ranks. */
  PetscBool views;
  TrsDeviceBuffer sent;
  /* int32 words, one block after the other */
  TrsBuffer arrived;
  int64_t *send_words, *send_displs, *recv_words, *recv_displs; /* [size] */
  int64_t *recv; /* recv and the next fields belong to the exchange under way */
  const int64_t *recv_counts, *recv_at;
  const float **block; /* [size] of a view */
  TrsRequest request;
} TrsIdExchange;

PetscErrorCode TrsIdExchangeInit(TrsComm comm, TrsIdExchange *x);
PetscErrorCode TrsIdExchangeFree(TrsIdExchange *x);

/*
  The int32 words that an id of this rank needs: 1 or 2. values [n] lies on the device. Not
  collective.
*/
int64_t TrsIdExchangeWords(const TrsIdExchange *x, int64_t n, const int64_t *values);

/*
  Start TrsCommAlltoallv() of int64. Collective on comm. Arrays and buffers must live until the
  wait.

  In:  words       this rank's TrsIdExchangeWords()
       peer_words  [size] TrsIdExchangeWords() of the other ranks
*/
PetscErrorCode TrsIdExchangeStart(TrsIdExchange *x, TrsStream stream, const int64_t *send,
                                  const int64_t *send_counts, const int64_t *send_at, int64_t words,
                                  int64_t *recv, const int64_t *recv_counts, const int64_t *recv_at,
                                  const int64_t *peer_words);
PetscErrorCode TrsIdExchangeWait(TrsIdExchange *x, TrsStream stream);

/*
  In place of Start, where x->views: leave ids where they lie. After Arrive block q begins at
  TrsIdExchangeBlock() until the Wait: in the memory of rank q, or in recv. Collective on comm.
*/
PetscErrorCode TrsIdExchangeView(TrsIdExchange *x, TrsStream stream, const int64_t *send,
                                 const int64_t *send_counts, const int64_t *send_at, int64_t *recv,
                                 const int64_t *recv_counts, const int64_t *recv_at);
PetscErrorCode TrsIdExchangeArrive(TrsIdExchange *x, TrsStream stream);
const int64_t *TrsIdExchangeBlock(const TrsIdExchange *x, int rank);
