/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes the n-th call of a system function fail in this process. Linked into a test program, or preloaded
  into any (fault_preload.c), its functions stand before the C library's for every library of the process,
  HDF5 included.
*/
#pragma once

/* What happens instead of the call. A positive number: the call fails with this errno. */
enum {
  FAULT_SHORT = -1 /* half of the bytes are read or written */,
  FAULT_KILL = -2 /* kill -9 of this process, before the call */,
  FAULT_KILL_HALF = -3 /* kill -9 after half of the bytes are written */,
  FAULT_KILL_JOB = -4 /* kill -9 of the parent, which is mpirun, and of this process */
};

/* Those that write, ended by NULL. */
extern const char *const fault_functions[];

/*
  fault_arm - Let the n-th call from now on (1: the next; 0: none, count only) of the function on a file
  whose path contains part fail. Children inherit errors; the process that armed alone is ever killed.
  Any function that fault_injector.c or fault_memory.c defines can be named.
*/
void fault_arm(const char *function, const char *part, int n, int what);

/* Calls of the armed function since the last fault_arm. Disarms. */
int fault_disarm(void);

/*
  fault_strikes - Count one call of a function of this name.

  In:     path     of the file; NULL: no file is concerned
  Returns 0: go on; 1: fail, errno is set; 2: do half of the bytes, then call fault_after_half()
*/
int fault_strikes(const char *function, const char *path);

/* Is the process to die after half a call? Then it does. */
void fault_after_half(void);

/* Write the calls counted by name to a file, a line "NAME COUNT" each. */
void fault_write_counts(const char *path);
