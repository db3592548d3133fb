/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes the n-th call of a system function fail in this process. The injector is linked into a test
  program, or preloaded into any program (fault_preload.c). Its functions precede the C library's
  for every library of the process, including HDF5.
*/
#pragma once

/* Effect of the call. With a positive number, the call fails with this errno. */
enum {
  FAULT_SHORT = -1 /* half of the bytes are read or written */,
  FAULT_KILL = -2 /* kill -9 of this process, before the call */,
  FAULT_KILL_HALF = -3 /* kill -9 after half of the bytes are written */,
  FAULT_KILL_JOB = -4 /* kill -9 of the parent, which is mpirun, and of this process */
};

/* Functions that write, ended by NULL. */
extern const char *const fault_functions[];

/*
  fault_arm - Make a call fail: the n-th call from now on (1: the next; 0: none, count only) of the
  function, for a file whose path contains `part`. Children inherit errors, but only the process
  that called fault_arm() is ever killed. The function may be any that fault_injector.c or
  fault_memory.c defines.
*/
void fault_arm(const char *function, const char *part, int n, int what);

/* Number of calls of the armed function since the last fault_arm(). Disarms. */
int fault_disarm(void);

/*
  fault_strikes - Count one call of the function with this name.

  In:     path     of the file; NULL: the call has no file
  Returns 0: continue; 1: fail, errno is set; 2: process half of the bytes, then call
  fault_after_half()
*/
int fault_strikes(const char *function, const char *path);

/* End the process if it must die after half a call. */
void fault_after_half(void);

/* Write the number of calls of each function to a file, as lines "NAME COUNT". */
void fault_write_counts(const char *path);
