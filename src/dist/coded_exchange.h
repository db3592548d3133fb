/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchanges of floats that are encoded on the wire. The exchanges of embeddings are built from them.
  With an fp32 codec an exchange is the comm's own operation, directly between the buffers.
  Otherwise each rank's block is encoded, travels as bytes and is decoded. Sums are made in fp32, in
  rank order, after decoding.
*/
#pragma once

#include "comm/comm.h"

/*
  Options for the exchange of embeddings and their gradients. TorchRec divides gradients by
  comm->size; here the loss is scaled at its source (src/RULES.md, section 4).
*/
typedef struct {
  TrsCodec forward, backward; /* kind fp32: not encoded */
  PetscBool given[2];         /* forward, backward: true if an option chose the codec */
  /* Sums are made in the order of the global batch, for every split. The codecs must be fp32. */
  PetscBool reproducible;
} TrsPooledDistOptions;

typedef enum { TRS_CODED_ALLTOALLV, TRS_CODED_ALLGATHERV, TRS_CODED_REDUCE_SCATTERV } TrsCodedKind;

/*
  Data of an exchange. Call Init, then Start and Wait as often as needed, then Free. Only one
  exchange may be in flight.
*/
typedef struct {
  TrsComm comm;
  TrsCodec codec;
  TrsRequest request;
  TrsCodedKind kind; /* kind, recv and the next fields describe the exchange in flight */
  TrsReceivedBlocks recv;
  int64_t *send_bytes, *send_at, *recv_bytes, *recv_at; /* [size] encoded blocks */
  int64_t *part_counts, *part_displs;                   /* [size] decoded parts of a sum */
  const float **part_of;                                /* [size] */
  const float **block;                                  /* [size] where the arrived blocks lie */
  PetscBool *comes_back;                                /* [size] for a start in place */
  TrsDeviceBuffer encoded, arrived, parts, scratch;
} TrsCodedExchange;

PetscErrorCode TrsCodedExchangeInit(TrsComm comm, const TrsCodec *codec, TrsCodedExchange *x);
PetscErrorCode TrsCodedExchangeFree(TrsCodedExchange *x);

/* True if there is one rank and encoding would change nothing, so that no exchange is needed. */
PetscBool TrsCodedExchangeStays(const TrsCodedExchange *x);

/*
  Start TrsCommAlltoallv(), TrsCommAllgatherv() or TrsCommReduceScatterv() for floats. Collective on
  comm. Arrays and buffers must stay valid until the wait.
*/
PetscErrorCode TrsCodedAlltoallvStart(TrsCodedExchange *x, TrsStream stream, TrsSentBlocks send,
                                      TrsReceivedBlocks recv);
PetscErrorCode TrsCodedAllgathervStart(TrsCodedExchange *x, TrsStream stream, const float *send, float *recv,
                                       const int64_t *counts, const int64_t *displs);
PetscErrorCode TrsCodedReduceScattervStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                           const int64_t *counts, float *recv);

/*
  TrsCodedBlocksStart - As TrsCodedAlltoallvStart(), but leave blocks where this rank can read them.

  After TrsCodedBlocksArrive(), and until the wait, block q lies at x->block[q], in rank q's memory
  or in recv. in_place (without a codec): the block may be changed in rank q's memory
  (TrsCommAlltoallvBlocks), and x->comes_back marks this rank's blocks that other ranks may change.

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
