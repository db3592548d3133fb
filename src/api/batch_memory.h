/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Count the device memory that the batches of a training need while they are under way: the batches,
  their ids during the exchange and in the shards, and the ids sorted for the update. A device that
  uses host memory needs none of this in advance, because a host allocates a page only at its first
  use.

  The memory grows with the number of ids per sample, which the tables' pooling_factors give. They
  come from the options; without options they are the dataset's means. Memory that grows with the
  width of rows (pooled rows and their gradients) or with the dense layers is not counted.
*/
#pragma once

#include "api/machine.h"
#include "spec/sharding_plan.h"

/* The samples that a rank reads. */
typedef struct {
  int64_t batch_size;      /* samples per rank and step; if 0, nothing is counted */
  int num_dense, n_labels; /* dense features and labels of a sample */
  int id_bytes;            /* bytes of an id in a reader's samples; 0 if there is no reader */
  PetscBool training;
  PetscBool evaluates; /* the training has evaluations, whose batches need memory of their own */
} TrsBatchShape;

/*
  TrsBatchBytes - Count the bytes of device memory that this rank's batches will take.

  Not collective. Tables without a plan are ignored.

  Out:    bytes  0 on a device that uses host memory
  Source: the buffers of data_dist and prefetch in gpu/README.md and shard/
*/
PetscErrorCode TrsBatchBytes(const TrsMachine *machine, const TrsTableConfigs *tables,
                             const TrsShardingPlan *plan, const TrsBatchShape *shape, double *bytes);
