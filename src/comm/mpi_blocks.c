/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/mpi_blocks.h"

#include "core/events.h"
#include "core/print.h"
#include "core/shared_memory.h"
#include "core/start.h"

#include <inttypes.h>
#include <stdio.h>

/* The time for copies of at least TRS_MOVE_STAGE_BYTES is measured as a stage of its own. */
enum {
  TRS_MOVE_STAGE_BYTES = 1 << 15,
  TRS_RING_BYTES = 4096, /* a copy of this size takes longer than ringing the bell */
  TRS_MOST_PIECES = 64   /* messages for a block, unless MPI's largest message needs more */
};

/* Make sure that request->pending has space for one more MPI request. */
static PetscErrorCode next_pending(TrsMpiRequest *request, MPI_Request **pending)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&request->pending, (request->n_pending + 1) * (int64_t)sizeof(MPI_Request),
                             PETSC_TRUE));
  *pending = (MPI_Request *)request->pending.data + request->n_pending++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- messages --- */

/*
  The size of the pieces in which a block travels. A piece of TRS_EAGER_BYTES is sent at once
  (core/start.h). Larger blocks have larger pieces, because each look for messages costs time for
  every piece in flight.
*/
static int64_t piece_bytes(const TrsMpiData *data, int64_t bytes)
{
  return PetscMin(data->max_bytes, PetscMax(TRS_EAGER_BYTES, bytes / TRS_MOST_PIECES + 1));
}

static PetscErrorCode send_pieces(TrsMpiRequest *request, const char *from, int64_t bytes, int peer)
{
  const TrsComm comm = request->base.comm;
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;
  const int64_t piece = piece_bytes(data, bytes);
  MPI_Request *pending = NULL;

  PetscFunctionBegin;
  for (int64_t at = 0; at < bytes; at += piece) {
    PetscCall(next_pending(request, &pending));
    PetscCallMPI(MPI_Isend(from + at, (int)PetscMin(bytes - at, piece), MPI_BYTE, peer,
                           request->tag + request->phase, data->mpi, pending));
    comm->n_messages++;
  }
  comm->message_bytes += bytes;
  request->base.message_bytes += bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode recv_pieces(TrsMpiRequest *request, char *to, int64_t bytes, int peer)
{
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;
  const int64_t piece = piece_bytes(data, bytes);
  MPI_Request *pending = NULL;

  PetscFunctionBegin;
  for (int64_t at = 0; at < bytes; at += piece) {
    PetscCall(next_pending(request, &pending));
    PetscCallMPI(MPI_Irecv(to + at, (int)PetscMin(bytes - at, piece), MPI_BYTE, peer,
                           request->tag + request->phase, data->mpi, pending));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the range of elements [begin, end) that contains all blocks. */
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

/*
  Set the addresses at which the host sends and receives data. They are in the buffers themselves,
  or if the host cannot read these, in copies in pinned memory.
*/
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

PetscErrorCode TrsMpiBlocksUnstage(TrsMpiRequest *request)
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
  /* the next operation may overwrite the copy in pinned memory */
  PetscCall(comm->device->stream_synchronize(request->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- lanes --- */

PetscBool TrsMpiIsCoded(const TrsMpiRequest *request)
{
  return (PetscBool)(request->codec.kind != TRS_CODEC_FP32);
}

PetscBool TrsMpiIsSum(const TrsMpiRequest *request)
{
  return (PetscBool)(request->kind == TRS_MPI_REDUCE_SCATTER ||
                     (request->kind == TRS_MPI_ALLREDUCE && request->phase == 0));
}

PetscBool TrsMpiOwnPartStays(const TrsMpiRequest *request)
{
  return (PetscBool)(request->kind == TRS_MPI_REDUCE_SCATTER || TrsMpiIsCoded(request) ||
                     request->base.comm->device->host_memory);
}

/* Report, once on each rank, that shared memory is full. */
static void tell_no_room(TrsComm comm, int64_t bytes)
{
  static PetscBool told = PETSC_FALSE;

  if (!told)
    TrsPrint(stderr,
             "trshard: info: no room for %" PRId64 " bytes in the memory that ranks share: such blocks "
             "travel as messages (rank %d)\n",
             bytes, comm->rank);
  told = PETSC_TRUE;
}

/*
  Set lane_send, the address of displacement 0 of the sent data in shared memory. The data is in the
  buffer itself or in a copy with the same displacements. If shared memory has no space for the
  copy, set by_message instead. The second phase of an allreduce may overwrite the copy of the first
  phase, because it writes only the chunk that no peer reads in the first phase.
*/
static PetscErrorCode share_blocks(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const TrsMpiBlocks *x = &request->blocks;
  int64_t begin, end;

  PetscFunctionBegin;
  hull(comm->size, x->send_counts, x->send_displs, &begin, &end);
  begin *= x->elem_bytes;
  end *= x->elem_bytes;
  request->lane_send = x->send;
  if (TrsSharedOffset(x->send + begin, end - begin) >= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (request->comes_back) { /* the peers would change the copy instead of the block */
    request->by_message = PETSC_TRUE;
    if (end > begin) tell_no_room(comm, end);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsDeviceBufferReserveShared(comm->device, &request->lane_copy, end));
  request->by_message = (PetscBool)(TrsSharedOffset(request->lane_copy.data, end) < 0);
  if (request->by_message) {
    tell_no_room(comm, end);
    PetscCall(TrsDeviceBufferFree(comm->device, &request->lane_copy));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(comm->device->copy((char *)request->lane_copy.data + begin, x->send + begin, end - begin,
                               request->stream));
  request->lane_send = (const char *)request->lane_copy.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the phase may enter its cell. The phases of a cell must be entered in order, even if later
  operations are faster than earlier ones. So an operation waits until the previous operation with
  the same cells is done. The oldest active operation never waits here.
*/
static PetscBool is_its_turn(const TrsMpiData *data, const TrsMpiRequest *request)
{
  const TrsMpiRequest *oldest = data->active;

  while (oldest->done) oldest = oldest->next;
  return (PetscBool)(request->number - oldest->number < TRS_LANE_CELLS / TRS_MPI_PHASES);
}

/*
  If the cell is free, offer the blocks to the peers. If no block is expected from a peer, return
  the peer's block immediately.
*/
static PetscErrorCode enter_lanes(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const TrsMpiData *data = (const TrsMpiData *)comm->data;
  const TrsMpiBlocks *x = &request->blocks;
  const int *peers;
  const int n = TrsLanesPeers(request->base.comm->lanes, &peers);
  char *room;

  PetscFunctionBegin;
  if (!is_its_turn(data, request) || !TrsLanesMayEnter(request->base.comm->lanes, request->lane_phase, &room))
    PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < n; i++) {
    const int64_t at = x->send_displs[peers[i]] * x->elem_bytes;
    const int64_t bytes = x->send_counts[peers[i]] * x->elem_bytes;

    request->offer[i] = NULL;
    if (bytes == 0) continue;
    request->offer[i] = request->small        ? room
                        : request->by_message ? trs_lane_by_message
                                              : request->lane_send + at;
    if (request->small) PetscCall(comm->device->copy(room, x->send + at, bytes, request->stream));
    room += bytes;
  }
  TrsLanesEnter(request->base.comm->lanes, request->lane_phase, request->offer);
  for (int i = 0; i < n; i++)
    if (request->taken[i]) TrsLanesReturn(request->base.comm->lanes, request->lane_phase, i);
  request->entered = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode start_lanes(TrsMpiRequest *request)
{
  const TrsMpiBlocks *x = &request->blocks;
  const int *peers;
  const int n = TrsLanesPeers(request->base.comm->lanes, &peers);
  int64_t bytes = 0;

  PetscFunctionBegin;
  request->entered = (PetscBool)(n == 0);
  request->small = PETSC_TRUE;
  request->by_message = PETSC_FALSE;
  request->n_to_take = 0;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  request->lane_phase = TRS_MPI_PHASES * request->number + (uint64_t)request->phase + 1;
  for (int i = 0; i < n; i++) {
    bytes += x->send_counts[peers[i]] * x->elem_bytes;
    request->taken[i] = (PetscBool)(x->recv_counts[peers[i]] * x->elem_bytes == 0);
    request->n_to_take += !request->taken[i];
  }
  request->small = (PetscBool)(bytes <= TRS_LANE_SMALL && !request->comes_back);
  if (!request->small) PetscCall(share_blocks(request));
  PetscCall(enter_lanes(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the block of a peer. */
static PetscErrorCode copy_block(TrsMpiRequest *request, char *to, const char *from, int64_t bytes)
{
  TrsStage before = TrsStageCurrent();

  PetscFunctionBegin;
  if (bytes >= TRS_MOVE_STAGE_BYTES) PetscCall(TrsStageSwitch(TRS_STAGE_EXCHANGE, NULL));
  PetscCall(request->base.comm->device->copy(to, from, bytes, request->stream));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return peer i's block after it was read. */
static void return_block(const TrsMpiRequest *request, int i)
{
  const TrsLanes lanes = request->base.comm->lanes;
  const int *peers;

  (void)TrsLanesPeers(lanes, &peers);
  TrsLanesReturn(lanes, request->lane_phase, i);
  if (request->blocks.recv_counts[peers[i]] * request->blocks.elem_bytes >= TRS_RING_BYTES)
    TrsLanesRing(lanes);
}

/* Start to receive peer i's block, which is sent as a message. */
static PetscErrorCode expect_message(TrsMpiRequest *request, int i)
{
  const TrsMpiBlocks *x = &request->blocks;
  const int *peers;
  const int n = TrsLanesPeers(request->base.comm->lanes, &peers), q = peers[i];
  const int64_t bytes = x->recv_counts[q] * x->elem_bytes;
  char *to = x->recv + x->recv_displs[q] * x->elem_bytes;

  PetscFunctionBegin;
  if (TrsMpiIsSum(request)) { /* each peer's block is as large as this rank's own block */
    PetscCall(TrsBufferReserve(&request->late_parts, n * bytes, PETSC_FALSE));
    to = (char *)request->late_parts.data + i * bytes;
    request->chunks.part_of[q] = (const float *)(const void *)to;
  }
  PetscCall(recv_pieces(request, to, bytes, q));
  /* a block that is added or viewed is returned later, after its use */
  if (!TrsMpiIsSum(request) && !request->view)
    TrsLanesReturn(request->base.comm->lanes, request->lane_phase, i);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Process the blocks that peers offer. Values of a sum stay in the peers' memory until they are
  added.
*/
static PetscErrorCode take_lanes(TrsMpiRequest *request)
{
  const TrsMpiBlocks *x = &request->blocks;
  const int *peers;
  const int n = TrsLanesPeers(request->base.comm->lanes, &peers);

  PetscFunctionBegin;
  for (int i = 0; i < n && request->n_to_take > 0; i++) {
    const int q = peers[i];
    const char *from = request->taken[i] ? NULL
                                         : TrsLanesOffered(request->base.comm->lanes, request->lane_phase, i);

    if (!from) continue;
    if (from == trs_lane_by_message) {
      PetscCall(expect_message(request, i));
    } else if (request->view) {
      request->view[q] = (const float *)(const void *)from;
    } else if (TrsMpiIsSum(request)) {
      request->chunks.part_of[q] = (const float *)(const void *)from;
    } else {
      PetscCall(copy_block(request, x->recv + x->recv_displs[q] * x->elem_bytes, from,
                           x->recv_counts[q] * x->elem_bytes));
      return_block(request, i);
    }
    request->taken[i] = PETSC_TRUE;
    request->n_to_take--;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMpiPartsReturn(TrsMpiRequest *request)
{
  const int *peers;
  const int n = TrsLanesPeers(request->base.comm->lanes, &peers);

  PetscFunctionBegin;
  for (int i = 0; i < n; i++)
    if (request->blocks.recv_counts[peers[i]] > 0) return_block(request, i);
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsMpiBlocksAwaited(const TrsMpiRequest *request)
{
  const TrsLanes lanes = request->base.comm->lanes;
  const int *peers;
  const int n = TrsLanesPeers(lanes, &peers);

  /* the relay's lanes have other bells, so this bell would not end a wait */
  if (!request->relay_done) return -1;
  for (int i = 0; i < n && request->n_to_take > 0; i++)
    if (!request->taken[i] && !TrsLanesOffered(lanes, request->lane_phase, i)) return i;
  for (int i = 0; i < n && !request->small && request->entered; i++)
    if (request->offer[i] && !TrsLanesReturned(lanes, request->lane_phase, i)) return i;
  return -1;
}

PetscBool TrsMpiBlocksReleased(const TrsMpiRequest *request)
{
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;
  const int *peers;
  const int n = TrsLanesPeers(request->base.comm->lanes, &peers);

  for (int p = 0; p <= request->phase && data->relay; p++)
    if (!TrsRelayReleased(data->relay, &request->relayed[p])) return PETSC_FALSE;
  if (request->small) return request->entered;
  for (int i = 0; i < n; i++)
    if (request->blocks.send_counts[peers[i]] * request->blocks.elem_bytes > 0 &&
        !TrsLanesReturned(request->base.comm->lanes, request->lane_phase, i))
      return PETSC_FALSE;
  return PETSC_TRUE;
}

/* --- a phase --- */

static PetscErrorCode start_relay(TrsMpiRequest *request)
{
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;

  PetscFunctionBegin;
  request->relay_done = (PetscBool)(data->relay == NULL);
  if (data->relay)
    PetscCall(TrsRelayStart(data->relay, &request->blocks, request->lane_phase, request->tag + request->phase,
                            &request->relayed[request->phase]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMpiBlocksStart(TrsMpiRequest *request)
{
  const TrsComm comm = request->base.comm;
  const TrsLanes lanes = comm->lanes;
  const TrsRelay relay = ((const TrsMpiData *)comm->data)->relay;
  const TrsMpiBlocks *x = &request->blocks;
  const int64_t self = x->send_counts[comm->rank] * x->elem_bytes;
  const char *send;
  char *recv;

  PetscFunctionBegin;
  PetscCall(stage_blocks(request, &send, &recv));
  request->n_pending = 0;
  PetscCall(start_lanes(request));
  PetscCall(start_relay(request));
  for (int i = 1; i < comm->size; i++) {
    const int q = (comm->rank + comm->size - i) % comm->size;
    if (TrsLanesTo(lanes, q) || TrsRelayTakes(relay, x, q, x->recv_counts[q] * x->elem_bytes)) continue;
    PetscCall(
        recv_pieces(request, recv + x->recv_displs[q] * x->elem_bytes, x->recv_counts[q] * x->elem_bytes, q));
  }
  for (int i = 1; i < comm->size; i++) {
    const int q = (comm->rank + i) % comm->size;
    if (TrsLanesTo(lanes, q) ? !request->by_message
                             : TrsRelayTakes(relay, x, q, x->send_counts[q] * x->elem_bytes))
      continue;
    PetscCall(
        send_pieces(request, send + x->send_displs[q] * x->elem_bytes, x->send_counts[q] * x->elem_bytes, q));
  }
  for (int q = 0; request->comes_back && q < comm->size; q++)
    request->comes_back[q] = (PetscBool)(q == comm->rank || (TrsLanesTo(lanes, q) && !request->by_message));
  if (request->view) {
    request->view[comm->rank] = (const float *)(const void *)x->send + x->send_displs[comm->rank];
  } else if (self > 0 && !(TrsMpiIsSum(request) && TrsMpiOwnPartStays(request))) {
    const char *from = x->send + x->send_displs[comm->rank] * x->elem_bytes;
    char *to = x->recv + x->recv_displs[comm->rank] * x->elem_bytes;
    if (from != to) PetscCall(comm->device->copy(to, from, self, request->stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMpiBlocksDrive(TrsMpiRequest *request, PetscBool *all)
{
  const TrsMpiData *data = (const TrsMpiData *)request->base.comm->data;
  const int64_t before = request->base.comm->message_bytes;
  int arrived = 1;

  PetscFunctionBegin;
  if (!request->entered) PetscCall(enter_lanes(request));
  if (request->entered && request->n_to_take > 0) PetscCall(take_lanes(request));
  if (request->n_pending > 0)
    PetscCallMPI(
        MPI_Testall(request->n_pending, (MPI_Request *)request->pending.data, &arrived, MPI_STATUSES_IGNORE));
  if (arrived) request->n_pending = 0;
  if (!request->relay_done)
    PetscCall(TrsRelayDrive(data->relay, &request->relayed[request->phase], is_its_turn(data, request),
                            &request->relay_done));
  request->base.message_bytes += request->base.comm->message_bytes - before; /* of the relay */
  *all = (PetscBool)(arrived && request->relay_done && request->entered && request->n_to_take == 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}
