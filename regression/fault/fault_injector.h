/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes the n-th call of a system function fail in this process. The injector is linked into a test
  program, or preloaded into any program (fault_preload.c). All libraries of the process, including
  HDF5, then call its functions instead of those of the C library.
*/
#pragma once

/* The effect on the call. A positive number is the errno with which the call fails. */
enum {
  FAULT_SHORT = -1 /* half of the bytes are read or written */,
  FAULT_KILL = -2 /* kill -9 of this process, before the call */,
  FAULT_KILL_HALF = -3 /* kill -9 of this process, after half of the bytes are written */,
  FAULT_KILL_JOB = -4 /* kill -9 of this process and of its parent, which is mpirun */
};

/*
  From now on, let writes to files whose path contains `part` take longer, as on a slow disk: each
  pwrite() of n bytes takes n / bytes_per_s seconds longer.
*/
void fault_slow(const char *part, double bytes_per_s);

/* The functions that write. The list ends with NULL. */
extern const char *const fault_functions[];

/*
  fault_arm - Make one call of the function fail. Only calls for a file whose path contains `part`
  count, from now on. The n-th of them fails; 1 is the next. If n is 0, no call fails and the calls
  are only counted. Children inherit errors, but only the process that called fault_arm() is ever
  killed. The function may be any function that fault_injector.c or fault_memory.c defines.
*/
void fault_arm(const char *function, const char *part, int n, int what);

/*
  The number of calls of the armed function since the last fault_arm(). No call fails from now on.
*/
int fault_disarm(void);

/*
  fault_strikes - Count one call of the function with this name.

  In:     path  path of the file, or NULL if the call has no file
  Returns 0 if the call must continue, 1 if it must fail (errno is set), and 2 if it must process
  half of the bytes and then call fault_after_half()
*/
int fault_strikes(const char *function, const char *path);

/* End this process if the armed fault kills it after half of a call. */
void fault_after_half(void);

/* Write the number of calls of each function to a file, as lines "NAME COUNT". */
void fault_write_counts(const char *path);
