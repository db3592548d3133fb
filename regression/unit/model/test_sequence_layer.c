/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests every layer that pools sequences. Gradients agree with finite differences, an empty bag
  gives zeros, and a batch without ids gives zero gradients. The golden cases sequence_* compare the
  layers with torch.
*/
#include "model/sequence_layer.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

enum { D = 4, B = 5, STRIDE = 12, MOST_ROWS = 16 };
static const int64_t offsets[B + 1] = {2, 5, 5, 6, 11, 13}; /* bags of lengths 3, 0, 1, 5 and 2 */

typedef struct {
  TrsParameters params;
  TrsLayerContext context;
  TrsTableConfig table;
  char *features[1];
  int64_t arch[2];
  TrsSequenceLayers layers;
  float rows[MOST_ROWS * D], grads[MOST_ROWS * D], x[B * STRIDE], dx[B * STRIDE], wish[B * STRIDE];
  TrsBagRows bags;
} fixture;

/* Pseudo-random numbers in [-1, 1]. */
static float number(int i)
{
  return (float)sin(1.7 * (double)i + 0.3 * (double)(i % 7));
}

/* If `other` is true, din has a softmax, and the transformer is causal. */
static void make(fixture *f, TrsSequencePoolingKind kind, PetscBool other)
{
  static char name[] = "word";
  static const int64_t columns[] = {0, D};

  memset(f, 0, sizeof(*f));
  assert_petsc_ok(TrsDeviceFind("cpu", &f->context.device));
  assert_petsc_ok(TrsComputeFind("cpu", &f->context.compute));
  f->context.params = &f->params;
  f->features[0] = name;
  f->arch[0] = 5;
  f->arch[1] = 3;
  f->table = (TrsTableConfig){.name = name,
                              .embedding_dim = D,
                              .pooling = TRS_POOLING_NONE,
                              .sequence_pooling = kind,
                              .sequence_length = 1,
                              .gru_hidden_size = kind == TRS_SEQUENCE_POOLING_GRU ? 3 : 0,
                              .n_din_arch = 2,
                              .din_arch = f->arch,
                              .din_activation = TRS_MLP_TANH,
                              .din_softmax = other,
                              .transformer_layers = 2,
                              .transformer_heads = 2,
                              .transformer_width = 7,
                              .transformer_causal = other,
                              .n_features = 1,
                              .features = f->features};
  assert_petsc_ok(TrsSequenceLayersAdd(&f->layers, &f->context, &f->table, 0, 1, 0));
  assert_petsc_ok(TrsSequenceLayersDeclare(&f->layers, columns));
  assert_petsc_ok(TrsParametersAllocate(&f->params, f->context.device, 11));
  for (int64_t i = 0; i < f->params.n_values; i++) f->params.grads[i] = NAN;
  for (int i = 0; i < MOST_ROWS * D; i++) f->rows[i] = number(i);
  for (int i = 0; i < B * STRIDE; i++) f->wish[i] = number(i + 1000);
  f->bags = (TrsBagRows){.first = offsets[0],
                         .n_rows = offsets[B] - offsets[0],
                         .offsets = offsets,
                         .on_host = offsets,
                         .rows = f->rows,
                         .grads = f->grads};
  f->layers.bags = &f->bags;
}

static void destroy(fixture *f)
{
  assert_petsc_ok(TrsSequenceLayersFree(&f->layers));
  assert_petsc_ok(TrsParametersFree(&f->params, f->context.device));
}

/*
  The first D columns are the targets, followed by the columns of the layer. The sum is over both.
*/
static double sum_of(fixture *f)
{
  const int64_t end = D + f->layers.layer[0].width;
  double sum = 0.0;

  assert_petsc_ok(TrsSequenceLayersForward(&f->layers, NULL, B, (TrsSequenceMatrix){f->x, STRIDE}));
  for (int b = 0; b < B; b++)
    for (int64_t c = 0; c < end; c++) sum += (double)f->wish[b * STRIDE + c] * (double)f->x[b * STRIDE + c];
  return sum;
}

static void check_slope(fixture *f, float *value, float gradient, const char *what, int i)
{
  const float kept = *value, step = 0.002F;
  double slope;

  *value = kept + step;
  slope = sum_of(f);
  *value = kept - step;
  slope = (slope - sum_of(f)) / (2.0 * (double)step);
  *value = kept;
  if (fabs(slope - (double)gradient) > 1e-3 * (1.0 + fabs(slope)))
    fail_msg("%s, %s %d: slope %g, gradient %g", f->layers.layer[0].ops->word, what, i, slope,
             (double)gradient);
}

static void check_gradients(TrsSequencePoolingKind kind, PetscBool other)
{
  fixture f;

  make(&f, kind, other);
  for (int b = 0; b < B; b++)
    for (int c = 0; c < D; c++) f.x[b * STRIDE + c] = number(b * D + c + 500);
  (void)sum_of(&f);
  for (int64_t c = 0; c < f.layers.layer[0].width; c++) assert_true(f.x[STRIDE + D + c] == 0.0F);
  memcpy(f.dx, f.wish, sizeof(f.dx));
  assert_petsc_ok(TrsSequenceLayersBackward(&f.layers, NULL, B, (TrsSequenceMatrix){f.x, STRIDE},
                                            (TrsSequenceMatrix){f.dx, STRIDE}));
  for (int i = (int)offsets[0] * D; i < (int)offsets[B] * D; i++)
    check_slope(&f, &f.rows[i], f.grads[i], "number of the rows", i);
  /* these rows are not in any bag */
  for (int i = 0; i < (int)offsets[0] * D; i++) assert_true(f.grads[i] == 0.0F);
  for (int b = 0; b < B; b++)
    for (int c = 0; c < D; c++)
      check_slope(&f, &f.x[b * STRIDE + c], f.dx[b * STRIDE + c], "number of the target", b * D + c);
  for (int p = 0; p < f.params.n; p++)
    for (int i = 0; i < f.params.param[p].rows * f.params.param[p].cols; i++)
      check_slope(&f, &f.params.param[p].value[i], f.params.param[p].grad[i], f.params.param[p].name, i);
  destroy(&f);
}

static void check_no_ids(TrsSequencePoolingKind kind)
{
  static const int64_t none[B + 1] = {0};
  fixture f;

  make(&f, kind, PETSC_FALSE);
  f.bags.offsets = f.bags.on_host = none;
  f.bags.first = f.bags.n_rows = 0;
  for (int n = 0; n <= B; n += B) {
    for (int64_t i = 0; i < f.params.n_values; i++) f.params.grads[i] = 1.0F;
    assert_petsc_ok(TrsSequenceLayersForward(&f.layers, NULL, n, (TrsSequenceMatrix){f.x, STRIDE}));
    assert_petsc_ok(TrsSequenceLayersBackward(&f.layers, NULL, n, (TrsSequenceMatrix){f.x, STRIDE},
                                              (TrsSequenceMatrix){f.dx, STRIDE}));
    for (int p = 0; p < f.params.n; p++)
      for (int64_t i = 0; i < f.params.param[p].rows * f.params.param[p].cols; i++)
        assert_true(f.params.param[p].grad[i] == 0.0F);
  }
  destroy(&f);
}

static void test_gradients(void **state)
{
  (void)state;
#define GRADIENTS(KIND, word) check_gradients(TRS_SEQUENCE_POOLING_##KIND, PETSC_FALSE);
  TRS_SEQUENCE_LAYERS(GRADIENTS)
  check_gradients(TRS_SEQUENCE_POOLING_DIN, PETSC_TRUE);
  check_gradients(TRS_SEQUENCE_POOLING_TRANSFORMER, PETSC_TRUE);
}

static void test_no_ids(void **state)
{
  (void)state;
#define NO_IDS(KIND, word) check_no_ids(TRS_SEQUENCE_POOLING_##KIND);
  TRS_SEQUENCE_LAYERS(NO_IDS)
}

TRS_TEST_MAIN(cmocka_unit_test(test_gradients), cmocka_unit_test(test_no_ids))
