/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A communicator: bulk communication between some ranks, behind one table of functions (mpi, nccl).
  Operations start now and are waited for later.

  Counts and displacements are int64, in elements of elem_bytes each; their arrays [size] must stay
  valid until the wait. Every rank of the communicator must start the same operations in the same
  order. Buffers belong to the operation until the wait. After warm-up, starting an operation
  allocates nothing.

  Source: TorchRec's awaitables (torchrec.distributed.types.Awaitable); MPI nonblocking collectives
*/
#pragma once

#include "comm/shared_lanes.h"
#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "device/timeline.h"

typedef struct TrsCommOps TrsCommOps;

/*
  An operation in flight. A backend embeds this struct as the first member of its own request type,
  and recycles requests.
*/
typedef struct TrsRequestImpl {
  struct TrsCommImpl *comm;
  TrsTimelineSpan span; /* for operations on a device; NULL: not traced */
  double start_s;       /* for operations on the host, by the host's clock; 0: not traced */
  double done_s;        /* when the backend saw that the operation was done, if before the wait */
  int64_t trace_step;   /* the step that started the operation */
  int64_t bytes;        /* bytes that this rank sends */
} * TrsRequest;

typedef struct TrsCommImpl {
  int size, rank;
  /* Number of ranks, this rank included, whose exchanges go through shared memory. 0 or 1: none. */
  int n_shared;
  TrsLanes lanes; /* lanes to the other ranks of n_shared; NULL: none */
  /* For control messages. Bulk data uses a communicator of the backend. */
  MPI_Comm mpi;
  const TrsCommOps *ops;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute; /* sums and codecs */
  void *data;                   /* the backend's data */
  /*
    The communicators of a run form a ring: while a rank waits for one, all of them make progress.
    NULL: no ring.
  */
  struct TrsCommImpl *next;
  /* Sums may be made in any order, instead of rank order. The backend may then be faster. */
  PetscBool any_order;
  int trace_as;                      /* the name of its exchanges in a trace (core/trace.h) */
  uint64_t n_counts;                 /* number of posted exchanges of counts */
  int64_t *one_each, *place_of;      /* [size] 1; q: for exchanges of one element with each rank */
  int64_t n_messages, message_bytes; /* bulk data that this rank has sent by MPI */
  /* true if posted exchange n is in flight: [n % TRS_LANE_FLIGHT] */
  PetscBool counts_open[TRS_LANE_FLIGHT];
} * TrsComm;

/* Blocks for every rank, and blocks from every rank: counts[q] elements at displs[q] for rank q. */
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
    returns the blocks to their senders. The senders wait for this, so use the blocks quickly.
  */
  const float **block;
  /*
    NULL: blocks are only read. Else [size]: blocks in their senders' memory may be changed there,
    and comes_back[q] says whether this rank's block for rank q is such a block. TrsRequestWait()
    then waits until rank q has returned the block, as rank q left it. Until then only few other
    operations may start (TRS_LANE_CELLS).
  */
  PetscBool *comes_back;
} TrsBlockView;

struct TrsCommOps {
  const char *name;
  /*
    A device's stream makes the exchanges. The trace then uses the device's clock instead of the
    host's.
  */
  PetscBool by_device;
  /*
    The version of the backend's library, in the library's numbering (NCCL 2.28.9: 22809). NULL: the
    library is MPI, whose version is reported separately. Call after setup().
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
  /* TrsCommAlltoallvBlocks() and TrsRequestArrive(). Both are set, or both are NULL. */
  PetscErrorCode (*alltoallv_blocks)(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                     TrsReceivedBlocks recv, TrsBlockView view, TrsRequest *request);
  PetscErrorCode (*arrive)(TrsRequest request, TrsStream stream);
  /* TrsRequestReturn(). Set if the two above are set. */
  PetscErrorCode (*give_back)(TrsRequest request);
  /* lets started operations make progress; cheap, never waits */
  PetscErrorCode (*progress)(TrsComm comm);
  PetscErrorCode (*wait)(TrsRequest request, TrsStream stream);
};

/* -comm_backend, -comm_shared_memory, -comm_relay_bytes and others */
extern const TrsOptionGroup trs_comm_options;
extern const TrsCommOps trs_comm_mpi;
extern const TrsCommOps *const trs_comm_backends[]; /* the list ends with NULL */

/* Check that a backend has every necessary operation. Not collective. Errors: INTERNAL. */
PetscErrorCode TrsCommCheck(const TrsCommOps *ops);

/*
  TrsCommCreate - Create a communicator for bulk data.

  Collective on mpi, which is duplicated.

  In:     mpi      the ranks
          backend  "mpi", "nccl", or "auto" (nccl on cuda, else mpi)
          device, compute  where the buffers are
  Out:    comm     free with TrsCommDestroy(), which is collective
  Errors: UNAVAILABLE
*/
PetscErrorCode TrsCommCreate(MPI_Comm mpi, const char *backend, const TrsDeviceOps *device,
                             const TrsComputeOps *compute, TrsComm *comm);
PetscErrorCode TrsCommDestroy(TrsComm *comm);

/*
  Exchange blocks with all ranks. The exchange with itself is a copy. The blocks' arrays must stay
  valid until the wait.
*/
PetscErrorCode TrsCommAlltoallv(TrsComm comm, TrsStream stream, TrsSentBlocks send, TrsReceivedBlocks recv,
                                int64_t elem_bytes, TrsRequest *request);

/*
  TrsCommAlltoallvBlocks - Exchange floats as TrsCommAlltoallv(), but leave blocks in their senders'
  memory if this rank can read them there.

  This holds for this rank's own block and for blocks of ranks that share memory with it. recv must
  have room for all blocks; the other blocks arrive in recv.

  Collective.

  InOut: view  its arrays belong to the caller and are set
*/
PetscErrorCode TrsCommAlltoallvBlocks(TrsComm comm, TrsStream stream, TrsSentBlocks send,
                                      TrsReceivedBlocks recv, TrsBlockView view, TrsRequest *request);

/*
  Wait until the data has arrived. Sets *request to NULL if nothing else is pending. Accepts a NULL
  *request.
*/
PetscErrorCode TrsRequestArrive(TrsRequest *request, TrsStream stream);

/*
  Return the blocks of TrsCommAlltoallvBlocks() after TrsRequestArrive(), without waiting for this
  rank's own blocks; TrsRequestWait() must still follow. Does nothing if no blocks are pending. Not
  collective.
*/
PetscErrorCode TrsRequestReturn(TrsRequest request);

/*
  Sum chunks over the ranks. send holds consecutive chunks, chunk r with counts[r] floats. recv
  [counts[rank]] gets the sum of all ranks' chunk `rank`, added in rank order, so that the bits are
  always the same. counts must be equal on all ranks. Collective.
*/
PetscErrorCode TrsCommReduceScatterv(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                     float *recv, TrsRequest *request);
PetscErrorCode TrsCommAllgatherv(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                 const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                 TrsRequest *request);

/*
  TrsCommAllreduce - Sum n floats in place, with the same bits on every rank and in every run.

  The result does not depend on the route of the values. Each rank's values, its own included, are
  encoded. The decoded values are added in fp32 in rank order. The sums are encoded, and all ranks
  decode these codes. A single rank adds nothing and rounds nothing. If comm->any_order is set and
  values travel as floats, the backend's library may choose the order.

  Collective.

  In:     codec  encoding of the values: fp16 or bf16; NULL or fp32: not encoded. It may be freed
                 after the call
  Errors: INTERNAL for a codec that does not encode values one by one
*/
PetscErrorCode TrsCommAllreduce(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                                TrsRequest *request);

/* Let started operations make progress. Call it between pieces of long work. */
PetscErrorCode TrsCommProgress(TrsComm comm);

/*
  Complete an operation: later work on the stream may use its result. Sets *request to NULL. Accepts
  a NULL *request.
*/
PetscErrorCode TrsRequestWait(TrsRequest *request, TrsStream stream);

/* An exchange of counts in flight. */
typedef struct {
  TrsComm comm;
  int n, n_taken;
  int64_t *recv;   /* NULL for a sum */
  uint64_t number; /* number of a posted exchange; 0: not posted */
  /* The exchange as bulk data if the host can read the device's memory; otherwise MPI makes it. */
  TrsRequest request;
  MPI_Request mpi;
} TrsCounts;

/*
  Exchange control data on the host, with any backend: n int64 from each rank to each rank. send and
  recv are host arrays [size * n], rank-major; they belong to the operation until the wait.
  Collective, in the same order as all other operations on comm. If more than TRS_LANE_FLIGHT
  exchanges are in flight, the later ones are slower. A wait without a start does nothing if counts
  is zero except for .mpi = MPI_REQUEST_NULL.
*/
PetscErrorCode TrsCommCountsStart(TrsComm comm, int n, const int64_t *send, int64_t *recv, TrsCounts *counts);
PetscErrorCode TrsCommCountsWait(TrsCounts *counts);

/* A sum on the host in flight. */
typedef struct {
  TrsCounts posts;
  const double *mine;
  double *sum;
} TrsSum;

/*
  Sum control data on the host, with any backend: sum[n] is the sum of mine[n] over the ranks, with
  the same bits on all ranks. Numbers are added in rank order if the ranks share memory, n is at
  most TRS_LANE_COUNTS, and fewer than TRS_LANE_FLIGHT exchanges are in flight. Both arrays belong
  to the operation until the wait. Collective; a sum counts as an exchange of counts in flight.
*/
PetscErrorCode TrsCommSumStart(TrsComm comm, int n, const double *mine, double *sum, TrsSum *request);
PetscErrorCode TrsCommSumWait(TrsSum *request);

/*
  The communicators of a run: world for the model's exchanges, input for the input dist (which
  overlaps with them), dense for gradient buckets, host and cross for hierarchical dists. A host is
  L = local_world_size consecutive ranks: a rank has host h = rank / L and local rank l = rank % L.
  cross joins the ranks with equal l.
*/
typedef struct {
  TrsComm world, input, dense, host, cross;
  int local_world_size, n_hosts;
} TrsCommGroups;

/*
  TrsCommHosts - Count the ranks of each host.

  Collective on mpi. A host is a set of ranks that share memory, with at most -comm_ranks_per_host
  ranks.

  Out:    local_world_size  ranks of each host if all hosts have equally many, consecutive ranks;
                            else 1
          least, most       smallest and largest number of a host's ranks
*/
PetscErrorCode TrsCommHosts(MPI_Comm mpi, int *local_world_size, int *least, int *most);

/*
  Create the communicators. local_world_size 0: use TrsCommHosts(), whose result is 1 if hosts have
  unequal numbers of ranks, or ranks that are not consecutive. Collective on mpi. Errors: OPTION if
  local_world_size does not divide the number of ranks.
*/
PetscErrorCode TrsCommGroupsCreate(MPI_Comm mpi, int local_world_size, const char *backend,
                                   const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   TrsCommGroups *groups);
PetscErrorCode TrsCommGroupsDestroy(TrsCommGroups *groups);

/*
  TrsCommWaitAtMost - Set the time after which a backend stops waiting for other ranks and raises
  UNAVAILABLE.

  Only nccl has such a limit; for MPI the watchdog checks waits. The setting is global to the
  process, and TRS_COMM_WAIT_SECONDS at first.

  Not collective. Returns the current setting.

  In: seconds  0: do not change the setting
*/
enum { TRS_COMM_WAIT_SECONDS = 300 };
double TrsCommWaitAtMost(double seconds);
