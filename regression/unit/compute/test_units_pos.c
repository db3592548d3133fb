/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: portable avx2 */
/*
  Compares with golden data of TorchRec's PositionWeightedModuleCollection: weights by position,
  their gradients, and both together with sum pooling.
*/
#include "golden_h5.h"
#include "hosted_compute.h"

enum { MAX_FEATURES = 8 };

static const TrsComputeOps *compute;

static void assert_all_close(const float *found, const float *wanted, int64_t n)
{
  for (int64_t i = 0; i < n; i++) assert_close(found[i], wanted[i], 1e-6, 1e-6);
}

/* One group of the file. */
typedef struct {
  int n_features;
  int64_t stride, n_values, dim;
  int64_t length[MAX_FEATURES];
  float *by_position[MAX_FEATURES], *table[MAX_FEATURES];
  int64_t *values, *offsets;
  float *positions, *weights;
  TrsWorkspace workspace;
} Case;

static float *read_numbered(hid_t group, const char *stem, int f, int64_t *n, int64_t shape[2])
{
  char path[64];

  snprintf(path, sizeof(path), "%s%d", stem, f);
  return (float *)golden_read(group, path, H5T_NATIVE_FLOAT, n, shape);
}

static void check_gradients(const Case *c, hid_t group, const char *stem, const float *grad_weights)
{
  for (int f = 0; f < c->n_features; f++) {
    float *wanted = read_numbered(group, stem, f, NULL, NULL);
    float *found = calloc((size_t)c->length[f] + 1, sizeof(*found));
    assert_petsc_ok(compute->position_gradients(NULL, c->workspace, c->stride, c->offsets + f * c->stride,
                                                c->positions, grad_weights, c->length[f], found));
    assert_all_close(found, wanted, c->length[f]);
    free(found);
    free(wanted);
  }
}

/*
  Check sum pooling with these weights: the lookup, and the gradients of the weights and of the
  tables.
*/
static void check_pooled(const Case *c, hid_t group)
{
  int64_t columns = c->n_features * c->dim;
  float *wanted = (float *)golden_read(group, "out/pooled", H5T_NATIVE_FLOAT, NULL, NULL);
  float *grad = (float *)golden_read(group, "in/grad_pooled", H5T_NATIVE_FLOAT, NULL, NULL);
  float *out = calloc((size_t)(c->stride * columns) + 1, sizeof(*out));
  float *grad_weights = calloc((size_t)c->n_values + 1, sizeof(*grad_weights));
  TrsTbeTable table[MAX_FEATURES] = {{0}};
  TrsTbeFeature feature[MAX_FEATURES] = {{0}};
  const TrsTbe tbe = {
      .n_tables = c->n_features, .n_features = c->n_features, .table = table, .feature = feature};
  const TrsTbeInput input = {.batch = c->stride,
                             .offsets = c->offsets,
                             .values = c->values,
                             .weights = c->weights,
                             .n_values = c->n_values};
  const TrsSparseOptimizerArgs descend = {.kind = TRS_OPTIM_SGD, .learning_rate = 1.0F, .step = 1};

  for (int f = 0; f < c->n_features; f++) {
    int64_t shape[2];
    free(read_numbered(group, "in/table", f, NULL, shape));
    table[f] = (TrsTbeTable){.weight = c->table[f],
                             .rows = shape[0],
                             .stride = c->dim,
                             .dim = (int32_t)c->dim,
                             .table_dim = c->dim};
    feature[f] = (TrsTbeFeature){.table = f, .out_column = f * c->dim};
  }
  assert_petsc_ok(compute->tbe_forward(NULL, c->workspace, &tbe, &input, TrsFloats(out, columns)));
  assert_all_close(out, wanted, c->stride * columns);
  assert_petsc_ok(
      compute->tbe_weight_gradients(NULL, c->workspace, &tbe, &input, grad, columns, grad_weights));
  check_gradients(c, group, "out/pooled_grad_position_weight", grad_weights);
  assert_petsc_ok(
      compute->tbe_backward(NULL, c->workspace, &tbe, &input, TrsFloats(grad, columns), &descend));
  for (int f = 0; f < c->n_features; f++) {
    int64_t n;
    float *before = read_numbered(group, "in/table", f, &n, NULL),
          *change = read_numbered(group, "out/grad_table", f, NULL, NULL);
    for (int64_t i = 0; i < n; i++) before[i] -= c->table[f][i];
    assert_all_close(before, change, n);
    free(before);
    free(change);
  }
  free(wanted);
  free(grad);
  free(out);
  free(grad_weights);
}

static void one_group(hid_t group, const char *name, void *context)
{
  Case c = {.stride = (int64_t)golden_number(group, "stride", 0.0)};
  int64_t n_bags, shape[2];
  int32_t *lengths = golden_int32(group, "in/lengths", &n_bags);
  float *wanted = (float *)golden_read(group, "out/weights", H5T_NATIVE_FLOAT, NULL, NULL);
  float *grad_weights = (float *)golden_read(group, "in/grad_weights", H5T_NATIVE_FLOAT, NULL, NULL);

  (void)name;
  (void)context;
  c.n_features = (int)(n_bags / c.stride);
  assert_in_range(c.n_features, 1, MAX_FEATURES);
  c.values = golden_int64(group, "in/values", &c.n_values);
  c.offsets = calloc((size_t)n_bags + 1, sizeof(*c.offsets));
  c.positions = calloc((size_t)c.n_values + 1, sizeof(*c.positions));
  c.weights = calloc((size_t)c.n_values + 1, sizeof(*c.weights));
  assert_petsc_ok(compute->workspace_create(&c.workspace));
  assert_petsc_ok(compute->offsets(NULL, n_bags, lengths, c.offsets));
  assert_petsc_ok(compute->positions(NULL, n_bags, c.offsets, c.positions));
  for (int f = 0; f < c.n_features; f++) {
    c.by_position[f] = read_numbered(group, "in/position_weight", f, &c.length[f], NULL);
    c.table[f] = read_numbered(group, "in/table", f, NULL, shape);
    c.dim = shape[1];
    assert_petsc_ok(compute->position_weights(NULL, c.stride, c.offsets + f * c.stride, c.positions,
                                              c.length[f], c.by_position[f], c.weights));
  }
  assert_memory_equal(c.weights, wanted, (size_t)c.n_values * sizeof(*wanted));
  check_gradients(&c, group, "out/grad_position_weight", grad_weights);
  check_pooled(&c, group);
  assert_petsc_ok(compute->workspace_destroy(&c.workspace));
  for (int f = 0; f < c.n_features; f++) {
    free(c.by_position[f]);
    free(c.table[f]);
  }
  free(c.values);
  free(c.offsets);
  free(c.positions);
  free(c.weights);
  free(lengths);
  free(wanted);
  free(grad_weights);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_pos.h5");

  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) golden_for_each_group(file, one_group, NULL);
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden))
