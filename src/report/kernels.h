/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -log_view_kernels prints the times of rank 0's kernels and matrix products in one step of ten, and
  -log_view_products the times of the algorithms for each product. Both compare them with a limit:
  the time that the operations or the bytes need at the rates of this device, which are measured
  after the training.
*/
#pragma once

#include "session/session.h"

typedef struct {
  const TrsSession *session; /* borrowed */
  PetscBool kernels, products;
} TrsKernelReport;

extern const TrsOptionGroup trs_kernel_report_options;

/* Read the options, and prepare the record of kernels. Collective. Errors: MEMORY. */
PetscErrorCode TrsKernelReportStart(const TrsSession *session, TrsKernelReport *report);

/* Begin a step, which is the run's step number `step`, counted from 0. Not collective. */
PetscErrorCode TrsKernelReportStep(const TrsKernelReport *report, int64_t step);

/* Measure the device's rates on rank 0, and print the report. Collective. Errors: MEMORY. */
PetscErrorCode TrsKernelReportFinish(TrsKernelReport *report);
