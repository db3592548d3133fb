/* SPDX-License-Identifier: BSD-3-Clause */
/* The reason why a problem has no plan, in numbers. */
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
  TRS_FAILURE_PACKING,     /* the memory is enough, but the shards do not pack into it */
  TRS_FAILURE_KERNEL,      /* the best plan has a kernel that cannot be */
  TRS_FAILURE_INFINITE     /* every plan takes infinitely long */
} TrsFailureKind;

typedef struct {
  TrsFailureKind kind;
  int table;             /* the table behind it, by its index in the configs */
  PetscBool hbm, ddr;    /* the memory that is short */
  double need, have;     /* bytes: of the sum of all devices, or of the largest device */
  double short_bytes;    /* 0 if the kind is not a lack of memory */
  PetscBool for_batches; /* most of the need is for batches */
  PetscBool splits;      /* on more ranks the table's shards are smaller */
  PetscBool in_time;     /* a longer search may find a plan */
  /* MEMORY, SHARD, PACKING: memory left on all devices and on the largest one. */
  TrsInt128 sum_hbm, sum_ddr;
  TrsStorage most;
  const TrsPlanOption *option; /* SHARD: the option that comes closest; KERNEL: that of the plan */
} TrsFailure;

/* Find the reason. Not collective. */
void TrsFailureFind(const TrsProblem *problem, const TrsSolution *solution, TrsFailure *failure);

/* Is failure a, of a changed problem, less bad than b? Not collective. */
PetscBool TrsFailureIsMilder(const TrsFailure *a, const TrsFailure *b);
