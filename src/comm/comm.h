/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A communicator: bulk communication of some ranks, behind one table of functions (mpi, nccl). Its
  operations start now and are waited for late.

  Counts and displacements are int64, in elements of elem_bytes each; their arrays [size] must live
  until the wait. Every rank of the communicator starts the same operations in the same order.
  Buffers belong to the operation until the wait. Starting an operation allocates nothing after
  warm-up.

  Source: TorchRec's awaitables (torchrec.distributed.types.Awaitable); MPI nonblocking collectives
*/
#pragma once

#include "comm/shared_lanes.h"
#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "device/timeline.h"

typedef struct TrsCommOps TrsCommOps;

/*
  An operation under way. A backend embeds this struct as the first member of its own request type,
  and recycles requests.
*/
typedef struct TrsRequestImpl {
  struct TrsCommImpl *comm;
  TrsTimelineSpan span; /* used if a device does the operation; NULL: not traced */
  double start_s;       /* used if the host does it, by the host's clock; 0: not traced */
  double done_s;        /* when the operation was seen to be done, if before the wait */
  int64_t trace_step;   /* the step that started the operation */
  int64_t bytes;        /* bytes that this rank gave */
} * TrsRequest;

typedef struct TrsCommImpl {
  int size, rank;
  /* Ranks, with this one, whose exchanges go through shared memory. 0 or 1: there are none. */
  int n_shared;
  TrsLanes lanes; /* lanes to the other ranks of n_shared; NULL: none */
  /* For control messages. Bulk data travels on a communicator of the backend's own. */
  MPI_Comm mpi;
  const TrsCommOps *ops;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute; /* sums and codecs */
  void *data;                   /* data of the backend */
  /* The communicators of a run form a ring: a wait for one lets all of them move. NULL: no ring. */
  struct TrsCommImpl *next;
  /* Sums may be made in any order, instead of the ranks'. The backend may then be quicker. */
  PetscBool any_order;
  int trace_as;                      /* the name of its exchanges in a trace (core/trace.h) */
  uint64_t n_counts;                 /* number of exchanges of counts that were posted */
  int64_t *one_each, *place_of;      /* [size] 1; q: an exchange of one element with each rank */
  int64_t n_messages, message_bytes; /* bulk data that this rank has sent by MPI */
  /* posted exchange n is under way: [n % TRS_LANE_FLIGHT] */
  PetscBool counts_open[TRS_LANE_FLIGHT];
} * TrsComm;

/* The result of TrsCommAlltoallvBlocks(). */
typedef struct {
  /*
    [size] After TrsRequestArrive() block[q] is where rank q's block lies. TrsRequestWait() gives
    the blocks back to their senders, which wait for this: use them quickly.
  */
  const float **block;
  /*
    NULL: blocks are only read. Else [size]: blocks that lie in their senders' memory may be changed
    there, and comes_back[q] says whether this rank's block for rank q does. Such a block comes back
    with TrsRequestWait(), as rank q left it. Until then there may be few other operations
    (TRS_LANE_CELLS).
  */
  PetscBool *comes_back;
} TrsBlockView;

struct TrsCommOps {
  const char *name;
  /* A device's stream does the exchanges. They are traced by the device's clock, not the host's. */
  PetscBool by_device;
  /*
    Version of the backend's library, in the library's own numbering (NCCL 2.28.9: 22809). NULL: the
    library is MPI, which is named anyway. Call after setup().
  */
  int (*version)(void);
  PetscErrorCode (*setup)(TrsComm comm);
  PetscErrorCode (*destroy)(TrsComm comm);
  PetscErrorCode (*alltoallv)(TrsComm comm, TrsStream stream, const void *send, const int64_t *send_counts,
                              const int64_t *send_displs, void *recv, const int64_t *recv_counts,
                              const int64_t *recv_displs, int64_t elem_bytes, TrsRequest *request);
  PetscErrorCode (*reduce_scatterv)(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                    float *recv, TrsRequest *request);
  PetscErrorCode (*allgatherv)(TrsComm comm, TrsStream stream, const void *send, void *recv,
                               const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                               TrsRequest *request);
  PetscErrorCode (*allreduce)(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                              TrsRequest *request);
  /* TrsCommAlltoallvBlocks() and TrsRequestArrive(). A backend has both, or NULL for both. */
  PetscErrorCode (*alltoallv_blocks)(TrsComm comm, TrsStream stream, const float *send,
                                     const int64_t *send_counts, const int64_t *send_displs, void *recv,
                                     const int64_t *recv_counts, const int64_t *recv_displs,
                                     TrsBlockView view, TrsRequest *request);
  PetscErrorCode (*arrive)(TrsRequest request, TrsStream stream);
  /* TrsRequestReturn(). A backend has it with the two above. */
  PetscErrorCode (*give_back)(TrsRequest request);
  PetscErrorCode (*progress)(TrsComm comm); /* let started operations move; cheap, never waits */
  PetscErrorCode (*wait)(TrsRequest request, TrsStream stream);
};

/* -comm_backend, -comm_shared_memory, -comm_relay_bytes and others */
extern const TrsOptionGroup trs_comm_options;
extern const TrsCommOps trs_comm_mpi;
extern const TrsCommOps *const trs_comm_backends[]; /* the list ends with NULL */

/* Check that a backend has every operation it needs. Not collective. Errors: INTERNAL. */
PetscErrorCode TrsCommCheck(const TrsCommOps *ops);

/*
  TrsCommCreate - Create a communicator for bulk data.

  Collective on mpi, which is duplicated.

  In:     mpi      the ranks
          backend  "mpi", "nccl", or "auto" (nccl on cuda, else mpi)
          device, compute  where the buffers are
  Out:    comm     free with TrsCommDestroy(), collective
  Errors: UNAVAILABLE
*/
PetscErrorCode TrsCommCreate(MPI_Comm mpi, const char *backend, const TrsDeviceOps *device,
                             const TrsComputeOps *compute, TrsComm *comm);
PetscErrorCode TrsCommDestroy(TrsComm *comm);

/* Exchange counts[q] elements at displs[q] with each rank q. The exchange with itself is a copy. */
PetscErrorCode TrsCommAlltoallv(TrsComm comm, TrsStream stream, const void *send, const int64_t *send_counts,
                                const int64_t *send_displs, void *recv, const int64_t *recv_counts,
                                const int64_t *recv_displs, int64_t elem_bytes, TrsRequest *request);

/*
  TrsCommAlltoallvBlocks - Exchange floats like TrsCommAlltoallv(), but leave blocks in their
  senders' memory where this rank can read them.

  These blocks are this rank's own and those of ranks that share memory with it. recv has room for
  all blocks; a block that cannot stay comes to its place in recv.

  Collective.

  InOut: view  kept by the caller; its arrays are set
*/
PetscErrorCode TrsCommAlltoallvBlocks(TrsComm comm, TrsStream stream, const float *send,
                                      const int64_t *send_counts, const int64_t *send_displs, float *recv,
                                      const int64_t *recv_counts, const int64_t *recv_displs,
                                      TrsBlockView view, TrsRequest *request);
/*
  Wait until the data has arrived. Sets *request to NULL if nothing else is pending. Accepts a NULL
  *request.
*/
PetscErrorCode TrsRequestArrive(TrsRequest *request, TrsStream stream);

/*
  Give the blocks of TrsCommAlltoallvBlocks() back after TrsRequestArrive(), without waiting for
  this rank's own: TrsRequestWait() still follows. Does nothing if none is pending. Not collective.
*/
PetscErrorCode TrsRequestReturn(TrsRequest request);

/*
  Sum chunks over the ranks. send holds size consecutive chunks, chunk r of counts[r] floats. recv
  [counts[rank]] gets the sum over ranks of their chunk `rank`, added in rank order, so the bits are
  the same every time. counts are equal on all ranks. Collective.
*/
PetscErrorCode TrsCommReduceScatterv(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                     float *recv, TrsRequest *request);
PetscErrorCode TrsCommAllgatherv(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                 const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                 TrsRequest *request);

/*
  TrsCommAllreduce - Sum n floats in place, with the same bits on every rank and in every run.

  The result does not depend on how the values travel. The values of each rank, its own ones too,
  are encoded. The decoded values are added in fp32 in rank order. The sums are encoded, and all
  ranks decode these codes. A single rank has nothing to add, and then nothing is rounded. Where
  comm->any_order is set and values travel as floats, the backend's library may choose the order.

  Collective.

  In:     codec  how the values travel: fp16 or bf16; NULL or fp32: as floats. It may be freed after
                 the call
  Errors: INTERNAL for a codec whose values are not encoded one by one
*/
PetscErrorCode TrsCommAllreduce(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                                TrsRequest *request);

/* Give started operations a chance to move. Call between pieces of long work. */
PetscErrorCode TrsCommProgress(TrsComm comm);

/*
  Complete an operation: its result is ready for later work on the stream. Sets *request to NULL.
  Accepts a NULL *request.
*/
PetscErrorCode TrsRequestWait(TrsRequest *request, TrsStream stream);

/* An exchange of counts under way. Plain data. */
typedef struct {
  TrsComm comm;
  int n, n_taken;
  int64_t *recv;   /* NULL for a sum */
  uint64_t number; /* number of a posted exchange; 0: it is none */
  /* The exchange as one of bulk data, if the host can read such data; else MPI does it. */
  TrsRequest request;
  MPI_Request mpi;
} TrsCounts;

/*
  Exchange control data on the host, with any backend: n int64 from each rank to each rank. send and
  recv are host arrays [size * n], rank-major; they belong to the operation until the wait.

  Collective, in the same order as everything else on comm. With more than TRS_LANE_FLIGHT exchanges
  under way the later ones are slower. A wait without a start does nothing if counts is all zero
  except .mpi = MPI_REQUEST_NULL.
*/
PetscErrorCode TrsCommCountsStart(TrsComm comm, int n, const int64_t *send, int64_t *recv, TrsCounts *counts);
PetscErrorCode TrsCommCountsWait(TrsCounts *counts);

/* A sum on the host under way. Plain data. */
typedef struct {
  TrsCounts posts;
  const double *mine;
  double *sum;
} TrsSum;

/*
  Sum control data on the host, with any backend: sum[n] is the sum of mine[n] over the ranks, with
  the same bits on all ranks. The order of addition is that of the ranks if they share memory, n is
  at most TRS_LANE_COUNTS, and fewer than TRS_LANE_FLIGHT exchanges are under way. Both arrays
  belong to the operation until the wait. Collective; a sum counts as an exchange of counts under
  way.
*/
PetscErrorCode TrsCommSumStart(TrsComm comm, int n, const double *mine, double *sum, TrsSum *request);
PetscErrorCode TrsCommSumWait(TrsSum *request);

/*
  The communicators of a run: world for the model's exchanges, input for the input dist (which
  overlaps with them), dense for gradient buckets, host and cross for hierarchical dists. Hosts are
  consecutive runs of L = local_world_size ranks: a rank has host h = rank / L and local rank l =
  rank % L. cross joins the ranks with equal l.
*/
typedef struct {
  TrsComm world, input, dense, host, cross;
  int local_world_size, n_hosts;
} TrsCommGroups;

/*
  TrsCommHosts - How many ranks the hosts have.

  Collective on mpi. A host is what shares memory, with -comm_ranks_per_host at most so many ranks
  of it.
  Out:    local_world_size  ranks of each host, when all have equally many, and consecutive ones;
                            else 1
          least, most       ranks of a host
*/
PetscErrorCode TrsCommHosts(MPI_Comm mpi, int *local_world_size, int *least, int *most);

/*
  Create the communicators. local_world_size 0 means that MPI tells which ranks share memory; the
  result is 1 if hosts have unequal numbers of ranks, or ranks that are not consecutive. Collective
  on mpi. Errors: OPTION if local_world_size does not divide the number of ranks.
*/
PetscErrorCode TrsCommGroupsCreate(MPI_Comm mpi, int local_world_size, const char *backend,
                                   const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   TrsCommGroups *groups);
PetscErrorCode TrsCommGroupsDestroy(TrsCommGroups *groups);

/*
  TrsCommWaitAtMost - Set the time after which a backend gives up a wait for other ranks, with
  UNAVAILABLE.

  Only nccl does so; the watchdog looks after waits in MPI. The setting belongs to the process. It
  is TRS_COMM_WAIT_SECONDS at first.

  Not collective. Returns the setting that holds.

  In: seconds  0: do not change the setting
*/
enum { TRS_COMM_WAIT_SECONDS = 300 };
double TrsCommWaitAtMost(double seconds);
