/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: avx2 */
/* TEST gemms: openblas bf16 */
/*
  Compares the CPU's dense layers with plain loops in double, for each instruction set of this
  processor and several numbers of threads.
*/
#include "compute/gemm.h"
#include "compute/half.h"
#include "core/buffer.h"
#include "core/random/random.h"
#include "cpu/cpu_kernels.h"
#include "cpu/isa/codec_kernels.h"
#include "cpu/isa/dense_kernels.h"
#include "numbers.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static int kernels_here(const TrsDenseKernels *kernels[3])
{
  int n = 0;

  kernels[n++] = &trs_dense_kernels_portable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels[n++] = &trs_dense_kernels_avx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    kernels[n++] = &trs_dense_kernels_avx512;
#endif
  return n;
}

/*
  Every instruction set rounds as half.h does. The cases are ties, overflow, infinities, NaN, and
  denormals.
*/
static void test_round_to_bf16(void **state)
{
  static const uint32_t special[] = {0x00000000u, 0x80000000u, 0x3f808000u, 0x3f818000u, 0x3f808001u,
                                     0x7f7fffffu, 0xff7f8000u, 0x7f800000u, 0xff800000u, 0x7f800001u,
                                     0xffc00001u, 0x00008000u, 0x807fffffu, 0x00000001u};
  enum { N = 97, N_SPECIAL = sizeof(special) / sizeof(special[0]) };
  const char *const isas[] = {"portable", "avx2", "avx512"};
  float *x = numbers(N, 60), back[N];
  uint16_t bits[N];

  (void)state;
  for (int i = 0; i < N_SPECIAL; i++) x[3 * i] = TrsBitsFloat(special[i]);
  for (int k = 0; k < 3; k++) {
    TrsComputeSetIsa(isas[k]);
    TrsCodecKernelsGet()->narrow(0, N, x, bits);
    TrsCodecKernelsGet()->widen(0, N, bits, back);
    for (int i = 0; i < N; i++) {
      assert_int_equal(bits[i], TrsFloatToBf16(x[i]));
      assert_int_equal(TrsFloatBits(back[i]), (uint32_t)bits[i] << 16);
    }
  }
  TrsComputeSetIsa(NULL);
  release(x);
}

/* Compute y = relu(x W^T + b). Then mask dy and compute dW = dy^T x, db = sum dy, dx = dy W. */
static void linear_case(int64_t batch, int64_t in, int64_t out, TrsActivation activation)
{
  float *x = numbers(batch * in, 4), *w = numbers(out * in, 5), *bias = numbers(out, 6),
        *y = numbers(batch * out, 7);
  float *dy = numbers(batch * out, 8), *g = numbers(batch * out, 8), *dw = numbers(out * in, 9),
        *db = numbers(out, 10);
  float *dx = numbers(batch * in, 11);

  assert_petsc_ok(TrsLinearForwardCpu(NULL, &(TrsLinear){batch, in, out, TrsFloats(x, in), TrsFloats(w, in),
                                                         bias, activation, TrsFloats(y, out), NULL}));
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t o = 0; o < out; o++) {
      double sum = (double)bias[o];

      for (int64_t i = 0; i < in; i++) sum += (double)x[b * in + i] * (double)w[o * in + i];
      if (activation == TRS_ACTIVATION_RELU) sum = fmax(sum, 0.0);
      assert_close(y[b * out + o], sum, 1e-5, 0.0);
      if (activation == TRS_ACTIVATION_RELU && y[b * out + o] <= 0.0f) g[b * out + o] = 0.0f;
    }
  }
  assert_petsc_ok(TrsLinearBackwardCpu(NULL,
                                       &(TrsLinear){batch, in, out, TrsFloats(x, in), TrsFloats(w, in), NULL,
                                                    activation, TrsFloats(y, out), NULL},
                                       &(TrsLinearGradients){TrsFloats(dy, out), dw, db, TrsFloats(dx, in)}));
  for (int64_t o = 0; o < out; o++) {
    double sum = 0.0;

    for (int64_t b = 0; b < batch; b++) sum += (double)g[b * out + o];
    assert_close(db[o], sum, 1e-4, 0.0);
    for (int64_t i = 0; i < in; i++) {
      sum = 0.0;
      for (int64_t b = 0; b < batch; b++) sum += (double)g[b * out + o] * (double)x[b * in + i];
      assert_close(dw[o * in + i], sum, 1e-4, 0.0);
    }
  }
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t i = 0; i < in; i++) {
      double sum = 0.0;

      for (int64_t o = 0; o < out; o++) sum += (double)g[b * out + o] * (double)w[o * in + i];
      assert_close(dx[b * in + i], sum, 1e-4, 0.0);
    }
  }
  release(x);
  release(w);
  release(bias);
  release(y);
  release(dy);
  release(g);
  release(dw);
  release(db);
  release(dx);
}

static void test_linear(void **state)
{
  (void)state;
  linear_case(17, 13, 70, TRS_ACTIVATION_RELU);
  linear_case(64, 70, 1, TRS_ACTIVATION_NONE);
  linear_case(1, 1, 1, TRS_ACTIVATION_RELU);
  linear_case(0, 3, 5, TRS_ACTIVATION_RELU); /* a rank without samples has zero gradients */
}

/*
  As in torch's ReLU, a NaN stays a NaN in forward and backward, at every position in a vector
  register.
*/
/*
  A mask of bits gives the same bits as a mask by the output. Mask bits after the last column are 0.
*/
static void test_relu_bits(void **state)
{
  enum { ROWS = 5, MOST = 150 };
  const TrsDenseKernels *kernels[3];
  const int n_kernels = kernels_here(kernels);

  (void)state;
  for (int k = 0; k < n_kernels; k++) {
    for (int cols = 1; cols <= MOST; cols++) {
      const int64_t stride = cols + cols % 3, row_bytes = TrsReluMaskBytesCpu(cols);
      float *y = numbers(ROWS * stride, 21), *dy[2], sum[2][MOST];
      unsigned char bits[ROWS * 32];

      memset(bits, 0xff, sizeof(bits));
      for (int i = 0; i < 2; i++) dy[i] = numbers(ROWS * stride, 22);
      for (int64_t i = 0; i < ROWS * stride; i++) y[i] = i % 7 == 0 ? NAN : i % 5 == 0 ? -0.0F : y[i];
      kernels[k]->relu_bits(ROWS, cols, y, stride, bits, row_bytes);
      for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 8 * (int)row_bytes; c++)
          assert_int_equal(bits[r * row_bytes + c / 8] >> c % 8 & 1,
                           c < cols && !(y[r * stride + c] <= 0.0F));
      kernels[k]->mask_and_sum(ROWS, cols, y, stride, dy[0], stride, sum[0]);
      kernels[k]->mask_by_bits_and_sum(ROWS, cols, bits, row_bytes, dy[1], stride, sum[1]);
      assert_memory_equal(dy[1], dy[0], (size_t)(ROWS * stride) * sizeof(float));
      assert_memory_equal(sum[1], sum[0], (size_t)cols * sizeof(float));
      for (int i = 0; i < 2; i++) release(dy[i]);
      release(y);
    }
  }
}

/*
  Layers with a mask and layers without give the same bits, even if the gradient of the input
  overwrites the input.
*/
static void test_masked_layers(void **state)
{
  enum { B = 70, IN = 40, OUT = 133 };
  const int64_t row_bytes = TrsReluMaskBytesCpu(OUT);
  float *x = numbers(B * IN, 31), *w = numbers(OUT * IN, 32), *bias = numbers(OUT, 33), *y[2], *dy[2], *dx[2],
        *dw[2], *db[2];
  TrsReluMask mask = {.row_bytes = row_bytes, .data = calloc(B, (size_t)row_bytes)};

  (void)state;
  for (int i = 0; i < 2; i++) {
    const TrsReluMasks masks = {.y = mask};
    float *from = i ? numbers(B * IN, 31) : x;

    y[i] = numbers(B * OUT, 34);
    dy[i] = numbers(B * OUT, 35);
    dx[i] = i ? from : numbers(B * IN, 36);
    dw[i] = numbers(OUT * IN, 37);
    db[i] = numbers(OUT, 38);
    assert_petsc_ok(TrsLinearForwardCpu(NULL, &(TrsLinear){B, IN, OUT, TrsFloats(from, IN), TrsFloats(w, IN),
                                                           bias, TRS_ACTIVATION_RELU, TrsFloats(y[i], OUT),
                                                           i ? &masks : NULL}));
    if (i) memset(y[1], 0xff, B * OUT * sizeof(float)); /* the output is never read */
    assert_petsc_ok(TrsLinearBackwardCpu(
        NULL,
        &(TrsLinear){B, IN, OUT, TrsFloats(from, IN), TrsFloats(w, IN), NULL, TRS_ACTIVATION_RELU,
                     TrsFloats(y[i], OUT), i ? &masks : NULL},
        &(TrsLinearGradients){TrsFloats(dy[i], OUT), dw[i], db[i], TrsFloats(dx[i], IN)}));
  }
  assert_memory_equal(dy[1], dy[0], B * OUT * sizeof(float));
  assert_memory_equal(dx[1], dx[0], B * IN * sizeof(float));
  assert_memory_equal(dw[1], dw[0], OUT * IN * sizeof(float));
  assert_memory_equal(db[1], db[0], OUT * sizeof(float));
  for (int i = 0; i < 2; i++) {
    release(y[i]);
    release(dy[i]);
    release(dx[i]);
    release(dw[i]);
    release(db[i]);
  }
  release(x);
  release(w);
  release(bias);
  free(mask.data);
}

static void test_relu_of_nan(void **state)
{
  const TrsDenseKernels *kernels[3];
  const int n_kernels = kernels_here(kernels);
  static const float zeros[37];

  (void)state;
  for (int k = 0; k < n_kernels; k++) {
    for (int at = 0; at < 37; at++) {
      float y[37], dy[37], sum[37];

      for (int i = 0; i < 37; i++) {
        y[i] = i == at ? NAN : (float)(i % 3 - 1);
        dy[i] = 1.0f;
      }
      kernels[k]->add_bias(1, 37, zeros, 1, y, 37);
      kernels[k]->mask_and_sum(1, 37, y, 37, dy, 37, sum);
      for (int i = 0; i < 37; i++) {
        const float passes = i == at || i % 3 == 2 ? 1.0f : 0.0f;

        assert_true(i == at ? isnan(y[i]) : y[i] == passes);
        assert_true(dy[i] == passes && sum[i] == passes);
      }
    }
  }
}

/* Index of g(i, j), i < j, in the upper triangle stored row by row (src/RULES.md, rule A1). */
static int64_t place(int n, int i, int j)
{
  return (int64_t)i * (n - 1) - (int64_t)i * (i - 1) / 2 + j - i - 1;
}

static void dot_case(const TrsDenseKernels *kernels, int n, int D)
{
  const int64_t n_products = (int64_t)n * (n - 1) / 2;
  float *x = numbers((int64_t)n * D, 12), *p = numbers(n_products + 2, 13), *g = numbers(n_products, 14),
        *dx = numbers((int64_t)n * D, 15), *copy = numbers(D, 11);
  const float before = p[0], after = p[n_products + 1];

  kernels->dot_forward(n, D, x, p + 1);
  assert_true(p[0] == before && p[n_products + 1] == after);
  kernels->dot_backward(n, D, x, D % 3 ? NULL : copy, g, D % 16 == 0, dx, NULL, 0);
  for (int i = 0; i < n; i++) {
    for (int j = i + 1; j < n; j++) {
      double sum = 0.0;

      for (int d = 0; d < D; d++) sum += (double)x[i * D + d] * (double)x[j * D + d];
      assert_close(p[1 + place(n, i, j)], sum, 2e-5, 0.0);
    }
    for (int d = 0; d < D; d++) {
      double sum = i == 0 && D % 3 == 0 ? (double)copy[d] : 0.0;

      for (int j = 0; j < n; j++)
        if (j != i) sum += (double)g[i < j ? place(n, i, j) : place(n, j, i)] * (double)x[j * D + d];
      assert_close(dx[i * D + d], sum, 2e-5, 0.0);
    }
  }
  release(x);
  release(p);
  release(g);
  release(dx);
  release(copy);
}

static void test_dot(void **state)
{
  const TrsDenseKernels *kernels[3];
  const int n_kernels = kernels_here(kernels);

  (void)state;
  for (int k = 0; k < n_kernels; k++) {
    for (int n = 1; n <= 36; n++)
      for (int D = 1; D <= 35; D++) dot_case(kernels[k], n, D);
    /* these widths have their own kernels; 16 and 32 are tested above */
    for (int n = 1; n <= 9; n++)
      for (int D = 64; D <= 128; D *= 2) dot_case(kernels[k], n, D);
    dot_case(kernels[k], 27, 64);
    dot_case(kernels[k], 5, 113);
    dot_case(kernels[k], 70, 300);
    dot_case(kernels[k], 3, 1030);
  }
}

/*
  The variant with slots: vectors are rows of a larger matrix, the dense vector is copied, and its
  gradient is added.
*/
static void test_dot_batch(void **state)
{
  enum { B = 5, N = 4, D = 6, X_STRIDE = 30, OUT_STRIDE = 16 };
  float *x = numbers(B * X_STRIDE, 16), *out = numbers(B * OUT_STRIDE, 17), *dx = numbers(B * X_STRIDE, 18);
  float *p = numbers(N * (N - 1) / 2, 1), *direct = numbers(N * D, 1);

  (void)state;
  assert_petsc_ok(TrsDotForwardCpu(NULL, B, N, D, D, 3, TrsFloats(x, X_STRIDE), TrsFloats(out, OUT_STRIDE)));
  for (int b = 0; b < B; b++)
    for (int c = D + N * (N - 1) / 2; c < OUT_STRIDE; c++)
      assert_true((out[b * OUT_STRIDE + c] == 0.0f) ==
                  /* 3 columns become 0, and the last column stays unchanged */
                  (c < OUT_STRIDE - 1));
  assert_petsc_ok(TrsDotBackwardCpu(NULL, B, N, D, D, TrsFloats(x, X_STRIDE), TrsFloats(out, OUT_STRIDE),
                                    TrsFloats(dx, X_STRIDE)));
  for (int b = 0; b < B; b++) {
    trs_dense_kernels_portable.dot_forward(N, D, x + b * X_STRIDE, p);
    trs_dense_kernels_portable.dot_backward(N, D, x + b * X_STRIDE, NULL, out + b * OUT_STRIDE + D, 0, direct,
                                            NULL, 0);
    assert_memory_equal(out + b * OUT_STRIDE, x + b * X_STRIDE, D * sizeof(float));
    for (int i = 0; i < N * (N - 1) / 2; i++) assert_close(out[b * OUT_STRIDE + D + i], p[i], 1e-6, 0.0);
    for (int i = 0; i < N * D; i++)
      assert_close(dx[b * X_STRIDE + i], direct[i] + (i < D ? out[b * OUT_STRIDE + i] : 0.0f), 1e-5, 0.0);
  }
  release(x);
  release(out);
  release(dx);
  release(p);
  release(direct);
}

/*
  Vectors at any addresses, whose gradients overwrite them or not, give the same bits as vectors in
  one matrix, for any number of threads.
*/
static void test_dot_places(void **state)
{
  enum { B = 37, MOST = 30 };
  const int before = omp_get_max_threads();

  (void)state;
  for (int c = 0; c < 40; c++) {
    const int n = 2 + c % (MOST - 1), D = 1 + 7 * c % 70, copied = c % 3 ? D : 0, n_zeros = c % 4;
    const int64_t N = (int64_t)n * D, width = copied + n * (n - 1) / 2 + n_zeros;
    TrsVectorPlace at[MOST], to[MOST];
    float *x = numbers(B * N, 16), *out = numbers(B * width, 17), *dx = numbers(B * N, 18);
    float *again = numbers(B * width, 17), *apart[MOST], *grads[MOST];

    omp_set_num_threads(1 + c % 3);
    for (int v = 0; v < n; v++) {
      const int64_t stride = D + v % 5;

      apart[v] = numbers(B * stride, (uint64_t)(20 + v));
      grads[v] = v % 2 ? apart[v] : numbers(B * D, 19);
      at[v] = (TrsVectorPlace){.data = apart[v], .stride = stride};
      to[v] = (TrsVectorPlace){.data = grads[v], .stride = v % 2 ? stride : D};
      for (int b = 0; b < B; b++) memcpy(apart[v] + b * stride, x + b * N + v * D, (size_t)D * sizeof(float));
    }
    assert_petsc_ok(TrsDotForwardCpu(NULL, B, n, D, copied, n_zeros, TrsFloats(x, N), TrsFloats(out, width)));
    assert_petsc_ok(
        TrsDotPlacesForwardCpu(NULL, B, n, D, copied, n_zeros, TRS_FP32, at, TrsFloats(again, width)));
    assert_memory_equal(again, out, (size_t)(B * width) * sizeof(float));
    assert_petsc_ok(
        TrsDotBackwardCpu(NULL, B, n, D, copied, TrsFloats(x, N), TrsFloats(out, width), TrsFloats(dx, N)));
    assert_petsc_ok(TrsDotPlacesBackwardCpu(NULL, B, n, D, copied, TRS_FP32, at, TrsFloats(out, width), to));
    for (int v = 0; v < n; v++)
      for (int b = 0; b < B; b++)
        assert_memory_equal((float *)to[v].data + b * to[v].stride, dx + b * N + v * D,
                            (size_t)D * sizeof(float));
    for (int v = 0; v < n; v++) {
      if (grads[v] != apart[v]) release(grads[v]);
      release(apart[v]);
    }
    release(x);
    release(out);
    release(again);
    release(dx);
  }
  omp_set_num_threads(before);
}

/*
  Gradients that are larger than the caches have the same bits as small ones, for any number of
  threads.
*/
static void test_dot_large(void **state)
{
  enum { B = 700, N = 27, D = 64, PRODUCTS = N * (N - 1) / 2 };
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const int before = omp_get_max_threads();
  float *x = numbers(B * N * D, 16), *g = numbers(B * PRODUCTS, 17), *dx = numbers(B * N * D, 18);
  float *direct = numbers(N * D, 1);

  (void)state;
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    memset(dx, 0, B * N * D * sizeof(float));
    assert_petsc_ok(TrsDotBackwardCpu(NULL, B, N, D, 0, TrsFloats(x, N * D), TrsFloats(g, PRODUCTS),
                                      TrsFloats(dx, N * D)));
    for (int b = 0; b < B; b++) {
      kernels->dot_backward(N, D, x + b * N * D, NULL, g + b * PRODUCTS, 0, direct, NULL, 0);
      assert_memory_equal(dx + b * N * D, direct, N * D * sizeof(float));
    }
  }
  omp_set_num_threads(before);
  release(x);
  release(g);
  release(dx);
  release(direct);
}

/*
  Copy columns of a matrix larger than the caches. They may be aligned to a cache line or not. The
  memory between them stays unchanged.
*/
static void test_copy_large(void **state)
{
  enum { ROWS = 1200, FROM = 96, TO = 1040 };
  /* number of columns, first column */
  static const int cases[][2] = {{64, 32}, {16, 1024}, {64, 33}, {61, 32}, {0, 0}};
  const int before = omp_get_max_threads();
  float *from = numbers(ROWS * FROM, 1), *to = numbers(ROWS * TO, 2), *fresh = numbers(ROWS * TO, 2);

  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    const int cols = cases[i][0], at = cases[i][1];
    TrsColumnCopy copy;

    omp_set_num_threads(1 + (int)i % 3);
    memcpy(to, fresh, ROWS * TO * sizeof(float));
    copy = (TrsColumnCopy){.from = TrsFloats(from + 5, FROM), .to = TrsFloats(to + at, TO), .cols = cols};
    assert_petsc_ok(TrsCopyColumnsCpu(NULL, ROWS, 1, &copy));
    for (int r = 0; r < ROWS; r++) {
      const float *row = to + (int64_t)r * TO, *old = fresh + (int64_t)r * TO;

      assert_memory_equal(row + at, from + (int64_t)r * FROM + 5, (size_t)cols * sizeof(float));
      assert_memory_equal(row, old, (size_t)at * sizeof(float));
      assert_memory_equal(row + at + cols, old + at + cols, (size_t)(TO - at - cols) * sizeof(float));
    }
  }
  omp_set_num_threads(before);
  release(from);
  release(to);
  release(fresh);
}

static void test_cross(void **state)
{
  enum { B = 7, N = 71 };
  float *x0 = numbers(B * N, 20), *u = numbers(B * N, 21), *bias = numbers(N, 22), *x = numbers(B * N, 23),
        *y = numbers(B * N, 24);
  float *g = numbers(B * N, 25), *dx0 = numbers(B * N, 26), *before = numbers(B * N, 26),
        *h = numbers(B * N, 27), *db = numbers(N, 28);
  const TrsCrossBackward layer = {x0, u, bias, g, dx0, h, db, TRS_FP32, .total = NULL};

  (void)state;
  assert_petsc_ok(TrsCrossForwardCpu(NULL, B, N, TRS_FP32, x0, u, bias, x, y));
  assert_petsc_ok(TrsCrossBackwardCpu(NULL, B, N, 0, &layer));
  for (int c = 0; c < N; c++) {
    double sum = 0.0;

    for (int b = 0; b < B; b++) {
      const int i = b * N + c;

      assert_close(y[i], (double)x0[i] * ((double)u[i] + (double)bias[c]) + (double)x[i], 1e-6, 0.0);
      assert_close(dx0[i], (double)before[i] + (double)g[i] * ((double)u[i] + (double)bias[c]), 1e-6, 0.0);
      assert_close(h[i], (double)g[i] * (double)x0[i], 1e-7, 0.0);
      sum += (double)g[i] * (double)x0[i];
    }
    assert_close(db[c], sum, 1e-6, 0.0);
  }
  assert_petsc_ok(TrsCrossBackwardCpu(NULL, 0, N, 0, &layer));
  for (int c = 0; c < N; c++) assert_true(db[c] == 0.0f);
  /* dx0 is written, not added to */
  assert_petsc_ok(TrsCrossBackwardCpu(NULL, B, N, TRS_CROSS_FIRST, &layer));
  for (int i = 0; i < B * N; i++)
    assert_close(dx0[i], (double)g[i] * ((double)u[i] + (double)bias[i % N]), 1e-6, 0.0);
  float *all[] = {x0, u, bias, x, y, g, dx0, before, h, db};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) release(all[i]);
}

/*
  Compare two steps with torch.optim's formulas in double, with weight decay and a scaled gradient.
*/
static void test_update(void **state)
{
  enum { N = 37 };

  (void)state;
  for (int kind = TRS_DENSE_SGD; kind <= TRS_DENSE_ADAMW; kind++) {
    TrsDenseOptimizerArgs args = {.kind = (TrsDenseOptimizerKind)kind,
                                  .learning_rate = 0.1f,
                                  .eps = 1e-3f,
                                  .beta1 = 0.9,
                                  .beta2 = 0.99};
    float *w = numbers(N, 30), *g = numbers(N, 31), *s1 = NULL, *s2 = NULL;
    double ref[N], r1[N] = {0.0}, r2[N] = {0.0};

    assert_petsc_ok(TrsAlloc(N, sizeof(float), &s1));
    assert_petsc_ok(TrsAlloc(N, sizeof(float), &s2));
    for (int i = 0; i < N; i++) ref[i] = (double)w[i];
    args.weight_decay = 0.01f;
    args.grad_scale = 0.5f;
    for (args.step = 1; args.step <= 2; args.step++) {
      assert_petsc_ok(TrsDenseUpdateCpu(NULL, N, &args, g, w, s1, s2));
      for (int i = 0; i < N; i++) {
        const double decay = kind == TRS_DENSE_ADAMW ? 0.0 : 0.01, t = (double)args.step;
        const double gi = 0.5 * (double)g[i] + decay * ref[i];

        if (kind == TRS_DENSE_SGD) ref[i] -= 0.1 * gi;
        if (kind == TRS_DENSE_ADAGRAD) {
          r1[i] += gi * gi;
          ref[i] -= 0.1 * gi / (sqrt(r1[i]) + 1e-3);
        }
        if (kind == TRS_DENSE_ADAMW) ref[i] *= 1.0 - 0.1 * 0.01;
        if (kind == TRS_DENSE_ADAM || kind == TRS_DENSE_ADAMW) {
          r1[i] = 0.9 * r1[i] + 0.1 * gi;
          r2[i] = 0.99 * r2[i] + 0.01 * gi * gi;
          ref[i] -= 0.1 / (1.0 - pow(0.9, t)) * r1[i] / (sqrt(r2[i]) / sqrt(1.0 - pow(0.99, t)) + 1e-3);
        }
        assert_close(w[i], ref[i], 2e-6, 0.0);
      }
    }
    release(w);
    release(g);
    release(s1);
    release(s2);
  }
}

/*
  Compare lamb's step with a computation in double, after two updates of its states. The work has
  several parts. Weights that are all 0 have the ratio 1.
*/
static void lamb_case(int64_t n, int zero)
{
  TrsDenseOptimizerArgs args = {.kind = TRS_DENSE_LAMB,
                                .learning_rate = 0.1f,
                                .eps = 1e-6f,
                                .weight_decay = 0.01f,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .grad_scale = 0.5f};
  float *w = numbers(n, 30), *g = numbers(n, 31), *before = numbers(n, 30), *m = NULL, *v = NULL;
  double squares[2], ww = 0.0, rr = 0.0, *r;

  assert_petsc_ok(TrsAlloc(n, sizeof(float), &m));
  assert_petsc_ok(TrsAlloc(n, sizeof(float), &v));
  assert_petsc_ok(PetscMalloc1((size_t)n, &r));
  for (int64_t i = 0; zero && i < n; i++) w[i] = before[i] = 0.0f;
  for (args.step = 1; args.step <= 2; args.step++)
    assert_petsc_ok(TrsDenseUpdateCpu(NULL, n, &args, g, w, m, v));
  assert_memory_equal(w, before, (size_t)n * sizeof(*w));
  args.step = 2;
  assert_petsc_ok(TrsLambApplyCpu(NULL, n, &args, m, v, squares, w));
  for (int64_t i = 0; i < n; i++) {
    const double gi = 0.5 * (double)g[i], mean = (0.9 * 0.1 + 0.1) * gi,
                 square = (0.99 * 0.01 + 0.01) * gi * gi;

    r[i] = mean / (1.0 - 0.81) / (sqrt(square / (1.0 - 0.9801)) + 1e-6) + 0.01 * (double)before[i];
    rr += r[i] * r[i];
    ww += (double)before[i] * (double)before[i];
  }
  for (int64_t i = 0; i < n; i++)
    assert_close(w[i], (double)before[i] - 0.1 * (zero ? 1.0 : sqrt(ww / rr)) * r[i], 2e-6, 0.0);
  assert_petsc_ok(PetscFree(r));
  release(w);
  release(g);
  release(before);
  release(m);
  release(v);
}

static void test_lamb(void **state)
{
  (void)state;
  lamb_case(37, 0);
  lamb_case(50000, 0);
  lamb_case(37, 1);
}

static void test_sum_of_squares(void **state)
{
  const int64_t n = 100003;
  float *x = numbers(n, 40);
  double sum = -1.0, expected = 0.0;

  (void)state;
  assert_petsc_ok(TrsSumOfSquaresCpu(NULL, n, x, &sum));
  for (int64_t i = 0; i < n; i++) expected += (double)x[i] * (double)x[i];
  assert_close(sum, expected, 0.0, 1e-12);
  release(x);
}

/*
  A layer that is large enough to be divided among threads gives the same bits with any number of
  threads.
*/
static void threads_case(int64_t batch, int64_t in, int64_t out)
{
  static const int numbers_of_threads[] = {1, 2, 3, 4, 8, 21};
  const int64_t sizes[] = {batch * out, batch * out, out * in, out, batch * in};
  float *x = numbers(batch * in, 50), *w = numbers(out * in, 51), *bias = numbers(out, 52), *first[5],
        *result[5];

  for (int t = 0; t < 6; t++) {
    omp_set_num_threads(numbers_of_threads[t]);
    for (int i = 0; i < 5; i++) result[i] = numbers(sizes[i], 53); /* results: y, dy, dw, db, dx */
    assert_petsc_ok(
        TrsLinearForwardCpu(NULL, &(TrsLinear){batch, in, out, TrsFloats(x, in), TrsFloats(w, in), bias,
                                               TRS_ACTIVATION_RELU, TrsFloats(result[0], out), NULL}));
    assert_petsc_ok(TrsLinearBackwardCpu(
        NULL,
        &(TrsLinear){batch, in, out, TrsFloats(x, in), TrsFloats(w, in), NULL, TRS_ACTIVATION_RELU,
                     TrsFloats(result[0], out), NULL},
        &(TrsLinearGradients){TrsFloats(result[1], out), result[2], result[3], TrsFloats(result[4], in)}));
    for (int i = 0; i < 5; i++) {
      if (t == 0) {
        first[i] = result[i];
      } else {
        assert_memory_equal(result[i], first[i], (size_t)sizes[i] * sizeof(float));
        release(result[i]);
      }
    }
  }
  omp_set_num_threads(1);
  for (int i = 0; i < 5; i++) release(first[i]);
  release(x);
  release(w);
  release(bias);
}

static void test_threads(void **state)
{
  (void)state;
  threads_case(777, 415, 520);  /* divided by rows */
  threads_case(150, 300, 1999); /* divided by columns */
  /* a shape for which oneDNN would choose other blocks if it were divided */
  threads_case(1059, 1179, 357);
  threads_case(540, 1000, 500); /* another such shape, in which one part has the last 12 rows */
  assert_petsc_ok(TrsDensePrecisionCpu(TRS_PRECISION_BF16));
  threads_case(777, 415, 520);
  threads_case(540, 1000, 500);
  assert_petsc_ok(TrsDensePrecisionCpu(TRS_PRECISION_FP32));
}

static void check_ulps(float found, double wanted, double ulps, const char *what, float x)
{
  const double room = ulps * ldexp(fmax(fabs(wanted), 0x1p-126), -23);

  if (!(fabs((double)found - wanted) <= room))
    fail_msg("%s(%.9g) is %.9g, not %.9g", what, (double)x, (double)found, wanted);
}

/*
  exp, sigmoid and tanh on a grid over all magnitudes and at the limits of their ranges. The lengths
  are not multiples of a vector.
*/
static void test_exponentials(void **state)
{
  enum { N = 4001 };
  static float x[N], y[N];
  const TrsDenseKernels *kernels[3];
  const int n_kernels = kernels_here(kernels);

  (void)state;
  for (int i = 0; i < N; i++) x[i] = (float)sinh((double)(i - N / 2) * 0.0026) * (i % 3 ? 1.0F : 0.01F);
  for (int k = 0; k < n_kernels; k++) {
    memcpy(y, x, sizeof(x));
    kernels[k]->exponentials(N, y);
    for (int i = 0; i < N; i++)
      if (fabsf(x[i]) < 87.0F) check_ulps(y[i], exp((double)x[i]), 2.0, "exp", x[i]);
    memcpy(y, x, sizeof(x));
    kernels[k]->activate(N, TRS_ACTIVATION_SIGMOID, y);
    for (int i = 0; i < N; i++)
      if (fabsf(x[i]) < 87.0F) check_ulps(y[i], 1.0 / (1.0 + exp(-(double)x[i])), 4.0, "sigmoid", x[i]);
    memcpy(y, x, sizeof(x));
    kernels[k]->activate(N, TRS_ACTIVATION_TANH, y);
    for (int i = 0; i < N; i++) check_ulps(y[i], tanh((double)x[i]), 4.0, "tanh", x[i]);
  }
}

static void test_exponentials_end(void **state)
{
  static const float at[7] = {-INFINITY, -1e30F, -88.0F, 0.0F, 1e30F, INFINITY, NAN};
  const TrsDenseKernels *kernels[3];
  const int n_kernels = kernels_here(kernels);

  (void)state;
  for (int k = 0; k < n_kernels; k++) {
    float e[7], s[7], t[7];

    memcpy(e, at, sizeof(e));
    memcpy(s, at, sizeof(s));
    memcpy(t, at, sizeof(t));
    kernels[k]->exponentials(7, e);
    kernels[k]->activate(7, TRS_ACTIVATION_SIGMOID, s);
    kernels[k]->activate(7, TRS_ACTIVATION_TANH, t);
    for (int i = 0; i < 3; i++) assert_true(e[i] == 0.0F && s[i] >= 0.0F && s[i] < 1e-38F && t[i] == -1.0F);
    assert_true(e[3] == 1.0F && s[3] == 0.5F && t[3] == 0.0F);
    for (int i = 4; i < 6; i++) assert_true(e[i] > 1e38F && s[i] == 1.0F && t[i] == 1.0F);
    assert_true(isnan(e[6]) && isnan(s[6]) && isnan(t[6]));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_exponentials), cmocka_unit_test(test_exponentials_end),
              cmocka_unit_test(test_round_to_bf16), cmocka_unit_test(test_linear),
              cmocka_unit_test(test_relu_of_nan), cmocka_unit_test(test_dot),
              cmocka_unit_test(test_dot_batch), cmocka_unit_test(test_relu_bits),
              cmocka_unit_test(test_masked_layers), cmocka_unit_test(test_dot_places),
              cmocka_unit_test(test_dot_large), cmocka_unit_test(test_copy_large),
              cmocka_unit_test(test_cross), cmocka_unit_test(test_update), cmocka_unit_test(test_lamb),
              cmocka_unit_test(test_sum_of_squares), cmocka_unit_test(test_threads))
