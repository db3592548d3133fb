/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/cpu_bind.h"

#include "core/buffer.h"
#include "core/names.h"
#include "device/cpu_share.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const TrsOptionSpec cpu_specs[] = {
    {.name = "-cpu_bind",
     .type = TRS_OPTION_ENUM,
     .fallback = "auto",
     .choices = "auto,none",
     .help = "cores of the ranks of a host. auto: ranks that the launcher left on the same cores divide "
             "them and stay there. none: threads run where the system puts them"},
};
const TrsOptionGroup trs_cpu_options = TRS_OPTION_GROUP("Processors", cpu_specs);

enum {
  TRS_CPU_SET_TEXT = 256,
  TRS_CPU_SHOWN = 4 /* TRS_CPU_SHOWN: number of ranks whose processors the report lists */
};

/*
  The machine's topology, and the processors for helping threads. If NULL, a helping thread runs on
  its creator's processors. TrsCpuBind() writes both variables before it starts other threads.
*/
static hwloc_topology_t machine;
static hwloc_bitmap_t helpers;

/* The data that each rank of a host sends to the host's other ranks. */
typedef struct {
  char allowed[TRS_CPU_SET_TEXT]; /* processors that the launcher allows this rank to use */
  char bound[TRS_CPU_SET_TEXT];   /* this rank's part of these processors */
  char why_not[TRS_CPU_TEXT / 2]; /* why the rank is not bound; "" if it is bound */
  int n_threads, by_thread;       /* by_thread is true if each thread has its own unit */
} TrsCpuRank;

static PetscBool is_set(const char *name)
{
  const char *value = getenv(name);

  return (PetscBool)(value && *value && strcmp(value, "false") != 0 && strcmp(value, "FALSE") != 0);
}

/*
  Bind the calling thread. A failure is not an error: if the system forbids binding, the program
  runs without it.
*/
static PetscBool bind_here(hwloc_const_bitmap_t cpus)
{
  return (PetscBool)(hwloc_set_cpubind(machine, cpus, HWLOC_CPUBIND_THREAD) == 0);
}

/* Bind each thread of the team to its own unit. The main thread gets the first unit. */
static PetscErrorCode bind_team(const TrsCpuShare *share)
{
  hwloc_bitmap_t *unit;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)share->n_units, &unit));
  for (int t = 0; t < share->n_units; t++) {
    unit[t] = hwloc_bitmap_alloc();
    PetscCheck(unit[t], PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: a set of processors");
    PetscCall(TrsCpuUnit(machine, share, t, unit[t]));
  }
#pragma omp parallel num_threads(share->n_units)
  (void)bind_here(unit[omp_get_thread_num()]);
  /*
    Threads that the main thread starts later inherit its affinity. If the team shrinks and grows
    again, such a thread must be free to run on the whole part of the rank. The main thread itself
    has already moved to its unit.
  */
  (void)bind_here(share->cpus);
  for (int t = 0; t < share->n_units; t++) hwloc_bitmap_free(unit[t]);
  PetscCall(PetscFree(unit));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the number n of ranks that may use the same processors as rank `me`, and the index of `me`
  among them.
*/
static void find_place(const TrsCpuRank *all, int size, int me, int *place, int *n)
{
  *place = *n = 0;
  for (int r = 0; r < size; r++) {
    if (strcmp(all[r].allowed, all[me].allowed) != 0) continue;
    *place += r < me;
    ++*n;
  }
}

/*
  Let helping threads run on those processors of `allowed` to which no rank has bound a thread. If
  there are none, let them run on all of `allowed`.
*/
static PetscErrorCode set_helpers(const TrsCpuRank *all, int size, hwloc_const_bitmap_t allowed)
{
  hwloc_bitmap_t taken = hwloc_bitmap_alloc(), rest = hwloc_bitmap_dup(allowed);

  PetscFunctionBegin;
  PetscCheck(taken && rest, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: a set of processors");
  for (int r = 0; r < size; r++)
    if (all[r].by_thread && hwloc_bitmap_list_sscanf(taken, all[r].bound) == 0)
      hwloc_bitmap_andnot(rest, rest, taken);
  if (hwloc_bitmap_iszero(rest)) hwloc_bitmap_or(rest, rest, allowed);
  hwloc_bitmap_free(taken);
  hwloc_bitmap_free(helpers);
  helpers = rest;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write a description such as "2 ranks x 1 thread, each thread on a processor of its own: 0 | 1".
*/
static void describe_binding(const TrsCpuRank *all, int size, char *text)
{
  int n, r = 0, least = all[0].n_threads, most = least;
  char threads[32];

  for (int k = 1; k < size; k++) {
    least = PetscMin(least, all[k].n_threads);
    most = PetscMax(most, all[k].n_threads);
  }
  snprintf(threads, sizeof(threads), least == most ? "%d" : "%d to %d", least, most);
  while (r < size - 1 && !all[r].why_not[0]) r++;
  n = snprintf(text, TRS_CPU_TEXT, "%d rank%s x %s thread%s, %s%s", size, TrsPlural(size, "s"), threads,
               TrsPlural(most, "s"), all[r].why_not,
               all[r].why_not[0]  ? ""
               : all[r].by_thread ? "each thread on a processor of its own: "
                                  : "on processors ");
  if (all[r].why_not[0]) return;
  for (r = 0; r < PetscMin(size, TRS_CPU_SHOWN) && n < TRS_CPU_TEXT; r++)
    n += snprintf(text + n, (size_t)(TRS_CPU_TEXT - n), "%s%s", r > 0 ? " | " : "", all[r].bound);
  if (size > TRS_CPU_SHOWN && n < TRS_CPU_TEXT) snprintf(text + n, (size_t)(TRS_CPU_TEXT - n), " | ...");
}

/* Append a description such as "; 2 NUMA nodes; huge pages". */
static void describe_memory(char *text)
{
  const int n_nodes = machine ? hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_NUMANODE) : 0;
  size_t n = strlen(text);

  if (n_nodes > 0) snprintf(text + n, TRS_CPU_TEXT - n, "; %d NUMA node%s", n_nodes, TrsPlural(n_nodes, "s"));
  n = strlen(text);
  snprintf(text + n, TRS_CPU_TEXT - n, TrsMemoryHasHugePages() ? "; huge pages" : "; no huge pages");
}

/* Read the machine's topology. As in bind_here(), a failure is not an error. */
static PetscBool load_machine(void)
{
  if (machine) return PETSC_TRUE;
  if (hwloc_topology_init(&machine) != 0) return PETSC_FALSE;
  if (hwloc_topology_load(machine) == 0) return PETSC_TRUE;
  hwloc_topology_destroy(machine);
  machine = NULL;
  return PETSC_FALSE;
}

/*
  Bind this rank to its part of the processors that all ranks may use. A rank that has more threads
  than cores is not bound.
*/
static PetscErrorCode bind_rank(const TrsCpuRank *all, int size, int me, hwloc_const_bitmap_t allowed,
                                TrsCpuRank *mine)
{
  TrsCpuShare share;
  PetscBool bound;
  int place, n;

  PetscFunctionBegin;
  find_place(all, size, me, &place, &n);
  PetscCall(TrsCpuDivide(machine, allowed, n, place, &share));
  if (!getenv("OMP_NUM_THREADS")) omp_set_num_threads(share.n_threads);
  mine->n_threads = omp_get_max_threads();
  if (mine->n_threads > share.n_units) {
    snprintf(mine->why_not, sizeof(mine->why_not), "not bound: more threads than cores");
  } else {
    mine->by_thread = mine->n_threads == share.n_units;
    bound = bind_here(share.cpus);
    if (bound && mine->by_thread) PetscCall(bind_team(&share));
    if (!bound) snprintf(mine->why_not, sizeof(mine->why_not), "not bound: the system forbids it");
    hwloc_bitmap_list_snprintf(mine->bound, sizeof(mine->bound), share.cpus);
  }
  hwloc_bitmap_free(share.cpus);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode tell(MPI_Comm host, const TrsCpuRank *mine, TrsCpuRank *all)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allgather(mine, (int)sizeof(*mine), MPI_BYTE, all, (int)sizeof(*mine), MPI_BYTE, host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCpuBind(MPI_Comm host, TrsOptions options, char *text)
{
  const PetscBool by_openmp = (PetscBool)(is_set("OMP_PLACES") || is_set("GOMP_CPU_AFFINITY") ||
                                          is_set("OMP_PROC_BIND"));
  TrsCpuRank mine = {.n_threads = omp_get_max_threads()}, *all;
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
  PetscErrorCode ierr = PETSC_SUCCESS;
  int choice, size, me;

  PetscFunctionBegin;
  PetscCheck(allowed, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: a set of processors");
  PetscCall(TrsOptionsGetEnum(options, "-cpu_bind", &choice, NULL));
  PetscCallMPI(MPI_Comm_size(host, &size));
  PetscCallMPI(MPI_Comm_rank(host, &me));
  PetscCall(PetscMalloc1((size_t)size, &all));
  if (choice == 1 || by_openmp) {
    snprintf(mine.why_not, sizeof(mine.why_not),
             choice == 1 ? "not bound" : "bound as OpenMP's environment says");
  } else if (!load_machine()) {
    snprintf(mine.why_not, sizeof(mine.why_not), "not bound: hwloc cannot read the topology");
  } else {
    if (hwloc_get_cpubind(machine, allowed, HWLOC_CPUBIND_THREAD) != 0)
      hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(machine));
    hwloc_bitmap_list_snprintf(mine.allowed, sizeof(mine.allowed), allowed);
  }
  PetscCall(tell(host, &mine, all));
  if (!mine.why_not[0]) ierr = bind_rank(all, size, me, allowed, &mine);
  /* a rank that failed also calls tell(), because the other ranks wait for it */
  PetscCall(tell(host, &mine, all));
  PetscCall(ierr);
  if (mine.allowed[0]) PetscCall(set_helpers(all, size, allowed));
  describe_binding(all, size, text);
  describe_memory(text);
  hwloc_bitmap_free(allowed);
  PetscCall(PetscFree(all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsCpuHelps(void)
{
  if (helpers) (void)bind_here(helpers);
}

int TrsCpuTeam(int threads)
{
  const int before = omp_get_max_threads();

  if (threads) omp_set_num_threads(threads);
  return before;
}
