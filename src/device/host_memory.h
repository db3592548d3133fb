/* SPDX-License-Identifier: BSD-3-Clause */
/* The host memory that this process may use. */
#pragma once

#include <stdint.h>

typedef struct {
  int64_t free_bytes;  /* can be allocated without ending a process: free memory, caches and swap */
  int64_t total_bytes; /* all memory that this process may use */
} TrsHostMemory;

/*
  TrsHostMemoryGet - Return the memory of the host, within the limits of the process's control
    groups and of all groups above them (memory controllers of version 1 and 2). A batch job or a
    container is such a group. All processes of a group share its limit.

  Not collective.

  In:     root  ""; for tests, a folder that has `proc` and `sys`
*/
TrsHostMemory TrsHostMemoryGet(const char *root);
