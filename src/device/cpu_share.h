/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Division of a host's processors among its ranks, computed from the topology. Used by
  device/cpu_bind.c.
*/
#pragma once

#include "core/error.h"

#include <hwloc.h>

/*
  A rank's part of the processors. Processors are hwloc's PUs, with the numbers of the operating
  system.
*/
typedef struct {
  /*
    all processors of the part; empty if there are more ranks than processors; free with
    hwloc_bitmap_free()
  */
  hwloc_bitmap_t cpus;
  /*
    Number of cores in the part. If there are more ranks than cores, it is the number of processors;
    if there are also more ranks than processors, it is 0.
  */
  int n_units;
  int n_threads; /* one thread for each unit; the same number on all ranks */
} TrsCpuShare;

/*
  TrsCpuDivide - Find the part of rank i of n.

  Parts do not overlap. Units are in the order of the topology, so the units of a rank are
  neighbours. The number of ranks on a NUMA node is proportional to the node's size. A part is in
  one node, unless a rank would then get too few threads.

  Not collective.

  In:     topology  must be loaded
          allowed   processors on which the ranks may run
  Out:    share
  Errors: MEMORY
*/
PetscErrorCode TrsCpuDivide(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, int n, int i,
                            TrsCpuShare *share);

/*
  Set `into` to the processors of one unit, on which thread t of the rank runs. The old contents of
  `into` are overwritten. Not collective.
*/
PetscErrorCode TrsCpuUnit(hwloc_topology_t topology, const TrsCpuShare *share, int t, hwloc_bitmap_t into);
