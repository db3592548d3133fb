/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The mpi backend. Between ranks of one host, blocks are copied directly from the sender's memory
  (comm/shared_lanes.h). Across hosts, nonblocking point-to-point messages go directly between the
  callers' buffers; small blocks are combined (comm/relay.h).

  MPI's own collectives are not used: their counts are int, the order of their sums may differ from
  run to run, and a nonblocking collective allocates its schedule at each start. Here a block of any
  size is sent in pieces, sums are added in rank order, and requests are recycled.

  An operation has one phase. An allreduce that is larger than a small message has two phases. In
  the first, every rank receives all ranks' values of its own chunk and adds them. In the second,
  the ranks gather the sums. If values are encoded, the phases use chunks of the encoded copy
  instead of the caller's array.

  The functions progress and wait advance the phases. Each operation of a communicator has a tag of
  its own, so that phases of different operations cannot mix.

  If the host cannot read the device's memory, data is copied through pinned host memory.
*/
#include "comm/mpi_blocks.h"
#include "comm/relax.h"
#include "core/clock.h"
#include "core/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* Tags stay below 32768, because MPI guarantees only this range. */
enum {
  TRS_MPI_TAGS = 8192,
  TRS_MPI_PIECE_BYTES = 1 << 18, /* bytes of a piece of a sum inside a host */
  /* floats in a cache line; no line has values of two ranks' chunks */
  TRS_MPI_LINE_FLOATS = 16
};

/* --- requests --- */

static PetscErrorCode new_request(TrsComm comm, TrsMpiRequest **request)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  PetscCall(PetscNew(request));
  (*request)->base.comm = comm;
  PetscCall(TrsChunksAlloc(comm->size, &(*request)->chunks));
  PetscCall(PetscMalloc1(size, &(*request)->offer));
  PetscCall(PetscMalloc1(size, &(*request)->taken));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_request(TrsMpiRequest *request)
{
  const TrsDeviceOps *device = request->base.comm->device;

  PetscFunctionBegin;
  PetscCall(TrsPinnedBufferFree(device, &request->send_stage));
  PetscCall(TrsPinnedBufferFree(device, &request->recv_stage));
  PetscCall(TrsDeviceBufferFree(device, &request->parts));
  PetscCall(TrsDeviceBufferFree(device, &request->encoded));
  PetscCall(TrsBufferFree(&request->pending));
  PetscCall(TrsBufferFree(&request->late_parts));
  PetscCall(TrsDeviceBufferFree(device, &request->lane_copy));
  for (int p = 0; p < TRS_MPI_PHASES; p++)
    PetscCall(TrsRelayPhaseFree(((TrsMpiData *)request->base.comm->data)->relay, &request->relayed[p]));
  PetscCall(TrsChunksFree(&request->chunks));
  PetscCall(PetscFree(request->offer));
  PetscCall(PetscFree(request->taken));
  PetscCall(PetscFree(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get an unused request, and append it to the active requests. */
static PetscErrorCode take_request(TrsComm comm, TrsMpiRequestKind kind, TrsStream stream,
                                   TrsMpiRequest **request)
{
  TrsMpiData *data = (TrsMpiData *)comm->data;

  PetscFunctionBegin;
  if (!data->free) PetscCall(new_request(comm, &data->free));
  *request = data->free;
  data->free = (*request)->next;
  (*request)->next = NULL;
  *data->active_end = *request;
  data->active_end = &(*request)->next;
  (*request)->kind = kind;
  (*request)->stream = stream;
  (*request)->codec = (TrsCodec){.kind = TRS_CODEC_FP32};
  (*request)->elem_bytes = (int64_t)sizeof(float);
  (*request)->number = data->n_started++;
  (*request)->tag = TRS_MPI_PHASES * (int)((*request)->number % TRS_MPI_TAGS);
  (*request)->earlier = NULL;
  (*request)->view = NULL;
  (*request)->comes_back = NULL;
  (*request)->phase = 0;
  (*request)->base.message_bytes = 0;
  (*request)->done = PETSC_FALSE;
  (*request)->n_pending = 0;
  (*request)->n_to_take = 0;
  (*request)->entered = PETSC_TRUE; /* nothing must be entered until the blocks start */
  (*request)->small = PETSC_TRUE;
  (*request)->by_message = PETSC_FALSE;
  (*request)->relay_done = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void return_request(TrsMpiRequest *request)
{
  TrsMpiData *data = (TrsMpiData *)request->base.comm->data;
  TrsMpiRequest **link = &data->active;

  while (*link != request) link = &(*link)->next;
  *link = request->next;
  if (!*link) data->active_end = link;
  request->next = data->free;
  data->free = request;
}

/* --- phases --- */

/*
  Start the first phase of a sum. This rank receives in `parts` the values of its chunk from the
  ranks on other hosts.
*/
static PetscErrorCode start_parts(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const int64_t own = request->chunks.counts[comm->rank];
  int64_t n = 0;

  PetscFunctionBegin;
  for (int q = 0; q < comm->size; q++) {
    request->chunks.part_displs[q] = n;
    if (q == comm->rank ? !TrsMpiOwnPartStays(request) : !TrsLanesTo(comm->lanes, q)) n += own;
  }
  PetscCall(TrsDeviceBufferReserve(comm->device, &request->parts, n * request->elem_bytes));
  request->blocks = (TrsMpiBlocks){.send = request->source,
                                   .send_counts = request->chunks.counts,
                                   .send_displs = request->chunks.displs,
                                   .recv = (char *)request->parts.data,
                                   .recv_counts = request->chunks.own_counts,
                                   .recv_displs = request->chunks.part_displs,
                                   .elem_bytes = request->elem_bytes};
  PetscCall(TrsMpiBlocksStart(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Encode n values at element `at`: the caller's values, or the sums that have replaced them. */
static PetscErrorCode encode_values(TrsMpiRequest *request, int64_t at, int64_t n)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_EXCHANGE, &before));
  PetscCall(request->base.comm->compute->encode(request->stream, &request->codec, n, request->target + at,
                                                (char *)request->encoded.data + at * request->elem_bytes));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Replace the values by the decoded sums, whose codes are equal on all ranks. */
static PetscErrorCode decode_values(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const int64_t n = request->chunks.displs[comm->size - 1] + request->chunks.counts[comm->size - 1];
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_EXCHANGE, &before));
  PetscCall(
      comm->compute->decode(request->stream, &request->codec, n, request->encoded.data, request->target));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Decode to floats all ranks' values of this rank's chunk. All requests use the same memory for the
  result, because the values are summed before the next values are decoded. This also holds on a
  device, because the host waits for the data that it sends.
*/
static PetscErrorCode decode_parts(TrsMpiRequest *request, int64_t n)
{
  const TrsComm comm = request->base.comm;
  TrsMpiData *data = (TrsMpiData *)comm->data;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(comm->device, &data->decoded, comm->size * n * (int64_t)sizeof(float)));
  for (int q = 0; q < comm->size; q++) {
    float *to = (float *)data->decoded.data + q * n;

    PetscCall(comm->compute->decode(request->stream, &request->codec, n, request->chunks.part_of[q], to));
    request->chunks.part_of[q] = to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add all ranks' values of this rank's chunk in rank order, and store the sums at element `at`.
  Values of ranks on lanes are read in their senders' memory. This rank's own values may be in the
  array to which the sums are written. If values travel encoded, the sums are encoded, too.
*/
static PetscErrorCode sum_parts(TrsMpiRequest *request, int64_t at)
{
  const TrsComm comm = request->base.comm;
  const int64_t n = request->chunks.counts[comm->rank];
  float *to = request->target + at;
  TrsStage before;

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int q = 0; q < comm->size; q++)
    if (!TrsLanesTo(comm->lanes, q))
      request->chunks.part_of[q] = (const void *)((const char *)request->parts.data +
                                                  request->chunks.part_displs[q] * request->elem_bytes);
  if (TrsMpiOwnPartStays(request))
    request->chunks.part_of[comm->rank] =
        (const void *)(request->source + request->chunks.displs[comm->rank] * request->elem_bytes);
  PetscCall(TrsStageSwitch(TRS_STAGE_EXCHANGE, &before));
  if (TrsMpiIsCoded(request)) PetscCall(decode_parts(request, n));
  PetscCall(
      comm->compute->sum_matrices(request->stream, comm->size, request->chunks.part_of, n, 1, n, to, n));
  if (TrsMpiIsCoded(request)) PetscCall(encode_values(request, at, n));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscCall(TrsMpiPartsReturn(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start the second phase of an allreduce, in which the sums of all chunks replace the values. */
static PetscErrorCode start_sums(TrsMpiRequest *request)
{
  PetscFunctionBegin;
  request->phase = 1;
  request->blocks = (TrsMpiBlocks){.send_counts = request->chunks.own_counts,
                                   .send_displs = request->chunks.own_displs,
                                   .recv = TrsMpiIsCoded(request) ? (char *)request->encoded.data
                                                                  : (char *)request->target,
                                   .recv_counts = request->chunks.counts,
                                   .recv_displs = request->chunks.displs,
                                   .elem_bytes = request->elem_bytes,
                                   .alike = PETSC_TRUE};
  request->blocks.send = request->blocks.recv;
  PetscCall(TrsMpiBlocksStart(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Start the next phase after all data of a phase has arrived, or finish the operation after its last
  phase.
*/
static PetscErrorCode end_phase(TrsMpiRequest *request)
{
  PetscFunctionBegin;
  PetscCall(TrsMpiBlocksUnstage(request));
  if (request->kind == TRS_MPI_ALLREDUCE && request->phase < request->last_phase) {
    PetscCall(sum_parts(request, request->chunks.own_displs[0]));
    PetscCall(start_sums(request));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (TrsMpiIsSum(request)) PetscCall(sum_parts(request, 0));
  if (TrsMpiIsCoded(request)) PetscCall(decode_values(request));
  request->done = PETSC_TRUE;
  if (PetscUnlikely(trs_tracing || request->base.start_s != 0)) request->base.done_s = TrsClock();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Process the data that has arrived. If a phase's data is complete, start the next phase. */
static PetscErrorCode drive(TrsMpiRequest *request)
{
  PetscBool all;

  PetscFunctionBegin;
  if (request->done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMpiBlocksDrive(request, &all));
  if (all) PetscCall(end_phase(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the table of functions --- */

/*
  Set the largest size of a message. Tests lower it by TRSHARD_MAX_COUNT in the environment, so that
  they reach the code for counts that do not fit into an int.
*/
static PetscErrorCode read_max_bytes(int64_t *max_bytes)
{
  const char *text = getenv("TRSHARD_MAX_COUNT");
  char *end;

  PetscFunctionBegin;
  *max_bytes = (int64_t)1 << 30;
  if (!text || !*text) PetscFunctionReturn(PETSC_SUCCESS);
  errno = 0;
  *max_bytes = strtoll(text, &end, 10);
  PetscCheck(errno == 0 && *end == '\0' && *max_bytes >= 1 && *max_bytes <= INT_MAX, PETSC_COMM_SELF,
             TRS_ERR_OPTION, "TRSHARD_MAX_COUNT=%s in the environment is not a number of bytes from 1 to %d",
             text, INT_MAX);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_mpi(TrsComm comm)
{
  TrsMpiData *data;
  const int *peers;

  PetscFunctionBegin;
  PetscCall(PetscNew(&data));
  PetscCall(read_max_bytes(&data->max_bytes));
  PetscCallMPI(MPI_Comm_dup(comm->mpi, &data->mpi));
  data->active_end = &data->active;
  comm->data = data;
  if (comm->device->host_memory) PetscCall(TrsLanesCreate(comm->mpi, TrsComputeThreads(), &comm->lanes));
  comm->n_shared = TrsLanesPeers(comm->lanes, &peers) + 1;
  PetscCall(TrsRelayCreate(comm, &data->relay));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_mpi(TrsComm comm)
{
  TrsMpiData *data = (TrsMpiData *)comm->data;

  PetscFunctionBegin;
  PetscCheck(!data->active, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "a communication was started and never waited for");
  while (data->free) {
    TrsMpiRequest *next = data->free->next;
    PetscCall(free_request(data->free));
    data->free = next;
  }
  PetscCall(TrsDeviceBufferFree(comm->device, &data->decoded));
  PetscCall(TrsRelayDestroy(&data->relay));
  PetscCall(TrsLanesDestroy(&comm->lanes));
  PetscCallMPI(MPI_Comm_free(&data->mpi));
  PetscCall(PetscFree(comm->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsMpiBlocks blocks_of(TrsSentBlocks send, TrsReceivedBlocks recv, int64_t elem_bytes)
{
  return (TrsMpiBlocks){.send = (const char *)send.data,
                        .send_counts = send.counts,
                        .send_displs = send.displs,
                        .recv = (char *)recv.data,
                        .recv_counts = recv.counts,
                        .recv_displs = recv.displs,
                        .elem_bytes = elem_bytes};
}

static PetscErrorCode alltoallv_mpi(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                    TrsReceivedBlocks recv, int64_t elem_bytes, TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_EXCHANGE, stream, &started));
  started->blocks = blocks_of(send, recv, elem_bytes);
  PetscCall(TrsMpiBlocksStart(started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alltoallv_blocks_mpi(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                           TrsReceivedBlocks recv, TrsBlockView view, TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_EXCHANGE, stream, &started));
  if (comm->device->host_memory) {
    started->view = view.block;
    started->comes_back = view.comes_back;
  }
  started->blocks = blocks_of(send, recv, (int64_t)sizeof(float));
  PetscCall(TrsMpiBlocksStart(started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reduce_scatterv_mpi(TrsComm comm, TrsStream stream, const float *send,
                                          const int64_t *counts, float *recv, TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_REDUCE_SCATTER, stream, &started));
  TrsChunksSet(comm, counts, PETSC_FALSE, &started->chunks);
  started->source = (const char *)send;
  started->target = recv;
  PetscCall(start_parts(started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allgatherv_mpi(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                     const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                     TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_EXCHANGE, stream, &started));
  TrsChunksSet(comm, counts, PETSC_FALSE, &started->chunks);
  started->blocks = (TrsMpiBlocks){.send = (const char *)send,
                                   .send_counts = started->chunks.own_counts,
                                   .send_displs = started->chunks.own_displs,
                                   .recv = (char *)recv,
                                   .recv_counts = counts,
                                   .recv_displs = displs,
                                   .elem_bytes = elem_bytes,
                                   .alike = PETSC_TRUE};
  PetscCall(TrsMpiBlocksStart(started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if all ranks send their values to each other in small messages. Each rank then adds all
  ranks' values in rank order. So one phase suffices, and its bits are equal to the bits of two
  phases.
*/
static PetscBool is_small_sum(TrsComm comm, int64_t n, int64_t elem_bytes)
{
  return (PetscBool)(comm->n_shared == comm->size && (comm->size - 1) * n * elem_bytes <= TRS_LANE_SMALL);
}

/*
  Sum n floats in place, in chunks of nearly equal size. `earlier` is the previous piece of the same
  sum.
*/
static PetscErrorCode start_allreduce(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *values,
                                      int64_t n, TrsMpiRequest *earlier, TrsMpiRequest **request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_ALLREDUCE, stream, &started));
  started->earlier = earlier;
  if (codec) {
    started->codec = *codec;
    started->elem_bytes = comm->compute->codec_bytes(codec, 1);
  }
  started->last_phase = !is_small_sum(comm, n, started->elem_bytes);
  if (started->last_phase) {
    TrsChunksSetEven(comm, n, &started->chunks);
  } else { /* the only chunk is added on all ranks */
    for (int q = 0; q < comm->size; q++) started->chunks.counts[q] = n;
    TrsChunksSet(comm, started->chunks.counts, PETSC_FALSE, &started->chunks);
    PetscCall(PetscArrayzero(started->chunks.displs, (size_t)comm->size));
  }
  started->source = (const char *)values;
  started->target = values;
  if (comm->size == 1) {
    started->done = PETSC_TRUE;
  } else {
    if (codec) {
      PetscCall(TrsDeviceBufferReserveShared(comm->device, &started->encoded, n * started->elem_bytes));
      PetscCall(encode_values(started, 0, n));
      started->source = (const char *)started->encoded.data;
    }
    PetscCall(start_parts(started));
  }
  *request = started;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Sum floats over all ranks. Inside a host a large sum is made in pieces: while the other ranks copy
  the sums of a piece, these are still in the cache of the rank that added them. An element's values
  are added in the same order as without pieces, so the bits are the same.
*/
static PetscErrorCode allreduce_mpi(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *values,
                                    int64_t n, TrsRequest *request)
{
  const int64_t line = comm->size * (int64_t)TRS_MPI_LINE_FLOATS;
  const int64_t piece = comm->size > 1 && comm->n_shared == comm->size
                            ? TRS_MPI_PIECE_BYTES / (int64_t)sizeof(float) / line * line
                            : n;
  TrsMpiRequest *started = NULL;
  int64_t at = 0;

  PetscFunctionBegin;
  for (; n - at > piece + piece / 2; at += piece)
    PetscCall(start_allreduce(comm, stream, codec, values + at, piece, started, &started));
  PetscCall(start_allreduce(comm, stream, codec, values + at, n - at, started, &started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode progress_mpi(TrsComm comm)
{
  const TrsMpiData *data = (const TrsMpiData *)comm->data;

  PetscFunctionBegin;
  for (TrsMpiRequest *request = data->active, *before = NULL; request;
       before = request, request = request->next) {
    PetscCall(drive(request));
    /* start the next phase of the previous piece while its sums are in the cache */
    if (before) PetscCall(drive(before));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find an operation's oldest piece that is in flight or still read by other ranks. Returns NULL if
  the operation is complete.
*/
static const TrsMpiRequest *incomplete(const TrsMpiRequest *request)
{
  const TrsMpiRequest *oldest = NULL;

  for (; request; request = request->earlier)
    if (!request->done || !TrsMpiBlocksReleased(request)) oldest = request;
  return oldest;
}

/* Wait until the data of an operation has arrived. */
static PetscErrorCode arrive_mpi(TrsRequest base, TrsStream stream)
{
  TrsMpiRequest *request = (TrsMpiRequest *)base;
  TrsStage before;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(drive(request));
  if (!request->done) {
    PetscCall(TrsStageSwitch(TRS_STAGE_WAIT, &before));
    for (TrsPatience patience = {0};;) {
      TrsPatienceLook(base->comm, TrsMpiBlocksAwaited(request), &patience);
      PetscCall(progress_mpi(base->comm));
      if (request->done) break;
      PetscCall(TrsPatienceRelax(base->comm, &patience));
    }
    PetscCall(TrsStageSwitch(before, NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the blocks that the caller viewed to their senders. */
static PetscErrorCode give_back_mpi(TrsRequest base)
{
  TrsMpiRequest *request = (TrsMpiRequest *)base;

  PetscFunctionBegin;
  if (request->view) PetscCall(TrsMpiPartsReturn(request));
  /* the sender of a block may be sleeping */
  if (request->view && base->comm->lanes) TrsLanesRing(base->comm->lanes);
  request->view = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode wait_mpi(TrsRequest base, TrsStream stream)
{
  TrsMpiRequest *request = (TrsMpiRequest *)base;
  const TrsComm comm = base->comm;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(drive(request));
  if (request->view) {
    PetscCall(arrive_mpi(base, stream));
    PetscCall(give_back_mpi(base));
  }
  if (incomplete(request)) {
    PetscCall(TrsStageSwitch(TRS_STAGE_WAIT, &before));
    for (TrsPatience patience = {0};;) {
      const TrsMpiRequest *late = incomplete(request);

      if (late) TrsPatienceLook(comm, TrsMpiBlocksAwaited(late), &patience);
      /* advance all operations, because the later phases of other operations must not wait for
         this operation */
      PetscCall(progress_mpi(comm));
      if (!incomplete(request)) break;
      PetscCall(TrsPatienceRelax(comm, &patience));
    }
    PetscCall(TrsStageSwitch(before, NULL));
  }
  if (!comm->device->host_memory) PetscCall(comm->device->stream_synchronize(request->stream));
  while (request) {
    TrsMpiRequest *earlier = request->earlier;

    if (earlier) base->message_bytes += earlier->base.message_bytes;
    return_request(request);
    request = earlier;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsCommOps trs_comm_mpi = {
    .name = "mpi",
    .setup = setup_mpi,
    .destroy = destroy_mpi,
    .alltoallv = alltoallv_mpi,
    .alltoallv_blocks = alltoallv_blocks_mpi,
    .arrive = arrive_mpi,
    .give_back = give_back_mpi,
    .reduce_scatterv = reduce_scatterv_mpi,
    .allgatherv = allgatherv_mpi,
    .allreduce = allreduce_mpi,
    .progress = progress_mpi,
    .wait = wait_mpi,
};
