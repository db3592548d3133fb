/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A table of kernels whose calls are timed (device/kernel_times.h), with the bytes and operations
  that each call needs at least, and the rates of this device, with which these numbers become a
  time.
*/
#pragma once

#include "compute/compute_ops.h"

/*
  Return a table whose kernels are those of `base`. In a timed step, the calls of a step's larger
  kernels have rows with bytes and operations. A process has one such table. The bytes are those of
  every operand once. Lookups and updates count each id's row once, also if ids repeat.
*/
PETSC_EXTERN const TrsComputeOps *TrsComputeTimed(const TrsComputeOps *base, const TrsDeviceOps *device);

typedef struct {
  double copy, products; /* bytes/s of a copy, read and written; operations/s of a square product */
} TrsKernelRates;

/*
  Measure the device's rates: of a copy of at most 1 GiB, or an eighth of the free memory if that is
  less, and of a square product of operands of the current type with at most 8192 rows. On slow
  devices both are smaller. Takes a few milliseconds to a second. Not collective. Errors: MEMORY.
*/
PETSC_EXTERN PetscErrorCode TrsComputeRates(const TrsComputeOps *compute, const TrsDeviceOps *device,
                                            TrsKernelRates *rates);
