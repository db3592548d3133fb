/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes the n-th call of a system function fail in this process. Linked into a test program, its functions stand before the C library's for every
  library of the process, HDF5 included.
*/
#pragma once

/* What happens instead of the call; positive: it fails with this errno. */
enum {
  FAULT_SHORT = -1 /* half is written */,
  FAULT_KILL = -2 /* kill -9, before the call */,
  FAULT_KILL_HALF = -3 /* after half of it */
};

extern const char *const fault_functions[]; /* ended by NULL */

/* The n-th call from now on (1: the next; 0: none, count only) of the function on a file whose path contains part. */
void fault_arm(const char *function, const char *part, int n, int what);

/* Calls counted since the last fault_arm; disarms. */
int fault_disarm(void);
