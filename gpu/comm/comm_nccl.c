/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The nccl backend. Each communicator has its own stream. An operation starts after an event on the
  caller's stream, and records an event at its end on which the caller's stream can wait. The host
  does not wait.

  All exchanges are grouped sends and receives, so counts may differ and need not fit an int. comm.h
  promises sums in rank order, which NCCL's reductions do not. So our own kernel computes each sum
  from all ranks' parts of a chunk. With W ranks, each rank sends and receives as many bytes as in
  NCCL's ring, in W - 1 messages instead of 2(W - 1) steps. It needs memory for W parts of its
  chunk. NCCL's own collectives are used only for an even all-gather, and for the all-reduce of a
  communicator whose sums may have any order.

  Communicators block: a call returns when its work is on the stream. A thread watches the calls
  (nccl_watch.h). While device_cuda.c waits, it checks all communicators (check_all) and a deadline.
  Any failure aborts every communicator of this rank, so that no NCCL kernel keeps running. The
  failure then becomes one error, UNAVAILABLE. The job ends in the same way as after any other error
  on one rank (core/error.h).
*/
#include "comm/comm.h"

#include "comm/chunks.h"
#include "gpu/comm/nccl_library.h"
#include "gpu/comm/nccl_watch.h"
#include "gpu/cuda_error.h"
#include "gpu/device/device_cuda.h"

#include <stdlib.h>

/* If there are at most this many parts, the sum may overwrite one of them (sum_matrices). */
enum { TRS_NCCL_IN_PLACE = 64 };

typedef struct TrsNcclRequest {
  struct TrsRequestImpl base;
  struct TrsNcclRequest *next; /* next request in the list of free requests */
  cudaEvent_t before, done;
  cudaStream_t stream;   /* the stream of the operation */
  TrsChunks chunks;      /* used by a sum or an all-gather */
  TrsDeviceBuffer parts; /* all ranks' values of the chunk that this rank sums */
} TrsNcclRequest;

typedef struct TrsNcclData {
  const TrsNccl *nccl;
  ncclComm_t comm;                           /* NULL if the communicator has only one rank */
  cudaStream_t stream;                       /* the caller's stream if NCCL is not used */
  TrsDeviceBuffer encoded, arrived, decoded; /* used by the encoded all-reduce */
  TrsNcclRequest *free;
  struct TrsNcclData *next; /* next in the list of all communicators of this process */
} TrsNcclData;

/*
  Blocks that are sent to, and received from, every rank. Displacements and counts are in elements.
*/
typedef struct {
  const char *send;
  const int64_t *send_counts, *send_displs;
  char *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t elem_bytes;
  PetscBool skip_own; /* this rank's own block is not copied: it is used where it lies */
} TrsNcclBlocks;

/*
  All communicators of the process, because the failure of one communicator ends all of them. The
  list belongs to the main thread. During a call to NCCL it belongs to the thread that watches the
  call.
*/
static TrsNcclData *all_communicators;

/* --- errors --- */

/*
  Abort all communicators in one group. In some versions of NCCL a single abort waits for the
  device, where kernels of the other communicators would still run.
*/
static void abort_all(void)
{
  const TrsNccl *nccl = all_communicators ? all_communicators->nccl : NULL;

  if (nccl) (void)nccl->GroupStart();
  for (TrsNcclData *data = all_communicators; data; data = data->next) {
    if (data->comm) (void)data->nccl->CommAbort(data->comm);
    data->comm = NULL;
  }
  if (nccl) (void)nccl->GroupEnd();
  all_communicators = NULL;
}

/* Raise the error for a failure. `what` is the operation's name. */
static PetscErrorCode fail(const TrsNccl *nccl, ncclResult_t result, ncclComm_t comm, const char *what)
{
  char text[512];

  PetscFunctionBegin;
  PetscCall(
      PetscSNPrintf(text, sizeof(text), "%s (%s)", nccl->GetErrorString(result), nccl->GetLastError(comm)));
  abort_all();
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "NCCL failed in %s: %s%s", what, text,
          result == ncclInvalidUsage ? "; ranks that share a GPU need -comm_backend mpi" : "");
}

static PetscErrorCode too_late(const char *what)
{
  PetscFunctionBegin;
  abort_all();
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
          "NCCL: %s did not end in %g s (-comm_wait_seconds); a rank or the network hangs", what,
          TrsCommWaitAtMost(0));
}

/* The first error of any communicator since its calls returned, or ncclSuccess if there is none. */
static ncclResult_t find_failure(const TrsNcclData **failed)
{
  for (const TrsNcclData *data = all_communicators; data; data = data->next) {
    ncclResult_t result = ncclSuccess, asked;

    if (!data->comm) continue;
    asked = data->nccl->CommGetAsyncError(data->comm, &result);
    if (asked != ncclSuccess) result = asked;
    *failed = data;
    if (result != ncclSuccess && result != ncclInProgress) return result;
  }
  return ncclSuccess;
}

static PetscBool has_failed(void)
{
  const TrsNcclData *failed;

  return (PetscBool)(find_failure(&failed) != ncclSuccess);
}

/* Begin a call to NCCL that may wait for other ranks. over() ends the call. */
static void enter(const char *what)
{
  TrsNcclEnter(what, TrsCommWaitAtMost(0), PETSC_TRUE);
}

/* End a call to NCCL and raise its error. After an abort no communicator exists. */
static PetscErrorCode over(const TrsNcclData *data, ncclResult_t result, const char *what)
{
  const TrsNcclEnd end = TrsNcclLeave();

  PetscFunctionBegin;
  if (end == TRS_NCCL_LATE) PetscCall(too_late(what));
  if (end == TRS_NCCL_FAILED && result == ncclSuccess) result = ncclRemoteError;
  if (result != ncclSuccess) PetscCall(fail(data->nccl, result, data->comm, what));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Raise an error if an operation of any communicator has failed, or if the host has waited too long.
  device_cuda.c calls this function during a wait that began at start_s. start_s is 0 if the host
  does not wait.
*/
static PetscErrorCode check_all(double start_s)
{
  const TrsNcclData *failed = NULL;
  const ncclResult_t result = find_failure(&failed);

  PetscFunctionBegin;
  if (result != ncclSuccess) PetscCall(fail(failed->nccl, result, failed->comm, "an exchange"));
  if (start_s > 0 && all_communicators && MPI_Wtime() - start_s > TrsCommWaitAtMost(0))
    PetscCall(too_late("an exchange"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- requests --- */

static PetscErrorCode new_request(TrsComm comm, TrsNcclRequest **request)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(request));
  (*request)->base.comm = comm;
  PetscCall(TrsChunksAlloc(comm->size, &(*request)->chunks));
  TrsCallCUDA(cudaEventCreateWithFlags(&(*request)->before, cudaEventDisableTiming));
  TrsCallCUDA(cudaEventCreateWithFlags(&(*request)->done, cudaEventDisableTiming));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_request(TrsNcclRequest *request)
{
  PetscFunctionBegin;
  TrsCallCUDA(cudaEventDestroy(request->before));
  TrsCallCUDA(cudaEventDestroy(request->done));
  PetscCall(TrsDeviceBufferFree(request->base.comm->device, &request->parts));
  PetscCall(TrsChunksFree(&request->chunks));
  PetscCall(PetscFree(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Take a request from the pool. The communicator's stream waits for all current work of the caller's
  stream. Without NCCL all work is done on the caller's stream.
*/
static PetscErrorCode begin(TrsComm comm, TrsStream stream, TrsNcclRequest **request)
{
  TrsNcclData *data = (TrsNcclData *)comm->data;

  PetscFunctionBegin;
  PetscCheck(!data->nccl || data->comm, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "NCCL: an earlier failure ended all communicators of this process");
  if (!data->free) PetscCall(new_request(comm, &data->free));
  *request = data->free;
  data->free = (*request)->next;
  if (data->nccl) {
    TrsCallCUDA(cudaEventRecord((*request)->before, TrsStreamCuda(stream)));
    TrsCallCUDA(cudaStreamWaitEvent(data->stream, (*request)->before, 0));
  } else {
    data->stream = TrsStreamCuda(stream);
  }
  (*request)->stream = data->stream;
  PetscCall(TrsTimelineBegin(TRS_TRACE_EXCHANGE, (TrsStream)(void *)data->stream, comm->trace_as,
                             &(*request)->base.span));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Finish the set-up of a request: it is done when all current work of the communicator's stream is
  done.
*/
static PetscErrorCode end(TrsNcclRequest *started, TrsRequest *request)
{
  const TrsNcclData *data = (const TrsNcclData *)started->base.comm->data;
  TrsTimelineSpan span = started->base.span; /* comm.c adds the number of bytes to this span */

  PetscFunctionBegin;
  PetscCall(TrsTimelineEnd(&span, (TrsStream)(void *)data->stream));
  if (data->nccl) TrsCallCUDA(cudaEventRecord(started->done, data->stream));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- exchanges --- */

/*
  True if the communicator needs NCCL. A single rank does not, but TRSHARD_NCCL_ALONE in the
  environment makes it send to itself by NCCL, so that one GPU is enough for tests.
*/
static PetscBool wants_nccl(TrsComm comm)
{
  return (PetscBool)(comm->size > 1 || getenv("TRSHARD_NCCL_ALONE"));
}

/* True if this rank's own block also goes through NCCL. */
static PetscBool sends_own(TrsComm comm, const TrsNcclBlocks *x)
{
  const TrsNcclData *data = (const TrsNcclData *)comm->data;
  return (PetscBool)(comm->size == 1 && data->nccl && !x->skip_own);
}

static PetscBool has_messages(TrsComm comm, const TrsNcclBlocks *x)
{
  for (int q = 0; q < comm->size; q++)
    if ((q != comm->rank || sends_own(comm, x)) && (x->send_counts[q] > 0 || x->recv_counts[q] > 0))
      return PETSC_TRUE;
  return PETSC_FALSE;
}

/*
  Enqueue the blocks' messages on the communicator's stream, and copy this rank's own block. Each
  rank starts with its next rank, so that the ranks do not all send to the same rank at once.
*/
static PetscErrorCode exchange(TrsComm comm, const TrsNcclBlocks *x)
{
  const TrsNcclData *data = (const TrsNcclData *)comm->data;
  const int64_t own_bytes = x->send_counts[comm->rank] * x->elem_bytes;
  const char *from = x->send + x->send_displs[comm->rank] * x->elem_bytes;
  char *to = x->recv + x->recv_displs[comm->rank] * x->elem_bytes;
  ncclResult_t result, ended;

  PetscFunctionBegin;
  if (own_bytes > 0 && from != to && !x->skip_own && !sends_own(comm, x))
    TrsCallCUDA(cudaMemcpyAsync(to, from, (size_t)own_bytes, cudaMemcpyDeviceToDevice, data->stream));
  if (!has_messages(comm, x)) PetscFunctionReturn(PETSC_SUCCESS);
  enter("an exchange");
  result = data->nccl->GroupStart();
  for (int i = sends_own(comm, x) ? 0 : 1; i < comm->size && result == ncclSuccess; i++) {
    const int to_rank = (comm->rank + i) % comm->size, from_rank = (comm->rank + comm->size - i) % comm->size;
    const size_t sent = (size_t)(x->send_counts[to_rank] * x->elem_bytes);
    const size_t received = (size_t)(x->recv_counts[from_rank] * x->elem_bytes);

    if (sent)
      result = data->nccl->Send(x->send + x->send_displs[to_rank] * x->elem_bytes, sent, ncclUint8, to_rank,
                                data->comm, data->stream);
    if (received && result == ncclSuccess)
      result = data->nccl->Recv(x->recv + x->recv_displs[from_rank] * x->elem_bytes, received, ncclUint8,
                                from_rank, data->comm, data->stream);
  }
  /* called after an error as well, because an abort inside the group would only join the group */
  ended = data->nccl->GroupEnd();
  PetscCall(over(data, result == ncclSuccess ? ended : result, "an exchange"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Set `to` to the sum over all ranks of the chunk that this rank sums. The terms are added in rank
  order.
*/
static PetscErrorCode sum_chunk(TrsNcclRequest *request, const float *send, float *to)
{
  const TrsComm comm = request->base.comm;
  const TrsNcclData *data = (const TrsNcclData *)comm->data;
  const int64_t n = request->chunks.counts[comm->rank];
  const float *own = send + request->chunks.displs[comm->rank];
  TrsNcclBlocks blocks = {
      .send = (const char *)send,
      .send_counts = request->chunks.counts,
      .send_displs = request->chunks.displs,
      .recv_counts = request->chunks.own_counts,
      .recv_displs = request->chunks.part_displs,
      .elem_bytes = (int64_t)sizeof(float),
      .skip_own = (PetscBool)(own != to || (comm->size > 1 && comm->size <= TRS_NCCL_IN_PLACE))};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(comm->device, &request->parts, comm->size * n * (int64_t)sizeof(float)));
  blocks.recv = (char *)request->parts.data;
  PetscCall(exchange(comm, &blocks));
  for (int q = 0; q < comm->size; q++)
    request->chunks.part_of[q] = (const float *)request->parts.data + request->chunks.part_displs[q];
  if (blocks.skip_own) request->chunks.part_of[comm->rank] = own;
  if (n > 0)
    PetscCall(comm->compute->sum_matrices((TrsStream)(void *)data->stream, comm->size,
                                          request->chunks.part_of, n, 1, n, to, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Do the same as sum_chunk() with encoded values, and then an all-gather of the sums. The parts of
  all ranks, including this rank, are adjacent, so that one kernel decodes all of them. The kernels
  move 22 bytes for each of the n values, and 10 bytes for each value of this rank's chunk.
*/
static PetscErrorCode allreduce_coded(TrsNcclRequest *request, const TrsCodec *codec, float *values,
                                      int64_t n)
{
  const TrsComm comm = request->base.comm;
  TrsNcclData *data = (TrsNcclData *)comm->data;
  const TrsStream on = (TrsStream)(void *)data->stream;
  const TrsChunks *chunks = &request->chunks;
  const int64_t bytes = comm->compute->codec_bytes(codec, 1), own = chunks->counts[comm->rank],
                at = chunks->displs[comm->rank];
  TrsNcclBlocks blocks = {.send_counts = chunks->counts,
                          .send_displs = chunks->displs,
                          .recv_counts = chunks->own_counts,
                          .recv_displs = chunks->part_displs,
                          .elem_bytes = bytes};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(comm->device, &data->encoded, n * bytes));
  PetscCall(TrsDeviceBufferReserve(comm->device, &data->arrived, comm->size * own * bytes));
  PetscCall(TrsDeviceBufferReserve(comm->device, &data->decoded, comm->size * own * (int64_t)sizeof(float)));
  blocks.send = (const char *)data->encoded.data;
  blocks.recv = (char *)data->arrived.data;
  PetscCall(comm->compute->encode(on, codec, n, values, data->encoded.data));
  PetscCall(exchange(comm, &blocks));
  if (own > 0) {
    PetscCall(comm->compute->decode(on, codec, comm->size * own, blocks.recv, (float *)data->decoded.data));
    for (int q = 0; q < comm->size; q++) chunks->part_of[q] = (const float *)data->decoded.data + q * own;
    PetscCall(comm->compute->sum_matrices(on, comm->size, chunks->part_of, own, 1, own, values + at, own));
    PetscCall(comm->compute->encode(on, codec, own, values + at, (char *)data->encoded.data + at * bytes));
  }
  blocks = (TrsNcclBlocks){.send = (const char *)data->encoded.data,
                           .send_counts = chunks->own_counts,
                           .send_displs = chunks->own_displs,
                           .recv = (char *)data->encoded.data,
                           .recv_counts = chunks->counts,
                           .recv_displs = chunks->displs,
                           .elem_bytes = bytes};
  PetscCall(exchange(comm, &blocks));
  PetscCall(comm->compute->decode(on, codec, n, data->encoded.data, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the table --- */

/*
  Exchange data with all ranks once, so that NCCL allocates its memory before the tables allocate
  theirs.
*/
static PetscErrorCode exchange_first(TrsComm comm)
{
  const TrsNcclData *data = (const TrsNcclData *)comm->data;
  TrsDeviceBuffer bytes = {0};
  TrsChunks chunks;
  TrsNcclBlocks blocks;

  PetscFunctionBegin;
  PetscCall(TrsChunksAlloc(comm->size, &chunks));
  TrsChunksSetEven(comm, comm->size, &chunks);
  PetscCall(TrsDeviceBufferReserve(comm->device, &bytes, 2 * (int64_t)comm->size));
  PetscCall(comm->device->zero(bytes.data, 2 * (int64_t)comm->size, (TrsStream)(void *)data->stream));
  blocks = (TrsNcclBlocks){.send = (const char *)bytes.data,
                           .send_counts = chunks.counts,
                           .send_displs = chunks.displs,
                           .recv = (char *)bytes.data + comm->size,
                           .recv_counts = chunks.counts,
                           .recv_displs = chunks.displs,
                           .elem_bytes = 1};
  PetscCall(exchange(comm, &blocks));
  PetscCall(comm->device->stream_synchronize((TrsStream)(void *)data->stream));
  PetscCall(TrsDeviceBufferFree(comm->device, &bytes));
  PetscCall(TrsChunksFree(&chunks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set up NCCL: all ranks pass the same id. */
static PetscErrorCode connect(TrsComm comm)
{
  TrsNcclData *data = (TrsNcclData *)comm->data;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclResult_t result = ncclSuccess;

  PetscFunctionBegin;
  config.blocking = 1;
  if (comm->rank == 0) result = data->nccl->GetUniqueId(&id);
  PetscCall(TrsAgree(comm->mpi, result == ncclSuccess ? PETSC_SUCCESS
                                                      : fail(data->nccl, result, NULL, "ncclGetUniqueId")));
  PetscCallMPI(MPI_Bcast(&id, (int)sizeof(id), MPI_BYTE, 0, comm->mpi));
  PetscCall(TrsNcclWatchStart(has_failed, abort_all));
  TrsNcclEnter("the set-up of a communicator", TrsCommWaitAtMost(0), PETSC_FALSE);
  result = data->nccl->CommInitRankConfig(&data->comm, comm->size, id, comm->rank, &config);
  PetscCall(over(data, result, "the set-up of a communicator"));
  data->next = all_communicators;
  all_communicators = data;
  TrsCudaWhileWaiting(check_all);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_nccl(TrsComm comm)
{
  TrsNcclData *data;
  TrsStream stream = NULL;

  PetscFunctionBegin;
  PetscCheck(!comm->device->host_memory, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-comm_backend nccl needs -device cuda, it is %s; use -comm_backend mpi", comm->device->name);
  PetscCall(PetscNew(&data));
  comm->data = data;
  if (wants_nccl(comm)) PetscCall(TrsNcclOpen(&data->nccl));
  if (!data->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(comm->device->stream_create("nccl", &stream));
  data->stream = TrsStreamCuda(stream);
  PetscCall(TrsAgree(comm->mpi, connect(comm)));
  PetscCall(TrsAgree(comm->mpi, exchange_first(comm)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Wait for the end of a communicator's work and free it. It stays in the list until the wait has
  succeeded, so that a failure aborts it with the others.
*/
static PetscErrorCode disconnect(TrsNcclData *data)
{
  ncclComm_t ended;

  PetscFunctionBegin;
  enter("the end of a communicator");
  PetscCall(over(data, data->nccl->CommFinalize(data->comm), "the end of a communicator"));
  for (TrsNcclData **at = &all_communicators; *at; at = &(*at)->next) {
    if (*at != data) continue;
    *at = data->next;
    break;
  }
  ended = data->comm;
  data->comm = NULL;
  enter("the release of a communicator");
  (void)data->nccl->CommDestroy(ended);
  PetscCall(over(data, ncclSuccess, "the release of a communicator"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_nccl(TrsComm comm)
{
  TrsNcclData *data = (TrsNcclData *)comm->data;
  /* the caller's stream if NCCL is not used */
  TrsStream stream = data->comm ? (TrsStream)(void *)data->stream : NULL;

  PetscFunctionBegin;
  if (stream) PetscCall(comm->device->stream_synchronize(stream));
  if (data->comm) PetscCall(disconnect(data));
  if (!all_communicators) TrsNcclWatchStop();
  while (data->free) {
    TrsNcclRequest *next = data->free->next;
    PetscCall(free_request(data->free));
    data->free = next;
  }
  PetscCall(TrsDeviceBufferFree(comm->device, &data->encoded));
  PetscCall(TrsDeviceBufferFree(comm->device, &data->arrived));
  PetscCall(TrsDeviceBufferFree(comm->device, &data->decoded));
  PetscCall(comm->device->stream_destroy(&stream));
  PetscCall(PetscFree(comm->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alltoallv_nccl(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                     TrsReceivedBlocks recv, int64_t elem_bytes, TrsRequest *request)
{
  const TrsNcclBlocks blocks = {.send = (const char *)send.data,
                                .send_counts = send.counts,
                                .send_displs = send.displs,
                                .recv = (char *)recv.data,
                                .recv_counts = recv.counts,
                                .recv_displs = recv.displs,
                                .elem_bytes = elem_bytes};
  TrsNcclRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(begin(comm, stream, &started));
  PetscCall(exchange(comm, &blocks));
  PetscCall(end(started, request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reduce_scatterv_nccl(TrsComm comm, TrsStream stream, const float *send,
                                           const int64_t *counts, float *recv, TrsRequest *request)
{
  TrsNcclRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(begin(comm, stream, &started));
  TrsChunksSet(comm, counts, PETSC_FALSE, &started->chunks);
  PetscCall(sum_chunk(started, send, recv));
  PetscCall(end(started, request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if NCCL's own all-gather can be used. It is tuned for the network, but needs adjacent blocks
  of equal size.
*/
static PetscBool is_even(TrsComm comm, const int64_t *counts, const int64_t *displs)
{
  for (int q = 0; q < comm->size; q++)
    if (counts[q] != counts[0] || displs[q] != q * counts[0]) return PETSC_FALSE;
  return (PetscBool)(((const TrsNcclData *)comm->data)->nccl && counts[0] > 0);
}

static PetscErrorCode allgatherv_nccl(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                      const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                      TrsRequest *request)
{
  const TrsNcclData *data = (const TrsNcclData *)comm->data;
  TrsNcclRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(begin(comm, stream, &started));
  if (is_even(comm, counts, displs)) {
    enter("an all-gather");
    PetscCall(over(data,
                   data->nccl->AllGather(send, recv, (size_t)(counts[0] * elem_bytes), ncclUint8, data->comm,
                                         data->stream),
                   "an all-gather"));
  } else {
    TrsNcclBlocks blocks = {.send = (const char *)send,
                            .recv = (char *)recv,
                            .recv_counts = counts,
                            .recv_displs = displs,
                            .elem_bytes = elem_bytes};

    TrsChunksSet(comm, counts, PETSC_FALSE, &started->chunks);
    blocks.send_counts = started->chunks.own_counts;
    blocks.send_displs = started->chunks.own_displs;
    PetscCall(exchange(comm, &blocks));
  }
  PetscCall(end(started, request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allreduce_nccl(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *values,
                                     int64_t n, TrsRequest *request)
{
  const TrsNcclData *data = (const TrsNcclData *)comm->data;
  TrsNcclRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(begin(comm, stream, &started));
  TrsChunksSetEven(comm, n, &started->chunks);
  if (comm->size > 1 && codec) {
    PetscCall(allreduce_coded(started, codec, values, n));
  } else if (data->nccl && comm->any_order) {
    enter("an all-reduce");
    PetscCall(
        over(data,
             data->nccl->AllReduce(values, values, (size_t)n, ncclFloat32, ncclSum, data->comm, data->stream),
             "an all-reduce"));
  } else if (data->nccl) {
    TrsNcclBlocks sums = {.send = (const char *)values,
                          .recv = (char *)values,
                          .elem_bytes = (int64_t)sizeof(float),
                          .skip_own = PETSC_TRUE};

    PetscCall(sum_chunk(started, values, values + started->chunks.displs[comm->rank]));
    sums.send_counts = started->chunks.own_counts;
    sums.send_displs = started->chunks.own_displs;
    sums.recv_counts = started->chunks.counts;
    sums.recv_displs = started->chunks.displs;
    PetscCall(exchange(comm, &sums));
  }
  PetscCall(end(started, request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode progress_nccl(TrsComm comm)
{
  PetscFunctionBegin;
  (void)comm;
  PetscCall(check_all(0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode wait_nccl(TrsRequest base, TrsStream stream)
{
  TrsNcclRequest *request = (TrsNcclRequest *)base;
  TrsNcclData *data = (TrsNcclData *)base->comm->data;

  PetscFunctionBegin;
  if (!data->nccl && request->stream != TrsStreamCuda(stream))
    TrsCallCUDA(cudaEventRecord(request->done, request->stream));
  if (request->stream != TrsStreamCuda(stream))
    TrsCallCUDA(cudaStreamWaitEvent(TrsStreamCuda(stream), request->done, 0));
  PetscCall(check_all(0)); /* if this wait fails, the caller keeps the request */
  request->next = data->free;
  data->free = request;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsCommOps trs_comm_nccl = {
    .name = "nccl",
    .by_device = PETSC_TRUE,
    .version = TrsNcclVersion,
    .setup = setup_nccl,
    .destroy = destroy_nccl,
    .alltoallv = alltoallv_nccl,
    .reduce_scatterv = reduce_scatterv_nccl,
    .allgatherv = allgatherv_nccl,
    .allreduce = allreduce_nccl,
    .progress = progress_nccl,
    .wait = wait_nccl,
};
