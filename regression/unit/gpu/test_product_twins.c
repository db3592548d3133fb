/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Compares matrix products on the GPU, and linear layers that use them, with the CPU. The GPU uses
  cuBLASLt or our own kernel. Results agree except for the rounding of sums.
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
            ops->multiply(NULL, &(TrsMatrixProduct){(PetscBool)ta, (PetscBool)tb, m, n, k, 1.5f,
                                                    TrsFloats(x[0], lda), TrsFloats(x[1], ldb),
                                                    s % 2 ? 0.5f : 0.0f, TrsFloats(x[2], ldc)}));
    }
}

/*
  Batches of no row, of one row, of one run of rows, and of several runs. The widths are not
  multiples of any tile.
*/
static void check_linear(void)
{
  static const int64_t batches[] = {0, 1, 9, 200};

  for (int s = 0; s < 8; s++) {
    const int64_t B = batches[s % 4], in = 37, out = s < 4 ? 65 : 1, x_stride = in + 3, y_stride = out + 2;
    const TrsActivation activation = s % 2 ? TRS_ACTIVATION_RELU : TRS_ACTIVATION_NONE;
    Arguments forward = {0}, backward = {0};

    add(&forward, B * x_stride);
    add(&forward, in * out);
    add(&forward, out + 1); /* one bias is aligned to 16 bytes, and one to 4 */
    add(&forward, B * y_stride);
    TWINS(forward, 1e-5,
          ops->linear_forward(NULL, &(TrsLinear){B, in, out, TrsFloats(x[0], x_stride), TrsFloats(x[1], in),
                                                 x[2] + s % 2, activation, TrsFloats(x[3], y_stride), NULL}));
    add(&backward, B * x_stride);
    add(&backward, in * out);
    add(&backward, B * y_stride); /* y */
    add(&backward, B * y_stride); /* dy */
    add(&backward, in * out);
    add(&backward, out);
    add(&backward, B * x_stride); /* dx */
    TWINS(backward, 1e-5,
          ops->linear_backward(NULL,
                               &(TrsLinear){B, in, out, TrsFloats(x[0], x_stride), TrsFloats(x[1], in), NULL,
                                            activation, TrsFloats(x[2], y_stride), NULL},
                               &(TrsLinearGradients){TrsFloats(x[3], y_stride), x[4], x[5],
                                                     TrsFloats(s < 6 ? x[6] : NULL, x_stride)}));
  }
}

/*
  Layers with one unit, with 13 and with 479 inputs, and gradients that are sums of a single term.
  cuBLASLt may have no kernel for such a shape at some precision. Its kernels must give the right
  result, and our kernel must compute the other shapes.
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
          ops->linear_forward(NULL, &(TrsLinear){B, in, out, TrsFloats(x[0], in), TrsFloats(x[1], in), x[2],
                                                 TRS_ACTIVATION_RELU, TrsFloats(x[3], out), NULL}));
    for (int i = 0; i < 7; i++)
      add(&backward, i == 1 || i == 4 ? in * out : i == 5 ? out : B * (i % 6 ? out : in));
    TWINS(backward, tolerance,
          ops->linear_backward(NULL,
                               &(TrsLinear){B, in, out, TrsFloats(x[0], in), TrsFloats(x[1], in), NULL,
                                            TRS_ACTIVATION_RELU, TrsFloats(x[2], out), NULL},
                               &(TrsLinearGradients){TrsFloats(x[3], out), x[4], x[5], TrsFloats(x[6], in)}));
  }
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
}

static void test_odd_layers(void **state)
{
  (void)state;
  if (!cuda) skip();
  check_odd_layers(TRS_PRECISION_FP32, 2e-5);
  check_odd_layers(TRS_PRECISION_TF32,
                   2e-2); /* operands in [-1, 1) with 10 bits, in sums of up to 479 products */
  check_odd_layers(TRS_PRECISION_BF16, 2e-1);
}

/*
  If cuBLASLt reports that it has no kernel, our kernel computes the product, and the text about the
  library names it. The stand-in's environment selects all products, or only products with odd
  alignment.
*/
static void test_no_kernel(void **state)
{
  static const char *const which[] = {"all", "odd"};

  (void)state;
  if (!cuda || !strstr(about, "CPU standing in")) skip();
  for (int i = 0; i < 2; i++) {
    setenv("CUBLASLT_ON_CPU_REFUSE", which[i], 1);
    /* this forgets the chosen algorithms */
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
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
  The stand-in's third algorithm is the fastest. It is chosen if products are timed, even for a
  product that adds to its result. The first algorithm is chosen if it is the fastest, or if
  products are not timed.
*/
static void test_algorithms(void **state)
{
  (void)state;
  if (!cuda || !strstr(about, "CPU standing in"))
    skip(); /* on a GPU, algorithms differ in their bits, which TWINS does not allow */
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
    assert_petsc_ok(cuda->product_algorithms(8)); /* this forgets the chosen algorithms */
    assert_string_equal(cuda->product_choices(), "");
  }
  assert_petsc_ok(cuda->product_algorithms(1));
  check_gemm();
  assert_string_equal(cuda->product_choices(), "");
  unsetenv("CUBLASLT_ON_CPU_FASTEST");
}

/* Use more shapes than the cache of choices holds, and then the first shapes again. */
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
    TWINS(a, 1e-6,
          ops->multiply(NULL, &(TrsMatrixProduct){PETSC_FALSE, PETSC_FALSE, m, 2, 1, 1.0f, TrsFloats(x[0], 1),
                                                  TrsFloats(x[1], 2), 0.0f, TrsFloats(x[2], 2)}));
  }
}

/* Streams release their scratch memory when they are destroyed. */
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
    assert_petsc_ok(cuda->multiply(stream, &(TrsMatrixProduct){PETSC_FALSE, PETSC_FALSE, 4, 4, 4, 1.0f,
                                                               TrsFloats(data, 4), TrsFloats(data, 4), 0.0f,
                                                               TrsFloats((float *)data + 32, 4)}));
    assert_petsc_ok(device->stream_destroy(&stream));
    assert_petsc_ok(device->release(&data));
    assert_petsc_ok(device->memory(&now, &total));
    if (i == 0) before = now; /* the first product allocates the library's state */
    /* a leak would have 80 times 32 MiB; a driver keeps some memory */
    assert_true(now + (64 << 20) >= before);
  }
}

/* Many streams exist at the same time, as in a process with many collections. */
static void test_many_streams(void **state)
{
  TrsStream stream[80];

  (void)state;
  if (!cuda) skip();
  for (int i = 0; i < 80; i++) assert_petsc_ok(device->stream_create("test", &stream[i]));
  for (int i = 0; i < 80; i++) assert_petsc_ok(device->stream_destroy(&stream[i]));
}

/* Runs of one process may use several GPUs. If there is only one GPU, the test uses it again. */
static void test_other_gpu(void **state)
{
  const float x[] = {1, 2, 3, 4}, square[] = {7, 10, 15, 22};

  (void)state;
  if (!cuda) skip();
  for (int gpu = 1; gpu >= 0; gpu--) {
    float found[4];
    TrsStream stream;
    float *data;

    assert_petsc_ok(device->setup(gpu, 2));
    assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32)); /* each model makes this call */
    assert_petsc_ok(device->stream_create("test", &stream));
    assert_petsc_ok(device->alloc(2 * sizeof(x), (void **)&data));
    assert_petsc_ok(device->copy(data, x, sizeof(x), stream));
    assert_petsc_ok(cuda->multiply(stream, &(TrsMatrixProduct){PETSC_FALSE, PETSC_FALSE, 2, 2, 2, 1.0f,
                                                               TrsFloats(data, 2), TrsFloats(data, 2), 0.0f,
                                                               TrsFloats(data + 4, 2)}));
    assert_petsc_ok(device->copy(found, data + 4, sizeof(found), stream));
    assert_petsc_ok(device->stream_destroy(&stream));
    assert_petsc_ok(device->release((void **)&data));
    assert_memory_equal(found, square, sizeof(square));
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
  In bf16, both backends round the operands of a product to nearest, ties to even, and add in fp32.
  So they differ only by the order of sums. A different last bit of an operand would make a
  difference of 4e-3. The test then runs again without cuBLASLt's kernels.
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

static void test_own_product(void **state)
{
  (void)state;
  if (!cuda) skip();
  setenv("TRSHARD_GEMM", "own", 1);
  /* cuBLASLt searches for kernels again */
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  check_gemm();
  check_linear();
  assert_non_null(strstr(cuda->product_library(), "TRSHARD_GEMM=own"));
  unsetenv("TRSHARD_GEMM");
  assert_petsc_ok(cuda->dense_precision(TRS_PRECISION_FP32));
  assert_null(strstr(cuda->product_library(), "TRSHARD_GEMM=own"));
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
              cmocka_unit_test(test_own_product), cmocka_unit_test(test_odd_layers),
              cmocka_unit_test(test_no_kernel), cmocka_unit_test(test_algorithms),
              cmocka_unit_test(test_many_shapes), cmocka_unit_test(test_streams),
              cmocka_unit_test(test_many_streams), cmocka_unit_test(test_other_gpu),
              cmocka_unit_test(test_precision))
