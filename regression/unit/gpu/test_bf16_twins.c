/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Compares matrices in bf16 on the GPU, and matrix products with masks and sums, with the CPU in
  bf16. Each test explains its tolerance.
*/
#include "gpu/bf16_twins.h"
#include "gpu/layer_twins.h"

/*
  Compares a linear layer with bf16 matrices with the CPU's layer in bf16 with float matrices. The
  GPU also rounds the bias, the output, and the gradients of output and input, each by at most half
  a unit in the last place. So the tolerance is 2^-8 of a number. For sums over the batch it is 2^-8
  of 1 + the sum.
*/
static void test_linear_of_bf16(void **state)
{
  static const int64_t sizes[][3] = {{72, 40, 24}, {9, 13, 5}, {200, 64, 1}};

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
  assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_BF16));
  for (int s = 0; s < 3; s++) {
    const int64_t B = sizes[s][0], in = sizes[s][1], out = sizes[s][2];
    const int64_t n[] = {B * in,  in * out, out, B * out,
                         B * out, in * out, out, B * in}; /* sizes of x W b y dy dW db dx */
    const TrsActivation activation = s % 2 ? TRS_ACTIVATION_NONE : TRS_ACTIVATION_RELU;
    float *host[8];
    void *on[8];

    for (int i = 0; i < 8; i++) {
      host[i] = calloc((size_t)n[i], sizeof(float));
      for (int64_t k = 0; k < n[i]; k++) host[i][k] = draw((uint64_t)i, (uint64_t)k);
      on[i] = narrowed(host[i], n[i]);
    }
    for (int i = 5; i < 7; i++) {
      assert_petsc_ok(device->release(&on[i]));
      assert_petsc_ok(device->alloc(4 * n[i], &on[i]));
    }
    for (int backend = 0; backend < 2; backend++) {
      const TrsComputeOps *ops = backend ? cuda : cpu;
      TrsMatrix m[8];

      for (int i = 0; i < 8; i++) {
        m[i] = TrsFloats(host[i], i == 0 || i == 1 || i == 7 ? in : out);
        if (backend) m[i].data = on[i];
        if (backend) m[i].type = TRS_BF16;
      }
      assert_petsc_ok(
          ops->linear_forward(NULL, &(TrsLinear){B, in, out, m[0], m[1], m[2].data, activation, m[3], NULL}));
      assert_petsc_ok(ops->linear_backward(NULL,
                                           &(TrsLinear){B, in, out, m[0], m[1], NULL, activation, m[3], NULL},
                                           &(TrsLinearGradients){m[4], m[5].data, m[6].data, m[7]}));
    }
    for (int i = 3; i < 8; i++)
      assert_near_on_device(on[i], i == 5 || i == 6 ? TRS_FP32 : TRS_BF16, host[i], n[i],
                            i == 5 || i == 6 ? 0x1p-6 : 0x1p-8);
    for (int i = 0; i < 8; i++) {
      assert_petsc_ok(device->release(&on[i]));
      free(host[i]);
    }
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_FP32));
}

/*
  Read the device's mask of y = ReLU(before), with bits in the order of TrsReluMask. If a number is
  so close to 0 that rounding decides its sign, use the device's bit on the host as well.
*/
static void take_bits(int64_t B, int64_t cols, const TrsReluMask *mask, const float *before, double near,
                      float *y)
{
  unsigned char *bits = calloc((size_t)B + 1, (size_t)mask->row_bytes);

  assert_petsc_ok(device->copy(bits, mask->data, B * mask->row_bytes, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  for (int64_t b = 0; b < B; b++)
    for (int64_t c = 0; c < cols; c++) {
      const int bit = bits[b * mask->row_bytes + c / 8] >> c % 8 & 1;
      float *its = &y[b * cols + c];

      if (bit == (*its > 0.0F)) continue;
      assert_true(fabs((double)before[b * cols + c]) <= near);
      *its = bit ? 1e-30F : 0.0F;
    }
  free(bits);
}

/*
  Two linear layers with ReLU between them. The backward of the second layer applies the mask, and
  the matrix products compute the sums. The CPU computes one layer after the other. type is the type
  of the device's matrices. cuBLASLt has no kernel for some shapes, such as one input column or one
  unit.
*/
static void check_fused(const int64_t *size, TrsDType type, double tolerance)
{
  enum { X, W1, B1, H, W2, B2, Z, DZ, DH, DW1, DB1, DW2, DB2, DX, ALL };
  const int64_t B = size[0], in = size[1], mid = size[2], out = size[3];
  const int64_t n[ALL] = {[X] = B * in, [W1] = mid * in,   [B1] = mid,     [H] = B * mid,  [W2] = out * mid,
                          [B2] = out,   [Z] = B * out,     [DZ] = B * out, [DH] = B * mid, [DW1] = mid * in,
                          [DB1] = mid,  [DW2] = out * mid, [DB2] = out,    [DX] = B * in};
  const int64_t stride[ALL] = {
      [X] = in, [W1] = in, [H] = mid, [W2] = mid, [Z] = out, [DZ] = out, [DH] = mid, [DX] = in};
  const int64_t row_bytes = cuda->relu_mask_bytes(mid);
  TrsReluMask mask = {.row_bytes = row_bytes};
  float *host[ALL], *before = calloc((size_t)(B * mid) + 1, sizeof(*before));
  void *on[ALL];

  if (row_bytes) assert_true(row_bytes % 16 == 0 && 8 * row_bytes >= mid);
  if (row_bytes) assert_petsc_ok(device->alloc(B * row_bytes, &mask.data));
  for (int i = 0; i < ALL; i++)
    host[i] = held_numbers((uint64_t)i, n[i],
                           (PetscBool)(type == TRS_BF16 && i != DW1 && i != DB1 && i != DW2 && i != DB2),
                           &on[i]);
  for (int call = 0; call < 4; call++) { /* both forwards, followed by both backwards */
    const int backend = call % 2;
    const TrsComputeOps *ops = backend ? cuda : cpu;
    const TrsReluMasks kept = {.y = mask}, applied = {.x = mask}, *const first = backend ? &kept : NULL,
                       *const second = backend ? &applied : NULL;
    TrsMatrix m[ALL];
    float *v[ALL];

    for (int i = 0; i < ALL; i++) {
      v[i] = backend ? on[i] : host[i];
      m[i] = TrsFloats(v[i], stride[i]);
      if (backend) m[i].type = type;
    }
    if (call == 0)
      assert_petsc_ok(
          ops->linear_forward(NULL, &(TrsLinear){B, in, mid, m[X], m[W1], v[B1], TRS_ACTIVATION_NONE,
                                                 TrsFloats(before, mid), NULL}));
    if (call < 2) {
      assert_petsc_ok(ops->linear_forward(
          NULL, &(TrsLinear){B, in, mid, m[X], m[W1], v[B1], TRS_ACTIVATION_RELU, m[H], first}));
      assert_petsc_ok(ops->linear_forward(
          NULL, &(TrsLinear){B, mid, out, m[H], m[W2], v[B2], TRS_ACTIVATION_NONE, m[Z], second}));
      if (backend && mask.data) take_bits(B, mid, &mask, before, tolerance, host[H]);
      continue;
    }
    assert_petsc_ok(ops->linear_backward(
        NULL, &(TrsLinear){B, mid, out, m[H], m[W2], NULL, TRS_ACTIVATION_NONE, m[Z], second},
        &(TrsLinearGradients){m[DZ], v[DW2], v[DB2], m[DH]}));
    assert_petsc_ok(ops->linear_backward(
        NULL, &(TrsLinear){B, in, mid, m[X], m[W1], NULL, TRS_ACTIVATION_RELU, m[H], first},
        &(TrsLinearGradients){m[DH], v[DW1], v[DB1], m[DX]}));
  }
  for (int i = 0; i < ALL; i++) {
    const PetscBool sum = (PetscBool)(i == DW1 || i == DB1 || i == DW2 || i == DB2);

    assert_near_on_device(on[i], sum ? TRS_FP32 : type, host[i], n[i], sum ? 4 * tolerance : tolerance);
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
  assert_petsc_ok(device->release(&mask.data));
  free(before);
}

/*
  Run with cuBLASLt with masks and sums, then with cuBLASLt that refuses them (the stand-in's
  environment), and then without cuBLASLt. The gradient of the last size's weights has few tiles for
  its many samples, so its sums are made apart in any case. The stand-in has two multiprocessors.
*/
static void test_fused(void **state)
{
  static const int64_t sizes[][4] = {{70, 40, 136, 24}, {33, 1, 13, 1},    {1, 8, 300, 8},
                                     {0, 5, 7, 3},      {200, 16, 128, 5}, {2050, 8, 16, 4}};

  (void)state;
  if (!cuda) skip();
  for (int way = 0; way < 3; way++) {
    const PetscBool refusing = (PetscBool)(way == 1);

    if (refusing && !strstr(about, "CPU standing in")) continue;
    if (refusing) setenv("CUBLASLT_ON_CPU_REFUSE", "fused", 1);
    if (way == 2) setenv("TRSHARD_GEMM", "own", 1);
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
    assert_true((cuda->relu_mask_bytes(1) == 0) == (way == 2));
    for (int s = 0; s < 5; s++) check_fused(sizes[s], TRS_FP32, 1e-5);
    if (strstr(about, "CPU standing in"))
      assert_true((strstr(cuda->product_library(), "masks and sums apart for ") != NULL) == refusing);
    check_fused(sizes[5], TRS_FP32, 1e-5);
    if (strstr(about, "CPU standing in"))
      assert_true((strstr(cuda->product_library(), "masks and sums apart for ") != NULL) == (way < 2));
    if (way < 2) {
      assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
      assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_BF16));
      /*
        one unit in the last place of bf16 in the gradient between the layers: 2^-8 of a number, in
        sums of numbers below 8
      */
      for (int s = 0; s < 5; s++) check_fused(sizes[s], TRS_FP32, 0x1p-7);
      for (int s = 0; s < 5; s++) check_fused(sizes[s], TRS_BF16, 0x1p-6);
    }
    assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_FP32));
    unsetenv("CUBLASLT_ON_CPU_REFUSE");
    unsetenv("TRSHARD_GEMM");
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  }
}

/*
  Vectors at any addresses give the same bits as vectors in a matrix, even if gradients overwrite
  them. Here the samples of each vector are contiguous and in reverse order. x, out and dx are on
  the device. x and out were the inputs of a backward, and dx was its result.
*/
static void check_places(int64_t B, int n, int D, int copied, TrsMatrix x, TrsMatrix out, TrsMatrix dx)
{
  enum { MOST = 96 };
  const int64_t vector = D * TrsDTypeBytes(x.type), row = n * vector,
                out_bytes = B * out.stride * TrsDTypeBytes(out.type);
  char *from = bytes_on_device(x.data, B * row), *wanted = bytes_on_device(dx.data, B * row),
       *apart = malloc((size_t)(B * row)), *found;
  TrsVectorPlace place[MOST];
  TrsMatrix again = out;
  void *there = NULL;

  if (!cuda->dot_takes_places(n, D)) {
    free(from);
    free(wanted);
    free(apart);
    return;
  }
  assert_petsc_ok(device->alloc(B * row, &there));
  for (int v = 0; v < n; v++) {
    const int64_t at = (n - 1 - v) * B * vector;

    for (int64_t b = 0; b < B; b++)
      memcpy(apart + at + b * vector, from + b * row + v * vector, (size_t)vector);
    place[v] = (TrsVectorPlace){.data = (char *)there + at, .stride = D};
  }
  assert_petsc_ok(device->copy(there, apart, B * row, NULL));
  assert_petsc_ok(cuda->dot_places_backward(NULL, B, n, D, copied, x.type, place, out, place));
  found = bytes_on_device(there, B * row);
  for (int v = 0; v < n; v++)
    for (int64_t b = 0; b < B; b++)
      assert_memory_equal(found + (n - 1 - v) * B * vector + b * vector, wanted + b * row + v * vector,
                          (size_t)vector);
  free(found);
  assert_petsc_ok(device->copy(there, apart, B * row, NULL));
  assert_petsc_ok(device->alloc(out_bytes, &again.data));
  /* fill the memory that is not written */
  assert_petsc_ok(device->copy(again.data, out.data, out_bytes, NULL));
  assert_petsc_ok(cuda->dot_places_forward(NULL, B, n, D, copied, 2, x.type, place, again));
  assert_petsc_ok(cuda->dot_forward(NULL, B, n, D, copied, 2, x, out));
  free(wanted);
  wanted = bytes_on_device(out.data, out_bytes);
  found = bytes_on_device(again.data, out_bytes);
  assert_memory_equal(found, wanted, (size_t)out_bytes);
  assert_petsc_ok(device->release(&again.data));
  assert_petsc_ok(device->release(&there));
  free(from);
  free(wanted);
  free(apart);
  free(found);
}

/*
  The dot interaction with the matrix X in float and in bf16. The cases include vectors that fit in
  shared memory and vectors that do not, and sizes that are multiples of four or not. Tensor cores
  take up to 32 vectors of 16 to 256 columns, a multiple of 16. The rows of every second case are
  aligned to 16 bytes. Results are rounded sums of D or n products of rounded numbers.
*/
static void test_dot_of_bf16(void **state)
{
  static const int shapes[][4] = {{9, 8, 8, 7},     {27, 128, 128, 5}, {5, 6, 0, 9},   {4, 5, 5, 3},
                                  {40, 2056, 0, 2}, {4, 16, 16, 9},    {16, 64, 0, 6}, {17, 96, 96, 3},
                                  {32, 256, 0, 2},  {33, 64, 64, 2},   {3, 32, 32, 5}, {27, 128, 128, 3}};
  enum { X, OUT, DX, ALL };

  (void)state;
  if (!cuda) skip();
  for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
    const int n = shapes[s][0], D = shapes[s][1], copied = shapes[s][2], most = copied + n * (n - 1) / 2 + 3,
              stride = s % 2 ? (most + 7) / 8 * 8 : most;
    const int64_t B = shapes[s][3], size[ALL] = {B * n * D, B * stride, B * n * D};
    float *host[ALL];
    void *on[ALL];

    for (int i = 0; i < ALL; i++) host[i] = held_numbers((uint64_t)i, size[i], PETSC_TRUE, &on[i]);
    for (int backend = 0; backend < 2; backend++) {
      const TrsComputeOps *ops = backend ? cuda : cpu;
      const TrsMatrix x = matrix_on(backend, host[X], on[X], TRS_BF16, n * D),
                      out = matrix_on(backend, host[OUT], on[OUT], TRS_BF16, stride),
                      dx = matrix_on(backend, host[DX], on[DX], TRS_BF16, n * D);

      assert_petsc_ok(
          /* equal bits for any type of the gradient */
          ops->dot_backward(NULL, B, n, D, copied, x, out, dx));
      if (backend) check_places(B, n, D, copied, x, out, dx);
      assert_petsc_ok(ops->dot_forward(NULL, B, n, D, copied, 2, x, out));
    }
    assert_near_on_device(on[DX], TRS_BF16, host[DX], size[DX], 0x1p-8);
    assert_near_on_device(on[OUT], TRS_BF16, host[OUT], size[OUT], 0x1p-8);
    for (int i = 0; i < ALL; i++) {
      assert_petsc_ok(device->release(&on[i]));
      free(host[i]);
    }
  }
}

/*
  A layer of one unit, like the layer of a logit, and the loss on it. The CPU gets the same bf16
  numbers as floats, and rounds the loss' gradient for its products as the GPU does. It also gets
  the GPU's gradient, which may differ in the last place. The sums of `in` and of `B` products have
  errors of fp32. dx may be x.
*/
static void check_unit(int64_t B, int64_t in, PetscBool has_mask, PetscBool in_place, int loss_kind)
{
  enum { X, W, BIAS, Z, Y, DZ, P, DX, DW, DB, ALL };
  const int64_t size[ALL] = {B * in, in, 1, B, B, B, B, B * in, in, 1};
  const PetscBool narrow[ALL] = {[X] = PETSC_TRUE, [W] = PETSC_TRUE, [DX] = PETSC_TRUE};
  TrsReluMask mask = {.row_bytes = (in + 127) / 128 * 16};
  unsigned char *bits = calloc((size_t)B, (size_t)mask.row_bytes);
  double sum[2] = {0.25, 0}, *on_sum;
  float *host[ALL];
  void *on[ALL];

  for (int i = 0; i < ALL; i++) host[i] = held_numbers((uint64_t)i, size[i], narrow[i], &on[i]);
  for (int64_t b = 0; b < B; b++) host[Y][b] = (float)(b % 2);
  for (int64_t i = 0; i < B * mask.row_bytes; i++) bits[i] = (unsigned char)(37 * i + 11 * (i / 5));
  assert_petsc_ok(device->copy(on[Y], host[Y], 4 * B, NULL));
  assert_petsc_ok(device->alloc(B * mask.row_bytes, &mask.data));
  assert_petsc_ok(device->copy(mask.data, bits, B * mask.row_bytes, NULL));
  assert_petsc_ok(device->alloc((int64_t)sizeof(double), (void **)&on_sum));
  assert_petsc_ok(device->copy(on_sum, sum, (int64_t)sizeof(double), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  for (int backend = 1; backend >= 0; backend--) {
    const TrsComputeOps *ops = backend ? cuda : cpu;
    TrsLossFn *const losses[] = {ops->bce, ops->mse, ops->huber};
    const TrsReluMasks masks = {.x = has_mask ? mask : (TrsReluMask){.data = NULL}};
    float *v[ALL];
    TrsMatrix x, w, dx;

    for (int i = 0; i < ALL; i++) v[i] = backend ? on[i] : host[i];
    x = matrix_on(backend, host[X], on[X], TRS_BF16, in);
    w = matrix_on(backend, host[W], on[W], TRS_BF16, in);
    dx = in_place && backend ? x : matrix_on(backend, host[DX], on[DX], TRS_BF16, in);
    const TrsLinear layer = {
        B, in, 1, x, w, v[BIAS], TRS_ACTIVATION_NONE, TrsFloats(v[Z], 1), backend ? &masks : NULL};
    const TrsLossArgs args = {.batch = B,
                              .classes = 1,
                              .z = v[Z],
                              .z_stride = 1,
                              .y = v[Y],
                              .y_stride = 1,
                              .scale = 0.5f,
                              .parameter = 1.0f,
                              .loss = backend ? on_sum : sum,
                              .dz = v[DZ],
                              .p = v[P],
                              .p_stride = 1,
                              .layer = &layer};

    assert_petsc_ok(losses[loss_kind](NULL, &args));
    if (!backend) {
      for (int i = Z; i <= P; i++) assert_near_on_device(on[i], TRS_FP32, host[i], size[i], 2e-5);
      assert_petsc_ok(device->copy(host[DZ], on[DZ], 4 * B, NULL));
      assert_petsc_ok(device->copy(&sum[1], on_sum, (int64_t)sizeof(double), NULL));
      assert_petsc_ok(device->stream_synchronize(NULL));
      assert_close(sum[1], sum[0], 1e-5, 1e-5);
    }
    assert_petsc_ok(
        ops->linear_backward(NULL, &layer, &(TrsLinearGradients){TrsFloats(v[DZ], 1), v[DW], v[DB], dx}));
    if (backend) { /* the forward alone gives the same bits as the forward with the loss */
      char *wanted, *found;

      if (in_place) continue;
      wanted = bytes_on_device(on[Z], 4 * B);
      assert_petsc_ok(ops->linear_forward(NULL, &layer));
      found = bytes_on_device(on[Z], 4 * B);
      assert_memory_equal(found, wanted, (size_t)(4 * B));
      free(found);
      free(wanted);
    }
  }
  for (int64_t i = 0; has_mask && i < B * in; i++)
    if (!(bits[i / in * mask.row_bytes + i % in / 8] >> i % in % 8 & 1)) host[DX][i] = 0.0f;
  /* each number of dx is one product, rounded to bf16 */
  assert_near_on_device(on[in_place ? X : DX], TRS_BF16, host[DX], size[DX], 0x1p-8);
  assert_near_on_device(on[DW], TRS_FP32, host[DW], size[DW], 5e-5);
  assert_near_on_device(on[DB], TRS_FP32, host[DB], 1, 5e-5);
  for (int i = 0; i < ALL; i++) {
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
  assert_petsc_ok(device->release(&mask.data));
  assert_petsc_ok(device->release((void **)&on_sum));
  free(bits);
}

/*
  The widths have fewer columns than a warp handles at a time, exactly as many, and more. The
  batches have one thread block and several. 12 columns are not a multiple of 8, so products do it.
*/
static void test_unit(void **state)
{
  static const int64_t sizes[][2] = {{1, 8}, {37, 256}, {200, 264}, {65, 520}, {70, 12}};

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
  assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_BF16));
  for (int s = 0; s < 5; s++)
    for (int k = 0; k < 4; k++)
      check_unit(sizes[s][0], sizes[s][1], (PetscBool)(k % 2), (PetscBool)(k / 2), (s + k) % 3);
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_FP32));
}

/*
  Compare cross layers and dot interactions in bf16 with the CPU, for the same numbers. Results are
  rounded to bf16 (2^-8) or are floats.
*/
static void test_interactions_of_bf16(void **state)
{
  enum { X0, U, BIAS, X, Y, G, DX0, H, DBIAS, CROSS };
  enum {
    VECTORS,
    OUT,
    DX,
    DOT,
    SMALL = 9,
    D = 8,
    COPIED = 8,
    WIDTH = COPIED + SMALL * (SMALL - 1) / 2,
    STRIDE = WIDTH + 4
  };
  float *host[CROSS];
  void *on[CROSS];

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 2; s++) {
    const int64_t B = s ? 9 : 130, n = s ? 45 : 140;
    TrsCrossBackward layer;

    for (int i = 0; i < CROSS; i++)
      host[i] = held_numbers((uint64_t)i, i == BIAS || i == DBIAS ? n : B * n,
                             (PetscBool)(i != BIAS && i != DX0 && i != DBIAS), &on[i]);
    assert_petsc_ok(
        cpu->cross_forward(NULL, B, n, TRS_FP32, host[X0], host[U], host[BIAS], host[X], host[Y]));
    assert_petsc_ok(cuda->cross_forward(NULL, B, n, TRS_BF16, on[X0], on[U], on[BIAS], on[X], on[Y]));
    layer = (TrsCrossBackward){host[X0], host[U],     host[BIAS], host[G],      host[DX0],
                               host[H],  host[DBIAS], TRS_FP32,   .total = NULL};
    assert_petsc_ok(cpu->cross_backward(NULL, B, n, s ? TRS_CROSS_FIRST : 0, &layer));
    layer = (TrsCrossBackward){on[X0], on[U],     on[BIAS], on[G],        on[DX0],
                               on[H],  on[DBIAS], TRS_BF16, .total = NULL};
    assert_petsc_ok(cuda->cross_backward(NULL, B, n, s ? TRS_CROSS_FIRST : 0, &layer));
    assert_near_on_device(on[Y], TRS_BF16, host[Y], B * n, 0x1p-8);
    assert_near_on_device(on[H], TRS_BF16, host[H], B * n, 0x1p-8);
    assert_near_on_device(on[DX0], TRS_FP32, host[DX0], B * n, 1e-6);
    assert_near_on_device(on[DBIAS], TRS_FP32, host[DBIAS], n, 1e-5);
    for (int i = 0; i < CROSS; i++) {
      assert_petsc_ok(device->release(&on[i]));
      free(host[i]);
    }
  }
  for (int i = 0; i < DOT; i++)
    host[i] = held_numbers((uint64_t)i, i == OUT ? 7 * STRIDE : 7 * SMALL * D, (PetscBool)(i == OUT), &on[i]);
  for (int backend = 0; backend < 2; backend++) {
    const TrsComputeOps *ops = backend ? cuda : cpu;
    const TrsMatrix out = {backend ? TRS_BF16 : TRS_FP32, STRIDE, backend ? on[OUT] : host[OUT]};
    float *x = backend ? on[VECTORS] : host[VECTORS], *dx = backend ? on[DX] : host[DX];

    assert_petsc_ok(ops->dot_forward(NULL, 7, SMALL, D, COPIED, 2, TrsFloats(x, SMALL * D), out));
    assert_petsc_ok(
        ops->dot_backward(NULL, 7, SMALL, D, COPIED, TrsFloats(x, SMALL * D), out, TrsFloats(dx, SMALL * D)));
  }
  assert_near_on_device(on[OUT], TRS_BF16, host[OUT], 7 * STRIDE, 0x1p-8);
  assert_near_on_device(on[DX], TRS_FP32, host[DX], 7 * SMALL * D,
                        0x1p-6); /* sums of nine products of rounded numbers */
  for (int i = 0; i < DOT; i++) {
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
}

static void check_conversion(TrsDType from_type, TrsDType to_type, int64_t cols, int64_t filled,
                             int64_t stride)
{
  const int64_t rows = 9;
  Arguments a = {0};
  TrsMatrix from = {from_type, stride, NULL}, to = {to_type, stride, NULL};

  add(&a, rows * stride);
  add(&a, rows * stride);
  TWINS(a, 0, (from.data = x[0], to.data = x[1], ops->convert_matrix(NULL, rows, cols, filled, from, to)));
}

/* Compare n arrays of the device, with their types, with the arrays of the host. Free both. */
static void compare_and_forget(int n, float **host, void **on, const int64_t *size, const TrsDType *type)
{
  for (int i = 0; i < n; i++) {
    assert_near_on_device(on[i], type[i], host[i], size[i], type[i] == TRS_BF16 ? 0x1p-8 : 2e-5);
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
}

/* If a batch has no samples, gradients are zero for all types of matrices. */
static void test_no_samples(void **state)
{
  enum { IN = 8, OUT = 3 };
  static const float zeros[IN * OUT] = {0};
  void *weight, *grad, *bias;

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
  assert_petsc_ok(device->alloc(2 * IN * OUT, &weight));
  for (int narrow = 0; narrow < 4; narrow++) {
    const TrsMatrix x = {.type = narrow & 1 ? TRS_BF16 : TRS_FP32, .stride = IN, .data = weight},
                    dy = {.type = narrow & 2 ? TRS_BF16 : TRS_FP32, .stride = OUT, .data = weight};
    const TrsReluMasks none = {.y = {0}};

    free(held_numbers(1, IN * OUT, PETSC_FALSE, &grad));
    free(held_numbers(2, OUT, PETSC_FALSE, &bias));
    assert_petsc_ok(cuda->linear_backward(
        NULL,
        &(TrsLinear){0, IN, OUT, x, (TrsMatrix){TRS_BF16, IN, weight}, NULL, TRS_ACTIVATION_NONE, dy, &none},
        &(TrsLinearGradients){dy, grad, bias, x}));
    assert_near_on_device(grad, TRS_FP32, zeros, IN * OUT, 0x1p-99);
    assert_near_on_device(bias, TRS_FP32, zeros, OUT, 0x1p-99);
    assert_petsc_ok(device->release(&grad));
    assert_petsc_ok(device->release(&bias));
  }
  assert_petsc_ok(device->release(&weight));
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

/* Set the arrays that a backend uses. */
static void take_arrays(int n, float *const *host, void *const *on, int backend, void **arrays)
{
  for (int i = 0; i < n; i++) arrays[i] = backend ? on[i] : host[i];
}

static void check_vector_cross_of_bf16(int64_t B, int64_t n, int place)
{
  enum { X0, S, BIAS, X, Y, G, DX0, H, DBIAS, ALL };
  static const TrsDType types[ALL] = {[X0] = TRS_BF16, [X] = TRS_BF16, [Y] = TRS_BF16, [G] = TRS_BF16};
  const int64_t size[ALL] = {B * n, B, n, B * n, B * n, B * n, B * n, B, n};
  float *host[ALL];
  void *on[ALL], *v[ALL];

  for (int i = 0; i < ALL; i++)
    host[i] = held_numbers((uint64_t)i, size[i], (PetscBool)(types[i] == TRS_BF16), &on[i]);
  for (int backend = 0; backend < 2; backend++) {
    const TrsComputeOps *ops = backend ? cuda : cpu;
    const TrsDType type = backend ? TRS_BF16 : TRS_FP32;
    TrsCrossBackward layer;

    take_arrays(ALL, host, on, backend, v);
    layer = (TrsCrossBackward){v[X0], v[S], NULL, v[G], v[DX0], v[H], v[DBIAS], type, .total = NULL};
    assert_petsc_ok(ops->vector_cross_forward(NULL, B, n, type, v[X0], v[S], v[BIAS], v[X], v[Y]));
    assert_petsc_ok(ops->vector_cross_backward(NULL, B, n, place, &layer));
  }
  compare_and_forget(ALL, host, on, size, types);
}

/*
  First test the gradients, with random gates. With gates from a forward, the sums from which the
  gradients are computed would be rounded.
*/
static void check_mixture_of_bf16(int64_t B, int64_t n)
{
  enum { EXPERTS, DEXPERTS, GATE, SUM, ALL };
  static const TrsDType types[ALL] = {TRS_BF16, TRS_BF16, TRS_FP32, TRS_BF16};
  const int64_t size[ALL] = {B * 5 * n, B * 5 * n, B * 3, B * n};
  float *host[ALL];
  void *on[ALL], *v[ALL];

  for (int i = 0; i < ALL; i++)
    host[i] = held_numbers((uint64_t)i, size[i], (PetscBool)(types[i] == TRS_BF16), &on[i]);
  for (int backend = 0; backend < 2; backend++) {
    const TrsComputeOps *ops = backend ? cuda : cpu;
    TrsMixture m = {.batch = B, .width = n, .stride = 5 * n, .n = 3, .begin = {1, 3}, .end = {2, 5}};

    take_arrays(ALL, host, on, backend, v);
    m.type = backend ? TRS_BF16 : TRS_FP32;
    m.experts = v[EXPERTS];
    m.dexperts = v[DEXPERTS];
    m.gate = v[GATE];
    assert_petsc_ok(ops->mix_backward(NULL, &m, v[SUM]));
    assert_petsc_ok(ops->mix_forward(NULL, &m, v[SUM]));
  }
  compare_and_forget(ALL, host, on, size, types);
}

static void check_activation_of_bf16(int64_t B, int64_t n, TrsActivation kind)
{
  static const TrsDType types[2] = {TRS_BF16, TRS_BF16};
  const int64_t size[2] = {B * n, B * n};
  float *host[2];
  void *on[2], *v[2];

  for (int i = 0; i < 2; i++) host[i] = held_numbers((uint64_t)i, B * n, PETSC_TRUE, &on[i]);
  for (int backend = 0; backend < 2; backend++) {
    const TrsComputeOps *ops = backend ? cuda : cpu;
    const TrsDType type = backend ? TRS_BF16 : TRS_FP32;
    TrsMatrix y = {.type = type, .stride = n}, dy = {.type = type, .stride = n};

    take_arrays(2, host, on, backend, v);
    y.data = v[0];
    dy.data = v[1];
    assert_petsc_ok(ops->activate_backward(NULL, B, n, kind, y, dy));
    assert_petsc_ok(ops->activate(NULL, B, n, kind, y));
  }
  compare_and_forget(2, host, on, size, types);
}

/*
  Compare cross layers of vectors, mixtures of experts and activations in bf16 with the CPU, for the
  same numbers.
*/
static void test_more_of_bf16(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 2; s++) {
    const int64_t B = s ? 9 : 130, n = s ? 45 : 140;

    check_vector_cross_of_bf16(B, n, s ? TRS_CROSS_FIRST : 0);
    check_mixture_of_bf16(B, n);
    for (int kind = TRS_ACTIVATION_RELU; kind <= TRS_ACTIVATION_TANH; kind++)
      check_activation_of_bf16(B, n, (TrsActivation)kind);
  }
}

/*
  Convert matrices to bf16 and back, bit for bit, with zeros after the last column. Some widths
  consist of whole vector registers, and others do not.
*/
static void test_matrices(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int i = 0; i < 2; i++) {
    check_conversion(i ? TRS_BF16 : TRS_FP32, i ? TRS_FP32 : TRS_BF16, 13, 16, 16);
    check_conversion(i ? TRS_BF16 : TRS_FP32, i ? TRS_FP32 : TRS_BF16, 24, 24, 28);
    check_conversion(i ? TRS_BF16 : TRS_FP32, i ? TRS_FP32 : TRS_BF16, 24, 32, 36);
    check_conversion(i ? TRS_BF16 : TRS_FP32, i ? TRS_FP32 : TRS_BF16, 1, 1, 3);
  }
}

/*
  Convert every fp16 number to float, and convert floats at and around each of these numbers to
  fp16.
*/
static void test_conversions(void **state)
{
  static const TrsDType types[] = {TRS_FP16, TRS_BF16};
  enum { N = 1 << 16 };

  (void)state;
  if (!cuda) skip();
  for (int t = 0; t < 2; t++) {
    Arguments widen = {0}, narrow = {0};

    add(&widen, N / 2);
    add(&widen, N);
    for (int i = 0; i < N; i++) {
      const uint32_t exponent = t ? (uint32_t)i >> 7 & 0xff : ((uint32_t)i >> 10 & 0x1f) * 8;
      /* without infinities and NaN */
      ((uint16_t *)widen.array[0].by_cpu)[i] = exponent >= 248 ? 0 : (uint16_t)i;
    }
    memcpy(widen.array[0].before, widen.array[0].by_cpu, (size_t)widen.array[0].bytes);
    TWINS(widen, 0, ops->convert(NULL, N, types[t], x[0], TRS_FP32, x[1]));
    add(&narrow, N);
    add(&narrow, N / 2);
    for (int i = 0; i < N; i++) {
      const uint32_t bits = (uint32_t)i << 15 ^ (uint32_t)(i % 5 * 2047);
      if ((bits & 0x7f800000u) != 0x7f800000u) memcpy((float *)narrow.array[0].by_cpu + i, &bits, 4);
    }
    memcpy(narrow.array[0].before, narrow.array[0].by_cpu, (size_t)narrow.array[0].bytes);
    TWINS(narrow, 0, ops->convert(NULL, N, TRS_FP32, x[0], types[t], x[1]));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_find), cmocka_unit_test(test_linear_of_bf16),
              cmocka_unit_test(test_fused), cmocka_unit_test(test_no_samples),
              cmocka_unit_test(test_dot_of_bf16), cmocka_unit_test(test_unit),
              cmocka_unit_test(test_interactions_of_bf16), cmocka_unit_test(test_more_of_bf16),
              cmocka_unit_test(test_matrices), cmocka_unit_test(test_conversions))
