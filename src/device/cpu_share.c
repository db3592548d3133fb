/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/cpu_share.h"

/* Units (cores or processors) in the order of the topology. */
typedef struct {
  int n;
  hwloc_obj_t *unit;
  int *node; /* [n] for each unit, the index of its NUMA node in this order */
} TrsCpuUnits;

static PetscBool is_in(hwloc_obj_t obj, hwloc_const_bitmap_t allowed)
{
  return (PetscBool)hwloc_bitmap_intersects(obj->cpuset, allowed);
}

static int count_units(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t allowed)
{
  int n = 0;

  for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(topology, type, obj));)
    if (is_in(obj, allowed)) n++;
  return n;
}

/* Find the first NUMA node to which the unit belongs. */
static hwloc_obj_t node_of(hwloc_topology_t topology, hwloc_obj_t unit)
{
  hwloc_obj_t node = NULL;

  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
    if (hwloc_bitmap_isincluded(unit->cpuset, node->cpuset)) return node;
  return NULL;
}

/*
  List the cores. If there are more ranks than cores, list the processors instead. The caller must
  free both arrays with PetscFree2().
*/
static PetscErrorCode list_units(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, int n_ranks,
                                 TrsCpuUnits *units)
{
  hwloc_obj_type_t type = HWLOC_OBJ_CORE;
  hwloc_obj_t before = NULL;
  int n = count_units(topology, type, allowed), i = 0;

  PetscFunctionBegin;
  if (n < n_ranks) n = count_units(topology, type = HWLOC_OBJ_PU, allowed);
  units->n = n;
  PetscCall(PetscMalloc2((size_t)n, &units->unit, (size_t)n, &units->node));
  for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(topology, type, obj));) {
    hwloc_obj_t node;

    if (!is_in(obj, allowed)) continue;
    node = node_of(topology, obj);
    units->unit[i] = obj;
    units->node[i] = i == 0 ? 0 : units->node[i - 1] + (node != before);
    before = node;
    i++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the units [*begin, *end) of rank i of n, in the NUMA node that is assigned to the rank.
  Returns PETSC_FALSE if more ranks are assigned to a node than it has space for.
*/
static PetscBool divide_by_nodes(const TrsCpuUnits *units, int n, int i, int *begin, int *end)
{
  const int n_threads = units->n / n;
  int first_rank = 0;

  for (int at = 0, next; at < units->n; at = next) {
    int last_rank, here;

    for (next = at + 1; next < units->n && units->node[next] == units->node[at];) next++;
    last_rank = (int)((int64_t)n * next / units->n);
    here = last_rank - first_rank;
    if (here * n_threads > next - at) return PETSC_FALSE;
    if (first_rank <= i && i < last_rank) {
      *begin = at + (int)((int64_t)(next - at) * (i - first_rank) / here);
      *end = at + (int)((int64_t)(next - at) * (i - first_rank + 1) / here);
    }
    first_rank = last_rank;
  }
  return PETSC_TRUE;
}

PetscErrorCode TrsCpuDivide(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, int n, int i,
                            TrsCpuShare *share)
{
  int begin = 0, end = 0;
  TrsCpuUnits units;

  PetscFunctionBegin;
  *share = (TrsCpuShare){.cpus = hwloc_bitmap_alloc(), .n_threads = 1};
  PetscCheck(share->cpus, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: a set of processors");
  PetscCall(list_units(topology, allowed, n, &units));
  if (units.n >= n) {
    if (!divide_by_nodes(&units, n, i, &begin, &end)) {
      begin = (int)((int64_t)units.n * i / n);
      end = (int)((int64_t)units.n * (i + 1) / n);
    }
    share->n_units = end - begin;
    share->n_threads = units.n / n;
    for (int u = begin; u < end; u++) hwloc_bitmap_or(share->cpus, share->cpus, units.unit[u]->cpuset);
    hwloc_bitmap_and(share->cpus, share->cpus, allowed);
  }
  PetscCall(PetscFree2(units.unit, units.node));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCpuUnit(hwloc_topology_t topology, const TrsCpuShare *share, int t, hwloc_bitmap_t into)
{
  TrsCpuUnits units;

  PetscFunctionBegin;
  hwloc_bitmap_zero(into);
  PetscCall(list_units(topology, share->cpus, share->n_units, &units));
  if (t < units.n) hwloc_bitmap_and(into, units.unit[t]->cpuset, share->cpus);
  PetscCall(PetscFree2(units.unit, units.node));
  PetscFunctionReturn(PETSC_SUCCESS);
}
