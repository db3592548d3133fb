/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchanges of floats that are encoded on the wire. The exchanges of embeddings are built from them.

  With an fp32 codec an exchange is the comm's own operation, straight from and to the buffers.
  Otherwise each rank's block is encoded, travels as bytes and is decoded. Sums are made in fp32, in
  rank order, after decoding.
*/
#pragma once

#include "comm/comm.h"

/*
  Options of the exchange of embeddings and of their gradients. TorchRec divides gradients by
  comm->size; here the loss is scaled at its source (src/RULES.md, section 4).
*/
typedef struct {
  TrsCodec forward, backward; /* kind fp32: not encoded */
  PetscBool given[2];         /* forward, backward: an option chose the codec */
  /*
    Sums are made in the order of the global batch, whatever the split is. The codecs must be fp32.
  */
  PetscBool reproducible;
} TrsPooledDistOptions;

typedef enum { TRS_CODED_ALLTOALLV, TRS_CODED_ALLGATHERV, TRS_CODED_REDUCE_SCATTERV } TrsCodedKind;

/* One exchange at a time. Plain data: Init, then Start and Wait as often as needed, then Free. */
typedef struct {
  TrsComm comm;
  TrsCodec codec;
  TrsRequest request;
  TrsCodedKind kind; /* kind, recv and the next fields belong to the exchange under way */
  float *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t *send_bytes, *send_at, *recv_bytes, *recv_at; /* [size] on the wire */
  int64_t *part_counts, *part_displs;                   /* [size] parts of a sum, decoded */
  const float **part_of;                                /* [size] */
  const float **block;                                  /* [size] where the arrived blocks lie */
  PetscBool *comes_back;                                /* [size] of a start in place */
  TrsDeviceBuffer encoded, arrived, parts, scratch;
} TrsCodedExchange;

PetscErrorCode TrsCodedExchangeInit(TrsComm comm, const TrsCodec *codec, TrsCodedExchange *x);
PetscErrorCode TrsCodedExchangeFree(TrsCodedExchange *x);

/* Can the exchange be left out, because there is one rank and encoding would change nothing? */
PetscBool TrsCodedExchangeStays(const TrsCodedExchange *x);

/*
  Start TrsCommAlltoallv(), TrsCommAllgatherv() or TrsCommReduceScatterv() of floats. Collective on
  comm. Arrays and buffers must live until the wait.
*/
PetscErrorCode TrsCodedAlltoallvStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                      const int64_t *send_counts, const int64_t *send_displs, float *recv,
                                      const int64_t *recv_counts, const int64_t *recv_displs);
PetscErrorCode TrsCodedAllgathervStart(TrsCodedExchange *x, TrsStream stream, const float *send, float *recv,
                                       const int64_t *counts, const int64_t *displs);
PetscErrorCode TrsCodedReduceScattervStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                           const int64_t *counts, float *recv);

/*
  TrsCodedBlocksStart - Start TrsCodedAlltoallvStart(), but leave blocks where this rank can read
  them.

  After TrsCodedBlocksArrive() block q lies at x->block[q] until the wait: in the memory of rank q,
  or in recv. in_place, without a codec: the block may be changed in the memory of rank q
  (TrsCommAlltoallvBlocks), and x->comes_back says which of this rank's blocks are.

  Collective on comm.
*/
PetscErrorCode TrsCodedBlocksStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                   const int64_t *send_counts, const int64_t *send_displs, float *recv,
                                   const int64_t *recv_counts, const int64_t *recv_displs,
                                   PetscBool in_place);
PetscErrorCode TrsCodedBlocksArrive(TrsCodedExchange *x, TrsStream stream);

/*
  Complete an exchange: the receive buffer is ready for later work on the stream. Does nothing if no
  exchange is under way.
*/
PetscErrorCode TrsCodedExchangeWait(TrsCodedExchange *x, TrsStream stream);
