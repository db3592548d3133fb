/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests a law of collections, on the CPU and on a GPU that all ranks share. One collection is on all
  ranks. Another collection is only on this rank and gets the whole global batch. Both have the same
  results; with -reproducible they are equal to the last bit.
*/
#pragma once

#include "api_test.h"
#include "device/device.h"

#include <string.h>

/*
  A plan, the options on which the numbers depend, and an option for trainings that are not
  bit-exact.
*/
typedef struct {
  const char *plan, *numbers, *inexact;
} agreement;

/*
  Train both collections for a few steps and compare them. If other is set, make the calls in the
  other order.
*/
typedef void train_fn(TrshardCollection all, TrshardCollection alone, int other, double tolerance);

/* The device whose memory holds rows and gradients. They are copied through `staged`. */
static const TrsDeviceOps *device;
static float *staged;

/* Make a collection of three tables. If an option is given twice, the last value counts. */
static TrshardCollection make_of(const TrshardTable *of, MPI_Comm comm, const char *plan, const char *numbers,
                                 const char *more)
{
  TrshardConfig config = {.n_tables = 3, .tables = of, .batch_size = 4 * MOST};
  TrshardCollection collection;
  char options[512];

  snprintf(options, sizeof(options), "-seed 3 -device cpu %s %s %s", plan, numbers, more);
  config.options = options;
  assert_ok(TrshardCollectionCreate(comm, &config, &collection));
  return collection;
}

static void agree_on(const char *where, const TrshardTable *of, int n, const agreement *cases,
                     int64_t n_staged, train_fn *train)
{
  assert_petsc_ok(device->alloc(n_staged * (int64_t)sizeof(*staged), (void **)&staged));
  for (int i = 0; i < n; i++)
    for (int exact = 0; exact < 2; exact++) {
      const char *numbers = cases[i].numbers;
      TrshardCollection all, alone;
      char more[128];

      snprintf(more, sizeof(more), "%s %s", where, exact ? "-reproducible" : cases[i].inexact);
      all = make_of(of, MPI_COMM_WORLD, cases[i].plan, numbers, more);
      alone = make_of(of, MPI_COMM_SELF, "-tables_sharding_types table_wise", numbers, more);
      train(all, alone, (i + exact) % 2, exact ? 0 : strstr(numbers, "fp16") ? 2e-3 : 2e-5);
      assert_ok(TrshardCollectionDestroy(&all));
      assert_ok(TrshardCollectionDestroy(&alone));
      assert_null(all);
    }
  assert_petsc_ok(device->release((void **)&staged));
}

/* n_staged is the number of floats in the largest buffer. */
static void check_ranks_agree(const TrshardTable *of, int n, const agreement *cases, int64_t n_staged,
                              train_fn *train)
{
  char why[256];
  int n_devices = 0;

  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  agree_on("-device cpu", of, n, cases, n_staged, train);
  device = trs_device_backends[1];
  if (!device) return; /* the build has no GPU support */
  assert_petsc_ok(device->available(&n_devices, why, sizeof(why)));
  if (n_devices == 0) return;
  assert_petsc_ok(device->setup(0, 1));
  agree_on("-device cuda -gpu_share -comm_backend mpi", of, n, cases, n_staged, train);
}
