/* SPDX-License-Identifier: BSD-3-Clause */
/*
  KJT all-to-all: each feature's ids travel to the ranks that own them.

  The exchange has two steps, because data can move only when counts are known: (1) one small
  all-to-all of counts for all KJTs of a step together ("fused splits"), (2) for each KJT the
  all-to-alls of lengths, values and weights.

  Source: TorchRec KJTAllToAll, SplitsAllToAllAwaitable
*/
#pragma once

#include "comm/comm.h"
#include "sparse/kjt.h"

typedef struct TrsKjtExchangeImpl *TrsKjtExchange;

/*
  TrsKjtExchangeCreate - Plan the exchange of one KJT (one sharding group).

  Not collective.

  In:     comm          the ranks that exchange
          n_features    [comm->size] features sent to each rank; the send KJT holds them in rank
                        order (blocks bucket-major for row_wise: destination, feature, sample)
          n_local       features that this rank receives from every rank
          is_weighted   true if weights travel (positions travel as weights)
          source_order  [comm->size] the order in which sources' samples are laid out on arrival;
                        NULL: by rank (TWRW: by local index, then host)
  Out:    exchange
*/
PetscErrorCode TrsKjtExchangeCreate(TrsComm comm, const int *n_features, int n_local, PetscBool is_weighted,
                                    const int *source_order, TrsKjtExchange *exchange);
PetscErrorCode TrsKjtExchangeDestroy(TrsKjtExchange *exchange);

/*
  Let ranks that share memory read ids in their sender's memory, from the wait of the exchange on,
  without keeping a copy. Between StartTensors and Wait, no other exchange of the communicator may
  start, except those that start together with this exchange. Must be called on all ranks, before
  the first exchange.
*/
void TrsKjtExchangeReadInPlace(TrsKjtExchange exchange);

/*
  Let the number of bags differ by feature: KJTs then have strides, which travel with the counts.
  Must be called on all ranks, right after Create.
*/
PetscErrorCode TrsKjtExchangeSetVariable(TrsKjtExchange exchange);

/*
  Let the arrived data of `exchange` share the memory of `with` until it is laid out. Between
  StartTensors and Wait only one of the two may be in flight, and TrsKjtExchangeRows...() must not
  be called for either. Call it right after Create; `with` must live as long as `exchange`.
*/
PetscErrorCode TrsKjtExchangeShare(TrsKjtExchange exchange, TrsKjtExchange with);

/*
  TrsKjtExchangeStartSplits - First step, for n exchanges of one comm at once: start the all-to-all
  of counts and batch sizes.

  Collective on the comm. If the host does not know a send KJT's limits (id_begin) and cannot read
  its offsets, the stream is synchronised once for all KJTs.

  In: exchange  [n]
      send      [n] KJTs in send layout, offsets filled. batch is this rank's own B, which may
                differ between ranks and may be 0. Borrowed until TrsKjtExchangeWait()
*/
PetscErrorCode TrsKjtExchangeStartSplits(int n, const TrsKjtExchange *exchange, const TrsKjt *const *send,
                                         TrsStream stream);

/*
  Second step, for the same n exchanges: wait for the counts, then start the all-to-alls of lengths,
  values and weights. Collective.
*/
PetscErrorCode TrsKjtExchangeStartTensors(int n, const TrsKjtExchange *exchange, TrsStream stream);

/*
  TrsKjtExchangeWait - Finish one exchange, and lay out the result as [local feature][source in
  source_order][sample of the source].

  Collective.

  InOut: recv          batch = sum of the sources' B (G); offsets filled; grows as needed
  Out:   source_batch  borrowed [comm->size]: B of each source, by rank; valid until the next
                       StartSplits
*/
PetscErrorCode TrsKjtExchangeWait(TrsKjtExchange exchange, TrsStream stream, TrsKjt *recv,
                                  const int64_t **source_batch);

/*
  Number of bags from each rank for each of this rank's features, [comm->size][n_local]. Call it
  after StartTensors. Borrowed until the next StartSplits.
*/
PetscErrorCode TrsKjtExchangeSourceStrides(TrsKjtExchange exchange, const int64_t **strides);

/*
  Numbers of ids that this rank sends to and receives from each rank, [comm->size] each. Call it
  after StartTensors. Borrowed until the next StartSplits.
*/
PetscErrorCode TrsKjtExchangeIds(TrsKjtExchange exchange, const int64_t **sent, const int64_t **received);

/*
  Move rows of dim floats, one for each arrived id. ToArrival moves from the lookup's order [local
  feature][source][sample] to [source][local feature][sample], the order in which rows travel back
  (sequence_all_to_all.h). FromArrival moves the other way. Call them after Wait, before the next
  exchange changes its result. Not collective.
*/
PetscErrorCode TrsKjtExchangeRowsToArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                           const float *rows, float *arrival);
PetscErrorCode TrsKjtExchangeRowsFromArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                             const float *arrival, float *rows);
