/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchanges of floats, which may be encoded while they travel. The exchanges of embeddings consist
  of them. With an fp32 codec, an exchange is an operation of the communicator, directly between the
  buffers. With other codecs, each block is encoded, sent as bytes and decoded. Sums are then
  computed in fp32, in rank order, after decoding.
*/
#pragma once

#include "comm/comm.h"

/*
  Options for the exchange of embeddings and their gradients. TorchRec divides gradients by
  comm->size; here the loss itself is scaled (src/RULES.md, section 4).
*/
typedef struct {
  TrsCodec forward, backward; /* if the kind is fp32, values are not encoded */
  PetscBool given[2];         /* [forward, backward] true if an option chose the codec */
  /* If true, sums are added in the order of the global batch, whatever the number of ranks is.
     The codecs must be fp32. */
  PetscBool reproducible;
} TrsPooledDistOptions;

typedef enum { TRS_CODED_ALLTOALLV, TRS_CODED_ALLGATHERV, TRS_CODED_REDUCE_SCATTERV } TrsCodedKind;

/*
  Data of an exchange. First call TrsCodedExchangeInit(), then start and wait as often as necessary,
  and finally call TrsCodedExchangeFree(). Only one exchange may be in flight.
*/
typedef struct {
  TrsComm comm;
  TrsCodec codec;
  TrsRequest request;
  TrsCodedKind kind; /* kind, recv and the next fields describe the exchange in flight */
  TrsReceivedBlocks recv;
  /* [size] bytes and positions of encoded blocks */
  int64_t *send_bytes, *send_at, *recv_bytes, *recv_at;
  /* [size] counts and positions of decoded parts of a sum */
  int64_t *part_counts, *part_displs;
  const float **part_of; /* [size] */
  /* [size] addresses of the blocks that have arrived */
  const float **block;
  /* [size] used if the exchange was started in place */
  PetscBool *comes_back;
  TrsDeviceBuffer encoded, arrived, parts, scratch;
} TrsCodedExchange;

PetscErrorCode TrsCodedExchangeInit(TrsComm comm, const TrsCodec *codec, TrsCodedExchange *x);
PetscErrorCode TrsCodedExchangeFree(TrsCodedExchange *x);

/*
  True if there is only one rank, and encoding would not change the values. An exchange is then not
  necessary.
*/
PetscBool TrsCodedExchangeStays(const TrsCodedExchange *x);

/*
  Start TrsCommAlltoallv(), TrsCommAllgatherv() or TrsCommReduceScatterv() for floats, with
  encoding. Collective on comm. Arrays and buffers must stay valid until the wait.
*/
PetscErrorCode TrsCodedAlltoallvStart(TrsCodedExchange *x, TrsStream stream, TrsSentBlocks send,
                                      TrsReceivedBlocks recv);
PetscErrorCode TrsCodedAllgathervStart(TrsCodedExchange *x, TrsStream stream, const float *send, float *recv,
                                       const int64_t *counts, const int64_t *displs);
PetscErrorCode TrsCodedReduceScattervStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                           const int64_t *counts, float *recv);

/*
  TrsCodedBlocksStart - Start an exchange like TrsCodedAlltoallvStart(), but do not copy blocks that
    this rank can read in their senders' memory.

  Between TrsCodedBlocksArrive() and the wait, block q is at x->block[q], in rank q's memory or in
  recv. If in_place is set, which requires that blocks are not encoded, the block may be changed in
  rank q's memory (TrsCommAlltoallvBlocks). x->comes_back then marks the blocks of this rank that
  other ranks may change.

  Collective on comm.
*/
PetscErrorCode TrsCodedBlocksStart(TrsCodedExchange *x, TrsStream stream, TrsSentBlocks send,
                                   TrsReceivedBlocks recv, PetscBool in_place);
PetscErrorCode TrsCodedBlocksArrive(TrsCodedExchange *x, TrsStream stream);

/*
  Complete an exchange: later work on the stream may use the receive buffer. Does nothing if no
  exchange is in flight.
*/
PetscErrorCode TrsCodedExchangeWait(TrsCodedExchange *x, TrsStream stream);
