/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares the CPU's losses with torch 2.14.1 in double, also with missing labels. Mixtures of
  experts are compared with results computed by hand.
*/
#include "cpu/cpu_kernels.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

static const float four_z[] = {0.25f, 3.5f, -2.25f, -0.75f}, four_w[] = {0.5f, 2.0f, 1.25f, 3.0f};

/*
  The arguments of a loss for samples with some classes side by side. If y is given, dz is written.
*/
static TrsLossArgs loss_args(int64_t batch, int classes, const float *z, const float *y, const float *w,
                             double *loss, float *dz, float *p)
{
  return (TrsLossArgs){.batch = batch,
                       .classes = classes,
                       .missing = PETSC_TRUE,
                       .z = z,
                       .z_stride = classes,
                       .y = y,
                       .y_stride = 1,
                       .w = w,
                       .scale = 1,
                       .parameter = 1,
                       .loss = loss,
                       .dz = dz,
                       .p = p,
                       .p_stride = classes};
}

/* Run a loss that has one output. The fifth sample has no label and must not count. */
static void check(TrsLossFn *loss_of, float parameter, const float *y, double loss, const double *grads,
                  const double *predictions)
{
  float zs[5], ys[5], ws[5], dz[5], p[5];
  double found = 1.0; /* the loss is added to this value */
  double of_sample[10], sum = 0.0;
  TrsLossArgs args = loss_args(5, 1, zs, ys, ws, &found, dz, p);

  args.parameter = parameter;
  memcpy(zs, four_z, sizeof(four_z));
  memcpy(ys, y, sizeof(four_z));
  memcpy(ws, four_w, sizeof(four_w));
  zs[4] = 1.0f;
  ys[4] = NAN;
  ws[4] = 7.0f;
  args.of_sample = of_sample + 1;
  args.of_sample_stride = 2;
  for (int i = 0; i < 10; i++) of_sample[i] = 9.0;
  assert_petsc_ok(loss_of(NULL, &args));
  /* the parameter is a float, so the tolerance is 1e-7 */
  assert_close(found, 1.0 + loss, 1e-7, 1e-7);
  for (int i = 0; i < 5; i++) sum += of_sample[2 * i + 1];
  assert_true(1.0 + sum == found && of_sample[9] == 0.0 && of_sample[8] == 9.0);
  for (int i = 0; i < 4; i++) assert_close(dz[i], grads[i], 1e-6, 1e-6);
  for (int i = 0; i < 4; i++) assert_close(p[i], predictions[i], 1e-6, 1e-6);
  assert_close(dz[4], 0.0, 0.0, 0.0);
}

/*
  binary_cross_entropy_with_logits(pos_weight=2.5), mse_loss, huber_loss(delta=0.7), weighted sums.
*/
static void test_losses(void **state)
{
  const float labels[] = {1.0f, 0.0f, 1.0f, 0.25f}, numbers[] = {1.0f, 3.25f, -4.0f, -0.5f};

  (void)state;
  check(TrsBceCpu, 2.5f, labels, 18.125913508232593,
        (const double[]){-0.5472793738927524, 1.9413755384972873, -2.827032922190283, -0.5516121340984961},
        (const double[]){0.5621765008857981, 0.9706877692486436, 0.09534946489910949, 0.320821300824607});
  check(TrsMseCpu, 1.0f, numbers, 4.421875, (const double[]){-0.75, 1.0, 4.375, -1.5},
        (const double[]){0.25, 3.5, -2.25, -0.75});
  check(TrsHuberCpu, 0.7f, numbers, 1.5212499999999998, (const double[]){-0.35, 0.5, 0.875, -0.75},
        (const double[]){0.25, 3.5, -2.25, -0.75});
}

/* The binary loss with a label for every sample. */
static PetscErrorCode bce(int64_t n, const float *z, const float *y, const float *w, float scale,
                          double *loss, float *dz, float *p)
{
  TrsLossArgs args = loss_args(n, 1, z, y, w, loss, dz, p);

  args.missing = PETSC_FALSE;
  args.scale = scale;
  return TrsBceCpu(NULL, &args);
}

/*
  By hand:
  - z = 0: loss log 2, p = 1/2
  - z = 100, y = 0: loss 100, p = 1
  - z = -100, y = 1: the mirror image
  - z = 2, y = 1: loss log(1 + e^-2)
*/
static void test_bce(void **state)
{
  const float z[] = {0.0f, 100.0f, -100.0f, 2.0f}, y[] = {1.0f, 0.0f, 1.0f, 1.0f};
  float dz[4], p[4];
  double loss = 1.0; /* the loss is added to this value */

  (void)state;
  assert_petsc_ok(bce(4, z, y, NULL, 0.25f, &loss, dz, p));
  assert_close(loss, 1.0 + log(2.0) + 200.0 + log1p(exp(-2.0)), 1e-12, 0.0);
  assert_close(p[0], 0.5, 0.0, 0.0);
  assert_close(p[1], 1.0, 0.0, 0.0);
  assert_close(p[2], 0.0, 1e-40, 0.0);
  assert_close(dz[0], -0.125, 0.0, 0.0);
  assert_close(dz[1], 0.25, 0.0, 0.0);
  assert_close(dz[2], -0.25, 0.0, 0.0);
  assert_close(dz[3], 0.25 * (1.0 / (1.0 + exp(-2.0)) - 1.0), 1e-8, 0.0);
  /* this call computes only predictions */
  assert_petsc_ok(bce(4, z, NULL, NULL, 0.0f, NULL, NULL, p));
  assert_close(p[3], 1.0 / (1.0 + exp(-2.0)), 1e-7, 0.0);
}

/*
  torch 2.14.1 in double: binary_cross_entropy_with_logits(z, y, weight=w, reduction="sum"), and the
  gradient of this loss over w.sum().
*/
static void test_weighted_bce(void **state)
{
  const float z[] = {0.0f, 3.5f, -2.25f, 2.0f, -0.75f}, y[] = {1.0f, 0.0f, 1.0f, 1.0f, 0.25f};
  const float w[] = {0.5f, 2.0f, 0.0f, 1.25f, 3.0f};
  const double grads[] = {-0.037037037037037035, 0.28761119088848697, 0.0, -0.022074615189281055,
                          0.03147613369982535};
  float dz[5], unweighted[5], p[5];
  double loss = 0.0, losses[2] = {0.0, 0.0};

  (void)state;
  assert_petsc_ok(bce(5, z, y, w, 1.0f / 6.75f, &loss, dz, p));
  assert_close(loss, 9.287847458973628, 1e-12, 0.0);
  for (int i = 0; i < 5; i++) assert_close(dz[i], grads[i], 1e-8, 0.0);
  assert_petsc_ok(bce(5, z, y, NULL, 0.3f, &losses[0], unweighted, p));
  assert_petsc_ok(bce(5, z, y, (const float[]){1, 1, 1, 1, 1}, 0.3f, &losses[1], dz, p));
  assert_true(losses[0] == losses[1]);
  assert_memory_equal(dz, unweighted, sizeof(dz));
}

/*
  torch's cross_entropy with class weights 0.5 and 2. A class that does not exist counts as a
  missing label.
*/
static void test_softmax(void **state)
{
  const float logits[] = {0.25f, 3.5f, -2.25f, -0.75f, 1.0f, 30.0f, 1.0f, 2.0f, 3.0f},
              y[] = {2.0f, 1.0f, 3.0f};
  const float weights[] = {0.5f, 2.0f, 1.0f};
  const double grads[] = {0.01860643397707301,   0.4798662569155233,  -0.4984726908925963,
                          8.840456207279707e-14, -1.9999999999994913, 1.9999999999994027};
  const double shares[] = {0.03721286795414602,    0.9597325138310466,    0.003054618214807404,
                           4.4202281036398525e-14, 2.543665647376163e-13, 0.9999999999997014};
  float dz[9], p[9];
  double loss = 0.0, of_sample[3];
  TrsLossArgs args = loss_args(3, 3, logits, y, weights, &loss, dz, p);

  (void)state;
  args.of_sample = of_sample;
  args.of_sample_stride = 1;
  assert_petsc_ok(TrsSoftmaxCpu(NULL, &args));
  assert_true(of_sample[0] + of_sample[1] == loss && of_sample[2] == 0.0);
  assert_close(loss, 60.89555033238619, 1e-12, 1e-12);
  for (int i = 0; i < 6; i++) assert_close(dz[i], grads[i], 1e-6, 1e-6);
  for (int i = 0; i < 6; i++) assert_close(p[i], shares[i], 1e-6, 1e-6);
  for (int i = 6; i < 9; i++) assert_close(dz[i], 0.0, 0.0, 0.0);
  args.y = NULL;
  args.loss = NULL;
  args.dz = NULL;
  memset(p, 0, sizeof(p));
  assert_petsc_ok(TrsSoftmaxCpu(NULL, &args)); /* this call computes only predictions */
  for (int i = 0; i < 6; i++) assert_close(p[i], shares[i], 1e-6, 1e-6);
}

/* By hand: the gate uses experts 0, 2 and 3 of four, with the weights 1/2, 1/4 and 1/4. */
static void test_mixture(void **state)
{
  const float experts[] = {1, 2, 100, 100, 3, -1, 5, 7}, dy[] = {1, 10};
  float gate[] = {(float)log(2.0), 0, 0}, y[2], dexperts[8] = {1};
  const TrsMixture m = {.batch = 1,
                        .width = 2,
                        .stride = 8,
                        .n = 3,
                        .begin = {0, 2},
                        .end = {1, 4},
                        .experts = experts,
                        .dexperts = dexperts,
                        .gate = gate};

  (void)state;
  assert_petsc_ok(TrsMixForwardCpu(NULL, &m, y));
  assert_close(gate[0], 0.5, 1e-6, 0.0);
  assert_close(gate[2], 0.25, 1e-6, 0.0);
  assert_close(y[0], 2.5, 1e-6, 0.0);
  assert_close(y[1], 2.5, 1e-6, 0.0);
  /* The dot products with dy are 21, -7 and 75. Their weighted mean is 27.5. */
  assert_petsc_ok(TrsMixBackwardCpu(NULL, &m, dy));
  assert_close(gate[0], 0.5 * (21 - 27.5), 1e-5, 0.0);
  assert_close(gate[1], 0.25 * (-7 - 27.5), 1e-5, 0.0);
  assert_close(gate[2], 0.25 * (75 - 27.5), 1e-5, 0.0);
  assert_close(dexperts[0], 1 + 0.5, 1e-6, 0.0);
  assert_close(dexperts[1], 5, 1e-5, 0.0);
  assert_close(dexperts[2], 0, 0.0, 0.0);
  assert_close(dexperts[7], 2.5, 1e-5, 0.0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_losses), cmocka_unit_test(test_bce), cmocka_unit_test(test_weighted_bce),
              cmocka_unit_test(test_softmax), cmocka_unit_test(test_mixture))
