/* SPDX-License-Identifier: BSD-3-Clause */
/* How ranks of a host divide its processors between them: arithmetic on a topology. For device/cpu_bind.c. */
#pragma once

#include "core/error.h"

#include <hwloc.h>

/* A rank's part. Processors are hwloc's PUs, by their number in the operating system. */
typedef struct {
  hwloc_bitmap_t
      cpus; /* all of it; empty where the ranks are more than the processors. Free with hwloc_bitmap_free() */
  int n_units; /* it is made of: cores, or processors where cores are fewer than ranks; 0: the ranks are more than both */
  int n_threads; /* one on a unit, the same number for every rank */
} TrsCpuShare;

/*
  TrsCpuDivide - The part of the i-th of n ranks.

  Parts do not overlap. Units follow the topology, so that those of a rank are neighbours; ranks are dealt to NUMA nodes by the nodes' sizes, and no part
  reaches over a node's end where that leaves every rank its threads.

  Not collective.

  In:   topology  loaded
        allowed   where the ranks may run
  Out:  share
  Errors: MEMORY
*/
PetscErrorCode TrsCpuDivide(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, int n, int i,
                            TrsCpuShare *share);

/* The processors of thread t of the share's n_units: one unit. into is emptied before. Not collective. */
PetscErrorCode TrsCpuUnit(hwloc_topology_t topology, const TrsCpuShare *share, int t, hwloc_bitmap_t into);
