/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Prints what it costs that an owner gives rows to ids (id_map zch and dynamic): the times of a
  batch's steps, the rate of lookup and update relative to a table whose ids are rows (hashed before
  the measurement), the longest step, and the directory's bytes per row.

    bench_ids [-rows N] [-ids N] [-batch_size N] [-bag N] [-dim N] [-steps N]

  Ids follow a Zipf law of exponent 1.05.
*/
#include "bench.h"
#include "core/random/random.h"
#include "embed/directory.h"
#include "embed/lookup.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double exponent = 1.05;
enum { INTERVAL = 10 }; /* steps from one eviction of zch to the next */

typedef struct {
  int64_t rows, pool, batch, bag, dim, steps;
  int64_t *ids, *offsets; /* [steps, batch, bag]; [batch + 1] */
  int64_t *values;        /* [batch, bag] the ids of a step */
  float *out, *grad;      /* [batch, dim] */
  const TrsComputeOps *compute;
  const TrsDeviceOps *device;
} Bench;

/* Times of all steps, in seconds. */
typedef struct {
  double *take, *forward, *backward, *all;
} Times;

static const TrsOptionSpec specs[] = {
    {"-rows", TRS_OPTION_INT, "1M", "[2,]", NULL, "rows", "of the table"},
    {"-ids", TRS_OPTION_INT, "1M", "[1,]", NULL, "ids", "that may occur"},
    {"-batch_size", TRS_OPTION_INT, "4096", "[1,]", NULL, "samples", "of a step"},
    {"-bag", TRS_OPTION_INT, "10", "[1,]", NULL, "ids/sample", "of a bag"},
    {"-dim", TRS_OPTION_INT, "64", "[1,]", NULL, "columns", "of the table"},
    {"-steps", TRS_OPTION_INT, "300", "[20,]", NULL, NULL, "to measure"}};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("bench_ids", specs);

/* A number from 1 to n by the Zipf law, as a continuous number that is rounded down. */
static int64_t zipf(double u, int64_t n)
{
  const double power = 1.0 - exponent;

  return (int64_t)pow((pow((double)n + 1.0, power) - 1.0) * u + 1.0, 1.0 / power);
}

static PetscErrorCode set_up(Bench *b, TrsOptions options)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-rows", &b->rows, NULL));
  PetscCall(TrsOptionsGetInt(options, "-ids", &b->pool, NULL));
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &b->batch, NULL));
  PetscCall(TrsOptionsGetInt(options, "-bag", &b->bag, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dim", &b->dim, NULL));
  PetscCall(TrsOptionsGetInt(options, "-steps", &b->steps, NULL));
  PetscCall(TrsDeviceFind("cpu", &b->device));
  PetscCall(TrsComputeFind("cpu", &b->compute));
  PetscCall(TrsAlloc(b->steps * b->batch * b->bag, sizeof(*b->ids), &b->ids));
  PetscCall(TrsAlloc(b->batch * b->bag, sizeof(*b->values), &b->values));
  PetscCall(TrsAlloc(b->batch + 1, sizeof(*b->offsets), &b->offsets));
  PetscCall(TrsAlloc(b->batch * b->dim, sizeof(*b->out), &b->out));
  PetscCall(TrsAlloc(b->batch * b->dim, sizeof(*b->grad), &b->grad));
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 1, 0, b->batch * b->dim, -1.0F, 1.0F, b->grad);
  for (int64_t i = 0; i <= b->batch; i++) b->offsets[i] = i * b->bag;
  for (int64_t i = 0; i < b->steps * b->batch * b->bag; i++) {
    uint32_t words[4];

    TrsRandom(1, TRS_RANDOM_TEST, 2, (uint64_t)i, words);
    b->ids[i] = zipf(((double)words[0] + 0.5) * 0x1p-32, b->pool);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Train one batch, and note its times. */
static PetscErrorCode step(const Bench *b, TrsLookup lookup, const TrsSparseOptimizerArgs *args, int64_t s,
                           Times *times)
{
  const int64_t n = b->batch * b->bag;
  TrsKjt kjt = {.n_features = 1,
                .batch = b->batch,
                .jagged = {.n_bags = b->batch, .n_values = n, .offsets = b->offsets, .values = b->values}};
  double t[4];

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++) {
    const int64_t id = b->ids[s * n + i];

    b->values[i] = TrsPlacementIsNone(TrsLookupPlacement(lookup))
                       ? (int64_t)(TrsIdHash((uint64_t)id) % (uint64_t)b->rows)
                       : id;
  }
  t[0] = bench_now();
  PetscCall(TrsLookupTake(lookup, NULL, (int)(s % 2), PETSC_TRUE, NULL, &kjt));
  t[1] = bench_now();
  PetscCall(TrsLookupForward(lookup, NULL, &kjt, TrsFloats(b->out, b->dim)));
  t[2] = bench_now();
  PetscCall(TrsLookupBackward(lookup, NULL, &kjt, NULL, TrsFloats(b->grad, b->dim), NULL, args));
  t[3] = bench_now();
  times->take[s] = t[1] - t[0];
  times->forward[s] = t[2] - t[1];
  times->backward[s] = t[3] - t[2];
  times->all[s] = t[3] - t[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure one kind of map in the second half of the steps. *rate: ids per second in the median block
  of INTERVAL steps.
*/
static PetscErrorCode measure(const Bench *b, const char *name, TrsTableConfig *config, double plain,
                              double *rate)
{
  static char feature[] = "f";
  char *features[] = {feature};
  TrsSparseOptimizerArgs args = {
      .kind = TRS_OPTIM_ROWWISE_ADAGRAD, .learning_rate = 0.01F, .eps = 1e-8F, .step = 1};
  const TrsSparseOptimizers optimizers = {.n = 1, .args = &args};
  TrsTableConfigs tables = {.n = 1, .table = config};
  TrsShard whole = {.rows = b->rows, .cols = b->dim};
  TrsTablePlan of_table = {
      .name = config->name, .sharding_type = TRS_SHARDING_TABLE_WISE, .n_shards = 1, .shard = &whole};
  const TrsShardingPlan plan = {.n_tables = 1, .table = &of_table, .world_size = 1, .local_world_size = 1};
  const int64_t half = b->steps / 2, n = b->steps - half;
  TrsDirectoryCounts counts = {.bytes = 0};
  TrsEmbeddingShards shards;
  TrsLookup lookup;
  Times times;
  double longest = 0, *blocks;

  PetscFunctionBegin;
  config->n_features = 1;
  config->features = features;
  PetscCall(PetscMalloc4((size_t)b->steps, &times.take, (size_t)b->steps, &times.forward, (size_t)b->steps,
                         &times.backward, (size_t)b->steps, &times.all));
  PetscCall(TrsEmbeddingShardsCreate(b->device, &tables, &plan, 0, &optimizers, &shards));
  PetscCall(TrsEmbeddingShardsFill(&shards, 1));
  PetscCall(TrsLookupCreate(b->compute, &shards, 1, &(TrsLookupFeature){.shard = 0}, &lookup));
  for (int64_t s = 0; s < b->steps; s++) PetscCall(step(b, lookup, &args, s, &times));
  for (int64_t s = half; s < b->steps; s++) longest = PetscMax(longest, times.all[s]);
  PetscCall(PetscMalloc1((size_t)(n / INTERVAL), &blocks));
  for (int64_t k = 0; k < n / INTERVAL; k++) {
    blocks[k] = 0;
    for (int64_t s = 0; s < INTERVAL; s++) blocks[k] += times.all[half + k * INTERVAL + s];
  }
  *rate = (double)(INTERVAL * b->batch * b->bag) / bench_median(n / INTERVAL, blocks);
  PetscCall(PetscFree(blocks));
  if (shards.shard[0].keys) TrsDirectoryCount(&shards, 0, PETSC_FALSE, &counts);
  PetscCall(PetscPrintf(PETSC_COMM_SELF,
                        "%-10s %9.2f %9.2f %9.2f %9.2f %9.1f %8.2f %8.1f %12" PRId64 " %12" PRId64 "\n", name,
                        1e3 * bench_median(n, times.take + half), 1e3 * bench_median(n, times.forward + half),
                        1e3 * bench_median(n, times.backward + half), 1e3 * longest, 1e-6 * *rate,
                        plain > 0 ? *rate / plain : 1.0,
                        counts.held ? (double)counts.bytes / (double)PetscMax(counts.held, b->rows / 2) : 0.0,
                        counts.given, counts.taken));
  PetscCall(TrsLookupDestroy(&lookup));
  PetscCall(TrsEmbeddingShardsDestroy(&shards));
  PetscCall(PetscFree4(times.take, times.forward, times.backward, times.all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure_all(const Bench *b)
{
  static char name[] = "t";
  const TrsTableConfig plain = {.name = name,
                                .num_embeddings = b->rows,
                                .embedding_dim = (int)b->dim,
                                .data_type = TRS_FP32,
                                .init = {.low = -0.01F, .high = 0.01F}};
  TrsTableConfig config = plain;
  double rate, other;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s %9s %9s %9s %9s %9s %8s %8s %12s %12s\n", "id_map", "take ms",
                        "forw. ms", "backw. ms", "longest", "M ids/s", "of none", "B/row", "given", "taken"));
  PetscCall(measure(b, "none", &config, 0, &rate));
  for (int policy = TRS_ZCH_LFU; policy <= TRS_ZCH_DISTANCE_LFU; policy++) {
    static const char *const names[] = {"zch lfu", "zch lru", "zch dist"};

    config = plain;
    config.id_map.kind = TRS_ID_MAP_ZCH;
    config.zch = (TrsZchRule){
        .policy = (TrsZchPolicy)policy, .interval = INTERVAL, .exponent = 1, .buckets = 1};
    PetscCall(measure(b, names[policy], &config, rate, &other));
  }
  for (int policy = TRS_DYNAMIC_LRU; policy <= TRS_DYNAMIC_LFU; policy++) {
    config = plain;
    config.id_map.kind = TRS_ID_MAP_DYNAMIC;
    config.dynamic = (TrsDynamicRule){
        .policy = (TrsDynamicPolicy)policy, .buckets = 1, .admit_after = 1, .admit_probability = 1};
    PetscCall(measure(b, policy == TRS_DYNAMIC_LRU ? "dyn lru" : "dyn lfu", &config, rate, &other));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode bench_ids(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options};
  TrsOptions options;
  Bench bench = {.batch = 0};

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 1, &options));
  PetscCall(set_up(&bench, options));
  PetscCall(measure_all(&bench));
  PetscCall(TrsFree(&bench.ids));
  PetscCall(TrsFree(&bench.values));
  PetscCall(TrsFree(&bench.offsets));
  PetscCall(TrsFree(&bench.out));
  PetscCall(TrsFree(&bench.grad));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, bench_ids);
}
