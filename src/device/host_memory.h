/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of the host that this process may have. */
#pragma once

#include <stdint.h>

typedef struct {
  int64_t free_bytes;  /* what can be had without ending a process: memory, caches, swap */
  int64_t total_bytes; /* all that may be had */
} TrsHostMemory;

/*
  TrsHostMemoryGet - Find out what Linux has, within the limits of the control groups of the process
  and of the groups above them: those of a batch job or a container (memory controllers of version 1
  and 2). All processes of a group share its limit.

  Not collective.

  In:     root  "", or a folder with `proc` and `sys`, for tests
*/
TrsHostMemory TrsHostMemoryGet(const char *root);
