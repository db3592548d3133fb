/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the reason why a problem has no plan, in numbers. */
#pragma once

#include "plan/problem.h"

typedef enum {
  TRS_FAILURE_NONE,
  TRS_FAILURE_RESERVED,    /* the reservation leaves no device memory for tables */
  TRS_FAILURE_DENSE,       /* the dense layers leave no host memory for tables */
  TRS_FAILURE_NO_OPTION,   /* a table has no sharding option */
  TRS_FAILURE_NO_PROPOSAL, /* no proposal was tried */
  TRS_FAILURE_MEMORY,      /* the tables need more memory than all devices have */
  TRS_FAILURE_SHARD,       /* a table's shard fits on no device */
  TRS_FAILURE_PACKING,     /* the memory suffices, but the shards do not pack into it */
  TRS_FAILURE_KERNEL,      /* the best plan has an invalid kernel */
  TRS_FAILURE_INFINITE     /* every plan takes infinitely long */
} TrsFailureKind;

typedef struct {
  TrsFailureKind kind;
  int table;             /* index of the table at fault in the configs */
  PetscBool hbm, ddr;    /* the memory that is short */
  double need, have;     /* bytes, of all devices together or of the largest device */
  double short_bytes;    /* 0 if the kind is not a lack of memory */
  PetscBool for_batches; /* batches cause most of the need */
  PetscBool splits;      /* more ranks would make the table's shards smaller */
  PetscBool in_time;     /* a longer search may find a plan */
  /* MEMORY, SHARD, PACKING: memory left on all devices and on the largest one. */
  TrsInt128 sum_hbm, sum_ddr;
  TrsStorage most;
  const TrsPlanOption *option; /* SHARD: the option closest to fitting; KERNEL: the plan's option */
} TrsFailure;

/* Find the reason. Not collective. */
void TrsFailureFind(const TrsProblem *problem, const TrsSolution *solution, TrsFailure *failure);

/* True if failure a, of a changed problem, is milder than failure b. Not collective. */
PetscBool TrsFailureIsMilder(const TrsFailure *a, const TrsFailure *b);
