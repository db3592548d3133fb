/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/comm.h"

#include "comm/shared_lanes.h"
#include "core/clock.h"
#include "core/function_table.h"
#include "core/trace.h"

#include <string.h>

static const TrsOptionSpec comm_specs[] = {
    {.name = "-comm_backend",
     .type = TRS_OPTION_ENUM,
     .fallback = "auto",
     .choices = "auto,mpi,nccl",
     .help = "what carries bulk data between ranks; auto: nccl on cuda, else mpi"},
    {.name = "-comm_shared_memory",
     .type = TRS_OPTION_BOOL,
     .fallback = "true",
     .help = "with the mpi backend, ranks of one host copy straight from each other's memory; false: by "
             "messages"},
    {.name = "-comm_relay_bytes",
     .type = TRS_OPTION_BYTES,
     .fallback = "2KiB",
     .range = "[0,1048576]",
     .unit = "bytes",
     .help =
         "with the mpi backend: the largest block between two hosts that travels in one message with "
         "those of their other ranks. A block that is the same for all ranks may be 32 times as large, and "
         "goes once to a host. 0: each block is a message. By default blocks are relayed only if at least "
         "16 ranks are on other hosts"},
    {.name = "-comm_ranks_per_host",
     .type = TRS_OPTION_INT,
     .fallback = "0",
     .range = "[0,1000000]",
     .unit = "ranks",
     .help =
         "the most ranks that share memory. It simulates hosts with this number of ranks on one machine, to "
         "count messages and to test. 0: all ranks of a host"},
    {.name = "-comm_wait_seconds",
     .type = TRS_OPTION_REAL,
     .range = "(0,]",
     .unit = "s",
     .help =
         "with nccl: the run ends with 69 if its set-up, or a wait for other ranks, takes longer. If this "
         "time is longer than the watchdog's, the watchdog ends the run first, with 76 (default: 0.8 of "
         "-watchdog_seconds, 300 without a watchdog)"},
};
const TrsOptionGroup trs_comm_options = TRS_OPTION_GROUP("Communication", comm_specs);

#if defined(TRS_HAVE_CUDA)
extern const TrsCommOps trs_comm_nccl; /* gpu/comm/comm_nccl.c */
#endif
const TrsCommOps *const trs_comm_backends[] = {&trs_comm_mpi,
#if defined(TRS_HAVE_CUDA)
                                               &trs_comm_nccl,
#endif
                                               NULL};

PetscErrorCode TrsCommCheck(const TrsCommOps *ops)
{
  const TrsTableEntry entries[] = {TRS_TABLE_ENTRY(ops, name),       TRS_TABLE_ENTRY(ops, setup),
                                   TRS_TABLE_ENTRY(ops, destroy),    TRS_TABLE_ENTRY(ops, alltoallv),
                                   TRS_TABLE_ENTRY(ops, allgatherv), TRS_TABLE_ENTRY(ops, reduce_scatterv),
                                   TRS_TABLE_ENTRY(ops, allreduce),  TRS_TABLE_ENTRY(ops, progress),
                                   TRS_TABLE_ENTRY(ops, wait)};

  PetscFunctionBegin;
  PetscCall(TrsFunctionTableCheck("-comm_backend", ops->name, entries,
                                  (int)(sizeof(entries) / sizeof(entries[0]))));
  PetscCheck(!ops->alltoallv_blocks == !ops->arrive && !ops->arrive == !ops->give_back, PETSC_COMM_SELF,
             TRS_ERR_INTERNAL,
             "-comm_backend %s: it has one of alltoallv_blocks, arrive and give_back, which belong together",
             ops->name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode find_backend(const char *name, const TrsDeviceOps *device, const TrsCommOps **ops)
{
  char known[128] = "";

  PetscFunctionBegin;
  if (strcmp(name, "auto") == 0) name = strcmp(device->name, "cuda") == 0 ? "nccl" : "mpi";
  *ops = NULL;
  for (int i = 0; trs_comm_backends[i]; i++) {
    if (strcmp(trs_comm_backends[i]->name, name) == 0) *ops = trs_comm_backends[i];
    strncat(known, " ", sizeof(known) - strlen(known) - 1);
    strncat(known, trs_comm_backends[i]->name, sizeof(known) - strlen(known) - 1);
  }
  PetscCheck(*ops, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "-comm_backend %s: this build has only%s", name,
             known);
  PetscCall(TrsCommCheck(*ops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommCreate(MPI_Comm mpi, const char *backend, const TrsDeviceOps *device,
                             const TrsComputeOps *compute, TrsComm *comm)
{
  const TrsCommOps *ops;

  PetscFunctionBegin;
  /* if the backend is unknown, no communicator exists that must be destroyed */
  PetscCall(find_backend(backend, device, &ops));
  PetscCall(PetscNew(comm));
  (*comm)->ops = ops;
  (*comm)->device = device;
  (*comm)->compute = compute;
  (*comm)->trace_as = TRS_TRACE_OUTPUT_DIST;
  PetscCallMPI(MPI_Comm_dup(mpi, &(*comm)->mpi));
  PetscCallMPI(MPI_Comm_size((*comm)->mpi, &(*comm)->size));
  PetscCallMPI(MPI_Comm_rank((*comm)->mpi, &(*comm)->rank));
  PetscCall(
      PetscMalloc2((size_t)(*comm)->size, &(*comm)->one_each, (size_t)(*comm)->size, &(*comm)->place_of));
  for (int q = 0; q < (*comm)->size; q++) {
    (*comm)->one_each[q] = 1;
    (*comm)->place_of[q] = q;
  }
  PetscCall((*comm)->ops->setup(*comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommDestroy(TrsComm *comm)
{
  PetscFunctionBegin;
  if (!*comm) PetscFunctionReturn(PETSC_SUCCESS);
  /* setup() may have failed, so data may be NULL */
  if ((*comm)->data) PetscCall((*comm)->ops->destroy(*comm));
  PetscCallMPI(MPI_Comm_free(&(*comm)->mpi));
  PetscCall(PetscFree2((*comm)->one_each, (*comm)->place_of));
  PetscCall(PetscFree(*comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the clock before an exchange starts, for a trace. Returns 0 if the run has no trace. */
static double trace_clock(void)
{
  return PetscUnlikely(trs_tracing) ? TrsClock() : 0;
}

/* Note the start of an exchange, and the bytes that this rank sends: counts[0 .. n) elements. */
static void trace_start(TrsRequest request, double start_s, int n, const int64_t *counts, int64_t elem_bytes)
{
  request->start_s = request->comm->ops->by_device ? 0 : start_s;
  if (PetscLikely(start_s == 0)) return;
  request->trace_step = TrsTraceStep();
  request->needed_s = 0;
  request->bytes = 0;
  for (int q = 0; q < n; q++) request->bytes += counts[q] * elem_bytes;
  TrsTimelineBytes(request->span, request->bytes);
  request->span = NULL;
}

/*
  Write an exchange to the trace. It ended when the backend noticed that it was done; if the backend
  did not notice, it ends now.
*/
static void trace_end(TrsRequest request)
{
  if (PetscLikely(request->start_s == 0)) return;
  TrsTraceRecordExchange(request->comm->trace_as, request->trace_step, request->start_s,
                         request->done_s >= request->start_s ? request->done_s : TrsClock(),
                         request->needed_s, request->bytes, request->message_bytes);
}

/* Note for the trace that the caller waits for an exchange from now on. */
static void trace_need(TrsRequest request)
{
  if (PetscUnlikely(request->start_s != 0 && request->needed_s == 0)) request->needed_s = TrsClock();
}

PetscErrorCode TrsCommAlltoallv(TrsComm comm, TrsStream stream, TrsSentBlocks send, TrsReceivedBlocks recv,
                                int64_t elem_bytes, TrsRequest *request)
{
  const double start_s = trace_clock();

  PetscFunctionBegin;
  PetscCall(comm->ops->alltoallv(comm, stream, send, recv, elem_bytes, request));
  trace_start(*request, start_s, comm->size, send.counts, elem_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommAlltoallvBlocks(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                      TrsReceivedBlocks recv, TrsBlockView view, TrsRequest *request)
{
  const double start_s = trace_clock();

  PetscFunctionBegin;
  for (int q = 0; q < comm->size; q++) view.block[q] = (const float *)recv.data + recv.displs[q];
  for (int q = 0; view.comes_back && q < comm->size; q++) view.comes_back[q] = PETSC_FALSE;
  if (comm->ops->alltoallv_blocks)
    PetscCall(comm->ops->alltoallv_blocks(comm, stream, send, recv, view, request));
  else
    PetscCall(comm->ops->alltoallv(comm, stream, send, recv, (int64_t)sizeof(float), request));
  trace_start(*request, start_s, comm->size, send.counts, (int64_t)sizeof(float));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRequestArrive(TrsRequest *request, TrsStream stream)
{
  PetscFunctionBegin;
  if (*request && (*request)->comm->ops->arrive) {
    trace_need(*request);
    PetscCall((*request)->comm->ops->arrive(*request, stream));
  } else {
    PetscCall(TrsRequestWait(request, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRequestReturn(TrsRequest request)
{
  PetscFunctionBegin;
  if (request && request->comm->ops->give_back) PetscCall(request->comm->ops->give_back(request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommReduceScatterv(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                     float *recv, TrsRequest *request)
{
  const double start_s = trace_clock();

  PetscFunctionBegin;
  PetscCall(comm->ops->reduce_scatterv(comm, stream, send, counts, recv, request));
  trace_start(*request, start_s, comm->size, counts, (int64_t)sizeof(float));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommAllgatherv(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                 const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                 TrsRequest *request)
{
  const double start_s = trace_clock();

  PetscFunctionBegin;
  PetscCall(comm->ops->allgatherv(comm, stream, send, recv, counts, displs, elem_bytes, request));
  trace_start(*request, start_s, 1, &counts[comm->rank], elem_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommAllreduce(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                                TrsRequest *request)
{
  const double start_s = trace_clock();

  PetscFunctionBegin;
  if (codec && codec->kind == TRS_CODEC_FP32) codec = NULL;
  PetscCheck(!codec || codec->kind == TRS_CODEC_FP16 || codec->kind == TRS_CODEC_BF16, PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "an all-reduce takes fp16 and bf16, not codec %d", (int)codec->kind);
  PetscCall(comm->ops->allreduce(comm, stream, codec, data, n, request));
  trace_start(*request, start_s, 1, &n,
              codec ? comm->compute->codec_bytes(codec, 1) : (int64_t)sizeof(float));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommProgress(TrsComm comm)
{
  PetscFunctionBegin;
  PetscCall(comm->ops->progress(comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommProgressRing(TrsComm comm)
{
  TrsComm next = comm;

  PetscFunctionBegin;
  do {
    PetscCall(TrsCommProgress(next));
    next = next->next;
  } while (next && next != comm);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRequestWait(TrsRequest *request, TrsStream stream)
{
  PetscFunctionBegin;
  if (*request) {
    const TrsRequest waited = *request;

    trace_need(waited);
    PetscCall(waited->comm->ops->wait(waited, stream));
    /* the request still exists, because a wait recycles requests and never frees them */
    trace_end(waited);
  }
  *request = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommHosts(MPI_Comm mpi, int *local_world_size, int *least, int *most)
{
  MPI_Comm host;
  int rank, host_size, host_rank, first, mine[3], all[3];

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(mpi, &rank));
  PetscCall(TrsSharedHost(mpi, &host));
  PetscCallMPI(MPI_Comm_size(host, &host_size));
  PetscCallMPI(MPI_Comm_rank(host, &host_rank));
  first = rank;
  PetscCallMPI(MPI_Bcast(&first, 1, MPI_INT, 0, host));
  PetscCallMPI(MPI_Comm_free(&host));
  mine[0] = host_size;
  mine[1] = -host_size;
  mine[2] = first % host_size == 0 && rank == first + host_rank;
  PetscCallMPI(MPI_Allreduce(mine, all, 3, MPI_INT, MPI_MIN, mpi));
  *least = all[0];
  *most = -all[1];
  *local_world_size = *least == *most && all[2] ? host_size : 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommGroupsCreate(MPI_Comm mpi, int local_world_size, const char *backend,
                                   const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   TrsCommGroups *groups)
{
  MPI_Comm host, cross;
  int size, rank, least, most;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(mpi, &size));
  PetscCallMPI(MPI_Comm_rank(mpi, &rank));
  if (local_world_size == 0) PetscCall(TrsCommHosts(mpi, &local_world_size, &least, &most));
  PetscCheck(local_world_size > 0 && size % local_world_size == 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-topology_local_world_size %d does not divide the %d ranks", local_world_size, size);
  groups->local_world_size = local_world_size;
  groups->n_hosts = size / local_world_size;
  PetscCallMPI(MPI_Comm_split(mpi, rank / local_world_size, rank, &host));
  PetscCallMPI(MPI_Comm_split(mpi, rank % local_world_size, rank, &cross));
  PetscCall(TrsCommCreate(mpi, backend, device, compute, &groups->world));
  PetscCall(TrsCommCreate(mpi, backend, device, compute, &groups->input));
  PetscCall(TrsCommCreate(mpi, backend, device, compute, &groups->dense));
  PetscCall(TrsCommCreate(host, backend, device, compute, &groups->host));
  PetscCall(TrsCommCreate(cross, backend, device, compute, &groups->cross));
  groups->world->next = groups->input;
  groups->input->next = groups->dense;
  groups->dense->next = groups->host;
  groups->host->next = groups->cross;
  groups->cross->next = groups->world;
  groups->input->trace_as = TRS_TRACE_INPUT_DIST;
  groups->dense->trace_as = TRS_TRACE_DENSE;
  PetscCallMPI(MPI_Comm_free(&host));
  PetscCallMPI(MPI_Comm_free(&cross));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommGroupsDestroy(TrsCommGroups *groups)
{
  TrsComm *const all[] = {&groups->cross, &groups->host, &groups->dense, &groups->input, &groups->world};
  enum { TRS_N_GROUPS = sizeof(all) / sizeof(all[0]) };

  PetscFunctionBegin;
  /* if the creation failed, the last communicators are missing */
  for (int i = 0; i < TRS_N_GROUPS; i++)
    if (*all[i]) (*all[i])->next = NULL;
  for (int i = 0; i < TRS_N_GROUPS; i++) PetscCall(TrsCommDestroy(all[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

double TrsCommWaitAtMost(double seconds)
{
  static double at_most_s = TRS_COMM_WAIT_SECONDS; /* set before communicators are created */

  if (seconds > 0) at_most_s = seconds;
  return at_most_s;
}
