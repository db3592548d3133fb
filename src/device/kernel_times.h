/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The times of single kernels and matrix products in some steps of a run (-log_view_kernels).

  With a device that has timed events, each launch in a timed step is between two events on its
  stream, and its time is the time between them. Without them, the time of a call to a kernel of the
  compute table is measured by the host's clock. Launches of the same kernel are added up in one
  row, and so are products of the same shape.

  A process has one record. Only the main thread's launches count; other threads may call all
  functions without an effect. Memory: TRS_KERNEL_SPANS pairs of events, created once. A launch that
  finds no free pair is not timed, and counted.
*/
#pragma once

#include "device/device.h"

enum { TRS_KERNEL_SPANS = 1024, TRS_KERNEL_ROWS = 512, TRS_KERNEL_NAME = 80 };

typedef struct {
  /*
    the function of the compute table that launched the kernel, or "". Static memory
  */
  const char *call;
  char name[TRS_KERNEL_NAME]; /* of the kernel; "" for the row of a call */
  int64_t n;                  /* number of launches or calls in the timed steps */
  double seconds;             /* of all of them; a call has them only without timed events */
  /* of all of them; 0 if they are not known */
  double bytes, flops;
} TrsKernelRow;

/* True in a step whose kernels are timed. Read it through the functions below. */
PETSC_EXTERN PetscBool trs_kernels_are_timed;

/* Create the events. Not collective. Errors: MEMORY. */
PETSC_EXTERN PetscErrorCode TrsKernelTimesOpen(const TrsDeviceOps *device);
PETSC_EXTERN PetscErrorCode TrsKernelTimesClose(void);

/* Begin a step, and time its kernels if `timed` is set. Does nothing if the record is not open. */
PETSC_EXTERN PetscErrorCode TrsKernelTimesStep(PetscBool timed);

/*
  Do not time the next launches, until the call with PETSC_FALSE: a capture keeps launches for
  later, and the launch of its graph is timed instead.
*/
PETSC_EXTERN void TrsKernelTimesPause(PetscBool pause);

/*
  Wait for all timed kernels, and return the rows, in the order in which they first ran. The rows
  are borrowed until TrsKernelTimesClose(). n_lost is the number of launches that were not timed.
  Not collective.
*/
PETSC_EXTERN PetscErrorCode TrsKernelTimesRead(int *n, const TrsKernelRow **rows, int64_t *n_steps,
                                               int64_t *n_lost);

/* The slow halves of the functions below. */
PETSC_EXTERN PetscErrorCode TrsKernelTimesBegin(const char *name, double bytes, double flops,
                                                TrsStream stream);
PETSC_EXTERN PetscErrorCode TrsKernelTimesEnd(TrsStream stream);
PETSC_EXTERN void TrsKernelTimesCall(const char *call, double bytes, double flops);
PETSC_EXTERN void TrsKernelTimesCallEnd(void);

/*
  TrsKernelBegin, TrsKernelEnd - Time the launch between the two calls.

  `name` may have a kernel's template arguments and parentheses around it; the row's name has
  neither. If bytes or flops are not 0, the launch is a matrix product or a copy, with a row of its
  own. Launches do not nest.
*/
static inline PetscErrorCode TrsKernelBegin(const char *name, double bytes, double flops, TrsStream stream)
{
  return PetscUnlikely(trs_kernels_are_timed) ? TrsKernelTimesBegin(name, bytes, flops, stream)
                                              : PETSC_SUCCESS;
}

static inline PetscErrorCode TrsKernelEnd(TrsStream stream)
{
  return PetscUnlikely(trs_kernels_are_timed) ? TrsKernelTimesEnd(stream) : PETSC_SUCCESS;
}
