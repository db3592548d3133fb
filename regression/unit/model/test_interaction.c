/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests that the function tables of interactions are complete, and that set-up finds a missing
  entry. fm, deepfm, cross networks and projection agree with TorchRec's results, which
  record_deepfm.py and record_crossnet.py recorded.
*/
#include "golden_h5.h"
#include "model/dlrm.h"
#include "model/interaction.h"
#include "trs_test.h"

#include <math.h>

enum { MAX_LAYERS = 4 };

/* --- tables --- */

static void test_tables(void **state)
{
  static const char *const words[] = {TRS_INTERACTIONS(TRS_WORD_TEXT)};

  (void)state;
  for (size_t kind = 0; kind < sizeof(words) / sizeof(words[0]); kind++) {
    const TrsInteractionOps *ops;
    TrsInteractionOps hole;

    assert_petsc_ok(TrsInteractionFind((TrsInteractionKind)kind, &ops));
    assert_string_equal(ops->word, words[kind]);
    PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
    for (int slot = 0; slot < 4; slot++) {
      hole = *ops;
      if (slot == 0) hole.width = NULL;
      if (slot == 1) hole.forward = NULL;
      if (slot == 2) hole.backward = NULL;
      if (slot == 3) hole.flops = NULL;
      assert_int_equal(TrsInteractionCheck(&hole), TRS_ERR_INTERNAL);
    }
    PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
  }
}

/* --- golden --- */

/* One case of the golden file. */
typedef struct {
  hid_t group;
  TrsOptions options;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters params;
  TrsLayerContext context;
  TrsInteraction interaction;
  int64_t batch;
} Case;

/* If the case has this attribute, add an option with the numbers of the attribute. */
static void add_option(const Case *c, const char *attribute, char *name, char *text, char **words,
                       int *n_words)
{
  int64_t n = 0, *sizes;

  if (!golden_has_attribute(c->group, attribute)) return;
  sizes = golden_attribute_int64(c->group, attribute, &n);
  for (int64_t i = 0, used = 0; i < n; i++)
    used += snprintf(text + used, 128 - (size_t)used, i ? ",%d" : "%d", (int)sizes[i]);
  free(sizes);
  words[(*n_words)++] = name;
  words[(*n_words)++] = text;
}

static void set_options(Case *c)
{
  static const TrsOptionGroup *const groups[] = {&trs_model_options};
  static char program[] = "test", names[][32] = {"-deepfm_arch",    "-projection_arch1", "-projection_arch2",
                                                 "-dcn_num_layers", "-dcn_low_rank_dim", "-dcn_num_experts"},
              text[6][128];
  static const char *const attributes[6] = {"sizes", "arch1", "arch2", "layers", "rank", "experts"};
  char *words[13] = {program};
  int n = 1;

  for (int i = 0; i < 3; i++) add_option(c, attributes[i], names[i], text[i], words, &n);
  for (int i = 3; i < 6; i++) {
    snprintf(text[i], sizeof(text[i]), "%d", PetscMax((int)golden_number(c->group, attributes[i], 1), 1));
    words[n++] = names[i];
    words[n++] = text[i];
  }
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, n, words, groups, 1, &c->options));
}

static void set_up(hid_t group, Case *c)
{
  const int copied = (int)golden_number(group, "copied", 0),
            vectors = (int)golden_number(group, "vectors", 0);
  static const char *const names[] = {TRS_INTERACTIONS(TRS_WORD_TEXT)};
  char word[32];
  int64_t shape[2];
  int kind = 0;

  *c = (Case){.group = group};
  assert_petsc_ok(TrsDeviceFind("cpu", &c->device));
  assert_petsc_ok(TrsComputeFind("cpu", &c->compute));
  set_options(c);
  c->context = (TrsLayerContext){.device = c->device, .compute = c->compute, .params = &c->params};
  c->interaction = (TrsInteraction){.context = &c->context};
  golden_string(group, "interaction", word, sizeof(word));
  while (strcmp(names[kind], word)) kind++;
  assert_petsc_ok(TrsInteractionFind((TrsInteractionKind)kind, &c->interaction.ops));
  if (c->interaction.ops->read) assert_petsc_ok(c->interaction.ops->read(&c->interaction, c->options));
  free(golden_read(group, "x", H5T_NATIVE_FLOAT, NULL, shape));
  c->batch = shape[0];
  TrsInteractionShape(&c->interaction, vectors, (int)golden_number(group, "dim", 1), copied, shape[1],
                      PETSC_TRUE, PETSC_FALSE);
  if (c->interaction.ops->check) assert_petsc_ok(c->interaction.ops->check(&c->interaction));
  if (c->interaction.ops->declare) assert_petsc_ok(c->interaction.ops->declare(&c->interaction));
  assert_petsc_ok(TrsParametersAllocate(&c->params, c->device, 1));
}

/*
  Read the weight of layer 0 as "weight0", or another parameter by its name with dots. With the
  prefix "d", read its gradient, for example "dweight0".
*/
static float *golden_parameter(const Case *c, int p, const char *prefix)
{
  char part[16], name[64];
  int layer;

  snprintf(name, sizeof(name), "%s%s", prefix, c->params.param[p].name);
  for (char *slash = name; (slash = strchr(slash, '/'));) *slash = '.';
  if (!golden_has(c->group, name)) {
    assert_int_equal(sscanf(c->params.param[p].name, "%*[^/]/%d/%15s", &layer, part), 2);
    snprintf(name, sizeof(name), "%s%s%d", prefix, part, layer);
  }
  return golden_float(c->group, name, NULL);
}

static void assert_near(const float *found, const float *wanted, int64_t n, const char *what)
{
  for (int64_t i = 0; i < n; i++)
    if (!(fabsf(found[i] - wanted[i]) <= 2e-5F * (1.0F + fabsf(wanted[i]))))
      fail_msg("%s[%d]: %g for %g", what, (int)i, (double)found[i], (double)wanted[i]);
}

static void run_case(Case *c, float *out, float *dout, float *dx)
{
  TrsInteraction *in = &c->interaction;
  float *x = golden_float(c->group, "x", NULL), *wanted = golden_float(c->group, "out", NULL),
        *given = golden_float(c->group, "dout", NULL), *gradient = golden_float(c->group, "dx", NULL);

  assert_petsc_ok(TrsInteractionAllocate(in, c->batch, out, dx, dout));
  for (int p = 0; p < c->params.n; p++) {
    const TrsDenseParameter *param = &c->params.param[p];
    float *value = golden_parameter(c, p, "");

    assert_int_equal(param->stride, param->cols);
    memcpy(param->value, value, (size_t)(param->rows * param->cols) * sizeof(float));
    free(value);
  }
  memcpy(in->x.data, x, (size_t)(c->batch * in->N) * sizeof(float));
  assert_petsc_ok(in->ops->forward(in, NULL, c->batch));
  for (int64_t b = 0; b < c->batch; b++) {
    assert_near(out + b * in->stride, wanted + b * in->width, in->width, "out");
    for (int64_t k = in->width; k < in->filled; k++) assert_true(out[b * in->stride + k] == 0.0F);
    memcpy(dout + b * in->stride, given + b * in->width, (size_t)in->width * sizeof(float));
  }
  assert_petsc_ok(in->ops->backward(in, NULL, c->batch));
  assert_near(dx, gradient, c->batch * in->N, "dx");
  for (int p = 0; p < c->params.n; p++) {
    float *value = golden_parameter(c, p, "d");

    assert_near(c->params.param[p].grad, value, c->params.param[p].rows * c->params.param[p].cols,
                c->params.param[p].name);
    free(value);
  }
  free(x);
  free(wanted);
  free(given);
  free(gradient);
}

/* The forward must count at least one multiply-add for each number of each matrix. */
static void check_work(const Case *c)
{
  const TrsInteraction *in = &c->interaction;
  double flops = in->ops->flops(in), bytes = 0.0, least = 0.0;

  if (in->ops->work) in->ops->work(in, &flops, &bytes);
  for (int p = 0; p < c->params.n; p++)
    if (c->params.param[p].ndim == 2)
      least += 2.0 * (double)(c->params.param[p].rows * c->params.param[p].cols);
  if (flops < least) fail_msg("%s: %g operations, at least %g expected", in->ops->word, flops, least);
}

static void one_case(hid_t group, const char *name, void *context)
{
  float *out, *dout, *dx;
  Case c;

  (void)name, (void)context;
  set_up(group, &c);
  assert_true(c.params.n <= 4 * MAX_LAYERS);
  out = calloc((size_t)(c.batch * c.interaction.stride), sizeof(float));
  dout = calloc((size_t)(c.batch * c.interaction.stride), sizeof(float));
  dx = calloc((size_t)(c.batch * c.interaction.N), sizeof(float));
  assert_non_null(out);
  assert_non_null(dout);
  assert_non_null(dx);
  run_case(&c, out, dout, dx);
  check_work(&c);
  assert_petsc_ok(TrsInteractionFree(&c.interaction));
  assert_petsc_ok(TrsParametersFree(&c.params, c.device));
  assert_petsc_ok(TrsOptionsDestroy(&c.options));
  free(out);
  free(dout);
  free(dx);
}

static void test_golden(void **state)
{
  static const char *const names[] = {"units_deepfm.h5", "units_crossnet.h5"};

  (void)state;
  for (int i = 0; i < 2; i++) {
    hid_t file = golden_open(names[i]);

    golden_for_each_group(file, one_case, NULL);
    golden_close(file);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_tables), cmocka_unit_test(test_golden))
