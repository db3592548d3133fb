/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tells ThreadSanitizer what orders the threads of a parallel region. gcc's OpenMP library is not instrumented, so that the tool takes every
  array that one thread filled and another reads after the region for a race. Our code synchronises by beginning and end of parallel
  regions alone (`nm` on our libraries shows no other call that orders threads), and those are told here: in a build with -fsanitize=thread every
  GOMP_parallel goes through this file (ld's --wrap). Two threads that meet inside a region are still reported.
*/
#include <sanitizer/tsan_interface.h>

typedef struct {
  void (*work)(void *);
  void *data;
  char begin, end; /* their addresses are what is released and acquired */
} trs_region;

void __real_GOMP_parallel(void (*work)(void *), void *data, unsigned n_threads, unsigned flags);
void __wrap_GOMP_parallel(void (*work)(void *), void *data, unsigned n_threads, unsigned flags);

__attribute__((no_sanitize_thread)) static void run_part(void *context)
{
  trs_region *region = context;

  __tsan_acquire(&region->begin);
  region->work(region->data);
  __tsan_release(&region->end);
}

__attribute__((no_sanitize_thread)) void __wrap_GOMP_parallel(void (*work)(void *), void *data,
                                                              unsigned n_threads, unsigned flags)
{
  trs_region region = {.work = work, .data = data};

  __tsan_release(&region.begin);
  __real_GOMP_parallel(run_part, &region, n_threads, flags);
  __tsan_acquire(&region.end);
}
