/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Compares interactions, layers and codecs on the GPU with the CPU, whose kernels are tested with
  golden data of TorchRec. Both get the same arguments. Codecs agree bit for bit. All other results
  agree except for the rounding of sums. Each GPU call runs twice and must give the same bits.
*/
#include "gpu/layer_twins.h"

static void test_dot(void **state)
{
  /*
    n, D, copied, floats between samples. The last shape but one needs an opt-in for shared memory.
    The last shape does not fit into shared memory.
  */
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
          ops->dot_forward(NULL, B, n, D, copied, s % 3, TrsFloats(x[0], x_stride), TrsFloats(x[1], stride)));
    add(&backward, B * x_stride);
    add(&backward, B * stride);
    add(&backward, B * x_stride);
    TWINS(backward, 1e-5,
          ops->dot_backward(NULL, B, n, D, copied, TrsFloats(x[0], x_stride), TrsFloats(x[1], stride),
                            TrsFloats(x[2], x_stride)));
  }
}

static void test_fm(void **state)
{
  static const int shapes[][3] = {/* n, copied, floats between samples */
                                  {1, 0, 1},
                                  {33, 5, 1},
                                  {64, 16, 4},
                                  {1728, 64, 0}};
  /* number of columns of deep layers */
  enum { BEFORE = 3, N_SHAPES = sizeof(shapes) / sizeof(*shapes) };

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 2 * N_SHAPES; s++) {
    const int n = shapes[s / 2][0], copied = shapes[s / 2][1], width = copied + BEFORE + 1;
    const int64_t B = 7, x_stride = n + shapes[s / 2][2], stride = width + 2;
    const PetscBool to_sum = (PetscBool)(s % 2);
    Arguments forward = {0}, backward = {0};

    add(&forward, B * x_stride);
    add(&forward, B * stride);
    TWINS(
        forward, 1e-6 * n,
        ops->fm_forward(NULL, B, &(TrsFm){n, copied, copied + BEFORE, s % 3, x[0], x_stride}, x[1], stride));
    add(&backward, B * x_stride);
    add(&backward, B * stride);
    add(&backward, B * x_stride);
    TWINS(backward, 1e-6 * n,
          ops->fm_backward(NULL, B, &(TrsFm){n, copied, copied + BEFORE, 0, x[0], x_stride}, to_sum, x[1],
                           stride, x[2], x_stride));
  }
}

/* The result is dx, in x[0]. Afterwards g and dx0 are cleared, because they are not results. */
static PetscErrorCode whole_cross(const TrsComputeOps *ops, int64_t B, int64_t n, int64_t rank, int layers,
                                  float *const *x)
{
  const TrsDeviceOps *on = ops == cpu ? trs_device_backends[0] : device;

  PetscFunctionBegin;
  if (layers > 1) PetscCall(cross_backward(ops, B, n, TRS_CROSS_FIRST, x));
  PetscCall(cross_backward(ops, B, n, layers > 1 ? TRS_CROSS_LAST : TRS_CROSS_FIRST | TRS_CROSS_LAST, x));
  PetscCall(ops->cross_input(NULL, B, n, rank, TrsFloats(x[7], rank), TrsFloats(x[8], n), TrsFloats(x[3], n),
                             x[4], TrsFloats(x[0], n)));
  for (int i = 3; i < 5; i++) PetscCall(on->zero(x[i], B * n * (int64_t)sizeof(float), NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The backward of two layers or of one layer. After cross_backward and before cross_input, the
  contents of dx0 depend on the backend. Odd calls use memory that is aligned to only 4 bytes.
*/
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
          ops->sample_gemm(NULL, B,
                           &(TrsMatrixProduct){s % 3 == 1, s % 3 == 2, m, n, k, 1.0F,
                                               TrsFloats(x[0], m * k + 1), TrsFloats(x[1], n * k), 0.0F,
                                               TrsFloats(x[2], m * n + 2)}));
  }
}

static PetscErrorCode layer_norm(const TrsComputeOps *ops, int64_t B, int64_t n, PetscBool swish,
                                 PetscBool back, float *const *x)
{
  const TrsLayerNorm norm = {x[1], x[2], 1e-5F, swish, x[3], x[5], x[6]};

  PetscFunctionBegin;
  if (!back) PetscCall(ops->layer_norm_forward(NULL, B, n, &norm, x[0], n + 1, x[4], n + 2));
  if (back) PetscCall(ops->layer_norm_backward(NULL, B, n, &norm, x[0], n + 1, x[4], n + 2));
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

static void test_layers(void **state)
{
  static const int64_t batches[] = {0, 1, 70, 130}, widths[] = {8, 1, 45, 140};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 4; s++) {
    const int64_t B = batches[s], n = widths[s];
    Arguments drop = {0};

    for (int i = 0; i < 6; i++) { /* memory aligned for one number, and for four */
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

/* x has the experts, their gradients, the gate, and the result or its gradient. */
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

/* skew is the distance of all arrays from an aligned address, in floats. */
static void check_codec(const TrsCodec *codec, int64_t n, float scale, int skew)
{
  Arguments a = {0};

  add(&a, n + skew);
  add(&a, cpu->codec_bytes(codec, n) / 4 + 1 + skew);
  add(&a, n + skew);
  /* numbers of all magnitudes, zeros of both signs, and a constant row */
  for (int64_t i = 0; i < n; i++) {
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

/* Round, clamp and multiply floats. The results agree bit for bit. */
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
    TWINS(a, 0,
          ops->join_forward(NULL, 20, 35, (PetscBool)product, TrsFloats(x[0], 37), TrsFloats(x[1], 36),
                            TrsFloats(x[2], 36)));
    for (int i = 0; i < 2; i++) add(&c, 20 * 37);
    TWINS(c, 0,
          ops->join_forward(NULL, 20, 35, (PetscBool)product, TrsFloats(x[0], 37), TrsFloats(x[1], 35),
                            TrsFloats(x[0], 37)));
    for (int i = 0; i < 3; i++) add(&b, 20 * 37);
    TWINS(b, 0, ops->join_backward(NULL, 20, 35, (PetscBool)product, x[0], 36, x[1], x[2], 37));
  }
}

/*
  The GPU has every kernel, except one for which updates have a replacement. An empty entry would
  end a run midway.
*/
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

TRS_TEST_MAIN(cmocka_unit_test(test_find), cmocka_unit_test(test_dot), cmocka_unit_test(test_fm),
              cmocka_unit_test(test_cross), cmocka_unit_test(test_vector_cross),
              cmocka_unit_test(test_sample_gemm), cmocka_unit_test(test_layers),
              cmocka_unit_test(test_mixture), cmocka_unit_test(test_codecs), cmocka_unit_test(test_rounding),
              cmocka_unit_test(test_joins), cmocka_unit_test(test_all_slots))
