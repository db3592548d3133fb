/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/* Compares losses and optimizers on the GPU with the CPU, except for the rounding of sums. */
#include "gpu/layer_twins.h"

enum { N_LOSSES = 0 TRS_LOSSES(TRS_COUNT_WORD) };

/*
  Run the k-th loss. x has z, y, dz, p and w, where z, dz and p are [B, 2]. A loss with one output
  uses the first column. loss has the sum, then the loss of each sample.
*/
static PetscErrorCode run_loss(const TrsComputeOps *ops, int k, int64_t B, float *const *x, int s,
                               double *loss)
{
#define LOSS_OF(KIND, word, labels) ops->word,
  TrsLossFn *const losses[] = {TRS_LOSSES(LOSS_OF)};
  const TrsLossArgs args = {.batch = B,
                            .classes = 2,
                            .missing = PETSC_TRUE,
                            .z = x[0],
                            .z_stride = 2,
                            .y = s < 6 ? x[1] : NULL,
                            .y_stride = 1,
                            .w = s < 3 ? NULL : x[4],
                            .scale = 0.125f,
                            .parameter = k == TRS_LOSS_BCE && s == 0 ? 1.0f : 2.5f,
                            .loss = loss,
                            .of_sample = loss + 1,
                            .of_sample_stride = 1,
                            .dz = x[2],
                            .p = x[3],
                            .p_stride = 2};

  return losses[k](NULL, &args);
}

static void check_loss(int k)
{
  static const int64_t batches[] = {1, 31, 3000};

  for (int s = 0; s < 9; s++) {
    const int64_t B = batches[s % 3];
    const int64_t bytes = (1 + B) * (int64_t)sizeof(double);
    static double loss[2][3001];
    double *on_device;
    Arguments a = {0};

    /* sizes of z, y, dz, p, w */
    for (int i = 0; i < 5; i++) add(&a, B * (i == 1 || i == 4 ? 1 : 2));
    for (int64_t i = 0; i < B; i++) {
      ((float *)a.array[0].by_cpu)[2 * i] *= i % 7 ? 3.0f : 100.0f;
      ((float *)a.array[1].by_cpu)[i] = i % 5 == 3 ? NAN : (float)(i % 2);
      ((float *)a.array[4].by_cpu)[i] = 0.5f * (float)(i % 3);
    }
    for (int i = 0; i < 5; i++) memcpy(a.array[i].before, a.array[i].by_cpu, (size_t)a.array[i].bytes);
    memset(loss, 0, sizeof(loss));
    loss[0][0] = 0.25;
    assert_petsc_ok(device->alloc(bytes, (void **)&on_device));
    assert_petsc_ok(device->copy(on_device, loss[0], bytes, NULL));
    TWINS(a, 1e-6, run_loss(ops, k, B, x, s, ops == cpu ? loss[0] : on_device));
    assert_petsc_ok(device->copy(loss[1], on_device, bytes, NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
    loss[1][0] = 0.25 + (loss[1][0] - 0.25) / 2; /* the GPU call ran twice */
    for (int64_t i = 0; i <= B; i++) assert_close(loss[1][i], loss[0][i], 1e-9, 1e-9);
    assert_petsc_ok(device->release((void **)&on_device));
  }
}

static void test_loss(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int k = 0; k < N_LOSSES; k++) check_loss(k);
}

static void test_squares(void **state)
{
  static const int64_t sizes[] = {0, 1, 300, 50000};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 4; s++) {
    double sum[2] = {-1, -1}, *on_device;
    Arguments a = {0};

    add(&a, sizes[s]);
    assert_petsc_ok(device->alloc((int64_t)sizeof(double), (void **)&on_device));
    TWINS(a, 1e-9, ops->sum_of_squares(NULL, sizes[s], x[0], ops == cpu ? &sum[0] : on_device));
    assert_petsc_ok(device->copy(&sum[1], on_device, (int64_t)sizeof(double), NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
    assert_close(sum[1], sum[0], 1e-12, 1e-12);
    assert_petsc_ok(device->release((void **)&on_device));
  }
}

enum { N_DENSE_KINDS = 0 TRS_DENSE_OPTIMIZERS(TRS_COUNT_WORD) };

/*
  The gradient's sum of squares is 16, so the gradient's norm is 4. Clipping to norm 2 halves the
  gradient. Clipping to norm 5 leaves the gradient unchanged.
*/
static PetscErrorCode update(const TrsComputeOps *ops, int kind, double max_norm, const double *on_device,
                             int64_t n, float *const *x)
{
  static const double sixteen = 16.0;
  const TrsDenseOptimizerArgs args = {
      (TrsDenseOptimizerKind)kind,       0.1f,     1e-8f, 0.01f, 0.9,  0.999, 0.5f,
      ops == cpu ? &sixteen : on_device, max_norm, 3,     0.0f,  NULL, NULL};

  PetscFunctionBegin;
  PetscCall(ops->dense_update(NULL, n, &args, x[0], x[1], x[2], x[3]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_optimizers(void **state)
{
  const double sixteen = 16.0;
  void *on_device;

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(device->alloc((int64_t)sizeof(sixteen), &on_device));
  assert_petsc_ok(device->copy(on_device, &sixteen, (int64_t)sizeof(sixteen), NULL));
  for (int s = 0; s < 2 * N_DENSE_KINDS; s++) {
    const int64_t n = 1000;
    Arguments a = {0};

    for (int i = 0; i < 4; i++) add(&a, n);
    for (int i = 2; i < 4; i++) /* sums of squares must not be negative */
      for (int64_t k = 0; k < n; k++) {
        float *values = a.array[i].by_cpu;
        values[k] = fabsf(values[k]);
        ((float *)a.array[i].before)[k] = values[k];
      }
    TWINS(a, 2e-6, update(ops, s % N_DENSE_KINDS, s < N_DENSE_KINDS ? 2.0 : 5.0, on_device, n, x));
  }
  assert_petsc_ok(device->release(&on_device));
}

/*
  Update n elements that begin `offset` floats after the start of device memory. The numbers are the
  same for every offset. The results are written to out [3 * n].
*/
static void update_at(int kind, int64_t n, int64_t offset, float *out)
{
  const int64_t bytes = (n + offset) * (int64_t)sizeof(float);
  const TrsDenseOptimizerArgs lamb = {TRS_DENSE_LAMB, 0.1f, 1e-6f, 0.01f, 0.9,  0.999, 0.5f,
                                      NULL,           0.0,  3,     0.25f, NULL, NULL};
  float *values = calloc((size_t)(n + offset), sizeof(*values)), *x[4], *begin[4];
  void *squares;

  assert_petsc_ok(device->alloc(2 * (int64_t)sizeof(double), &squares));
  for (int i = 0; i < 4; i++) {
    assert_petsc_ok(device->alloc(bytes, (void **)&begin[i]));
    for (int64_t k = 0; k < n; k++) {
      const float drawn = draw((uint64_t)i, (uint64_t)k);
      values[offset + k] = i < 2 ? drawn : fabsf(drawn);
    }
    assert_petsc_ok(device->copy(begin[i], values, bytes, NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
    x[i] = begin[i] + offset;
  }
  assert_petsc_ok(update(cuda, kind, 0.0, NULL, n, x));
  if (kind == TRS_DENSE_LAMB) assert_petsc_ok(cuda->lamb_apply(NULL, n, &lamb, x[2], x[3], squares, x[1]));
  for (int i = 1; i < 4; i++)
    assert_petsc_ok(device->copy(out + (i - 1) * n, x[i], n * (int64_t)sizeof(float), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  for (int i = 0; i < 4; i++) assert_petsc_ok(device->release((void **)&begin[i]));
  assert_petsc_ok(device->release(&squares));
  free(values);
}

/*
  Elements have the same bits whether they are updated in groups of four or singly, even in memory
  that is aligned to only 4 bytes.
*/
static void test_optimizers_aligned(void **state)
{
  enum { N = 1003 };
  static float wide[3 * N], narrow[3 * N];

  (void)state;
  if (!cuda) skip();
  for (int kind = 0; kind < N_DENSE_KINDS; kind++) {
    update_at(kind, N, 0, wide);
    update_at(kind, N, 1, narrow);
    assert_memory_equal(wide, narrow, sizeof(wide));
  }
}

/*
  Update n elements and write the weights' operands, at this offset in memory. The bits of the
  operands are those of the converted weights, and the weights are those of an update without
  operands. The last weights are NaN and infinite.
*/
static void check_operands(int b, int kind, int64_t n, int64_t offset)
{
  const TrsDeviceOps *memory = b ? device : trs_device_backends[0];
  const TrsComputeOps *ops = b ? cuda : cpu;
  const int64_t bytes = (n + offset) * (int64_t)sizeof(float), half = bytes / 2;
  TrsDenseOptimizerArgs args = {.kind = (TrsDenseOptimizerKind)kind,
                                .learning_rate = 0.1f,
                                .eps = 1e-6f,
                                .weight_decay = 0.01f,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .grad_scale = 0.5f,
                                .step = 3};
  float *values = calloc(4 * (size_t)(n + offset), sizeof(*values)), *found[2], *x[4];
  uint16_t *operands = calloc((size_t)(n + offset), sizeof(*operands)),
           *wanted = calloc((size_t)(n + offset), sizeof(*wanted));
  void *narrow, *converted, *squares;

  assert_petsc_ok(memory->alloc(2 * (int64_t)sizeof(double), &squares));
  assert_petsc_ok(memory->alloc(half, &narrow));
  assert_petsc_ok(memory->alloc(half, &converted));
  for (int way = 0; way < 2; way++) {
    args.operands = way ? (uint16_t *)narrow + offset : NULL;
    for (int i = 0; i < 4; i++) {
      float *of = values + i * (n + offset);

      for (int64_t k = 0; k < n; k++) of[offset + k] = draw((uint64_t)i, (uint64_t)k);
      for (int64_t k = 0; k < n && i > 1; k++) of[offset + k] = fabsf(of[offset + k]);
      if (i == 1 && kind != TRS_DENSE_LAMB) of[offset + n - 1] = NAN;
      if (i == 1 && kind != TRS_DENSE_LAMB) of[offset + n - 2] = -INFINITY;
      assert_petsc_ok(memory->alloc(bytes, (void **)&x[i]));
      assert_petsc_ok(memory->copy(x[i], of, bytes, NULL));
      assert_petsc_ok(memory->stream_synchronize(NULL));
    }
    assert_petsc_ok(
        ops->dense_update(NULL, n, &args, x[0] + offset, x[1] + offset, x[2] + offset, x[3] + offset));
    if (kind == TRS_DENSE_LAMB)
      assert_petsc_ok(ops->lamb_apply(NULL, n, &args, x[2] + offset, x[3] + offset, squares, x[1] + offset));
    assert_petsc_ok(ops->convert(NULL, n, TRS_FP32, x[1] + offset, TRS_BF16, (uint16_t *)converted + offset));
    found[way] = calloc((size_t)n, sizeof(float));
    assert_petsc_ok(memory->copy(found[way], x[1] + offset, n * (int64_t)sizeof(float), NULL));
    assert_petsc_ok(memory->copy(operands, (uint16_t *)narrow + offset, 2 * n, NULL));
    assert_petsc_ok(memory->copy(wanted, (uint16_t *)converted + offset, 2 * n, NULL));
    assert_petsc_ok(memory->stream_synchronize(NULL));
    for (int i = 0; i < 4; i++) assert_petsc_ok(memory->release((void **)&x[i]));
  }
  assert_memory_equal(found[0], found[1], (size_t)n * sizeof(float));
  assert_memory_equal(operands, wanted, 2 * (size_t)n);
  for (int way = 0; way < 2; way++) free(found[way]);
  assert_petsc_ok(memory->release(&narrow));
  assert_petsc_ok(memory->release(&converted));
  assert_petsc_ok(memory->release(&squares));
  free(values);
  free(operands);
  free(wanted);
}

static void test_operands(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int b = 0; b < 2; b++)
    for (int kind = 0; kind < N_DENSE_KINDS; kind++)
      for (int64_t offset = 0; offset < 5; offset += 2) check_operands(b, kind, 1003, offset);
}

/* A step's numbers in memory that the kernels read, for either backend. */
typedef struct {
  TrsBatchNumbers batch;
  TrsUpdateNumbers update;
} Numbers;

/*
  Run an update with lamb's step, dropout, and the gradient of a loss. If `now` is given, it has the
  step's numbers, and the arguments have other numbers. If not, the arguments have them.
*/
static PetscErrorCode use_numbers(const TrsComputeOps *ops, int kind, const Numbers *now, int64_t n,
                                  float *const *x, double *sums)
{
  const PetscBool has = (PetscBool)(now != NULL);
  const TrsDenseOptimizerArgs args = {.kind = (TrsDenseOptimizerKind)kind,
                                      .learning_rate = has ? 7.0f : 0.1f,
                                      .eps = 1e-6f,
                                      .weight_decay = 0.01f,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .grad_scale = 0.5f,
                                      .step = has ? 99 : 3,
                                      .now = now ? &now->update : NULL};
  const TrsDropout dropout = {.key = 12345,
                              .step = has ? 99 : 7,
                              .first = has ? 99 : 1000,
                              .kept = 3000000000U,
                              .scale = 1.5F,
                              .now = now ? &now->batch : NULL};
  const TrsLossArgs loss = {.batch = n,
                            .classes = 1,
                            .z = x[0],
                            .z_stride = 1,
                            .y = x[1],
                            .y_stride = 1,
                            .scale = has ? 0.75f : 0.3f * 0.75f,
                            .now = now ? &now->batch : NULL,
                            .parameter = 1.0f,
                            .loss = sums,
                            .dz = x[4]};

  PetscFunctionBegin;
  PetscCall(ops->mse(NULL, &loss));
  PetscCall(ops->softmax(NULL, &(TrsLossArgs){.batch = n / 2,
                                              .classes = 2,
                                              .z = x[0],
                                              .z_stride = 2,
                                              .y = x[6],
                                              .y_stride = 1,
                                              .scale = loss.scale,
                                              .now = loss.now,
                                              .loss = sums,
                                              .dz = x[7]}));
  PetscCall(ops->drop_out(NULL, n / 8, 8, &dropout, x[0], 8, x[5], 8));
  PetscCall(ops->dense_update(NULL, n, &args, x[0], x[1], x[2], x[3]));
  if (kind == TRS_DENSE_LAMB) PetscCall(ops->lamb_apply(NULL, n, &args, x[2], x[3], sums, x[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If a step's numbers are read from memory, the results have the same bits as with arguments, on the
  CPU and on the GPU.
*/
static void test_numbers(void **state)
{
  enum { N = 1000, ARRAYS = 8 };
  static float before[ARRAYS][N], found[2][ARRAYS][N];
  const TrsDenseOptimizerArgs step = {
      .learning_rate = 0.1f, .weight_decay = 0.01f, .beta1 = 0.9, .beta2 = 0.999, .step = 3};
  const Numbers numbers = {.batch = {.step = 7, .first = 1000, .loss_scale = 0.3f},
                           .update = TrsUpdateNumbersOf(&step)};
  float *x[ARRAYS];
  Numbers *now;
  void *sums;

  (void)state;
  if (!cuda) skip();
  for (int i = 0; i < ARRAYS; i++)
    for (int64_t k = 0; k < N; k++) {
      before[i][k] = draw((uint64_t)i, (uint64_t)k);
      if (i == 2 || i == 3) before[i][k] = fabsf(before[i][k]); /* these are sums of squares */
      if (i == 6) before[i][k] = (float)(k % 2);                /* these are classes */
    }
  for (int b = 0; b < 2; b++) {
    const TrsDeviceOps *memory = b ? device : trs_device_backends[0];

    assert_petsc_ok(memory->alloc(2 * (int64_t)sizeof(double), &sums));
    assert_petsc_ok(memory->alloc((int64_t)sizeof(numbers), (void **)&now));
    assert_petsc_ok(memory->copy(now, &numbers, (int64_t)sizeof(numbers), NULL));
    for (int i = 0; i < ARRAYS; i++)
      assert_petsc_ok(memory->alloc((int64_t)sizeof(before[i]), (void **)&x[i]));
    for (int kind = 0; kind < N_DENSE_KINDS; kind++) {
      for (int in_memory = 0; in_memory < 2; in_memory++) {
        for (int i = 0; i < ARRAYS; i++)
          assert_petsc_ok(memory->copy(x[i], before[i], (int64_t)sizeof(before[i]), NULL));
        assert_petsc_ok(use_numbers(b ? cuda : cpu, kind, in_memory ? now : NULL, N, x, sums));
        for (int i = 0; i < ARRAYS; i++)
          assert_petsc_ok(memory->copy(found[in_memory][i], x[i], (int64_t)sizeof(before[i]), NULL));
        assert_petsc_ok(memory->stream_synchronize(NULL));
      }
      assert_memory_equal(found[0], found[1], sizeof(found[0]));
    }
    for (int i = 0; i < ARRAYS; i++) assert_petsc_ok(memory->release((void **)&x[i]));
    assert_petsc_ok(memory->release((void **)&now));
    assert_petsc_ok(memory->release(&sums));
  }
}

/*
  Gradients that are clamped by value, and lamb's step for layers of one thread block and of
  several.
*/
static void test_clamp_and_lamb(void **state)
{
  static const int64_t sizes[] = {1, 1000, 100003};
  double host[2];
  void *squares;

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(device->alloc(2 * (int64_t)sizeof(double), &squares));
  for (int s = 0; s < 3; s++) {
    const TrsDenseOptimizerArgs args = {TRS_DENSE_LAMB, 0.1f, 1e-6f, 0.01f, 0.9,  0.999, 0.5f,
                                        NULL,           0.0,  3,     0.25f, NULL, NULL};
    Arguments a = {0};

    for (int i = 0; i < 4; i++) add(&a, sizes[s]);
    for (int64_t k = 0; k < sizes[s]; k++) { /* these are mean squares */
      float *values = a.array[3].by_cpu;
      values[k] = fabsf(values[k]);
      ((float *)a.array[3].before)[k] = values[k];
    }
    TWINS(a, 2e-6,
          ops->dense_update(NULL, sizes[s], &args, x[0], x[1], x[2], x[3])
              ? 1
              : (int)ops->lamb_apply(NULL, sizes[s], &args, x[2], x[3], ops == cpu ? host : squares, x[1]));
  }
  assert_petsc_ok(device->release(&squares));
}

/* Zeros that pad a weight stay zero, even if eps is 0. */
static void test_zeros_stay(void **state)
{
  float zeros[64] = {0}, found[64];
  void *x[4], *squares;

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(device->alloc(2 * (int64_t)sizeof(double), &squares));
  for (int kind = 0; kind < N_DENSE_KINDS; kind++) {
    const TrsDenseOptimizerArgs args = {
        (TrsDenseOptimizerKind)kind, 0.1f, 0.0f, 0.01f, 0.9, 0.999, 1.0f, NULL, 0, 1, 0.0f, NULL, NULL};

    for (int i = 0; i < 4; i++) assert_petsc_ok(device->alloc((int64_t)sizeof(zeros), &x[i]));
    assert_petsc_ok(cuda->dense_update(NULL, 64, &args, x[0], x[1], x[2], x[3]));
    if (kind == TRS_DENSE_LAMB) assert_petsc_ok(cuda->lamb_apply(NULL, 64, &args, x[2], x[3], squares, x[1]));
    assert_petsc_ok(device->copy(found, x[1], (int64_t)sizeof(found), NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
    assert_memory_equal(found, zeros, sizeof(zeros));
    for (int i = 0; i < 4; i++) assert_petsc_ok(device->release(&x[i]));
  }
  assert_petsc_ok(device->release(&squares));
}

TRS_TEST_MAIN(cmocka_unit_test(test_find), cmocka_unit_test(test_loss), cmocka_unit_test(test_squares),
              cmocka_unit_test(test_optimizers), cmocka_unit_test(test_optimizers_aligned),
              cmocka_unit_test(test_operands), cmocka_unit_test(test_numbers),
              cmocka_unit_test(test_clamp_and_lamb), cmocka_unit_test(test_zeros_stay))
