/* SPDX-License-Identifier: BSD-3-Clause */
/* How threads share items that lie in many lists, some too short for all threads. Internal to compute/. */
#pragma once

#include <petscmath.h>

#include <omp.h>

/*
  The calling thread's part of n items, of which all threads get equal numbers. The items are those of
  lists, one after the other, as [begin, end) of the list that comes next: a list that is too short
  for all threads is some threads' work, and the list after it that of others.
*/
typedef struct {
  int64_t begin, end;
} TrsThreadPart;

static inline TrsThreadPart TrsPartOfThread(int64_t n)
{
  const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();

  return (TrsThreadPart){n * thread / threads, n * (thread + 1) / threads};
}

/* Take the part's items of the list that comes next, which has n. */
static inline TrsThreadPart TrsTakeList(TrsThreadPart *part, int64_t n)
{
  const TrsThreadPart taken = {PetscClipInterval(part->begin, 0, n), PetscClipInterval(part->end, 0, n)};

  *part = (TrsThreadPart){part->begin - n, part->end - n};
  return taken;
}
