/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A ShardedEmbeddingBagCollection from the inside: its batches (sharded_ebc.c) and its tensors in
  files (sharded_ebc_state.c). Internal to shard/.
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
  TrsSharding *group; /* [n_groups], with room for one a table */
  /* The groups with an exchange, as TrsKjtExchangeStartSplits() takes them. */
  int n_exchanges[TRS_SHARD_SLOTS];
  TrsKjtExchange *exchange[TRS_SHARD_SLOTS]; /* [n_exchanges] */
  const TrsKjt **send[TRS_SHARD_SLOTS];      /* [n_exchanges] */
  /* float: the position of each id of the batch, if some group's ids have positions */
  TrsDeviceBuffer positions[TRS_SHARD_SLOTS];
  /* The stream and the event that files wait for (TrsShardedEbcAddState). */
  TrsStream state_stream;
  TrsEvent state_after;
};
