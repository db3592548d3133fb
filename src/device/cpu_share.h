/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Divide a host's processors among its ranks: arithmetic on a topology. Used by device/cpu_bind.c.
*/
#pragma once

#include "core/error.h"

#include <hwloc.h>

/* A rank's part of the processors. Processors are hwloc's PUs, numbered by the operating system. */
typedef struct {
  /*
    all processors of the part; empty if there are more ranks than processors; free with
    hwloc_bitmap_free()
  */
  hwloc_bitmap_t cpus;
  /*
    The part consists of n_units cores, or of processors if there are more ranks than cores. 0:
    there are also more ranks than processors.
  */
  int n_units;
  int n_threads; /* one thread per unit; the same number on every rank */
} TrsCpuShare;

/*
  TrsCpuDivide - Find the part of the i-th of n ranks.

  Parts do not overlap. Units follow the topology, so the units of a rank are neighbours. NUMA nodes
  get ranks in proportion to their sizes. No part crosses the end of a node, unless a rank would
  otherwise get too few threads.

  Not collective.

  In:     topology  must be loaded
          allowed   processors on which the ranks may run
  Out:    share
  Errors: MEMORY
*/
PetscErrorCode TrsCpuDivide(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, int n, int i,
                            TrsCpuShare *share);

/*
  Set `into` to the processors of thread t of the share: one unit. The old contents of `into` are
  overwritten. Not collective.
*/
PetscErrorCode TrsCpuUnit(hwloc_topology_t topology, const TrsCpuShare *share, int t, hwloc_bitmap_t into);
