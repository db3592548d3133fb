/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares the shards of every sharding type with the results of TorchRec's
  calculate_shard_sizes_and_offsets.
*/
#include "plan_units.h"

static void check_case(const json_t *x)
{
  int W = (int)unit_int(x, "world_size");
  TrsShardingType type = unit_type(unit_string(x, "sharding_type"));
  TrsTableConstraints constraints = {.sharding_types = 1u << type,
                                     .compute_kernels = 1u << TRS_KERNEL_DENSE | 1u << TRS_KERNEL_FUSED,
                                     .min_partition = unit_int(x, "min_partition")};
  TrsTableConfig table = {.num_embeddings = unit_int(x, "rows"),
                          .embedding_dim = (int)unit_int(x, "cols"),
                          .constraints = constraints};
  TrsTableConfigs tables = {1, &table};
  TrsTopology topology = {.is_cuda = PETSC_TRUE,
                          .world_size = W,
                          .local_world_size = (int)unit_int(x, "local_world_size"),
                          .pod_size = 1,
                          .group = (int)unit_int(x, "local_world_size")};
  TrsPlanSettings settings = {.batch_size = 1};
  TrsCostModel model = {&topology, &settings, &tables, NULL};
  const json_t *sizes = json_object_get(x, "sizes"), *offsets = json_object_get(x, "offsets");
  const json_t *memory = json_object_get(x, "device_memory_sizes");
  TrsSearchSpace space;
  TrsShardPlace place = {0};
  int table_alone;

  topology.hbm = calloc((size_t)W, sizeof(int64_t));
  topology.ddr = calloc((size_t)W, sizeof(int64_t));
  topology.uneven_own = (PetscBool)(memory != NULL);
  for (int r = 0; memory && r < W; r++) topology.hbm[r] = (int64_t)unit_at(memory, (size_t)r);
  assert_petsc_ok(TrsEnumerate(&model, &space, &table_alone));
  assert_int_equal(table_alone, -1);
  assert_int_equal(space.n_options, 1);
  assert_int_equal(space.option[0].n_shards, json_array_size(sizes));
  /* these counts are known without a loop over the shards */
  for (int k = 0; k < space.option[0].n_classes; k++) {
    int n = 0;

    for (int s = 0; s < space.option[0].n_shards; s++) n += TrsOptionShardClass(&space.option[0], s) == k;
    assert_int_equal(TrsOptionClassShards(&space.option[0], k), n);
  }
  for (int s = 0; s < space.option[0].n_shards; s++) {
    const json_t *size = json_array_get(sizes, (size_t)s), *offset = json_array_get(offsets, (size_t)s);

    TrsOptionNextPlace(&space.option[0], s, &place);
    assert_int_equal(place.rows, (int64_t)unit_at(size, 0));
    assert_int_equal(place.cols, (int64_t)unit_at(size, 1));
    assert_int_equal(place.row_offset, (int64_t)unit_at(offset, 0));
    assert_int_equal(place.col_offset, (int64_t)unit_at(offset, 1));
  }
  assert_petsc_ok(TrsSearchSpaceFree(&space));
  free(topology.hbm);
  free(topology.ddr);
}

static void test_shards(void **state)
{
  json_t *root, *x, *section = units_section(&root, "shard_sizes_and_offsets");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x) check_case(x);
  json_decref(root);
}

TRS_TEST_MAIN(cmocka_unit_test(test_shards))
