/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: portable avx2 */
/*
  Compares stacks of layers with results of torch and TorchRec, which record_mlp.py recorded. Also
  tests that dropout follows its definition, that the function tables of layers are complete, and
  that set-up finds a missing entry.
*/
#include "golden_h5.h"
#include "model/mlp.h"
#include "trs_test.h"

#include <math.h>

/* --- tables --- */

#define KIND(NAME, word) &trs_layer_##word,
static const TrsLayerOps *const kinds[] = {TRS_MLP_ACTIVATIONS(KIND) & trs_layer_linear,
                                           &trs_layer_layer_norm, &trs_layer_dropout, &trs_layer_residual};

static void test_tables(void **state)
{
  (void)state;
  for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
    assert_petsc_ok(TrsLayerCheck(kinds[kind]));
    PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
    for (int slot = 0; slot < 4; slot++) {
      TrsLayerOps hole = *kinds[kind];

      if (slot == 0) hole.flops = NULL;
      if (slot == 1) hole.bytes = NULL;
      if (slot == 2) hole.forward = NULL;
      if (slot == 3) hole.backward = NULL;
      assert_int_equal(TrsLayerCheck(&hole), TRS_ERR_INTERNAL);
    }
    PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
  }
}

/* --- a stack with its memory --- */

typedef struct {
  TrsParameters params;
  TrsLayerContext context;
  TrsMlp mlp;
  int64_t batch, in, out, y_stride;
  float *inner, *y, *dy, *dx;
} Stack;

static float *floats(int64_t n)
{
  float *new = calloc((size_t)n + 1, sizeof(float));

  assert_non_null(new);
  return new;
}

/* y and dy have rows of `out` + 3 floats. All memory of the stack is NaN at the beginning. */
static void set_up(Stack *s, const TrsMlpSpec *spec, int64_t batch, int64_t in)
{
  TrsMlpRoom room;

  *s = (Stack){.batch = batch, .in = in, .out = spec->sizes[spec->n - 1]};
  s->y_stride = s->out + 3;
  assert_petsc_ok(TrsDeviceFind("cpu", &s->context.device));
  assert_petsc_ok(TrsComputeFind("cpu", &s->context.compute));
  s->context.params = &s->params;
  assert_petsc_ok(TrsMlpDeclare(&s->mlp, &s->context, "stack", spec, in, in));
  assert_petsc_ok(TrsParametersAllocate(&s->params, s->context.device, 1));
  room = TrsMlpPlace(&s->mlp, batch, NULL, TrsFloats(NULL, 1));
  s->inner = floats(room.end);
  for (int64_t i = 0; i < room.end; i++) s->inner[i] = NAN;
  s->y = floats(batch * s->y_stride);
  s->dy = floats(batch * s->y_stride);
  s->dx = floats(batch * in);
  (void)TrsMlpPlace(&s->mlp, batch, s->inner, TrsFloats(s->y, s->y_stride));
}

static void tear_down(Stack *s)
{
  assert_petsc_ok(TrsMlpFree(&s->mlp));
  assert_petsc_ok(TrsParametersFree(&s->params, s->context.device));
  free(s->inner);
  free(s->y);
  free(s->dy);
  free(s->dx);
}

/* --- golden --- */

static void assert_near(const float *found, int64_t stride, const float *wanted, int64_t rows, int64_t cols,
                        const char *what)
{
  for (int64_t i = 0; i < rows * cols; i++) {
    const float value = found[i / cols * stride + i % cols];

    if (!(fabsf(value - wanted[i]) <= 2e-5F * (1.0F + fabsf(wanted[i]))))
      fail_msg("%s[%d]: %g for %g", what, (int)i, (double)value, (double)wanted[i]);
  }
}

/*
  Read the golden data "0/weight" or its gradient "d0/weight" for the parameter stack/0/weight. The
  caller must free it.
*/
static float *golden_parameter(hid_t group, const TrsDenseParameter *param, const char *prefix)
{
  char name[64];
  int64_t n;
  float *values;

  snprintf(name, sizeof(name), "%s%s", prefix, param->name + strlen("stack/"));
  values = golden_float(group, name, &n);
  assert_int_equal(n, param->rows * param->cols);
  return values;
}

static TrsMlpActivation activation_of(hid_t group)
{
  static const char *const words[] = {TRS_MLP_ACTIVATIONS(TRS_WORD_TEXT)};
  char word[32];
  int kind = 0;

  golden_string(group, "activation", word, sizeof(word));
  while (strcmp(words[kind], word)) kind++;
  return (TrsMlpActivation)kind;
}

static void one_case(hid_t group, const char *name, void *context)
{
  TrsMlpSpec spec = {.activation = activation_of(group),
                     .layer_norm = (PetscBool)(golden_number(group, "layer_norm", 0) != 0),
                     .residual = (PetscBool)(golden_number(group, "residual", 0) != 0),
                     .plain_last = (PetscBool)(golden_number(group, "plain_last", 0) != 0)};
  int64_t n, shape[2], *sizes = golden_attribute_int64(group, "sizes", &n);
  float *x = golden_read(group, "x", H5T_NATIVE_FLOAT, NULL, shape), *out = golden_float(group, "out", NULL),
        *dout = golden_float(group, "dout", NULL), *dx = golden_float(group, "dx", NULL);
  Stack s;

  (void)name, (void)context;
  spec.n = (int)n;
  spec.sizes = sizes;
  set_up(&s, &spec, shape[0], shape[1]);
  for (int p = 0; p < s.params.n; p++) {
    const TrsDenseParameter *param = &s.params.param[p];
    float *value = golden_parameter(group, param, "");

    memcpy(param->value, value, (size_t)(param->rows * param->cols) * sizeof(float));
    free(value);
  }
  assert_petsc_ok(TrsMlpForward(&s.mlp, NULL, s.batch, TrsFloats(x, s.in)));
  assert_near(s.y, s.y_stride, out, s.batch, s.out, "out");
  for (int64_t b = 0; b < s.batch; b++)
    memcpy(s.dy + b * s.y_stride, dout + b * s.out, (size_t)s.out * sizeof(float));
  assert_petsc_ok(TrsMlpBackward(&s.mlp, NULL, s.batch, TrsFloats(x, s.in), TrsFloats(s.dy, s.y_stride),
                                 TrsFloats(s.dx, s.in)));
  assert_near(s.dx, s.in, dx, s.batch, s.in, "dx");
  for (int p = 0; p < s.params.n; p++) {
    const TrsDenseParameter *param = &s.params.param[p];
    float *value = golden_parameter(group, param, "d");

    assert_near(param->grad, param->stride, value, param->rows, param->cols, param->name);
    free(value);
  }
  tear_down(&s);
  free(sizes);
  free(x);
  free(out);
  free(dout);
  free(dx);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_mlp.h5");

  (void)state;
  golden_for_each_group(file, one_case, NULL);
  golden_close(file);
}

/* --- dropout --- */

enum { ROWS = 400, COLUMNS = 33 };
static const double rate = 0.3;

/*
  Apply dropout to a layer of COLUMNS numbers that are all 1. The result shows which numbers were
  dropped.
*/
static void dropout_of(Stack *s, PetscBool training, int64_t step, int64_t first, int64_t n)
{
  static const int64_t width = COLUMNS;
  static const TrsMlpSpec spec = {.n = 1, .sizes = &width, .dropout = 0.3};
  float x[ROWS] = {0};

  set_up(s, &spec, n, 1);
  s->context.draw = (TrsLayerDraw){.training = training, .seed = 7, .step = step, .first = first};
  for (int64_t c = 0; c < COLUMNS; c++) s->params.param[s->mlp.layer[0].bias].value[c] = 1.0F;
  assert_petsc_ok(TrsMlpForward(&s->mlp, NULL, n, TrsFloats(x, 1)));
}

/*
  The fraction of dropped numbers is the rate, the other numbers are divided by 1 - rate, and the
  gradient has the same mask. The mask of a row depends on the row's index in the global batch, not
  on the other rows. Other steps and other indices have other masks. Without training, no number is
  dropped.
*/
static void test_dropout(void **state)
{
  const float kept = (float)(1.0 / (1.0 - rate));
  Stack whole, part, other;
  int64_t n_dropped = 0, n_same = 0;

  (void)state;
  dropout_of(&whole, PETSC_TRUE, 5, 1000, ROWS);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    const float value = whole.y[i / COLUMNS * whole.y_stride + i % COLUMNS];

    assert_true(value == 0.0F || value == kept);
    n_dropped += value == 0.0F;
    whole.dy[i / COLUMNS * whole.y_stride + i % COLUMNS] = 1.0F;
  }
  /* four standard deviations of the binomial distribution */
  assert_true(fabs((double)n_dropped - rate * ROWS * COLUMNS) <
              4.0 * sqrt(rate * (1.0 - rate) * ROWS * COLUMNS));
  {
    float x[ROWS] = {0};

    assert_petsc_ok(TrsMlpBackward(&whole.mlp, NULL, ROWS, TrsFloats(x, 1),
                                   TrsFloats(whole.dy, whole.y_stride), TrsFloats(NULL, 0)));
  }
  for (int64_t b = 0; b < ROWS; b++)
    assert_memory_equal(whole.dy + b * whole.y_stride, whole.y + b * whole.y_stride, COLUMNS * sizeof(float));
  dropout_of(&part, PETSC_TRUE, 5, 1100, 50);
  for (int64_t b = 0; b < 50; b++)
    assert_memory_equal(part.y + b * part.y_stride, whole.y + (100 + b) * whole.y_stride,
                        COLUMNS * sizeof(float));
  dropout_of(&other, PETSC_TRUE, 6, 1000, ROWS);
  for (int64_t b = 0; b < ROWS; b++)
    n_same += !memcmp(other.y + b * other.y_stride, whole.y + b * whole.y_stride, COLUMNS * sizeof(float));
  assert_true(n_same == 0); /* two rows have the same mask with probability 0.58^33 */
  tear_down(&part);
  dropout_of(&part, PETSC_FALSE, 5, 0, 10);
  for (int64_t b = 0; b < 10; b++)
    for (int64_t c = 0; c < COLUMNS; c++) assert_true(part.y[b * part.y_stride + c] == 1.0F);
  tear_down(&whole);
  tear_down(&part);
  tear_down(&other);
}

TRS_TEST_MAIN(cmocka_unit_test(test_tables), cmocka_unit_test(test_golden), cmocka_unit_test(test_dropout))
