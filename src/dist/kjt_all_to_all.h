/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The KJT all-to-all: each feature's ids are sent to the ranks that own their rows.

  The exchange has two steps, because data can be sent only when the counts are known. The first
  step is a small all-to-all of counts, for all KJTs of a training step together ("fused splits").
  The second step consists, for each KJT, of the all-to-alls of lengths, values and weights.

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
          n_features    [comm->size] number of features sent to each rank; the send KJT has them in
                        rank order (for row_wise, its order is destination, feature, sample)
          n_local       number of features that this rank receives from every rank
          is_weighted   true if weights are sent (positions are sent as weights)
          source_order  [comm->size] the order of the ranks' samples in the result; if NULL, by rank
                        (TWRW needs an order by local index, then host)
  Out:    exchange
*/
PetscErrorCode TrsKjtExchangeCreate(TrsComm comm, const int *n_features, int n_local, PetscBool is_weighted,
                                    const int *source_order, TrsKjtExchange *exchange);
PetscErrorCode TrsKjtExchangeDestroy(TrsKjtExchange *exchange);

/*
  Let ranks that share memory read ids in their senders' memory during TrsKjtExchangeWait(), without
  keeping a copy. Between StartTensors and Wait, no other exchange of the communicator may start,
  except exchanges that start together with this one. Must be called on all ranks, before the first
  exchange.
*/
void TrsKjtExchangeReadInPlace(TrsKjtExchange exchange);

/*
  Let features have different numbers of bags. KJTs then have strides, which are sent together with
  the counts. Must be called on all ranks, immediately after Create.
*/
PetscErrorCode TrsKjtExchangeSetVariable(TrsKjtExchange exchange);

/*
  Let the data that arrives for `exchange` use the memory of `with`, until it is copied to the
  result. Between StartTensors and Wait, only one of the two exchanges may be in flight, and
  TrsKjtExchangeRows...() must not be called for either. Must be called immediately after Create;
  `with` must live as long as `exchange`.
*/
PetscErrorCode TrsKjtExchangeShare(TrsKjtExchange exchange, TrsKjtExchange with);

/*
  TrsKjtExchangeStartSplits - Do the first step of n exchanges of one communicator: start the
    all-to-all of counts and batch sizes.

  Collective on the comm. If the host does not know a send KJT's limits (id_begin) and cannot read
  its offsets, the stream is synchronised once for all KJTs.

  In: exchange  [n]
      send      [n] KJTs in the layout for sending, with offsets. Their batch is this rank's B;
                ranks may have different B, also 0. Borrowed until TrsKjtExchangeWait()
*/
PetscErrorCode TrsKjtExchangeStartSplits(int n, const TrsKjtExchange *exchange, const TrsKjt *const *send,
                                         TrsStream stream);

/*
  Do the second step of the same n exchanges: wait for the counts, and then start the all-to-alls of
  lengths, values and weights. Collective.
*/
PetscErrorCode TrsKjtExchangeStartTensors(int n, const TrsKjtExchange *exchange, TrsStream stream);

/*
  TrsKjtExchangeWait - Finish one exchange. The order of the result is [local feature][source in
    source_order][sample of the source].

  Collective.

  InOut: recv          the result, with offsets. Its batch is G, the sum of all ranks' B. It grows
                       if necessary
  Out:   source_batch  borrowed [comm->size]: B of each rank; valid until the next StartSplits
*/
PetscErrorCode TrsKjtExchangeWait(TrsKjtExchange exchange, TrsStream stream, TrsKjt *recv,
                                  const int64_t **source_batch);

/*
  Return the number of bags from each rank for each of this rank's features, [comm->size][n_local].
  May be called after StartTensors. Borrowed until the next StartSplits.
*/
PetscErrorCode TrsKjtExchangeSourceStrides(TrsKjtExchange exchange, const int64_t **strides);

/*
  Return the numbers of ids that this rank sends to each rank, and receives from each rank,
  [comm->size]. May be called after StartTensors. Borrowed until the next StartSplits.
*/
PetscErrorCode TrsKjtExchangeIds(TrsKjtExchange exchange, const int64_t **sent, const int64_t **received);

/*
  Copy rows of dim floats, one row for each id that has arrived. ToArrival copies from the lookup's
  order [local feature][source][sample] to [source][local feature][sample], in which rows are sent
  back (sequence_all_to_all.h). FromArrival copies in the opposite direction. They may be called
  after Wait, until the next exchange changes its result. Not collective.
*/
PetscErrorCode TrsKjtExchangeRowsToArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                           const float *rows, float *arrival);
PetscErrorCode TrsKjtExchangeRowsFromArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                             const float *arrival, float *rows);
