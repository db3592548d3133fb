/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU's losses against torch 2.14.1 in double, labels that are missing, and mixtures of experts by hand. */
#include "compute/cpu_kernels.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

static const float z[] = {0.25f, 3.5f, -2.25f, -0.75f}, w[] = {0.5f, 2.0f, 1.25f, 3.0f};

/* Run a loss of one output; the fifth sample has no label, and must not count. */
static void check(TrsLossFn *loss_of, float parameter, const float *y, double loss, const double *grads,
                  const double *predictions)
{
  float zs[5], ys[5], ws[5], dz[5], p[5];
  double found = 1.0; /* is added to */
  const TrsLossArgs args = {.batch = 5,
                            .classes = 1,
                            .missing = PETSC_TRUE,
                            .z = zs,
                            .z_stride = 1,
                            .y = ys,
                            .y_stride = 1,
                            .w = ws,
                            .scale = 1,
                            .parameter = parameter,
                            .loss = &found,
                            .dz = dz,
                            .p = p,
                            .p_stride = 1};

  memcpy(zs, z, sizeof(z));
  memcpy(ys, y, sizeof(z));
  memcpy(ws, w, sizeof(w));
  zs[4] = 1.0f;
  ys[4] = NAN;
  ws[4] = 7.0f;
  assert_petsc_ok(loss_of(NULL, &args));
  assert_close(found, 1.0 + loss, 1e-7, 1e-7); /* the parameter is a float */
  for (int i = 0; i < 4; i++) assert_close(dz[i], grads[i], 1e-6, 1e-6);
  for (int i = 0; i < 4; i++) assert_close(p[i], predictions[i], 1e-6, 1e-6);
  assert_close(dz[4], 0.0, 0.0, 0.0);
}

/* binary_cross_entropy_with_logits(pos_weight=2.5), mse_loss, huber_loss(delta=0.7), weighted sums. */
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

/* cross_entropy of torch with weights 0.5 and 2; a class that is not there is a missing label. */
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
  double loss = 0.0;
  TrsLossArgs args = {.batch = 3,
                      .classes = 3,
                      .missing = PETSC_TRUE,
                      .z = logits,
                      .z_stride = 3,
                      .y = y,
                      .y_stride = 1,
                      .w = weights,
                      .scale = 1,
                      .loss = &loss,
                      .dz = dz,
                      .p = p,
                      .p_stride = 3};

  (void)state;
  assert_petsc_ok(TrsSoftmaxCpu(NULL, &args));
  assert_close(loss, 60.89555033238619, 1e-12, 1e-12);
  for (int i = 0; i < 6; i++) assert_close(dz[i], grads[i], 1e-6, 1e-6);
  for (int i = 0; i < 6; i++) assert_close(p[i], shares[i], 1e-6, 1e-6);
  for (int i = 6; i < 9; i++) assert_close(dz[i], 0.0, 0.0, 0.0);
  args.y = NULL;
  args.loss = NULL;
  args.dz = NULL;
  memset(p, 0, sizeof(p));
  assert_petsc_ok(TrsSoftmaxCpu(NULL, &args)); /* predictions only */
  for (int i = 0; i < 6; i++) assert_close(p[i], shares[i], 1e-6, 1e-6);
}

/* By hand: of experts 0 to 3 the gate takes 0, 2 and 3 with weights 1/2, 1/4 and 1/4. */
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
  /* The products with dy are 21, -7 and 75, their mean 27.5. */
  assert_petsc_ok(TrsMixBackwardCpu(NULL, &m, dy));
  assert_close(gate[0], 0.5 * (21 - 27.5), 1e-5, 0.0);
  assert_close(gate[1], 0.25 * (-7 - 27.5), 1e-5, 0.0);
  assert_close(gate[2], 0.25 * (75 - 27.5), 1e-5, 0.0);
  assert_close(dexperts[0], 1 + 0.5, 1e-6, 0.0);
  assert_close(dexperts[1], 5, 1e-5, 0.0);
  assert_close(dexperts[2], 0, 0.0, 0.0);
  assert_close(dexperts[7], 2.5, 1e-5, 0.0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_losses), cmocka_unit_test(test_softmax), cmocka_unit_test(test_mixture))
