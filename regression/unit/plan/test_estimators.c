/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares the costs of shards with the results of TorchRec's functions (golden/planner/units.json).
*/
#include "plan_units.h"

static void test_kernel_bandwidth(void **state)
{
  json_t *root, *row, *section = units_section(&root, "kernel_bw_lookup");
  size_t i;

  (void)state;
  json_array_foreach(json_object_get(section, "rows"), i, row)
  {
    TrsTopology topology = {.is_cuda = (PetscBool)!strcmp(json_string_value(json_array_get(row, 0)), "cuda"),
                            .hbm_mem_bw = unit_at(row, 4),
                            .ddr_mem_bw = unit_at(row, 5),
                            .hbm_to_ddr_mem_bw = unit_at(row, 6)};
    const json_t *ratio = json_array_get(row, 2), *expected = json_array_get(row, 7);
    double bw = TrsTopologyKernelBandwidth(&topology, unit_kernel(json_string_value(json_array_get(row, 1))),
                                           json_is_null(ratio) ? TRS_CACHE_LOAD_FACTOR
                                                               : json_number_value(ratio),
                                           (PetscBool)json_is_true(json_array_get(row, 3)));

    assert_close(bw, json_is_null(expected) ? 0 : json_number_value(expected), 0,
                 0); /* null means that TorchRec does not support it */
  }
  json_decref(root);
}

static void test_block_penalty(void **state)
{
  json_t *root, *row, *section = units_section(&root, "block_usage_penalty");
  size_t i;

  (void)state;
  json_array_foreach(section, i, row)
      assert_close(TrsBlockPenalty((int64_t)unit_at(row, 0)), unit_at(row, 1), 0, 0);
  json_decref(root);
}

/* Compute TorchRec's sums over features: ids in a rank's batch, and pooled rows. */
static void sum_batch(const json_t *x, PetscBool is_pooled, double *ids, double *rows)
{
  const json_t *l = json_object_get(x, "input_lengths"), *n = json_object_get(x, "num_poolings"),
               *b = json_object_get(x, "batch_sizes");

  *ids = *rows = 0;
  for (size_t f = 0; f < json_array_size(l); f++) {
    *ids += unit_at(l, f) * unit_at(n, f) * unit_at(b, f);
    *rows += PetscMin(1.0, unit_at(l, f)) * unit_at(n, f) * unit_at(b, f);
  }
  if (!is_pooled) *rows = *ids;
}

static void test_shard_perf(void **state)
{
  json_t *root, *x, *section = units_section(&root, "shard_perf");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    const json_t *expected = json_object_get(x, "perf");
    TrsPerfInput in = {.type = unit_type(unit_string(x, "sharding_type")),
                       .is_pooled = unit_bool(x, "is_pooled"),
                       .is_weighted = unit_bool(x, "is_weighted"),
                       .is_inference = unit_bool(x, "is_inference"),
                       .world_size = (int)unit_int(x, "world_size"),
                       .local_world_size = (int)unit_int(x, "local_world_size"),
                       .group = (int)unit_int(x, "intra_group_size"),
                       .elem = unit_real(x, "table_element_size"),
                       .a2a_fwd = unit_real(x, "fwd_a2a_size"),
                       .a2a_bwd = unit_real(x, "bwd_a2a_size"),
                       .sr_fwd = unit_real(x, "fwd_sr_size"),
                       .sr_bwd = unit_real(x, "bwd_sr_size"),
                       .kernel_bw = unit_real(x, "device_bw"),
                       .hbm_to_ddr_bw = unit_real(x, "hbm_to_ddr_mem_bw"),
                       .intra_host_bw = unit_real(x, "intra_host_bw"),
                       .inter_host_bw = unit_real(x, "inter_host_bw"),
                       .bwd_multiplier = unit_real(x, "bwd_compute_multiplier"),
                       .weighted_multiplier = unit_real(x, "weighted_feature_bwd_compute_multiplier"),
                       .missed_ids = unit_real(x, "expected_miss_rate") * unit_real(x, "expected_lookups")};
    TrsPerf perf;

    sum_batch(x, in.is_pooled, &in.n_ids, &in.n_rows);
    perf = TrsEstimatePerf(&in, unit_int(x, "shard_rows"), unit_int(x, "shard_cols"));
    assert_close(perf.fwd_compute, unit_real(expected, "fwd_compute"), 0, 1e-12);
    assert_close(perf.fwd_comms, unit_real(expected, "fwd_comms"), 0, 1e-12);
    assert_close(perf.bwd_compute, unit_real(expected, "bwd_compute"), 0, 1e-12);
    assert_close(perf.bwd_comms, unit_real(expected, "bwd_comms"), 0, 1e-12);
    assert_close(perf.prefetch_compute, unit_real(expected, "prefetch_compute"), 0, 1e-12);
    assert_close(TrsPerfTotal(&perf), unit_real(expected, "total"), 0, 1e-12);
  }
  json_decref(root);
}

static void test_pipeline_io(void **state)
{
  json_t *root, *row, *section = units_section(&root, "pipeline_io_cost");
  size_t i;

  (void)state;
  json_array_foreach(json_object_get(section, "rows"), i, row)
  {
    const json_t *passes = json_array_get(row, 4);
    TrsStorageInput in = {.pipeline = unit_pipeline(json_string_value(json_array_get(row, 3))),
                          .n_passes = json_is_null(passes) ? 1 : (int64_t)json_integer_value(passes),
                          .at_peak_memory = (PetscBool)json_is_true(json_array_get(row, 5)),
                          .is_inference = (PetscBool)json_is_true(json_array_get(row, 6))};

    assert_int_equal(TrsEstimatePipelineIo(&in, (int64_t)unit_at(row, 0), (int64_t)unit_at(row, 1),
                                           (int64_t)unit_at(row, 2)),
                     (int64_t)unit_at(row, 7));
  }
  json_decref(root);
}

static TrsOptimizerState state_of(const char *optimizer)
{
  if (!strcmp(optimizer, "none") || !strcmp(optimizer, "sgd")) return TRS_STATE_NONE;
  if (!strcmp(optimizer, "adam")) return TRS_STATE_TWO;
  return !strcmp(optimizer, "rowwise_adagrad") ? TRS_STATE_ROWWISE : TRS_STATE_ONE;
}

static void check_shards(const json_t *x, const TrsStorageInput *in)
{
  const json_t *sizes = json_object_get(x, "shard_sizes"), *storage = json_object_get(x, "storage");
  const json_t *inputs = json_object_get(x, "input_sizes"), *outputs = json_object_get(x, "output_sizes");

  assert_true(json_array_size(sizes) > 0);
  for (size_t k = 0; k < json_array_size(sizes); k++) {
    int64_t rows = (int64_t)unit_at(json_array_get(sizes, k), 0),
            cols = (int64_t)unit_at(json_array_get(sizes, k), 1);
    int64_t input, output;
    TrsStorage found = TrsEstimateStorage(in, rows, cols);

    TrsEstimateIo(in, rows, cols, &input, &output);
    assert_int_equal(input, (int64_t)unit_at(inputs, k));
    assert_int_equal(output, (int64_t)unit_at(outputs, k));
    assert_int_equal(found.hbm, (int64_t)unit_at(json_array_get(storage, k), 0));
    assert_int_equal(found.ddr, (int64_t)unit_at(json_array_get(storage, k), 1));
  }
}

static void test_shard_storage(void **state)
{
  json_t *root, *x, *section = units_section(&root, "shard_storages");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    TrsStorageInput in = {.type = unit_type(unit_string(x, "sharding_type")),
                          .kernel = unit_kernel(unit_string(x, "compute_kernel")),
                          .is_cuda = (PetscBool)!strcmp(unit_string(x, "compute_device"), "cuda"),
                          .is_pooled = unit_bool(x, "is_pooled"),
                          .is_inference = unit_bool(x, "is_inference"),
                          .at_peak_memory = unit_bool(x, "run_embedding_at_peak_memory"),
                          .pipeline = unit_pipeline(unit_string(x, "pipeline_type")),
                          .optimizer_state = state_of(unit_string(x, "optimizer")),
                          .world_size = (int)unit_int(x, "world_size"),
                          .group = (int)unit_int(x, "local_world_size"),
                          .n_rows = unit_int(x, "rows"),
                          .n_cols = unit_int(x, "cols"),
                          .out_bytes = unit_real(x, "output_data_type_size"),
                          .load_factor = unit_real(x, "caching_ratio"),
                          .n_passes = PetscMax(1, unit_int(x, "multipass_prefetch_max_pass"))};

    in.table_bytes = in.n_rows * in.n_cols * unit_int(x, "element_size");
    sum_batch(x, in.is_pooled, &in.ids, &in.rows_out);
    check_shards(x, &in);
  }
  json_decref(root);
}

/*
  A directory of ids adds host memory for each row, in training and inference, on cpu and cuda, and
  the same for each column shard. Without one, nothing changes: TorchRec's numbers above.
*/
static void test_directory(void **state)
{
  const TrsShardingType types[] = {TRS_SHARDING_TABLE_WISE, TRS_SHARDING_ROW_WISE, TRS_SHARDING_COLUMN_WISE,
                                   TRS_SHARDING_GRID_SHARD};

  (void)state;
  for (int i = 0; i < 16; i++) {
    TrsStorageInput in = {.type = types[i / 4],
                          .kernel = TRS_KERNEL_FUSED,
                          .is_cuda = (PetscBool)(i % 2),
                          .is_inference = (PetscBool)(i / 2 % 2),
                          .is_pooled = PETSC_TRUE,
                          .world_size = 2,
                          .group = 2,
                          .n_rows = 1000,
                          .n_cols = 16,
                          .table_bytes = 64000,
                          .ids = 10,
                          .rows_out = 10,
                          .out_bytes = 4,
                          .n_passes = 1};
    const TrsStorage before = TrsEstimateStorage(&in, 500, 8);
    TrsStorage with;

    in.keys_row_bytes = 24;
    with = TrsEstimateStorage(&in, 500, 8);
    assert_int_equal(with.hbm, before.hbm);
    assert_int_equal(with.ddr, before.ddr + 500 * 24);
  }
}

/*
  By hand: 7/2 is 3.5. 2^53 - 1 over 2 keeps its half. (2^54 + 1) / 4 = 2^52 + 1/4, whose double is
  2^52.
*/
static void test_rounded_quotient(void **state)
{
  (void)state;
  assert_int_equal(TrsCeilOfRoundedQuotient(7, 2), 4);
  assert_int_equal(TrsCeilOfRoundedQuotient(8, 2), 4);
  assert_int_equal(TrsCeilOfRoundedQuotient(1, 1000), 1);
  assert_int_equal(TrsCeilOfRoundedQuotient(0, 5), 0);
  assert_int_equal(TrsCeilOfRoundedQuotient(((TrsInt128)1 << 54) + 1, 4), INT64_C(1) << 52);
  assert_int_equal(TrsCeilOfRoundedQuotient(((TrsInt128)1 << 53) - 1, 2), INT64_C(1) << 52);
}

/* The shortcut equals the plain loop bit for bit. */
static void test_sum_repeated(void **state)
{
  double x = 1.0 / 3;

  (void)state;
  for (int trial = 0; trial < 200; trial++, x *= 1.37) {
    double sum = 0;

    if (trial % 7 == 0) x = (double)(trial + 1) * 0.5; /* includes ties and sums that are exact */
    for (int n = 0; n <= 3000; n++) {
      if (n % 97 == 0 || n < 9) assert_close(TrsSumRepeated(x, n), sum, 0, 0);
      sum += x;
    }
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_kernel_bandwidth), cmocka_unit_test(test_block_penalty),
              cmocka_unit_test(test_shard_perf), cmocka_unit_test(test_pipeline_io),
              cmocka_unit_test(test_shard_storage), cmocka_unit_test(test_directory),
              cmocka_unit_test(test_rounded_quotient), cmocka_unit_test(test_sum_repeated))
