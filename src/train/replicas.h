/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies of the tables (-plan_replicas). Each copy is sharded over its own ranks and trained on
  their samples. Each shard has one owner in every copy. These owners average their weights and
  optimizer states every few steps, or make the same updates from the gradients of all copies
  (src/RULES.md, section 21; shard/copies.h has the exchange).

  Source: TorchRec DMPCollection (torchrec.distributed.model_parallel)
*/
#pragma once

#include "shard/sharded_ebc.h"

typedef struct {
  TrsComm owners;   /* the owners of this rank's shards, one per copy; NULL: there is one copy */
  PetscBool exact;  /* true: all copies make the same updates, so nothing is averaged */
  int64_t every;    /* number of steps between two averages */
  PetscBool differ; /* true: the copies were updated since the last average */
  /* Scratch: the sums, and an int32 array in which each element is the number of copies. */
  TrsDeviceBuffer numbers, sizes;
} TrsReplicas;

/*
  TrsReplicasFromOptions - Read the options.

  Not collective.

  In:     owners    borrowed; NULL: this run has one copy
  Out:    replicas  free with TrsReplicasFree()
  Errors: OPTION for -replica_sync and -replica_sync_every without -plan_replicas, and for options
          that cannot be combined with -replica_sync gradients
*/
PetscErrorCode TrsReplicasFromOptions(TrsOptions options, TrsComm owners, TrsReplicas *replicas);
PetscErrorCode TrsReplicasFree(TrsReplicas *replicas);

/*
  TrsReplicasAverage - Replace the shards' weights and optimizer states with their averages over the
    copies. The bits are the same on all owners.

  Collective on the owners. Does nothing if the copies do not differ.
*/
PetscErrorCode TrsReplicasAverage(TrsReplicas *replicas, const TrsEmbeddingShards *shards, TrsStream stream);
