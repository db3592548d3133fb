/* SPDX-License-Identifier: BSD-3-Clause */
/*
  KJT all-to-all: the ids of each feature travel to the ranks that own them.

  There are two steps, because counts must be known before the data can move: (1) one small
  all-to-all of counts for all the KJTs of a step together ("fused splits"), (2) for each KJT the
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
          is_weighted   do weights travel? (positions travel as weights, too)
          source_order  [comm->size] the order in which sources' samples are laid out on arrival;
                        NULL: by rank (TWRW: by local index, then host)
  Out:    exchange
*/
PetscErrorCode TrsKjtExchangeCreate(TrsComm comm, const int *n_features, int n_local, PetscBool is_weighted,
                                    const int *source_order, TrsKjtExchange *exchange);
PetscErrorCode TrsKjtExchangeDestroy(TrsKjtExchange *exchange);

/*
  Let ranks that share memory read ids at their senders, from the wait of the exchange on, and not
  keep what arrives. No other exchange of the communicator may then start between StartTensors and
  Wait, but those that start together with it. Call it before the first exchange; all ranks do.
*/
void TrsKjtExchangeReadInPlace(TrsKjtExchange exchange);

/*
  Let the number of bags differ by feature: the KJTs have strides, which travel with the counts.
  Call it right after Create, on all ranks.
*/
PetscErrorCode TrsKjtExchangeSetVariable(TrsKjtExchange exchange);

/*
  Let the data that arrives for `exchange` use the memory of `with` until it is laid out. Between
  StartTensors and Wait only one of the two may be under way, and neither is asked for rows
  (TrsKjtExchangeRows...). Call it right after Create; `with` must live as long as `exchange`.
*/
PetscErrorCode TrsKjtExchangeShare(TrsKjtExchange exchange, TrsKjtExchange with);

/*
  TrsKjtExchangeStartSplits - First step, for n exchanges of one comm at once: start the all-to-all
  of counts and batch sizes.

  Collective on the comm. The stream is synchronised once for all KJTs if the host does not know the
  limits (id_begin) of a send KJT and cannot read its offsets.

  In: exchange  [n]
      send      [n] KJTs in send layout, offsets filled. batch is this rank's own B, which may
                differ between ranks and may be 0. Borrowed until TrsKjtExchangeWait()
*/
PetscErrorCode TrsKjtExchangeStartSplits(int n, const TrsKjtExchange *exchange, const TrsKjt *const *send,
                                         TrsStream stream);

/*
  Second step, for the same n exchanges: wait for the counts, and start the all-to-alls of lengths,
  values and weights. Collective.
*/
PetscErrorCode TrsKjtExchangeStartTensors(int n, const TrsKjtExchange *exchange, TrsStream stream);

/*
  TrsKjtExchangeWait - Finish one exchange, and lay the result out as [local feature][source in
  source_order][sample of the source].

  Collective.

  InOut: recv          batch = sum of the sources' B (G); offsets filled; grows as needed
  Out:   source_batch  borrowed [comm->size]: B of each source, by rank; valid until the next
                       StartSplits
*/
PetscErrorCode TrsKjtExchangeWait(TrsKjtExchange exchange, TrsStream stream, TrsKjt *recv,
                                  const int64_t **source_batch);

/*
  The bags of each of this rank's features from each rank, [comm->size][n_local]. Call it after
  StartTensors. Borrowed until the next StartSplits.
*/
PetscErrorCode TrsKjtExchangeSourceStrides(TrsKjtExchange exchange, const int64_t **strides);

/*
  The numbers of ids that this rank sent to and received from each rank, [comm->size] each. Call it
  after StartTensors. Borrowed until the next StartSplits.
*/
PetscErrorCode TrsKjtExchangeIds(TrsKjtExchange exchange, const int64_t **sent, const int64_t **received);

/*
  Move rows of dim floats, one for each id that arrived. ToArrival moves from the lookup's order
  [local feature][source][sample] to [source][local feature][sample], in which rows travel back
  (sequence_all_to_all.h). FromArrival moves the other way. Call it after Wait, while its result is
  unchanged. Not collective.
*/
PetscErrorCode TrsKjtExchangeRowsToArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                           const float *rows, float *arrival);
PetscErrorCode TrsKjtExchangeRowsFromArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                             const float *arrival, float *rows);
