/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Dense layers, interactions, loss, optimizers and codecs of the GPU against their twins on the CPU, which golden data of TorchRec check: the same arguments,
  codecs bit for bit, the rest within the rounding of sums. What the GPU makes is made twice and must be the same bits.
*/
#include "gpu/twins.h"

static void check_gemm(void)
{
  static const int sizes[][3] = {{1, 1, 1}, {5, 3, 7}, {64, 48, 33}, {70, 65, 20}, {2, 3, 0}};

  for (int s = 0; s < 5; s++)
    for (int t = 0; t < 4; t++) {
      const int m = sizes[s][0], n = sizes[s][1], k = sizes[s][2], ta = t & 1, tb = t / 2;
      const int lda = (ta ? m : k) + 2, ldb = (tb ? k : n) + 1, ldc = n + 3;
      Arguments a = {0};

      add(&a, (ta ? k : m) * lda);
      add(&a, (tb ? n : k) * ldb);
      add(&a, m * ldc);
      TWINS(a, 1e-6 * (k + 1),
            ops->gemm(NULL, (PetscBool)ta, (PetscBool)tb, m, n, k, 1.5f, x[0], lda, x[1], ldb,
                      s % 2 ? 0.5f : 0.0f, x[2], ldc));
    }
}

/* Batches: none, one, one run of rows, several runs; widths that no tile divides. */
static void check_linear(void)
{
  static const int64_t batches[] = {0, 1, 9, 200};

  for (int s = 0; s < 8; s++) {
    const int64_t B = batches[s % 4], in = 37, out = s < 4 ? 65 : 1, x_stride = in + 3, y_stride = out + 2;
    const TrsActivation activation = s % 2 ? TRS_ACTIVATION_RELU : TRS_ACTIVATION_NONE;
    Arguments forward = {0}, backward = {0};

    add(&forward, B * x_stride);
    add(&forward, in * out);
    add(&forward, out + 1); /* a bias on 16 bytes, and one on 4 */
    add(&forward, B * y_stride);
    TWINS(forward, 1e-5,
          ops->linear_forward(NULL, B, in, out, TrsFloats(x[0], x_stride), TrsFloats(x[1], in), x[2] + s % 2,
                              activation, TrsFloats(x[3], y_stride), NULL));
    add(&backward, B * x_stride);
    add(&backward, in * out);
    add(&backward, B * y_stride); /* y */
    add(&backward, B * y_stride); /* dy */
    add(&backward, in * out);
    add(&backward, out);
    add(&backward, B * x_stride); /* dx */
    TWINS(backward, 1e-5,
          ops->linear_backward(NULL, B, in, out, TrsFloats(x[0], x_stride), TrsFloats(x[1], in),
                               TrsFloats(x[2], y_stride), activation, TrsFloats(x[3], y_stride), x[4], x[5],
                               TrsFloats(s < 6 ? x[6] : NULL, x_stride), NULL));
  }
}

/*
  Layers of one unit, of 13 and of 479 inputs, and gradients whose sum has one term: shapes for which cuBLASLt may have no kernel at some precision. What it has
  must be right, and for what it has not there is our own.
*/
static void check_odd_layers(TrsDensePrecision precision, double tolerance)
{
  static const int64_t sizes[][2] = {{256, 1}, {13, 64}, {479, 32}, {1, 40}};
  const int64_t B = 50;

  assert_petsc_ok(cuda->dense_precision(precision));
  for (int s = 0; s < 4; s++) {
    const int64_t in = sizes[s][0], out = sizes[s][1];
    Arguments forward = {0}, backward = {0};

    add(&forward, B * in);
    add(&forward, in * out);
    add(&forward, out);
    add(&forward, B * out);
    TWINS(forward, tolerance,
          ops->linear_forward(NULL, B, in, out, TrsFloats(x[0], in), TrsFloats(x[1], in), x[2],
                              TRS_ACTIVATION_RELU, TrsFloats(x[3], out), NULL));
    for (int i = 0; i < 7; i++)
      add(&backward, i == 1 || i == 4 ? in * out : i == 5 ? out : B * (i % 6 ? out : in));
    TWINS(backward, tolerance,
          ops->linear_backward(NULL, B, in, out, TrsFloats(x[0], in), TrsFloats(x[1], in),
                               TrsFloats(x[2], out), TRS_ACTIVATION_RELU, TrsFloats(x[3], out), x[4], x[5],
                               TrsFloats(x[6], in), NULL));
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

static void test_odd_layers(void **state)
{
  (void)state;
  if (!cuda) skip();
  check_odd_layers(TRS_PRECISION_FP32, 2e-5);
  check_odd_layers(TRS_PRECISION_TF32,
                   2e-2); /* 10 bits of operands in [-1, 1), sums of up to 479 of their products */
  check_odd_layers(TRS_PRECISION_BF16, 2e-1);
}

/* Products that cuBLASLt says it has no kernel for, all or those of odd alignment among others (the stand-in's environment): ours make them, and it is told. */
static void test_no_kernel(void **state)
{
  static const char *const which[] = {"all", "odd"};

  (void)state;
  if (!cuda || !strstr(about, "CPU standing in")) skip();
  for (int i = 0; i < 2; i++) {
    setenv("CUBLASLT_ON_CPU_REFUSE", which[i], 1);
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32)); /* forgets what was chosen */
    check_gemm();
    check_linear();
    assert_non_null(strstr(cuda->product_library(), "cuBLASLt 13."));
    assert_non_null(strstr(cuda->product_library(), ", own kernel for "));
    unsetenv("CUBLASLT_ON_CPU_REFUSE");
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  assert_null(strstr(cuda->product_library(), "own kernel"));
}

/*
  The stand-in's third algorithm takes no time beside its work: it is the one that is kept where the choice is by time, for products that add to what is there,
  too; the first one is where it is the fastest, and where nothing is timed.
*/
static void test_algorithms(void **state)
{
  (void)state;
  if (!cuda || !strstr(about, "CPU standing in"))
    skip(); /* a GPU's algorithms differ in their bits, which TWINS refuses */
  assert_petsc_ok(cuda->product_algorithms(8));
  for (int fastest = 0; fastest < 3; fastest += 2) {
    setenv("CUBLASLT_ON_CPU_FASTEST", fastest ? "2" : "0", 1);
    check_gemm();
    check_linear();
    assert_non_null(
        strstr(cuda->product_choices(), fastest ? "70 x 65 x 20 NT fp32 to fp32 added: algorithm 3 of 5, "
                                                : "70 x 65 x 20 NT fp32 to fp32 added: algorithm 1 of 5, "));
    assert_non_null(strstr(cuda->product_choices(),
                           fastest ? "200 x 65 x 37 NT fp32 to fp32 bias relu: algorithm 3 of 5, "
                                   : "200 x 65 x 37 NT fp32 to fp32 bias relu: algorithm 1 of 5, "));
    assert_null(strstr(cuda->product_choices(), fastest ? "algorithm 1 of " : "algorithm 3 of "));
    assert_petsc_ok(cuda->product_algorithms(8)); /* forgets what was chosen */
    assert_string_equal(cuda->product_choices(), "");
  }
  assert_petsc_ok(cuda->product_algorithms(1));
  check_gemm();
  assert_string_equal(cuda->product_choices(), "");
  unsetenv("CUBLASLT_ON_CPU_FASTEST");
}

/* More shapes than are kept, and the first ones again. */
static void test_many_shapes(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int i = 0; i < 310; i++) {
    const int64_t m = i % 300 + 1;
    Arguments a = {0};

    add(&a, m);
    add(&a, 2);
    add(&a, m * 2);
    TWINS(a, 1e-6, ops->gemm(NULL, PETSC_FALSE, PETSC_FALSE, m, 2, 1, 1.0f, x[0], 1, x[1], 2, 0.0f, x[2], 2));
  }
}

/* Streams that come and go give their scratch back. */
static void test_streams(void **state)
{
  int64_t before = 0, now, total;

  (void)state;
  if (!cuda) skip();
  for (int i = 0; i < 80; i++) {
    TrsStream stream;
    void *data;

    assert_petsc_ok(device->stream_create("test", &stream));
    assert_petsc_ok(device->alloc(256, &data));
    assert_petsc_ok(cuda->gemm(stream, PETSC_FALSE, PETSC_FALSE, 4, 4, 4, 1.0f, data, 4, data, 4, 0.0f,
                               (float *)data + 32, 4));
    assert_petsc_ok(device->stream_destroy(&stream));
    assert_petsc_ok(device->release(&data));
    assert_petsc_ok(device->memory(&now, &total));
    if (i == 0) before = now; /* the library's own state is made by the first product */
    /* a leak is 80 times 32 MiB; a driver keeps some memory for itself */
    assert_true(now + (64 << 20) >= before);
  }
}

static void test_cublaslt(void **state)
{
  (void)state;
  if (!cuda) skip();
  check_gemm();
  check_linear();
}

/*
  bf16: both backends round the operands of a product to the nearest, even where two are as near, and add in fp32. So they differ by the order of sums alone; a
  bit of an operand would be 4e-3. Then without a kernel of cuBLASLt's.
*/
static void test_bf16(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int i = 0; i < 2; i++) {
    if (i) setenv("CUBLASLT_ON_CPU_REFUSE", "all", 1);
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
    assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_BF16));
    assert_int_equal(cuda->operand_type(), TRS_BF16);
    assert_int_equal(cpu->operand_type(), TRS_FP32);
    check_gemm();
    check_linear();
    unsetenv("CUBLASLT_ON_CPU_REFUSE");
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
    assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_FP32));
  }
  assert_int_equal(cuda->operand_type(), TRS_FP32);
}

/* A bf16 copy on the device of n floats of the host. */
static void *narrowed(const float *values, int64_t n)
{
  void *copy, *floats;

  assert_petsc_ok(device->alloc(4 * n, &floats));
  assert_petsc_ok(device->alloc(2 * n, &copy));
  assert_petsc_ok(device->copy(floats, values, 4 * n, NULL));
  assert_petsc_ok(cuda->convert(NULL, n, TRS_FP32, floats, TRS_BF16, copy));
  assert_petsc_ok(device->stream_synchronize(NULL));
  assert_petsc_ok(device->release(&floats));
  return copy;
}

/* The device's n numbers of a type are near the expected ones: 2^-8 is a bit of bf16. */
static void assert_near_on_device(const void *found, TrsDType type, const float *expected, int64_t n,
                                  double tolerance)
{
  const void *from = found;
  void *floats;
  float *values = calloc((size_t)n, sizeof(*values));

  assert_petsc_ok(device->alloc(4 * n, &floats));
  if (type == TRS_BF16) {
    assert_petsc_ok(cuda->convert(NULL, n, TRS_BF16, found, TRS_FP32, floats));
    from = floats;
  }
  assert_petsc_ok(device->copy(values, from, 4 * n, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  for (int64_t i = 0; i < n; i++) assert_close(values[i], expected[i], tolerance, tolerance);
  assert_petsc_ok(device->release(&floats));
  free(values);
}

/*
  A linear layer of matrices in bf16, beside the CPU's in bf16 from floats: what is rounded more is the bias, the output, and the gradients of output and input, to
  half a bit each. So 2^-8 of a number, and in sums over the batch of 1 + the sum.
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
                         B * out, in * out, out, B * in}; /* x W b y dy dW db dx */
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
      assert_petsc_ok(ops->linear_forward(NULL, B, in, out, m[0], m[1], m[2].data, activation, m[3], NULL));
      assert_petsc_ok(ops->linear_backward(NULL, B, in, out, m[0], m[1], m[3], activation, m[4], m[5].data,
                                           m[6].data, m[7], NULL));
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

/* n random numbers that bf16 holds, on the host, and on the device as bf16 or as floats. */
static float *held_numbers(uint64_t array, int64_t n, PetscBool narrow, void **on)
{
  float *values = calloc((size_t)n, sizeof(*values));

  for (int64_t i = 0; i < n; i++) values[i] = draw(array, (uint64_t)i);
  assert_petsc_ok(cpu->round_matrix(NULL, 1, n, TRS_BF16, values, n));
  if (narrow) {
    *on = narrowed(values, n);
  } else {
    assert_petsc_ok(device->alloc(4 * n, on));
    assert_petsc_ok(device->copy(*on, values, 4 * n, NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
  }
  return values;
}

/*
  Two linear layers with ReLU between them, whose mask the second one's backward applies and whose sums the products make: what the CPU makes layer by layer.
  type: of the matrices on the device. NVIDIA has no kernel for some shapes: one column of the input, one unit.
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
  float *host[ALL];
  void *on[ALL];

  if (row_bytes) assert_true(row_bytes % 16 == 0 && 8 * row_bytes >= mid);
  if (row_bytes) assert_petsc_ok(device->alloc(B * row_bytes, &mask.data));
  for (int i = 0; i < ALL; i++)
    host[i] = held_numbers((uint64_t)i, n[i],
                           (PetscBool)(type == TRS_BF16 && i != DW1 && i != DB1 && i != DW2 && i != DB2),
                           &on[i]);
  for (int backend = 0; backend < 2; backend++) {
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
    assert_petsc_ok(
        ops->linear_forward(NULL, B, in, mid, m[X], m[W1], v[B1], TRS_ACTIVATION_RELU, m[H], first));
    assert_petsc_ok(
        ops->linear_forward(NULL, B, mid, out, m[H], m[W2], v[B2], TRS_ACTIVATION_NONE, m[Z], second));
    assert_petsc_ok(ops->linear_backward(NULL, B, mid, out, m[H], m[W2], m[Z], TRS_ACTIVATION_NONE, m[DZ],
                                         v[DW2], v[DB2], m[DH], second));
    assert_petsc_ok(ops->linear_backward(NULL, B, in, mid, m[X], m[W1], m[H], TRS_ACTIVATION_RELU, m[DH],
                                         v[DW1], v[DB1], m[DX], first));
  }
  for (int i = 0; i < ALL; i++) {
    const PetscBool sum = (PetscBool)(i == DW1 || i == DB1 || i == DW2 || i == DB2);

    assert_near_on_device(on[i], sum ? TRS_FP32 : type, host[i], n[i], sum ? 4 * tolerance : tolerance);
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
  assert_petsc_ok(device->release(&mask.data));
}

/* cuBLASLt with masks and sums; refusing them (the stand-in's environment); and a machine without it. */
static void test_fused(void **state)
{
  static const int64_t sizes[][4] = {
      {70, 40, 136, 24}, {33, 1, 13, 1}, {1, 8, 300, 8}, {0, 5, 7, 3}, {200, 16, 128, 5}};

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
    if (way < 2) {
      assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_BF16));
      assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_BF16));
      /* a bit of bf16 more or less in the gradient of the layer between: 2^-8 of a number, and of sums of numbers below 8 */
      for (int s = 0; s < 5; s++) check_fused(sizes[s], TRS_FP32, 0x1p-7);
      for (int s = 0; s < 5; s++) check_fused(sizes[s], TRS_BF16, 0x1p-6);
    }
    assert_petsc_ok(cpu->dense_precision(TRS_PRECISION_FP32));
    unsetenv("CUBLASLT_ON_CPU_REFUSE");
    unsetenv("TRSHARD_GEMM");
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  }
}

/* Cross layers and dot interactions of bf16, beside the CPU's of the same numbers: results are rounded to bf16 (2^-8), or are floats. */
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
    layer = (TrsCrossBackward){host[X0],  host[U], host[BIAS],  host[G],
                               host[DX0], host[H], host[DBIAS], TRS_FP32};
    assert_petsc_ok(cpu->cross_backward(NULL, B, n, s ? TRS_CROSS_FIRST : 0, &layer));
    layer = (TrsCrossBackward){on[X0], on[U], on[BIAS], on[G], on[DX0], on[H], on[DBIAS], TRS_BF16};
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

    assert_petsc_ok(ops->dot_forward(NULL, 7, SMALL, D, COPIED, 2, x, SMALL * D, out));
    assert_petsc_ok(ops->dot_backward(NULL, 7, SMALL, D, COPIED, x, SMALL * D, out, dx, SMALL * D));
  }
  assert_near_on_device(on[OUT], TRS_BF16, host[OUT], 7 * STRIDE, 0x1p-8);
  assert_near_on_device(on[DX], TRS_FP32, host[DX], 7 * SMALL * D,
                        0x1p-6); /* sums of nine products of what was rounded */
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

/* Forget n arrays of host and device, after comparing those on the device with a type, or with none. */
static void compare_and_forget(int n, float **host, void **on, const int64_t *size, const TrsDType *type)
{
  for (int i = 0; i < n; i++) {
    assert_near_on_device(on[i], type[i], host[i], size[i], type[i] == TRS_BF16 ? 0x1p-8 : 2e-5);
    assert_petsc_ok(device->release(&on[i]));
    free(host[i]);
  }
}

/* The gradients of a batch without samples are zeros, whatever types its matrices have. */
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
    assert_petsc_ok(cuda->linear_backward(NULL, 0, IN, OUT, x, (TrsMatrix){TRS_BF16, IN, weight}, dy,
                                          TRS_ACTIVATION_NONE, dy, grad, bias, x, &none));
    assert_near_on_device(grad, TRS_FP32, zeros, IN * OUT, 0x1p-99);
    assert_near_on_device(bias, TRS_FP32, zeros, OUT, 0x1p-99);
    assert_petsc_ok(device->release(&grad));
    assert_petsc_ok(device->release(&bias));
  }
  assert_petsc_ok(device->release(&weight));
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

/* A backend's arrays. */
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
    layer = (TrsCrossBackward){v[X0], v[S], NULL, v[G], v[DX0], v[H], v[DBIAS], type};
    assert_petsc_ok(ops->vector_cross_forward(NULL, B, n, type, v[X0], v[S], v[BIAS], v[X], v[Y]));
    assert_petsc_ok(ops->vector_cross_backward(NULL, B, n, place, &layer));
  }
  compare_and_forget(ALL, host, on, size, types);
}

/* First the gradients, from any gates: a forward would round the sums that they come from. */
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

/* Cross layers of vectors, mixtures of experts and activations of bf16, beside the CPU's of the same numbers. */
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

/* Matrices in bf16 and back, bit for bit, with zeros behind the columns; widths of whole vectors, and others. */
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

static void test_own_product(void **state)
{
  (void)state;
  if (!cuda) skip();
  setenv("TRSHARD_GEMM", "own", 1);
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32)); /* looks again */
  check_gemm();
  check_linear();
  assert_non_null(strstr(cuda->product_library(), "TRSHARD_GEMM=own"));
  unsetenv("TRSHARD_GEMM");
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  assert_null(strstr(cuda->product_library(), "TRSHARD_GEMM=own"));
}

static void test_dot(void **state)
{
  /* n, D, copied, floats between samples; the last but one needs shared memory to be asked for, of the last it has too little */
  static const int shapes[][4] = {{2, 1, 0, 1},   {3, 5, 5, 1},   {27, 16, 16, 4},     {27, 16, 16, 1},
                                  {9, 40, 40, 0}, {10, 8, 0, 12}, {12, 1100, 1100, 4}, {5, 11700, 11700, 1}};
  enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes) };

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < N_SHAPES; s++) {
    const int n = shapes[s][0], D = shapes[s][1], copied = shapes[s][2], width = copied + n * (n - 1) / 2;
    const int64_t B = D > 1000 ? 2 : 5, x_stride = n * D + shapes[s][3], stride = width + 2;
    Arguments forward = {0}, backward = {0};

    add(&forward, B * x_stride);
    add(&forward, B * stride);
    TWINS(forward, 1e-6 * D,
          ops->dot_forward(NULL, B, n, D, copied, s % 3, x[0], x_stride, TrsFloats(x[1], stride)));
    add(&backward, B * x_stride);
    add(&backward, B * stride);
    add(&backward, B * x_stride);
    TWINS(backward, 1e-5,
          ops->dot_backward(NULL, B, n, D, copied, x[0], x_stride, TrsFloats(x[1], stride), x[2], x_stride));
  }
}

static void test_fm(void **state)
{
  static const int shapes[][3] = {
      {1, 0, 1}, {33, 5, 1}, {64, 16, 4}, {1728, 64, 0}};           /* n, copied, floats between */
  enum { BEFORE = 3, N_SHAPES = sizeof(shapes) / sizeof(*shapes) }; /* columns of deep layers */

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 2 * N_SHAPES; s++) {
    const int n = shapes[s / 2][0], copied = shapes[s / 2][1], width = copied + BEFORE + 1;
    const int64_t B = 7, x_stride = n + shapes[s / 2][2], stride = width + 2;
    const PetscBool to_sum = (PetscBool)(s % 2);
    Arguments forward = {0}, backward = {0};

    add(&forward, B * x_stride);
    add(&forward, B * stride);
    TWINS(forward, 1e-6 * n,
          ops->fm_forward(NULL, B, n, copied, copied + BEFORE, s % 3, x[0], x_stride, x[1], stride));
    add(&backward, B * x_stride);
    add(&backward, B * stride);
    add(&backward, B * x_stride);
    TWINS(backward, 1e-6 * n,
          ops->fm_backward(NULL, B, n, copied, copied + BEFORE, to_sum, x[0], x_stride, x[1], stride, x[2],
                           x_stride));
  }
}

static PetscErrorCode cross_backward(const TrsComputeOps *ops, int64_t B, int64_t n, int place,
                                     float *const *x)
{
  const TrsCrossBackward layer = {x[0], x[1], x[2], x[3], x[4], x[5], x[6], TRS_FP32};

  PetscFunctionBegin;
  PetscCall(ops->cross_backward(NULL, B, n, place, &layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* dx comes to x[0], g and dx0 are zeros then: theirs is no result. */
static PetscErrorCode whole_cross(const TrsComputeOps *ops, int64_t B, int64_t n, int64_t rank, int layers,
                                  float *const *x)
{
  const TrsDeviceOps *on = ops == cpu ? trs_device_backends[0] : device;

  PetscFunctionBegin;
  if (layers > 1) PetscCall(cross_backward(ops, B, n, TRS_CROSS_FIRST, x));
  PetscCall(cross_backward(ops, B, n, layers > 1 ? TRS_CROSS_LAST : TRS_CROSS_FIRST | TRS_CROSS_LAST, x));
  PetscCall(ops->cross_input(NULL, B, n, rank, TrsFloats(x[7], rank), TrsFloats(x[8], n), TrsFloats(x[3], n),
                             x[4], x[0]));
  for (int i = 3; i < 5; i++) PetscCall(on->zero(x[i], B * n * (int64_t)sizeof(float), NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A backward of two layers, or of one: what cross_backward keeps in dx0 for cross_input is a backend's own. Odd calls leave memory on 4 bytes alone. */
static void test_cross(void **state)
{
  static const int64_t batches[] = {0, 1, 130, 130, 200, 1025, 1027};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 7; s++) {
    const int64_t B = batches[s], n = s % 2 ? 45 : 140, rank = 7;
    Arguments forward = {0}, backward = {0}, input = {0};

    for (int i = 0; i < 5; i++) add(&forward, i == 2 ? n : B * n);
    TWINS(forward, 1e-6, ops->cross_forward(NULL, B, n, TRS_FP32, x[0], x[1], x[2], x[3], x[4]));
    for (int i = 0; i < 7; i++) add(&backward, i == 2 || i == 6 ? n : B * n);
    TWINS(backward, 1e-5, cross_backward(ops, B, n, s % 3 ? TRS_CROSS_FIRST : 0, x));
    for (int i = 0; i < 9; i++)
      add(&input, i == 2 || i == 6 ? n : i == 7 ? B * rank : i == 8 ? rank * n : B * n);
    TWINS(input, 1e-5, whole_cross(ops, B, n, rank, 1 + s % 2, x));
  }
}

static PetscErrorCode vector_cross_backward(const TrsComputeOps *ops, int64_t B, int64_t n, int place,
                                            float *const *x)
{
  const TrsCrossBackward layer = {x[0], x[1], NULL, x[2], x[3], x[4], x[5], TRS_FP32};

  PetscFunctionBegin;
  PetscCall(ops->vector_cross_backward(NULL, B, n, place, &layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_vector_cross(void **state)
{
  static const int64_t batches[] = {0, 1, 130, 200}, widths[] = {45, 1, 140, 33};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 4; s++) {
    const int64_t B = batches[s], n = widths[s];
    Arguments forward = {0}, backward = {0};

    for (int i = 0; i < 5; i++) add(&forward, i == 1 ? B : i == 2 ? n : B * n);
    TWINS(forward, 1e-6, ops->vector_cross_forward(NULL, B, n, TRS_FP32, x[0], x[1], x[2], x[3], x[4]));
    for (int i = 0; i < 6; i++) add(&backward, i == 1 || i == 4 ? B : i == 5 ? n : B * n);
    TWINS(backward, 2e-5, vector_cross_backward(ops, B, n, s % 2 ? TRS_CROSS_FIRST : 0, x));
  }
}

static void test_sample_gemm(void **state)
{
  static const int64_t sizes[][4] = {
      {0, 2, 3, 4}, {1, 1, 1, 1}, {9, 5, 3, 8}, {33, 4, 16, 7}}; /* B, m, n, k */

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 12; s++) {
    const int64_t *size = sizes[s / 3], B = size[0], m = size[1], n = size[2], k = size[3];
    Arguments product = {0};

    add(&product, B * (m * k + 1));
    add(&product, B * n * k);
    add(&product, B * (m * n + 2));
    TWINS(product, 1e-5,
          ops->sample_gemm(NULL, B, s % 3 == 1, s % 3 == 2, m, n, k, x[0], m * k + 1, x[1], n * k, x[2],
                           m * n + 2));
  }
}

static PetscErrorCode layer_norm(const TrsComputeOps *ops, int64_t B, int64_t n, PetscBool swish,
                                 PetscBool back, float *const *x)
{
  const TrsLayerNorm norm = {x[1], x[2], 1e-5F, swish, x[3]};

  PetscFunctionBegin;
  if (!back) PetscCall(ops->layer_norm_forward(NULL, B, n, &norm, x[0], n + 1, x[4], n + 2));
  if (back) PetscCall(ops->layer_norm_backward(NULL, B, n, &norm, x[0], n + 1, x[4], n + 2, x[5], x[6]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode unit_rows(const TrsComputeOps *ops, int64_t B, int64_t n, PetscBool back,
                                float *const *x)
{
  PetscFunctionBegin;
  if (!back) PetscCall(ops->unit_rows(NULL, B, n, x[0], n + 1, x[1], n));
  if (back) PetscCall(ops->unit_rows_backward(NULL, B, n, x[0], n + 1, x[1], n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode drop_out(const TrsComputeOps *ops, int64_t B, int64_t n, float *const *x)
{
  const TrsDropout dropout = {12345, 7, 1000, 3000000000U, 1.5F, NULL};

  PetscFunctionBegin;
  PetscCall(ops->drop_out(NULL, B, n, &dropout, x[0], n + 1, x[1], n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_layers(void **state)
{
  static const int64_t batches[] = {0, 1, 70, 130}, widths[] = {8, 1, 45, 140};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 4; s++) {
    const int64_t B = batches[s], n = widths[s];
    Arguments drop = {0};

    for (int i = 0; i < 6; i++) { /* by one number and by four */
      const TrsActivation kind = (TrsActivation)(TRS_ACTIVATION_RELU + i % 3);
      const int64_t stride = n + (i < 3 ? 1 : 4);
      Arguments forward = {0}, backward = {0};

      add(&forward, B * stride);
      TWINS(forward, 1e-6, ops->activate(NULL, B, n, kind, TrsFloats(x[0], stride)));
      add(&backward, B * stride);
      add(&backward, B * n);
      TWINS(backward, 1e-6,
            ops->activate_backward(NULL, B, n, kind, TrsFloats(x[0], stride), TrsFloats(x[1], n)));
    }
    for (int kind = 0; kind < 4; kind++) {
      Arguments norm = {0};

      for (int i = 0; i < 7; i++)
        add(&norm, i == 0 ? B * (n + 1) : i == 3 ? 2 * B : i == 4 ? B * (n + 2) : n);
      TWINS(norm, 1e-4, layer_norm(ops, B, n, (PetscBool)(kind % 2), (PetscBool)(kind / 2), x));
    }
    for (int back = 0; back < 2; back++) {
      Arguments unit = {0};

      add(&unit, B * (n + 1));
      add(&unit, B * n);
      TWINS(unit, 1e-4, unit_rows(ops, B, n, (PetscBool)back, x));
    }
    add(&drop, B * (n + 1));
    add(&drop, B * n);
    TWINS(drop, 0.0, drop_out(ops, B, n, x));
  }
}

enum { N_LOSSES = 0 TRS_LOSSES(TRS_COUNT_WORD) };

/*
  Run the k-th loss. x: z, y, dz, p and w; z, dz and p [B, 2], of which a loss of one output takes
  the first column.
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
    double loss[2] = {0.25, 0.25}, *on_device;
    Arguments a = {0};

    for (int i = 0; i < 5; i++) add(&a, B * (i == 1 || i == 4 ? 1 : 2)); /* z, y, dz, p, w */
    for (int64_t i = 0; i < B; i++) {
      ((float *)a.array[0].by_cpu)[2 * i] *= i % 7 ? 3.0f : 100.0f;
      ((float *)a.array[1].by_cpu)[i] = i % 5 == 3 ? NAN : (float)(i % 2);
      ((float *)a.array[4].by_cpu)[i] = 0.5f * (float)(i % 3);
    }
    for (int i = 0; i < 5; i++) memcpy(a.array[i].before, a.array[i].by_cpu, (size_t)a.array[i].bytes);
    assert_petsc_ok(device->alloc((int64_t)sizeof(loss), (void **)&on_device));
    assert_petsc_ok(device->copy(on_device, loss, (int64_t)sizeof(loss), NULL));
    TWINS(a, 1e-6, run_loss(ops, k, B, x, s, ops == cpu ? &loss[0] : on_device));
    assert_petsc_ok(device->copy(&loss[1], on_device, (int64_t)sizeof(double), NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
    loss[1] = 0.25 + (loss[1] - 0.25) / 2; /* called twice there */
    assert_close(loss[1], loss[0], 1e-9, 1e-9);
    assert_petsc_ok(device->release((void **)&on_device));
  }
}

static void test_loss(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int k = 0; k < N_LOSSES; k++) check_loss(k);
}

/* x: experts, their gradients, gate, result or its gradient. */
static PetscErrorCode run_mixture(const TrsComputeOps *ops, PetscBool backward, int64_t B, int width,
                                  float *const *x)
{
  const TrsMixture m = {.batch = B,
                        .width = width,
                        .stride = 5 * (int64_t)width,
                        .n = 3,
                        .begin = {1, 3},
                        .end = {2, 5},
                        .experts = x[0],
                        .dexperts = x[1],
                        .gate = x[2]};

  return backward ? ops->mix_backward(NULL, &m, x[3]) : ops->mix_forward(NULL, &m, x[3]);
}

static void test_mixture(void **state)
{
  static const int64_t batches[] = {0, 1, 130};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 6; s++) {
    const int64_t B = batches[s % 3], width = s % 2 ? 45 : 6;
    Arguments a = {0};

    for (int i = 0; i < 4; i++) add(&a, B * (i < 2 ? 5 * width : i == 2 ? 3 : width));
    TWINS(a, 1e-5, run_mixture(ops, (PetscBool)(s >= 3), B, (int)width, x));
  }
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

/* The gradient's squares are 16: clipped to 2 it is halved, to 5 it is not. */
static PetscErrorCode update(const TrsComputeOps *ops, int kind, double max_norm, const double *on_device,
                             int64_t n, float *const *x)
{
  static const double sixteen = 16.0;
  const TrsDenseOptimizerArgs args = {
      (TrsDenseOptimizerKind)kind,       0.1f,     1e-8f, 0.01f, 0.9, 0.999, 0.5f,
      ops == cpu ? &sixteen : on_device, max_norm, 3,     0.0f,  NULL};

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
    for (int i = 2; i < 4; i++) /* sums of squares */
      for (int64_t k = 0; k < n; k++) {
        float *values = a.array[i].by_cpu;
        values[k] = fabsf(values[k]);
        ((float *)a.array[i].before)[k] = values[k];
      }
    TWINS(a, 2e-6, update(ops, s % N_DENSE_KINDS, s < N_DENSE_KINDS ? 2.0 : 5.0, on_device, n, x));
  }
  assert_petsc_ok(device->release(&on_device));
}

/* Update n elements that begin `offset` floats into memory of the device, from the same numbers for every offset; the results come to out[3 * n]. */
static void update_at(int kind, int64_t n, int64_t offset, float *out)
{
  const int64_t bytes = (n + offset) * (int64_t)sizeof(float);
  const TrsDenseOptimizerArgs lamb = {TRS_DENSE_LAMB, 0.1f, 1e-6f, 0.01f, 0.9,   0.999,
                                      0.5f,           NULL, 0.0,   3,     0.25f, NULL};
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

/* Elements by fours, those that are left over, and elements of memory that is aligned to 4 bytes alone: an element's bits are the same. */
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

/* What kernels read of a step in memory, for either backend. */
typedef struct {
  TrsBatchNumbers batch;
  TrsUpdateNumbers update;
} Numbers;

/*
  An update and lamb's step, dropout, and the gradient of a loss: `now` holds the numbers, or the
  arguments do. With `now` the arguments are others.
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

/* Numbers of a step in memory give the bits of the same numbers as arguments, on the CPU and on the GPU. */
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
      if (i == 2 || i == 3) before[i][k] = fabsf(before[i][k]); /* sums of squares */
      if (i == 6) before[i][k] = (float)(k % 2);                /* classes */
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

/* Gradients clamped by value, and lamb's step of layers of one thread block and of several. */
static void test_clamp_and_lamb(void **state)
{
  static const int64_t sizes[] = {1, 1000, 100003};
  double host[2];
  void *squares;

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(device->alloc(2 * (int64_t)sizeof(double), &squares));
  for (int s = 0; s < 3; s++) {
    const TrsDenseOptimizerArgs args = {TRS_DENSE_LAMB, 0.1f, 1e-6f, 0.01f, 0.9,   0.999,
                                        0.5f,           NULL, 0.0,   3,     0.25f, NULL};
    Arguments a = {0};

    for (int i = 0; i < 4; i++) add(&a, sizes[s]);
    for (int64_t k = 0; k < sizes[s]; k++) { /* mean squares */
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

/* The zeros that fill a weight up stay zeros, with eps 0, too. */
static void test_zeros_stay(void **state)
{
  float zeros[64] = {0}, found[64];
  void *x[4], *squares;

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(device->alloc(2 * (int64_t)sizeof(double), &squares));
  for (int kind = 0; kind < N_DENSE_KINDS; kind++) {
    const TrsDenseOptimizerArgs args = {
        (TrsDenseOptimizerKind)kind, 0.1f, 0.0f, 0.01f, 0.9, 0.999, 1.0f, NULL, 0, 1, 0.0f, NULL};

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

/* skew: floats that all arrays lie behind an aligned place */
static void check_codec(const TrsCodec *codec, int64_t n, float scale, int skew)
{
  Arguments a = {0};

  add(&a, n + skew);
  add(&a, cpu->codec_bytes(codec, n) / 4 + 1 + skew);
  add(&a, n + skew);
  for (int64_t i = 0; i < n; i++) { /* all magnitudes, zeros of both signs, a constant row */
    float *value = (float *)a.array[0].by_cpu + skew + i;
    *value *= scale * exp2f((float)(i % 61) - 30.0f);
    if (i % 50 == 0) *value = i % 100 ? 0.0f : -0.0f;
    if (i / 32 == 2) *value = 0.375f;
  }
  memcpy(a.array[0].before, a.array[0].by_cpu, (size_t)a.array[0].bytes);
  assert_int_equal(cuda->codec_bytes(codec, n), cpu->codec_bytes(codec, n));
  TWINS(a, 0,
        ops->encode(NULL, codec, n, x[0] + skew, x[1] + skew)
            ? 1
            : (int)ops->decode(NULL, codec, n, x[1] + skew, x[2] + skew));
}

static void test_codecs(void **state)
{
  const TrsCodec codecs[] = {
      {TRS_CODEC_FP32, 0, 0, 1.0f},  {TRS_CODEC_FP16, 0, 0, 1.0f},  {TRS_CODEC_FP16, 0, 1, 128.0f},
      {TRS_CODEC_BF16, 0, 0, 1.0f},  {TRS_CODEC_BF16, 0, 1, 0.25f}, {TRS_CODEC_FP8, 0, 0, 1.0f},
      {TRS_CODEC_FP8, 0, 1, 1.0f},   {TRS_CODEC_FP8, 30, 0, 1.0f},  {TRS_CODEC_FP8, 64, 1, 1.0f},
      {TRS_CODEC_INT8, 32, 0, 1.0f}, {TRS_CODEC_FP8, 24, 0, 1.0f},  {TRS_CODEC_INT8, 4, 0, 1.0f},
      {TRS_CODEC_INT8, 30, 0, 1.0f}, {TRS_CODEC_INT8, 160, 0, 1.0f}};

  (void)state;
  if (!cuda) skip();
  for (size_t c = 0; c < sizeof(codecs) / sizeof(codecs[0]); c++) {
    check_codec(&codecs[c], 0, 1.0f, 0);
    check_codec(&codecs[c], 960, 1.0f, 1);
    check_codec(&codecs[c], 1920, 1e6f, 0);
    if (codecs[c].row_dim == 0) check_codec(&codecs[c], 963, 1.0f, 0);
  }
}

/* Every fp16 number widened; floats at and around each of them narrowed. */
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
      ((uint16_t *)widen.array[0].by_cpu)[i] = exponent >= 248 ? 0 : (uint16_t)i; /* no infinities, no NaN */
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

/* Rounded, clamped and multiplied floats, bit for bit. */
static void test_rounding(void **state)
{
  static const TrsDType types[] = {TRS_FP16, TRS_BF16};
  Arguments clamped = {0}, scaled = {0};

  (void)state;
  if (!cuda) skip();
  add(&clamped, 20 * 37);
  TWINS(clamped, 0, ops->clamp_matrix(NULL, 20, 35, 0.25F, x[0], 37));
  add(&scaled, 20 * 37);
  TWINS(scaled, 0, ops->scale_matrix(NULL, 20, 35, 3.1F, x[0], 37));
  for (int t = 0; t < 2; t++) {
    Arguments a = {0};

    add(&a, 20 * 37);
    TWINS(a, 0, ops->round_matrix(NULL, 20, 35, types[t], x[0], 37));
    Arguments aligned = {0};
    add(&aligned, 20 * 40);
    TWINS(aligned, 0, ops->round_matrix(NULL, 20, 36, types[t], x[0], 40));
  }
}

static void test_joins(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int product = 0; product < 2; product++) {
    Arguments a = {0}, b = {0}, c = {0};

    for (int i = 0; i < 3; i++) add(&a, 20 * 37);
    TWINS(a, 0, ops->join_forward(NULL, 20, 35, (PetscBool)product, x[0], 37, x[1], 36, x[2], 36));
    for (int i = 0; i < 2; i++) add(&c, 20 * 37);
    TWINS(c, 0, ops->join_forward(NULL, 20, 35, (PetscBool)product, x[0], 37, x[1], 35, x[0], 37));
    for (int i = 0; i < 3; i++) add(&b, 20 * 37);
    TWINS(b, 0, ops->join_backward(NULL, 20, 35, (PetscBool)product, x[0], 36, x[1], x[2], 37));
  }
}

/* The GPU has every kernel but the one that updates do without where it is missing: an empty slot would end a run in the middle. */
static void test_all_slots(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (size_t at = 0; at < sizeof(*cuda); at += sizeof(void *)) {
    void *slot;

    if (at == offsetof(TrsComputeOps, tbe_row_squares)) continue;
    memcpy(&slot, (const char *)cuda + at, sizeof(slot));
    if (!slot) print_error("slot number %d of trs_compute_cuda is empty\n", (int)(at / sizeof(slot)));
    assert_non_null(slot);
  }
}

static void test_precision(void **state)
{
  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_TF32));
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  assert_petsc_error(cpu->dense_precision(TRS_PRECISION_TF32), TRS_ERR_UNAVAILABLE);
  setenv("TRSHARD_GEMM", "own", 1);
  assert_petsc_error(cuda->dense_precision(TRS_PRECISION_BF16), TRS_ERR_UNAVAILABLE);
  unsetenv("TRSHARD_GEMM");
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

TRS_TEST_MAIN(cmocka_unit_test(test_find), cmocka_unit_test(test_cublaslt), cmocka_unit_test(test_bf16),
              cmocka_unit_test(test_linear_of_bf16), cmocka_unit_test(test_fused),
              cmocka_unit_test(test_no_samples), cmocka_unit_test(test_interactions_of_bf16),
              cmocka_unit_test(test_more_of_bf16), cmocka_unit_test(test_matrices),
              cmocka_unit_test(test_own_product), cmocka_unit_test(test_odd_layers),
              cmocka_unit_test(test_no_kernel), cmocka_unit_test(test_algorithms),
              cmocka_unit_test(test_many_shapes), cmocka_unit_test(test_streams), cmocka_unit_test(test_dot),
              cmocka_unit_test(test_fm), cmocka_unit_test(test_cross), cmocka_unit_test(test_vector_cross),
              cmocka_unit_test(test_sample_gemm), cmocka_unit_test(test_layers), cmocka_unit_test(test_loss),
              cmocka_unit_test(test_mixture), cmocka_unit_test(test_squares),
              cmocka_unit_test(test_optimizers), cmocka_unit_test(test_optimizers_aligned),
              cmocka_unit_test(test_numbers), cmocka_unit_test(test_clamp_and_lamb),
              cmocka_unit_test(test_zeros_stay), cmocka_unit_test(test_codecs),
              cmocka_unit_test(test_conversions), cmocka_unit_test(test_rounding),
              cmocka_unit_test(test_joins), cmocka_unit_test(test_all_slots),
              cmocka_unit_test(test_precision))
