/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/kjt_all_to_all.h"

#include "dist/id_exchange.h"

enum {
  /*
    Number of counts that each pair of ranks exchanges for a KJT: the sender's batch size, its
    number of ids, and the words per id. If features have different batch sizes, the strides follow.
  */
  TRS_KJT_N_SPLITS = 3
};

/* The elements that are sent to each rank, or received from each rank. */
typedef struct {
  int64_t *counts, *displs; /* [size] */
} TrsSplits;

struct TrsKjtExchangeImpl {
  TrsComm comm;
  /* number of features that this rank receives, and number of features that it sends */
  int n_local, n_sent;
  PetscBool is_weighted;
  int *feature_begin; /* [size + 1] index in the send KJT of the first feature for each rank */
  PetscBool is_variable;
  TrsIdExchange ids;
  /* Number of int32 words per id: of this rank's ids, and of each rank's ids, [size]. */
  int64_t words, *peer_words;
  int n_told;              /* number of int64 that each rank sends to each other rank */
  int64_t *source_strides; /* [size * n_local] number of bags in each block that arrives */
  int64_t *strides;        /* [n_local] number of bags of each feature in the result */
  /* data arrives in the order of the result, so no permutation is necessary */
  PetscBool in_place;
  PetscBool views; /* true if TrsKjtExchangeReadInPlace() was called */
  /* [n_local * size] for each block of the result, the index of the block that arrives */
  int *order;
  /* [n_local * size + 1] index of the first bag of each block that arrives */
  int64_t *block_begin;
  int64_t *source_batch; /* [size] batch size of each rank */
  TrsSplits send_bags, recv_bags, send_values, recv_values;
  const TrsKjt *send; /* the KJT in flight */
  /* the data that arrives, [source][local feature][sample]; it is &own or belongs to another
     exchange */
  TrsKjt *arrived;
  TrsKjt own;
  TrsRequest lengths, weights;
  TrsWorkspace workspace;
  PetscBool has_places; /* true if `places` belongs to the last result */
  /*
    places: int64 [ids of the result] for each id, its index among the ids that arrived. bags:
    int32, scratch.
  */
  TrsDeviceBuffer places, bags;
  /* int64 [n_sent + 1] index of the first id of each feature in the send KJT */
  TrsPinnedBuffer id_begin;
  TrsDeviceBuffer device_limits; /* scratch of TrsKjtReadLimits() */
  /* Used only in the first of several exchanges whose counts travel together. */
  /* int64 [size][n][TRS_KJT_N_SPLITS] twice: the counts that are sent, then the counts that are
     received */
  TrsBuffer counts;
  TrsCounts counts_request;
};

static PetscErrorCode create_splits(int size, TrsSplits *s)
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)size, &s->counts));
  PetscCall(PetscCalloc1((size_t)size, &s->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_splits(TrsSplits *s)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(s->counts));
  PetscCall(PetscFree(s->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set displs for blocks that lie one after another. Returns the sum of counts. */
static int64_t sum_splits(int size, TrsSplits *s)
{
  int64_t n = 0;

  for (int q = 0; q < size; q++) {
    s->displs[q] = n;
    n += s->counts[q];
  }
  return n;
}

/*
  Set the order of blocks: blocks arrive as [source][feature]; the result is [feature][source], with
  the sources in the order of source_order.
*/
static void set_order(TrsKjtExchange exchange, const int *source_order)
{
  const int size = exchange->comm->size;

  exchange->in_place = PETSC_TRUE;
  for (int f = 0, n = 0; f < exchange->n_local; f++) {
    for (int i = 0; i < size; i++, n++) {
      exchange->order[n] = (source_order ? source_order[i] : i) * exchange->n_local + f;
      if (exchange->order[n] != n) exchange->in_place = PETSC_FALSE;
    }
  }
}

PetscErrorCode TrsKjtExchangeCreate(TrsComm comm, const int *n_features, int n_local, PetscBool is_weighted,
                                    const int *source_order, TrsKjtExchange *exchange)
{
  const int size = comm->size;
  TrsKjtExchange x;

  PetscFunctionBegin;
  PetscCheck(n_features[comm->rank] == n_local, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "rank %d sends itself %d features and expects %d", comm->rank, n_features[comm->rank], n_local);
  PetscCall(PetscNew(&x));
  *exchange = x;
  x->comm = comm;
  x->arrived = &x->own;
  x->n_local = n_local;
  x->is_weighted = is_weighted;
  x->counts_request.mpi = MPI_REQUEST_NULL;
  x->n_told = TRS_KJT_N_SPLITS;
  PetscCall(PetscCalloc1((size_t)size + 1, &x->feature_begin));
  for (int q = 0; q < size; q++) x->feature_begin[q + 1] = x->feature_begin[q] + n_features[q];
  x->n_sent = x->feature_begin[size];
  PetscCall(PetscCalloc1((size_t)(n_local * size), &x->order));
  PetscCall(PetscCalloc1((size_t)(n_local * size) + 1, &x->block_begin));
  PetscCall(PetscCalloc1((size_t)size, &x->source_batch));
  PetscCall(PetscCalloc1((size_t)(n_local * size), &x->source_strides));
  PetscCall(PetscCalloc1((size_t)n_local, &x->strides));
  PetscCall(PetscCalloc1((size_t)size, &x->peer_words));
  PetscCall(TrsIdExchangeInit(comm, &x->ids));
  set_order(x, source_order);
  PetscCall(create_splits(size, &x->send_bags));
  PetscCall(create_splits(size, &x->recv_bags));
  PetscCall(create_splits(size, &x->send_values));
  PetscCall(create_splits(size, &x->recv_values));
  PetscCall(comm->compute->workspace_create(&x->workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeDestroy(TrsKjtExchange *exchange)
{
  TrsKjtExchange x = *exchange;

  PetscFunctionBegin;
  if (!x) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(x->comm->compute->workspace_destroy(&x->workspace));
  PetscCall(TrsKjtFree(x->comm->device, &x->own));
  PetscCall(TrsBufferFree(&x->counts));
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->places));
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->bags));
  PetscCall(TrsPinnedBufferFree(x->comm->device, &x->id_begin));
  PetscCall(TrsDeviceBufferFree(x->comm->device, &x->device_limits));
  PetscCall(destroy_splits(&x->send_bags));
  PetscCall(destroy_splits(&x->recv_bags));
  PetscCall(destroy_splits(&x->send_values));
  PetscCall(destroy_splits(&x->recv_values));
  PetscCall(TrsIdExchangeFree(&x->ids));
  PetscCall(PetscFree(x->peer_words));
  PetscCall(PetscFree(x->strides));
  PetscCall(PetscFree(x->source_strides));
  PetscCall(PetscFree(x->source_batch));
  PetscCall(PetscFree(x->block_begin));
  PetscCall(PetscFree(x->order));
  PetscCall(PetscFree(x->feature_begin));
  PetscCall(PetscFree(*exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeSetVariable(TrsKjtExchange exchange)
{
  const TrsKjtExchange x = exchange;
  int most = 0;

  PetscFunctionBegin;
  for (int q = 0; q < x->comm->size; q++)
    most = PetscMax(most, x->feature_begin[q + 1] - x->feature_begin[q]);
  x->is_variable = PETSC_TRUE;
  x->n_told = TRS_KJT_N_SPLITS + most;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsKjtExchangeReadInPlace(TrsKjtExchange exchange)
{
  exchange->views = PETSC_TRUE;
}

PetscErrorCode TrsKjtExchangeShare(TrsKjtExchange exchange, TrsKjtExchange with)
{
  PetscFunctionBegin;
  PetscCheck(exchange->n_local == with->n_local && exchange->is_weighted == with->is_weighted &&
                 exchange->own.values.capacity_bytes == 0,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "exchanges that differ cannot share memory");
  exchange->arrived = with->arrived;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the index of each feature's first id. If the batch has these indices, they are used;
  otherwise TrsKjtReadLimits() reads them.
*/
static PetscErrorCode read_limits(TrsKjtExchange x, TrsStream stream, PetscBool *pending)
{
  const TrsKjt *send = x->send;

  PetscFunctionBegin;
  if (send->limits_pending) {
    *pending = PETSC_TRUE;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsPinnedBufferReserve(x->comm->device, &x->id_begin,
                                   (x->n_sent + 1) * (int64_t)sizeof(*send->id_begin)));
  PetscCall(TrsKjtReadLimits(x->comm->device, x->comm->compute, stream, send, &x->device_limits,
                             (int64_t *)x->id_begin.data, pending));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the counts that this rank sends, after the limits are known. Row q of `told` is for rank q;
  the distance between rows is `stride`.
*/
static void set_counts(TrsKjtExchange x, int64_t *told, int64_t stride)
{
  const TrsKjt *send = x->send;
  const int64_t *id_begin = send->limits_pending ? send->id_begin : (const int64_t *)x->id_begin.data;

  x->words = TrsIdExchangeWords(&x->ids, id_begin[x->n_sent] - id_begin[0],
                                send->jagged.values + id_begin[0]);
  for (int q = 0; q < x->comm->size; q++) {
    const int first = x->feature_begin[q], end = x->feature_begin[q + 1];
    int64_t *row = told + q * stride;
    x->send_bags.counts[q] = 0;
    for (int f = first; f < end; f++) x->send_bags.counts[q] += TrsKjtStride(send, f);
    x->send_values.displs[q] = id_begin[first];
    x->send_values.counts[q] = id_begin[end] - id_begin[first];
    row[0] = send->batch;
    row[1] = x->send_values.counts[q];
    row[2] = x->words;
    for (int i = TRS_KJT_N_SPLITS; i < x->n_told; i++) {
      const int f = first + i - TRS_KJT_N_SPLITS;
      row[i] = f < end ? TrsKjtStride(send, f) : 0;
    }
  }
  (void)sum_splits(x->comm->size, &x->send_bags);
}

PetscErrorCode TrsKjtExchangeStartSplits(int n, const TrsKjtExchange *exchange, const TrsKjt *const *send,
                                         TrsStream stream)
{
  PetscBool pending = PETSC_FALSE;
  TrsComm comm;
  int64_t *told;
  int64_t stride = 0;

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  comm = exchange[0]->comm;
  for (int i = 0; i < n; i++) {
    PetscCheck(exchange[i]->comm == comm && send[i]->n_features == exchange[i]->n_sent, PETSC_COMM_SELF,
               TRS_ERR_INTERNAL, "exchange %d sends %d features, its batch has %d", i, exchange[i]->n_sent,
               send[i]->n_features);
    PetscCheck(exchange[i]->is_variable || !send[i]->strides, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "exchange %d is not for batches that differ by feature", i);
    exchange[i]->send = send[i];
    PetscCall(read_limits(exchange[i], stream, &pending));
    stride += exchange[i]->n_told;
  }
  if (pending) PetscCall(comm->device->stream_synchronize(stream));
  PetscCall(
      TrsBufferReserve(&exchange[0]->counts, 2 * stride * comm->size * (int64_t)sizeof(*told), PETSC_FALSE));
  told = (int64_t *)exchange[0]->counts.data;
  for (int i = 0, at = 0; i < n; at += exchange[i++]->n_told) set_counts(exchange[i], told + at, stride);
  PetscCall(
      TrsCommCountsStart(comm, (int)stride, told, told + comm->size * stride, &exchange[0]->counts_request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the counts that the ranks have sent, and allocate memory for the data that will arrive. Row q
  of `told` is from rank q; the distance between rows is `stride`.
*/
static PetscErrorCode take_counts(TrsKjtExchange x, const int64_t *told, int64_t stride)
{
  const TrsComm comm = x->comm;
  int64_t n_values, batch = 0;

  PetscFunctionBegin;
  for (int f = 0; f < x->n_local; f++) x->strides[f] = 0;
  for (int q = 0; q < comm->size; q++) {
    const int64_t *row = told + q * stride;
    x->source_batch[q] = row[0];
    x->recv_values.counts[q] = row[1];
    x->peer_words[q] = row[2];
    x->recv_bags.counts[q] = 0;
    batch += row[0];
    for (int f = 0; f < x->n_local; f++) {
      const int block = q * x->n_local + f;
      const int64_t bags = x->is_variable ? row[TRS_KJT_N_SPLITS + f] : row[0];
      x->source_strides[block] = bags;
      x->strides[f] += bags;
      x->recv_bags.counts[q] += bags;
      x->block_begin[block + 1] = x->block_begin[block] + bags;
    }
  }
  (void)sum_splits(comm->size, &x->recv_bags);
  n_values = sum_splits(comm->size, &x->recv_values);
  if (x->is_variable) {
    PetscCall(
        TrsKjtReserveVariable(comm->device, x->arrived, x->n_local, x->strides, n_values, x->is_weighted));
  } else {
    PetscCall(TrsKjtReserve(comm->device, x->arrived, x->n_local, batch, n_values, x->is_weighted));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if ids are read in their sender's memory. This saves a copy, because the ids are copied to
  the result anyway.
*/
static PetscBool reads_in_place(const TrsKjtExchange x)
{
  return (PetscBool)(x->views && x->ids.views && !x->in_place);
}

/* Start the exchanges of lengths, ids and weights. */
static PetscErrorCode start_tensors(TrsKjtExchange x, TrsStream stream)
{
  const TrsJagged *send = &x->send->jagged, *arrived = &x->arrived->jagged;

  PetscFunctionBegin;
  PetscCheck(!x->is_weighted || x->send->is_weighted, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "a weighted exchange of a batch without weights");
  PetscCall(TrsCommAlltoallv(x->comm, stream,
                             (TrsSentBlocks){send->lengths, x->send_bags.counts, x->send_bags.displs},
                             (TrsReceivedBlocks){arrived->lengths, x->recv_bags.counts, x->recv_bags.displs},
                             (int64_t)sizeof(*send->lengths), &x->lengths));
  if (reads_in_place(x))
    PetscCall(TrsIdExchangeView(
        &x->ids, stream, (TrsSentBlocks){send->values, x->send_values.counts, x->send_values.displs},
        (TrsReceivedBlocks){arrived->values, x->recv_values.counts, x->recv_values.displs}));
  else
    PetscCall(TrsIdExchangeStart(
        &x->ids, stream, (TrsSentBlocks){send->values, x->send_values.counts, x->send_values.displs},
        x->words, (TrsReceivedBlocks){arrived->values, x->recv_values.counts, x->recv_values.displs},
        x->peer_words));
  if (x->is_weighted)
    PetscCall(TrsCommAlltoallv(
        x->comm, stream, (TrsSentBlocks){send->weights, x->send_values.counts, x->send_values.displs},
        (TrsReceivedBlocks){arrived->weights, x->recv_values.counts, x->recv_values.displs},
        (int64_t)sizeof(*send->weights), &x->weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeStartTensors(int n, const TrsKjtExchange *exchange, TrsStream stream)
{
  const int64_t *told;
  int64_t stride = 0;

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < n; i++) stride += exchange[i]->n_told;
  PetscCall(TrsCommCountsWait(&exchange[0]->counts_request));
  told = (const int64_t *)exchange[0]->counts.data + exchange[0]->comm->size * stride;
  for (int i = 0, at = 0; i < n; at += exchange[i++]->n_told) {
    PetscCall(take_counts(exchange[i], told + at, stride));
    PetscCall(start_tensors(exchange[i], stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeSourceStrides(TrsKjtExchange exchange, const int64_t **strides)
{
  PetscFunctionBegin;
  *strides = exchange->source_strides;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeIds(TrsKjtExchange exchange, const int64_t **sent, const int64_t **received)
{
  PetscFunctionBegin;
  *sent = exchange->send_values.counts;
  *received = exchange->recv_values.counts;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Swap two KJTs, including buffers and views. */
static void swap_kjts(TrsKjt *a, TrsKjt *b)
{
  const TrsKjt kept = *a;

  *a = *b;
  *b = kept;
}

/*
  Copy ids from their senders' memory, block by block in the order of the result. Then return the
  memory to the senders.
*/
static PetscErrorCode lay_out_ids(TrsKjtExchange x, TrsStream stream, int64_t *to)
{
  const int64_t *offsets = x->arrived->jagged.offsets;

  PetscFunctionBegin;
  for (int j = 0; j < x->n_local * x->comm->size; j++) {
    const int block = x->order[j], q = block / x->n_local;
    const int64_t first = offsets[x->block_begin[block]], n = offsets[x->block_begin[block + 1]] - first;

    if (n > 0)
      PetscCall(x->comm->device->copy(to, TrsIdExchangeBlock(&x->ids, q) + first - x->recv_values.displs[q],
                                      n * (int64_t)sizeof(*to), stream));
    to += n;
  }
  PetscCall(TrsIdExchangeWait(&x->ids, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeWait(TrsKjtExchange exchange, TrsStream stream, TrsKjt *recv,
                                  const int64_t **source_batch)
{
  const TrsKjtExchange x = exchange;
  const TrsComm comm = x->comm;
  TrsJagged laid;

  PetscFunctionBegin;
  PetscCall(TrsRequestWait(&x->lengths, stream));
  /* offsets are computed while the ids travel */
  PetscCall(TrsKjtOffsets(comm->compute, stream, x->arrived));
  if (reads_in_place(x))
    PetscCall(TrsIdExchangeArrive(&x->ids, stream));
  else
    PetscCall(TrsIdExchangeWait(&x->ids, stream));
  PetscCall(TrsRequestWait(&x->weights, stream));
  if (x->in_place) {
    swap_kjts(recv, x->arrived);
  } else {
    const TrsKjt *arrived = x->arrived;
    if (x->is_variable) {
      PetscCall(TrsKjtReserveVariable(comm->device, recv, x->n_local, x->strides, arrived->jagged.n_values,
                                      x->is_weighted));
    } else {
      PetscCall(TrsKjtReserve(comm->device, recv, x->n_local, arrived->batch, arrived->jagged.n_values,
                              x->is_weighted));
    }
    laid = recv->jagged;
    if (reads_in_place(x)) laid.values = NULL; /* lay_out_ids() copies the ids below */
    PetscCall(comm->compute->permute_blocks(stream, x->workspace, x->n_local * comm->size, x->block_begin,
                                            x->n_local * comm->size, x->order, &arrived->jagged, &laid));
    laid.values = recv->jagged.values;
    recv->jagged = laid;
    if (reads_in_place(x)) PetscCall(lay_out_ids(x, stream, laid.values));
  }
  x->send = NULL;
  x->has_places = PETSC_FALSE;
  *source_batch = x->source_batch;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute `places`, by permuting the indices of the ids that have arrived. The workspace is free,
  because only Wait has used it before.
*/
static PetscErrorCode find_places(TrsKjtExchange x, TrsStream stream)
{
  const TrsComm comm = x->comm;
  TrsJagged arrived = x->arrived->jagged, places = {.n_values = arrived.n_values};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(comm->device, &x->places, arrived.n_values * (int64_t)sizeof(int64_t)));
  PetscCall(TrsDeviceBufferReserve(comm->device, &x->bags, arrived.n_bags * (int64_t)sizeof(int32_t)));
  arrived.values = NULL;
  arrived.weights = NULL;
  places.values = (int64_t *)x->places.data;
  places.lengths = (int32_t *)x->bags.data;
  PetscCall(comm->compute->permute_blocks(stream, x->workspace, x->n_local * comm->size, x->block_begin,
                                          x->n_local * comm->size, x->order, &arrived, &places));
  x->has_places = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Copy the rows of the ids from the order of the lookup to the order of arrival, or in the opposite
  direction.
*/
static PetscErrorCode move_rows(TrsKjtExchange x, TrsStream stream, int64_t dim, PetscBool to_arrival,
                                const float *from,
                                float *to) /* NOLINT(readability-non-const-parameter): written to */
{
  const int last = x->comm->size - 1;
  const int64_t row_bytes = dim * (int64_t)sizeof(*to);
  TrsRowsCopy copy = {.n = x->recv_values.displs[last] + x->recv_values.counts[last],
                      .row_bytes = row_bytes,
                      .from = from,
                      .from_stride = row_bytes,
                      .to = to,
                      .to_stride = row_bytes};

  PetscFunctionBegin;
  if (!x->in_place && !x->has_places) PetscCall(find_places(x, stream));
  if (!x->in_place) *(to_arrival ? &copy.to_index : &copy.from_index) = (const int64_t *)x->places.data;
  PetscCall(x->comm->compute->copy_rows(stream, x->workspace, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeRowsToArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                           const float *rows, float *arrival)
{
  PetscFunctionBegin;
  PetscCall(move_rows(exchange, stream, dim, PETSC_TRUE, rows, arrival));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtExchangeRowsFromArrival(TrsKjtExchange exchange, TrsStream stream, int64_t dim,
                                             const float *arrival, float *rows)
{
  PetscFunctionBegin;
  PetscCall(move_rows(exchange, stream, dim, PETSC_FALSE, arrival, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}
