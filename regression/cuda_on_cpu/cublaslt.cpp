// SPDX-License-Identifier: BSD-3-Clause
// The stand-in for cuBLASLt: the same functions, implemented with cblas.
#include "cublasLt.h"

#include "compute/half.h"
#include "cuda_on_cpu.h"
#include "races.h"

#include <algorithm>
#include <cblas.h>
#include <cstdlib>
#include <cstring>
#include <vector>

using cuda_on_cpu::fail;

struct cublasLtContext {
  int device; // the device that was current when the handle was created
};
struct cublasLtMatmulDesc {
  cublasComputeType_t compute;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr; // array with the result's type; BGRADB writes it
  void *mask = nullptr;
  int64_t mask_ld = 0; // distance between two columns of the mask, in bits
};
struct cublasLtMatrixLayout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
};
struct cublasLtMatmulPreference {
  cublasLtMatmulAlgo_t aligned = {256, 256, 256, 256, 256, 0};
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK; // how parts of a split product may be added
};

namespace
{
int64_t size_of(cudaDataType_t type)
{
  return type == CUDA_R_16BF ? 2 : 4;
}

void check(const char *what, const void *pointer, const cublasLtMatrixLayout &layout, uint64_t alignment)
{
  cudaPointerAttributes attributes;

  cudaPointerGetAttributes(&attributes, pointer);
  if (attributes.type == cudaMemoryTypeUnregistered)
    fail("cublasLtMatmul: %s is not the device's memory", what);
  if (reinterpret_cast<uintptr_t>(pointer) % alignment ||
      static_cast<uint64_t>(size_of(layout.type) * layout.ld) % alignment)
    fail("cublasLtMatmul: %s is not aligned to the %d bytes promised", what, static_cast<int>(alignment));
}

// The largest power of two, up to 16 (the width of a vector), that divides an address. A null
// pointer has every alignment.
uint64_t alignment_of(const void *pointer)
{
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | 16;

  return bits & (~bits + 1);
}

bool has_mask(cublasLtEpilogue_t epilogue)
{
  return epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DRELU;
}

bool adds_bias(cublasLtEpilogue_t epilogue)
{
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
}

// True if the library shall report that it has no kernel (README.md).
bool refuses(const cublasLtMatmulAlgo_t &aligned, cublasLtEpilogue_t epilogue)
{
  const char *which = getenv("CUBLASLT_ON_CPU_REFUSE");

  if (!which) return false;
  if (strcmp(which, "all") == 0) return true;
  if (strcmp(which, "fused") == 0) return has_mask(epilogue) || epilogue == CUBLASLT_EPILOGUE_BGRADB;
  return strcmp(which, "odd") == 0 && (aligned.a < 8 || aligned.b < 8 || aligned.d < 8 || aligned.bias < 8);
}

constexpr int n_algorithms = 5;

// The time in ms that an algorithm takes in addition, on the clock of events only. It is much more
// than a busy machine delays a product. The algorithm whose number is in CUBLASLT_ON_CPU_FASTEST
// takes no additional time.
int delay_ms(int number)
{
  const char *fastest = getenv("CUBLASLT_ON_CPU_FASTEST");

  return fastest && atoi(fastest) != number ? 10000 : 0;
}

float number(const void *data, cudaDataType_t type, int64_t at)
{
  return type == CUDA_R_16BF ? TrsBf16ToFloat(static_cast<const uint16_t *>(data)[at])
                             : static_cast<const float *>(data)[at];
}

// The numbers of a matrix as floats, without gaps between columns.
std::vector<float> floats(const void *data, const cublasLtMatrixLayout &layout)
{
  std::vector<float> all(layout.rows * layout.cols);

  for (uint64_t c = 0; c < layout.cols; c++)
    for (uint64_t r = 0; r < layout.rows; r++)
      all[c * layout.rows + r] = number(data, layout.type,
                                        static_cast<int64_t>(c) * layout.ld + static_cast<int64_t>(r));
  return all;
}

// Apply the epilogue to the product's sums and write them to D, rounded to D's type. NVIDIA's tests
// (nvmath-python, test_epilog.py) expect the mask bit 1 for a number that is 0, too.
void store(const std::vector<float> &sums, const cublasLtMatmulDesc &how, const cublasLtMatrixLayout &d,
           void *to)
{
  for (uint64_t c = 0; c < d.cols; c++)
    for (uint64_t r = 0; r < d.rows; r++) {
      const int64_t at = static_cast<int64_t>(c) * d.ld + static_cast<int64_t>(r);
      float x = sums[c * d.rows + r];
      auto *const byte = static_cast<uint8_t *>(how.mask) +
                         (static_cast<int64_t>(c) * how.mask_ld + static_cast<int64_t>(r)) / 8;
      const uint8_t bit = static_cast<uint8_t>(1u << r % 8);

      if (adds_bias(how.epilogue)) x += number(how.bias, d.type, static_cast<int64_t>(r));
      if (how.epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS)
        *byte = static_cast<uint8_t>(x >= 0.0f ? *byte | bit : *byte & ~bit);
      if (how.epilogue == CUBLASLT_EPILOGUE_DRELU && !(*byte & bit)) x = 0.0f;
      if (adds_bias(how.epilogue) && how.epilogue != CUBLASLT_EPILOGUE_BIAS &&
          (x <= 0.0f ||
           // an H200 does this (gpu/README.md)
           (x != x && how.compute == CUBLAS_COMPUTE_32F_FAST_TF32)))
        x = 0.0f;
      if (d.type == CUDA_R_16BF)
        static_cast<uint16_t *>(to)[at] = TrsFloatToBf16(x);
      else
        static_cast<float *>(to)[at] = x;
    }
}

// Record that the current product accesses the whole matrix.
void touch(const void *at, const cublasLtMatrixLayout &layout, int access)
{
  const int64_t size = size_of(layout.type);

  for (uint64_t c = 0; c < layout.cols; c++)
    cuda_on_cpu::races::touch(static_cast<const char *>(at) + static_cast<int64_t>(c) * layout.ld * size,
                              layout.rows * static_cast<uint64_t>(size), access);
}

// Sum the columns of op(B) over k. D has the same number of columns.
void sum_columns(const std::vector<float> &b, const cublasLtMatmulDesc &how,
                 const cublasLtMatrixLayout &layout, const cublasLtMatrixLayout &d)
{
  const bool plain = how.op_b == CUBLAS_OP_N;
  const uint64_t k = plain ? layout.rows : layout.cols;

  for (uint64_t c = 0; c < d.cols; c++) {
    float sum = 0.0f;

    for (uint64_t i = 0; i < k; i++) sum += b[plain ? c * layout.rows + i : i * layout.rows + c];
    if (d.type == CUDA_R_16BF)
      static_cast<uint16_t *>(how.bias)[c] = TrsFloatToBf16(sum);
    else
      static_cast<float *>(how.bias)[c] = sum;
  }
}

// Record that the epilogue reads or writes its memory, without D.
void touch_epilogue(const cublasLtMatmulDesc &how, const cublasLtMatrixLayout &d)
{
  const uint64_t size = static_cast<uint64_t>(size_of(d.type));

  if (adds_bias(how.epilogue)) cuda_on_cpu::races::touch(how.bias, d.rows * size, cuda_on_cpu::races::READ);
  if (how.epilogue == CUBLASLT_EPILOGUE_BGRADB)
    cuda_on_cpu::races::touch(how.bias, d.cols * size, cuda_on_cpu::races::WRITE);
  for (uint64_t c = 0; has_mask(how.epilogue) && c < d.cols; c++)
    cuda_on_cpu::races::touch(
        static_cast<const char *>(how.mask) + static_cast<int64_t>(c) * how.mask_ld / 8, (d.rows + 7) / 8,
        how.epilogue == CUBLASLT_EPILOGUE_DRELU ? cuda_on_cpu::races::READ : cuda_on_cpu::races::WRITE);
}

// False for the epilogues without a kernel: DRELU with k = 1, and BGRADB if D has one row.
bool has_epilogue(const cublasLtMatmulDesc &how, const cublasLtMatrixLayout &d, uint64_t k)
{
  if (has_mask(how.epilogue) && (how.mask_ld % 128 || how.mask_ld < static_cast<int64_t>(d.rows)))
    fail("cublasLtMatmul: a mask with columns of %d bits for %d rows", static_cast<int>(how.mask_ld),
         static_cast<int>(d.rows));
  if (how.epilogue == CUBLASLT_EPILOGUE_DRELU) return k > 1;
  return how.epilogue != CUBLASLT_EPILOGUE_BGRADB || d.rows > 1;
}

// True for the types that the library has: bf16 to bf16 or fp32 with sums in full precision, or all
// matrices in fp32.
bool knows(const cublasLtMatmulDesc &how, const cublasLtMatrixLayout &a, const cublasLtMatrixLayout &b,
           const cublasLtMatrixLayout &c, const cublasLtMatrixLayout &d)
{
  if (a.type != b.type || c.type != d.type) return false;
  return a.type == CUDA_R_16BF ? how.compute == CUBLAS_COMPUTE_32F : d.type == CUDA_R_32F;
}
} // namespace

extern "C" {

size_t cublasLtGetVersion(void)
{
  return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
  *handle = new cublasLtContext;
  cudaGetDevice(&(*handle)->device);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
  (void)scale;
  *made = new cublasLtMatmulDesc{compute};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
  void *to = nullptr;
  size_t size = sizeof(cublasOperation_t);

  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: to = &description->op_a; break;
  case CUBLASLT_MATMUL_DESC_TRANSB: to = &description->op_b; break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE: to = &description->epilogue; break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    to = &description->bias;
    size = sizeof(description->bias);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    to = &description->mask;
    size = sizeof(description->mask);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    to = &description->mask_ld;
    size = sizeof(description->mask_ld);
    break;
  }
  if (!to || bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
  *made = new cublasLtMatrixLayout{type, rows, cols, ld};
  return ld >= static_cast<int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
  *made = new cublasLtMatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
  uint32_t number;
  cublasLtMatmulAlgo_t &aligned = preference->aligned;

  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return bytes == sizeof(uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != sizeof(number)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&number, value, bytes);
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: aligned.a = number; break;
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: aligned.b = number; break;
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: aligned.c = number; break;
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: aligned.d = number; break;
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: preference->reduction = number; break;
  default: return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
  const uint64_t m = description->op_a == CUBLAS_OP_N ? a->rows : a->cols,
                 k = description->op_a == CUBLAS_OP_N ? a->cols : a->rows,
                 n = description->op_b == CUBLAS_OP_N ? b->cols : b->rows,
                 k_b = description->op_b == CUBLAS_OP_N ? b->rows : b->cols;

  *found = 0;
  if (!knows(*description, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!handle || wanted < 1 || k != k_b || c->rows != m || c->cols != n || d->rows != m || d->cols != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (d->type == CUDA_R_16BF && preference->reduction & ~uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
    fail("cublasLtMatmulAlgoGetHeuristic: a product to bf16 whose parts may be added in bf16");
  if (!has_epilogue(*description, *d, k)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (*found = 0; *found < std::min(wanted, n_algorithms); ++*found) {
    cublasLtMatmulHeuristicResult_t &result = results[*found];

    result.algo = preference->aligned;
    result.algo.bias = alignment_of(description->bias);
    result.algo.number = *found;
    result.workspaceSize = 0;
    result.state = CUBLAS_STATUS_SUCCESS;
    if (refuses(result.algo, description->epilogue)) {
      static const cublasStatus_t statuses[] = {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED,
                                                CUBLAS_STATUS_INVALID_VALUE};
      static int by_turns;

      return statuses[by_turns++ % (strcmp(getenv("CUBLASLT_ON_CPU_REFUSE"), "fused") == 0 ? 3 : 2)];
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Algorithm i has tile 15 + i and splits a product into 1 + i parts, which it adds in fp32.
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
  const uint32_t number = static_cast<uint32_t>(algo->number);
  uint32_t found = 0;

  switch (attribute) {
  case CUBLASLT_ALGO_CONFIG_TILE_ID: found = 15 + number; break;
  case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: found = 1 + number; break;
  case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
    found = number ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    break;
  }
  if (bytes != sizeof(found)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(value, &found, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
  const cublasLtMatmulDesc how = *description;
  const cublasLtMatrixLayout la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout;
  const float scale = *static_cast<const float *>(alpha), add = *static_cast<const float *>(beta);
  const int k = static_cast<int>(how.op_a == CUBLAS_OP_N ? la.cols : la.rows);
  int device;

  cudaGetDevice(&device);
  if (handle->device != device)
    fail("cublasLtMatmul on GPU %d by a handle of GPU %d", device, handle->device);
  if (c != d && (lc.rows != ld.rows || lc.cols != ld.cols)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!knows(how, la, lb, lc, ld)) return CUBLAS_STATUS_INVALID_VALUE;
  cuda_on_cpu::count_product(
      stream, algo->a < 16 || algo->b < 16 || algo->d < 16,
      static_cast<uint64_t>(size_of(la.type)) * (la.rows * la.cols + lb.rows * lb.cols) +
          static_cast<uint64_t>(size_of(ld.type)) * ld.rows * ld.cols * (add != 0.0f ? 2 : 1) +
          (has_mask(how.epilogue) ? ld.rows * ld.cols / 8 : 0));
  check("A", a, la, algo->a);
  check("B", b, lb, algo->b);
  check("C", c, lc, algo->c);
  check("D", d, ld, algo->d);
  if (adds_bias(how.epilogue) || how.epilogue == CUBLASLT_EPILOGUE_BGRADB)
    check("the bias", how.bias, {ld.type, 1, 1, 0}, algo->bias);
  if (has_mask(how.epilogue)) check("the mask", how.mask, {ld.type, 1, 1, 0}, 16);
  const int late_ms = delay_ms(algo->number);
  cuda_on_cpu::enqueue(stream, "cublasLtMatmul", [=] {
    std::vector<float> x, y, sums;

    cuda_on_cpu::advance_clock(late_ms);
    cuda_on_cpu::races::touch(workspace, std::min(workspace_bytes, size_t(64)), cuda_on_cpu::races::WRITE);
    touch(a, la, cuda_on_cpu::races::READ);
    touch(b, lb, cuda_on_cpu::races::READ);
    if (add != 0.0f) touch(c, lc, cuda_on_cpu::races::READ);
    touch_epilogue(how, ld);
    touch(d, ld, cuda_on_cpu::races::WRITE);
    x = floats(a, la);
    y = floats(b, lb);
    sums = add != 0.0f ? floats(c, lc) : std::vector<float>(ld.rows * ld.cols);
    cblas_sgemm(CblasColMajor, how.op_a == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
                how.op_b == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, static_cast<int>(ld.rows),
                static_cast<int>(ld.cols), k, scale, x.data(), static_cast<int>(la.rows), y.data(),
                static_cast<int>(lb.rows), add, sums.data(), static_cast<int>(ld.rows));
    if (how.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_columns(y, how, lb, ld);
    store(sums, how, ld, d);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
