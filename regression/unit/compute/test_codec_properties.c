/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the number formats of exchanges and of quantised tables. Every code agrees with the format's
  definition, rounding is to nearest with ties to even, and errors are bounded. All instruction sets
  and numbers of threads give the same bytes. No byte after the end of a table is read.
*/
#include "compute/compute_ops.h"
#include "core/random/random.h"
#include "dequantise.h"
#include "trs_test.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_DIM = 130, ROWS = 9, BATCH = 7 };

static const TrsComputeOps *ops;
static const char *const isas[] = {"portable", "avx2", "avx512"};

static void *memory(int64_t n, size_t size)
{
  void *p = calloc((size_t)n + 1, size);

  assert_non_null(p);
  return p;
}

static float *uniforms(int64_t n, uint64_t seed, float size)
{
  float *x = memory(n, sizeof(*x));

  TrsRandomUniformFill(seed, TRS_RANDOM_TEST, 1, 0, n, -size, size, x);
  return x;
}

static void use_isa(int i)
{
  TrsComputeSetIsa(isas[i]);
}

/*
  The value of a code with 1 sign bit, e exponent bits and m mantissa bits. Exponent 0 is for
  denormals. No exponent is reserved for infinity.
*/
static double value_of(int code, int e, int m, int bias)
{
  const int exponent = code >> m & ((1 << e) - 1), mantissa = code & ((1 << m) - 1);
  const double magnitude = exponent == 0 ? ldexp(mantissa, 1 - bias - m)
                                         : ldexp((1 << m) + mantissa, exponent - bias - m);

  return code >> (e + m) & 1 ? -magnitude : magnitude;
}

/*
  The code in 0 .. last whose value is nearest to x > 0. The values of the codes ascend. In a tie
  the even code is nearest. If x is larger than all values, the last code is nearest.
*/
static int nearest_code(double x, int e, int m, int bias, int last)
{
  int code = 0;

  while (code < last && value_of(code + 1, e, m, bias) <= x) code++;
  if (code < last) {
    const double below = x - value_of(code, e, m, bias), above = value_of(code + 1, e, m, bias) - x;
    if (above < below || (above == below && code % 2 == 1)) code++;
  }
  return code;
}

/* --- 16 bits --- */

static const struct {
  TrsCodecKind kind;
  TrsDType dtype;
  int e, m, bias, infinity;
} half_formats[] = {{TRS_CODEC_FP16, TRS_FP16, 5, 10, 15, 0x7c00},
                    {TRS_CODEC_BF16, TRS_BF16, 8, 7, 127, 0x7f80}};

/*
  All finite codes widen to their values, and these values narrow to the same codes. Ties round to
  even, and large values are clamped.
*/
static void test_half_codes(void **state)
{
  (void)state;
  for (int i = 0; i < 3; i++)
    for (int h = 0; h < 2; h++) {
      const int infinity = half_formats[h].infinity, e = half_formats[h].e, m = half_formats[h].m;
      const TrsCodec codec = {.kind = half_formats[h].kind, .loss_scale = 1.0f};
      uint16_t *code = memory(65536, sizeof(*code)), *back = memory(65536, sizeof(*back));
      float *x = memory(65536, sizeof(*x));

      use_isa(i);
      for (int c = 0; c < 65536; c++) code[c] = (uint16_t)((c & 0x7fff) < infinity ? c : 0);
      assert_petsc_ok(ops->decode(NULL, &codec, 65536, code, x));
      for (int c = 0; c < 65536; c++)
        assert_true((double)x[c] == value_of(code[c], e, m, half_formats[h].bias));
      assert_petsc_ok(ops->encode(NULL, &codec, 65536, x, back));
      assert_memory_equal(code, back, 65536 * sizeof(*code));
      assert_petsc_ok(ops->convert(NULL, 65536, TRS_FP32, x, half_formats[h].dtype, back));
      assert_memory_equal(code, back, 65536 * sizeof(*code));
      for (int c = 0; c + 1 < infinity;
           /*
             the midpoint of two adjacent values; it is exact in float32 except for the smallest
             bf16 value
           */
           c++)
        x[c] = (float)(0.5 * (value_of(c, e, m, half_formats[h].bias) +
                              value_of(c + 1, e, m, half_formats[h].bias)));
      assert_petsc_ok(ops->encode(NULL, &codec, infinity - 1, x, back));
      for (int c = 0; c + 1 < infinity; c++) assert_int_equal(back[c], c + c % 2);
      x[0] = 3e38f;
      x[1] = -3.4028235e38f;
      x[2] = INFINITY;
      assert_petsc_ok(ops->encode(NULL, &codec, 3, x, back));
      assert_int_equal(back[1], infinity - 1 + 0x8000);
      assert_int_equal(back[2], infinity - 1);
      if (h == 0) assert_int_equal(back[0], infinity - 1);
      free(code);
      free(back);
      free(x);
    }
}

/* A loss scale that is a power of two changes no digit of a normal number. */
static void test_loss_scale(void **state)
{
  enum { N = 77 };
  const TrsCodec codec = {.kind = TRS_CODEC_FP16, .loss_scale = 1024.0f};
  float *x = uniforms(N, 3, 0.5f), *y = memory(N, sizeof(*y));
  uint16_t code[N];

  (void)state;
  for (int i = 0; i < 3; i++) {
    use_isa(i);
    assert_petsc_ok(ops->encode(NULL, &codec, N, x, code));
    assert_petsc_ok(ops->decode(NULL, &codec, N, code, y));
    for (int k = 0; k < N; k++) assert_close(y[k], x[k], 0x1p-25, 0x1p-11);
  }
  free(x);
  free(y);
}

/*
  Decode all codes from 0 to the largest finite number. Each result must be the code's value,
  divided by the scale in float, and then rounded to the value of the nearest code.
*/
static void check_quotients(int h, float scale)
{
  const int e = half_formats[h].e, m = half_formats[h].m, bias = half_formats[h].bias;
  const int infinity = half_formats[h].infinity;
  const TrsCodec codec = {.kind = half_formats[h].kind, .loss_scale = scale};
  uint16_t *code = memory(infinity, sizeof(*code));
  float *y = memory(infinity, sizeof(*y));

  for (int c = 0; c < infinity; c++) code[c] = (uint16_t)c;
  assert_petsc_ok(ops->decode(NULL, &codec, infinity, code, y));
  for (int c = 0, at = 0; c < infinity; c++) {
    const double quotient = (double)((float)value_of(c, e, m, bias) / scale);
    int nearest = infinity;

    /* quotients ascend, so the search continues from the last code */
    while (at < infinity && value_of(at + 1, e, m, bias) <= quotient) at++;
    if (at < infinity) {
      const double below = quotient - value_of(at, e, m, bias),
                   above = value_of(at + 1, e, m, bias) - quotient;

      nearest = at + (above < below || (above == below && at % 2 == 1));
    }
    assert_true(nearest == infinity ? isinf(y[c]) : (double)y[c] == value_of(nearest, e, m, bias));
  }
  free(code);
  free(y);
}

/*
  The quotient is rounded to 16 bits, because TorchRec divides the 16-bit tensor
  (fbgemm_gpu.quantize_comm.QuantizedCommCodec.decode). By hand: 3 * 2^-24 over 2 is 2 * 2^-24 in
  fp16, not 1.5 * 2^-24.
*/
static void test_quotient_is_rounded(void **state)
{
  const TrsCodec half = {.kind = TRS_CODEC_FP16, .loss_scale = 2.0f};
  const uint16_t three = 3;
  float y;

  (void)state;
  for (int i = 0; i < 3; i++) {
    use_isa(i);
    assert_petsc_ok(ops->decode(NULL, &half, 1, &three, &y));
    assert_true(y == 0x1p-23f);
    for (int h = 0; h < 2; h++) {
      check_quotients(h, 1024.0f);
      check_quotients(h, 1000.0f);
      check_quotients(h, 0.75f); /* the largest quotients become infinite */
    }
  }
}

/* --- fp8, int8 --- */

/*
  Plain fp8 1-4-3: test every code, and random values of all magnitudes, including denormals and
  values that saturate.
*/
static void test_fp8_plain(void **state)
{
  enum { N = 20000, LARGEST = 0x77 }; /* 0.9375 is 1.111b * 2^-1, so the exponent is 14 */
  const TrsCodec codec = {.kind = TRS_CODEC_FP8};
  uint8_t all_codes[256], *code = memory(N, 1);
  float value[256], *x = uniforms(N, 4, 1.2f);

  (void)state;
  assert_true(value_of(LARGEST, 4, 3, 15) == 0.9375);
  for (int c = 0; c < 256; c++) all_codes[c] = (uint8_t)c;
  for (int k = 0; k < N; k++) x[k] = ldexpf(x[k], -(k % 22));
  for (int i = 0; i < 3; i++) {
    use_isa(i);
    assert_petsc_ok(ops->decode(NULL, &codec, 256, all_codes, value));
    for (int c = 0; c < 256; c++) assert_true((double)value[c] == value_of(c, 4, 3, 15));
    assert_petsc_ok(ops->encode(NULL, &codec, N, x, code));
    for (int k = 0; k < N; k++)
      assert_int_equal(code[k],
                       nearest_code(fabs((double)x[k]), 4, 3, 15, LARGEST) | (x[k] < 0.0f ? 0x80 : 0));
  }
  free(code);
  free(x);
}

/*
  The error of an fp8 value is at most half a unit of its last mantissa bit (2 or 3 bits). The error
  of an int8 value is at most half a step of its row. Rows of equal numbers are exact.
*/
static void check_error(const TrsCodec *codec, int64_t n, const float *x, const float *y)
{
  const int row = codec->row_dim;

  for (int64_t r = 0; r < n; r += row) {
    float low = x[r], high = x[r];
    for (int64_t i = r; i < r + row; i++) {
      low = fminf(low, x[i]);
      high = fmaxf(high, x[i]);
    }
    for (int64_t i = r; i < r + row; i++) {
      const double largest = fmax(fabs((double)low), fabs((double)high));
      if (codec->kind == TRS_CODEC_INT8)
        assert_close(y[i], x[i], 0.5001 * ((double)high - (double)low) / 255.0 + 1e-6 * largest, 0.0);
      else
        assert_close(y[i], x[i], 2e-5 * largest, codec->backward ? 0x1p-3 : 0x1p-4);
    }
  }
}

/*
  For row lengths from 1 to 70, every instruction set gives equal bytes and small errors, and writes
  no byte after the end.
*/
static void test_rows(void **state)
{
  (void)state;
  for (int kind = 0; kind < 3; kind++)
    for (int row = 1; row <= 70; row++) {
      const TrsCodec codec = {
          .kind = kind == 2 ? TRS_CODEC_INT8 : TRS_CODEC_FP8, .row_dim = row, .backward = kind == 1};
      const int64_t n = 5 * row, n_bytes = ops->codec_bytes(&codec, n);
      float *x = uniforms(n, 5 + (uint64_t)row, 3.0f), *y = memory(n, sizeof(*y));
      uint8_t *bytes[3];

      for (int k = 0; k < row; k++) x[k] = 0.0f;
      for (int k = row; k < 2 * row; k++) x[k] = 0.375f;
      for (int i = 0; i < 3; i++) {
        use_isa(i);
        bytes[i] = memory(n_bytes, 1);
        bytes[i][n_bytes] = 0xa5;
        assert_petsc_ok(ops->encode(NULL, &codec, n, x, bytes[i]));
        assert_int_equal(bytes[i][n_bytes], 0xa5);
        assert_memory_equal(bytes[i], bytes[0], (size_t)n_bytes);
        assert_petsc_ok(ops->decode(NULL, &codec, n, bytes[i], y));
        check_error(&codec, n, x, y);
        for (int k = 0; k < row; k++) assert_true(y[k] == 0.0f);
      }
      for (int i = 0; i < 3; i++) free(bytes[i]);
      free(x);
      free(y);
    }
}

/* With large and odd sizes, 1 to 4 threads give the same bits. */
static void test_threads(void **state)
{
  static const TrsCodec codecs[] = {{.kind = TRS_CODEC_FP16, .loss_scale = 2.0f},
                                    {.kind = TRS_CODEC_BF16, .loss_scale = 1.0f},
                                    {.kind = TRS_CODEC_FP8},
                                    {.kind = TRS_CODEC_FP8, .row_dim = 13},
                                    {.kind = TRS_CODEC_INT8, .row_dim = 32}};
  const int64_t n = 13 * 32 * 313;
  float *x = uniforms(n, 6, 2.0f), *y = memory(n, sizeof(*y)), *z = memory(n, sizeof(*z));

  (void)state;
  TrsComputeSetIsa(NULL);
  for (size_t c = 0; c < sizeof(codecs) / sizeof(codecs[0]); c++) {
    const int64_t n_bytes = ops->codec_bytes(&codecs[c], n);
    uint8_t *a = memory(n_bytes, 1), *b = memory(n_bytes, 1);
    assert_petsc_ok(ops->encode(NULL, &codecs[c], n, x, a));
    assert_petsc_ok(ops->decode(NULL, &codecs[c], n, a, y));
    for (int threads = 2; threads <= 4; threads++) {
      omp_set_num_threads(threads);
      assert_petsc_ok(ops->encode(NULL, &codecs[c], n, x, b));
      assert_petsc_ok(ops->decode(NULL, &codecs[c], n, b, z));
      omp_set_num_threads(1);
      assert_memory_equal(a, b, (size_t)n_bytes);
      assert_memory_equal(y, z, (size_t)n * sizeof(*y));
    }
    free(a);
    free(b);
  }
  free(x);
  free(y);
  free(z);
}

/* --- quantised tables --- */

/* n bytes directly before a page that cannot be read. They are valid until the next call. */
static uint8_t *guarded(int64_t n)
{
  static uint8_t *map = NULL;
  static size_t length = 0;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);

  if (map) assert_int_equal(munmap(map, length), 0);
  length = ((size_t)n + page - 1) / page * page + page;
  map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(map != MAP_FAILED);
  assert_int_equal(mprotect(map + length - page, page, PROT_NONE), 0);
  return map + length - page - n;
}

/*
  The error is at most half a step of the row, plus the fp16 rounding of the row's scale and bias.
*/
static void check_rows(TrsDType dtype, int dim, const float *x, const float *y)
{
  const double levels = (1 << TrsDTypeBits(dtype)) - 1;

  for (int r = 0; r < ROWS; r++) {
    double low = INFINITY, high = -INFINITY;
    for (int d = 0; d < dim; d++) {
      low = fmin(low, (double)x[r * dim + d]);
      high = fmax(high, (double)x[r * dim + d]);
    }
    for (int d = 0; d < dim; d++)
      assert_close(y[r * dim + d], x[r * dim + d],
                   0.5 * (high - low) / levels + 0x1p-10 * (high - low) + 0x1p-10 * fabs(low), 0.0);
  }
}

typedef struct {
  TrsTbeTable table;
  TrsTbeInput input;
  int64_t offsets[BATCH + 1], values[64];
  float weights[64];
  int mean;
} lookup;

/* Bags of 0 to 6 ids. Some ids are pruned or not rows of the table. */
static void make_lookup(TrsDType dtype, int dim, void *rows, lookup *look)
{
  int64_t n = 0;

  *look = (lookup){.table = {.weight = rows,
                             .rows = ROWS,
                             .stride = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim),
                             .dim = dim,
                             .dtype = dtype},
                   .mean = dim & 1};
  for (int b = 0; b < BATCH; b++, look->offsets[b] = n)
    for (int i = 0; i < b; i++, n++) {
      look->values[n] = n % 6 == 5 ? -1 : n % 11 == 10 ? ROWS : (n * 5) % ROWS;
      look->weights[n] = 0.25f * (float)(n % 7 - 3);
    }
  look->input = (TrsTbeInput){.batch = BATCH,
                              .offsets = look->offsets,
                              .values = look->values,
                              .weights = dim & 2 ? look->weights : NULL,
                              .n_values = n};
}

/* The lookup equals pooling of the dequantised rows. */
static void check_lookup(const lookup *look, const float *rows, const float *out)
{
  const int dim = look->table.dim;

  for (int b = 0; b < BATCH; b++)
    for (int d = 0; d < dim; d++) {
      const int64_t begin = look->offsets[b], end = look->offsets[b + 1];
      double sum = 0.0;
      for (int64_t i = begin; i < end; i++)
        if (look->values[i] >= 0 && look->values[i] < ROWS)
          sum += (look->input.weights ? (double)look->weights[i] : 1.0) *
                 (double)rows[look->values[i] * dim + d];
      assert_close(out[b * dim + d], look->mean && end > begin ? sum / (double)(end - begin) : sum, 2e-6,
                   1e-6);
    }
}

static void check_table(TrsDType dtype, int dim)
{
  const int64_t n_bytes = ROWS * TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim);
  float *x = uniforms((int64_t)ROWS * dim, 8, 1.0f), *y = memory((int64_t)ROWS * dim, sizeof(*y)),
        *out[2] = {memory((int64_t)BATCH * dim, sizeof(float)), memory((int64_t)BATCH * dim, sizeof(float))};
  uint8_t *rows = guarded(n_bytes), *portable = memory(n_bytes, 1);
  TrsWorkspace workspace;
  lookup look;

  make_lookup(dtype, dim, rows, &look);
  assert_petsc_ok(ops->workspace_create(&workspace));
  for (int i = 0; i < 3; i++) {
    const TrsTbeFeature feature = {.mean = look.mean};
    const TrsTbe tbe = {.n_tables = 1, .n_features = 1, .table = &look.table, .feature = &feature};
    use_isa(i);
    assert_petsc_ok(TrsQuantiseRows(dtype, TRS_ROWS_TBE, ROWS, dim, x, dim, rows));
    if (i == 0) memcpy(portable, rows, (size_t)n_bytes);
    assert_memory_equal(rows, portable, (size_t)n_bytes);
    dequantise_rows(dtype, TRS_ROWS_TBE, ROWS, dim, rows, y, dim);
    check_rows(dtype, dim, x, y);
    assert_petsc_ok(ops->tbe_forward(NULL, workspace, &tbe, &look.input, TrsFloats(out[i > 0], dim)));
    check_lookup(&look, y, out[i > 0]);
    if (i > 0) assert_memory_equal(out[0], out[1], (size_t)(BATCH * dim) * sizeof(float));
  }
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free(x);
  free(y);
  free(out[0]);
  free(out[1]);
  free(portable);
}

static void test_quantised_tables(void **state)
{
  static const TrsDType dtypes[] = {TRS_INT8, TRS_INT4, TRS_INT2};

  (void)state;
  for (int t = 0; t < 3; t++)
    for (int dim = 1; dim <= MAX_DIM; dim++) check_table(dtypes[t], dim);
}

static int set_up(void **state)
{
  (void)state;
  return TrsComputeFind("cpu", &ops);
}

TRS_TEST_MAIN(cmocka_unit_test_setup(test_half_codes, set_up),
              cmocka_unit_test_setup(test_loss_scale, set_up),
              cmocka_unit_test_setup(test_quotient_is_rounded, set_up),
              cmocka_unit_test_setup(test_fp8_plain, set_up), cmocka_unit_test_setup(test_rows, set_up),
              cmocka_unit_test_setup(test_threads, set_up),
              cmocka_unit_test_setup(test_quantised_tables, set_up))
