/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: portable avx2 */
/*
  Compares DLRM with a reference that computes the definitions in double (src/RULES.md, rules A1 to
  A5). Loss and predictions are compared directly. Gradients are compared with central differences
  of the reference's loss.
*/
#include "core/random/random.h"
#include "model/dlrm.h"
#include "trs_test.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_BATCH = 4, MAX_WIDTH = 128, MAX_LAYERS = 4 };

typedef struct {
  int num_dense, n_embeddings;
  int dims[4];
  int n_dense_arch, dense_arch[MAX_LAYERS];
  int n_over_arch, over_arch[MAX_LAYERS];
  int kind, n_cross, rank; /* kind: 0 dot, 1 dcn, 2 cat */
  const char *arguments[16];
} Case;

static const Case cases[] = {
    {5, 3, {4, 4, 4}, 2, {6, 4}, 2, {5, 1}, 0, 0, 0, {"-dense_arch", "6,4", "-over_arch", "5,1"}},
    {0, 3, {4, 4, 4}, 0, {0}, 3, {7, 5, 1}, 0, 0, 0, {"-over_arch", "7,5,1"}},
    {3,
     2,
     {4, 4},
     1,
     {4},
     2,
     {5, 1},
     1,
     2,
     3,
     {"-dense_arch", "4", "-over_arch", "5,1", "-interaction", "dcn", "-dcn_num_layers", "2",
      "-dcn_low_rank_dim", "3"}},
    {0,
     2,
     {3, 3},
     0,
     {0},
     2,
     {5, 1},
     1,
     1,
     2,
     {"-over_arch", "5,1", "-interaction", "dcn", "-dcn_num_layers", "1", "-dcn_low_rank_dim", "2"}},
    {3,
     2,
     {2, 5},
     2,
     {6, 3},
     2,
     {5, 1},
     2,
     0,
     0,
     {"-dense_arch", "6,3", "-over_arch", "5,1", "-interaction", "cat"}},
    {0, 1, {5}, 0, {0}, 2, {4, 1}, 2, 0, 0, {"-over_arch", "4,1", "-interaction", "cat"}},
};

static TrsOptions options_of(const char *const *arguments)
{
  static const TrsOptionGroup *const groups[] = {&trs_model_options, &trs_tasks_options, &trs_task_options,
                                                 &trs_heads_options};
  char *argv[20] = {(char *)(uintptr_t) "test"};
  TrsOptions options;
  int argc = 1;

  while (arguments[argc - 1]) {
    argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
    argc++;
  }
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 4, &options));
  return options;
}

static void create(const char *const *arguments, TrsOptions *options, TrsDlrm *dlrm)
{
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;

  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  *options = options_of(arguments);
  assert_petsc_ok(TrsDlrmCreate(device, compute, dlrm));
}

/* --- the reference --- */

typedef struct {
  int n;
  const TrsDenseParameter *param;
  double *value[32]; /* copies of the model's parameters */
} Reference;

static double *find(const Reference *reference, const char *module, int layer, const char *part)
{
  char name[64];

  snprintf(name, sizeof(name), "%s/%d/%s", module, layer, part);
  for (int p = 0; p < reference->n; p++)
    if (!strcmp(reference->param[p].name, name)) return reference->value[p];
  print_error("no parameter %s\n", name);
  fail();
  return NULL;
}

/* Apply the layers of an arch to x [in]. The result is x [n]; the function returns n. */
static int mlp(const Reference *reference, const char *module, int n_layers, const int *out, int relu_last,
               int in, double *x)
{
  for (int l = 0; l < n_layers; l++) {
    const double *w = find(reference, module, l, "weight"), *bias = find(reference, module, l, "bias");
    double y[MAX_WIDTH];

    for (int o = 0; o < out[l]; o++) {
      y[o] = bias[o];
      for (int i = 0; i < in; i++) y[o] += w[o * in + i] * x[i];
      if ((l + 1 < n_layers || relu_last) && y[o] < 0.0) y[o] = 0.0;
    }
    in = out[l];
    memcpy(x, y, (size_t)in * sizeof(double));
  }
  return in;
}

static int interact(const Reference *reference, const Case *c, int n_vectors, int D, int N, const double *x,
                    double *out)
{
  int width = 0;

  if (c->kind == 0) {
    if (c->num_dense)
      for (; width < D; width++) out[width] = x[width];
    for (int i = 0; i < n_vectors; i++) {
      for (int j = i + 1; j < n_vectors; j++, width++) {
        out[width] = 0.0;
        for (int d = 0; d < D; d++) out[width] += x[i * D + d] * x[j * D + d];
      }
    }
    return width;
  }
  memcpy(out, x, (size_t)N * sizeof(double));
  for (int l = 0; l < (c->kind == 1 ? c->n_cross : 0); l++) {
    const double *W = find(reference, "crossnet", l, "W"), *V = find(reference, "crossnet", l, "V");
    const double *bias = find(reference, "crossnet", l, "bias");
    double v[MAX_WIDTH] = {0.0};

    for (int r = 0; r < c->rank; r++)
      for (int i = 0; i < N; i++) v[r] += V[r * N + i] * out[i];
    for (int i = 0; i < N; i++) {
      double u = bias[i];

      for (int r = 0; r < c->rank; r++) u += W[i * c->rank + r] * v[r];
      out[i] += x[i] * u;
    }
  }
  return N;
}

/* The logit of one sample, from its dense features and its embeddings, which are adjacent. */
static double logit(const Reference *reference, const Case *c, const double *dense, const double *embeddings)
{
  double x[MAX_WIDTH], out[MAX_WIDTH];
  int N = 0, D = c->dims[0], width;

  if (c->num_dense) {
    memcpy(x, dense, (size_t)c->num_dense * sizeof(double));
    N = mlp(reference, "dense_arch", c->n_dense_arch, c->dense_arch, 1, c->num_dense, x);
  }
  for (int f = 0; f < c->n_embeddings; f++)
    for (int d = 0; d < c->dims[f]; d++) x[N++] = *embeddings++;
  width = interact(reference, c, c->n_embeddings + (c->num_dense > 0), D, N, x, out);
  mlp(reference, "over_arch", c->n_over_arch, c->over_arch, 0, width, out);
  return out[0];
}

typedef struct {
  int n, width; /* number of samples; number of floats in a sample's embeddings */
  double dense[MAX_BATCH * 8], embeddings[MAX_BATCH * MAX_WIDTH], labels[MAX_BATCH];
} Batch;

static double reference_loss(const Reference *reference, const Case *c, const Batch *batch)
{
  double loss = 0.0;

  for (int b = 0; b < batch->n; b++) {
    const double z = logit(reference, c, batch->dense + b * c->num_dense,
                           batch->embeddings + b * batch->width);

    loss += fmax(z, 0.0) - z * batch->labels[b] + log1p(exp(-fabs(z)));
  }
  return loss;
}

/* The derivative of the loss with respect to *x, by central differences. */
static double slope(const Reference *reference, const Case *c, const Batch *batch, double *x)
{
  const double h = 1e-5, before = *x;
  double up, down;

  *x = before + h;
  up = reference_loss(reference, c, batch);
  *x = before - h;
  down = reference_loss(reference, c, batch);
  *x = before;
  return (up - down) / (2.0 * h);
}

/* --- the comparison --- */

typedef struct {
  int64_t end;
  int n_calls;
} Ready;

static PetscErrorCode gradient_ready(void *ctx, int64_t begin, int64_t end)
{
  Ready *ready = ctx;

  assert_int_equal(begin, ready->end);
  assert_true(end > begin);
  ready->end = end;
  ready->n_calls++;
  return PETSC_SUCCESS;
}

static void fill(const Case *c, TrsDlrm dlrm, Batch *batch, float *dense, float *labels)
{
  const int64_t *columns;
  TrsMatrix x;
  float value[MAX_BATCH * MAX_WIDTH];

  assert_petsc_ok(TrsDlrmEmbeddings(dlrm, &x, &columns));
  batch->width = 0;
  for (int f = 0; f < c->n_embeddings; f++) batch->width += c->dims[f];
  TrsRandomUniformFill(3, TRS_RANDOM_TEST, 1, 0, MAX_BATCH * MAX_WIDTH, -1.0f, 1.0f, value);
  for (int i = 0; i < batch->n * c->num_dense; i++) batch->dense[i] = (double)(dense[i] = value[i] + 0.3f);
  for (int b = 0; b < batch->n; b++) {
    int at = 0;

    batch->labels[b] = (double)(labels[b] = b == 2 ? 0.25f : (float)(b % 2));
    for (int f = 0; f < c->n_embeddings; f++) {
      for (int d = 0; d < c->dims[f]; d++, at++) {
        const float v = value[100 + b * batch->width + at];

        ((float *)x.data)[b * x.stride + columns[f] + d] = v;
        batch->embeddings[b * batch->width + at] = (double)v;
      }
    }
  }
}

static void compare_gradients(const Case *c, TrsDlrm dlrm, Reference *reference, Batch *batch, float scale)
{
  const int64_t *columns;
  TrsMatrix dx;

  for (int p = 0; p < reference->n; p++) {
    const TrsDenseParameter *param = &reference->param[p];

    for (int64_t i = 0; i < param->rows * param->cols; i++) {
      assert_close(param->grad[i], (double)scale * slope(reference, c, batch, &reference->value[p][i]), 2e-6,
                   1e-5);
    }
  }
  assert_petsc_ok(TrsDlrmEmbeddingGrads(dlrm, &dx, &columns));
  for (int b = 0; b < batch->n; b++) {
    int at = 0;

    for (int f = 0; f < c->n_embeddings; f++) {
      for (int d = 0; d < c->dims[f]; d++, at++) {
        assert_close(((const float *)dx.data)[b * dx.stride + columns[f] + d],
                     (double)scale * slope(reference, c, batch, &batch->embeddings[b * batch->width + at]),
                     2e-6, 1e-5);
      }
    }
  }
}

static void run_case(const Case *c, int n)
{
  float dense[MAX_BATCH * 8], labels[MAX_BATCH];
  const float scale = 0.125f, *predictions;
  Reference reference = {0};
  Batch batch = {.n = n};
  Ready ready = {0};
  TrsOptions options;
  TrsDlrm dlrm;
  double loss = -1.0;
  int64_t n_values;
  float *grads;

  create(c->arguments, &options, &dlrm);
  assert_petsc_ok(TrsDlrmSetFromOptions(dlrm, options));
  assert_petsc_ok(TrsDlrmSetUp(dlrm, c->num_dense, c->n_embeddings, c->dims, MAX_BATCH, 7));
  assert_petsc_ok(TrsDlrmSetGradientReady(dlrm, gradient_ready, &ready));
  assert_petsc_ok(TrsDlrmParameters(dlrm, &reference.n, &reference.param, NULL, &grads, &n_values));
  for (int p = 0; p < reference.n; p++) {
    const int64_t size = reference.param[p].rows * reference.param[p].cols;

    assert_true(reference.param[p].grad >= grads && reference.param[p].grad + size <= grads + n_values);
    reference.value[p] = malloc((size_t)size * sizeof(double));
    for (int64_t i = 0; i < size; i++) reference.value[p][i] = (double)reference.param[p].value[i];
  }
  fill(c, dlrm, &batch, dense, labels);

  /* these values must be overwritten, not added to */
  for (int64_t i = 0; i < n_values; i++) grads[i] = 3.0f;
  assert_petsc_ok(TrsDlrmForwardDense(dlrm, NULL, n, dense));
  assert_petsc_ok(TrsDlrmForward(dlrm, NULL, n, labels, NULL, scale, &loss, &predictions));
  assert_close(loss, reference_loss(&reference, c, &batch), 1e-6, 1e-6);
  for (int b = 0; b < n; b++) {
    const double z = logit(&reference, c, batch.dense + b * c->num_dense, batch.embeddings + b * batch.width);

    assert_close(predictions[b], 1.0 / (1.0 + exp(-z)), 1e-6, 0.0);
  }
  assert_petsc_ok(TrsDlrmBackwardOver(dlrm, NULL, n));
  assert_petsc_ok(TrsDlrmBackwardDense(dlrm, NULL, n, dense));
  assert_int_equal(ready.end, n_values);
  assert_int_equal(ready.n_calls, c->n_over_arch + c->n_cross + c->n_dense_arch);
  compare_gradients(c, dlrm, &reference, &batch, scale);

  for (int p = 0; p < reference.n; p++) free(reference.value[p]);
  assert_petsc_ok(TrsDlrmDestroy(&dlrm));
  assert_null(dlrm);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void test_against_reference(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    run_case(&cases[i], MAX_BATCH);
    run_case(&cases[i], 1);
    run_case(&cases[i], 0); /* a rank without samples has zero gradients */
  }
}

/*
  Names, shapes and bounds of initial values follow src/RULES.md, rules A3 and A21. Equal seeds give
  equal values. Different seeds give different values.
*/
static void test_parameters(void **state)
{
  static const char *const arguments[] = {
      "-over_arch", "8,1", "-interaction", "dcn", "-dcn_num_layers", "1", "-dcn_low_rank_dim", "2", NULL};
  static const struct {
    const char *name;
    int64_t rows, cols;
    int ndim;
  } expected[] = {{"over_arch/1/weight", 1, 8, 2},  {"over_arch/1/bias", 1, 1, 1},
                  {"over_arch/0/weight", 8, 32, 2}, {"over_arch/0/bias", 8, 1, 1},
                  {"crossnet/0/W", 32, 2, 2},       {"crossnet/0/V", 2, 32, 2},
                  {"crossnet/0/bias", 32, 1, 1},    {"dense_arch/2/weight", 16, 256, 2},
                  {"dense_arch/2/bias", 16, 1, 1},  {"dense_arch/1/weight", 256, 512, 2},
                  {"dense_arch/1/bias", 256, 1, 1}, {"dense_arch/0/weight", 512, 3, 2},
                  {"dense_arch/0/bias", 512, 1, 1}};
  const int dim = 16; /* dense_arch defaults to 512,256,16 */
  TrsOptions options[3];
  TrsDlrm dlrm[3];
  const TrsDenseParameter *param[3];
  float *values[3];
  int64_t n_values;
  int n;

  (void)state;
  for (int i = 0; i < 3; i++) {
    create(arguments, &options[i], &dlrm[i]);
    assert_petsc_ok(TrsDlrmSetFromOptions(dlrm[i], options[i]));
    assert_petsc_ok(TrsDlrmSetUp(dlrm[i], 3, 1, &dim, 2, i < 2 ? 5 : 6));
    assert_petsc_ok(TrsDlrmParameters(dlrm[i], &n, &param[i], &values[i], NULL, &n_values));
  }
  assert_int_equal(n, sizeof(expected) / sizeof(expected[0]));
  for (int p = 0; p < n; p++) {
    const TrsDenseParameter *found = &param[0][p];

    assert_string_equal(found->name, expected[p].name);
    assert_int_equal(found->rows, expected[p].rows);
    assert_int_equal(found->cols, expected[p].cols);
    assert_int_equal(found->ndim, expected[p].ndim);
    if (strstr(found->name, "_arch")) {
      const float bound = (float)(1.0 /
                                  sqrt((double)(found->ndim == 2 ? found->cols : param[0][p - 1].cols)));
      float largest = 0.0f;

      for (int64_t i = 0; i < found->rows * found->cols; i++)
        largest = fmaxf(largest, fabsf(found->value[i]));
      assert_true(largest <= bound && largest > 0.0f);
      if (found->rows * found->cols > 500) assert_true(largest > 0.98f * bound);
    }
    if (!strcmp(found->name, "crossnet/0/bias"))
      for (int64_t i = 0; i < found->rows; i++) assert_true(found->value[i] == 0.0f);
  }
  assert_memory_equal(values[0], values[1], (size_t)n_values * sizeof(float));
  assert_memory_not_equal(values[0], values[2], (size_t)n_values * sizeof(float));
  for (int i = 0; i < 3; i++) {
    assert_petsc_ok(TrsDlrmDestroy(&dlrm[i]));
    assert_petsc_ok(TrsOptionsDestroy(&options[i]));
  }
}

/*
  The model's paths in checkpoints (input/FORMAT.md): the weights, and the states of the optimizer.
*/
static void test_state(void **state)
{
  static const char *const arguments[] = {"-over_arch", "8,1", "-dense_arch", "4", NULL};
  static const TrsOptionGroup *const groups[] = {&trs_dense_optimizer_options};
  char *argv[] = {(char *)(uintptr_t) "test", (char *)(uintptr_t) "-dense_optimizer",
                  (char *)(uintptr_t) "adam"};
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsOptions options, optimizer_options;
  TrsDenseOptimizer optimizer;
  TrsState tensors = {0};
  TrsDlrm dlrm;
  float *values;
  int64_t n_values;
  const int dim = 4;
  int n_found = 0;

  (void)state;
  create(arguments, &options, &dlrm);
  assert_petsc_ok(TrsDlrmSetFromOptions(dlrm, options));
  assert_petsc_ok(TrsDlrmSetUp(dlrm, 3, 1, &dim, 2, 5));
  assert_petsc_ok(TrsDlrmParameters(dlrm, NULL, NULL, &values, NULL, &n_values));
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, 3, argv, groups, 1, &optimizer_options));
  assert_petsc_ok(TrsDenseOptimizerCreate(device, compute, &optimizer));
  assert_petsc_ok(TrsDenseOptimizerSetFromOptions(optimizer, optimizer_options));
  assert_petsc_ok(TrsDenseOptimizerSetUp(optimizer, values, n_values));
  assert_petsc_ok(TrsDlrmAddState(dlrm, PETSC_FALSE, &tensors));
  assert_petsc_ok(TrsDlrmAddOptimizerState(dlrm, optimizer, &tensors));
  /* 3 layers with a weight and a bias; each of these has its value, exp_avg and exp_avg_sq */
  assert_int_equal(tensors.n, 3 * 2 * 3);
  for (int i = 0; i < tensors.n; i++) {
    const TrsStateTensor *tensor = &tensors.tensor[i];

    assert_true(tensor->replicated && tensor->n_parts == 1);
    n_found += !strcmp(tensor->path, "dense/over_arch/0/weight") && tensor->rows == 8 && tensor->cols == 5 &&
               tensor->ndim == 2;
    n_found += !strcmp(tensor->path, "dense/dense_arch/0/bias") && tensor->rows == 4 && tensor->ndim == 1;
    n_found += !strcmp(tensor->path, "dense_optimizer/over_arch/1/bias/exp_avg_sq") && tensor->optional;
  }
  assert_int_equal(n_found, 3);
  assert_petsc_ok(TrsStateFree(&tensors));
  assert_petsc_ok(TrsDenseOptimizerDestroy(&optimizer));
  assert_petsc_ok(TrsDlrmDestroy(&dlrm));
  assert_petsc_ok(TrsOptionsDestroy(&optimizer_options));
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

/*
  Options that src/RULES.md, rules A2, A4 and A5 do not allow are refused, and the message names the
  option.
*/
static void test_errors(void **state)
{
  static const struct {
    const char *arguments[8];
    int num_dense, n_embeddings, dims[2];
    const char *named;
  } wrong[] = {
      {{"-over_arch", "1"}, 3, 1, {4}, "-over_arch"},
      {{"-over_arch", "4,2"}, 3, 1, {4}, "-over_arch"},
      {{"-over_arch", "4,1", "-dense_arch", "8,5"}, 3, 1, {4}, "-dense_arch"},
      {{"-over_arch", "4,1"}, 0, 2, {4, 8}, "-interaction"},
      {{"-over_arch", "4,1", "-interaction", "dcn"}, 0, 2, {4, 8}, "-interaction"},
      {{"-over_arch", "4,1"}, 0, 1, {4}, "-interaction"},
      {{"-over_arch", "4,1"}, 0, 0, {0}, "-num_dense"},
  };

  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    TrsOptions options;
    TrsDlrm dlrm;
    PetscErrorCode ierr;

    create(wrong[i].arguments, &options, &dlrm);
    TrsErrorClear();
    ierr = TrsDlrmSetFromOptions(dlrm, options);
    if (!ierr) ierr = TrsDlrmSetUp(dlrm, wrong[i].num_dense, wrong[i].n_embeddings, wrong[i].dims, 2, 0);
    assert_int_equal(ierr, TRS_ERR_OPTION);
    assert_non_null(strstr(TrsErrorMessage(), wrong[i].named));
    TrsErrorClear();
    assert_petsc_ok(TrsDlrmDestroy(&dlrm));
    assert_petsc_ok(TrsOptionsDestroy(&options));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_against_reference), cmocka_unit_test(test_parameters),
              cmocka_unit_test(test_state), cmocka_unit_test(test_errors))
