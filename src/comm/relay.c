/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/relay.h"

#include "core/shared_memory.h"

#include <inttypes.h>
#include <string.h>

enum { TRS_RELAY_RANKS = 16 }; /* if other hosts have fewer ranks, a relay saves hardly any time */

static int64_t allowed_bytes = 2048;
static PetscBool is_everywhere;

struct TrsRelayImpl {
  TrsComm comm;
  MPI_Comm mpi; /* a communicator of the relay's own, so that tags do not mix */
  /* ranks per host, and hosts; index of this rank's host, and of this rank on it */
  int L, H, host, local;
  int64_t most; /* bytes of the largest relayed block */
  /* bytes of the largest relayed block, if the rank sends the same block to all ranks */
  int64_t most_alike;
  int64_t stride; /* bytes reserved for a message */
  TrsLanes gather, scatter;
};

void TrsRelayAllow(int64_t most_bytes, PetscBool everywhere)
{
  allowed_bytes = most_bytes;
  is_everywhere = everywhere;
}

/* Return the size in bytes of a parcel's head. */
static int64_t head_bytes(TrsRelay r)
{
  return r->L * (int64_t)sizeof(int32_t);
}

PetscErrorCode TrsRelayCreate(TrsComm comm, TrsRelay *relay)
{
  int64_t room;
  TrsRelay r;
  int L, least, most;

  PetscFunctionBegin;
  *relay = NULL;
  if (allowed_bytes == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCommHosts(comm->mpi, &L, &least, &most));
  /* If all hosts have equally many ranks, either all ranks have lanes or none has. */
  if (L == 1 || !comm->lanes || L == comm->size || (!is_everywhere && comm->size - L < TRS_RELAY_RANKS))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&r));
  r->comm = comm;
  r->L = L;
  r->H = comm->size / L;
  r->host = comm->rank / L;
  r->local = comm->rank % L;
  /*
    Hosts are assigned unequally, but every rank divides by the largest number of hosts that a rank
    carries to. So all ranks compute the same limits.
  */
  room = TRS_RELAY_ROOM / ((r->H - 1 + L - 1) / L) / L - head_bytes(r);
  r->most = PetscMax(PetscMin(room / L, allowed_bytes), 0);
  r->most_alike = PetscMax(PetscMin(room, allowed_bytes * TRS_RELAY_ALIKE), 0);
  r->stride = L * (head_bytes(r) + PetscMax(L * r->most, r->most_alike));
  PetscCall(TrsLanesCreate(comm->mpi, TrsComputeThreads(), &r->gather));
  PetscCall(TrsLanesCreate(comm->mpi, TrsComputeThreads(), &r->scatter));
  PetscCallMPI(MPI_Comm_dup(comm->mpi, &r->mpi));
  *relay = r;
  /* if a rank has no lanes, then no rank has lanes */
  if (!r->gather || !r->scatter) PetscCall(TrsRelayDestroy(relay));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRelayDestroy(TrsRelay *relay)
{
  TrsRelay r = *relay;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsLanesDestroy(&r->gather));
  PetscCall(TrsLanesDestroy(&r->scatter));
  PetscCallMPI(MPI_Comm_free(&r->mpi));
  PetscCall(PetscFree(*relay));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRelayPhaseFree(TrsRelay relay, TrsRelayPhase *phase)
{
  PetscFunctionBegin;
  if (!relay) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(relay->comm->device, &phase->bundle));
  PetscCall(TrsDeviceBufferFree(relay->comm->device, &phase->messages));
  PetscCall(TrsBufferFree(&phase->outgoing));
  PetscCall(TrsBufferFree(&phase->requests));
  PetscCall(TrsBufferFree(&phase->at));
  PetscCall(PetscFree4(phase->offered, phase->offer, phase->parcel, phase->taken));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsRelayTakes(TrsRelay relay, const TrsMpiBlocks *blocks, int q, int64_t bytes)
{
  return (PetscBool)(relay && bytes > 0 && bytes <= (blocks->alike ? relay->most_alike : relay->most) &&
                     q / relay->L != relay->host);
}

/* --- carriers --- */

/*
  Return the first host to which local rank c of this host carries. The next such host is L hosts
  further.
*/
static int first_host(TrsRelay r, int c)
{
  const int first = ((c - r->host) % r->L + r->L) % r->L;

  return first == r->host ? first + r->L : first;
}

/* Return the host after `host` to which the same rank carries. */
static int next_host(TrsRelay r, int host)
{
  host += r->L;
  return host == r->host ? host + r->L : host;
}

static int count_hosts(TrsRelay r, int c)
{
  int n = 0;

  for (int host = first_host(r, c); host < r->H; host = next_host(r, host)) n++;
  return n;
}

/* --- parcels --- */

/* Return the size in bytes of block d of a parcel. */
static int64_t block_bytes(const char *parcel, int d)
{
  int32_t bytes;

  memcpy(&bytes, parcel + d * (int64_t)sizeof(bytes), sizeof(bytes));
  return bytes;
}

static int64_t parcel_bytes(TrsRelay r, const char *parcel)
{
  int64_t bytes = head_bytes(r);

  for (int d = 0; d < r->L; d++) bytes += block_bytes(parcel, d);
  return bytes;
}

/*
  Write the parcel for a host to `to`, and return its size. If `to` is NULL, only compute the size.
*/
static int64_t write_parcel(TrsRelay r, const TrsMpiBlocks *x, int host, char *to)
{
  int64_t at = head_bytes(r);

  if (to) memset(to, 0, (size_t)at);
  for (int d = 0; d < (x->alike ? 1 : r->L); d++) {
    const int q = host * r->L + d;
    const int64_t bytes = x->send_counts[q] * x->elem_bytes;
    const int32_t relayed = TrsRelayTakes(r, x, q, bytes) ? (int32_t)bytes : 0;

    if (to) {
      memcpy(to + d * (int64_t)sizeof(relayed), &relayed, sizeof(relayed));
      if (relayed) memcpy(to + at, x->send + x->send_displs[q] * x->elem_bytes, (size_t)relayed);
    }
    at += relayed;
  }
  return at;
}

/* --- a phase --- */

/*
  Reserve memory that the peers can read. An error if there is none: the sizes of blocks decide
  which blocks are relayed, so a rank without shared memory cannot send messages instead.
*/
static PetscErrorCode reserve_shared(TrsRelay r, TrsDeviceBuffer *buffer, int64_t bytes)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(r->comm->device, buffer, bytes));
  PetscCheck(bytes == 0 || TrsSharedOffset(buffer->data, bytes) >= 0, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "no room for %" PRId64
             " bytes in the memory that ranks of a host share; -comm_relay_bytes 0 does without them",
             bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write this rank's bundles for all carriers, one after another. */
static PetscErrorCode write_bundles(TrsRelay r, TrsRelayPhase *phase)
{
  int64_t *at, n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&phase->at, (r->L + 1) * (int64_t)sizeof(*at), PETSC_FALSE));
  at = (int64_t *)phase->at.data;
  for (int c = 0; c < r->L; c++) {
    at[c] = n;
    for (int host = first_host(r, c); host < r->H; host = next_host(r, host))
      n += write_parcel(r, &phase->blocks, host, NULL);
  }
  at[r->L] = n;
  PetscCall(reserve_shared(r, &phase->bundle, n));
  n = 0;
  for (int c = 0; c < r->L; c++)
    for (int host = first_host(r, c); host < r->H; host = next_host(r, host))
      n += write_parcel(r, &phase->blocks, host, (char *)phase->bundle.data + n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start to receive messages from the hosts to which this rank carries. */
static PetscErrorCode expect_messages(TrsRelay r, TrsRelayPhase *phase)
{
  const int n = count_hosts(r, r->local);
  int i = 0;

  PetscFunctionBegin;
  PetscCall(reserve_shared(r, &phase->messages, n * r->stride));
  PetscCall(TrsBufferReserve(&phase->requests, 2 * n * (int64_t)sizeof(MPI_Request), PETSC_FALSE));
  for (int host = first_host(r, r->local); host < r->H; host = next_host(r, host), i++)
    PetscCallMPI(MPI_Irecv((char *)phase->messages.data + i * r->stride, (int)r->stride, MPI_BYTE,
                           host * r->L + r->local, phase->tag, r->mpi,
                           (MPI_Request *)phase->requests.data + i));
  phase->n_requests = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRelayStart(TrsRelay r, const TrsMpiBlocks *blocks, uint64_t number, int tag,
                             TrsRelayPhase *phase)
{
  PetscFunctionBegin;
  if (!phase->offered)
    PetscCall(PetscMalloc4((size_t)r->L, &phase->offered, (size_t)r->L, &phase->offer, (size_t)r->L,
                           &phase->parcel, (size_t)r->L, &phase->taken));
  for (int i = 0; i < r->L; i++) {
    phase->offered[i] = NULL;
    phase->taken[i] = PETSC_FALSE;
  }
  phase->blocks = *blocks;
  phase->phase = number;
  phase->tag = tag;
  phase->gathering = phase->scattering = phase->sent = PETSC_FALSE;
  phase->n_offered = phase->n_taken = 0;
  PetscCall(write_bundles(r, phase));
  PetscCall(expect_messages(r, phase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Offer each peer its bundle. If this rank is no carrier, return all bundles that peers offer to it
  immediately.
*/
static void enter_gather(TrsRelay r, TrsRelayPhase *phase)
{
  const int64_t *at = (const int64_t *)phase->at.data;
  const PetscBool carries = (PetscBool)(phase->n_requests > 0);
  const int *peers;
  const int n = TrsLanesPeers(r->gather, &peers);
  char *small;

  if (!TrsLanesMayEnter(r->gather, phase->phase, &small)) return;
  for (int i = 0; i < n; i++) {
    const int c = peers[i] % r->L;

    phase->offer[i] = at[c + 1] > at[c] ? (const char *)phase->bundle.data + at[c] : NULL;
  }
  TrsLanesEnter(r->gather, phase->phase, phase->offer);
  for (int i = 0; i < n && !carries; i++) TrsLanesReturn(r->gather, phase->phase, i);
  if (!carries) phase->n_offered = n;
  phase->gathering = PETSC_TRUE;
}

/*
  Each local rank has handed a bundle of parcels to this rank. Set phase->parcel[s] to the first
  parcel in the bundle from local rank s. It is for the first host to which this rank sends.
*/
static void first_parcels(TrsRelay r, TrsRelayPhase *phase)
{
  const int64_t *at = (const int64_t *)phase->at.data;
  const int *peers;
  const int n = TrsLanesPeers(r->gather, &peers);

  phase->parcel[r->local] = (const char *)phase->bundle.data + at[r->local];
  for (int i = 0; i < n; i++) phase->parcel[peers[i] % r->L] = phase->offered[i];
}

/*
  Concatenate the local ranks' next parcels at `to`, and return their size. If `to` is NULL, only
  compute the size.
*/
static int64_t write_message(TrsRelay r, TrsRelayPhase *phase, char *to)
{
  int64_t bytes = 0;

  for (int s = 0; s < r->L; s++) {
    const int64_t parcel = parcel_bytes(r, phase->parcel[s]);

    if (to) memcpy(to + bytes, phase->parcel[s], (size_t)parcel);
    phase->parcel[s] += parcel;
    bytes += parcel;
  }
  return bytes;
}

/* Send the local ranks' parcels to the carriers of other hosts. */
static PetscErrorCode send_messages(TrsRelay r, TrsRelayPhase *phase)
{
  MPI_Request *requests = (MPI_Request *)phase->requests.data;
  const int n_hosts = phase->n_requests;
  int64_t bytes = 0;

  PetscFunctionBegin;
  phase->sent = PETSC_TRUE;
  if (n_hosts == 0) PetscFunctionReturn(PETSC_SUCCESS);
  first_parcels(r, phase);
  for (int k = 0; k < n_hosts; k++) bytes += write_message(r, phase, NULL);
  PetscCall(TrsBufferReserve(&phase->outgoing, bytes, PETSC_FALSE));
  first_parcels(r, phase);
  bytes = 0;
  for (int host = first_host(r, r->local); host < r->H; host = next_host(r, host)) {
    char *to = (char *)phase->outgoing.data + bytes;
    const int64_t message = write_message(r, phase, to);

    PetscCallMPI(MPI_Isend(to, (int)message, MPI_BYTE, host * r->L + r->local, phase->tag, r->mpi,
                           &requests[phase->n_requests++]));
    bytes += message;
  }
  r->comm->n_messages += n_hosts;
  r->comm->message_bytes += bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check for the peers' bundles. When all bundles have arrived, send them to the other hosts, and
  return them to the peers.
*/
static PetscErrorCode take_gather(TrsRelay r, TrsRelayPhase *phase)
{
  const int *peers;
  const int n = TrsLanesPeers(r->gather, &peers);

  PetscFunctionBegin;
  for (int i = 0; i < n && phase->n_offered < n; i++) {
    if (phase->offered[i]) continue;
    phase->offered[i] = TrsLanesOffered(r->gather, phase->phase, i);
    phase->n_offered += phase->offered[i] != NULL;
  }
  if (phase->n_offered < n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(send_messages(r, phase));
  for (int i = 0; i < n && phase->offered[i]; i++) TrsLanesReturn(r->gather, phase->phase, i);
  TrsLanesRing(r->gather);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy this rank's blocks from the messages of local rank c. */
static PetscErrorCode take_blocks(TrsRelay r, const TrsRelayPhase *phase, int c, const char *messages)
{
  const TrsMpiBlocks *x = &phase->blocks;
  const int place = x->alike ? 0 : r->local;

  PetscFunctionBegin;
  for (int host = first_host(r, c); host < r->H; host = next_host(r, host), messages += r->stride) {
    const char *parcel = messages;

    for (int s = 0; s < r->L; s++) {
      const int q = host * r->L + s;
      const int64_t bytes = block_bytes(parcel, place), wanted = x->recv_counts[q] * x->elem_bytes;
      const char *from = parcel + head_bytes(r);

      PetscCheck(bytes == (TrsRelayTakes(r, x, q, wanted) ? wanted : 0), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
                 "rank %d sent %" PRId64 " bytes where %" PRId64 " were expected", q, bytes, wanted);
      for (int d = 0; d < place; d++) from += block_bytes(parcel, d);
      if (bytes) memcpy(x->recv + x->recv_displs[q] * x->elem_bytes, from, (size_t)bytes);
      parcel += parcel_bytes(r, parcel);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Offer the messages to the peers. A peer that carries from no host offers none, so it is skipped.
*/
static PetscErrorCode enter_scatter(TrsRelay r, TrsRelayPhase *phase)
{
  const int *peers;
  const int n = TrsLanesPeers(r->scatter, &peers);
  const PetscBool carries = (PetscBool)(count_hosts(r, r->local) > 0);
  char *small;

  PetscFunctionBegin;
  if (!TrsLanesMayEnter(r->scatter, phase->phase, &small)) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < n; i++) phase->offer[i] = carries ? (const char *)phase->messages.data : NULL;
  TrsLanesEnter(r->scatter, phase->phase, phase->offer);
  for (int i = 0; i < n; i++) {
    if (count_hosts(r, peers[i] % r->L) > 0) continue;
    TrsLanesReturn(r->scatter, phase->phase, i);
    phase->taken[i] = PETSC_TRUE;
    phase->n_taken++;
  }
  phase->scattering = PETSC_TRUE;
  PetscCall(take_blocks(r, phase, r->local, (const char *)phase->messages.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_scatter(TrsRelay r, TrsRelayPhase *phase)
{
  const int *peers;
  const int n = TrsLanesPeers(r->scatter, &peers);

  PetscFunctionBegin;
  for (int i = 0; i < n; i++) {
    const char *messages = phase->taken[i] ? NULL : TrsLanesOffered(r->scatter, phase->phase, i);

    if (!messages) continue;
    PetscCall(take_blocks(r, phase, peers[i] % r->L, messages));
    TrsLanesReturn(r->scatter, phase->phase, i);
    TrsLanesRing(r->scatter);
    phase->taken[i] = PETSC_TRUE;
    phase->n_taken++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRelayDrive(TrsRelay r, TrsRelayPhase *phase, PetscBool may_enter, PetscBool *all)
{
  int arrived = 1;

  PetscFunctionBegin;
  *all = PETSC_FALSE;
  if (!phase->gathering && may_enter) enter_gather(r, phase);
  if (phase->gathering && !phase->sent) PetscCall(take_gather(r, phase));
  if (phase->n_requests > 0)
    PetscCallMPI(
        MPI_Testall(phase->n_requests, (MPI_Request *)phase->requests.data, &arrived, MPI_STATUSES_IGNORE));
  if (!phase->sent || !arrived) PetscFunctionReturn(PETSC_SUCCESS);
  phase->n_requests = 0;
  if (!phase->scattering) PetscCall(enter_scatter(r, phase));
  if (phase->scattering) PetscCall(take_scatter(r, phase));
  *all = (PetscBool)(phase->scattering && phase->n_taken == r->L - 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsRelayReleased(TrsRelay r, const TrsRelayPhase *phase)
{
  for (int i = 0; i < r->L - 1; i++)
    if (!TrsLanesReturned(r->gather, phase->phase, i) || !TrsLanesReturned(r->scatter, phase->phase, i))
      return PETSC_FALSE;
  return PETSC_TRUE;
}
