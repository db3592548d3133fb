/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares KeyedJaggedTensor operations with TorchRec: the groups permute, split and offsets of
  units_kjt.h5 must agree exactly. unit/compute tests the other groups, which are for kernels.
*/
#include "golden_h5.h"
#include "sparse/kjt.h"
#include "trs_test.h"

#include <string.h>

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;
static int n_tested;

static void read_kjt(hid_t group, TrsKjt *kjt)
{
  const int64_t stride = (int64_t)golden_number(group, "stride", 0.0);
  int64_t n_lengths, n_values;
  int32_t *lengths = golden_int32(group, "in/lengths", &n_lengths);
  int64_t *values = golden_int64(group, "in/values", &n_values);
  const PetscBool weighted = (PetscBool)golden_has(group, "in/weights");

  assert_petsc_ok(TrsKjtReserve(device, kjt, (int)(n_lengths / stride), stride, n_values, weighted));
  memcpy(kjt->jagged.lengths, lengths, (size_t)n_lengths * sizeof(*lengths));
  if (n_values > 0) memcpy(kjt->jagged.values, values, (size_t)n_values * sizeof(*values));
  if (weighted && n_values > 0) {
    float *weights = golden_float(group, "in/weights", NULL);
    memcpy(kjt->jagged.weights, weights, (size_t)n_values * sizeof(*weights));
    free(weights);
  }
  assert_petsc_ok(TrsKjtOffsets(compute, NULL, kjt));
  free(lengths);
  free(values);
}

/* Compare `found`, which may be a view, with the datasets below `side`. */
static void compare_kjt(hid_t group, const char *side, const TrsKjt *found)
{
  char path[64];
  int64_t n_lengths, n_values, *lengths, *values, begin, n;
  float *weights = NULL;

  snprintf(path, sizeof(path), "%s/lengths", side);
  lengths = golden_int64(group, path, &n_lengths);
  snprintf(path, sizeof(path), "%s/values", side);
  values = golden_int64(group, path, &n_values);
  snprintf(path, sizeof(path), "%s/weights", side);
  if (golden_has(group, path)) weights = golden_float(group, path, NULL);
  assert_int_equal(found->jagged.n_bags, n_lengths);
  begin = found->jagged.offsets[0];
  n = found->jagged.offsets[n_lengths] - begin;
  assert_int_equal(n, n_values);
  for (int64_t i = 0; i < n_lengths; i++) {
    assert_int_equal(found->jagged.lengths[i], lengths[i]);
    assert_int_equal(found->jagged.offsets[i + 1] - found->jagged.offsets[i], lengths[i]);
  }
  for (int64_t i = 0; i < n; i++) {
    assert_int_equal(found->jagged.values[begin + i], values[i]);
    if (weights) assert_true(found->jagged.weights[begin + i] == weights[i]);
  }
  free(lengths);
  free(values);
  free(weights);
}

static void check_permute(hid_t group, const TrsKjt *in)
{
  int64_t n, *indices = golden_attribute_int64(group, "indices", &n);
  int *index = calloc((size_t)n + 1, sizeof(*index));
  TrsWorkspace workspace;
  TrsKjt out = {0};

  for (int64_t i = 0; i < n; i++) index[i] = (int)indices[i];
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(TrsKjtPermute(device, compute, NULL, workspace, in, (int)n, index, &out));
  assert_int_equal(out.n_features, n);
  assert_int_equal(out.batch, in->batch);
  compare_kjt(group, "out", &out);
  assert_petsc_ok(TrsKjtFree(device, &out));
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  free(indices);
  free(index);
}

static void check_split(hid_t group, const TrsKjt *in)
{
  int64_t n, *segments = golden_attribute_int64(group, "segments", &n);

  for (int64_t p = 0, begin = 0; p < n; begin += segments[p++]) {
    char side[32];
    TrsKjt view;
    snprintf(side, sizeof(side), "out/part%d", (int)p);
    assert_petsc_ok(TrsKjtView(in, (int)begin, (int)segments[p], &view));
    compare_kjt(group, side, &view);
  }
  free(segments);
}

static void check_offsets(hid_t group, const TrsKjt *in)
{
  int64_t n, *offsets = golden_int64(group, "out/offsets", &n);

  assert_int_equal(n, in->jagged.n_bags + 1);
  for (int64_t i = 0; i < n; i++) assert_int_equal(in->jagged.offsets[i], offsets[i]);
  free(offsets);
  offsets = golden_int64(group, "out/offset_per_key", &n);
  for (int64_t f = 0; f < n; f++) assert_int_equal(in->jagged.offsets[f * in->batch], offsets[f]);
  free(offsets);
}

static void visit(hid_t group, const char *name, void *context)
{
  TrsKjt in = {0};

  (void)context;
  if (strncmp(name, "bucketize", 9) == 0) return;
  read_kjt(group, &in);
  if (strncmp(name, "permute", 7) == 0) {
    check_permute(group, &in);
  } else if (strncmp(name, "split", 5) == 0) {
    check_split(group, &in);
  } else if (strncmp(name, "offsets", 7) == 0) {
    check_offsets(group, &in);
  } else {
    fail_msg("nobody tests %s", name);
  }
  n_tested++;
  assert_petsc_ok(TrsKjtFree(device, &in));
}

static void test_units_kjt(void **state)
{
  hid_t file = golden_open("units_kjt.h5");

  (void)state;
  golden_for_each_group(file, visit, NULL);
  assert_true(n_tested > 0);
  golden_close(file);
}

/* By hand: features with 2, 0 and 3 bags in the order 2, 0, 0, 1, and a part of this result. */
static void test_variable_batch(void **state)
{
  const int64_t strides[3] = {2, 0, 3}, ids[6] = {10, 11, 12, 30, 31, 32};
  const int32_t lengths[5] = {1, 2, 2, 0, 1};
  const int order[4] = {2, 0, 0, 1};
  const int32_t expected_lengths[7] = {2, 0, 1, 1, 2, 1, 2};
  const int64_t expected_ids[9] = {30, 31, 32, 10, 11, 12, 10, 11, 12}, expected_strides[4] = {3, 2, 2, 0};
  TrsKjt in = {0}, out = {0}, view;
  TrsWorkspace workspace;

  (void)state;
  assert_petsc_ok(TrsKjtReserveVariable(device, &in, 3, strides, 6, PETSC_FALSE));
  assert_int_equal(in.batch, TRS_KJT_VARIABLE);
  memcpy(in.jagged.lengths, lengths, sizeof(lengths));
  memcpy(in.jagged.values, ids, sizeof(ids));
  assert_petsc_ok(TrsKjtOffsets(compute, NULL, &in));
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(TrsKjtPermute(device, compute, NULL, workspace, &in, 4, order, &out));
  for (int f = 0; f < 4; f++) assert_int_equal(TrsKjtStride(&out, f), expected_strides[f]);
  assert_int_equal(out.jagged.n_bags, 7);
  assert_memory_equal(out.jagged.lengths, expected_lengths, sizeof(expected_lengths));
  assert_int_equal(out.jagged.n_values, 9);
  assert_memory_equal(out.jagged.values, expected_ids, sizeof(expected_ids));
  assert_petsc_ok(TrsKjtView(&in, 1, 2, &view));
  assert_int_equal(view.jagged.n_bags, 3);
  assert_int_equal(view.jagged.offsets[0], 3);
  assert_int_equal(TrsKjtStride(&view, 1), 3);
  assert_petsc_error(TrsKjtView(&in, 2, 2, &view), TRS_ERR_INTERNAL);
  assert_petsc_error(TrsKjtPermute(device, compute, NULL, workspace, &in, 1, (const int[1]){3}, &out),
                     TRS_ERR_INTERNAL);
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  assert_petsc_ok(TrsKjtFree(device, &in));
  assert_petsc_ok(TrsKjtFree(device, &out));
}

static int set_up(void **state)
{
  (void)state;
  return TrsDeviceFind("cpu", &device) || TrsComputeFind("cpu", &compute);
}

TRS_TEST_MAIN(cmocka_unit_test_setup(test_units_kjt, set_up),
              cmocka_unit_test_setup(test_variable_batch, set_up))
