/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Bulk communication of a group of ranks, behind one table of functions (mpi, nccl): start now, wait late.

  Counts and displacements are int64 elements of elem_bytes each, [size] arrays that must live until the wait.
  Every rank of the group starts the same operations in the same order. Buffers belong to the operation until
  the wait. Starting allocates nothing after warm-up.
  Source: TorchRec's awaitables (torchrec.distributed.types.Awaitable); MPI nonblocking collectives.
*/
#pragma once

#include "comm/shared_lanes.h"
#include "compute/compute_ops.h"
#include "core/options.h"
#include "device/timeline.h"

typedef struct TrsCommOps TrsCommOps;

/* An operation under way: backends embed this as their own request's first member and recycle requests. */
typedef struct TrsRequestImpl {
  struct TrsCommImpl *comm;
  TrsTimelineSpan span; /* of a backend whose operations are a device's; NULL: not traced */
  double start_s;       /* of another one, by the host's clock; 0: not traced */
  double done_s;        /* when it was seen to be done, if before the wait */
  int64_t trace_step;   /* that started it */
  int64_t bytes;        /* that this rank gave */
} * TrsRequest;

typedef struct TrsCommImpl {
  int size, rank;
  int n_shared;   /* ranks, this one included, whose exchanges go through shared memory; 1 or 0: none */
  TrsLanes lanes; /* to the other ones of them; NULL: none */
  MPI_Comm mpi;   /* for control messages; bulk data travels on a communicator of the backend's own */
  const TrsCommOps *ops;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute; /* sums and codecs */
  void *data;                   /* the backend's */
  struct TrsCommImpl
      *next;         /* of a run's groups, in a ring: who waits for one lets all of them move; NULL: alone */
  int trace_as;      /* what a trace calls its exchanges (core/trace.h) */
  uint64_t n_counts; /* exchanges of counts that were posted; those under way: */
  PetscBool counts_open[TRS_LANE_FLIGHT];
} * TrsComm;

struct TrsCommOps {
  const char *name;
  PetscBool by_device; /* a device's stream does the exchanges: traced as it tells, not by the host's clock */
  int (*version)(
      void); /* of its library, as that numbers them (NCCL 2.28.9: 22809); NULL: MPI's, which is named anyway. After setup */
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
  /* codec NULL: as floats; else fp16 or bf16 */
  PetscErrorCode (*allreduce)(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                              TrsRequest *request);
  /* May be NULL, both or none: of floats, and block[q] is set where rank q's need not come to recv; what comes is there, and stays until the wait */
  PetscErrorCode (*alltoallv_blocks)(TrsComm comm, TrsStream stream, const float *send,
                                     const int64_t *send_counts, const int64_t *send_displs, void *recv,
                                     const int64_t *recv_counts, const int64_t *recv_displs,
                                     const float **block, TrsRequest *request);
  PetscErrorCode (*arrive)(TrsRequest request, TrsStream stream);
  PetscErrorCode (*progress)(TrsComm comm); /* let started operations move; cheap, never waits */
  PetscErrorCode (*wait)(TrsRequest request, TrsStream stream);
};

extern const TrsOptionGroup trs_comm_options; /* -comm_backend, -comm_shared_memory, -comm_wait_seconds */
extern const TrsCommOps trs_comm_mpi;
extern const TrsCommOps *const trs_comm_backends[]; /* ended by NULL */

/*
  TrsCommCreate - A group of ranks that exchange bulk data.

  Collective on mpi (duplicated).

  In:     mpi      the group
          backend  "mpi", "nccl", or "auto" (nccl on cuda, else mpi)
          device, compute  where the buffers are
  Out:    comm     free with TrsCommDestroy(), collective
  Errors: UNAVAILABLE
*/
PetscErrorCode TrsCommCreate(MPI_Comm mpi, const char *backend, const TrsDeviceOps *device,
                             const TrsComputeOps *compute, TrsComm *comm);
PetscErrorCode TrsCommDestroy(TrsComm *comm);

/* From rank q, counts[q] elements at displs[q], and to it. Self-exchange is a copy. */
PetscErrorCode TrsCommAlltoallv(TrsComm comm, TrsStream stream, const void *send, const int64_t *send_counts,
                                const int64_t *send_displs, void *recv, const int64_t *recv_counts,
                                const int64_t *recv_displs, int64_t elem_bytes, TrsRequest *request);

/*
  TrsCommAlltoallvBlocks - TrsCommAlltoallv() of floats for who can read blocks where they lie: those of ranks that share memory, and the own one, stay in
  their sender's.

  Collective. After TrsRequestArrive() block[q], [size] for the caller to keep, says where rank q's block is until TrsRequestWait(), which gives it
  back to its sender; be quick, it waits for that. recv has room for all blocks, and those come to their place there that cannot stay.
*/
PetscErrorCode TrsCommAlltoallvBlocks(TrsComm comm, TrsStream stream, const float *send,
                                      const int64_t *send_counts, const int64_t *send_displs, float *recv,
                                      const int64_t *recv_counts, const int64_t *recv_displs,
                                      const float **block, TrsRequest *request);
/* What comes has come. Sets *request NULL where nothing is left to wait for; NULL is fine. */
PetscErrorCode TrsRequestArrive(TrsRequest *request, TrsStream stream);

/*
  send holds size consecutive chunks, chunk r of counts[r] floats; recv [counts[rank]] gets the sum over ranks
  of their chunk `rank`, added in rank order (so the same bits every time). counts are equal on all ranks.
*/
PetscErrorCode TrsCommReduceScatterv(TrsComm comm, TrsStream stream, const float *send, const int64_t *counts,
                                     float *recv, TrsRequest *request);
PetscErrorCode TrsCommAllgatherv(TrsComm comm, TrsStream stream, const void *send, void *recv,
                                 const int64_t *counts, const int64_t *displs, int64_t elem_bytes,
                                 TrsRequest *request);

/*
  TrsCommAllreduce - In-place sum of n floats; the same bits on every rank, and run after run.

  Collective. As on paper, whatever carries the values: those of each rank, the own ones too, are encoded; the decoded ones are added in fp32 in rank order;
  the sums are encoded, and that is what all ranks decode. One rank has nothing to add, and nothing is rounded.

  In:     codec  the numbers that travel: fp16 or bf16, which may be gone after the call; NULL or fp32: floats as they are
  Errors: INTERNAL for a codec whose values are not encoded one by one
*/
PetscErrorCode TrsCommAllreduce(TrsComm comm, TrsStream stream, const TrsCodec *codec, float *data, int64_t n,
                                TrsRequest *request);

/* Give started operations a chance to move. Call between pieces of long work. */
PetscErrorCode TrsCommProgress(TrsComm comm);

/*
  Complete an operation: its result is ready for what comes next on the stream. Sets *request NULL; NULL is
  fine.
*/
PetscErrorCode TrsRequestWait(TrsRequest *request, TrsStream stream);

/* An exchange of counts under way. Plain data. */
typedef struct {
  TrsComm comm;
  int n, n_taken;
  int64_t *recv;   /* NULL: of a sum */
  uint64_t number; /* of a posted one; 0: by MPI */
  MPI_Request mpi;
} TrsCounts;

/*
  Control on the host, whatever the backend: n int64 from each rank to each rank. send and recv are host
  arrays [size * n], rank-major; they belong to the operation until the wait. Collective, in the same order as
  everything else on comm->mpi; at most TRS_LANE_FLIGHT under way. A wait that follows no start does nothing
  where counts is all zero but .mpi = MPI_REQUEST_NULL.
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
  Control on the host, whatever the backend: sum[n] over ranks of mine[n], the same bits on all of them; where they share memory, and n is at
  most TRS_LANE_COUNTS, added in rank order. Both belong to the operation until the wait. Collective, as an exchange of counts and one of those under way.
*/
PetscErrorCode TrsCommSumStart(TrsComm comm, int n, const double *mine, double *sum, TrsSum *request);
PetscErrorCode TrsCommSumWait(TrsSum *request);

/*
  The communicators of a run: world for the model's exchanges, input for the input dist (which overlaps with
  them), dense for gradient buckets, host and cross for hierarchical dists. Hosts are consecutive runs of
  local_world_size ranks: host h = rank / L, local l = rank % L; cross joins equal l.
*/
typedef struct {
  TrsComm world, input, dense, host, cross;
  int local_world_size, n_hosts;
} TrsCommGroups;

/*
  local_world_size 0: found from MPI (ranks that share memory); 1 when hosts have unequal numbers of ranks, or
  ranks that do not follow one another. Collective on mpi. Errors: OPTION when it does not divide the ranks.
*/
PetscErrorCode TrsCommGroupsCreate(MPI_Comm mpi, int local_world_size, const char *backend,
                                   const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   TrsCommGroups *groups);
PetscErrorCode TrsCommGroupsDestroy(TrsCommGroups *groups);

/*
  TrsCommWaitAtMost - From now on backends that can tell give up a wait for other ranks after this time, with UNAVAILABLE (nccl; MPI's own waits are the watchdog's); 0: as
  it was. Returns what holds: 300 at first. Of the process. Not collective.
*/
double TrsCommWaitAtMost(double seconds);
