/* SPDX-License-Identifier: BSD-3-Clause */
/* Computes an option's cost. It makes the estimators' inputs from tables, topology and settings. */
#include "plan/cost/cache_stats.h"
#include "plan/search/search_space.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int TrsPlanFeatures(const TrsTableConfig *table)
{
  return PetscMax(1, table->constraints.n_pooling_factors);
}

void TrsPlanFeature(const TrsTableConfig *table, const TrsPlanSettings *settings, int f,
                    double *pooling_factor, double *num_poolings, int64_t *batch_size)
{
  const TrsTableConstraints *constraints = &table->constraints;

  *pooling_factor = constraints->n_pooling_factors ? constraints->pooling_factors[f] : 1.0;
  *num_poolings = constraints->n_num_poolings ? constraints->num_poolings[f] : 1.0;
  *batch_size = constraints->n_batch_sizes ? constraints->batch_sizes[f] : settings->batch_size;
}

/* Count the ids that one rank's batch looks up, and the output rows of these lookups. */
static void batch_size_of(const TrsCostModel *model, const TrsTableConfig *table, double *ids, double *rows)
{
  double l, n;
  int64_t b;

  *ids = *rows = 0;
  for (int f = 0; f < TrsPlanFeatures(table); f++) {
    TrsPlanFeature(table, model->settings, f, &l, &n, &b);
    *ids += (l * n) * (double)b;
    *rows += (PetscMin(1.0, l) * n) * (double)b;
  }
  if (table->pooling == TRS_POOLING_NONE) *rows = *ids;
}

/* Bytes per element in the cost model: 2 for half-precision types, 1 for quantised rows. */
static double element_bytes(const TrsCostModel *model, const TrsTableConfig *table)
{
  if (model->settings->is_quant) return 1;
  return table->data_type == TRS_FP32 ? 4 : 2;
}

/*
  A table's bytes. A quantised table also holds a scale and a bias for each row. It has int8
  elements if its type is neither int4 nor int2.
*/
static int64_t table_bytes(const TrsCostModel *model, const TrsTableConfig *table)
{
  int64_t R = table->num_embeddings, C = table->embedding_dim;
  int bits = table->data_type == TRS_INT4 ? 4 : (table->data_type == TRS_INT2 ? 2 : 8);

  if (model->settings->is_quant) return R * ((C * bits + 7) / 8) + 4 * R;
  return R * C * (int64_t)element_bytes(model, table);
}

static PetscBool prefetches(const TrsCostModel *model, const TrsTableConfig *table)
{
  return (PetscBool)(table->constraints.cache_prefetch_pipeline || model->settings->prefetch_pipeline);
}

static PetscBool has_cache_stats(const TrsCostModel *model, const TrsPlanOption *option)
{
  return (PetscBool)(TrsKernelKeepsLines(option->kernel) && option->has_load_factor &&
                     model->tables->table[option->table].constraints.has_cache_stats);
}

/*
  The share of a batch's distinct ids that miss the option's cache. A table at its configured load
  factor shares its cache with other tables. If embedding_offload_scaleup changed a table's load
  factor, the table has a separate cache.
*/
static double miss_rate(const TrsCostModel *model, const TrsPlanOption *option)
{
  const TrsTableConfig *table = &model->tables->table[option->table];

  if (model->shared_miss && option->load_factor == table->constraints.cache_load_factor)
    return model->shared_miss[option->table];
  return TrsCacheMissRate(table->constraints.n_cache_stats_mrc_hist, table->constraints.cache_stats_mrc_hist,
                          table->num_embeddings, option->load_factor);
}

/*
  The share of rows that a caching kernel reads from device memory. TorchRec takes the load factor
  for it. With -plan_cache_hit_rates, the hit rate replaces the load factor for tables with
  statistics.
*/
static double share_on_device(const TrsCostModel *model, const TrsPlanOption *option)
{
  if (model->settings->cache_hit_rates && has_cache_stats(model, option)) return 1 - miss_rate(model, option);
  return option->has_load_factor ? option->load_factor : TRS_CACHE_LOAD_FACTOR;
}

/*
  True if, for this sharding type, the model can read received vectors in the exchange's buffer
  without copying them. Only for models that support this.
*/
static PetscBool is_left_in_place(const TrsPlanSettings *settings, TrsShardingType type)
{
  return (PetscBool)(type == TRS_SHARDING_ROW_WISE ||
                     (!settings->a2a.is_coded &&
                      (type == TRS_SHARDING_TABLE_WISE || type == TRS_SHARDING_TABLE_ROW_WISE)));
}

/*
  Set the inputs that only TrsEstimateMeasured() reads. Rows that are sent without a codec are
  floats.
*/
static void measured_input(const TrsCostModel *model, const TrsPlanOption *option,
                           const TrsTableConfig *table, TrsPerfInput *in)
{
#define STATE_SHAPES(KIND, word, first, first_name, second, ...) {TRS_STATE_##first, TRS_STATE_##second},
  static const TrsStateShape shapes[][TRS_OPTIMIZER_STATES] = {TRS_EMBEDDING_OPTIMIZERS(STATE_SHAPES)};
  const TrsPlanSettings *settings = model->settings;
  const TrsRowRates *rates = &model->topology->rows;
  const TrsSparseOptimizerKind optimizer = TrsPlanOptimizer(settings, table);

  in->rates = rates;
  in->table_rows = (double)table->num_embeddings;
  for (int s = 0; s < TRS_OPTIMIZER_STATES; s++) {
    in->state_row += shapes[optimizer][s] == TRS_STATE_ROW ? (double)sizeof(float) : 0.0;
    in->state_element += shapes[optimizer][s] == TRS_STATE_ELEMENT ? (double)sizeof(float) : 0.0;
  }
  in->update_factor = table->data_type == TRS_FP32 ? 1.0
                      : table->stochastic_rounding ? rates->stochastic_update
                                                   : rates->half_update;
  if (!settings->a2a.is_coded || !in->is_pooled) in->a2a_fwd = in->a2a_bwd = sizeof(float);
  if (!in->is_pooled && settings->sequence.is_coded) {
    in->a2a_fwd = settings->sequence.fwd;
    in->a2a_bwd = settings->sequence.bwd;
  }
  if (!settings->sr.is_coded) in->sr_fwd = in->sr_bwd = sizeof(float);
  in->is_cuda = model->topology->is_cuda;
  in->in_place = (PetscBool)(settings->takes_vectors && in->is_pooled &&
                             is_left_in_place(settings, option->type));
}

static void perf_input(const TrsCostModel *model, const TrsPlanOption *option, TrsPerfInput *in)
{
  const TrsTopology *topology = model->topology;
  const TrsPlanSettings *settings = model->settings;
  const TrsTableConfig *table = &model->tables->table[option->table];
  const TrsTableConstraints *constraints = &table->constraints;
  const TrsPlanWire *a2a;
  double elem = element_bytes(model, table);

  *in = (TrsPerfInput){.type = option->type,
                       .is_pooled = (PetscBool)(table->pooling != TRS_POOLING_NONE),
                       .is_weighted = TrsTableHasWeights(table),
                       .is_inference = settings->is_inference,
                       .world_size = topology->world_size,
                       .local_world_size = topology->local_world_size,
                       .group = topology->group,
                       .elem = elem,
                       .a2a_fwd = elem,
                       .a2a_bwd = elem,
                       .sr_fwd = elem,
                       .sr_bwd = elem,
                       .hbm_to_ddr_bw = topology->hbm_to_ddr_mem_bw,
                       .intra_host_bw = topology->intra_host_bw,
                       .inter_host_bw = topology->inter_host_bw,
                       .bwd_multiplier = topology->bwd_compute_multiplier,
                       .weighted_multiplier = topology->weighted_feature_bwd_compute_multiplier};
  batch_size_of(model, table, &in->n_ids, &in->n_rows);
  a2a = in->is_pooled ? &settings->a2a : &settings->sequence;
  if (a2a->is_coded) {
    in->a2a_fwd = a2a->fwd;
    in->a2a_bwd = a2a->bwd;
  }
  /* Sequence embeddings are never summed over ranks, so only pooled tables use a reduce-scatter. */
  if (in->is_pooled && settings->sr.is_coded) {
    in->sr_fwd = settings->sr.fwd;
    in->sr_bwd = settings->sr.bwd;
  }
  in->kernel_bw = TrsTopologyKernelBandwidth(
      topology,
      !topology->is_cuda && TrsKernelHome(option->kernel) != TRS_ROWS_DEVICE ? TRS_KERNEL_FUSED
                                                                             : option->kernel,
      share_on_device(model, option), prefetches(model, table));
  if (has_cache_stats(model, option))
    in->missed_ids = miss_rate(model, option) * constraints->cache_stats_expected_lookups;
  if (settings->measured) measured_input(model, option, table, in);
}

void TrsCostStorageInput(const TrsCostModel *model, const TrsPlanOption *option, TrsStorageInput *in)
{
  const TrsPlanSettings *settings = model->settings;
  const TrsTableConfig *table = &model->tables->table[option->table];
  const TrsTableConstraints *constraints = &table->constraints;

  *in = (TrsStorageInput){.type = option->type,
                          .kernel = option->kernel,
                          .is_cuda = model->topology->is_cuda,
                          .is_pooled = (PetscBool)(table->pooling != TRS_POOLING_NONE),
                          .is_inference = settings->is_inference,
                          .at_peak_memory = settings->at_peak_memory,
                          .pipeline = settings->pipeline,
                          .optimizer_state = TrsPlanOptimizerState(settings, table),
                          .world_size = model->topology->world_size,
                          .group = model->topology->group,
                          .n_rows = table->num_embeddings,
                          .n_cols = table->embedding_dim,
                          .table_bytes = table_bytes(model, table),
                          .out_bytes = constraints->has_output_dtype
                                           ? TrsDTypeBits(constraints->output_dtype) / 8.0
                                           : element_bytes(model, table),
                          .load_factor = option->has_load_factor ? option->load_factor : 0,
                          .n_passes = PetscMax(1, constraints->cache_multipass_prefetch_num_passes),
                          .merged_copies = settings->merges_copies ? model->topology->replicas : 1,
                          .keys_row_bytes = TrsTableKeysRowBytes(table)};
  batch_size_of(model, table, &in->ids, &in->rows_out);
}

static TrsPerf estimate_perf(const TrsPerfInput *in, int64_t rows, int64_t cols)
{
  return in->rates ? TrsEstimateMeasured(in, cols) : TrsEstimatePerf(in, rows, cols);
}

TrsPlanOption TrsPlannedOption(const TrsCostModel *model, const TrsTableConfig *config,
                               const TrsTablePlan *plan)
{
  return (TrsPlanOption){.table = (int)(config - model->tables->table),
                         .type = plan->sharding_type,
                         .kernel = plan->compute_kernel,
                         .has_load_factor = plan->has_cache_load_factor,
                         .load_factor = plan->cache_load_factor};
}

void TrsCostShards(const TrsCostModel *model, const TrsPlanOption *option, int n, TrsShard *shard)
{
  TrsPerfInput perf;
  TrsStorageInput storage;

  perf_input(model, option, &perf);
  TrsCostStorageInput(model, option, &storage);
  for (int i = 0; i < n; i++) {
    shard[i].storage = TrsEstimateStorage(&storage, shard[i].rows, shard[i].cols);
    shard[i].perf = estimate_perf(&perf, shard[i].rows, shard[i].cols);
  }
}

PetscErrorCode TrsCostOption(const TrsCostModel *model, TrsPlanOption *option)
{
  const TrsTableConfig *table = &model->tables->table[option->table];
  TrsPerfInput perf;
  TrsStorageInput storage;

  PetscFunctionBegin;
  perf_input(model, option, &perf);
  TrsCostStorageInput(model, option, &storage);
  for (int i = 0; i < option->n_classes; i++) {
    TrsShardClass *shard = &option->shard_class[i];

    shard->storage = TrsEstimateStorage(&storage, shard->rows, option->width);
    shard->perf = i ? option->shard_class[0].perf : estimate_perf(&perf, shard->rows, option->width);
    shard->total = TrsPerfTotal(&shard->perf);
  }
  PetscCheck(TrsOptionSummarise(option), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-table_%s_num_embeddings %" PRId64
             " x %d: the bytes of %s over %d shards overflow 64-bit sizes",
             TrsTableOptionName(table), table->num_embeddings, table->embedding_dim,
             TrsShardingTypeName(option->type), option->n_shards);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  While the sum stays in one binade, each addition adds the same amount: x rounded to the spacing of
  doubles in this binade. (After a tie the sum is even, so all further ties round the same way.) Two
  additions are thus enough to find the amount, and one multiplication adds it for the rest of the
  binade.
*/
double TrsSumRepeated(double x, int n)
{
  double sum = 0;

  while (n > 0) {
    double first = sum + x, second = first + x, step = second - first, limit;
    int exponent;

    if (n == 1) return first;
    sum = second;
    n -= 2;
    if (step <= 0) return sum;
    frexp(sum, &exponent);
    limit = ldexp(1.0, exponent); /* end of the binade */
    frexp(first, &exponent);
    if (n > 0 && ldexp(1.0, exponent) == limit) {
      double steps = floor((limit - sum) / step) - 1;

      if (steps >= 1) {
        int k = steps < n ? (int)steps : n;

        sum += k * step;
        n -= k;
      }
    }
  }
  return sum;
}

/* Two rounds of splitmix64. They compute one option's part of a proposal's cache key. */
static uint64_t mix(uint64_t x)
{
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static void hash_option(TrsPlanOption *option)
{
  uint64_t choice = ((uint64_t)option->type << 8) | ((uint64_t)option->kernel << 4) |
                    (uint64_t)option->has_load_factor;
  uint64_t load_factor = 0;

  if (option->has_load_factor) memcpy(&load_factor, &option->load_factor, sizeof(load_factor));
  for (unsigned i = 0; i < 2; i++)
    option->hash[i] = mix(mix(mix((uint64_t)option->table + (i << 30)) ^ choice) ^ load_factor);
}

PetscBool TrsOptionSummarise(TrsPlanOption *option)
{
  TrsInt128 hbm = 0, ddr = 0;
  int blocks = option->n_shards / option->row_shards;
  PetscBool fits = PETSC_TRUE;

  option->max_hbm = option->max_ddr = INT64_MIN;
  option->min_hbm = option->min_ddr = INT64_MAX;
  option->max_perf = 0;
  for (int i = 0; i < option->n_classes; i++) {
    const TrsShardClass *c = &option->shard_class[i];

    fits = (PetscBool)(fits && c->storage.hbm < TRS_MAX_SHARD_BYTES && c->storage.ddr < TRS_MAX_SHARD_BYTES);
    option->max_hbm = PetscMax(option->max_hbm, c->storage.hbm);
    option->max_ddr = PetscMax(option->max_ddr, c->storage.ddr);
    option->min_hbm = PetscMin(option->min_hbm, c->storage.hbm);
    option->min_ddr = PetscMin(option->min_ddr, c->storage.ddr);
    option->max_perf = PetscMax(option->max_perf, c->total);
  }
  if (option->class_of || !option->same_perf) {
    option->total_perf = 0;
    for (int s = 0; s < option->n_shards; s++) {
      const TrsShardClass *c = TrsOptionShard(option, s);

      hbm += c->storage.hbm;
      ddr += c->storage.ddr;
      option->total_perf += c->total;
    }
  } else {
    for (int i = 0; i < option->n_classes; i++) {
      int n = i == 0 ? option->n_full : (i == 1 ? 1 : option->row_shards - option->n_full - 1);

      hbm += (TrsInt128)option->shard_class[i].storage.hbm * n * blocks;
      ddr += (TrsInt128)option->shard_class[i].storage.ddr * n * blocks;
    }
    option->total_perf = TrsSumRepeated(option->shard_class[0].total, option->n_shards);
  }
  fits = (PetscBool)(fits && hbm < INT64_MAX && ddr < INT64_MAX);
  option->total_storage = (TrsStorage){fits ? (int64_t)hbm : 0, fits ? (int64_t)ddr : 0};
  hash_option(option);
  return fits;
}
