/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt, opened when the first product wants it: half a gigabyte that a CPU run, and a machine without it, can do without (gemm_cuda.cu has a
  kernel of its own for those). A stand-in is linked instead of opened.
*/
#pragma once

#include "gpu/cuda_language.h"

#include <cublasLt.h>

#define TRS_CUBLASLT_FUNCTIONS(X) \
  X(GetVersion) \
  X(Create) \
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

/* One pointer a function: Matmul is cublasLtMatmul. */
struct TrsCublasLt {
#define TRS_CUBLASLT_POINTER(name) decltype(&cublasLt##name) name;
  TRS_CUBLASLT_FUNCTIONS(TRS_CUBLASLT_POINTER)
#undef TRS_CUBLASLT_POINTER
};

/* Open it, once a process; NULL where there is none, or TRSHARD_GEMM=own is in the environment now, for tests. Not collective. */
const TrsCublasLt *TrsCublasLtOpen();

/* Why the last call gave NULL. Borrowed. */
const char *TrsCublasLtMissing();
