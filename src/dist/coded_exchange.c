/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/coded_exchange.h"

#include "comm/qcomm.h"

PetscErrorCode TrsCodedExchangeInit(TrsComm comm, const TrsCodec *codec, TrsCodedExchange *x)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  *x = (TrsCodedExchange){.comm = comm, .codec = *codec};
  PetscCall(PetscCalloc1(6 * size, &x->send_bytes));
  x->send_at = x->send_bytes + size;
  x->recv_bytes = x->send_bytes + 2 * size;
  x->recv_at = x->send_bytes + 3 * size;
  x->part_counts = x->send_bytes + 4 * size;
  x->part_displs = x->send_bytes + 5 * size;
  PetscCall(PetscMalloc1(size, &x->part_of));
  PetscCall(PetscMalloc1(size, &x->block));
  PetscCall(PetscMalloc1(size, &x->comes_back));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedExchangeFree(TrsCodedExchange *x)
{
  PetscFunctionBegin;
  if (!x->comm) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->encoded));
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->arrived));
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->parts));
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->scratch));
  PetscCall(PetscFree(x->send_bytes));
  PetscCall(PetscFree(x->part_of));
  PetscCall(PetscFree(x->block));
  PetscCall(PetscFree(x->comes_back));
  *x = (TrsCodedExchange){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsCodedExchangeStays(const TrsCodedExchange *x)
{
  return (PetscBool)(x->comm->size == 1 && x->codec.kind == TRS_CODEC_FP32);
}

/*
  Compute the positions of encoded blocks, which lie one after another; block q has counts[q]
  values. Returns the bytes of all blocks.
*/
static int64_t place_on_wire(const TrsCodedExchange *x, const int64_t *counts, int64_t *bytes, int64_t *at)
{
  int64_t n = 0;

  for (int q = 0; q < x->comm->size; q++) {
    bytes[q] = TrsQcommBytes(x->comm->compute, &x->codec, counts[q]);
    at[q] = n;
    n += bytes[q];
  }
  return n;
}

/* Encode the blocks for all ranks, and start the exchange of their bytes. */
static PetscErrorCode start_encoded(TrsCodedExchange *x, TrsStream stream, TrsSentBlocks send)
{
  const TrsComm comm = x->comm;
  const int64_t n_sent = place_on_wire(x, send.counts, x->send_bytes, x->send_at);
  const int64_t n_received = place_on_wire(x, x->recv.counts, x->recv_bytes, x->recv_at);

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(comm->device, &x->encoded, n_sent));
  PetscCall(TrsDeviceBufferReserve(comm->device, &x->arrived, n_received));
  for (int q = 0; q < comm->size; q++)
    PetscCall(TrsQcommEncode(comm, stream, &x->codec, send.counts[q],
                             (const float *)send.data + send.displs[q],
                             (char *)x->encoded.data + x->send_at[q], &x->scratch));
  PetscCall(TrsCommAlltoallv(comm, stream, (TrsSentBlocks){x->encoded.data, x->send_bytes, x->send_at},
                             (TrsReceivedBlocks){x->arrived.data, x->recv_bytes, x->recv_at}, 1,
                             &x->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedAlltoallvStart(TrsCodedExchange *x, TrsStream stream, TrsSentBlocks send,
                                      TrsReceivedBlocks recv)
{
  PetscFunctionBegin;
  x->kind = TRS_CODED_ALLTOALLV;
  x->recv = recv;
  if (x->codec.kind == TRS_CODEC_FP32)
    PetscCall(TrsCommAlltoallv(x->comm, stream, send, recv, (int64_t)sizeof(float), &x->request));
  else
    PetscCall(start_encoded(x, stream, send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedBlocksStart(TrsCodedExchange *x, TrsStream stream, TrsSentBlocks send,
                                   TrsReceivedBlocks recv, PetscBool in_place)
{
  PetscFunctionBegin;
  if (x->codec.kind == TRS_CODEC_FP32) {
    x->kind = TRS_CODED_ALLTOALLV;
    PetscCall(TrsCommAlltoallvBlocks(x->comm, stream, send, recv,
                                     (TrsBlockView){x->block, in_place ? x->comes_back : NULL}, &x->request));
  } else {
    for (int q = 0; q < x->comm->size; q++) x->block[q] = (const float *)recv.data + recv.displs[q];
    PetscCall(TrsCodedAlltoallvStart(x, stream, send, recv));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedBlocksArrive(TrsCodedExchange *x, TrsStream stream)
{
  PetscFunctionBegin;
  if (x->codec.kind == TRS_CODEC_FP32) {
    PetscCall(TrsRequestArrive(&x->request, stream));
  } else {
    PetscCall(TrsCodedExchangeWait(x, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedAllgathervStart(TrsCodedExchange *x, TrsStream stream, const float *send, float *recv,
                                       const int64_t *counts, const int64_t *displs)
{
  const TrsComm comm = x->comm;

  PetscFunctionBegin;
  x->kind = TRS_CODED_ALLGATHERV;
  x->recv = (TrsReceivedBlocks){recv, counts, displs};
  if (x->codec.kind == TRS_CODEC_FP32) {
    PetscCall(
        TrsCommAllgatherv(comm, stream, send, recv, counts, displs, (int64_t)sizeof(float), &x->request));
  } else {
    const int64_t n_received = place_on_wire(x, counts, x->recv_bytes, x->recv_at);
    PetscCall(TrsDeviceBufferReserveShared(comm->device, &x->encoded, x->recv_bytes[comm->rank]));
    PetscCall(TrsDeviceBufferReserve(comm->device, &x->arrived, n_received));
    PetscCall(
        TrsQcommEncode(comm, stream, &x->codec, counts[comm->rank], send, x->encoded.data, &x->scratch));
    PetscCall(TrsCommAllgatherv(comm, stream, x->encoded.data, x->arrived.data, x->recv_bytes, x->recv_at, 1,
                                &x->request));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedReduceScattervStart(TrsCodedExchange *x, TrsStream stream, const float *send,
                                           const int64_t *counts, float *recv)
{
  const TrsComm comm = x->comm;
  const int64_t own = counts[comm->rank];
  /* until the blocks are encoded, send_displs uses the memory of part_displs */
  int64_t *send_displs = x->part_displs;
  int64_t n = 0;

  PetscFunctionBegin;
  x->kind = TRS_CODED_REDUCE_SCATTERV;
  x->recv = (TrsReceivedBlocks){recv, x->part_counts, x->part_displs};
  if (x->codec.kind == TRS_CODEC_FP32) {
    PetscCall(TrsCommReduceScatterv(comm, stream, send, counts, recv, &x->request));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int q = 0; q < comm->size; q++) {
    x->part_counts[q] = own;
    send_displs[q] = n;
    n += counts[q];
  }
  PetscCall(start_encoded(x, stream, (TrsSentBlocks){send, counts, send_displs}));
  for (int q = 0; q < comm->size; q++) x->part_displs[q] = q * own;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Decode the blocks of all ranks. */
static PetscErrorCode decode_arrived(TrsCodedExchange *x, TrsStream stream, float *to)
{
  PetscFunctionBegin;
  for (int q = 0; q < x->comm->size; q++)
    PetscCall(TrsQcommDecode(x->comm, stream, &x->codec, x->recv.counts[q],
                             (const char *)x->arrived.data + x->recv_at[q], to + x->recv.displs[q],
                             &x->scratch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCodedExchangeWait(TrsCodedExchange *x, TrsStream stream)
{
  const TrsComm comm = x->comm;

  PetscFunctionBegin;
  if (!x->request) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRequestWait(&x->request, stream));
  if (x->codec.kind == TRS_CODEC_FP32) PetscFunctionReturn(PETSC_SUCCESS);
  if (x->kind == TRS_CODED_REDUCE_SCATTERV) {
    const int64_t own = x->part_counts[0];
    PetscCall(TrsDeviceBufferReserve(comm->device, &x->parts, comm->size * own * (int64_t)sizeof(float)));
    PetscCall(decode_arrived(x, stream, (float *)x->parts.data));
    for (int q = 0; q < comm->size; q++) x->part_of[q] = (const float *)x->parts.data + q * own;
    if (own > 0)
      PetscCall(comm->compute->sum_matrices(stream, comm->size, x->part_of, own, 1, own,
                                            (float *)x->recv.data, own));
  } else {
    PetscCall(decode_arrived(x, stream, (float *)x->recv.data));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
