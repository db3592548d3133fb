/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies of the tables (-plan_replicas). Each copy is sharded over its own ranks and learns from
  their samples. The owners of the same shard average their weights and optimizer states every few
  steps, or make the same updates with the gradients of all copies (src/RULES.md, section 21; the
  exchange is in shard/copies.h).

  Source: TorchRec DMPCollection (torchrec.distributed.model_parallel)
*/
#pragma once

#include "shard/sharded_ebc.h"

typedef struct {
  TrsComm owners;   /* the owners of this rank's shards, by copy; NULL: there is one copy */
  PetscBool exact;  /* all copies make the same updates; nothing is averaged */
  int64_t every;    /* steps from one average to the next */
  PetscBool differ; /* the copies were updated after the last average */
  /* Scratch: sums, and int32 that are the number of copies, again and again. */
  TrsDeviceBuffer numbers, sizes;
} TrsReplicas;

/*
  TrsReplicasFromOptions - Read the options.

  Not collective.

  In:     owners    borrowed; NULL: this run keeps one copy
  Out:    replicas  free with TrsReplicasFree()
  Errors: OPTION for -replica_sync and -replica_sync_every without -plan_replicas, and for options
          that -replica_sync gradients does not go with
*/
PetscErrorCode TrsReplicasFromOptions(TrsOptions options, TrsComm owners, TrsReplicas *replicas);
PetscErrorCode TrsReplicasFree(TrsReplicas *replicas);

/*
  TrsReplicasAverage - Replace the shards' weights and optimizer states by their means over the
    copies, with the same bits on all owners.

  Collective on the owners. Nothing happens if the copies do not differ.
*/
PetscErrorCode TrsReplicasAverage(TrsReplicas *replicas, const TrsEmbeddingShards *shards, TrsStream stream);
