/* SPDX-License-Identifier: BSD-3-Clause */
/* The types in which the planner gets its inputs from its callers. */
#pragma once

#include "spec/dense_facts.h"
#include "spec/table_config.h"

/* Properties of the machine of a real run. The options' own values win if they are given. */
typedef struct {
  PetscBool is_cuda;
  int local_world_size;         /* ranks per host, 0 if unknown */
  int64_t hbm_bytes, ddr_bytes; /* memory of one rank, 0 if unknown */
} TrsPlannerMachine;

/*
  A function that describes the dense layers of a model with num_dense dense features. Not
  collective. Errors: OPTION
*/
typedef PetscErrorCode (*TrsDenseModel)(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                        TrsDenseFacts *facts);

/* A function that reads the tables from the options. Not collective. Errors: OPTION */
typedef PetscErrorCode (*TrsTablesReader)(TrsOptions options, void *context, TrsTableConfigs *tables);
