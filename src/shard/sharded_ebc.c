/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/qcomm.h"
#include "shard/choose.h"
#include "shard/impl.h"
#include "shard/look_ahead.h"
#include "shard/vectors.h"

/*
  The largest number of groups with exchanges for which readers may borrow rows from a forward to
  its backward. With more groups, the exchanges in between could reuse the lanes' cells that
  describe the lent rows (comm/shared_lanes.h).
*/
enum { TRS_LENDING_GROUPS = 6 };

static const TrsOptionSpec specs[] = {
    {"-ec_index_dedup", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "sequence tables (pooling none): send each distinct id of a rank's batch once, and its row back "
     "once. The forward pass keeps its bits, except with formats that have scales (-qcomm_fp8_row_dim)"},
    {"-ebc_variable_batch", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "variable batch per feature, of pooled tables. A rank sends each distinct bag of a feature in its "
     "batch once, and gets its pooled row once. data_parallel tables send no bags"},
    {"-ebc_look_ahead", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "on CPUs of several hosts: while the dense layers compute, send pooled rows of the next batch to "
     "other hosts. A bag travels ahead if this batch's update changes none of its rows, so results have "
     "the same bits. For tables that are table_wise, column_wise or table_column_wise, without caches. No "
     "effect if a table's id_map is zch or dynamic. Needs a -pipeline other than base"},
    {"-ebc_row_wise_reduce_scatter", TRS_OPTION_ENUM, "auto", NULL, "auto,flat,hierarchical", NULL,
     "pooled tables that are row_wise: how partial sums are added, and gradients gathered. Hosts of one "
     "rank, or of unequal numbers of ranks, are flat. flat: between all ranks, in their order. "
     "hierarchical: inside each host of L ranks, then between hosts, with one L-th of the bytes; the order "
     "of additions, and the last bits, then depend on the hosts. auto: hierarchical from 4 hosts on"},
};
const TrsOptionGroup trs_shard_options = TRS_OPTION_GROUP("Sharded tables", specs);

PetscErrorCode TrsShardedEbcRefuseRounded(TrsOptions options, const char *name)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionError(options, name,
                           "-reproducible needs fp32: what is rounded on the way depends on the plan"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* For -reproducible, check that no message is rounded. codecs is [TRS_N_QCOMM_OPS]. */
static PetscErrorCode check_unrounded(TrsOptions options, const TrsQcommCodecs *codecs)
{
  const char *rounded = NULL;

  PetscFunctionBegin;
  for (int op = 0; op < TRS_N_QCOMM_OPS; op++) {
    if (codecs[op].backward.kind != TRS_CODEC_FP32)
      PetscCall(TrsQcommOptionName(options, (TrsQcommOp)op, PETSC_TRUE, &rounded));
    if (codecs[op].forward.kind != TRS_CODEC_FP32)
      PetscCall(TrsQcommOptionName(options, (TrsQcommOp)op, PETSC_FALSE, &rounded));
  }
  if (rounded) PetscCall(TrsShardedEbcRefuseRounded(options, rounded));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcConfigFromOptions(TrsOptions options, TrsShardedEbcConfig *config)
{
  TrsPooledDistOptions *const dist[TRS_N_QCOMM_OPS] = {&config->dist, &config->reduce_scatter,
                                                       &config->sequence};
  TrsQcommCodecs codecs[TRS_N_QCOMM_OPS];
  PetscBool reproducible;
  int levels;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-ec_index_dedup", &config->index_dedup, NULL));
  PetscCall(TrsOptionsGetBool(options, "-ebc_variable_batch", &config->variable_batch, NULL));
  PetscCall(TrsOptionsGetBool(options, "-ebc_look_ahead", &config->look_ahead, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-ebc_row_wise_reduce_scatter", &levels, NULL));
  config->levels = (TrsReduceScatterLevels)levels;
  PetscCall(TrsOptionsGetBool(options, "-reproducible", &reproducible, NULL));
  if (reproducible && config->levels == TRS_REDUCE_SCATTER_HIERARCHICAL)
    PetscCall(TrsOptionError(options, "-ebc_row_wise_reduce_scatter",
                             "hierarchical does not go with -reproducible, which sends rows and no sums: "
                             "leave one out"));
  PetscCall(TrsQcommFromOptions(options, codecs));
  for (int op = 0; op < TRS_N_QCOMM_OPS; op++)
    *dist[op] = (TrsPooledDistOptions){.forward = codecs[op].forward,
                                       .backward = codecs[op].backward,
                                       .given = {codecs[op].given[0], codecs[op].given[1]},
                                       .reproducible = reproducible};
  if (reproducible) PetscCall(check_unrounded(options, codecs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the type in which a group's messages are encoded. It is the type to which the model rounds
  the output (output_dtype). If there is none, it is the type in which the model multiplies
  (context->wire). With output_dtype, whole pooled rows and their gradients lose no precision, but
  partial sums and sequence rows are rounded once more. A precision given by -qcomm_... takes
  precedence, but fp32 takes precedence only over context->wire. Messages are not encoded on one
  rank, with -reproducible (the plan must not change the bits), and in a served model if encoding
  would round more than the output.
*/
static void choose_codecs(TrsSharding group)
{
  const TrsShardingContext *context = group->context;
  const PetscBool rounds = (PetscBool)(group->output_dtype != TRS_FP32);
  const TrsDType type = rounds ? group->output_dtype : context->wire;
  const TrsCodecKind kind = type == TRS_FP16 ? TRS_CODEC_FP16 : TRS_CODEC_BF16;
  const PetscBool serves = (PetscBool)!context->shards->optimizers;
  TrsPooledDistOptions *const dist[] = {&group->dist, &group->reduce_scatter, &group->sequence};

  group->dist = context->dist;
  group->reduce_scatter = context->reduce_scatter;
  group->sequence = context->sequence;
  if (type == TRS_FP32 || context->groups->world->size == 1 || context->dist.reproducible) return;
  if (serves && (group->route.grid != TRS_GRID_RANKS || group->ops != &trs_payload_pooled ||
                 (!rounds && context->rows == TRS_FP32)))
    return;
  for (size_t i = 0; i < sizeof(dist) / sizeof(dist[0]); i++) {
    if (dist[i]->forward.kind == TRS_CODEC_FP32 && (rounds || !dist[i]->given[0]))
      dist[i]->forward = (TrsCodec){.kind = kind, .loss_scale = 1.0F};
    if (dist[i]->backward.kind == TRS_CODEC_FP32 && (rounds || !dist[i]->given[1]))
      dist[i]->backward = (TrsCodec){.kind = kind, .backward = 1, .loss_scale = 1.0F};
  }
}

/*
  Add table t to the group with its payload, grid, weights and output_dtype. If there is no such
  group, create it.
*/
static PetscErrorCode add_table(TrsShardedEbc ebc, int t)
{
  const TrsTableConfig *config = &ebc->context.tables->table[t];
  const TrsShardingWeights weights = config->max_feature_lengths ? TRS_SHARDING_POSITIONS
                                     : config->is_weighted       ? TRS_SHARDING_WEIGHTS
                                                                 : TRS_SHARDING_UNWEIGHTED;
  const TrsDType output = TrsTableOutputDType(config);
  TrsShardingChoice choice;
  TrsSharding group;
  int g = 0;

  PetscFunctionBegin;
  PetscCall(TrsShardingChoose(&ebc->context, t, &choice));
  while (g < ebc->n_groups &&
         (ebc->group[g]->ops != choice.payload || ebc->group[g]->route.grid != choice.grid ||
          ebc->group[g]->weights != weights || ebc->group[g]->output_dtype != output))
    g++;
  if (g == ebc->n_groups) {
    PetscCall(PetscNew(&group));
    ebc->group[ebc->n_groups++] = group;
    group->ops = choice.payload;
    group->route.grid = choice.grid;
    group->update = choice.update;
    group->context = &ebc->context;
    group->weights = weights;
    group->output_dtype = output;
    choose_codecs(group);
    group->weighted = (PetscBool)(weights != TRS_SHARDING_UNWEIGHTED);
    PetscCall(PetscMalloc1((size_t)ebc->context.tables->n, &group->table));
    PetscCall(ebc->context.compute->workspace_create(&group->workspace));
  }
  group = ebc->group[g];
  group->table[group->n_tables++] = t;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* In place: create the layout of the model's matrix. No feature has columns in it yet. */
static PetscErrorCode create_layout(TrsShardedEbc ebc, PetscBool in_place)
{
  const TrsTableConfigs *tables = ebc->context.tables;
  int n = 0;

  PetscFunctionBegin;
  if (!in_place) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < tables->n; t++) n += tables->table[t].n_features;
  PetscCall(PetscMalloc1((size_t)n, &ebc->layout.column));
  for (int f = 0; f < n; f++) ebc->layout.column[f] = -1;
  ebc->context.layout = &ebc->layout;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if rows may travel ahead. If a table gives rows to ids, no batch's ids may arrive before the
  update of the previous batch.
*/
static PetscBool looks_ahead(const TrsShardingContext *context, const TrsShardedEbcConfig *config)
{
  PetscBool may = (PetscBool)(config->look_ahead && context->shards->optimizers);

  for (int t = 0; t < context->tables->n; t++)
    may = (PetscBool)(may && !TrsPlacementTreats(context->shards, t, PETSC_TRUE));
  return may;
}

/* Set up a group's route, payload and update. All tables of the group must have been added. */
static PetscErrorCode setup_group(TrsShardedEbc ebc, TrsSharding group)
{
  PetscFunctionBegin;
  PetscCall(TrsRouteCreate(group));
  PetscCall(PetscMalloc1((size_t)group->route.n_features, &group->mean));
  PetscCall(group->ops->setup(group));
  /* Quantised tables have no optimizers and are never updated. */
  if (group->update->setup && ebc->context.shards->optimizers) PetscCall(group->update->setup(group));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    const TrsShardingSlot *slot = &group->slot[s];
    if (!slot->exchange) continue;
    ebc->exchange[s][ebc->n_exchanges[s]] = slot->exchange;
    ebc->send[s][ebc->n_exchanges[s]++] = &slot->send;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcCreate(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                   const TrsComputeOps *compute, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *plan, const TrsEmbeddingShards *shards,
                                   const TrsShardedEbcConfig *config, TrsShardedEbc *ebc)
{
  TrsShardedEbc e;
  TrsShardingContext *context;

  PetscFunctionBegin;
  PetscCall(PetscNew(&e));
  context = &e->context;
  *context = (TrsShardingContext){.groups = groups,
                                  .device = device,
                                  .compute = compute,
                                  .tables = tables,
                                  .shards = shards,
                                  .dist = config->dist,
                                  .reduce_scatter = config->reduce_scatter,
                                  .sequence = config->sequence,
                                  .columns = config->columns,
                                  .position = config->position,
                                  .index_dedup = config->index_dedup,
                                  .variable_batch = config->variable_batch,
                                  .levels = config->levels,
                                  .copies = config->owners ? config->owners->size : config->replicas,
                                  .copied = (PetscBool)(config->owners != NULL),
                                  .rows = config->rows,
                                  .wire = config->wire,
                                  .in_place = config->in_place,
                                  .ids_in_place = config->ids_in_place,
                                  .loan = &e->loan};
  PetscCall(create_layout(e, config->in_place));
  e->replicas = config->replicas;
  if (looks_ahead(context, config)) PetscCall(TrsLookAheadComm(groups, device, compute, &context->ahead));
  e->loan = (TrsLoan){.data = (char *)config->lent, .bytes = config->lent_bytes};
  PetscCall(PetscMalloc3((size_t)tables->n, &context->table_plan, (size_t)tables->n, &context->first_feature,
                         (size_t)tables->n, &e->group));
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features) {
    context->table_plan[t] = TrsShardingPlanFind(plan, tables->table[t].name);
    context->first_feature[t] = f;
    PetscCall(add_table(e, t));
  }
  for (int s = 0; s < TRS_SHARD_SLOTS; s++)
    PetscCall(PetscMalloc2((size_t)e->n_groups, &e->exchange[s], (size_t)e->n_groups, &e->send[s]));
  if (e->n_groups > TRS_LENDING_GROUPS) context->in_place = PETSC_FALSE;
  for (int g = 0; g < e->n_groups; g++) {
    PetscCheck(config->rows == TRS_FP32 || e->group[g]->ops->typed, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "%s with a model's matrix of %s", e->group[g]->ops->name, TrsDTypeName(config->rows));
    PetscCall(setup_group(e, e->group[g]));
  }
  PetscCall(TrsCopiesCreate(config->owners, e->n_groups, (PetscBool)(groups->world->size == 1), &e->copies));
  *ebc = e;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcDestroy(TrsShardedEbc *ebc)
{
  TrsShardedEbc e = *ebc;

  PetscFunctionBegin;
  if (!e) PetscFunctionReturn(PETSC_SUCCESS);
  for (int g = 0; g < e->n_groups; g++) {
    TrsSharding group = e->group[g];
    PetscCall(group->ops->destroy(group));
    PetscCall(TrsRouteDestroy(group));
    if (group->update_data) PetscCall(group->update->destroy(group));
    PetscCall(TrsLookupDestroy(&group->lookup));
    PetscCall(TrsDeviceBufferFree(e->context.device, &group->pooled));
    for (int i = 0; i < TRS_N_TURNS; i++) PetscCall(TrsKjtFree(e->context.device, &group->sent[i]));
    PetscCall(TrsKjtFree(e->context.device, &group->received));
    for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
      PetscCall(TrsKjtExchangeDestroy(&group->slot[s].exchange));
      PetscCall(TrsKjtFree(e->context.device, &group->slot[s].send));
      PetscCall(TrsKjtFree(e->context.device, &group->slot[s].recv));
      PetscCall(TrsLookupOccurrencesDestroy(e->context.compute, &group->slot[s].occurrences));
    }
    PetscCall(e->context.compute->workspace_destroy(&group->workspace));
    PetscCall(PetscFree(group->table));
    PetscCall(PetscFree(group->mean));
    PetscCall(PetscFree(group));
  }
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsDeviceBufferFree(e->context.device, &e->positions[s]));
    PetscCall(PetscFree2(e->exchange[s], e->send[s]));
  }
  PetscCall(TrsCopiesFree(&e->copies));
  PetscCall(TrsLookAheadCommDestroy(e->context.groups, &e->context.ahead));
  PetscCall(PetscFree3(e->context.table_plan, e->context.first_feature, e->group));
  PetscCall(PetscFree(e->layout.column));
  PetscCall(PetscFree(*ebc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* If a group needs positions, find the position of every id in its bag. */
static PetscErrorCode find_positions(TrsShardedEbc ebc, int slot, const TrsKjt *batch, TrsStream stream)
{
  int g = 0;

  PetscFunctionBegin;
  while (g < ebc->n_groups && ebc->group[g]->weights != TRS_SHARDING_POSITIONS) g++;
  if (g == ebc->n_groups) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserve(ebc->context.device, &ebc->positions[slot],
                                   batch->jagged.n_values * (int64_t)sizeof(float)));
  PetscCall(ebc->context.compute->positions(stream, batch->jagged.n_bags, batch->jagged.offsets,
                                            (float *)ebc->positions[slot].data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The batch for a group. If the group's tables are weighted, it has the ids' weights. If they have
  position weights, it has positions as weights. Otherwise it has no weights.
*/
static const TrsKjt *batch_of_group(TrsShardedEbc ebc, TrsSharding group, int slot, const TrsKjt *batch)
{
  TrsKjt *view = &group->slot[slot].view;
  float *weights = group->weights == TRS_SHARDING_UNWEIGHTED ? NULL
                   : group->weights == TRS_SHARDING_WEIGHTS  ? batch->jagged.weights
                                                             : (float *)ebc->positions[slot].data;

  if (weights == batch->jagged.weights && group->weighted == batch->is_weighted) return batch;
  *view = *batch;
  view->is_weighted = group->weighted;
  view->jagged.weights = weights;
  return view;
}

/*
  Give a slot the memory for sent ids. A second call takes the memory back. Batches are sent one
  after the other, so all slots use the same memory. A batch gets it when it is prepared, and
  returns it when its ids have been sent. Evaluation batches may come between training batches, so
  they have separate memory.
*/
static void swap_sent(TrsSharding group, int slot)
{
  TrsKjt *send = &group->slot[slot].send, *sent = &group->sent[TrsShardingTurn(slot)];
  TrsDeviceBuffer *buffers[][2] = {{&send->lengths, &sent->lengths},
                                   {&send->offsets, &sent->offsets},
                                   {&send->values, &sent->values},
                                   {&send->weights, &sent->weights}};

  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
    const TrsDeviceBuffer kept = *buffers[i][0];

    *buffers[i][0] = *buffers[i][1];
    *buffers[i][1] = kept;
  }
}

/*
  Give a slot the memory for received ids. A second call takes the memory back. Received ids are
  kept until the batch's update. On a host, this update comes before the next batch's ids are laid
  out, so all slots use the same memory. This does not apply if a pipeline fills caches with the
  next batch's rows earlier.
*/
static void swap_received(TrsSharding group, int slot)
{
  TrsShardingSlot *s = &group->slot[slot];
  const TrsKjt kept = s->recv;

  if (slot >= TRS_TRAINING_SLOTS || !s->exchange || !group->context->device->host_memory) return;
  s->recv = group->received;
  group->received = kept;
}

PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch, TrsStream stream)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  PetscCall(find_positions(ebc, slot, batch, stream));
  for (int g = 0; g < ebc->n_groups; g++) {
    TrsSharding group = ebc->group[g];
    group->slot[slot].batch = batch_of_group(ebc, group, slot, batch);
    swap_sent(group, slot);
    PetscCall(group->ops->prepare(group, &group->slot[slot], stream));
  }
  PetscCall(TrsKjtExchangeStartSplits(ebc->n_exchanges[slot], ebc->exchange[slot], ebc->send[slot], stream));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  PetscCall(TrsKjtExchangeStartTensors(ebc->n_exchanges[slot], ebc->exchange[slot], stream));
  for (int g = 0; g < ebc->n_groups; g++)
    if (ebc->group[g]->ops->input_start)
      PetscCall(ebc->group[g]->ops->input_start(ebc->group[g], &ebc->group[g]->slot[slot], stream));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* When the ids of the slot's batch have arrived, assign rows to them. */
static PetscErrorCode take_rows(TrsSharding group, int slot, TrsStream stream)
{
  TrsShardingSlot *s = &group->slot[slot];
  const TrsPlacementSources sources = {.n = s->exchange ? group->context->groups->world->size : 0,
                                       .batch = s->source_batch,
                                       .rank = group->route.source};

  PetscFunctionBegin;
  PetscCall(
      TrsLookupTake(group->lookup, stream, slot, (PetscBool)(slot < TRS_TRAINING_SLOTS), &sources, &s->recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) {
    TrsShardingSlot *s = &ebc->group[g]->slot[slot];
    swap_received(ebc->group[g], slot);
    if (s->exchange) PetscCall(TrsKjtExchangeWait(s->exchange, stream, &s->recv, &s->source_batch));
    if (ebc->group[g]->ops->input_wait) PetscCall(ebc->group[g]->ops->input_wait(ebc->group[g], s, stream));
    PetscCall(take_rows(ebc->group[g], slot, stream));
    if (ebc->group[g]->update_data && ebc->group[g]->update->list && slot < TRS_TRAINING_SLOTS &&
        !ebc->copies.owners)
      PetscCall(ebc->group[g]->update->list(ebc->group[g], s, stream));
    swap_sent(ebc->group[g], slot);
  }
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsShardedEbcSortsSums(TrsShardedEbc ebc)
{
  for (int g = 0; g < ebc->n_groups; g++)
    if (ebc->group[g]->ops->sort) return PETSC_TRUE;
  return PETSC_FALSE;
}

PetscErrorCode TrsShardedEbcSort(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) {
    TrsSharding group = ebc->group[g];

    if (group->ops->sort) PetscCall(group->ops->sort(group, &group->slot[slot], stream));
    /* with owners, the ids of other copies are not here yet */
    if (group->update->sort && !ebc->copies.owners)
      PetscCall(group->update->sort(group, &group->slot[slot], stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  ebc->loan.taken = 0;
  if (ebc->copies.owners && slot < TRS_TRAINING_SLOTS)
    PetscCall(TrsCopiesTell(&ebc->copies, ebc->group, slot));
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(ebc->group[g]->ops->forward_start(ebc->group[g], &ebc->group[g]->slot[slot], stream, pooled));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsShardedEbcLooksAhead(TrsShardedEbc ebc)
{
  for (int g = 0; g < ebc->n_groups; g++)
    if (ebc->group[g]->ahead) return PETSC_TRUE;
  return PETSC_FALSE;
}

PetscErrorCode TrsShardedEbcSendAhead(TrsShardedEbc ebc, TrsStream stream)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    if (ebc->group[g]->ahead) PetscCall(TrsLookAheadSend(ebc->group[g]->ahead, stream));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcCancelAhead(TrsShardedEbc ebc, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    if (ebc->group[g]->ahead) PetscCall(TrsLookAheadCancel(ebc->group[g]->ahead, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcLookAhead(TrsShardedEbc ebc, int slot, int next, TrsStream stream)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) {
    TrsSharding group = ebc->group[g];

    if (group->ahead)
      PetscCall(TrsLookAheadTell(group->ahead, &group->slot[slot], &group->slot[next], stream));
  }
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcLookAheadView(TrsShardedEbc ebc, MPI_Comm comm)
{
  double bags[2] = {0, 0};

  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) {
    int64_t n_bags, n_ahead;

    if (!ebc->group[g]->ahead) continue;
    TrsLookAheadCount(ebc->group[g]->ahead, &n_bags, &n_ahead);
    bags[0] += (double)n_bags;
    bags[1] += (double)n_ahead;
  }
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, bags, 2, MPI_DOUBLE, MPI_SUM, comm));
  if (bags[0] > 0)
    PetscCall(PetscPrintf(comm, "%-10s %.1f%% of the %.0f bags for other hosts travelled a batch ahead\n",
                          "look-ahead", 100 * bags[1] / bags[0], bags[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The samples of this rank in the slot. */
static const TrsKjt *batch_of(TrsShardedEbc ebc, int slot)
{
  return ebc->group[0]->slot[slot].batch;
}

/* Multiply the gradients by the number of copies of the tables. */
static PetscErrorCode scale_gradients(TrsShardedEbc ebc, const TrsKjt *batch, TrsStream stream,
                                      const TrsPooledMatrix *grad)
{
  const TrsTableConfigs *tables = ebc->context.tables;

  PetscFunctionBegin;
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features)
    for (int k = f; k < f + tables->table[t].n_features; k++) {
      const TrsVectors vectors = TrsVectorsOf(&tables->table[t], k - f, k, batch, grad);

      PetscCall(ebc->context.compute->scale_matrix(stream, vectors.n, vectors.columns, (float)ebc->replicas,
                                                   vectors.data, vectors.stride));
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Clamp columns [from, end) of the pooled output's gradient to `most`. If `most` is 0, there is no
  limit.
*/
static PetscErrorCode clamp_columns(TrsShardedEbc ebc, const TrsKjt *batch, TrsStream stream,
                                    const TrsPooledMatrix *grad, int64_t from, int64_t end, float most)
{
  PetscFunctionBegin;
  if (most > 0.0F && end > from)
    PetscCall(ebc->context.compute->clamp_matrix(stream, batch->batch, end - from, most,
                                                 TrsPooledFloats(grad, from), grad->rows.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Clamp the gradient of the pooled output by -embedding_max_gradient. It is done here, because later
  the gradient depends on the plan (src/RULES.md, rule A9). Adjacent columns with the same limit are
  clamped as one matrix. Columns are in the order of features, except in two_tower, where the
  query's columns come first. Columns of a sequence layer are clamped together with their
  neighbours, but nothing reads them afterwards.
*/
static PetscErrorCode clamp_gradients(TrsShardedEbc ebc, const TrsKjt *batch, TrsStream stream,
                                      const TrsPooledMatrix *grad)
{
  const TrsTableConfigs *tables = ebc->context.tables;
  const float *limit = ebc->context.shards->optimizers->max_gradient;
  int64_t from = 0, end = 0;
  float most = 0.0F;

  PetscFunctionBegin;
  for (int t = 0, f = 0; limit && t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    for (int k = 0; k < table->n_features; k++, f++) {
      if (limit[t] != most || grad->columns[f] != end) {
        PetscCall(clamp_columns(ebc, batch, stream, grad, from, end, most));
        most = limit[t];
        from = grad->columns[f];
      }
      end = grad->columns[f] + TrsTableColumns(table);
      if (most > 0.0F && TrsFeatureIsSequenceLayer(table, k)) {
        const TrsVectors rows = TrsVectorsOf(table, k, f, batch, grad);

        PetscCall(
            ebc->context.compute->clamp_matrix(stream, rows.n, rows.columns, most, rows.data, rows.stride));
      }
    }
  }
  PetscCall(clamp_columns(ebc, batch, stream, grad, from, end, most));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  In place: set the addresses of all vectors in the matrix. Afterwards the groups set the addresses
  of the other vectors.
*/
static void place_in_matrix(const TrsTableConfigs *tables, const TrsPooledMatrix *pooled)
{
  for (int t = 0, f = 0; pooled->place && pooled->rows.data && t < tables->n; t++)
    for (int end = f + tables->table[t].n_features; f < end; f++)
      if (pooled->columns[f] >= 0)
        pooled->place[f] = (TrsVectorPlace){.data = TrsMatrixColumns(pooled->rows, pooled->columns[f]).data,
                                            .stride = pooled->rows.stride};
}

int64_t TrsShardedEbcMatrixWidth(TrsShardedEbc ebc, const int64_t **columns)
{
  *columns = ebc->layout.column;
  return ebc->layout.width;
}

PetscErrorCode TrsShardedEbcForwardEnd(TrsShardedEbc ebc, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    if (ebc->group[g]->ops->forward_end) PetscCall(ebc->group[g]->ops->forward_end(ebc->group[g], stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  place_in_matrix(ebc->context.tables, pooled);
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(ebc->group[g]->ops->forward_wait(ebc->group[g], &ebc->group[g]->slot[slot], stream, pooled));
  PetscCall(TrsVectorsRound(ebc->context.compute, ebc->context.tables, batch_of(ebc, slot), stream, pooled));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of features that may have position weights: either all features, or 0. */
static int n_positions(const TrsShardingContext *context)
{
  int n = 0;

  for (int t = 0; context->position && t < context->tables->n; t++) n += context->tables->table[t].n_features;
  return n;
}

/*
  Set the gradients of position weights to zero on every rank. Lookups add to them, and a rank
  without the table has no lookup that would set them.
*/
static PetscErrorCode zero_position_gradients(TrsShardedEbc ebc, TrsStream stream)
{
  const TrsShardingContext *context = &ebc->context;
  const int n = n_positions(context);

  PetscFunctionBegin;
  for (int f = 0; f < n; f++)
    if (context->position[f].weight)
      PetscCall(context->device->zero(context->position[f].grad,
                                      context->position[f].length * (int64_t)sizeof(float), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Divide the gradients of position weights by the number of copies. They are computed from gradients
  of rows, which were multiplied by this number. However, they belong to dense parameters, which all
  copies share.
*/
static PetscErrorCode unscale_position_gradients(TrsShardedEbc ebc, TrsStream stream)
{
  const TrsShardingContext *context = &ebc->context;
  const int n = n_positions(context);

  PetscFunctionBegin;
  for (int f = 0; f < n; f++)
    if (context->position[f].weight)
      PetscCall(context->compute->scale_matrix(stream, 1, context->position[f].length,
                                               1.0F / (float)ebc->replicas, context->position[f].grad,
                                               context->position[f].length));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  if (ebc->replicas > 1) PetscCall(scale_gradients(ebc, batch_of(ebc, slot), stream, grad));
  PetscCall(clamp_gradients(ebc, batch_of(ebc, slot), stream, grad));
  PetscCall(TrsVectorsRound(ebc->context.compute, ebc->context.tables, batch_of(ebc, slot), stream, grad));
  PetscCall(zero_position_gradients(ebc, stream));
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(ebc->group[g]->ops->backward_start(ebc->group[g], &ebc->group[g]->slot[slot], stream, grad));
  if (ebc->copies.owners) PetscCall(TrsCopiesStart(&ebc->copies, ebc->group, slot, stream, grad));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* When the gradients of a group's rows have arrived, update the rows. */
static PetscErrorCode update_group(TrsSharding group, TrsShardingSlot *slot, TrsStream stream,
                                   const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args)
{
  TrsMatrix arrived;

  PetscFunctionBegin;
  PetscCall(group->ops->backward_wait(group, slot, stream, grad, &arrived));
  PetscCall(group->update->apply(group, slot, stream, arrived, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_EXCHANGES);

  PetscFunctionBegin;
  if (ebc->copies.owners) PetscCall(TrsCopiesUpdate(&ebc->copies, ebc->group, slot, stream, grad, args));
  for (int g = 0; g < ebc->n_groups && !ebc->copies.owners; g++)
    PetscCall(update_group(ebc->group[g], &ebc->group[g]->slot[slot], stream, grad, args));
  for (int g = 0; g < ebc->n_groups; g++) swap_received(ebc->group[g], slot);
  if (ebc->replicas > 1) PetscCall(unscale_position_gradients(ebc, stream));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcPrefetch(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(TrsLookupPrefetch(ebc->group[g]->lookup, stream, &ebc->group[g]->slot[slot].recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcEvaluated(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(TrsLookupEvaluated(ebc->group[g]->lookup, stream, &ebc->group[g]->slot[slot].recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcSettle(TrsShardedEbc ebc, TrsStream stream, PetscBool drop)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) PetscCall(TrsLookupSettle(ebc->group[g]->lookup, stream, drop));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsShardedEbcIsPlaced(TrsShardedEbc ebc)
{
  for (int g = 0; g < ebc->n_groups; g++)
    if (!TrsPlacementIsNone(TrsLookupPlacement(ebc->group[g]->lookup))) return PETSC_TRUE;
  return PETSC_FALSE;
}

int TrsShardedEbcCaches(TrsShardedEbc ebc)
{
  int n = 0;

  for (int g = 0; g < ebc->n_groups; g++) n += TrsRowCachesCount(TrsLookupCaches(ebc->group[g]->lookup));
  return n;
}

PetscErrorCode TrsShardedEbcCacheInfo(TrsShardedEbc ebc, int i, TrsStream stream, TrsRowCacheInfo *info)
{
  int g = 0;

  PetscFunctionBegin;
  for (; i >= TrsRowCachesCount(TrsLookupCaches(ebc->group[g]->lookup)); g++)
    i -= TrsRowCachesCount(TrsLookupCaches(ebc->group[g]->lookup));
  PetscCall(TrsRowCachesInfo(TrsLookupCaches(ebc->group[g]->lookup), i, stream, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}
