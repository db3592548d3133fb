/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Compares the cross network's kernels in bf16 on the GPU with the CPU, and with each other. Each
  test explains its tolerance.
*/
#include "gpu/bf16_twins.h"

/*
  The backward of a cross network to X in bf16. The total over the layers overwrites g, and the
  gradient of X is computed from it. The total is rounded before the matrix product is added, so the
  tolerance is 2^-7. dx0 of the last layer stays unchanged.
*/
static void check_cross_total(int64_t B, int64_t n, int64_t rank, int layers)
{
  enum { X0, U, BIAS, G, DX0, H, DBIAS, Q, V, DX, ALL };
  const int64_t size[ALL] = {B * n, B * n, n, B * n, B * n, B * n, n, B * rank, rank * n, B * n};
  const PetscBool of_floats[ALL] = {[BIAS] = PETSC_TRUE, [DX0] = PETSC_TRUE, [DBIAS] = PETSC_TRUE};
  float *host[ALL], *kept = calloc((size_t)(B * n), sizeof(float));
  void *on[ALL];

  for (int i = 0; i < ALL; i++)
    host[i] = held_numbers((uint64_t)i, size[i], (PetscBool)!of_floats[i], &on[i]);
  memcpy(kept, host[DX0], (size_t)(B * n) * sizeof(float));
  for (int backend = 0; backend < 2; backend++) {
    const TrsComputeOps *ops = backend ? cuda : cpu;
    const TrsDType type = backend ? TRS_BF16 : TRS_FP32;
    const TrsMatrix q = matrix_on(backend, host[Q], on[Q], type, rank),
                    v = matrix_on(backend, host[V], on[V], type, n),
                    g = matrix_on(backend, host[G], on[G], type, n),
                    dx = matrix_on(backend, host[DX], on[DX], type, n);
    const TrsCrossBackward layer = {
        backend ? on[X0] : host[X0],     backend ? on[U] : host[U], backend ? on[BIAS] : host[BIAS],   g.data,
        backend ? on[DX0] : host[DX0],   backend ? on[H] : host[H], backend ? on[DBIAS] : host[DBIAS], type,
        .total = backend ? g.data : NULL};

    assert_petsc_ok(ops->cross_backward(
        NULL, B, n, layers > 1 ? TRS_CROSS_LAST : TRS_CROSS_FIRST | TRS_CROSS_LAST, &layer));
    assert_petsc_ok(ops->cross_input(NULL, B, n, rank, q, v, g, layer.dx0, dx));
  }
  assert_near_on_device(on[DX], TRS_BF16, host[DX], size[DX], 0x1p-7);
  assert_near_on_device(on[H], TRS_BF16, host[H], size[H], 0x1p-8);
  assert_near_on_device(on[DX0], TRS_FP32, kept, size[DX0], 0.0);
  for (int i = 0; i < ALL; i++) {
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
  free(kept);
}

/*
  The backward of a cross network of some layers, in bf16. If the gradients of all layers are kept,
  and the last call adds up their parts of dx0, all results have the same bits as if each layer adds
  its part to dx0. Arrays may be aligned to one number only.
*/
static void check_cross_kept(int64_t B, int64_t n, int layers, int64_t offset)
{
  enum { MOST = TRS_CROSS_MOST_KEPT + 1, TOTAL = 0, H0, DBIAS0 = H0 + MOST, RESULTS = DBIAS0 + MOST };
  const int64_t size = B * n + offset;
  void *x0, *u[MOST], *g[MOST], *bias[MOST], *dx0, *total, *h, *dbias;
  char *found[2][RESULTS];

  free(held_numbers(100, size, PETSC_TRUE, &x0));
  for (int l = 0; l < layers; l++) {
    free(held_numbers((uint64_t)l, size, PETSC_TRUE, &u[l]));
    free(held_numbers(10 + (uint64_t)l, size, PETSC_TRUE, &g[l]));
    free(held_numbers(20 + (uint64_t)l, n, PETSC_FALSE, &bias[l]));
  }
  assert_petsc_ok(device->alloc(4 * size, &dx0));
  assert_petsc_ok(device->alloc(2 * size, &total));
  assert_petsc_ok(device->alloc(2 * size, &h));
  assert_petsc_ok(device->alloc(4 * n, &dbias));
  for (int kept = 0; kept < 2; kept++) {
    for (int l = layers - 1; l >= 0; l--) {
      TrsCrossBackward layer = {.x0 = (uint16_t *)x0 + offset,
                                .u = (uint16_t *)u[l] + offset,
                                .bias = bias[l],
                                .g = (uint16_t *)g[l] + offset,
                                .dx0 = dx0,
                                .h = (uint16_t *)h + offset,
                                .grad_bias = dbias,
                                .type = TRS_BF16,
                                .total = l ? NULL : (uint16_t *)total + offset};
      int place = (l == layers - 1 ? TRS_CROSS_FIRST : 0) | (l == 0 ? TRS_CROSS_LAST : 0);

      if (kept && l > 0) {
        place |= TRS_CROSS_KEPT;
        layer.u = NULL;
        layer.bias = NULL;
      }
      if (kept) layer.dx0 = NULL;
      for (int k = layers - 1; kept && l == 0 && k > 0; k--) {
        layer.kept[layer.n_kept].g = (uint16_t *)g[k] + offset;
        layer.kept[layer.n_kept].u = (uint16_t *)u[k] + offset;
        layer.kept[layer.n_kept++].bias = bias[k];
      }
      assert_petsc_ok(cuda->cross_backward(NULL, B, n, place, &layer));
      found[kept][H0 + l] = bytes_on_device(layer.h, 2 * B * n);
      found[kept][DBIAS0 + l] = bytes_on_device(dbias, 4 * n);
    }
    found[kept][TOTAL] = bytes_on_device((uint16_t *)total + offset, 2 * B * n);
  }
  for (int l = 0; l < layers; l++) {
    assert_memory_equal(found[1][H0 + l], found[0][H0 + l], (size_t)(2 * B * n));
    assert_memory_equal(found[1][DBIAS0 + l], found[0][DBIAS0 + l], (size_t)(4 * n));
  }
  assert_memory_equal(found[1][TOTAL], found[0][TOTAL], (size_t)(2 * B * n));
  for (int kept = 0; kept < 2; kept++) {
    for (int l = 0; l < layers; l++) {
      free(found[kept][H0 + l]);
      free(found[kept][DBIAS0 + l]);
    }
    free(found[kept][TOTAL]);
  }
  for (int l = 0; l < layers; l++) {
    assert_petsc_ok(device->release(&u[l]));
    assert_petsc_ok(device->release(&g[l]));
    assert_petsc_ok(device->release(&bias[l]));
  }
  assert_petsc_ok(device->release(&x0));
  assert_petsc_ok(device->release(&dx0));
  assert_petsc_ok(device->release(&total));
  assert_petsc_ok(device->release(&h));
  assert_petsc_ok(device->release(&dbias));
}

static void test_cross_kept(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int layers = 2; layers <= TRS_CROSS_MOST_KEPT + 1; layers++) {
    check_cross_kept(130, 132, layers, 0);
    check_cross_kept(7, 64, layers, 1);
    check_cross_kept(9, 45, layers, 0);
  }
}

static void test_cross_to_bf16(void **state)
{
  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
  for (int layers = 1; layers < 3; layers++) {
    check_cross_total(70, 64, 8, layers);
    check_cross_total(9, 45, 3, layers);
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

/*
  Check a cross layer's product and element-wise part in one call. u is close to the CPU's: its
  products are exact, sums are in another order, and u is rounded by 2^-8. y has the bits of
  cross_forward for the u that was written. No row before or after u and y is written.
*/
static void check_cross_product(int64_t B, int64_t n, int64_t k, int64_t more, PetscBool fused)
{
  enum { A, W, X0, X, BIAS, U, Y, WANTED, ARRAYS };
  const int64_t size[] = {B * (k + more), n * (k + more), B * n, B * n, n, (B + 2) * n, (B + 2) * n, B * n};
  TrsCrossProduct layer = {.fused = fused};
  float *host[ARRAYS];
  void *on[ARRAYS];
  uint16_t *y, *u;
  char *wanted;

  for (int i = 0; i < ARRAYS; i++)
    host[i] = held_numbers((uint64_t)i, size[i], (PetscBool)(i != BIAS), &on[i]);
  layer.product = (TrsMatrixProduct){.trans_b = PETSC_TRUE,
                                     .m = B,
                                     .n = n,
                                     .k = k,
                                     .alpha = 1.0F,
                                     .a = TrsFloats(host[A], k + more),
                                     .b = TrsFloats(host[W], k + more),
                                     .c = TrsFloats(host[U] + n, n)};
  layer.x0 = host[X0];
  layer.x = host[X];
  layer.bias = host[BIAS];
  layer.y = host[Y] + n;
  assert_petsc_ok(cpu->cross_product(NULL, &layer));
  layer.product.a = (TrsMatrix){TRS_BF16, k + more, on[A]};
  layer.product.b = (TrsMatrix){TRS_BF16, k + more, on[W]};
  layer.product.c = (TrsMatrix){TRS_BF16, n, (uint16_t *)on[U] + n};
  layer.x0 = on[X0];
  layer.x = on[X];
  layer.bias = on[BIAS];
  layer.y = (uint16_t *)on[Y] + n;
  assert_petsc_ok(cuda->cross_product(NULL, &layer));
  assert_near_on_device(on[U], TRS_BF16, host[U], size[U], 0x1p-8);
  assert_petsc_ok(
      cuda->cross_forward(NULL, B, n, TRS_BF16, on[X0], layer.product.c.data, on[BIAS], on[X], on[WANTED]));
  wanted = bytes_on_device(on[WANTED], 2 * B * n);
  u = (uint16_t *)bytes_on_device(on[U], 2 * size[U]);
  y = (uint16_t *)bytes_on_device(on[Y], 2 * size[Y]);
  assert_memory_equal(y + n, wanted, (size_t)(2 * B * n));
  for (int64_t i = 0; i < n; i++) { /* the rows around the results have their old numbers */
    const int64_t behind = (B + 1) * n + i;

    assert_int_equal(u[i], TrsFloatToBf16(host[U][i]));
    assert_int_equal(u[behind], TrsFloatToBf16(host[U][behind]));
    assert_int_equal(y[i], TrsFloatToBf16(host[Y][i]));
    assert_int_equal(y[behind], TrsFloatToBf16(host[Y][behind]));
  }
  free(wanted);
  free(u);
  free(y);
  for (int i = 0; i < ARRAYS; i++) {
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
}

/*
  Sizes of one tile, of many tiles with incomplete last ones, with fewer parts than are in flight,
  and with rows that have more numbers than the product uses.
*/
static void test_cross_product(void **state)
{
  static const int64_t sizes[][4] = {
      {128, 128, 32, 0}, {130, 136, 64, 0}, {9, 8, 160, 8}, {300, 264, 96, 0}, {128, 384, 128, 16}};

  (void)state;
  if (!cuda) skip();
  for (int way = 0; way < 3; way++) {
    setenv("TRSHARD_WAYS", way ? "fused" : "apart", 1);
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
    for (int i = 0; i < 5; i++) {
      check_cross_product(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], (PetscBool)(way < 2));
      assert_int_equal(strstr(cuda->product_library(), "own kernel for cross layers") != NULL, way == 1);
    }
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
  check_cross_product(20, 16, 20, 0, PETSC_TRUE); /* the kernel does not take this k */
  check_cross_product(20, 12, 32, 0, PETSC_TRUE); /* the kernel does not take this n */
  check_cross_product(20, 16, 32, 4, PETSC_TRUE); /* the kernel does not take these rows */
  assert_null(strstr(cuda->product_library(), "own kernel for cross layers"));
  unsetenv("TRSHARD_WAYS");
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

/* The inputs of layers on the device. Index k of g, u and bias is layer k. */
enum { LOWER_MOST = TRS_CROSS_MOST_KEPT + 1 };
typedef struct {
  int64_t B, n, rank;
  void *q, *V, *x0, *g[LOWER_MOST], *u[LOWER_MOST], *bias[LOWER_MOST];
} LowerArrays;
enum { LOWER_DX, LOWER_H, LOWER_DBIAS, LOWER_RESULTS }; /* the total is written to dx */

/*
  Compute the gradient of layer 1's input and the backward of layer 0, or of a kept layer if
  `layers` is 0. found: each result with the row before it and the row after it. separate: use two
  calls.
*/
static void run_lower(const LowerArrays *in, int layers, PetscBool separate, PetscBool fused,
                      char *found[LOWER_RESULTS])
{
  const int64_t B = in->B, n = in->n, bytes = 2 * (B + 2) * n;
  void *result[LOWER_RESULTS];
  TrsCrossInputBackward both = {.batch = B,
                                .n = n,
                                .rank = in->rank,
                                .q = {TRS_BF16, in->rank + 8, in->q},
                                .V = {TRS_BF16, n, in->V},
                                .g = {TRS_BF16, n, in->g[1]},
                                .place = layers ? TRS_CROSS_LAST : TRS_CROSS_KEPT,
                                .lower = {.x0 = in->x0, .type = TRS_BF16},
                                .fused = fused};

  for (int i = 0; i < LOWER_RESULTS; i++)
    free(held_numbers(500 + (uint64_t)i, i == LOWER_DBIAS ? 3 * n : (B + 2) * n,
                      (PetscBool)(i != LOWER_DBIAS), &result[i]));
  both.dx = (TrsMatrix){TRS_BF16, n, (uint16_t *)result[LOWER_DX] + n};
  both.lower.g = both.dx.data;
  both.lower.h = (uint16_t *)result[LOWER_H] + n;
  both.lower.grad_bias = (float *)result[LOWER_DBIAS] + n;
  if (layers) {
    both.lower.u = in->u[0];
    both.lower.bias = in->bias[0];
    both.lower.total = both.dx.data;
    for (int k = layers - 1; k > 0; k--) {
      both.lower.kept[both.lower.n_kept].g = in->g[k];
      both.lower.kept[both.lower.n_kept].u = in->u[k];
      both.lower.kept[both.lower.n_kept++].bias = in->bias[k];
    }
  }
  if (separate) {
    assert_petsc_ok(cuda->cross_input(NULL, B, n, in->rank, both.q, both.V, both.g, NULL, both.dx));
    assert_petsc_ok(cuda->cross_backward(NULL, B, n, both.place, &both.lower));
  } else {
    assert_petsc_ok(cuda->cross_input_backward(NULL, &both));
  }
  for (int i = 0; i < LOWER_RESULTS; i++)
    found[i] = bytes_on_device(result[i], i == LOWER_DBIAS ? 4 * 3 * n : bytes);
  for (int i = 0; i < LOWER_RESULTS; i++) assert_petsc_ok(device->release(&result[i]));
}

/* n whole numbers between -2 and 2, in bf16 on the device. Their products and sums are exact. */
static void *whole_numbers(uint64_t array, int64_t n)
{
  float *values = calloc((size_t)n, sizeof(*values));
  void *on;

  for (int64_t i = 0; i < n; i++) values[i] = roundf(2.0F * draw(array, (uint64_t)i));
  on = narrowed(values, n);
  free(values);
  return on;
}

/*
  Check two neighbouring layers' backward in one call. The product is exact, so all results have the
  same bits as those of two calls. Only the sums of the bias gradient may have a different order. No
  row before or after the results is written.
*/
static void check_cross_lower(int64_t B, int64_t n, int64_t rank, int layers, PetscBool fused)
{
  LowerArrays in = {.B = B, .n = n, .rank = rank};
  char *wanted[LOWER_RESULTS], *found[LOWER_RESULTS];
  const size_t bytes = (size_t)(2 * (B + 2) * n);

  in.q = whole_numbers(100, B * (rank + 8));
  in.V = whole_numbers(101, rank * n);
  free(held_numbers(102, B * n, PETSC_TRUE, &in.x0));
  for (int k = 0; k < LOWER_MOST; k++) {
    free(held_numbers(200 + (uint64_t)k, B * n, PETSC_TRUE, &in.g[k]));
    free(held_numbers(300 + (uint64_t)k, B * n, PETSC_TRUE, &in.u[k]));
    free(held_numbers(400 + (uint64_t)k, n, PETSC_FALSE, &in.bias[k]));
  }
  run_lower(&in, layers, PETSC_TRUE, PETSC_FALSE, wanted);
  run_lower(&in, layers, PETSC_FALSE, fused, found);
  assert_memory_equal(found[LOWER_DX], wanted[LOWER_DX], bytes);
  assert_memory_equal(found[LOWER_H], wanted[LOWER_H], bytes);
  for (int64_t i = 0; i < 3 * n; i++) {
    const float sum = ((const float *)found[LOWER_DBIAS])[i], other = ((const float *)wanted[LOWER_DBIAS])[i];

    if (i >= n && i < 2 * n)
      assert_close(sum, other, 1e-4 * sqrt((double)B), 1e-5);
    else
      assert_true(sum == other);
  }
  for (int r = 0; r < LOWER_RESULTS; r++) {
    free(wanted[r]);
    free(found[r]);
  }
  for (int k = 0; k < LOWER_MOST; k++) {
    assert_petsc_ok(device->release(&in.g[k]));
    assert_petsc_ok(device->release(&in.u[k]));
    assert_petsc_ok(device->release(&in.bias[k]));
  }
  assert_petsc_ok(device->release(&in.q));
  assert_petsc_ok(device->release(&in.V));
  assert_petsc_ok(device->release(&in.x0));
}

/*
  Sizes of test_cross_product, and one with many runs. The lower layer is kept, or is layer 0 of two
  to four layers.
*/
static void test_cross_lower(void **state)
{
  static const int64_t sizes[][3] = {
      {128, 128, 32}, {130, 136, 64}, {9, 8, 160}, {300, 264, 96}, {1100, 8, 32}};

  (void)state;
  if (!cuda) skip();
  for (int way = 0; way < 2; way++) {
    setenv("TRSHARD_WAYS", way ? "fused" : "apart", 1);
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
    for (int i = 0; i < 5; i++)
      for (int layers = 0; layers <= LOWER_MOST; layers += layers ? 1 : 2) {
        check_cross_lower(sizes[i][0], sizes[i][1], sizes[i][2], layers, PETSC_TRUE);
        assert_int_equal(strstr(cuda->product_library(), "own kernel for cross layers") != NULL, way == 1);
      }
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
  check_cross_lower(20, 16, 32, 0, PETSC_FALSE);
  check_cross_lower(20, 16, 20, 2, PETSC_TRUE); /* the kernel does not take this rank */
  check_cross_lower(20, 12, 32, 2, PETSC_TRUE); /* the kernel does not take this n */
  assert_null(strstr(cuda->product_library(), "own kernel for cross layers"));
  unsetenv("TRSHARD_WAYS");
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

TRS_TEST_MAIN(cmocka_unit_test(test_find), cmocka_unit_test(test_cross_to_bf16),
              cmocka_unit_test(test_cross_kept), cmocka_unit_test(test_cross_product),
              cmocka_unit_test(test_cross_lower))
