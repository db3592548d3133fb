/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchanges of floats that are encoded on the wire: what the exchanges of embeddings are made of.

  With an fp32 codec these are the comm's own operations, straight from and to the buffers. Otherwise each
  rank's block is encoded, travels as bytes and is decoded; sums are made in fp32, in rank order, after
  decoding.
*/
#pragma once

#include "comm/comm.h"

/*
  How an exchange of embeddings and that of their gradients is made. TorchRec divides gradients by
  comm->size; here the loss is scaled at its source (src/RULES.md, section 4).
*/
typedef struct {
  TrsCodec forward, backward; /* kind fp32: none */
  PetscBool reproducible; /* sums in the order of the global batch, whatever the split; codecs must be fp32 */
} TrsPooledDistOptions;

typedef enum { TRS_CODED_ALLTOALLV, TRS_CODED_ALLGATHERV, TRS_CODED_REDUCE_SCATTERV } TrsCodedKind;

/* One exchange at a time. Plain data: Init, then Start and Wait as often as wanted, Free. */
typedef struct {
  TrsComm comm;
  TrsCodec codec;
  TrsRequest request;
  TrsCodedKind kind; /* of the one under way, like the following */
  float *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t *send_bytes, *send_at, *recv_bytes, *recv_at; /* [size] on the wire */
  int64_t *part_counts, *part_displs;                   /* [size] decoded parts of a sum */
  const float **part_of;                                /* [size] */
  const float **block;                                  /* [size] where what came lies */
  TrsDeviceBuffer encoded, arrived, parts, scratch;
} TrsCodedExchange;

PetscErrorCode TrsCodedExchangeInit(TrsComm comm, const TrsCodec *codec, TrsCodedExchange *x);
PetscErrorCode TrsCodedExchangeFree(TrsCodedExchange *x);

/* Is there nothing to exchange, and nothing that encoding would change? */
PetscBool TrsCodedExchangeStays(const TrsCodedExchange *x);

/*
  As TrsCommAlltoallv(), TrsCommAllgatherv(), TrsCommReduceScatterv() of floats. Collective on comm; arrays
  and buffers live until the wait.
*/
PetscErrorCode TrsCodedAlltoallvStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                      const int64_t *send_counts, const int64_t *send_displs, float *recv,
                                      const int64_t *recv_counts, const int64_t *recv_displs);
PetscErrorCode TrsCodedAllgathervStart(TrsCodedExchange *x, TrsStream stream, const float *send, float *recv,
                                       const int64_t *counts, const int64_t *displs);
PetscErrorCode TrsCodedReduceScattervStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                           const int64_t *counts, float *recv);

/*
  TrsCodedBlocksStart - TrsCodedAlltoallvStart() for who can read blocks where they lie.

  TrsCodedBlocksArrive says where: x->block[q], in memory of rank q or in recv, until the wait. Collective on comm.
*/
PetscErrorCode TrsCodedBlocksStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                   const int64_t *send_counts, const int64_t *send_displs, float *recv,
                                   const int64_t *recv_counts, const int64_t *recv_displs);
PetscErrorCode TrsCodedBlocksArrive(TrsCodedExchange *x, TrsStream stream);

/*
  Complete: the receive buffer is ready for what comes next on the stream. Nothing to do when nothing is under
  way.
*/
PetscErrorCode TrsCodedExchangeWait(TrsCodedExchange *x, TrsStream stream);
