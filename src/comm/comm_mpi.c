/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The mpi backend: nonblocking point-to-point messages straight from and to the callers' buffers.

  Why not MPI's own collectives: their counts are int, their sums may be added in an order that differs from
  run to run, and a nonblocking one allocates its schedule at each start. Here a count of any size goes out in
  pieces, sums run in rank order, and requests are recycled.

  An operation has one phase, an allreduce two: (1) every rank gets all ranks' values of its chunk and adds
  them, (2) sums are gathered. Phases are driven by progress and wait. Tags number the operations of a
  communicator, so that phases of different operations cannot mix.

  Device memory that the host cannot read is staged through pinned memory.
*/
#include "comm/comm.h"

#include "core/events.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* Tags stay below 32768, the least that MPI guarantees. */
enum { TRS_MPI_TAG_SLOTS = 8192, TRS_MPI_PHASES = 2 };

typedef enum {
  TRS_MPI_EXCHANGE,
  TRS_MPI_REDUCE_SCATTER,
  TRS_MPI_ALLREDUCE,
  TRS_MPI_BROADCAST
} TrsMpiRequestKind;

/* Blocks to and from every rank; displacements and counts in elements. */
typedef struct {
  const char *send;
  const int64_t *send_counts, *send_displs;
  char *recv;
  const int64_t *recv_counts, *recv_displs;
  int64_t elem_bytes;
} TrsMpiBlocks;

typedef struct TrsMpiRequest {
  struct TrsRequestImpl base;
  struct TrsMpiRequest *next; /* in the list of active or of free ones */
  TrsMpiRequestKind kind;
  TrsStream stream;
  int tag, phase;
  PetscBool done;
  TrsMpiBlocks blocks; /* of the current phase */
  int n_pending;
  TrsBuffer pending;                              /* MPI_Request */
  int64_t *counts, *displs;                       /* [size] chunks of a reduction */
  int64_t *own_counts, *own_displs, *part_displs; /* [size] one rank's chunk, for every rank */
  const float **part_of;                          /* [size] */
  TrsDeviceBuffer parts;                          /* what the ranks have for my chunk */
  const float *source;                            /* of a reduction */
  float *target;
  TrsPinnedBuffer send_stage, recv_stage;
} TrsMpiRequest;

typedef struct {
  MPI_Comm mpi;
  int64_t max_bytes; /* of one message */
  int next_tag;
  TrsMpiRequest *active, **active_end, *free;
} TrsMpiData;

/* --- requests --- */

static PetscErrorCode new_request(TrsComm comm, TrsMpiRequest **request)
{
  const size_t size = (size_t)comm->size;
  int64_t *numbers;

  PetscFunctionBegin;
  PetscCall(PetscNew(request));
  (*request)->base.comm = comm;
  PetscCall(PetscCalloc1(5 * size, &numbers));
  (*request)->counts = numbers;
  (*request)->displs = numbers + size;
  (*request)->own_counts = numbers + 2 * size;
  (*request)->own_displs = numbers + 3 * size;
  (*request)->part_displs = numbers + 4 * size;
  PetscCall(PetscMalloc1(size, &(*request)->part_of));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_request(TrsMpiRequest *request)
{
  const TrsDeviceOps *device = request->base.comm->device;

  PetscFunctionBegin;
  PetscCall(TrsPinnedBufferFree(device, &request->send_stage));
  PetscCall(TrsPinnedBufferFree(device, &request->recv_stage));
  PetscCall(TrsDeviceBufferFree(device, &request->parts));
  PetscCall(TrsBufferFree(&request->pending));
  PetscCall(PetscFree(request->counts));
  PetscCall(PetscFree(request->part_of));
  PetscCall(PetscFree(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A request from the pool, at the end of the active ones. */
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
  (*request)->tag = TRS_MPI_PHASES * data->next_tag;
  (*request)->phase = 0;
  (*request)->done = PETSC_FALSE;
  (*request)->n_pending = 0;
  data->next_tag = (data->next_tag + 1) % TRS_MPI_TAG_SLOTS;
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

static PetscErrorCode next_pending(TrsMpiRequest *request, MPI_Request **pending)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&request->pending, (request->n_pending + 1) * (int64_t)sizeof(MPI_Request),
                             PETSC_TRUE));
  *pending = (MPI_Request *)request->pending.data + request->n_pending++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- one phase: messages between all pairs --- */

static PetscErrorCode send_pieces(TrsMpiRequest *request, const char *from, int64_t bytes, int peer)
{
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;
  MPI_Request *pending = NULL;

  PetscFunctionBegin;
  for (int64_t at = 0; at < bytes; at += data->max_bytes) {
    PetscCall(next_pending(request, &pending));
    PetscCallMPI(MPI_Isend(from + at, (int)PetscMin(bytes - at, data->max_bytes), MPI_BYTE, peer,
                           request->tag + request->phase, data->mpi, pending));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode recv_pieces(TrsMpiRequest *request, char *to, int64_t bytes, int peer)
{
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;
  MPI_Request *pending = NULL;

  PetscFunctionBegin;
  for (int64_t at = 0; at < bytes; at += data->max_bytes) {
    PetscCall(next_pending(request, &pending));
    PetscCallMPI(MPI_Irecv(to + at, (int)PetscMin(bytes - at, data->max_bytes), MPI_BYTE, peer,
                           request->tag + request->phase, data->mpi, pending));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Elements that the blocks span: [begin, end). */
static void hull(int n, const int64_t *counts, const int64_t *displs, int64_t *begin, int64_t *end)
{
  *begin = INT64_MAX;
  *end = 0;
  for (int q = 0; q < n; q++) {
    if (counts[q] == 0) continue;
    *begin = PetscMin(*begin, displs[q]);
    *end = PetscMax(*end, displs[q] + counts[q]);
  }
  if (*end == 0) *begin = 0;
}

/* Where the host finds what is sent, and puts what arrives: the buffers themselves or stages for them. */
static PetscErrorCode stage_blocks(TrsMpiRequest *request, const char **send, char **recv)
{
  const TrsComm comm = request->base.comm;
  const TrsMpiBlocks *x = &request->blocks;
  int64_t begin, end;

  PetscFunctionBegin;
  *send = x->send;
  *recv = x->recv;
  if (comm->device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  hull(comm->size, x->send_counts, x->send_displs, &begin, &end);
  begin *= x->elem_bytes;
  end *= x->elem_bytes;
  PetscCall(TrsPinnedBufferReserve(comm->device, &request->send_stage, end));
  if (end > begin) {
    PetscCall(comm->device->copy((char *)request->send_stage.data + begin, x->send + begin, end - begin,
                                 request->stream));
    PetscCall(comm->device->stream_synchronize(request->stream));
  }
  hull(comm->size, x->recv_counts, x->recv_displs, &begin, &end);
  PetscCall(TrsPinnedBufferReserve(comm->device, &request->recv_stage, end * x->elem_bytes));
  *send = (const char *)request->send_stage.data;
  *recv = (char *)request->recv_stage.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What arrived goes from the stage to the device. */
static PetscErrorCode unstage_blocks(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const TrsMpiBlocks *x = &request->blocks;

  PetscFunctionBegin;
  if (comm->device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  for (int q = 0; q < comm->size; q++) {
    const int64_t at = x->recv_displs[q] * x->elem_bytes, bytes = x->recv_counts[q] * x->elem_bytes;
    if (q != comm->rank && bytes > 0)
      PetscCall(comm->device->copy(x->recv + at, (const char *)request->recv_stage.data + at, bytes,
                                   request->stream));
  }
  PetscCall(comm->device->stream_synchronize(request->stream)); /* the stage may be filled again */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start request->blocks. The own part is copied while the messages are under way. */
static PetscErrorCode start_blocks(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const TrsMpiBlocks *x = &request->blocks;
  const int64_t self = x->send_counts[comm->rank] * x->elem_bytes;
  const char *send;
  char *recv;

  PetscFunctionBegin;
  PetscCall(stage_blocks(request, &send, &recv));
  request->n_pending = 0;
  for (int i = 1; i < comm->size; i++) {
    const int q = (comm->rank + comm->size - i) % comm->size;
    PetscCall(
        recv_pieces(request, recv + x->recv_displs[q] * x->elem_bytes, x->recv_counts[q] * x->elem_bytes, q));
  }
  for (int i = 1; i < comm->size; i++) {
    const int q = (comm->rank + i) % comm->size;
    PetscCall(
        send_pieces(request, send + x->send_displs[q] * x->elem_bytes, x->send_counts[q] * x->elem_bytes, q));
  }
  if (self > 0 && request->kind != TRS_MPI_REDUCE_SCATTER) { /* whose sum reads the own part in its place */
    const char *from = x->send + x->send_displs[comm->rank] * x->elem_bytes;
    char *to = x->recv + x->recv_displs[comm->rank] * x->elem_bytes;
    if (from != to) PetscCall(comm->device->copy(to, from, self, request->stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- phases --- */

/* Chunk q of counts[q] elements belongs to rank q. */
static PetscErrorCode set_chunks(TrsMpiRequest *request, const int64_t *counts, PetscBool gather_in_place)
{
  const TrsComm comm = request->base.comm;
  int64_t n = 0;

  PetscFunctionBegin;
  for (int q = 0; q < comm->size; q++) {
    request->counts[q] = counts[q];
    request->displs[q] = n;
    request->own_counts[q] = counts[comm->rank];
    request->part_displs[q] = q * counts[comm->rank];
    n += counts[q];
  }
  for (int q = 0; q < comm->size; q++)
    request->own_displs[q] = gather_in_place ? request->displs[comm->rank] : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* First phase of a sum: all ranks' values for my chunk come to `parts`. */
static PetscErrorCode start_parts(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(comm->device, &request->parts,
                                   comm->size * request->counts[comm->rank] * (int64_t)sizeof(float)));
  request->blocks = (TrsMpiBlocks){.send = (const char *)request->source,
                                   .send_counts = request->counts,
                                   .send_displs = request->displs,
                                   .recv = (char *)request->parts.data,
                                   .recv_counts = request->own_counts,
                                   .recv_displs = request->part_displs,
                                   .elem_bytes = (int64_t)sizeof(float)};
  PetscCall(start_blocks(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the parts in rank order. */
static PetscErrorCode sum_parts(TrsMpiRequest *request, float *to)
{
  const TrsComm comm = request->base.comm;
  const int64_t n = request->counts[comm->rank];

  PetscFunctionBegin;
  for (int q = 0; q < comm->size; q++)
    request->part_of[q] = (const float *)request->parts.data + request->part_displs[q];
  if (request->kind == TRS_MPI_REDUCE_SCATTER)
    request->part_of[comm->rank] = request->source + request->displs[comm->rank];
  if (n > 0)
    PetscCall(comm->compute->sum_matrices(request->stream, comm->size, request->part_of, n, 1, n, to, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Second phase of an allreduce: the sums of all chunks come to where the values were. */
static PetscErrorCode start_sums(TrsMpiRequest *request)
{
  PetscFunctionBegin;
  request->phase = 1;
  request->blocks = (TrsMpiBlocks){.send = (const char *)request->target,
                                   .send_counts = request->own_counts,
                                   .send_displs = request->own_displs,
                                   .recv = (char *)request->target,
                                   .recv_counts = request->counts,
                                   .recv_displs = request->displs,
                                   .elem_bytes = (int64_t)sizeof(float)};
  PetscCall(start_blocks(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All messages of a phase have arrived. */
static PetscErrorCode end_phase(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;

  PetscFunctionBegin;
  request->n_pending = 0;
  request->done = PETSC_TRUE;
  if (request->kind == TRS_MPI_BROADCAST) {
    const TrsMpiBlocks *x = &request->blocks;
    if (!comm->device->host_memory && x->elem_bytes > 0)
      PetscCall(comm->device->copy(x->recv, request->recv_stage.data, x->elem_bytes, request->stream));
    if (!comm->device->host_memory) PetscCall(comm->device->stream_synchronize(request->stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(unstage_blocks(request));
  if (request->kind == TRS_MPI_REDUCE_SCATTER) {
    PetscCall(sum_parts(request, request->target));
  } else if (request->kind == TRS_MPI_ALLREDUCE && request->phase == 0) {
    PetscCall(sum_parts(request, request->target + request->own_displs[0]));
    PetscCall(start_sums(request));
    request->done = (PetscBool)(request->n_pending == 0);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Test once, and go on to the next phase. */
static PetscErrorCode drive(TrsMpiRequest *request)
{
  int arrived = 1;

  PetscFunctionBegin;
  if (request->done) PetscFunctionReturn(PETSC_SUCCESS);
  if (request->n_pending > 0)
    PetscCallMPI(
        MPI_Testall(request->n_pending, (MPI_Request *)request->pending.data, &arrived, MPI_STATUSES_IGNORE));
  if (arrived) PetscCall(end_phase(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the table --- */

/* Largest message; TRSHARD_MAX_COUNT in the environment lowers it, so that tests reach the pieces. */
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

  PetscFunctionBegin;
  PetscCall(PetscNew(&data));
  PetscCall(read_max_bytes(&data->max_bytes));
  PetscCallMPI(MPI_Comm_dup(comm->mpi, &data->mpi));
  data->active_end = &data->active;
  comm->data = data;
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
  PetscCallMPI(MPI_Comm_free(&data->mpi));
  PetscCall(PetscFree(comm->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alltoallv_mpi(TrsComm comm, TrsStream stream, const void *send,
                                    const int64_t *send_counts, const int64_t *send_displs, void *recv,
                                    const int64_t *recv_counts, const int64_t *recv_displs,
                                    int64_t elem_bytes, TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_EXCHANGE, stream, &started));
  started->blocks = (TrsMpiBlocks){(const char *)send, send_counts, send_displs, (char *)recv,
                                   recv_counts,        recv_displs, elem_bytes};
  PetscCall(start_blocks(started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reduce_scatterv_mpi(TrsComm comm, TrsStream stream, const float *send,
                                          const int64_t *counts, float *recv, TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_REDUCE_SCATTER, stream, &started));
  PetscCall(set_chunks(started, counts, PETSC_FALSE));
  started->source = send;
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
  PetscCall(set_chunks(started, counts, PETSC_FALSE));
  started->blocks = (TrsMpiBlocks){.send = (const char *)send,
                                   .send_counts = started->own_counts,
                                   .send_displs = started->own_displs,
                                   .recv = (char *)recv,
                                   .recv_counts = counts,
                                   .recv_displs = displs,
                                   .elem_bytes = elem_bytes};
  PetscCall(start_blocks(started));
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allreduce_mpi(TrsComm comm, TrsStream stream, float *values, int64_t n,
                                    TrsRequest *request)
{
  TrsMpiRequest *started = NULL;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_ALLREDUCE, stream, &started));
  for (int q = 0; q < comm->size; q++)
    started->counts[q] = n / comm->size + (q < n % comm->size); /* as even as can be */
  PetscCall(set_chunks(started, started->counts, PETSC_TRUE));
  started->source = values;
  started->target = values;
  if (comm->size == 1) {
    started->done = PETSC_TRUE;
  } else {
    PetscCall(start_parts(started));
  }
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode broadcast_mpi(TrsComm comm, TrsStream stream, void *values, int64_t bytes, int root,
                                    TrsRequest *request)
{
  const TrsMpiData *data = (const TrsMpiData *)comm->data;
  TrsMpiRequest *started = NULL;
  MPI_Request *pending = NULL;
  char *buffer = (char *)values;

  PetscFunctionBegin;
  PetscCall(take_request(comm, TRS_MPI_BROADCAST, stream, &started));
  started->blocks = (TrsMpiBlocks){.recv = (char *)values, .elem_bytes = bytes};
  if (!comm->device->host_memory) {
    PetscCall(TrsPinnedBufferReserve(comm->device, &started->recv_stage, bytes));
    buffer = (char *)started->recv_stage.data;
    if (comm->rank == root && bytes > 0) PetscCall(comm->device->copy(buffer, values, bytes, stream));
    PetscCall(comm->device->stream_synchronize(stream));
  }
  for (int64_t at = 0; at < bytes; at += data->max_bytes) {
    PetscCall(next_pending(started, &pending));
    PetscCallMPI(MPI_Ibcast(buffer + at, (int)PetscMin(bytes - at, data->max_bytes), MPI_BYTE, root,
                            data->mpi, pending));
  }
  *request = &started->base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode progress_mpi(TrsComm comm)
{
  const TrsMpiData *data = (const TrsMpiData *)comm->data;

  PetscFunctionBegin;
  for (TrsMpiRequest *request = data->active; request; request = request->next) PetscCall(drive(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode wait_mpi(TrsRequest base, TrsStream stream)
{
  TrsMpiRequest *request = (TrsMpiRequest *)base;
  const TrsComm comm = base->comm;
  TrsStage before;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(drive(request));
  if (!request->done) {
    PetscCall(TrsStageSwitch(TRS_STAGE_WAIT, &before));
    while (!request->done)
      PetscCall(progress_mpi(comm)); /* all of them: their later phases must not wait for this one */
    PetscCall(TrsStageSwitch(before, NULL));
  }
  if (!comm->device->host_memory) PetscCall(comm->device->stream_synchronize(request->stream));
  return_request(request);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsCommOps trs_comm_mpi = {
    .name = "mpi",
    .setup = setup_mpi,
    .destroy = destroy_mpi,
    .alltoallv = alltoallv_mpi,
    .reduce_scatterv = reduce_scatterv_mpi,
    .allgatherv = allgatherv_mpi,
    .allreduce = allreduce_mpi,
    .broadcast = broadcast_mpi,
    .progress = progress_mpi,
    .wait = wait_mpi,
};
