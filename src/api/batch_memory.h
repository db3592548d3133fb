/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The memory that a training's batches take on a device while they are under way: the batches, their
  ids on the way to the shards and there, and these ids sorted for the update. A host's batches are
  not counted: a host makes a page when it is first used.

  All of this grows with the number of ids of a sample, which is the tables' pooling_factors: the
  dataset's own means, or what the options say. It does not count what grows with the rows' width
  (pooled rows, their gradients) or with the dense layers.
*/
#pragma once

#include "api/machine.h"
#include "spec/sharding_plan.h"

/* The samples of a rank. */
typedef struct {
  int64_t batch_size;      /* samples that a rank has in a step; 0: nothing is counted */
  int num_dense, n_labels; /* of a sample */
  int id_bytes;            /* of an id in the samples that a reader gives; 0: it gives none */
  PetscBool training;
  PetscBool evaluates; /* a training's evaluations have batches of their own */
} TrsBatchShape;

/*
  TrsBatchBytes - Count the bytes of device memory that this rank's batches will take.

  Not collective. Tables without a plan do not count.

  Out:    bytes  0 on devices of host memory
  Source: the buffers of data_dist and prefetch in gpu/README.md and shard/
*/
PetscErrorCode TrsBatchBytes(const TrsMachine *machine, const TrsTableConfigs *tables,
                             const TrsShardingPlan *plan, const TrsBatchShape *shape, double *bytes);
