/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The injector as a library for LD_PRELOAD. Environment variables determine the fault:

    TRS_FAULT="FUNCTION N WHAT RANK"   WHAT: a number of errno, SHORT, KILL, KILL_HALF or KILL_JOB
    TRS_FAULT="MPI_Init_thread 1 SIGNAL RANK"  the rank gets the signal of this number as MPI starts
    TRS_FAULT="fwrite 1 SECONDS RANK"  each write of the rank to standard error takes SECONDS
    seconds TRS_FAULT_PROGRAM=PATH             only in the program that has this /proc/self/exe, as
    mpirun
                                       and shells have the same environment
    TRS_FAULT_SLOW="KIB RANK PART"     the rank writes KIB KiB/s to files whose path contains PART;
                                       RANK -1: all ranks do
    TRS_FAULT_PATH=PART                only calls for files whose path contains PART
    TRS_FAULT_COUNTS=FILE              at its end, each rank writes its calls by name to FILE.<rank>
*/
#define _GNU_SOURCE /* needed for RTLD_NEXT */
#include "fault_injector.h"
#include "fault_memory.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char function[32];
static pid_t process;
static int start_signal; /* 0 if no signal is sent */
static unsigned error_seconds;

static int rank_of_process(void)
{
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");

  return rank ? atoi(rank) : 0;
}

static int number_of(const char *what)
{
  static const char *const names[] = {"SHORT", "KILL", "KILL_HALF", "KILL_JOB"};

  for (int i = 0; i < 4; i++)
    if (strcmp(what, names[i]) == 0) return -1 - i;
  return atoi(what);
}

/* Returns 1 if this program is the program of TRS_FAULT_PROGRAM */
static int is_program(void)
{
  const char *wanted = getenv("TRS_FAULT_PROGRAM");
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

  if (n < 0 || !wanted) return 0;
  path[n] = '\0';
  return strcmp(path, wanted) == 0;
}

__attribute__((constructor)) static void begin(void)
{
  const char *fault = getenv("TRS_FAULT"), *part = getenv("TRS_FAULT_PATH"), *slow = getenv("TRS_FAULT_SLOW");
  static char slow_part[256];
  char what[16];
  double kib;
  int n, rank;

  if (slow && is_program() && sscanf(slow, "%lf %d %255s", &kib, &rank, slow_part) == 3 &&
      (rank < 0 || rank == rank_of_process()))
    fault_slow(slow_part, 1024 * kib);
  if (!fault || !is_program() || sscanf(fault, "%31s %d %15s %d", function, &n, what, &rank) != 4) return;
  process = getpid();
  if (strcmp(function, "malloc") == 0) fault_memory_watch();
  if (strcmp(function, "MPI_Init_thread") == 0 && rank == rank_of_process()) start_signal = atoi(what);
  if (strcmp(function, "fwrite") == 0 && rank == rank_of_process()) error_seconds = (unsigned)atoi(what);
  fault_arm(function, part ? part : "", rank == rank_of_process() ? n : 0, number_of(what));
}

/* Called instead of MPI's function, which it then calls. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
  int (*next)(int *, char ***, int, int *);
  void *found = dlsym(RTLD_NEXT, "MPI_Init_thread");

  memcpy(&next, &found, sizeof(next));
  if (start_signal) raise(start_signal);
  return next(argc, argv, required, provided);
}

/* The compiler prints a text without conversions with fwrite(). */
size_t fwrite(const void *data, size_t size, size_t n, FILE *file)
{
  static size_t (*next)(const void *, size_t, size_t, FILE *);
  void *found = next ? NULL : dlsym(RTLD_NEXT, "fwrite");

  if (found) memcpy(&next, &found, sizeof(next));
  if (file == stderr && error_seconds) sleep(error_seconds);
  return next(data, size, n, file);
}

__attribute__((destructor)) static void end(void)
{
  const char *counts = getenv("TRS_FAULT_COUNTS");
  char path[4096];

  if (!counts || process != getpid()) return;
  snprintf(path, sizeof(path), "%s.%d", counts, rank_of_process());
  fault_write_counts(path);
}
