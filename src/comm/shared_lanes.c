/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* for sched_getaffinity and syscall. NOLINT(bugprone-reserved-identifier) */
#include "comm/shared_lanes.h"

#include "core/print.h"
#include "core/shared_memory.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  TRS_LANE_LINE = 64,
  TRS_LANE_WHY = 256,
  /* offset of the flag that is true while this rank sleeps; the bell is at offset 0 */
  TRS_LANE_NAPS = TRS_LANE_LINE,
  TRS_LANE_HEAD = 2 * TRS_LANE_LINE,   /* offset of the first cell */
  TRS_LANE_POSTS = 2 * TRS_LANE_FLIGHT /* posts kept for each rank of the host */
};

const char trs_lane_by_message[1] = "";
static int most_ranks; /* set by TrsSharedRanks() */

/*
  A post: numbers that one rank sends to another. The post's number is written after the values, so
  a reader that sees the number also sees the values. A short post fits into one cache line.
*/
typedef struct {
  _Atomic uint64_t number;
  int64_t value[TRS_LANE_COUNTS];
} TrsLanePost;

/*
  Each rank has flags in its shared memory. They are the bell, and a flag that is set while the rank
  sleeps. Each cell has

      offered   the last phase offered, on separate cache lines; then [n] the address of the block
                for each rank of the host
      returned  [n] the last phase whose block this rank returned to each rank of the host

  There is also a ring buffer of posts for each rank of the host.
*/
struct TrsLanesImpl {
  MPI_Comm host;
  int n, me;          /* number of ranks on the host; index of this rank on the host */
  int *peer;          /* [n - 1] the peers' ranks in mpi, beginning with the next rank */
  int *place;         /* [n - 1] the peers' indices on the host */
  int *index_of;      /* [size] index in `peer`; -1 for this rank and for ranks on other hosts */
  const char **base;  /* [n - 1] addresses of the peers' memory */
  const char **flags; /* [n - 1] addresses of the peers' flags */
  char *own_flags, *small;
  PetscBool crowded;
  uint64_t last[TRS_LANE_CELLS]; /* last phase offered in each cell */
};

static int64_t row_bytes(int n)
{
  return (n * (int64_t)sizeof(uint64_t) + TRS_LANE_LINE - 1) / TRS_LANE_LINE * TRS_LANE_LINE;
}

static int64_t cell_at(const struct TrsLanesImpl *l, uint64_t phase)
{
  return TRS_LANE_HEAD + (int64_t)(phase % TRS_LANE_CELLS) * (TRS_LANE_LINE + 2 * row_bytes(l->n));
}

/* Return the offset of the posts for the rank with index `place` on the host. */
static int64_t post_at(const struct TrsLanesImpl *l, uint64_t number, int place)
{
  const int64_t cells = TRS_LANE_HEAD + TRS_LANE_CELLS * (TRS_LANE_LINE + 2 * row_bytes(l->n));

  return cells + (place * (int64_t)TRS_LANE_POSTS + (int64_t)(number % TRS_LANE_POSTS)) *
                     (int64_t)sizeof(TrsLanePost);
}

/*
  Return the words of a cell. Peers' flags are read through `const` pointers; a rank writes its own
  flags through pointers without `const`.
*/
static const _Atomic uint64_t *offered_of(const struct TrsLanesImpl *l, const char *flags, uint64_t phase)
{
  return (const _Atomic uint64_t *)(const void *)(flags + cell_at(l, phase));
}

static const uint64_t *places_of(const struct TrsLanesImpl *l, const char *flags, uint64_t phase)
{
  return (const uint64_t *)(const void *)(flags + cell_at(l, phase) + TRS_LANE_LINE);
}

static const _Atomic uint64_t *returned_of(const struct TrsLanesImpl *l, const char *flags, uint64_t phase)
{
  return (const _Atomic uint64_t *)(const void *)(flags + cell_at(l, phase) + TRS_LANE_LINE +
                                                  row_bytes(l->n));
}

/* Check whether the host's ranks together have more threads than cores. */
static PetscErrorCode find_crowded(MPI_Comm host, int n_threads, PetscBool *crowded)
{
  const char *text = getenv("TRSHARD_CROWDED");
  cpu_set_t mine;
  unsigned char all[sizeof(mine)];

  PetscFunctionBegin;
  PetscCheck(!text || !*text || !strcmp(text, "0") || !strcmp(text, "1"), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TRSHARD_CROWDED=%s in the environment is neither 0 nor 1", text);
  CPU_ZERO(&mine);
  /* cpu_set_t is too small for this host's number of processors */
  if (sched_getaffinity(0, sizeof(mine), &mine) != 0) memset(&mine, 0xff, sizeof(mine));
  memcpy(all, &mine, sizeof(mine));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, all, (int)sizeof(all), MPI_BYTE, MPI_BOR, host));
  memcpy(&mine, all, sizeof(mine));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &n_threads, 1, MPI_INT, MPI_SUM, host));
  *crowded = (PetscBool)(text && *text ? *text == '1' : n_threads > CPU_COUNT(&mine));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsSharedRanks(int most)
{
  most_ranks = most;
}

PetscErrorCode TrsSharedHost(MPI_Comm mpi, MPI_Comm *host)
{
  MPI_Comm all;
  int rank, world_rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(mpi, &rank));
  PetscCallMPI(MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, host));
  if (most_ranks == 0) PetscFunctionReturn(PETSC_SUCCESS);
  all = *host;
  /* divide by ranks in MPI_COMM_WORLD, so that all communicators have the same simulated hosts */
  PetscCallMPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
  PetscCallMPI(MPI_Comm_split(all, world_rank / most_ranks, rank, host));
  PetscCallMPI(MPI_Comm_free(&all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the other ranks of the host. */
static PetscErrorCode list_peers(TrsLanes l, MPI_Comm mpi, MPI_Comm host)
{
  int size, rank, *ranks;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(mpi, &size));
  PetscCallMPI(MPI_Comm_rank(mpi, &rank));
  PetscCallMPI(MPI_Comm_rank(host, &l->me));
  PetscCall(PetscMalloc1((size_t)l->n, &ranks));
  PetscCallMPI(MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, host));
  PetscCall(PetscMalloc1((size_t)l->n, &l->peer));
  PetscCall(PetscMalloc1((size_t)l->n, &l->place));
  PetscCall(PetscMalloc1((size_t)size, &l->index_of));
  PetscCall(PetscCalloc1((size_t)l->n, &l->base));
  PetscCall(PetscMalloc1((size_t)l->n, &l->flags));
  for (int q = 0; q < size; q++) l->index_of[q] = -1;
  for (int i = 0; i < l->n - 1; i++) {
    l->place[i] = (l->me + 1 + i) % l->n;
    l->peer[i] = ranks[l->place[i]];
    l->index_of[l->peer[i]] = i;
  }
  PetscCall(PetscFree(ranks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Return the address space to reserve for this rank: its share of the host's memory, which its
  buffers cannot exceed.
*/
static int64_t reserve_bytes(int n)
{
  return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE) / n;
}

/* Allocate the flags and map the peers' memory. why_not is "" on success. */
static PetscErrorCode connect_peers(TrsLanes l, MPI_Comm host, char *why_not)
{
  struct {
    TrsSharedKey key;
    int64_t flags; /* offset of the flags; -1 if they are not in shared memory */
  } mine = {.flags = -1}, *all;

  PetscFunctionBegin;
  PetscCall(TrsSharedOpen(reserve_bytes(l->n), &mine.key, why_not, TRS_LANE_WHY));
  if (mine.key.bytes > 0) {
    const int64_t bytes = post_at(l, 0, l->n);

    PetscCall(TrsSharedAlloc(bytes + TRS_LANE_CELLS * (int64_t)TRS_LANE_SMALL, (void **)&l->own_flags));
    l->small = l->own_flags + bytes;
    mine.flags = TrsSharedOffset(l->own_flags, bytes);
    if (mine.flags < 0) snprintf(why_not, TRS_LANE_WHY, "no room in the memory to share");
  }
  PetscCall(PetscMalloc1((size_t)l->n, &all));
  PetscCallMPI(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE, host));
  for (int i = 0; i < l->n - 1; i++) {
    const int place = l->place[i];

    /* the rank itself reports why it has no shared memory */
    if (all[place].key.bytes == 0 || all[place].flags < 0) continue;
    PetscCall(TrsSharedAttach(&all[place].key, &l->base[i], why_not, TRS_LANE_WHY));
    if (l->base[i]) l->flags[i] = l->base[i] + all[place].flags;
  }
  PetscCall(PetscFree(all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_lanes(TrsLanes *lanes)
{
  TrsLanes l = *lanes;

  PetscFunctionBegin;
  for (int i = 0; i < l->n - 1; i++)
    if (l->base[i]) PetscCall(TrsSharedDetach(l->base[i]));
  if (l->own_flags) (void)TrsSharedRelease((void **)&l->own_flags);
  PetscCallMPI(MPI_Comm_free(&l->host));
  PetscCall(PetscFree(l->peer));
  PetscCall(PetscFree(l->place));
  PetscCall(PetscFree(l->index_of));
  PetscCall(PetscFree(l->base));
  PetscCall(PetscFree(l->flags));
  PetscCall(PetscFree(*lanes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check whether all ranks have their lanes. If not, the first rank without lanes reports its reason,
  once in a run.
*/
static PetscErrorCode agree(MPI_Comm mpi, const char *why_not, PetscBool *all_have)
{
  static PetscBool told = PETSC_FALSE;
  int rank, size, first;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(mpi, &rank));
  PetscCallMPI(MPI_Comm_size(mpi, &size));
  first = *why_not ? rank : size;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, mpi));
  *all_have = (PetscBool)(first == size);
  if (first == rank && !told)
    TrsPrint(stderr, "trshard: info: the ranks of a host exchange by messages: %s (rank %d)\n", why_not,
             rank);
  if (first < size) told = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLanesCreate(MPI_Comm mpi, int n_threads, TrsLanes *lanes)
{
  char why_not[TRS_LANE_WHY] = "";
  PetscBool all_have = PETSC_FALSE;
  MPI_Comm host;
  TrsLanes l = NULL;
  int n, most;

  PetscFunctionBegin;
  *lanes = NULL;
  if (!TrsSharedAllowed()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSharedHost(mpi, &host));
  PetscCallMPI(MPI_Comm_size(host, &n));
  PetscCallMPI(MPI_Allreduce(&n, &most, 1, MPI_INT, MPI_MAX, mpi));
  if (n > 1) {
    PetscCall(PetscNew(&l));
    l->host = host;
    l->n = n;
    PetscCall(find_crowded(host, n_threads, &l->crowded));
    PetscCall(list_peers(l, mpi, host));
    PetscCall(connect_peers(l, host, why_not));
  } else {
    PetscCallMPI(MPI_Comm_free(&host));
  }
  if (most == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(agree(mpi, why_not, &all_have));
  if (l && !all_have) PetscCall(free_lanes(&l));
  *lanes = l;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLanesDestroy(TrsLanes *lanes)
{
  PetscFunctionBegin;
  if (!*lanes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Barrier((*lanes)->host));
  PetscCall(free_lanes(lanes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsLanesPeers(TrsLanes lanes, const int **ranks)
{
  *ranks = lanes ? lanes->peer : NULL;
  return lanes ? lanes->n - 1 : 0;
}

PetscBool TrsLanesTo(TrsLanes lanes, int rank)
{
  return (PetscBool)(lanes && lanes->index_of[rank] >= 0);
}

PetscBool TrsLanesReturned(TrsLanes lanes, uint64_t phase, int i)
{
  const _Atomic uint64_t *word = returned_of(lanes, lanes->flags[i], phase) + lanes->me;

  return (PetscBool)(atomic_load_explicit(word, memory_order_acquire) >= phase);
}

PetscBool TrsLanesMayEnter(TrsLanes lanes, uint64_t phase, char **small)
{
  const int cell = (int)(phase % TRS_LANE_CELLS);
  const uint64_t last = lanes->last[cell];
  const _Atomic uint64_t *own = returned_of(lanes, lanes->own_flags, phase);

  for (int i = 0; i < lanes->n - 1; i++)
    if (atomic_load_explicit(own + lanes->place[i], memory_order_relaxed) < last ||
        !TrsLanesReturned(lanes, last, i))
      return PETSC_FALSE;
  *small = lanes->small + (int64_t)cell * TRS_LANE_SMALL;
  return PETSC_TRUE;
}

void TrsLanesEnter(TrsLanes lanes, uint64_t phase, const char *const *from)
{
  char *cell = lanes->own_flags + cell_at(lanes, phase);
  uint64_t *places = (uint64_t *)(void *)(cell + TRS_LANE_LINE);

  for (int i = 0; i < lanes->n - 1; i++)
    places[lanes->place[i]] = !from[i]                         ? 0
                              : from[i] == trs_lane_by_message ? UINT64_MAX
                                                               : (uint64_t)TrsSharedOffset(from[i], 1);
  lanes->last[phase % TRS_LANE_CELLS] = phase;
  atomic_store_explicit((_Atomic uint64_t *)(void *)cell, phase, memory_order_release);
  TrsLanesRing(lanes);
}

const char *TrsLanesOffered(TrsLanes lanes, uint64_t phase, int i)
{
  uint64_t place;

  if (atomic_load_explicit(offered_of(lanes, lanes->flags[i], phase), memory_order_acquire) < phase)
    return NULL;
  place = places_of(lanes, lanes->flags[i], phase)[lanes->me];
  return place == UINT64_MAX ? trs_lane_by_message : lanes->base[i] + place;
}

void TrsLanesReturn(TrsLanes lanes, uint64_t phase, int i)
{
  char *row = lanes->own_flags + cell_at(lanes, phase) + TRS_LANE_LINE + row_bytes(lanes->n);

  atomic_store_explicit((_Atomic uint64_t *)(void *)row + lanes->place[i], phase, memory_order_release);
}

void TrsLanesPost(TrsLanes lanes, uint64_t number, int i, int n, const int64_t *values)
{
  TrsLanePost *post = (TrsLanePost *)(void *)(lanes->own_flags + post_at(lanes, number, lanes->place[i]));

  memcpy(post->value, values, (size_t)n * sizeof(*values));
  atomic_store_explicit(&post->number, number, memory_order_release);
}

const int64_t *TrsLanesPosted(TrsLanes lanes, uint64_t number, int i)
{
  const TrsLanePost *post = (const TrsLanePost *)(const void *)(lanes->flags[i] +
                                                                post_at(lanes, number, lanes->me));

  return atomic_load_explicit(&post->number, memory_order_acquire) == number ? post->value : NULL;
}

/* --- bells --- */

PetscBool TrsLanesCrowded(TrsLanes lanes)
{
  return (PetscBool)(lanes && lanes->crowded);
}

static long call_futex(const void *word, int what, uint32_t value, const struct timespec *limit)
{
  /* other processes use this word, too, so FUTEX_PRIVATE_FLAG is not allowed */
  return syscall(SYS_futex, word, what, value, limit, NULL, 0);
}

/*
  Ring this rank's bell, and wake the ranks that sleep. This rank changes the bell before it reads
  which ranks sleep. A rank that will sleep sets its flag before the kernel compares the bell. So
  either this rank reads the flag, or the kernel reads the changed bell.
*/
void TrsLanesRing(TrsLanes lanes)
{
  _Atomic uint32_t *bell = (_Atomic uint32_t *)(void *)lanes->own_flags;
  uint32_t naps = 0;

  atomic_fetch_add_explicit(bell, 1, memory_order_seq_cst);
  for (int i = 0; i < lanes->n - 1; i++)
    naps |= atomic_load_explicit((const _Atomic uint32_t *)(const void *)(lanes->flags[i] + TRS_LANE_NAPS),
                                 memory_order_seq_cst);
  if (naps) (void)call_futex(bell, FUTEX_WAKE, INT_MAX, NULL);
}

uint32_t TrsLanesBell(TrsLanes lanes, int i)
{
  return atomic_load_explicit((const _Atomic uint32_t *)(const void *)lanes->flags[i], memory_order_acquire);
}

void TrsLanesNap(TrsLanes lanes, int i, uint32_t bell, int nap_us)
{
  const struct timespec limit = {.tv_nsec = nap_us * 1000L};
  _Atomic uint32_t *naps = (_Atomic uint32_t *)(void *)(lanes->own_flags + TRS_LANE_NAPS);

  atomic_store_explicit(naps, 1, memory_order_seq_cst);
  (void)call_futex(lanes->flags[i], FUTEX_WAIT, bell,
                   &limit); /* wait for the bell, a signal or the time limit */
  atomic_store_explicit(naps, 0, memory_order_release);
}
