/* SPDX-License-Identifier: BSD-3-Clause */
/* The host memory that this process may use. */
#pragma once

#include <stdint.h>

typedef struct {
  int64_t free_bytes;  /* available without ending a process: memory, caches, swap */
  int64_t total_bytes; /* all memory that may be used */
} TrsHostMemory;

/*
  TrsHostMemoryGet - Find out Linux's memory within the limits of the process's control groups and
  of all groups above them, such as a batch job or a container (memory controllers of version 1 and
  2). All processes of a group share its limit.

  Not collective.

  In:     root  "", or a folder with `proc` and `sys`, for tests
*/
TrsHostMemory TrsHostMemoryGet(const char *root);
