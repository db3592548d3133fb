/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt is opened when the first matrix product needs it, because a CPU run does not need this
  library of half a gigabyte. If the library is missing, a kernel of gemm_cuda.cu is used. The
  stand-in for tests is linked instead of opened.
*/
#pragma once

#include "gpu/cuda_language.h"

#include <cublasLt.h>

#define TRS_CUBLASLT_FUNCTIONS(X) \
  X(GetVersion) \
  X(Create) \
  X(Destroy) \
  X(MatmulDescCreate) \
  X(MatmulDescDestroy) \
  X(MatmulDescSetAttribute) \
  X(MatrixLayoutCreate) \
  X(MatrixLayoutDestroy) \
  X(MatmulPreferenceCreate) \
  X(MatmulPreferenceDestroy) \
  X(MatmulPreferenceSetAttribute) \
  X(MatmulAlgoGetHeuristic) \
  X(MatmulAlgoConfigGetAttribute) \
  X(Matmul)

/* One pointer for each function. For example, Matmul points to cublasLtMatmul. */
struct TrsCublasLt {
#define TRS_CUBLASLT_POINTER(name) decltype(&cublasLt##name) name;
  TRS_CUBLASLT_FUNCTIONS(TRS_CUBLASLT_POINTER)
#undef TRS_CUBLASLT_POINTER
};

/*
  Open cuBLASLt, once per process. Returns NULL if it is missing, or if the environment now has
  TRSHARD_GEMM=own, which tests set. Not collective.
*/
const TrsCublasLt *TrsCublasLtOpen();

/* Why the last call of TrsCublasLtOpen() returned NULL. Borrowed. */
const char *TrsCublasLtMissing();
