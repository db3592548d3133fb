/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares with golden data of FBGEMM's fused optimizers: pooled lookup, backward and update of one
  table, step by step, on every instruction set. The same steps also run with row gradients and
  given rows, as in data_parallel.
*/
#include "golden_h5.h"
#include "hosted_compute.h"

#include <math.h>

static const TrsComputeOps *compute;

typedef struct {
  const char *name, *state[2];
  TrsSparseOptimizerKind kind;
  int rowwise[2];
} optimizer;

static const optimizer optimizers[] = {
    {"sgd", {NULL, NULL}, TRS_OPTIM_SGD, {0, 0}},
    {"adagrad", {"momentum1", NULL}, TRS_OPTIM_ADAGRAD, {0, 0}},
    {"rowwise_adagrad", {"momentum1", NULL}, TRS_OPTIM_ROWWISE_ADAGRAD, {1, 0}},
    {"adam", {"exp_avg", "exp_avg_sq"}, TRS_OPTIM_ADAM, {0, 0}},
    {"partial_rowwise_adam", {"exp_avg", "exp_avg_sq"}, TRS_OPTIM_PARTIAL_ROWWISE_ADAM, {0, 1}},
    {"lamb", {"exp_avg", "exp_avg_sq"}, TRS_OPTIM_LAMB, {0, 0}},
    {"partial_rowwise_lamb", {"exp_avg", "exp_avg_sq"}, TRS_OPTIM_PARTIAL_ROWWISE_LAMB, {0, 1}},
    {"lars_sgd", {"momentum1", NULL}, TRS_OPTIM_LARS_SGD, {0, 0}},
    {"lion", {"exp_avg", NULL}, TRS_OPTIM_LION, {0, 0}},
};

/* One test case of the file. */
typedef struct {
  hid_t group;
  const optimizer *optimizer;
  TrsSparseOptimizerArgs args;
  float max_gradient;
  int64_t rows, dim;
  TrsTbeTable table;
  TrsTbeFeature feature;
  TrsTbe tbe;
  TrsWorkspace workspace;
} run;

static const optimizer *optimizer_named(const char *name)
{
  for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
    if (strcmp(optimizers[i].name, name) == 0) return &optimizers[i];
  fail_msg("unknown optimizer %s", name);
  return NULL;
}

static void run_read(hid_t group, run *r)
{
  char name[64], mode[32], pooling[32];
  int64_t shape[2];

  golden_string(group, "optimizer", name, sizeof(name));
  golden_string(group, "weight_decay_mode", mode, sizeof(mode));
  golden_string(group, "pooling", pooling, sizeof(pooling));
  *r = (run){.group = group, .optimizer = optimizer_named(name)};
  r->args = (TrsSparseOptimizerArgs){
      .kind = r->optimizer->kind,
      .weight_decay_mode = strcmp(mode, "l2") == 0         ? TRS_DECAY_L2
                           : strcmp(mode, "decouple") == 0 ? TRS_DECAY_DECOUPLE
                                                           : TRS_DECAY_NONE,
      .learning_rate = (float)golden_number(group, "lr", 0.0),
      .eps = (float)golden_number(group, "eps", 0.0),
      .beta1 = (float)golden_number(group, "beta1", 0.0),
      .beta2 = (float)golden_number(group, "beta2", 0.0),
      .weight_decay = (float)golden_number(group, "weight_decay", 0.0),
      .eta = (float)golden_number(group, "eta", 0.0),
      .momentum = (float)golden_number(group, "momentum", 0.0),
  };
  r->max_gradient = (float)golden_number(group, "max_gradient", 0.0);
  r->table.weight = golden_read(group, "in/weight", H5T_NATIVE_FLOAT, NULL, shape);
  r->rows = shape[0];
  r->dim = shape[1];
  r->table.rows = r->rows;
  r->table.stride = r->table.table_dim = r->dim;
  r->table.dim = (int32_t)r->dim;
  for (int s = 0; s < 2; s++)
    if (r->optimizer->state[s])
      r->table.state[s] = calloc((size_t)(r->rows * (r->optimizer->rowwise[s] ? 1 : r->dim)), sizeof(float));
  r->feature.mean = strcmp(pooling, "mean") == 0;
  r->tbe = (TrsTbe){1, 1, &r->table, &r->feature};
  assert_petsc_ok(compute->workspace_create(&r->workspace));
}

static void run_free(run *r)
{
  assert_petsc_ok(compute->workspace_destroy(&r->workspace));
  free(r->table.weight);
  free(r->table.state[0]);
  free(r->table.state[1]);
}

/* The name of a dataset of step s, for example "in/indices0". */
static const char *of_step(const char *name, int step)
{
  static char path[64];

  snprintf(path, sizeof(path), "%s%d", name, step);
  return path;
}

static void assert_near(const run *r, const char *what, const float *found, const char *path)
{
  int64_t n = 0;
  double *expected = golden_double(r->group, path, &n);

  for (int64_t i = 0; i < n; i++) {
    const double difference = fabs((double)found[i] - expected[i]);

    /* the tolerance of the golden file units_optim */
    if (!(difference <= 2e-6 * (1.0 + fabs(expected[i]))))
      fail_msg("%s: %s[%d] is %.9g, expected %.9g", what, path, (int)i, (double)found[i], expected[i]);
  }
  free(expected);
}

/* As in data_parallel, first sum the gradients of each row, then update the rows. */
static void update_in_two_steps(run *r, const TrsTbeInput *input, const float *grad)
{
  int64_t begin[2] = {0}, *rows = calloc((size_t)input->n_values + 1, sizeof(*rows));
  float *row_grad = calloc((size_t)(input->n_values * r->dim) + 1, sizeof(*row_grad));

  assert_petsc_ok(compute->tbe_row_gradients(NULL, r->workspace, &r->tbe, input, TrsFloats(grad, r->dim),
                                             begin, rows, row_grad, r->dim));
  for (int64_t i = 1; i < begin[1]; i++) assert_true(rows[i - 1] < rows[i]);
  assert_petsc_ok(compute->tbe_update_rows(NULL, r->workspace, 1, &r->table,
                                           &(TrsRowGradients){begin[1], rows, NULL, row_grad, r->dim},
                                           &r->args));
  free(rows);
  free(row_grad);
}

static void one_step(run *r, const char *name, int step, PetscBool two_steps)
{
  int64_t n_offsets = 0, n_values = 0;
  int64_t *offsets = golden_int64(r->group, of_step("in/offsets", step), &n_offsets);
  int64_t *values = golden_int64(r->group, of_step("in/indices", step), &n_values);
  float *grad = golden_float(r->group, of_step("in/grad_output", step), NULL), *weights = NULL;
  float *out = calloc((size_t)(n_offsets * r->dim), sizeof(*out));
  TrsTbeInput input = {.batch = n_offsets - 1, .offsets = offsets, .values = values, .n_values = n_values};

  if (golden_has(r->group, of_step("in/weights", step)))
    input.weights = weights = golden_float(r->group, of_step("in/weights", step), NULL);
  assert_petsc_ok(compute->tbe_forward(NULL, r->workspace, &r->tbe, &input, TrsFloats(out, r->dim)));
  assert_near(r, name, out, of_step("out/output", step));
  r->args.step = step + 1;
  /*
    src/RULES.md, rule A9: train/dense_work.c clamps gradients before the kernels run, and so does
    this test
  */
  if (r->max_gradient > 0.0f)
    assert_petsc_ok(compute->clamp_matrix(NULL, input.batch, r->dim, r->max_gradient, grad, r->dim));
  if (two_steps)
    update_in_two_steps(r, &input, grad);
  else
    assert_petsc_ok(
        compute->tbe_backward(NULL, r->workspace, &r->tbe, &input, TrsFloats(grad, r->dim), &r->args));
  free(offsets);
  free(values);
  free(grad);
  free(weights);
  free(out);
}

static void one_group(hid_t group, const char *name, void *context)
{
  const PetscBool two_steps = *(const PetscBool *)context;
  const int steps = (int)golden_number(group, "steps", 1.0);
  run r;

  run_read(group, &r);
  for (int step = 0; step < steps; step++) one_step(&r, name, step, two_steps);
  assert_near(&r, name, (const float *)r.table.weight, "out/weight");
  for (int s = 0; s < 2; s++) {
    char path[64];

    if (!r.optimizer->state[s]) continue;
    snprintf(path, sizeof(path), "out/%s", r.optimizer->state[s]);
    assert_near(&r, name, r.table.state[s], path);
  }
  run_free(&r);
}

static void test_golden(void **state)
{
  static const char *const isas[] = {"portable", "avx2", "avx512"};
  hid_t file = golden_open("units_optim.h5");

  (void)state;
  for (int backend = 0; (compute = trs_hosted(backend)); backend++)
    for (int i = backend == 0 ? 0 : 2; i < 3; i++) {
      TrsComputeSetIsa(isas[i]);
      for (int two_steps = 0; two_steps < 2; two_steps++) {
        PetscBool context = (PetscBool)two_steps;

        golden_for_each_group(file, one_group, &context);
      }
    }
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden))
