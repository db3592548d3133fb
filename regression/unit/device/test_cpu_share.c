/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 4 */
/*
  Tests how a host's processors are divided among ranks. For synthetic hwloc machines, the expected
  parts are written by hand. On the real machine, threads run within the part of their rank, a
  launcher's binding is kept, and helper threads avoid processors with compute threads if there are
  other processors.
*/
#define _GNU_SOURCE /* needed for sched_getaffinity. NOLINT(bugprone-reserved-identifier) */
#include "core/buffer.h"
#include "device/cpu_bind.h"
#include "device/cpu_share.h"
#include "trs_test.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *machine, *allowed; /* if allowed is NULL, all processors are allowed */
  int n, n_threads;
  const char *part[8]; /* the part of each rank */
} division;

static const division divisions[] = {
    {"numa:1 core:2 pu:1", NULL, 1, 2, {"0-1"}},
    {"numa:1 core:2 pu:1", NULL, 2, 1, {"0", "1"}},
    {"numa:1 core:2 pu:1", NULL, 3, 1, {"", "", ""}}, /* more ranks than processors */
    {"numa:1 core:2 pu:2", NULL, 2, 1, {"0-1", "2-3"}},
    /* more ranks than cores: each rank gets a hardware thread */
    {"numa:1 core:2 pu:2", NULL, 4, 1, {"0", "1", "2", "3"}},
    {"numa:1 core:2 pu:2", NULL, 3, 1, {"0", "1", "2-3"}},
    {"numa:2 core:4 pu:1", NULL, 2, 4, {"0-3", "4-7"}},
    {"numa:2 core:4 pu:1", NULL, 4, 2, {"0-1", "2-3", "4-5", "6-7"}},
    /* no part extends over two NUMA nodes */
    {"numa:2 core:4 pu:1", NULL, 3, 2, {"0-3", "4-5", "6-7"}},
    /* two ranks on each node, instead of three and one */
    {"numa:2 core:3 pu:1", NULL, 4, 1, {"0", "1-2", "3", "4-5"}},
    /* a part is larger than a NUMA node */
    {"numa:4 core:2 pu:1", NULL, 2, 4, {"0-3", "4-7"}},
    /* each node has one and a half parts */
    {"numa:3 core:3 pu:1", NULL, 4, 2, {"0-1", "2-3", "4-5", "6-8"}},
    /* the job may use one of two nodes */
    {"numa:2 core:4 pu:1", "4-7", 2, 2, {"4-5", "6-7"}},
    {"numa:2 core:4 pu:1", "0,2,5,7", 2, 2, {"0,2", "5,7"}},
    {"numa:2 core:4 pu:2", "0,2-3", 2, 1, {"0", "2-3"}}, /* half a core counts as a core */
    {"pack:2 numa:1 l3:2 core:4 pu:2", NULL, 4, 4, {"0-7", "8-15", "16-23", "24-31"}},
    {"core:6 pu:1", NULL, 4, 1, {"0", "1-2", "3", "4-5"}},
};

static void check_division(const division *d)
{
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), unit = hwloc_bitmap_alloc(), all = hwloc_bitmap_alloc();
  hwloc_topology_t topology;
  TrsCpuShare share;
  char text[128];

  assert_int_equal(hwloc_topology_init(&topology), 0);
  assert_int_equal(hwloc_topology_set_synthetic(topology, d->machine), 0);
  assert_int_equal(hwloc_topology_load(topology), 0);
  hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
  if (d->allowed) assert_int_equal(hwloc_bitmap_list_sscanf(allowed, d->allowed), 0);
  for (int i = 0; i < d->n; i++) {
    assert_petsc_ok(TrsCpuDivide(topology, allowed, d->n, i, &share));
    hwloc_bitmap_list_snprintf(text, sizeof(text), share.cpus);
    if (strcmp(text, d->part[i]) != 0)
      fail_msg("%s, %d of %d: %s, expected %s", d->machine, i, d->n, text, d->part[i]);
    assert_int_equal(share.n_threads, d->n_threads);
    hwloc_bitmap_zero(all);
    /* the units are disjoint, and together they are the part */
    for (int t = 0; t < share.n_units; t++) {
      assert_petsc_ok(TrsCpuUnit(topology, &share, t, unit));
      assert_false(hwloc_bitmap_iszero(unit));
      assert_false(hwloc_bitmap_intersects(all, unit));
      hwloc_bitmap_or(all, all, unit);
    }
    assert_true(hwloc_bitmap_isequal(all, share.cpus));
    hwloc_bitmap_free(share.cpus);
  }
  hwloc_topology_destroy(topology);
  hwloc_bitmap_free(allowed);
  hwloc_bitmap_free(unit);
  hwloc_bitmap_free(all);
}

static void test_divisions(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof(divisions) / sizeof(divisions[0]); i++) check_division(&divisions[i]);
}

static cpu_set_t affinity(void)
{
  cpu_set_t set;

  CPU_ZERO(&set);
  assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof(set), &set), 0);
  return set;
}

static void bind_with(const char *choice, char *text)
{
  static const TrsOptionGroup *const groups[] = {&trs_cpu_options};
  char name[] = "-cpu_bind", value[8], program[] = "test", *argv[] = {program, name, value, NULL};
  TrsOptions options;

  snprintf(value, sizeof(value), "%s", choice);
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, 3, argv, groups, 1, &options));
  assert_petsc_ok(TrsCpuBind(MPI_COMM_WORLD, options, text));
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void *help(void *where)
{
  TrsCpuHelps();
  *(cpu_set_t *)where = affinity();
  return NULL;
}

static void test_real_machine(void **state)
{
  const cpu_set_t before = affinity();
  char text[TRS_CPU_TEXT];
  cpu_set_t now, helper, all[8], both;
  pthread_t thread;

  (void)state;
  setenv("OMP_NUM_THREADS", "1", 1);
  omp_set_num_threads(1);
  bind_with("none", text);
  now = affinity();
  assert_true(CPU_EQUAL(&before, &now));
  assert_non_null(strstr(text, "not bound"));

  bind_with("auto", text);
  now = affinity();
  CPU_AND(&both, &before, &now);
  assert_true(CPU_EQUAL(&both, &now)); /* all within the processors that the launcher allowed */
  assert_int_equal(strstr(text, "not bound") != NULL, trs_size() > CPU_COUNT(&before));
  assert_non_null(strstr(text, " NUMA node"));
  assert_non_null(strstr(text, TrsMemoryHasHugePages() ? "; huge pages" : "; no huge pages"));
  assert_int_equal(MPI_Allgather(&now, sizeof(now), MPI_BYTE, all, sizeof(now), MPI_BYTE, MPI_COMM_WORLD), 0);
  for (int r = 0; r < trs_size() && !strstr(text, "not bound"); r++) {
    CPU_AND(&both, &all[r], &now);
    assert_int_equal(CPU_COUNT(&both) > 0, r == trs_rank());
  }

  assert_int_equal(pthread_create(&thread, NULL, help, &helper), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  CPU_AND(&both, &helper, &now);
  assert_true(CPU_COUNT(&helper) > 1 || CPU_COUNT(&before) == 1 || CPU_COUNT(&both) == 0);

  /* if the launcher bound the ranks to different processors, they stay there */
  bind_with("auto", text);
  both = affinity();
  assert_true(CPU_EQUAL(&both, &now));
  assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof(before), &before), 0);
}

static void test_openmp_places(void **state)
{
  const cpu_set_t before = affinity();
  char text[TRS_CPU_TEXT];
  cpu_set_t now;

  (void)state;
  setenv("OMP_PLACES", "cores", 1);
  bind_with("auto", text);
  unsetenv("OMP_PLACES");
  now = affinity();
  assert_true(CPU_EQUAL(&before, &now));
  assert_non_null(strstr(text, "OpenMP"));
}

TRS_TEST_MAIN(cmocka_unit_test(test_divisions), cmocka_unit_test(test_real_machine),
              cmocka_unit_test(test_openmp_places))
