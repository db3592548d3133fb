/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt, opened when the first product needs it, because a CPU run does not need this library of
  half a gigabyte. Without the library a kernel of gemm_cuda.cu is used. The stand-in for tests is
  linked instead of opened.
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
  X(Matmul)

/* One pointer for each function: Matmul is cublasLtMatmul. */
struct TrsCublasLt {
#define TRS_CUBLASLT_POINTER(name) decltype(&cublasLt##name) name;
  TRS_CUBLASLT_FUNCTIONS(TRS_CUBLASLT_POINTER)
#undef TRS_CUBLASLT_POINTER
};

/*
  Open cuBLASLt, once per process. Returns NULL if it is missing, or if TRSHARD_GEMM=own is in the
  environment now, for tests. Not collective.
*/
const TrsCublasLt *TrsCublasLtOpen();

/* The reason if the last call returned NULL. Borrowed. */
const char *TrsCublasLtMissing();
