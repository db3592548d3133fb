/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Energy counters on a tree of files like /sys/class/powercap, one for each process; expected joules
  are by hand. regression/energy runs the test of GPUs with a library that stands in for NVML.
*/
#include "device/energy.h"
#include "device/energy_counters.h"
#include "trs_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void write_text(const char *zone, const char *file, const char *text)
{
  char path[256];
  FILE *out;

  snprintf(path, sizeof(path), "%s/%s", folder, zone);
  (void)mkdir(path, 0755);
  snprintf(path, sizeof(path), "%s/%s/%s", folder, zone, file);
  out = fopen(path, "w");
  assert_non_null(out);
  assert_true(fprintf(out, "%s\n", text) > 0);
  assert_int_equal(fclose(out), 0);
}

static void make_zone(const char *zone, const char *name, const char *range_uj, const char *energy_uj)
{
  write_text(zone, "name", name);
  write_text(zone, "max_energy_range_uj", range_uj);
  write_text(zone, "energy_uj", energy_uj);
}

/* Two packages, one of them with its parts; the platform and the second way to a package beside. */
static int make_tree(void **state)
{
  (void)state;
  snprintf(folder, sizeof(folder), "/tmp/trs_energy_XXXXXX");
  assert_non_null(mkdtemp(folder));
  make_zone("intel-rapl:0", "package-0", "10000000", "9000000");
  make_zone("intel-rapl:0:0", "core", "10000000", "5");
  make_zone("intel-rapl:0:1", "dram", "65000000", "1000000");
  make_zone("intel-rapl:1", "package-1", "10000000", "2000000");
  make_zone("intel-rapl:2", "psys", "10000000", "5");
  make_zone("intel-rapl-mmio:0", "package-0", "10000000", "5");
  return setenv("TRSHARD_RAPL", folder, 1);
}

static int remove_tree(void **state)
{
  char command[96];

  (void)state;
  snprintf(command, sizeof(command), "rm -r %s", folder);
  return system(command);
}

static void test_counters(void **state)
{
  TrsRaplCounter counters[TRS_MAX_ENERGY_COUNTERS];
  double joules = 0;

  (void)state;
  assert_int_equal(TrsRaplFind(folder, TRS_MAX_ENERGY_COUNTERS, counters), 3);
  write_text("intel-rapl:0", "energy_uj", "1500000");   /* wrapped: 1 J to its range, 1.5 J after it */
  write_text("intel-rapl:0:0", "energy_uj", "4000000"); /* a part of the package */
  write_text("intel-rapl:0:1", "energy_uj", "1250000"); /* 0.25 J */
  for (int i = 0; i < 3; i++) joules += TrsRaplAdvance(&counters[i]);
  assert_close(joules, 2.75, 1e-9, 0);
  for (int i = 0; i < 3; i++) assert_true(TrsRaplAdvance(&counters[i]) == 0);
}

/* What cannot be read gives no number, not a smaller one. */
static void test_unreadable(void **state)
{
  TrsRaplCounter counters[TRS_MAX_ENERGY_COUNTERS];
  char path[128];

  (void)state;
  write_text("intel-rapl:1", "energy_uj", "");
  assert_int_equal(TrsRaplFind(folder, TRS_MAX_ENERGY_COUNTERS, counters), 0);
  write_text("intel-rapl:1", "energy_uj", "2000000");
  snprintf(path, sizeof(path), "%s/intel-rapl:1/max_energy_range_uj", folder);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(TrsRaplFind(folder, TRS_MAX_ENERGY_COUNTERS, counters), 0);
  assert_int_equal(TrsRaplFind("/nowhere", TRS_MAX_ENERGY_COUNTERS, counters), 0);
}

static PetscErrorCode no_identity(char *name, size_t n)
{
  snprintf(name, n, "%s", "");
  return PETSC_SUCCESS;
}

/* Ranks 0 and 1 share a GPU, rank 2 has one of its own. */
static PetscErrorCode gpu_identity(char *name, size_t n)
{
  snprintf(name, n, "Model GPU-7 GPU-00112233445566778899aabbccddeef%d", trs_rank() / 2);
  return PETSC_SUCCESS;
}

/* All ranks are on one host: its first rank alone reads, from its own tree here. */
static void test_hosts(void **state)
{
  const TrsDeviceOps device = {.name = "none", .identity = no_identity};
  TrsEnergyUse use;
  TrsEnergy energy;

  (void)state;
  assert_petsc_ok(TrsEnergyStart(MPI_COMM_WORLD, &device, &energy));
  write_text("intel-rapl:1", "energy_uj", "4500000");
  assert_petsc_ok(TrsEnergyRead(energy, &use));
  assert_close(use.cpu_j, 2.5, 1e-9, 0);
  assert_true(use.gpu_j < 0);
  write_text("intel-rapl:1", "energy_uj", "");
  assert_petsc_ok(TrsEnergyRead(energy, &use));
  assert_true(use.cpu_j < 0);
  assert_petsc_ok(TrsEnergyStop(&energy));
  assert_null(energy);
  assert_petsc_ok(TrsEnergyStop(&energy));
}

/* The library that stands in counts 1 J more for a GPU whenever it is asked. */
static void test_gpus(void **state)
{
  const TrsDeviceOps device = {.name = "none", .identity = gpu_identity};
  const PetscBool stands_in = (PetscBool)(getenv("TRS_FAKE_NVML") != NULL);
  TrsEnergyUse use;
  TrsEnergy energy;

  (void)state;
  assert_petsc_ok(TrsEnergyStart(MPI_COMM_WORLD, &device, &energy));
  assert_petsc_ok(TrsEnergyRead(energy, &use));
  assert_true(stands_in ? use.gpu_j == (trs_size() + 1) / 2 : use.gpu_j < 0);
  assert_petsc_ok(TrsEnergyStop(&energy));
}

TRS_TEST_MAIN(cmocka_unit_test_setup_teardown(test_counters, make_tree, remove_tree),
              cmocka_unit_test_setup_teardown(test_unreadable, make_tree, remove_tree),
              cmocka_unit_test_setup_teardown(test_hosts, make_tree, remove_tree),
              cmocka_unit_test(test_gpus))
