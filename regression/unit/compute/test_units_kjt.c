/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares with golden data of FBGEMM and TorchRec: permute, split, bucketize and offsets of jagged
  tensors, on every instruction set.
*/
#include "golden_h5.h"
#include "hosted_compute.h"

static const TrsComputeOps *compute;

static void jagged_free(TrsJagged *jagged)
{
  free(jagged->lengths);
  free(jagged->offsets);
  free(jagged->values);
  free(jagged->weights);
}

static TrsJagged jagged_read(hid_t group, const char *folder)
{
  TrsJagged jagged = {0};
  char path[128];

  snprintf(path, sizeof(path), "%s/lengths", folder);
  jagged.lengths = golden_int32(group, path, &jagged.n_bags);
  snprintf(path, sizeof(path), "%s/values", folder);
  jagged.values = golden_int64(group, path, &jagged.n_values);
  snprintf(path, sizeof(path), "%s/weights", folder);
  if (golden_has(group, path)) jagged.weights = golden_float(group, path, NULL);
  jagged.offsets = calloc((size_t)jagged.n_bags + 1, sizeof(int64_t));
  assert_petsc_ok(compute->offsets(NULL, jagged.n_bags, jagged.lengths, jagged.offsets));
  return jagged;
}

/* Memory for a result. It is filled with a value that no result contains. */
static TrsJagged jagged_room(int64_t n_bags, int64_t n_values, PetscBool weighted)
{
  TrsJagged jagged = {.lengths = malloc(((size_t)n_bags + 1) * sizeof(int32_t)),
                      .offsets = malloc(((size_t)n_bags + 1) * sizeof(int64_t)),
                      .values = malloc(((size_t)n_values + 1) * sizeof(int64_t)),
                      .weights = weighted ? malloc(((size_t)n_values + 1) * sizeof(float)) : NULL,
                      .n_bags = -1,
                      .n_values = -1};

  memset(jagged.lengths, 0x55, ((size_t)n_bags + 1) * sizeof(int32_t));
  memset(jagged.values, 0x55, ((size_t)n_values + 1) * sizeof(int64_t));
  if (weighted) memset(jagged.weights, 0x55, ((size_t)n_values + 1) * sizeof(float));
  return jagged;
}

static void assert_same(const TrsJagged *found, const TrsJagged *expected)
{
  assert_int_equal(found->n_bags, expected->n_bags);
  assert_int_equal(found->n_values, expected->n_values);
  assert_memory_equal(found->lengths, expected->lengths, (size_t)expected->n_bags * sizeof(int32_t));
  assert_memory_equal(found->offsets, expected->offsets, ((size_t)expected->n_bags + 1) * sizeof(int64_t));
  assert_memory_equal(found->values, expected->values, (size_t)expected->n_values * sizeof(int64_t));
  if (expected->weights)
    assert_memory_equal(found->weights, expected->weights, (size_t)expected->n_values * sizeof(float));
}

static void check_permutation(const TrsJagged *in, int n_in, int64_t stride, int n_out,
                              const int *permutation, const TrsJagged *expected)
{
  TrsWorkspace workspace = NULL;
  TrsJagged places = *in,
            out = jagged_room(expected->n_bags, expected->n_values, (PetscBool)(in->weights != NULL));
  int64_t *begin = calloc((size_t)n_in + 1, sizeof(*begin));

  for (int i = 0; i <= n_in; i++) begin[i] = i * stride;
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->permute_blocks(NULL, workspace, n_in, begin, n_out, permutation, in, &out));
  assert_same(&out, expected);
  places.values = NULL; /* permute the indices of the values instead of the values */
  places.weights = NULL;
  memset(out.values, 0x55, (size_t)expected->n_values * sizeof(int64_t));
  assert_petsc_ok(compute->permute_blocks(NULL, workspace, n_in, begin, n_out, permutation, &places, &out));
  for (int64_t i = 0; i < expected->n_values; i++) {
    assert_in_range(out.values[i], 0, in->n_values - 1);
    assert_int_equal(in->values[out.values[i]], expected->values[i]);
  }
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  free(begin);
  jagged_free(&out);
}

static void check_permute(hid_t group, const TrsJagged *in, int n_keys, int64_t stride)
{
  TrsJagged expected = jagged_read(group, "out");
  int64_t n = 0, *indices = golden_attribute_int64(group, "indices", &n);
  int *permutation = calloc((size_t)n + 1, sizeof(*permutation));

  for (int64_t j = 0; j < n; j++) permutation[j] = (int)indices[j];
  check_permutation(in, n_keys, stride, (int)n, permutation, &expected);
  free(permutation);
  free(indices);
  jagged_free(&expected);
}

/* A split is tested as a permutation of consecutive blocks. */
static void check_split(hid_t group, const TrsJagged *in, int n_keys, int64_t stride)
{
  int64_t n = 0, *segments = golden_attribute_int64(group, "segments", &n);
  int first = 0;

  for (int64_t part = 0; part < n; part++) {
    int *permutation = calloc((size_t)segments[part] + 1, sizeof(*permutation));
    char folder[64];
    TrsJagged expected;

    snprintf(folder, sizeof(folder), "out/part%d", (int)part);
    expected = jagged_read(group, folder);
    for (int j = 0; j < segments[part]; j++) permutation[j] = first + j;
    check_permutation(in, n_keys, stride, (int)segments[part], permutation, &expected);
    first += (int)segments[part];
    free(permutation);
    jagged_free(&expected);
  }
  free(segments);
}

/*
  Compute the positions of ids in their bags. places has the index to which bucketize moved each id.
*/
static void check_positions(hid_t group, const TrsJagged *in, const int64_t *places)
{
  int64_t *golden = golden_int64(group, "out/pos", NULL);

  for (int64_t bag = 0; bag < in->n_bags; bag++)
    for (int64_t i = in->offsets[bag]; i < in->offsets[bag + 1]; i++)
      assert_int_equal(golden[places[i]], i - in->offsets[bag]);
  free(golden);
}

/* If FBGEMM keeps global ids, the result's places identify each id. */
static void check_bucketize(hid_t group, const TrsJagged *in, int n_keys, int64_t stride)
{
  const int n_buckets = (int)golden_number(group, "my_size", 0.0);
  int64_t *block_sizes = golden_int64(group, "in/block_sizes", NULL);
  TrsJagged expected = jagged_read(group, "out");
  TrsJagged out = jagged_room(expected.n_bags, expected.n_values, (PetscBool)(in->weights != NULL));
  TrsBucketSpec *spec = calloc((size_t)n_keys, sizeof(*spec));
  int64_t *places = calloc((size_t)in->n_values + 1, sizeof(*places));
  TrsWorkspace workspace = NULL;

  for (int f = 0; f < n_keys; f++) {
    char path[64];

    snprintf(path, sizeof(path), "in/block_pos%d", f);
    spec[f].bucket_rows = block_sizes[f];
    if (golden_has(group, path)) spec[f].bounds = golden_int64(group, path, NULL);
  }
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->bucketize(NULL, workspace, n_buckets, n_keys, stride, spec, in, &out, places));
  if (golden_number(group, "keep_orig_idx", 0.0) > 0.0)
    for (int64_t i = 0; i < in->n_values; i++) out.values[places[i]] = in->values[i];
  assert_same(&out, &expected);
  if (golden_has(group, "out/unbucketize_permute")) {
    int64_t *golden = golden_int64(group, "out/unbucketize_permute", NULL);

    assert_memory_equal(places, golden, (size_t)in->n_values * sizeof(*golden));
    free(golden);
  }
  if (golden_has(group, "out/pos")) check_positions(group, in, places);
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  for (int f = 0; f < n_keys; f++) free((void *)(uintptr_t)spec[f].bounds);
  free(spec);
  free(places);
  free(block_sizes);
  jagged_free(&out);
  jagged_free(&expected);
}

static void check_offsets(hid_t group, const TrsJagged *in)
{
  int64_t n = 0, *offsets = golden_int64(group, "out/offsets", &n);

  assert_int_equal(n, in->n_bags + 1);
  assert_memory_equal(in->offsets, offsets, (size_t)n * sizeof(*offsets));
  free(offsets);
}

static void one_group(hid_t group, const char *name, void *context)
{
  const int64_t stride = (int64_t)golden_number(group, "stride", 0.0);
  TrsJagged in = jagged_read(group, "in");
  int64_t n_keys = 0;

  (void)context;
  free(golden_strings(group, "in/keys", &n_keys));
  if (golden_has_attribute(group, "indices"))
    check_permute(group, &in, (int)n_keys, stride);
  else if (golden_has_attribute(group, "segments"))
    check_split(group, &in, (int)n_keys, stride);
  else if (golden_has_attribute(group, "my_size"))
    check_bucketize(group, &in, (int)n_keys, stride);
  else if (golden_has(group, "out/offsets"))
    check_offsets(group, &in);
  else
    fail_msg("%s: a test of a kind unknown here", name);
  jagged_free(&in);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_kjt.h5");

  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) golden_for_each_group(file, one_group, NULL);
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden))
