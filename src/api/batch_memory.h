/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The device memory of a training's batches while they are under way: the batches, their ids during
  the exchange and at the shards, and the ids sorted for the update. On a host, batches are not
  counted, because a host allocates a page only at its first use.

  All of this grows with the number of ids per sample, which the tables' pooling_factors give: from
  the options, or else the dataset's means. Memory that grows with the rows' width (pooled rows,
  their gradients) or with the dense layers is not counted.
*/
#pragma once

#include "api/machine.h"
#include "spec/sharding_plan.h"

/* The samples of a rank. */
typedef struct {
  int64_t batch_size;      /* samples per rank and step; 0: nothing is counted */
  int num_dense, n_labels; /* per sample */
  int id_bytes;            /* bytes of an id in a reader's samples; 0: there is no reader */
  PetscBool training;
  PetscBool evaluates; /* the training has evaluations, whose batches need memory of their own */
} TrsBatchShape;

/*
  TrsBatchBytes - Count the bytes of device memory that this rank's batches will take.

  Not collective. Tables without a plan do not count.

  Out:    bytes  0 on a device that uses host memory
  Source: the buffers of data_dist and prefetch in gpu/README.md and shard/
*/
PetscErrorCode TrsBatchBytes(const TrsMachine *machine, const TrsTableConfigs *tables,
                             const TrsShardingPlan *plan, const TrsBatchShape *shape, double *bytes);
