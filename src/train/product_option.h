/* SPDX-License-Identifier: BSD-3-Clause */
/* The option -dense_product_table. Internal to train/. */
#pragma once

#include "compute/compute_ops.h"
#include "core/options/options.h"

/*
  Read the file of -dense_product_table on rank 0 of comm, and give the table to the kernels of all
  ranks. Without the option, the kernels get an empty table. Collective.
  Errors: OPTION for -reproducible, and for a file that is not as input/FORMAT.md says; NO_INPUT and
          DATA for a file that cannot be read. All ranks get the same error.
*/
PetscErrorCode TrsProductTableFromOptions(TrsOptions options, MPI_Comm comm, const TrsComputeOps *compute,
                                          PetscBool reproducible);
