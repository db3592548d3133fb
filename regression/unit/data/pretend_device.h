/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A pretended device. The reader treats its memory as memory that the host cannot read. next_batch()
  does the work of the device: it assembles the ids of a batch, and reports invalid ids. So every
  test of the reader can run for both kinds of devices.
*/
#pragma once

#include "compute/assemble.h"
#include "data/id_map.h"
#include "data/reader.h"
#include "trs_test.h"

static PetscBool pretends;

enum { PRETEND_OUT = 8 }; /* number of batches that may be in use at the same time */
static TrsKjt pretend_kjt[PRETEND_OUT];
static int pretend_turn;

static const TrsDeviceOps *pretend_cpu(void)
{
  const TrsDeviceOps *cpu;

  assert_petsc_ok(TrsDeviceFind("cpu", &cpu));
  return cpu;
}

/* Set the device for a reader's batches, before the reader is set up. */
static void pretend_to(TrsReader reader)
{
  TrsDeviceOps device = *pretend_cpu();

  device.host_memory = (PetscBool)!pretends;
  assert_petsc_ok(TrsReaderSetDevice(reader, &device));
}

static void pretend_assembly(TrsBatch *batch)
{
  TrsKjt *kjt = &pretend_kjt[pretend_turn++ % PRETEND_OUT];
  const int64_t n_values = batch->kjt.jagged.n_values;
  const char *end = (const char *)batch->memory + batch->memory_bytes;

  /* The device copies all data that it needs from the batch's memory. */
  assert_true((const char *)batch->samples.values >= (const char *)batch->memory);
  assert_true((const char *)batch->samples.values +
                  batch->samples.start[batch->batch] * batch->samples.value_bytes <=
              end);
  assert_true(!batch->samples.weights ||
              (const char *)(batch->samples.weights + batch->samples.start[batch->batch]) <= end);
  assert_petsc_ok(TrsKjtReserve(pretend_cpu(), kjt, batch->kjt.n_features, batch->batch, n_values,
                                batch->kjt.is_weighted));
  *batch->odd = TrsAssemble(&batch->samples, batch->kjt.n_features, batch->features, &kjt->jagged);
  assert_int_equal(kjt->jagged.n_values, n_values);
  for (int f = 0; f < batch->kjt.n_features; f++) {
    const int64_t *begin = batch->kjt.id_begin + f, *offsets = kjt->jagged.offsets + f * batch->batch;

    assert_int_equal(begin[0], offsets[0]);
    assert_int_equal(begin[1], offsets[batch->batch]);
    TrsIdMapApply(&batch->features[f].map, begin[1] - begin[0], kjt->jagged.values + begin[0]);
    for (int64_t b = 0; b < batch->batch; b++)
      assert_int_equal(TrsBatchFirstId(batch, f, b),
                       offsets[b + 1] > offsets[b] ? kjt->jagged.values[offsets[b]] : -1);
  }
  batch->kjt.jagged = kjt->jagged;
}

/* Call TrsReaderNext(), and do the device's work if there is a device. */
static PetscErrorCode next_batch(TrsReader reader, TrsBatch **batch)
{
  PetscFunctionBegin;
  PetscCall(TrsReaderNext(reader, batch));
  assert_true(!*batch || (PetscBool)((*batch)->features != NULL) == pretends);
  if (!*batch || !pretends) PetscFunctionReturn(PETSC_SUCCESS);
  pretend_assembly(*batch);
  PetscCall(TrsReaderCheck(reader, *batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void pretend(void **state)
{
  (void)state;
  pretends = PETSC_TRUE;
}

static void pretend_end(void **state)
{
  (void)state;
  for (int i = 0; i < PRETEND_OUT; i++) assert_petsc_ok(TrsKjtFree(pretend_cpu(), &pretend_kjt[i]));
}
