/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Number formats on the GPU: the bytes of src/cpu/isa/codec_kernels_template.h, bit for bit. All
  kernels are memory-bound: they move n floats on one side and TrsCodecBytesCuda() bytes on the
  other. So a lane handles four values at once and keeps four such loads in flight, or two if it
  must first find a row's scale. A row whose values share a scale is handled by a group of lanes,
  with one lane for every four values. Unaligned data is handled value by value, and a long row by
  one warp.

  The compiler may contract multiplications and additions to fused multiply-adds. This changes no
  result here, because one factor of each such multiplication is a power of two.
*/
#include "compute/half.h"
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"

#include <math.h>

enum { TRS_CODEC_THREADS = 256, TRS_WARP = 32, TRS_IN_FLIGHT = 4, TRS_ROWS_IN_FLIGHT = 2 };
#define MAX_FP16 65504.0f
#define MAX_BF16 0x1.fep127f

PETSC_EXTERN TrsCodecBytesFn TrsCodecBytesCpu;

/* Encoded bytes are the same on all devices. */
int64_t TrsCodecBytesCuda(const TrsCodec *codec, int64_t n)
{
  return TrsCodecBytesCpu(codec, n);
}

/* Number of values encoded together. */
static int64_t row_values(const TrsCodec *codec)
{
  const bool in_rows = codec->kind == TRS_CODEC_INT8 || codec->kind == TRS_CODEC_FP8;

  return in_rows && codec->row_dim > 0 ? codec->row_dim : 1;
}

/* --- formats of single values: Code is the type of an encoded value --- */

/*
  fp16 or bf16. With SCALED, decode() divides by the loss scale and rounds the quotient as the CPU
  does.
*/
template <bool FP16, bool SCALED> struct Sixteen {
  typedef uint16_t Code;
  float limit, scale; /* limit 0 means no limit */

  static __device__ __forceinline__ uint16_t narrow(float x)
  {
    return FP16 ? float_to_half(x) : TrsFloatToBf16(x);
  }

  static __device__ __forceinline__ float widen(uint16_t h)
  {
    const uint32_t bits = h;

    if (!FP16) return TrsBf16ToFloat(h);
    if ((bits & 0x7fffu) > 0x7c00u) /* the instruction would return one fixed NaN */
      return TrsBitsFloat((bits & 0x8000u) << 16 | 0x7f800000u | (bits & 0x3ffu) << 13);
    return half_to_float(h);
  }

  __device__ __forceinline__ uint16_t encode(float x) const
  {
    x *= scale;
    if (limit > 0.0f) x = x > limit ? limit : x < -limit ? -limit : x; /* a NaN stays a NaN */
    return narrow(x);
  }

  __device__ __forceinline__ float decode(uint16_t h) const
  {
    return SCALED ? widen(narrow(widen(h) / scale)) : widen(h);
  }
};

/* --- fp8 --- */

/* A float format with 1 sign bit, e exponent bits and m mantissa bits. */
struct Fp8 {
  typedef uint8_t Code;
  int mantissa_bits, bias;
  float largest;

  __device__ __forceinline__ uint8_t encode(float x) const;
  __device__ __forceinline__ float decode(uint8_t code) const;
};

static Fp8 format_of(const TrsCodec *codec)
{
  const Fp8 forward = {3, 15, 0.9375f}, backward = {2, 31, 0.875f};

  return codec->row_dim > 0 && codec->backward ? backward : forward;
}

static __device__ __forceinline__ float power_of_two(int exponent)
{
  return TrsBitsFloat(static_cast<uint32_t>(exponent + 127) << 23);
}

/*
  Round to the nearest code, ties to even. Larger numbers become the largest code. Below the
  smallest normal number, codes are multiples of the smallest denormal number.
*/
__device__ __forceinline__ uint8_t Fp8::encode(float x) const
{
  const int shift = 23 - mantissa_bits;
  const float absolute = TrsBitsFloat(TrsFloatBits(x) & 0x7fffffffu);
  const float magnitude = largest < absolute ? largest : absolute;
  const uint32_t bits = TrsFloatBits(magnitude), sign = (TrsFloatBits(x) & 0x80000000u) >> 24;
  const uint32_t normal = ((bits + (1u << (shift - 1)) - 1u + (bits >> shift & 1u)) >> shift) -
                          (static_cast<uint32_t>(127 - bias) << mantissa_bits);
  const uint32_t small = TrsFloatBits(magnitude * power_of_two(bias - 1 + mantissa_bits) + 0x1p23f) -
                         0x4b000000u;

  return static_cast<uint8_t>((magnitude < power_of_two(1 - bias) ? small : normal) | sign);
}

/*
  Put the code's exponent and mantissa bits into a float. Its exponent is too small by the
  difference of the two formats' biases. One multiplication corrects this, also for denormals.
*/
__device__ __forceinline__ float Fp8::decode(uint8_t code) const
{
  const uint32_t bits = code;
  const float magnitude = TrsBitsFloat((bits & 0x7fu) << (23 - mantissa_bits)) * power_of_two(127 - bias);

  return TrsBitsFloat(TrsFloatBits(magnitude) | (bits & 0x80u) << 24);
}

/* --- values --- */

/* Store four codes with one instruction. */
static __device__ __forceinline__ void store_codes(uint16_t *to, const uint16_t *code)
{
  __stcg(reinterpret_cast<uint2 *>(to), uint2{code[0] | static_cast<unsigned>(code[1]) << 16,
                                              code[2] | static_cast<unsigned>(code[3]) << 16});
}

static __device__ __forceinline__ void store_codes(uint8_t *to, const uint8_t *code)
{
  __stcg(reinterpret_cast<unsigned *>(to), code[0] | static_cast<unsigned>(code[1]) << 8 |
                                               static_cast<unsigned>(code[2]) << 16 |
                                               static_cast<unsigned>(code[3]) << 24);
}

static __device__ __forceinline__ uint2 load_codes(const uint16_t *from)
{
  return *reinterpret_cast<const uint2 *>(from);
}

static __device__ __forceinline__ unsigned load_codes(const uint8_t *from)
{
  return *reinterpret_cast<const unsigned *>(from);
}

static __device__ __forceinline__ uint16_t code_of(uint2 codes, int j)
{
  return static_cast<uint16_t>((j < 2 ? codes.x : codes.y) >> 16 * (j % 2));
}

static __device__ __forceinline__ uint8_t code_of(unsigned codes, int j)
{
  return static_cast<uint8_t>(codes >> 8 * j);
}

/*
  The kernels handle the first 4 * fours of n values in groups of four. fours is 0 if the data is
  not aligned for this.
*/
template <class Format>
static __global__ void __launch_bounds__(TRS_CODEC_THREADS)
    encode_kernel(Format f, int64_t n, int64_t fours, const float *__restrict__ from,
                  typename Format::Code *__restrict__ to)
{
  const int64_t step = TrsCudaStep();

  for (int64_t i = TrsCudaFirst(); i < fours; i += step * TRS_IN_FLIGHT) {
    float x[TRS_IN_FLIGHT][4] = {};

#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++)
      if (i + u * step < fours) load_floats<4>(from + 4 * (i + u * step), x[u]);
#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++) {
      typename Format::Code code[4];

      if (i + u * step >= fours) break;
      for (int j = 0; j < 4; j++) code[j] = f.encode(x[u][j]);
      store_codes(to + 4 * (i + u * step), code);
    }
  }
  for (int64_t i = 4 * fours + TrsCudaFirst(); i < n; i += step) to[i] = f.encode(from[i]);
}

template <class Format>
static __global__ void __launch_bounds__(TRS_CODEC_THREADS)
    decode_kernel(Format f, int64_t n, int64_t fours, const typename Format::Code *__restrict__ from,
                  float *__restrict__ to)
{
  const int64_t step = TrsCudaStep();

  for (int64_t i = TrsCudaFirst(); i < fours; i += step * TRS_IN_FLIGHT) {
    decltype(load_codes(from)) codes[TRS_IN_FLIGHT] = {};

#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++)
      if (i + u * step < fours) codes[u] = load_codes(from + 4 * (i + u * step));
#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++) {
      float x[4];

      if (i + u * step >= fours) break;
      for (int j = 0; j < 4; j++) x[j] = f.decode(code_of(codes[u], j));
      stream_floats<4>(to + 4 * (i + u * step), x);
    }
  }
  for (int64_t i = 4 * fours + TrsCudaFirst(); i < n; i += step) to[i] = f.decode(from[i]);
}

/* Replace each value by its rounded value. A thread handles COLUMNS columns of a row at a time. */
template <class Format, int COLUMNS>
static __global__ void round_kernel(Format f, int64_t rows, int64_t cols, float *matrix, int64_t stride)
{
  for (int64_t i = TrsCudaFirst(); i < rows * (cols / COLUMNS); i += TrsCudaStep()) {
    float x[COLUMNS], *const place = matrix + i / (cols / COLUMNS) * stride + i % (cols / COLUMNS) * COLUMNS;

    load_floats<COLUMNS>(place, x);
    for (int j = 0; j < COLUMNS; j++) x[j] = f.decode(f.encode(x[j]));
    keep_floats<COLUMNS>(place, x);
  }
}

/*
  --- rows of up to 128 values with a scale, aligned: a group of lanes a row, four values a lane ---
*/

/*
  Find the least value among the group's lanes, with the same bits in all lanes. All lanes of the
  warp must call it. If the set of lanes were known only at run time, nvcc would generate several
  instructions that wait for each other.
*/
static __device__ __forceinline__ float group_least(float x, int lanes)
{
  for (int other = lanes / 2; other > 0; other /= 2) {
    const float y = __shfl_xor_sync(~0u, x, other);
    x = y < x ? y : x;
  }
  return x;
}

/* The parameters that follow a row's codes. */
struct RowScale {
  float scale, bias;
};

/* A row has n bytes, then scale and bias as float32. If all values are equal, the scale is 0. */
struct Int8Row {
  /*
    Find the scale of a row, and the factor for encode(). x [4] has this lane's values; they belong
    to the row only if `mine` is set.
  */
  __device__ __forceinline__ RowScale scale_of(const float *x, bool mine, int lanes, float *factor) const
  {
    const float start = __shfl_sync(~0u, x[0], 0, lanes);
    float low = start, high = start;

    for (int j = 0; j < 4 && mine; j++) {
      low = x[j] < low ? x[j] : low;
      high = x[j] > high ? x[j] : high;
    }
    for (int other = lanes / 2; other > 0; other /= 2) {
      const float lower = __shfl_xor_sync(~0u, low, other), higher = __shfl_xor_sync(~0u, high, other);

      low = lower < low ? lower : low;
      high = higher > high ? higher : high;
    }
    low += 0.0f; /* turns -0 into +0 */
    high += 0.0f;
    *factor = 255.0f / (high - low + 1e-8f);
    return {(high - low) / 255.0f, low};
  }

  __device__ __forceinline__ uint8_t encode(const RowScale &row, float factor, float x) const
  {
    const float q = (x - row.bias) * factor, clamped = q > 0.0f ? (q < 255.0f ? q : 255.0f) : 0.0f;
    /* rounds to the nearest integer, ties to even */
    return static_cast<uint8_t>(TrsFloatBits(clamped + 0x1p23f) - 0x4b000000u);
  }

  __device__ __forceinline__ float decode(const RowScale &row, uint8_t code) const
  {
    return fmaf(static_cast<float>(code), row.scale, row.bias);
  }
};

/* A row has n byte values, zero bytes up to a multiple of 4, a float32 scale, and 4 zero bytes. */
struct Fp8Row {
  Fp8 format;

  __device__ __forceinline__ RowScale scale_of(const float *x, bool mine, int lanes, float *factor) const
  {
    float most = 0.0f;

    for (int j = 0; j < 4 && mine; j++) most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
    *factor = format.largest / (1e-20f - group_least(-most, lanes));
    return {*factor, 0.0f};
  }

  __device__ __forceinline__ uint8_t encode(const RowScale &, float factor, float x) const
  {
    return format.encode(x * factor);
  }

  __device__ __forceinline__ float decode(const RowScale &row, uint8_t code) const
  {
    return format.decode(code) / row.scale;
  }
};

template <class Row>
static __global__ void __launch_bounds__(TRS_CODEC_THREADS)
    encode_rows_kernel(Row f, int64_t rows, int n, int lanes_log2, const float *__restrict__ from,
                       uint8_t *__restrict__ to)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1),
            /* index of the lane's group in the warp */
      group = (static_cast<int>(threadIdx.x) & 31) >> lanes_log2;
  const int64_t step = TrsCudaStep() >> lanes_log2;
  const bool mine = 4 * lane < n;

  /* a warp continues as long as its first group has a row */
  for (int64_t r = TrsCudaFirst() >> lanes_log2; r - group < rows; r += step * TRS_ROWS_IN_FLIGHT) {
    float x[TRS_ROWS_IN_FLIGHT][4] = {};

#pragma unroll
    for (int u = 0; u < TRS_ROWS_IN_FLIGHT; u++)
      if (mine && r + u * step < rows) load_floats<4>(from + (r + u * step) * n + 4 * lane, x[u]);
#pragma unroll
    for (int u = 0; u < TRS_ROWS_IN_FLIGHT; u++) {
      uint8_t *const row = to + (r + u * step) * (n + 8), code[4];
      float factor;

      if (r + u * step - group >= rows) break;
      const RowScale scale = f.scale_of(x[u], mine, lanes, &factor);
      if (r + u * step >= rows) continue;
      for (int j = 0; j < 4; j++) code[j] = f.encode(scale, factor, x[u][j]);
      if (mine) store_codes(row + 4 * lane, code);
      for (int w = lane; w < 2; w += lanes)
        __stcg(reinterpret_cast<float *>(row + n) + w, w == 0 ? scale.scale : scale.bias);
    }
  }
}

template <class Row>
static __global__ void __launch_bounds__(TRS_CODEC_THREADS)
    decode_rows_kernel(Row f, int64_t rows, int n, int lanes_log2, const uint8_t *__restrict__ from,
                       float *__restrict__ to)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t step = TrsCudaStep() >> lanes_log2;

  if (4 * lane >= n) return; /* higher lanes have no values */
  for (int64_t r = TrsCudaFirst() >> lanes_log2; r < rows; r += step * TRS_IN_FLIGHT) {
    unsigned codes[TRS_IN_FLIGHT] = {};
    RowScale scale[TRS_IN_FLIGHT] = {};

#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++) {
      const uint8_t *const row = from + (r + u * step) * (n + 8);

      if (r + u * step >= rows) continue;
      codes[u] = load_codes(row + 4 * lane);
      scale[u].scale = reinterpret_cast<const float *>(row + n)[0];
      scale[u].bias = reinterpret_cast<const float *>(row + n)[1];
    }
#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++) {
      float x[4];

      if (r + u * step >= rows) break;
      for (int j = 0; j < 4; j++) x[j] = f.decode(scale[u], code_of(codes[u], j));
      stream_floats<4>(to + (r + u * step) * n + 4 * lane, x);
    }
  }
}

/* --- other rows with a scale: a warp each --- */

static __device__ __forceinline__ int lane_of()
{
  return static_cast<int>(threadIdx.x % TRS_WARP);
}

static __device__ __forceinline__ float warp_least(float x)
{
  for (int other = TRS_WARP / 2; other > 0; other /= 2) {
    const float y = __shfl_xor_sync(~0u, x, other);
    x = y < x ? y : x;
  }
  return x;
}

/* Store a 4-byte number at any address. */
static __device__ __forceinline__ void store_float(uint8_t *to, float x)
{
  const uint32_t bits = TrsFloatBits(x);
  for (int i = 0; i < 4; i++) to[i] = static_cast<uint8_t>(bits >> 8 * i);
}

static __device__ __forceinline__ float load_float(const uint8_t *from)
{
  uint32_t bits = 0;
  for (int i = 0; i < 4; i++) bits |= static_cast<uint32_t>(from[i]) << 8 * i;
  return TrsBitsFloat(bits);
}

static __global__ void encode_fp8_rows_kernel(Fp8 f, int64_t rows, int64_t n, const float *from, uint8_t *to)
{
  const int64_t padded = (n + 3) / 4 * 4;

  for (int64_t r = TrsCudaFirst() / TRS_WARP; r < rows; r += TrsCudaStep() / TRS_WARP) {
    const float *x = from + r * n;
    uint8_t *row = to + r * (padded + 8);
    float most = 0.0f, scale;

    for (int64_t i = lane_of(); i < n; i += TRS_WARP) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    scale = f.largest / (1e-20f - warp_least(-most));
    for (int64_t i = lane_of(); i < padded; i += TRS_WARP) row[i] = i < n ? f.encode(x[i] * scale) : 0;
    if (lane_of() == 0) {
      store_float(row + padded, scale);
      store_float(row + padded + 4, 0.0f);
    }
  }
}

static __global__ void decode_fp8_rows_kernel(Fp8 f, int64_t rows, int64_t n, const uint8_t *from, float *to)
{
  const int64_t padded = (n + 3) / 4 * 4;

  for (int64_t r = TrsCudaFirst() / TRS_WARP; r < rows; r += TrsCudaStep() / TRS_WARP) {
    const uint8_t *row = from + r * (padded + 8);
    const float scale = load_float(row + padded);

    for (int64_t i = lane_of(); i < n; i += TRS_WARP) to[r * n + i] = f.decode(row[i]) / scale;
  }
}

static __global__ void encode_int8_kernel(int64_t rows, int64_t n, const float *from, uint8_t *to)
{
  for (int64_t r = TrsCudaFirst() / TRS_WARP; r < rows; r += TrsCudaStep() / TRS_WARP) {
    const float *x = from + r * n;
    uint8_t *row = to + r * (n + 8);
    float low = x[0], high = x[0], inverse;

    for (int64_t i = lane_of(); i < n; i += TRS_WARP) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
    }
    low = warp_least(low) + 0.0f; /* + 0.0f turns -0 into +0 */
    high = -warp_least(-high) + 0.0f;
    inverse = 255.0f / (high - low + 1e-8f);
    for (int64_t i = lane_of(); i < n; i += TRS_WARP) {
      const float q = (x[i] - low) * inverse, clamped = q > 0.0f ? (q < 255.0f ? q : 255.0f) : 0.0f;
      /* rounds to the nearest integer, ties to even */
      row[i] = static_cast<uint8_t>(TrsFloatBits(clamped + 0x1p23f) - 0x4b000000u);
    }
    if (lane_of() == 0) {
      store_float(row + n, (high - low) / 255.0f);
      store_float(row + n + 4, low);
    }
  }
}

static __global__ void decode_int8_kernel(int64_t rows, int64_t n, const uint8_t *from, float *to)
{
  for (int64_t r = TrsCudaFirst() / TRS_WARP; r < rows; r += TrsCudaStep() / TRS_WARP) {
    const uint8_t *row = from + r * (n + 8);
    const float scale = load_float(row + n), bias = load_float(row + n + 4);

    for (int64_t i = lane_of(); i < n; i += TRS_WARP)
      to[r * n + i] = fmaf(static_cast<float>(row[i]), scale, bias);
  }
}

/* --- the kernels of the table --- */

/*
  Number of groups of four values that the kernels load and store as a whole. 0 if the memory is not
  aligned.
*/
static int64_t fours_of(int64_t n, const float *floats, const void *codes, size_t code_bytes)
{
  return TrsCudaIsAligned(floats, 0, 16) && TrsCudaIsAligned(codes, 0, static_cast<int>(4 * code_bytes))
             ? n / 4
             : 0;
}

template <class Format>
static PetscErrorCode encode_values(cudaStream_t on, const Format &f, int64_t n, const float *from, void *to)
{
  typedef typename Format::Code Code;
  const int64_t fours = fours_of(n, from, to, sizeof(Code));

  PetscFunctionBegin;
  CU_LAUNCH(encode_kernel<Format>, TrsCudaBlocks(fours > 0 ? fours / TRS_IN_FLIGHT : n, TRS_CODEC_THREADS),
            TRS_CODEC_THREADS, 0, on, f, n, fours, from, static_cast<Code *>(to));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class Format>
static PetscErrorCode decode_values(cudaStream_t on, const Format &f, int64_t n, const void *from, float *to)
{
  typedef typename Format::Code Code;
  const int64_t fours = fours_of(n, to, from, sizeof(Code));

  PetscFunctionBegin;
  CU_LAUNCH(decode_kernel<Format>, TrsCudaBlocks(fours > 0 ? fours / TRS_IN_FLIGHT : n, TRS_CODEC_THREADS),
            TRS_CODEC_THREADS, 0, on, f, n, fours, static_cast<const Code *>(from), to);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Encode to 16 bits. limit 0 means no limit. */
static PetscErrorCode encode_16(cudaStream_t on, bool fp16, float limit, float scale, int64_t n,
                                const float *from, void *to)
{
  PetscFunctionBegin;
  if (fp16)
    PetscCall(encode_values(on, Sixteen<true, false>{limit, scale}, n, from, to));
  else
    PetscCall(encode_values(on, Sixteen<false, false>{limit, scale}, n, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode decode_16(cudaStream_t on, bool fp16, float scale, int64_t n, const void *from,
                                float *to)
{
  PetscFunctionBegin;
  if (fp16 && scale == 1.0f)
    PetscCall(decode_values(on, Sixteen<true, false>{0.0f, scale}, n, from, to));
  else if (fp16)
    PetscCall(decode_values(on, Sixteen<true, true>{0.0f, scale}, n, from, to));
  else if (scale == 1.0f)
    PetscCall(decode_values(on, Sixteen<false, false>{0.0f, scale}, n, from, to));
  else
    PetscCall(decode_values(on, Sixteen<false, true>{0.0f, scale}, n, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if rows of n values are handled by groups of lanes. */
static bool in_groups(int64_t n, const float *floats, const void *codes)
{
  return n % 4 == 0 && n <= 4 * TRS_WARP && TrsCudaIsAligned(floats, 0, 16) && TrsCudaIsAligned(codes, 0, 4);
}

template <class Row>
static PetscErrorCode encode_rows(cudaStream_t on, const Row &f, int64_t rows, int64_t n, const float *from,
                                  uint8_t *to)
{
  const int lanes_log2 = TrsCudaLanesLog2(static_cast<int>(n), 4);

  PetscFunctionBegin;
  CU_LAUNCH(encode_rows_kernel<Row>,
            TrsCudaBlocks((rows << lanes_log2) / TRS_ROWS_IN_FLIGHT, TRS_CODEC_THREADS), TRS_CODEC_THREADS, 0,
            on, f, rows, static_cast<int>(n), lanes_log2, from, to);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class Row>
static PetscErrorCode decode_rows(cudaStream_t on, const Row &f, int64_t rows, int64_t n, const uint8_t *from,
                                  float *to)
{
  const int lanes_log2 = TrsCudaLanesLog2(static_cast<int>(n), 4);

  PetscFunctionBegin;
  CU_LAUNCH(decode_rows_kernel<Row>, TrsCudaBlocks((rows << lanes_log2) / TRS_IN_FLIGHT, TRS_CODEC_THREADS),
            TRS_CODEC_THREADS, 0, on, f, rows, static_cast<int>(n), lanes_log2, from, to);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static dim3 value_blocks(int64_t n)
{
  return TrsCudaBlocks(n, TRS_CODEC_THREADS);
}

static PetscErrorCode check_rows(int64_t n, int64_t row)
{
  PetscFunctionBegin;
  PetscCheck(n % row == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%" PRId64 " values are not whole rows of %" PRId64, n, row);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEncodeCuda(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from, void *to)
{
  const int64_t row = row_values(codec), rows = n / row;
  const bool fp16 = codec->kind == TRS_CODEC_FP16;
  const cudaStream_t on = TrsCudaStream(stream);
  uint8_t *bytes = static_cast<uint8_t *>(to);

  PetscFunctionBegin;
  PetscCall(check_rows(n, row));
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  switch (codec->kind) {
  case TRS_CODEC_FP32:
    TrsCallCUDA(
        cudaMemcpyAsync(to, from, static_cast<size_t>(n) * sizeof(*from), cudaMemcpyDeviceToDevice, on));
    break;
  case TRS_CODEC_FP16:
  case TRS_CODEC_BF16:
    PetscCall(encode_16(on, fp16, fp16 ? MAX_FP16 : MAX_BF16, codec->loss_scale, n, from, to));
    break;
  case TRS_CODEC_FP8:
    if (codec->row_dim <= 0)
      PetscCall(encode_values(on, format_of(codec), n, from, to));
    else if (in_groups(row, from, to))
      PetscCall(encode_rows(on, Fp8Row{format_of(codec)}, rows, row, from, bytes));
    else
      CU_LAUNCH(encode_fp8_rows_kernel, value_blocks(rows * TRS_WARP), TRS_CODEC_THREADS, 0, on,
                format_of(codec), rows, row, from, bytes);
    break;
  case TRS_CODEC_INT8:
    if (in_groups(row, from, to))
      PetscCall(encode_rows(on, Int8Row{}, rows, row, from, bytes));
    else
      CU_LAUNCH(encode_int8_kernel, value_blocks(rows * TRS_WARP), TRS_CODEC_THREADS, 0, on, rows, row, from,
                bytes);
    break;
  }
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDecodeCuda(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from, float *to)
{
  const int64_t row = row_values(codec), rows = n / row;
  const cudaStream_t on = TrsCudaStream(stream);
  const uint8_t *bytes = static_cast<const uint8_t *>(from);

  PetscFunctionBegin;
  PetscCall(check_rows(n, row));
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  switch (codec->kind) {
  case TRS_CODEC_FP32:
    TrsCallCUDA(
        cudaMemcpyAsync(to, from, static_cast<size_t>(n) * sizeof(*to), cudaMemcpyDeviceToDevice, on));
    break;
  case TRS_CODEC_FP16:
  case TRS_CODEC_BF16:
    PetscCall(decode_16(on, codec->kind == TRS_CODEC_FP16, codec->loss_scale, n, from, to));
    break;
  case TRS_CODEC_FP8:
    if (codec->row_dim <= 0)
      PetscCall(decode_values(on, format_of(codec), n, from, to));
    else if (in_groups(row, to, from))
      PetscCall(decode_rows(on, Fp8Row{format_of(codec)}, rows, row, bytes, to));
    else
      CU_LAUNCH(decode_fp8_rows_kernel, value_blocks(rows * TRS_WARP), TRS_CODEC_THREADS, 0, on,
                format_of(codec), rows, row, bytes, to);
    break;
  case TRS_CODEC_INT8:
    if (in_groups(row, to, from))
      PetscCall(decode_rows(on, Int8Row{}, rows, row, bytes, to));
    else
      CU_LAUNCH(decode_int8_kernel, value_blocks(rows * TRS_WARP), TRS_CODEC_THREADS, 0, on, rows, row, bytes,
                to);
    break;
  }
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsConvertCuda(TrsStream stream, int64_t n, TrsDType from_type, const void *from,
                              TrsDType to_type, void *to)
{
  const bool from_half = from_type == TRS_FP16 || from_type == TRS_BF16;
  const bool to_half = to_type == TRS_FP16 || to_type == TRS_BF16;
  const cudaStream_t on = TrsCudaStream(stream);

  PetscFunctionBegin;
  PetscCheck(from_type == to_type || (from_type == TRS_FP32 && to_half) || (from_half && to_type == TRS_FP32),
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no conversion from %s to %s", TrsDTypeName(from_type),
             TrsDTypeName(to_type));
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (from_type == to_type)
    TrsCallCUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(n * TrsDTypeBytes(to_type)),
                                cudaMemcpyDeviceToDevice, on));
  else if (to_half)
    PetscCall(encode_16(on, to_type == TRS_FP16, 0.0f, 1.0f, n, static_cast<const float *>(from), to));
  else
    PetscCall(decode_16(on, from_type == TRS_FP16, 1.0f, n, from, static_cast<float *>(to)));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class Format>
static PetscErrorCode round_rows(cudaStream_t on, const Format &f, int64_t rows, int64_t cols, float *matrix,
                                 int64_t stride)
{
  const bool aligned = cols % 4 == 0 && TrsCudaIsAligned(matrix, stride * 4, 16);

  PetscFunctionBegin;
  if (aligned)
    CU_LAUNCH((round_kernel<Format, 4>), value_blocks(rows * cols / 4), TRS_CODEC_THREADS, 0, on, f, rows,
              cols, matrix, stride);
  else
    CU_LAUNCH((round_kernel<Format, 1>), value_blocks(rows * cols), TRS_CODEC_THREADS, 0, on, f, rows, cols,
              matrix, stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundMatrixCuda(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype, float *matrix,
                                  int64_t stride)
{
  PetscFunctionBegin;
  PetscCheck(dtype == TRS_FP16 || dtype == TRS_BF16, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no rounding to %s",
             TrsDTypeName(dtype));
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (dtype == TRS_FP16)
    PetscCall(
        round_rows(TrsCudaStream(stream), Sixteen<true, false>{0.0f, 1.0f}, rows, cols, matrix, stride));
  else
    PetscCall(
        round_rows(TrsCudaStream(stream), Sixteen<false, false>{0.0f, 1.0f}, rows, cols, matrix, stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}
