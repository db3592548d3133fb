/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Number formats on the GPU: the bytes of src/compute/codec_kernels_template.h, bit for bit. A thread a value; formats whose rows share a scale, a warp a row.
  All are bound by memory: n floats on one side, TrsCodecBytesCuda() on the other.

  Nothing here can be contracted to a fused multiply-add with another result: a product followed by a sum has a power of two for a factor.
*/
#include "gpu/codec_cuda.h"

extern "C" {
#include "compute/cpu_kernels_codec.h"
}
#include "compute/half.h"

#include <math.h>

enum { TRS_CODEC_THREADS = 256, TRS_WARP = 32 };
#define MAX_FP16 65504.0f
#define MAX_BF16 0x1.fep127f

/* Encoded bytes are the same on all devices. */
int64_t TrsCodecBytesCuda(const TrsCodec *codec, int64_t n)
{
  return TrsCodecBytesCpu(codec, n);
}

/* Values that are encoded together. */
static int64_t row_values(const TrsCodec *codec)
{
  const bool in_rows = codec->kind == TRS_CODEC_INT8 || codec->kind == TRS_CODEC_FP8;

  return in_rows && codec->row_dim > 0 ? codec->row_dim : 1;
}

/* --- 16 bits --- */

static __device__ __forceinline__ uint16_t narrow(bool fp16, float x)
{
  return fp16 ? TrsFloatToHalf(x) : TrsFloatToBf16(x);
}

static __device__ __forceinline__ float widen(bool fp16, uint16_t x)
{
  return fp16 ? TrsHalfToFloat(x) : TrsBf16ToFloat(x);
}

static __global__ void narrow_kernel(bool fp16, float limit, float scale, int64_t n, const float *from,
                                     uint16_t *to)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) {
    float x = from[i] * scale;

    if (limit > 0.0f) x = x > limit ? limit : x < -limit ? -limit : x; /* NaN stays */
    to[i] = narrow(fp16, x);
  }
}

static __global__ void widen_kernel(bool fp16, float scale, int64_t n, const uint16_t *from, float *to)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) {
    const float x = widen(fp16, from[i]);
    to[i] = scale == 1.0f ? x : x / scale;
  }
}

static __global__ void round_kernel(bool fp16, int64_t rows, int64_t cols, float *matrix, int64_t stride)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep()) {
    float *place = matrix + i / cols * stride + i % cols;
    *place = widen(fp16, narrow(fp16, *place));
  }
}

/* --- fp8 --- */

/* A format of 1 sign, e exponent and m mantissa bits. */
struct Fp8 {
  int mantissa_bits, bias;
  float largest;
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

/* Nearest even, saturating; below the smallest normal number the unit stays that of the smallest. */
static __device__ __forceinline__ uint8_t encode_fp8(Fp8 f, float x)
{
  const int shift = 23 - f.mantissa_bits;
  const float absolute = TrsBitsFloat(TrsFloatBits(x) & 0x7fffffffu);
  const float magnitude = f.largest < absolute ? f.largest : absolute;
  const uint32_t bits = TrsFloatBits(magnitude), sign = (TrsFloatBits(x) & 0x80000000u) >> 24;
  const uint32_t normal = ((bits + (1u << (shift - 1)) - 1u + (bits >> shift & 1u)) >> shift) -
                          (static_cast<uint32_t>(127 - f.bias) << f.mantissa_bits);
  const uint32_t small = TrsFloatBits(magnitude * power_of_two(f.bias - 1 + f.mantissa_bits) + 0x1p23f) -
                         0x4b000000u;

  return static_cast<uint8_t>((magnitude < power_of_two(1 - f.bias) ? small : normal) | sign);
}

/* The float whose exponent is off by the difference of the biases: one product makes it right, denormals too. */
static __device__ __forceinline__ float decode_fp8(Fp8 f, uint8_t code)
{
  const uint32_t bits = code;
  const float magnitude = TrsBitsFloat((bits & 0x7fu) << (23 - f.mantissa_bits)) * power_of_two(127 - f.bias);

  return TrsBitsFloat(TrsFloatBits(magnitude) | (bits & 0x80u) << 24);
}

static __global__ void encode_fp8_kernel(Fp8 f, int64_t n, const float *from, uint8_t *to)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) to[i] = encode_fp8(f, from[i]);
}

static __global__ void decode_fp8_kernel(Fp8 f, int64_t n, const uint8_t *from, float *to)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) to[i] = decode_fp8(f, from[i]);
}

/* --- rows with a scale: a warp each --- */

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

/* A 4-byte number at any address. */
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

/* n values, zeros up to a multiple of 4 bytes, float32 scale, 4 bytes 0. */
static __global__ void encode_fp8_rows_kernel(Fp8 f, int64_t rows, int64_t n, const float *from, uint8_t *to)
{
  const int64_t padded = (n + 3) / 4 * 4;

  for (int64_t r = TrsCudaFirst() / TRS_WARP; r < rows; r += TrsCudaStep() / TRS_WARP) {
    const float *x = from + r * n;
    uint8_t *row = to + r * (padded + 8);
    float most = 0.0f, scale;

    for (int64_t i = lane_of(); i < n; i += TRS_WARP) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    scale = f.largest / (1e-20f - warp_least(-most));
    for (int64_t i = lane_of(); i < padded; i += TRS_WARP) row[i] = i < n ? encode_fp8(f, x[i] * scale) : 0;
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

    for (int64_t i = lane_of(); i < n; i += TRS_WARP) to[r * n + i] = decode_fp8(f, row[i]) / scale;
  }
}

/* n bytes, float32 scale and bias. A row of equal values has scale 0. */
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
    low = warp_least(low) + 0.0f; /* +0 rather than -0 */
    high = -warp_least(-high) + 0.0f;
    inverse = 255.0f / (high - low + 1e-8f);
    for (int64_t i = lane_of(); i < n; i += TRS_WARP) {
      const float q = (x[i] - low) * inverse, clamped = q > 0.0f ? (q < 255.0f ? q : 255.0f) : 0.0f;
      row[i] = static_cast<uint8_t>(TrsFloatBits(clamped + 0x1p23f) - 0x4b000000u); /* nearest even */
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

/* --- the slots --- */

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
    CU_LAUNCH(narrow_kernel, value_blocks(n), TRS_CODEC_THREADS, 0, on, fp16, fp16 ? MAX_FP16 : MAX_BF16,
              codec->loss_scale, n, from, static_cast<uint16_t *>(to));
    break;
  case TRS_CODEC_FP8:
    if (codec->row_dim > 0)
      CU_LAUNCH(encode_fp8_rows_kernel, value_blocks(rows * TRS_WARP), TRS_CODEC_THREADS, 0, on,
                format_of(codec), rows, row, from, bytes);
    else
      CU_LAUNCH(encode_fp8_kernel, value_blocks(n), TRS_CODEC_THREADS, 0, on, format_of(codec), n, from,
                bytes);
    break;
  case TRS_CODEC_INT8:
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
    CU_LAUNCH(widen_kernel, value_blocks(n), TRS_CODEC_THREADS, 0, on, codec->kind == TRS_CODEC_FP16,
              codec->loss_scale, n, static_cast<const uint16_t *>(from), to);
    break;
  case TRS_CODEC_FP8:
    if (codec->row_dim > 0)
      CU_LAUNCH(decode_fp8_rows_kernel, value_blocks(rows * TRS_WARP), TRS_CODEC_THREADS, 0, on,
                format_of(codec), rows, row, bytes, to);
    else
      CU_LAUNCH(decode_fp8_kernel, value_blocks(n), TRS_CODEC_THREADS, 0, on, format_of(codec), n, bytes, to);
    break;
  case TRS_CODEC_INT8:
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
    CU_LAUNCH(narrow_kernel, value_blocks(n), TRS_CODEC_THREADS, 0, on, to_type == TRS_FP16, 0.0f, 1.0f, n,
              static_cast<const float *>(from), static_cast<uint16_t *>(to));
  else
    CU_LAUNCH(widen_kernel, value_blocks(n), TRS_CODEC_THREADS, 0, on, from_type == TRS_FP16, 1.0f, n,
              static_cast<const uint16_t *>(from), static_cast<float *>(to));
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
  CU_LAUNCH(round_kernel, value_blocks(rows * cols), TRS_CODEC_THREADS, 0, TrsCudaStream(stream),
            dtype == TRS_FP16, rows, cols, matrix, stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
