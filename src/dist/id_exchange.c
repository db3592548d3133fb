/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/id_exchange.h"

#include <string.h>

PetscErrorCode TrsIdExchangeInit(TrsComm comm, TrsIdExchange *x)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  *x = (TrsIdExchange){.comm = comm};
  x->packs = (PetscBool)(comm->device->host_memory && comm->size > 1 && comm->n_shared != comm->size);
  x->views = (PetscBool)(comm->device->host_memory && comm->size > 1 && comm->n_shared == comm->size);
  PetscCall(PetscMalloc1(size, &x->block));
  PetscCall(PetscCalloc1(4 * size, &x->send_words));
  x->send_displs = x->send_words + size;
  x->recv_words = x->send_words + 2 * size;
  x->recv_displs = x->send_words + 3 * size;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIdExchangeFree(TrsIdExchange *x)
{
  PetscFunctionBegin;
  if (!x->comm) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->sent));
  PetscCall(TrsBufferFree(&x->arrived));
  PetscCall(PetscFree(x->block));
  PetscCall(PetscFree(x->send_words));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsIdExchangeWords(const TrsIdExchange *x, int64_t n, const int64_t *values)
{
  uint64_t beyond = 0; /* not zero if an id does not fit into int32 */

  if (!x->packs) return 2;
  for (int64_t i = 0; i < n; i++) beyond |= ((uint64_t)values[i] + 0x80000000U) >> 32;
  return beyond ? 2 : 1;
}

/*
  Compute the positions of blocks, which lie one after another. Block q has counts[q] ids with
  words[q * stride] words each; if stride is 0, all blocks have words[0]. Returns the number of
  words of all blocks.
*/
static int64_t place(int size, const int64_t *counts, const int64_t *words, int64_t stride, int64_t *n,
                     int64_t *at)
{
  int64_t sum = 0;

  for (int q = 0; q < size; q++) {
    n[q] = counts[q] * words[q * stride];
    at[q] = sum;
    sum += n[q];
  }
  return sum;
}

static void pack(int64_t n, int64_t words, const int64_t *ids, int32_t *to)
{
  if (words == 2) {
    memcpy(to, ids, (size_t)n * sizeof(*ids));
  } else {
    for (int64_t i = 0; i < n; i++) to[i] = (int32_t)ids[i];
  }
}

static void unpack(int64_t n, int64_t words, const int32_t *from, int64_t *ids)
{
  if (words == 2) {
    memcpy(ids, from, (size_t)n * sizeof(*ids));
  } else {
    for (int64_t i = 0; i < n; i++) ids[i] = from[i];
  }
}

PetscErrorCode TrsIdExchangeStart(TrsIdExchange *x, TrsStream stream, TrsSentBlocks send, int64_t words,
                                  TrsReceivedBlocks recv, const int64_t *peer_words)
{
  const int size = x->comm->size;
  int64_t n_sent, n_arrived;

  PetscFunctionBegin;
  if (!x->packs) {
    PetscCall(TrsCommAlltoallv(x->comm, stream, send, recv, (int64_t)sizeof(int64_t), &x->request));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  n_sent = place(size, send.counts, &words, 0, x->send_words, x->send_displs);
  n_arrived = place(size, recv.counts, peer_words, 1, x->recv_words, x->recv_displs);
  PetscCall(TrsDeviceBufferReserveShared(x->comm->device, &x->sent, n_sent * (int64_t)sizeof(int32_t)));
  PetscCall(TrsBufferReserve(&x->arrived, n_arrived * (int64_t)sizeof(int32_t), PETSC_FALSE));
  for (int q = 0; q < size; q++)
    if (send.counts[q] > 0)
      pack(send.counts[q], words, (const int64_t *)send.data + send.displs[q],
           (int32_t *)x->sent.data + x->send_displs[q]);
  x->recv = recv;
  PetscCall(TrsCommAlltoallv(x->comm, stream, (TrsSentBlocks){x->sent.data, x->send_words, x->send_displs},
                             (TrsReceivedBlocks){x->arrived.data, x->recv_words, x->recv_displs},
                             (int64_t)sizeof(int32_t), &x->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIdExchangeView(TrsIdExchange *x, TrsStream stream, TrsSentBlocks send,
                                 TrsReceivedBlocks recv)
{
  PetscFunctionBegin;
  /* words are exchanged as floats, which have the same size */
  for (int q = 0; q < x->comm->size; q++) {
    x->send_words[q] = 2 * send.counts[q];
    x->send_displs[q] = 2 * send.displs[q];
    x->recv_words[q] = 2 * recv.counts[q];
    x->recv_displs[q] = 2 * recv.displs[q];
  }
  PetscCall(TrsCommAlltoallvBlocks(x->comm, stream, (TrsSentBlocks){send.data, x->send_words, x->send_displs},
                                   (TrsReceivedBlocks){recv.data, x->recv_words, x->recv_displs},
                                   (TrsBlockView){.block = x->block}, &x->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIdExchangeArrive(TrsIdExchange *x, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRequestArrive(&x->request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const int64_t *TrsIdExchangeBlock(const TrsIdExchange *x, int rank)
{
  return (const int64_t *)(const void *)x->block[rank];
}

PetscErrorCode TrsIdExchangeWait(TrsIdExchange *x, TrsStream stream)
{
  PetscFunctionBegin;
  if (!x->request) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRequestWait(&x->request, stream));
  for (int q = 0; x->packs && q < x->comm->size; q++)
    if (x->recv.counts[q] > 0)
      unpack(x->recv.counts[q], x->recv_words[q] / x->recv.counts[q],
             (const int32_t *)x->arrived.data + x->recv_displs[q],
             (int64_t *)x->recv.data + x->recv.displs[q]);
  PetscFunctionReturn(PETSC_SUCCESS);
}
