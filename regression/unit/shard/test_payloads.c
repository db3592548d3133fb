/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 2 3 */
/*
  Tests each payload of shard/ (shard/sharding.h) in one training step of one small table. A payload
  decides which data is sent, but it must not change the result. So all payloads of pooled tables
  give the same rows and make the same update. Each test has the number of ids that its payload
  sends to each rank. All numbers are made by hand and are small integers, so that sums are exact.

  Table "item" has 4 rows of 2 columns, and row r is (r + 1, 10 (r + 1)). Rank q has three samples,
  whose bags and gradients are

    sample 0   ids 0 3   gradient (1, 2)
    sample 1   id q      gradient (3, 0)
    sample 2   ids 0 3   gradient (1, 1)

  With sums, samples 0 and 2 get row 0 + row 3 = (5, 50), and sample 1 gets row q. SGD with learning
  rate 1 subtracts W ((1, 2) + (1, 1)) = W (2, 3) from rows 0 and 3, and (3, 0) from each row q.
*/
#include "shard/impl.h"
#include "trs_test.h"

#include <string.h>

enum { ROWS = 4, DIM = 2, B = 3, OWN_IDS = 5, MAX_W = 3 };
typedef float rows_of[MAX_W + 1][ROWS][DIM]; /* [number of ranks] the whole table after the step */

/* A table and its collection. */
typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsCommGroups groups;
  TrsTableConfig item;
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsSparseOptimizerArgs sgd;
  TrsSparseOptimizers optimizers;
  TrsEmbeddingShards shards;
  TrsShardedEbcConfig config;
  TrsShardedEbc ebc;
  TrsKjt batch;
} fixture;

/*
  Write the text of a plan without rectangles, so that TrsShardingPlanComplete() cuts the table
  evenly.
*/
static void make_plan(fixture *f, const char *type)
{
  const char *ranks = strcmp(type, "table_wise") == 0 ? "1" : trs_size() == 2 ? "0, 1" : "0, 1, 2";
  const TrsPlanWorld world = {trs_size(), trs_size(), 1}; /* all ranks on one host */
  char text[512];

  snprintf(text, sizeof(text),
           "{\"format\": \"trshard-plan\", \"version\": 1, \"tables\": [{\"name\": \"item\", "
           "\"sharding_type\": \"%s\", \"compute_kernel\": \"%s\", \"ranks\": [%s]}]}",
           type, strcmp(type, "data_parallel") == 0 ? "dense" : "fused", ranks);
  assert_petsc_ok(TrsShardingPlanFromJson(text, "test", &f->plan));
  assert_petsc_ok(TrsShardingPlanComplete(&f->tables, &world, "test", &f->plan));
  assert_petsc_ok(TrsShardingPlanCheck(&f->plan, &f->tables, trs_size(), "test"));
}

static void make_batch(fixture *f)
{
  const int32_t lengths[B] = {2, 1, 2};
  const int64_t ids[OWN_IDS] = {0, 3, trs_rank(), 0, 3};

  assert_petsc_ok(TrsKjtReserve(f->device, &f->batch, 1, B, OWN_IDS, PETSC_FALSE));
  memcpy(f->batch.jagged.lengths, lengths, sizeof(lengths));
  memcpy(f->batch.jagged.values, ids, sizeof(ids));
  assert_petsc_ok(TrsKjtOffsets(f->compute, NULL, &f->batch));
}

/* Prepare for the first batch. config has the options that select the payload. */
static void make(fixture *f, TrsPooling pooling, const char *type, TrsShardedEbcConfig config)
{
  static char name[] = "item", *features[] = {name};
  static const int64_t columns[] = {0};

  *f = (fixture){.item = {.name = name,
                          .num_embeddings = ROWS,
                          .embedding_dim = DIM,
                          .pooling = pooling,
                          .sequence_pooling = TRS_SEQUENCE_POOLING_MAX,
                          .sequence_length = 1,
                          .n_features = 1,
                          .features = features},
                 .sgd = {.kind = TRS_OPTIM_SGD, .learning_rate = 1, .step = 1},
                 .config = config};
  f->tables = (TrsTableConfigs){.n = 1, .table = &f->item};
  f->optimizers = (TrsSparseOptimizers){.n = 1, .args = &f->sgd};
  f->config.columns = columns;
  assert_petsc_ok(TrsDeviceFind("cpu", &f->device));
  assert_petsc_ok(TrsComputeFind("cpu", &f->compute));
  assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, trs_size(), "mpi", f->device, f->compute, &f->groups));
  make_plan(f, type);
  assert_petsc_ok(
      TrsEmbeddingShardsCreate(f->device, &f->tables, &f->plan, trs_rank(), &f->optimizers, &f->shards));
  for (int i = 0; i < f->shards.n; i++) {
    const TrsTbeTable *shard = &f->shards.shard[i].tbe;
    float *weight = (float *)shard->weight;

    for (int64_t r = 0; r < shard->rows; r++)
      for (int c = 0; c < DIM; c++)
        weight[r * shard->stride + c] = (float)((shard->row_offset + r + 1) * (c ? 10 : 1));
  }
  assert_petsc_ok(TrsShardedEbcCreate(&f->groups, f->device, f->compute, &f->tables, &f->plan, &f->shards,
                                      &f->config, &f->ebc));
  make_batch(f);
}

static void destroy(fixture *f)
{
  assert_petsc_ok(TrsKjtFree(f->device, &f->batch));
  assert_petsc_ok(TrsShardedEbcDestroy(&f->ebc));
  assert_petsc_ok(TrsEmbeddingShardsDestroy(&f->shards));
  assert_petsc_ok(TrsShardingPlanFree(&f->plan));
  assert_petsc_ok(TrsCommGroupsDestroy(&f->groups));
}

/*
  Run a step. expected[B] has the rows of the samples, and after has the table after the step.
  n_ids[W][q] is the number of ids that the payload sends to the lookup of rank q.
*/
static void step(fixture *f, const TrsShardingOps *payload, const float expected[B][DIM], const rows_of after,
                 const int64_t n_ids[MAX_W + 1][MAX_W])
{
  const int W = trs_size();
  float matrix[B][DIM] = {{0}}, gradient[B][DIM] = {{1, 2}, {3, 0}, {1, 1}};
  TrsPooledMatrix rows = {.rows = TrsFloats(&matrix[0][0], DIM), .columns = f->config.columns};

  assert_int_equal(f->ebc->n_groups, 1);
  assert_ptr_equal(f->ebc->group[0]->ops, payload);
  assert_petsc_ok(TrsShardedEbcInputDistStart(f->ebc, 0, &f->batch, NULL));
  assert_petsc_ok(TrsShardedEbcInputDistTensors(f->ebc, 0, NULL));
  assert_petsc_ok(TrsShardedEbcInputDistWait(f->ebc, 0, NULL));
  assert_int_equal(f->ebc->group[0]->slot[0].recv.jagged.n_values, n_ids[W][trs_rank()]);
  assert_petsc_ok(TrsShardedEbcForwardStart(f->ebc, 0, NULL, &rows));
  assert_petsc_ok(TrsShardedEbcForwardWait(f->ebc, 0, NULL, &rows));
  for (int b = 0; b < B; b++)
    for (int c = 0; c < DIM; c++) assert_close(matrix[b][c], expected[b][c], 0, 0);
  memcpy(matrix, gradient, sizeof(matrix));
  assert_petsc_ok(TrsShardedEbcBackwardStart(f->ebc, 0, NULL, &rows));
  assert_petsc_ok(TrsShardedEbcBackwardUpdate(f->ebc, 0, NULL, &rows, &f->sgd));
  for (int i = 0; i < f->shards.n; i++) {
    const TrsTbeTable *shard = &f->shards.shard[i].tbe;

    for (int64_t r = 0; r < shard->rows; r++)
      for (int c = 0; c < DIM; c++)
        assert_close(((const float *)shard->weight)[r * shard->stride + c],
                     after[W][shard->row_offset + r][c], 0, 0);
  }
}

/* Run a step of a table with sum pooling. The numbers are the same for every payload. */
static void sum_step(const char *type, TrsShardedEbcConfig config, const TrsShardingOps *payload,
                     const int64_t n_ids[MAX_W + 1][MAX_W])
{
  static const rows_of after = {
      [2] = {{-6, 4}, {-1, 20}, {3, 30}, {0, 34}}, [3] = {{-8, 1}, {-1, 20}, {0, 30}, {-2, 31}}};
  const float q = (float)trs_rank(), pooled[B][DIM] = {{5, 50}, {q + 1, 10 * (q + 1)}, {5, 50}};
  fixture f;

  make(&f, TRS_POOLING_SUM, type, config);
  step(&f, payload, pooled, after, n_ids);
  destroy(&f);
}

/*
  Run a step of a sequence table. The model uses the maxima of its bags. Row 3 has all maxima, so it
  gets the gradients.
*/
static void max_step(const char *type, TrsShardedEbcConfig config, const TrsShardingOps *payload,
                     const int64_t n_ids[MAX_W + 1][MAX_W])
{
  static const rows_of after = {
      [2] = {{-2, 10}, {-1, 20}, {3, 30}, {0, 34}}, [3] = {{-2, 10}, {-1, 20}, {0, 30}, {-2, 31}}};
  const float q = (float)trs_rank(), pooled[B][DIM] = {{4, 40}, {q + 1, 10 * (q + 1)}, {4, 40}};
  fixture f;

  make(&f, TRS_POOLING_NONE, type, config);
  step(&f, payload, pooled, after, n_ids);
  destroy(&f);
}

/*
  Number of ids that arrive at rank q, [W][q]. A rank that owns the whole table gets the 5 ids of
  every rank. With row_wise, rank 0 has rows 0 and 1. It gets 2 ids from each rank for samples 0 and
  2, and the ids of sample 1 of ranks 0 and 1. Rank 1 has rows 2 and 3. The third rank has no rows.
*/
static const int64_t to_owner[MAX_W + 1][MAX_W] = {[2] = {0, 10}, [3] = {0, 15, 0}};
static const int64_t to_rows[MAX_W + 1][MAX_W] = {[2] = {6, 4}, [3] = {8, 7, 0}};
static const int64_t own[MAX_W + 1][MAX_W] = {[2] = {5, 5}, [3] = {5, 5, 5}};

/*
  Pooled rows are sent back: whole rows from an owner, or the sum over ranks of the parts of each
  bag. On one host, table_row_wise cuts rows in the same way as row_wise.
*/
static void test_pooled(void **state)
{
  (void)state;
  sum_step("table_wise", (TrsShardedEbcConfig){0}, &trs_payload_pooled, to_owner);
  sum_step("row_wise", (TrsShardedEbcConfig){0}, &trs_payload_pooled, to_rows);
  sum_step("table_row_wise", (TrsShardedEbcConfig){0}, &trs_payload_pooled, to_rows);
}

/* Samples 0 and 2 have equal bags, so one bag is sent for both. */
static void test_distinct_bags(void **state)
{
  static const int64_t whole[MAX_W + 1][MAX_W] = {[2] = {0, 6}, [3] = {0, 9, 0}};
  static const int64_t cut[MAX_W + 1][MAX_W] = {[2] = {4, 2}, [3] = {5, 4, 0}};

  (void)state;
  sum_step("table_wise", (TrsShardedEbcConfig){.variable_batch = PETSC_TRUE}, &trs_payload_distinct_bags,
           whole);
  sum_step("row_wise", (TrsShardedEbcConfig){.variable_batch = PETSC_TRUE}, &trs_payload_distinct_bags, cut);
}

/*
  With -reproducible, the row of each id is sent back. The sample's rank adds the rows in the order
  of the bag.
*/
static void test_ordered_rows(void **state)
{
  (void)state;
  sum_step("row_wise", (TrsShardedEbcConfig){.dist.reproducible = PETSC_TRUE}, &trs_payload_ordered_rows,
           to_rows);
}

/* Every rank looks up its own ids. Only gradients of rows are sent, and all replicas stay equal. */
static void test_replicas(void **state)
{
  (void)state;
  sum_step("data_parallel", (TrsShardedEbcConfig){0}, &trs_payload_replicas, own);
}

/*
  With -reproducible, all ids and gradients are sent to all replicas, which add the gradients in the
  order of samples.
*/
static void test_ordered_replicas(void **state)
{
  static const int64_t all[MAX_W + 1][MAX_W] = {[2] = {10, 10}, [3] = {15, 15, 15}};

  (void)state;
  sum_step("data_parallel", (TrsShardedEbcConfig){.dist.reproducible = PETSC_TRUE},
           &trs_payload_ordered_replicas, all);
}

/*
  A row is sent back for each id. With -ec_index_dedup, a row is sent back for each distinct id of a
  rank: 0, 3 and q.
*/
static void test_sequence(void **state)
{
  static const int64_t distinct[MAX_W + 1][MAX_W] = {[2] = {3, 2}, [3] = {4, 4, 0}};

  (void)state;
  max_step("table_wise", (TrsShardedEbcConfig){0}, &trs_payload_sequence, to_owner);
  max_step("row_wise", (TrsShardedEbcConfig){0}, &trs_payload_sequence, to_rows);
  max_step("row_wise", (TrsShardedEbcConfig){.index_dedup = PETSC_TRUE}, &trs_payload_sequence, distinct);
}

/*
  Every rank looks up its own ids directly from the batch. Only gradients of distinct rows are sent.
*/
static void test_sequence_replicas(void **state)
{
  static const int64_t none[MAX_W + 1][MAX_W] = {{0}};

  (void)state;
  max_step("data_parallel", (TrsShardedEbcConfig){0}, &trs_payload_sequence_replicas, none);
}

TRS_TEST_MAIN(cmocka_unit_test(test_pooled), cmocka_unit_test(test_distinct_bags),
              cmocka_unit_test(test_ordered_rows), cmocka_unit_test(test_replicas),
              cmocka_unit_test(test_ordered_replicas), cmocka_unit_test(test_sequence),
              cmocka_unit_test(test_sequence_replicas))
