/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A communicator: bulk communication between some ranks, behind one table of functions (mpi, nccl).
  An operation starts immediately and is waited for later.

  Counts and displacements are int64, in elements of elem_bytes each; the caller must keep their
  arrays [size] valid until the wait. Every rank of the communicator must start the same operations
  in the same order. Buffers belong to the operation until the wait. After warm-up, starting an
  operation allocates nothing.

  Source: TorchRec's awaitables (torchrec.distributed.types.Awaitable); MPI nonblocking collectives
*/
#pragma once

#include "comm/shared_lanes.h"
#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "device/timeline.h"

typedef struct TrsCommOps TrsCommOps;

/*
  An operation that has started. A backend embeds this struct as the first member of its own request
  type, and recycles requests.
*/
typedef struct TrsRequestImpl {
  struct TrsCommImpl *comm;
  TrsTimelineSpan span; /* times on a device's stream; NULL if the operation is not traced */
  double start_s;       /* time on the host's clock; 0 if the operation is not traced */
  /* time at which the backend noticed, before the wait, that the operation was done */
  double done_s;
  double needed_s;       /* time of the first wait; 0 if none has begun or it is not traced */
  int64_t trace_step;    /* the step that started the operation */
  int64_t bytes;         /* bytes that this rank sends */
  int64_t message_bytes; /* the part of comm->message_bytes that this operation has sent */
} * TrsRequest;

typedef struct TrsCommImpl {
  int size, rank;
  /* Number of ranks that exchange through shared memory, including this rank. If 0 or 1, no
     ranks do. */
  int n_shared;
  TrsLanes lanes; /* lanes to the other ranks that share memory; NULL if there are none */
  /* The communicator for control messages. The backend has another communicator for bulk data. */
  MPI_Comm mpi;
  const TrsCommOps *ops;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute; /* sums and codecs */
  void *data;                   /* the backend's data */
  /*
    The next communicator in the ring of the run's communicators. While a rank waits for an
    operation of one communicator, all of them make progress. NULL if there is no ring.
  */
  struct TrsCommImpl *next;
  /* If true, sums over ranks may be added in any order instead of rank order, which may be
     faster. */
  PetscBool any_order;
  /* the name of this communicator's exchanges in a trace (core/trace.h) */
  int trace_as;
  uint64_t n_counts; /* number of exchanges of counts that were posted */
  /* [size] all 1; index q: counts and displacements of exchanges with one element for each rank */
  int64_t *one_each, *place_of;
  /* number and bytes of bulk-data messages that this rank has sent by MPI */
  int64_t n_messages, message_bytes;
  /* [n % TRS_LANE_FLIGHT] true if posted exchange n is in flight */
  PetscBool counts_open[TRS_LANE_FLIGHT];
} * TrsComm;

/*
  Blocks for every rank or from every rank. The block of rank q has counts[q] elements at displs[q].
*/
typedef struct {
  const void *data;
  const int64_t *counts, *displs;
} TrsSentBlocks;

typedef struct {
  void *data;
  const int64_t *counts, *displs;
} TrsReceivedBlocks;

/* The result of TrsCommAlltoallvBlocks(). */
typedef struct {
  /*
    [size] After TrsRequestArrive(), block[q] is the address of rank q's block. TrsRequestWait()
    returns the blocks to their senders. The senders wait for the blocks, so the caller should use
    them quickly.
  */
  const float **block;
  /*
    [size] If not NULL, the receiver may change blocks in their senders' memory. comes_back[q] is
    true if rank q may change this rank's block in this way. TrsRequestWait() then waits until rank
    q has returned the block, with its changes. Until then only few other operations may start
    (TRS_LANE_CELLS). If comes_back is NULL, blocks are only read.
  */
  PetscBool *comes_back;
} TrsBlockView;

struct TrsCommOps {
  const char *name;
  /*
    True if a device's stream makes the exchanges. The trace then uses the device's clock instead of
    the host's clock.
  */
  PetscBool by_device;
  /*
    The version of the backend's library, as the library counts versions (NCCL 2.28.9: 22809). NULL
    for MPI, whose version is reported separately. The function may be called after setup().
  */
  int (*version)(void);
  PetscErrorCode (*setup)(TrsComm comm);
  PetscErrorCode (*destroy)(TrsComm comm);
  PetscErrorCode (*alltoallv)(TrsComm comm, TrsStream stream, TrsSentBlocks send, TrsReceivedBlocks recv,
                              int64_t elem_bytes, TrsRequest *request);
  PetscErrorCode (*reduce_scatterv)(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                    float *recv, TrsRequest *request);
  PetscErrorCode (*allgatherv)(TrsComm comm, TrsStream stream, const void *send, void *recv,
                               const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                               TrsRequest *request);
  PetscErrorCode (*allreduce)(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                              TrsRequest *request);
  /* The operations of TrsCommAlltoallvBlocks() and TrsRequestArrive(). A backend sets both, or
     both are NULL. */
  PetscErrorCode (*alltoallv_blocks)(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                     TrsReceivedBlocks recv, TrsBlockView view, TrsRequest *request);
  PetscErrorCode (*arrive)(TrsRequest request, TrsStream stream);
  /* The operation of TrsRequestReturn(). A backend that sets the two operations above must set
     it. */
  PetscErrorCode (*give_back)(TrsRequest request);
  /* advance the operations that have started; fast, and never waits */
  PetscErrorCode (*progress)(TrsComm comm);
  PetscErrorCode (*wait)(TrsRequest request, TrsStream stream);
};

/* -comm_backend, -comm_shared_memory, -comm_relay_bytes and others */
extern const TrsOptionGroup trs_comm_options;
extern const TrsCommOps trs_comm_mpi;
extern const TrsCommOps *const trs_comm_backends[]; /* all backends; the last entry is NULL */

/* Check that a backend has all operations that it must have. Not collective. Errors: INTERNAL. */
PetscErrorCode TrsCommCheck(const TrsCommOps *ops);

/*
  TrsCommCreate - Create a communicator for bulk data.

  Collective on mpi, which is duplicated.

  In:     mpi      communicator of the ranks
          backend  "mpi", "nccl", or "auto" (nccl if the device is cuda, otherwise mpi)
          device, compute  the device that has the buffers, and its kernels
  Out:    comm     free with TrsCommDestroy(), which is collective
  Errors: UNAVAILABLE
*/
PetscErrorCode TrsCommCreate(MPI_Comm mpi, const char *backend, const TrsDeviceOps *device,
                             const TrsComputeOps *compute, TrsComm *comm);
PetscErrorCode TrsCommDestroy(TrsComm *comm);

/*
  Exchange blocks with all ranks. A rank's block for itself is copied. The blocks' arrays must stay
  valid until the wait.
*/
PetscErrorCode TrsCommAlltoallv(TrsComm comm, TrsStream stream, TrsSentBlocks send, TrsReceivedBlocks recv,
                                int64_t elem_bytes, TrsRequest *request);

/*
  TrsCommAlltoallvBlocks - Exchange floats like TrsCommAlltoallv(), but do not copy blocks that this
    rank can read in their senders' memory.

  These are this rank's own block and the blocks of ranks that share memory with it. All other
  blocks arrive in recv, which must be large enough for all blocks.

  Collective.

  InOut: view  the function sets the caller's arrays
*/
PetscErrorCode TrsCommAlltoallvBlocks(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                      TrsReceivedBlocks recv, TrsBlockView view, TrsRequest *request);

/*
  Wait until the data of an operation has arrived. If the operation is then complete, *request
  becomes NULL. *request may be NULL.
*/
PetscErrorCode TrsRequestArrive(TrsRequest *request, TrsStream stream);

/*
  Return the blocks of TrsCommAlltoallvBlocks() to their senders, after TrsRequestArrive(). The
  function does not wait for this rank's own blocks, so the caller must still call TrsRequestWait().
  If no blocks must be returned, nothing happens. Not collective.
*/
PetscErrorCode TrsRequestReturn(TrsRequest request);

/*
  Sum chunks over the ranks. `send` has one chunk after another; chunk r has counts[r] floats. recv
  [counts[rank]] becomes the sum of chunk `rank` over all ranks. The sum is added in rank order, so
  its bits are always the same. counts must be equal on all ranks. Collective.
*/
PetscErrorCode TrsCommReduceScatterv(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                     float *recv, TrsRequest *request);
PetscErrorCode TrsCommAllgatherv(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                 const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                 TrsRequest *request);

/*
  TrsCommAllreduce - Sum n floats in place, with the same bits on every rank and in every run.

  All ranks' values are encoded, also a rank's values for itself, so the result does not depend on
  how values travel. The decoded values are added in fp32 in rank order. The sums are encoded, and
  all ranks decode these codes. With a single rank, the values stay unchanged. If comm->any_order is
  set and values are not encoded, the backend's library may choose the order of the sum.

  Collective.

  In:     codec  encoding of the values: fp16 or bf16. If NULL or fp32, values are not encoded. The
                 codec may be freed after the call
  Errors: INTERNAL for a codec that does not encode values one by one
*/
PetscErrorCode TrsCommAllreduce(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                                TrsRequest *request);

/* Advance the operations that have started. Long work should call this from time to time. */
PetscErrorCode TrsCommProgress(TrsComm comm);

/* Like TrsCommProgress(), for all communicators in the ring of comm. */
PetscErrorCode TrsCommProgressRing(TrsComm comm);

/*
  Complete an operation: later work on the stream may use the operation's result. *request becomes
  NULL. *request may be NULL.
*/
PetscErrorCode TrsRequestWait(TrsRequest *request, TrsStream stream);

/* An exchange of counts in flight. */
typedef struct {
  TrsComm comm;
  int n, n_taken;
  int64_t *recv;   /* NULL for a sum */
  uint64_t number; /* number of a posted exchange, from 1 on; 0 if the exchange was not posted */
  /* The exchange as bulk data, if the host can read the device's memory. If it cannot, MPI
     exchanges the counts instead. */
  TrsRequest request;
  MPI_Request mpi;
} TrsCounts;

/*
  Exchange control data on the host, with any backend: each rank sends n int64 to each rank. `send`
  and `recv` are host arrays [size * n], ordered by rank; they belong to the operation until the
  wait. Collective, in the same order as all other operations on comm. While TRS_LANE_FLIGHT
  exchanges are in flight, further exchanges are slower. A wait for an exchange that was not started
  does nothing, if counts is zero and its .mpi is MPI_REQUEST_NULL.
*/
PetscErrorCode TrsCommCountsStart(TrsComm comm, int n, const int64_t *send, int64_t *recv, TrsCounts *counts);
PetscErrorCode TrsCommCountsWait(TrsCounts *counts);

/* A sum on the host that has started. */
typedef struct {
  TrsCounts posts;
  const double *mine;
  double *sum;
} TrsSum;

/*
  Sum control data on the host, with any backend: sum[i] is the sum over the ranks of mine[i], for n
  numbers, with the same bits on all ranks. The numbers are added in rank order if the ranks share
  memory, n is at most TRS_LANE_COUNTS, and fewer than TRS_LANE_FLIGHT exchanges are in flight. Both
  arrays belong to the operation until the wait. Collective. A sum in flight counts as an exchange
  of counts.
*/
PetscErrorCode TrsCommSumStart(TrsComm comm, int n, const double *mine, double *sum, TrsSum *request);
PetscErrorCode TrsCommSumWait(TrsSum *request);

/*
  The communicators of a run. `world` is for the model's exchanges, `input` for the input dist,
  which overlaps with the model's exchanges, and `dense` for gradient buckets. `host` and `cross`
  are for hierarchical dists. A host has L = local_world_size consecutive ranks: a rank is on host
  rank / L and has the local rank l = rank % L. `cross` joins the ranks with equal l.
*/
typedef struct {
  TrsComm world, input, dense, host, cross;
  int local_world_size, n_hosts;
} TrsCommGroups;

/*
  TrsCommHosts - Count the ranks of each host.

  Collective on mpi. A host is a set of ranks that share memory, with at most -comm_ranks_per_host
  ranks.

  Out:    local_world_size  number of ranks of each host; 1 if hosts have different numbers of
                            ranks, or ranks that are not consecutive
          least, most       smallest and largest number of ranks of a host
*/
PetscErrorCode TrsCommHosts(MPI_Comm mpi, int *local_world_size, int *least, int *most);

/*
  Create the communicators. If local_world_size is 0, it becomes the result of TrsCommHosts(), which
  is 1 if hosts have different numbers of ranks, or ranks that are not consecutive. Collective on
  mpi. Errors: OPTION if local_world_size does not divide the number of ranks.
*/
PetscErrorCode TrsCommGroupsCreate(MPI_Comm mpi, int local_world_size, const char *backend,
                                   const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   TrsCommGroups *groups);
PetscErrorCode TrsCommGroupsDestroy(TrsCommGroups *groups);

/*
  TrsCommWaitAtMost - Set the time after which a backend stops waiting for other ranks and raises
    UNAVAILABLE.

  Only nccl has such a limit; for MPI the watchdog checks waits. The setting holds for the whole
  process, and is TRS_COMM_WAIT_SECONDS at the start.

  Not collective. Returns the current setting.

  In: seconds  the new setting; 0 to keep the current setting
*/
enum { TRS_COMM_WAIT_SECONDS = 300 };
double TrsCommWaitAtMost(double seconds);
