/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tells ThreadSanitizer in which order a parallel region runs threads. gcc's OpenMP library is not
  instrumented. So if one thread fills an array and another thread reads it after the region, the
  tool would report a race. Our code synchronises only at the beginning and end of parallel regions
  (`nm` on our libraries shows no other call that orders threads). In a build with
  -fsanitize=thread, every call of GOMP_parallel goes through this file (ld's --wrap), which reports
  the beginning and the end of the region to the tool. Races within a region are still reported.
*/
#include <sanitizer/tsan_interface.h>

typedef struct {
  void (*work)(void *);
  void *data;
  char begin, end; /* the tool is told that these addresses are released and acquired */
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
