/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/batch_memory.h"

#include "shard/sharding.h"

/*
  Bytes of an offset of a sample's ids; a bag's length; a bag in a KJT (length and offset); an id in
  a KJT; an index of an id; a number for each id, such as its weight; and a sorted id. A sorted id
  has the key of its row, the position of its gradient, the index of the first id with the same key,
  and its number of pieces.
*/
enum {
  TRS_START_BYTES = 8,
  TRS_LENGTH_BYTES = 4,
  TRS_BAG_BYTES = TRS_LENGTH_BYTES + 8,
  TRS_VALUE_BYTES = 8,
  TRS_INDEX_BYTES = 8,
  TRS_FACTOR_BYTES = 4,
  TRS_SORTED_BYTES = 8 + 4 + 4 + 4
};

typedef struct {
  double bags, ids;
} TrsIdCount;

/* Input and result of counting the bytes of one rank. */
typedef struct {
  PetscBool in_order, index_dedup, variable_batch; /* from the options */
  /* this rank has all tables, and the tables have no further copies */
  PetscBool alone;
  /* samples of this rank; samples of all ranks that share a copy of the tables with this rank */
  double own, all;
  /* number of copies of the tables; before an update, the ids of all copies are merged */
  double copies;
  double key_bytes; /* bytes of a row's key during the sort */
  double batch;     /* bytes of each batch under way */
  double sorted;    /* bytes of each training batch's sorted ids */
  double once;      /* bytes of buffers that all batches share, one batch after another */
} TrsIdBytes;

static TrsIdCount times(double factor, TrsIdCount n)
{
  return (TrsIdCount){.bags = factor * n.bags, .ids = factor * n.ids};
}

static double kjt_bytes(TrsIdCount n, PetscBool weighted)
{
  return TRS_BAG_BYTES * n.bags + (TRS_VALUE_BYTES + (weighted ? TRS_FACTOR_BYTES : 0)) * n.ids;
}

/* Count the bags and ids of a table in one sample. */
static TrsIdCount in_sample(const TrsTableConfig *table)
{
  const TrsTableConstraints *given = &table->constraints;
  TrsIdCount n = {.bags = table->n_features};

  for (int f = 0; f < table->n_features; f++)
    n.ids += given->n_pooling_factors == 0 ? 1.0
                                           : given->pooling_factors[given->n_pooling_factors == 1 ? 0 : f];
  return n;
}

/*
  Add n ids that are sorted for an update. A sort has input and output arrays of keys and positions,
  and the radix sort needs a second set of both arrays. Only the sorted positions are kept after the
  sort.
*/
static void add_sort(TrsIdBytes *to, double n, PetscBool scaled)
{
  const double factor = scaled ? TRS_FACTOR_BYTES : 0;

  to->sorted += n * (TRS_SORTED_BYTES + factor);
  to->once += n * (3 * to->key_bytes + 2 * (4 + factor));
}

/* Add the ids that the owner of a shard receives. */
static void add_shard(TrsIdBytes *to, const TrsTableConfig *table, const TrsTablePlan *plan,
                      const TrsShard *shard)
{
  const PetscBool replicated = (PetscBool)(plan->sharding_type == TRS_SHARDING_DATA_PARALLEL);
  const PetscBool weighted = TrsTableHasWeights(table),
                  by_id = (PetscBool)(table->pooling == TRS_POOLING_NONE);
  const double share = (double)shard->rows / (double)table->num_embeddings;
  TrsIdCount n = times(replicated && !to->in_order ? to->own : to->all, in_sample(table));

  n.ids *= share;
  /* Ids that arrive are stored feature by feature. A single rank uses the batch itself instead. */
  if (!to->alone) to->batch += kjt_bytes(n, weighted);
  if (!to->alone && !replicated) to->once += kjt_bytes(n, weighted);
  if (TrsKernelKeepsLines(plan->compute_kernel)) to->batch += 2 * sizeof(int32_t) * n.ids;
  if (TrsTableKeepsIds(table)) to->batch += TRS_VALUE_BYTES * n.ids; /* the rows that ids have */
  /* add_own() counts the rows of such sequences. */
  if (by_id && replicated && !to->in_order) return;
  /* The ids of all copies are stored twice: as they arrive, and merged. */
  if (to->copies > 1) to->once += 2 * to->copies * kjt_bytes(n, weighted);
  add_sort(to, to->copies * n.ids,
           (PetscBool)(!by_id && (weighted || (table->pooling == TRS_POOLING_MEAN && share >= 1.0))));
}

/*
  Add the memory for a table's ids in the rank's own samples, no matter which rank owns the rows.
*/
static void add_own(TrsIdBytes *to, const TrsTableConfig *table, const TrsTablePlan *plan)
{
  const PetscBool weighted = TrsTableHasWeights(table),
                  by_id = (PetscBool)(table->pooling == TRS_POOLING_NONE);
  const PetscBool replicated = (PetscBool)(plan->sharding_type == TRS_SHARDING_DATA_PARALLEL);
  const TrsIdCount n = times(to->own, in_sample(table));
  const PetscBool dedup = (PetscBool)(by_id && (to->index_dedup || (replicated && !to->in_order)));
  double blocks = 0; /* number of column blocks of the table; the ids are sent to each block */

  for (int i = 0; i < plan->n_shards; i++)
    if (plan->shard[i].cols > 0) blocks += (double)plan->shard[i].rows / (double)table->num_embeddings;
  /* position of each id in its bag */
  if (table->max_feature_lengths) to->batch += TRS_FACTOR_BYTES * n.ids;
  if (!to->alone && !replicated) to->once += blocks * kjt_bytes(n, weighted);
  if (by_id) to->batch += kjt_bytes(n, PETSC_FALSE) * (dedup ? 2 : 1) + TRS_INDEX_BYTES * n.ids;
  if (dedup) add_sort(to, n.ids, PETSC_FALSE);
  if (to->variable_batch && !by_id && !replicated) {
    to->batch += blocks * TRS_INDEX_BYTES * n.bags;
    add_sort(to, blocks * n.bags, PETSC_FALSE);
  }
}

static PetscErrorCode begin(const TrsMachine *machine, const TrsBatchShape *shape, TrsIdBytes *to)
{
  const TrsOptions options = machine->options;
  PetscBool reproducible;
  int sync;

  PetscFunctionBegin;
  *to = (TrsIdBytes){.own = (double)shape->batch_size,
                     .all = (double)shape->batch_size * machine->shards.world->size};
  PetscCall(TrsOptionsGetBool(options, "-reproducible", &reproducible, NULL));
  PetscCall(TrsOptionsGetBool(options, "-ec_index_dedup", &to->index_dedup, NULL));
  PetscCall(TrsOptionsGetBool(options, "-ebc_variable_batch", &to->variable_batch, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-replica_sync", &sync, NULL));
  to->copies = machine->owners && sync == TRS_REPLICA_SYNC_GRADIENTS ? machine->owners->size : 1;
  to->alone = (PetscBool)(machine->shards.world->size == 1 && to->copies == 1);
  to->in_order = (PetscBool)(reproducible || to->copies > 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add the reader's samples, in the dataset's layout, and the batch that is made from them. A caller
  of the library has no such samples, because it passes batches.
*/
static void add_samples(TrsIdBytes *to, const TrsTableConfigs *tables, const TrsBatchShape *shape)
{
  PetscBool weighted = PETSC_FALSE;
  TrsIdCount n = {0};

  for (int t = 0; t < tables->n; t++) {
    const TrsIdCount more = in_sample(&tables->table[t]);

    n.bags += more.bags;
    n.ids += more.ids;
    weighted = (PetscBool)(weighted || tables->table[t].is_weighted);
  }
  to->batch += kjt_bytes(times(to->own, n), weighted);
  if (shape->id_bytes == 0) return;
  to->batch += to->own *
               ((shape->num_dense + shape->n_labels) * (double)sizeof(float) + TRS_START_BYTES +
                TRS_LENGTH_BYTES * n.bags + (shape->id_bytes + (weighted ? TRS_FACTOR_BYTES : 0)) * n.ids);
  to->once += TRS_INDEX_BYTES * to->own * n.bags;
}

PetscErrorCode TrsBatchBytes(const TrsMachine *machine, const TrsTableConfigs *tables,
                             const TrsShardingPlan *plan, const TrsBatchShape *shape, double *bytes)
{
  double rows = 0;
  TrsIdBytes n;

  PetscFunctionBegin;
  *bytes = 0;
  if (machine->device->host_memory || shape->batch_size == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(begin(machine, shape, &n));
  for (int t = 0; t < tables->n; t++) rows += (double)tables->table[t].num_embeddings;
  n.key_bytes = rows < (double)UINT32_MAX ? 4 : 8;
  add_samples(&n, tables, shape);
  for (int t = 0; t < tables->n; t++) {
    const TrsTablePlan *planned = TrsShardingPlanFind(plan, tables->table[t].name);

    if (!planned) continue;
    add_own(&n, &tables->table[t], planned);
    for (int i = 0; i < planned->n_shards; i++)
      if (planned->shard[i].rank == machine->shard_rank && planned->shard[i].cols > 0)
        add_shard(&n, &tables->table[t], planned, &planned->shard[i]);
  }
  /* training and evaluation have separate slots */
  *bytes = TRS_TRAINING_SLOTS * ((shape->training ? 1 : 0) + (shape->evaluates ? 1 : 0)) * n.batch;
  *bytes += n.once + (shape->training ? TRS_TRAINING_SLOTS * n.sorted : 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}
