/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks, in seconds. Any thread may read them. */
#pragma once

#include <time.h>

/* Read a clock of clock_gettime(), or return 0 if the system does not have it. */
static inline double TrsClockOf(clockid_t clock)
{
  struct timespec now;

  return clock_gettime(clock, &now) == 0 ? (double)now.tv_sec + 1e-9 * (double)now.tv_nsec : 0.0;
}

/* Read the clock for durations: it is monotonic, and the same for all threads of a host. */
static inline double TrsClock(void)
{
  return TrsClockOf(CLOCK_MONOTONIC);
}
