/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt, opened when the first product needs it. The library is half a gigabyte, which a CPU run
  does without. A machine without the library uses a kernel of gemm_cuda.cu. The stand-in for tests
  is linked instead of opened.
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
  Open cuBLASLt, once a process. The result is NULL if there is none, or if TRSHARD_GEMM=own is in
  the environment now, for tests. Not collective.
*/
const TrsCublasLt *TrsCublasLtOpen();

/* Why the last call gave NULL. Borrowed. */
const char *TrsCublasLtMissing();
