/* SPDX-License-Identifier: BSD-3-Clause */
/* The types of the inputs that callers pass to the planner. */
#pragma once

#include "spec/dense_facts.h"
#include "spec/table_config.h"

/*
  The machine's properties in a real run. If an option gives a value, the option takes precedence.
*/
typedef struct {
  PetscBool is_cuda;
  int local_world_size;         /* ranks per host; 0: unknown */
  int64_t hbm_bytes, ddr_bytes; /* memory per rank; 0: unknown */
} TrsPlannerMachine;

/*
  A function that describes the dense layers of a model with num_dense dense features. Not
  collective. Errors: OPTION
*/
typedef PetscErrorCode (*TrsDenseModel)(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                        TrsDenseFacts *facts);

/* A function that reads the tables from the options. Not collective. Errors: OPTION */
typedef PetscErrorCode (*TrsTablesReader)(TrsOptions options, void *context, TrsTableConfigs *tables);
