/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The data of a ShardedEmbeddingBagCollection. sharded_ebc.c (batches) and sharded_ebc_state.c
  (tensors in files) use it. Internal to shard/.
*/
#pragma once

#include "shard/copies.h"
#include "shard/sharded_ebc.h"

struct TrsShardedEbcImpl {
  TrsShardingContext context;
  TrsLoan loan;
  TrsMatrixLayout layout;
  int replicas; /* TrsShardedEbcConfig.replicas */
  TrsCopies copies;
  int n_groups;
  TrsSharding *group; /* [n_groups]; the memory is large enough for one group per table */
  /* The groups with an exchange, as arguments of TrsKjtExchangeStartSplits(). */
  int n_exchanges[TRS_SHARD_SLOTS];
  TrsKjtExchange *exchange[TRS_SHARD_SLOTS]; /* [n_exchanges] */
  const TrsKjt **send[TRS_SHARD_SLOTS];      /* [n_exchanges] */
  /* floats: the position of each id in its bag, if a group needs positions */
  TrsDeviceBuffer positions[TRS_SHARD_SLOTS];
  /* The stream and the event for which files wait (TrsShardedEbcAddState). */
  TrsStream state_stream;
  TrsEvent state_after;
};
