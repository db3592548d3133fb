/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The common part of codec_kernels_<isa>.c. These files first define VECTOR, Vec, Words, minimum(),
  maximum(), least_lane(), multiply_add(), widen_bytes(), narrow_bytes(), widen_fp16(),
  narrow_fp16() and scale_and_bias(). This header defines CODEC_KERNELS. It has no include guard,
  because each file includes it once.

  The compiler must not fuse multiplications and additions, so that all files have the same results.
  q * scale + bias is fused explicitly, as in FBGEMM.
*/
#include "compute/half.h"
#include "cpu/fetch_ahead.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define MAX_FP16 65504.0f
#define MAX_BF16 0x1.fep127f

typedef float TrsVecInMemory __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
typedef int32_t TrsInts __attribute__((vector_size(4 * VECTOR)));
typedef uint16_t TrsShorts __attribute__((vector_size(2 * VECTOR)));

INLINE Vec load_vec(const float *p)
{
  return *(const TrsVecInMemory *)p;
}

INLINE void store_vec(float *p, Vec v)
{
  *(TrsVecInMemory *)p = v;
}

INLINE Vec all(float x)
{
  return x - (Vec){0.0f};
}

/* --- 16 bits --- */

INLINE void narrow_bf16(uint16_t *p, Vec v)
{
  const Words bits = (Words)v, magnitude = bits & 0x7fffffffu;
  const Words rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const Words is_nan = (Words)(magnitude > 0x7f800000u);
  const TrsShorts narrow = __builtin_convertvector((rounded & ~is_nan) | ((bits >> 16 | 0x40u) & is_nan),
                                                   TrsShorts);

  memcpy(p, &narrow, sizeof(narrow));
}

INLINE Vec widen_bf16(const uint16_t *p)
{
  TrsShorts narrow;

  memcpy(&narrow, p, sizeof(narrow));
  return (Vec)(__builtin_convertvector(narrow, Words) << 16);
}

static void narrow(int fp16, int64_t n, const float *from, uint16_t *to)
{
  int64_t i = 0;

  for (; i + VECTOR <= n; i += VECTOR) {
    if (fp16)
      narrow_fp16(to + i, load_vec(from + i));
    else
      narrow_bf16(to + i, load_vec(from + i));
  }
  for (; i < n; i++) to[i] = fp16 ? TrsFloatToHalf(from[i]) : TrsFloatToBf16(from[i]);
}

static void widen(int fp16, int64_t n, const uint16_t *from, float *to)
{
  int64_t i = 0;

  for (; i + VECTOR <= n; i += VECTOR) store_vec(to + i, fp16 ? widen_fp16(from + i) : widen_bf16(from + i));
  for (; i < n; i++) to[i] = fp16 ? TrsHalfToFloat(from[i]) : TrsBf16ToFloat(from[i]);
}

/* --- fp8 --- */

/* A number format with 1 sign bit, e exponent bits and m mantissa bits. */
typedef struct {
  int mantissa_bits, bias;
  float largest;
} fp8_format;

static const fp8_format fp8_forward = {.mantissa_bits = 3, .bias = 15, .largest = 0.9375f};
static const fp8_format fp8_backward = {.mantissa_bits = 2, .bias = 31, .largest = 0.875f};

static inline float power_of_two(int exponent)
{
  return TrsBitsFloat((uint32_t)(exponent + 127) << 23);
}

/*
  Round to nearest even. Numbers that are too large become the largest number. Numbers below the
  smallest normal number are rounded to multiples of the smallest denormal number.
*/
INLINE void encode_fp8(const fp8_format f, Vec x, uint8_t *to)
{
  const int shift = 23 - f.mantissa_bits;
  const Vec magnitude = minimum(all(f.largest), (Vec)((Words)x & 0x7fffffffu));
  const Words bits = (Words)magnitude, sign = ((Words)x & 0x80000000u) >> 24;
  const Words normal = ((bits + (1u << (shift - 1)) - 1u + (bits >> shift & 1u)) >> shift) -
                       ((uint32_t)(127 - f.bias) << f.mantissa_bits);
  const Words small = (Words)(magnitude * power_of_two(f.bias - 1 + f.mantissa_bits) + 0x1p23f) - 0x4b000000u;
  const Words is_small = (Words)(magnitude < power_of_two(1 - f.bias));
  narrow_bytes(to, (small & is_small) | (normal & ~is_small) | sign);
}

/*
  Make a float from an fp8 number: its bits are shifted into a float, whose exponent is then wrong
  by the difference of the formats' biases. A multiplication corrects the exponent, also of denormal
  numbers.
*/
INLINE Vec decode_fp8(const fp8_format f, const uint8_t *from)
{
  const Words bits = widen_bytes(from);

  return (Vec)((Words)((Vec)((bits & 0x7fu) << (23 - f.mantissa_bits)) * power_of_two(127 - f.bias)) |
               (bits & 0x80u) << 24);
}

INLINE void encode_fp8_values(const fp8_format f, int64_t n, const float *from, float scale, uint8_t *to)
{
  int64_t i = 0;

  for (; i + VECTOR <= n; i += VECTOR) encode_fp8(f, load_vec(from + i) * scale, to + i);
  if (i < n) {
    float rest[VECTOR] = {0.0f};
    uint8_t code[VECTOR];

    memcpy(rest, from + i, (size_t)(n - i) * sizeof(*rest));
    encode_fp8(f, load_vec(rest) * scale, code);
    memcpy(to + i, code, (size_t)(n - i));
  }
}

INLINE void decode_fp8_values(const fp8_format f, int64_t n, const uint8_t *from, float scale, float *to)
{
  int64_t i = 0;

  for (; i + VECTOR <= n; i += VECTOR) store_vec(to + i, decode_fp8(f, from + i) / scale);
  if (i < n) {
    uint8_t code[VECTOR] = {0};
    float rest[VECTOR];

    memcpy(code, from + i, (size_t)(n - i));
    store_vec(rest, decode_fp8(f, code) / scale);
    memcpy(to + i, rest, (size_t)(n - i) * sizeof(*rest));
  }
}

/*
  Find the smallest and the largest of n numbers. Zeros are returned as +0, because the order of -0
  and +0 depends on the instruction set.
*/
INLINE void range_of(int n, const float *x, float *low, float *high)
{
  Vec least = all(x[0]), most = least;
  int i = 0;

  for (; i + VECTOR <= n; i += VECTOR) {
    least = minimum(least, load_vec(x + i));
    most = maximum(most, load_vec(x + i));
  }
  *low = least_lane(least);
  *high = -least_lane(-most);
  for (; i < n; i++) {
    *low = x[i] < *low ? x[i] : *low;
    *high = x[i] > *high ? x[i] : *high;
  }
  *low += 0.0f;
  *high += 0.0f;
}

INLINE float largest_magnitude(int n, const float *x)
{
  Vec most = all(0.0f);
  float largest;
  int i = 0;

  for (; i + VECTOR <= n; i += VECTOR) most = maximum(most, (Vec)((Words)load_vec(x + i) & 0x7fffffffu));
  largest = -least_lane(-most);
  for (; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
  return largest;
}

/*
  Encode n values as a row: the encoded values, zeros up to a multiple of 4 bytes, a float32 scale,
  and 4 bytes of 0.
*/
INLINE void encode_fp8_row(const fp8_format f, int64_t n, const float *from, uint8_t *to)
{
  const int64_t padded = (n + 3) / 4 * 4;
  const float scale = f.largest / (1e-20f + largest_magnitude((int)n, from));

  for (int64_t i = n; i < padded; i++) to[i] = 0;
  memcpy(to + padded, &scale, sizeof(scale));
  memset(to + padded + 4, 0, 4);
  encode_fp8_values(f, n, from, scale, to);
}

INLINE void decode_fp8_row(const fp8_format f, int64_t n, const uint8_t *from, float *to)
{
  float scale;

  memcpy(&scale, from + (n + 3) / 4 * 4, sizeof(scale));
  decode_fp8_values(f, n, from, scale, to);
}

/* --- int8, int4, int2 --- */

/* Round 0 <= x < 2^22 to nearest even, by adding 2^23: floats of this size have a distance of 1. */
INLINE Words round_words(Vec x)
{
  return (Words)(x + 0x1p23f) - 0x4b000000u;
}

/* Write n values as bytes q = rint((x - bias) * inverse), clamped to [0, levels]. */
INLINE void quantise_values(int64_t n, const float *from, float bias, float inverse, float levels,
                            uint8_t *to)
{
  int64_t i = 0;

  for (; i + VECTOR <= n; i += VECTOR) {
    const Vec x = (load_vec(from + i) - bias) * inverse;

    narrow_bytes(to + i, round_words(minimum(maximum(x, all(0.0f)), all(levels))));
  }
  if (i < n) {
    float rest[VECTOR] = {0.0f};
    uint8_t q[VECTOR];

    memcpy(rest, from + i, (size_t)(n - i) * sizeof(*rest));
    narrow_bytes(q, round_words(minimum(maximum((load_vec(rest) - bias) * inverse, all(0.0f)), all(levels))));
    memcpy(to + i, q, (size_t)(n - i));
  }
}

/*
  Encode n values as a row: n bytes, a float32 scale and a float32 bias. If all values are equal,
  the scale is 0.
*/
INLINE void encode_int8_row(int64_t n, const float *from, uint8_t *to)
{
  float low, high, parameters[2];

  range_of((int)n, from, &low, &high);
  parameters[0] = (high - low) / 255.0f;
  parameters[1] = low;
  quantise_values(n, from, low, 255.0f / (high - low + 1e-8f), 255.0f, to);
  memcpy(to + n, parameters, sizeof(parameters));
}

INLINE Vec load_bytes(const uint8_t *p)
{
  return __builtin_convertvector((TrsInts)widen_bytes(p), Vec);
}

INLINE void decode_int8_row(int64_t n, const uint8_t *from, float *to)
{
  float parameters[2];
  Vec scale, bias;
  int64_t i = 0;

  memcpy(parameters, from + n, sizeof(parameters));
  scale = all(parameters[0]);
  bias = all(parameters[1]);
  for (; i + VECTOR <= n; i += VECTOR) store_vec(to + i, multiply_add(load_bytes(from + i), scale, bias));
  for (; i < n; i++) to[i] = fmaf((float)from[i], parameters[0], parameters[1]);
}

INLINE uint32_t packed_value(const int bits, const uint8_t *packed, int64_t i)
{
  return (uint32_t)packed[i * bits / 8] >> (i * bits % 8) & ((1u << bits) - 1u);
}

#if VECTOR == 16
  #define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif VECTOR == 8
  #define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#else
  #define LANE_NUMBERS 0, 1, 2, 3
#endif

/* Load the packed values [i, i + VECTOR). Each lane shifts the word in which its value is. */
INLINE Vec load_packed(const int bits, const uint8_t *packed, int64_t i)
{
  const Words lane = {LANE_NUMBERS}, in_second = (Words)(lane >= (uint32_t)(32 / bits));
  uint32_t word[2] = {0};
  Words spread;

  if (bits == 8) return load_bytes(packed + i);
  memcpy(word, packed + i * bits / 8, VECTOR * (size_t)bits / 8);
  spread = word[0] - (Words){0};
  if (VECTOR * bits > 32) spread = (spread & ~in_second) | (word[1] & in_second);
  return __builtin_convertvector((TrsInts)(spread >> (lane * (uint32_t)bits & 31u) & ((1u << bits) - 1u)),
                                 Vec);
}

/*
  Compute the fp16 scale and bias of a row. If the computed scale cannot be used, the scale is 1.
*/
static void half_parameters(int bits, int dim, const float *from, uint16_t parameters[2])
{
  const float levels = (float)((1 << bits) - 1);
  float low, high, scale;

  range_of(dim, from, &low, &high);
  parameters[1] = TrsFloatToHalf(low);
  parameters[0] = TrsFloatToHalf((high - TrsHalfToFloat(parameters[1])) / levels);
  scale = TrsHalfToFloat(parameters[0]);
  if (high - TrsHalfToFloat(parameters[1]) == 0.0f || scale == 0.0f || 1.0f / scale > 0x1.fffffep127f)
    parameters[0] = TrsFloatToHalf(1.0f);
}

#define CHUNK 64

INLINE void quantise_row_bits(const int bits, TrsRowLayout layout, int dim, const float *from, uint8_t *to)
{
  const int value_bytes = (dim * bits + 7) / 8;
  uint8_t *values = layout == TRS_ROWS_TBE ? to + 4 : to, chunk[CHUNK];
  uint16_t parameters[2];
  float scale, bias;

  half_parameters(bits, dim, from, parameters);
  memcpy(layout == TRS_ROWS_TBE ? to : to + value_bytes, parameters, sizeof(parameters));
  scale = TrsHalfToFloat(parameters[0]);
  bias = TrsHalfToFloat(parameters[1]);
  for (int d = 0; d < dim; d += CHUNK) {
    const int64_t n = dim - d < CHUNK ? dim - d : CHUNK, n_bytes = (n * bits + 7) / 8;
    uint8_t *packed = values + d * bits / 8;

    memset(chunk, 0, sizeof(chunk));
    quantise_values(n, from + d, bias, 1.0f / scale, (float)((1 << bits) - 1), chunk);
    for (int64_t i = 0; i < n_bytes; i++) {
      if (bits == 8)
        packed[i] = chunk[i];
      else if (bits == 4)
        packed[i] = (uint8_t)(chunk[2 * i] | chunk[2 * i + 1] << 4);
      else
        packed[i] = (uint8_t)(chunk[4 * i] | chunk[4 * i + 1] << 2 | chunk[4 * i + 2] << 4 |
                              chunk[4 * i + 3] << 6);
    }
  }
}

static void quantise_row(TrsDType dtype, TrsRowLayout layout, int dim, const float *from, uint8_t *to)
{
  if (dtype == TRS_INT8 && layout == TRS_ROWS_FUSED)
    encode_int8_row(dim, from, to);
  else if (dtype == TRS_INT8)
    quantise_row_bits(8, layout, dim, from, to);
  else if (dtype == TRS_INT4)
    quantise_row_bits(4, layout, dim, from, to);
  else
    quantise_row_bits(2, layout, dim, from, to);
}

static void dequantise_row(TrsDType dtype, TrsRowLayout layout, int dim, const uint8_t *from, float *to)
{
  const int bits = TrsDTypeBits(dtype), value_bytes = (dim * bits + 7) / 8;
  const uint8_t *values = layout == TRS_ROWS_TBE ? from + 4 : from;
  float scale, bias;

  if (dtype == TRS_INT8 && layout == TRS_ROWS_FUSED) {
    decode_int8_row(dim, from, to);
    return;
  }
  scale_and_bias(layout == TRS_ROWS_TBE ? from : from + value_bytes, &scale, &bias);
  for (int d = 0; d < dim; d++) to[d] = fmaf((float)(int32_t)packed_value(bits, values, d), scale, bias);
}

/* --- exchanges --- */

static void encode_16(const TrsCodec *codec, int64_t n, const float *from, uint16_t *to)
{
  const int fp16 = codec->kind == TRS_CODEC_FP16;
  const Vec limit = all(fp16 ? MAX_FP16 : MAX_BF16);

  for (int64_t i = 0; i < n; i += VECTOR) {
    const size_t here = n - i < VECTOR ? (size_t)(n - i) : VECTOR;
    float rest[VECTOR] = {0.0f};
    uint16_t code[VECTOR];
    Vec x;

    if (here < VECTOR) memcpy(rest, from + i, here * sizeof(*rest));
    x = load_vec(here < VECTOR ? rest : from + i) * codec->loss_scale;
    x = maximum(-limit, minimum(limit, x)); /* a NaN stays a NaN */
    if (fp16)
      narrow_fp16(code, x);
    else
      narrow_bf16(code, x);
    if (here < VECTOR)
      memcpy(to + i, code, here * sizeof(*code));
    else
      memcpy(to + i, code, sizeof(code));
  }
}

/*
  Decode 16-bit values. The quotient by the loss scale is rounded to 16 bits before it is converted
  to float, because TorchRec divides the 16-bit tensor.

  Source: fbgemm_gpu.quantize_comm.QuantizedCommCodec.decode
*/
static void decode_16(const TrsCodec *codec, int64_t n, const uint16_t *from, float *to)
{
  const int fp16 = codec->kind == TRS_CODEC_FP16;

  widen(fp16, n, from, to);
  if (codec->loss_scale == 1.0f) return;
  for (int64_t i = 0; i < n; i += VECTOR) {
    const int64_t here = n - i < VECTOR ? n - i : VECTOR;
    uint16_t code[VECTOR];

    for (int64_t k = i; k < i + here; k++) to[k] /= codec->loss_scale;
    narrow(fp16, here, to + i, code);
    widen(fp16, here, code, to + i);
  }
}

static void encode(const TrsCodec *codec, int64_t n, const float *from, uint8_t *to)
{
  const int64_t row = codec->row_dim;

  switch (codec->kind) {
  case TRS_CODEC_FP32: memcpy(to, from, (size_t)n * sizeof(*from)); break;
  case TRS_CODEC_FP16:
  case TRS_CODEC_BF16: encode_16(codec, n, from, (uint16_t *)(void *)to); break;
  case TRS_CODEC_FP8:
    if (row <= 0) {
      encode_fp8_values(fp8_forward, n, from, 1.0f, to);
    } else {
      for (int64_t i = 0; i < n; i += row, to += (row + 3) / 4 * 4 + 8) {
        if (codec->backward)
          encode_fp8_row((const fp8_format){2, 31, 0.875f}, row, from + i, to);
        else
          encode_fp8_row((const fp8_format){3, 15, 0.9375f}, row, from + i, to);
      }
    }
    break;
  case TRS_CODEC_INT8:
    for (int64_t i = 0; i < n; i += row, to += row + 8) {
      /* The exchanges use rows of 32 values; with a constant the compiler unrolls all loops. */
      if (row == 32)
        encode_int8_row(32, from + i, to);
      else
        encode_int8_row(row, from + i, to);
    }
    break;
  }
}

static void decode(const TrsCodec *codec, int64_t n, const uint8_t *from, float *to)
{
  const int64_t row = codec->row_dim;

  switch (codec->kind) {
  case TRS_CODEC_FP32: memcpy(to, from, (size_t)n * sizeof(*to)); break;
  case TRS_CODEC_FP16:
  case TRS_CODEC_BF16: decode_16(codec, n, (const uint16_t *)(const void *)from, to); break;
  case TRS_CODEC_FP8:
    if (row <= 0) {
      decode_fp8_values(fp8_forward, n, from, 1.0f, to);
    } else {
      for (int64_t i = 0; i < n; i += row, from += (row + 3) / 4 * 4 + 8)
        decode_fp8_row(codec->backward ? fp8_backward : fp8_forward, row, from, to + i);
    }
    break;
  case TRS_CODEC_INT8:
    for (int64_t i = 0; i < n; i += row, from += row + 8) decode_int8_row(row, from, to + i);
    break;
  }
}

/* --- lookup of quantised tables --- */

typedef struct {
  const TrsTbeTable *table;
  const TrsTbeInput *input;
  int64_t end_value; /* index after the feature's last value */
} TrsLookup;

/*
  Prefetch the row of value i. A row begins 0, 16, 32 or 48 bytes into a cache line. Prefetching the
  address of a bad id does no harm.
*/
INLINE void prefetch_row(const TrsLookup *look, const int bytes, int64_t i)
{
  const int n_lines = (48 + bytes - 1) / 64 + 1; /* largest number of lines that a row touches */
  const char *row;

  if (i >= look->end_value) return;
  row = (const char *)look->table->weight + (uint64_t)look->input->values[i] * (uint64_t)look->table->stride;
  for (int line = 0; line < n_lines; line++)
    __builtin_prefetch(row + (64 * line < bytes ? 64 * line : bytes - 1));
}

/* Prefetch a row that is needed some values after value i. */
INLINE void prefetch_ahead(const TrsLookup *look, const int bytes, int64_t i)
{
  prefetch_row(look, bytes, i + TrsIdsAhead(bytes));
}

/*
  Sum columns [column, column + n * VECTOR) of a bag's rows, and prefetch row_bytes bytes of later
  rows (0: no prefetch).
*/
INLINE void sum_bag(const TrsLookup *look, const int bits, const int weighted, const int row_bytes,
                    const int64_t column, const int n, int64_t begin, int64_t end, float divisor, float *out)
{
  const int64_t *values = look->input->values;
  const uint64_t rows = (uint64_t)look->table->rows;
  const int64_t stride = look->table->stride;
  const uint8_t *table = (const uint8_t *)look->table->weight;
  Vec sum[16];

#pragma GCC unroll 16
  for (int64_t v = 0; v < n; v++) sum[v] = (Vec){0.0f};
  for (int64_t i = begin; i < end; i++) {
    const uint8_t *row;
    float scale, bias;

    if (row_bytes) prefetch_ahead(look, row_bytes, i);
    if ((uint64_t)values[i] >= rows) continue;
    row = table + values[i] * stride;
    scale_and_bias(row, &scale, &bias);
#pragma GCC unroll 16
    for (int64_t v = 0; v < n; v++) {
      const Vec x = multiply_add(load_packed(bits, row + 4, column + v * VECTOR), all(scale), all(bias));

      sum[v] += weighted ? look->input->weights[i] * x : x;
    }
  }
  if (divisor > 1.0f) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < n; v++) sum[v] /= divisor;
  }
#pragma GCC unroll 16
  for (int64_t v = 0; v < n; v++) store_vec(out + column + v * VECTOR, sum[v]);
}

/* Sum the last columns, which are fewer than the lanes of a vector. */
INLINE void sum_bag_rest(const TrsLookup *look, const int bits, int column, int64_t begin, int64_t end,
                         float divisor, float *out)
{
  const int dim = look->table->dim;

  for (int d = column; d < dim; d++) out[d] = 0.0f;
  for (int64_t i = begin; i < end; i++) {
    const int64_t id = look->input->values[i];
    const float w = look->input->weights ? look->input->weights[i] : 1.0f;
    const uint8_t *row;
    float scale, bias;

    if ((uint64_t)id >= (uint64_t)look->table->rows) continue;
    row = (const uint8_t *)look->table->weight + id * look->table->stride;
    scale_and_bias(row, &scale, &bias);
    for (int d = column; d < dim; d++)
      out[d] += w * fmaf((float)(int32_t)packed_value(bits, row + 4, d), scale, bias);
  }
  for (int d = column; d < dim; d++) out[d] /= divisor;
}

/*
  Sum columns in blocks that fit the registers. D is the width if it is a multiple of 16 that is
  known at compile time, and otherwise 0.
*/
INLINE void forward_dim(const int D, const int bits, const int weighted, const TrsLookup *look, int64_t first,
                        int64_t first_bag, int64_t end_bag, int mean, float *out, int64_t out_stride)
{
  const int dim = D ? D : look->table->dim, block = VECTOR >= 8 ? 8 : 4;
  const int64_t last_bag = first + look->input->batch;

  if (first_bag < end_bag)
    for (int64_t i = 0; i < TrsIdsAhead(dim * bits / 8 + 4); i++)
      prefetch_row(look, dim * bits / 8 + 4, look->input->offsets[first_bag] + i);
  for (int64_t b = first_bag; b < end_bag; b++) {
    const int64_t begin = look->input->offsets[b], end = look->input->offsets[b + 1];
    const float divisor = mean && end > begin ? (float)(end - begin) : 1.0f;
    float *to = out + (b - first) * out_stride;
    int column = 0;

    if (b + TRS_BAGS_AHEAD < last_bag)
      for (int64_t at = 0; at < dim; at += 16) __builtin_prefetch(to + TRS_BAGS_AHEAD * out_stride + at);
    if (D && D <= block * VECTOR) {
      sum_bag(look, bits, weighted, D * bits / 8 + 4, 0, D / VECTOR, begin, end, divisor, to);
      continue;
    }
    for (; column + block * VECTOR <= dim; column += block * VECTOR)
      sum_bag(look, bits, weighted, column ? 0 : dim * bits / 8 + 4, column, block, begin, end, divisor, to);
    for (; column + VECTOR <= dim; column += VECTOR)
      sum_bag(look, bits, weighted, column ? 0 : dim * bits / 8 + 4, column, 1, begin, end, divisor, to);
    if (column < dim) sum_bag_rest(look, bits, column, begin, end, divisor, to);
  }
}

INLINE void forward_bits(const int bits, const int weighted, const TrsLookup *look, int64_t first,
                         int64_t begin, int64_t end, int mean, float *out, int64_t out_stride)
{
  switch (look->table->dim) {
  case 32: forward_dim(32, bits, weighted, look, first, begin, end, mean, out, out_stride); break;
  case 64: forward_dim(64, bits, weighted, look, first, begin, end, mean, out, out_stride); break;
  case 128: forward_dim(128, bits, weighted, look, first, begin, end, mean, out, out_stride); break;
  default: forward_dim(0, bits, weighted, look, first, begin, end, mean, out, out_stride); break;
  }
}

static void forward(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                    int64_t end, int mean, float *out, int64_t out_stride)
{
  const TrsLookup look = {table, input, input->offsets[first + input->batch]};

  switch (TrsDTypeBits(table->dtype) + (input->weights ? 1 : 0)) {
  case 9: forward_bits(8, 1, &look, first, begin, end, mean, out, out_stride); break;
  case 8: forward_bits(8, 0, &look, first, begin, end, mean, out, out_stride); break;
  case 5: forward_bits(4, 1, &look, first, begin, end, mean, out, out_stride); break;
  case 4: forward_bits(4, 0, &look, first, begin, end, mean, out, out_stride); break;
  case 3: forward_bits(2, 1, &look, first, begin, end, mean, out, out_stride); break;
  default: forward_bits(2, 0, &look, first, begin, end, mean, out, out_stride); break;
  }
}

INLINE void forward_rows_bits(const int bits, const TrsTbeTable *table, const int64_t *values, int64_t n,
                              float *out, int64_t out_stride)
{
  const TrsTbeInput input = {.values = values, .n_values = n};
  const TrsLookup look = {table, &input, n};
  const int dim = table->dim;

  for (int64_t i = 0; i < n; i++) {
    const uint8_t *row;
    float *to = out + i * out_stride, scale, bias;
    int d = 0;

    prefetch_ahead(&look, dim * bits / 8 + 4, i);
    if ((uint64_t)values[i] >= (uint64_t)table->rows) {
      memset(to, 0, (size_t)dim * sizeof(*to));
      continue;
    }
    row = (const uint8_t *)table->weight + values[i] * table->stride;
    scale_and_bias(row, &scale, &bias);
    for (; d + VECTOR <= dim; d += VECTOR)
      store_vec(to + d, multiply_add(load_packed(bits, row + 4, d), all(scale), all(bias)));
    for (; d < dim; d++) to[d] = fmaf((float)(int32_t)packed_value(bits, row + 4, d), scale, bias);
  }
}

static void forward_rows(const TrsTbeTable *table, const int64_t *values, int64_t n, float *out,
                         int64_t out_stride)
{
  switch (TrsDTypeBits(table->dtype)) {
  case 8: forward_rows_bits(8, table, values, n, out, out_stride); break;
  case 4: forward_rows_bits(4, table, values, n, out, out_stride); break;
  default: forward_rows_bits(2, table, values, n, out, out_stride); break;
  }
}

#define CODEC_KERNELS \
  { \
    .encode = encode, .decode = decode, .narrow = narrow, .widen = widen, .quantise_row = quantise_row, \
    .dequantise_row = dequantise_row, .forward = forward, .forward_rows = forward_rows \
  }
