/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/choose.h"

/*
  The ways in which tables are treated. A table's pooling and the options determine its treatment.
*/
typedef enum {
  TRS_TREAT_POOLED,
  TRS_TREAT_POOLED_IN_ORDER, /* with -reproducible */
  TRS_TREAT_DISTINCT_BAGS,   /* with -ebc_variable_batch */
  TRS_TREAT_SEQUENCE,
  TRS_TREAT_SEQUENCE_IN_ORDER, /* with -reproducible */
  TRS_N_TREATMENTS
} TrsTreatment;

/*
  Payload, grid and update for a group of sharding types. WHOLE: a shard has all rows of its
  columns. CUT_IN_HOST: rows are cut over a host's ranks. CUT: rows are cut over all ranks.
  REPEATED: all ranks have the table.
*/
#define WHOLE(...) \
  [TRS_SHARDING_TABLE_WISE] = {__VA_ARGS__}, [TRS_SHARDING_COLUMN_WISE] = {__VA_ARGS__}, \
  [TRS_SHARDING_TABLE_COLUMN_WISE] = {__VA_ARGS__}
#define CUT_IN_HOST(...) \
  [TRS_SHARDING_TABLE_ROW_WISE] = {__VA_ARGS__}, [TRS_SHARDING_GRID_SHARD] = {__VA_ARGS__}
#define CUT(...)      [TRS_SHARDING_ROW_WISE] = {__VA_ARGS__}
#define REPEATED(...) [TRS_SHARDING_DATA_PARALLEL] = {__VA_ARGS__}

/*
  For the treatments IN_ORDER the bits of a result must not depend on the plan. A shard with all
  rows makes its sums on one rank, so it needs no special payload. Replicas of a sequence table are
  treated like W tables, each of them whole on its rank. Every rank gets all ids and gradients in
  the order of the global batch, so all replicas stay equal. The row of each id then arrives W
  times.
*/
static const TrsShardingChoice choices[TRS_N_TREATMENTS][TRS_N_SHARDINGS] = {
    [TRS_TREAT_POOLED] = {WHOLE(&trs_payload_pooled, TRS_GRID_RANKS, &trs_update_owner),
                          CUT_IN_HOST(&trs_payload_pooled, TRS_GRID_HOSTS, &trs_update_owner),
                          CUT(&trs_payload_pooled, TRS_GRID_WORLD, &trs_update_owner),
                          REPEATED(&trs_payload_replicas, TRS_GRID_WORLD, &trs_update_replicas)},
    [TRS_TREAT_POOLED_IN_ORDER] = {WHOLE(&trs_payload_pooled, TRS_GRID_RANKS, &trs_update_cut_rows),
                                   CUT_IN_HOST(&trs_payload_ordered_rows, TRS_GRID_WORLD,
                                               &trs_update_cut_rows),
                                   CUT(&trs_payload_ordered_rows, TRS_GRID_WORLD, &trs_update_cut_rows),
                                   REPEATED(&trs_payload_ordered_replicas, TRS_GRID_WORLD,
                                            &trs_update_owner)},
    [TRS_TREAT_DISTINCT_BAGS] = {WHOLE(&trs_payload_distinct_bags, TRS_GRID_RANKS, &trs_update_owner),
                                 CUT_IN_HOST(&trs_payload_distinct_bags, TRS_GRID_HOSTS, &trs_update_owner),
                                 CUT(&trs_payload_distinct_bags, TRS_GRID_WORLD, &trs_update_owner),
                                 REPEATED(&trs_payload_replicas, TRS_GRID_WORLD, &trs_update_replicas)},
    [TRS_TREAT_SEQUENCE] = {WHOLE(&trs_payload_sequence, TRS_GRID_RANKS, &trs_update_owner_by_id),
                            CUT_IN_HOST(&trs_payload_sequence, TRS_GRID_WORLD, &trs_update_owner_by_id),
                            CUT(&trs_payload_sequence, TRS_GRID_WORLD, &trs_update_owner_by_id),
                            REPEATED(&trs_payload_sequence_replicas, TRS_GRID_WORLD, &trs_update_replicas)},
    [TRS_TREAT_SEQUENCE_IN_ORDER] = {WHOLE(&trs_payload_sequence, TRS_GRID_RANKS, &trs_update_owner_by_id),
                                     CUT_IN_HOST(&trs_payload_sequence, TRS_GRID_WORLD,
                                                 &trs_update_owner_by_id),
                                     CUT(&trs_payload_sequence, TRS_GRID_WORLD, &trs_update_owner_by_id),
                                     REPEATED(&trs_payload_sequence, TRS_GRID_RANKS,
                                              &trs_update_owner_by_id)},
};

/*
  The treatment of a table. A sequence table that is averaged is treated as a mean table in two
  cases: under data_parallel, where only gradients are sent, and with -reproducible, where mean
  tables also send rows. If other copies of the tables make the same updates, replicas are treated
  as with -reproducible, because copies exchange ids and gradients instead of lists of rows.
*/
static TrsTreatment treatment_of(const TrsShardingContext *context, const TrsTableConfig *config,
                                 TrsShardingType type)
{
  const PetscBool in_order = (PetscBool)(context->dist.reproducible ||
                                         (context->copied && type == TRS_SHARDING_DATA_PARALLEL));

  if (config->pooling == TRS_POOLING_NONE && (config->sequence_pooling != TRS_SEQUENCE_POOLING_MEAN ||
                                              (type != TRS_SHARDING_DATA_PARALLEL && !in_order)))
    return in_order ? TRS_TREAT_SEQUENCE_IN_ORDER : TRS_TREAT_SEQUENCE;
  if (context->variable_batch) return TRS_TREAT_DISTINCT_BAGS;
  return in_order ? TRS_TREAT_POOLED_IN_ORDER : TRS_TREAT_POOLED;
}

/*
  For a table whose rows are cut over all ranks: true if its sums are made in two levels, first
  inside hosts. Sums have one level if hosts have only one rank, or unequal numbers of ranks (such
  hosts count as one rank each). By default they also have one level if there are few hosts. Ranks
  are then summed in their order, so the bits are the same as on one host.
*/
static PetscBool sums_by_hosts(const TrsShardingContext *context, const TrsShardingChoice *choice)
{
  const TrsCommGroups *groups = context->groups;
  const int least = context->levels == TRS_REDUCE_SCATTER_AUTO ? TRS_HIERARCHICAL_HOSTS : 2;

  return (
      PetscBool)(choice->grid == TRS_GRID_WORLD && context->levels != TRS_REDUCE_SCATTER_FLAT &&
                 (choice->payload == &trs_payload_pooled || choice->payload == &trs_payload_distinct_bags) &&
                 groups->local_world_size > 1 && groups->n_hosts >= least);
}

/*
  Refuse table options that -reproducible cannot support, because sums are not made in the order of
  the global batch. Examples are sums that a rank makes before it sends them, and updates of rows by
  column shard.
*/
static PetscErrorCode check_reproducible(const TrsShardingContext *context, int t, TrsTreatment treatment,
                                         const TrsShardingChoice *choice)
{
  const TrsTableConfig *config = &context->tables->table[t];
  const TrsShardingType type = context->table_plan[t]->sharding_type;
  const PetscBool cut = (PetscBool)(type == TRS_SHARDING_COLUMN_WISE ||
                                    type == TRS_SHARDING_TABLE_COLUMN_WISE ||
                                    type == TRS_SHARDING_GRID_SHARD);

  PetscFunctionBegin;
  PetscCheck(!config->max_feature_lengths, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-reproducible does not go with the position_weighted table \"%s\": its weights' gradients are "
             "summed where its rows are",
             config->name);
  PetscCheck(
      choice->payload != &trs_payload_distinct_bags, PETSC_COMM_SELF, TRS_ERR_OPTION,
      "-reproducible does not go with -ebc_variable_batch: a rank sums the gradients of a bag before they "
      "travel");
  PetscCheck(!context->index_dedup || config->pooling != TRS_POOLING_NONE, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-reproducible does not go with -ec_index_dedup: a rank sums the gradients of an id before they "
             "travel");
  PetscCheck(
      treatment != TRS_TREAT_SEQUENCE_IN_ORDER ||
          !(cut && TrsEmbeddingShardsStates(context->shards, t).couples_columns),
      PETSC_COMM_SELF, TRS_ERR_OPTION,
      "-reproducible: the sequence table \"%s\", which is not averaged, is planned as %s; force table_wise "
      "or row_wise (-table_%s_sharding_types)",
      config->name, TrsShardingTypeName(type), TrsTableOptionName(config));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse options for a table that assigns rows to ids by their counts and order. Such a table must
  receive each occurrence of an id. Some options send an id or a bag only once for all samples of a
  rank.
*/
static PetscErrorCode check_keys(const TrsShardingContext *context, int t, const TrsShardingChoice *choice)
{
  const TrsTableConfig *config = &context->tables->table[t];
  const char *option = NULL;

  PetscFunctionBegin;
  if (!TrsTableKeepsIds(config)) PetscFunctionReturn(PETSC_SUCCESS);
  if (choice->payload == &trs_payload_distinct_bags) option = "-ebc_variable_batch";
  if (context->index_dedup && config->pooling == TRS_POOLING_NONE) option = "-ec_index_dedup";
  PetscCheck(!option, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s does not go with table \"%s\", whose id_map %s counts every occurrence of an id: leave one "
             "out",
             option, config->name, TrsIdMapName(config->id_map.kind));
  PetscCheck(context->copies <= 1, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-plan_replicas does not go with table \"%s\", whose id_map %s needs the ids of all copies: "
             "leave one out",
             config->name, TrsIdMapName(config->id_map.kind));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingChoose(const TrsShardingContext *context, int t, TrsShardingChoice *choice)
{
  const TrsTableConfig *config = &context->tables->table[t];
  const TrsShardingType type = context->table_plan[t]->sharding_type;
  const TrsTreatment treatment = treatment_of(context, config, type);

  PetscFunctionBegin;
  *choice = choices[treatment][type];
  PetscCheck(choice->payload, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "table \"%s\", pooling %s, cannot be sharded as %s with these options "
             "(-table_%s_sharding_types)",
             config->name, TrsPoolingName(config->pooling), TrsShardingTypeName(type),
             TrsTableOptionName(config));
  PetscCall(check_keys(context, t, choice));
  if (context->dist.reproducible) PetscCall(check_reproducible(context, t, treatment, choice));
  if (sums_by_hosts(context, choice)) choice->grid = TRS_GRID_WORLD_BY_HOSTS;
  PetscFunctionReturn(PETSC_SUCCESS);
}
