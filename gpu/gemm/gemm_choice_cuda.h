/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt's choice for a product's shape: descriptions and an algorithm. Choices and the library's
  handle are kept. They belong to the process, like the library's state. Only the main thread may
  call these functions. Internal to gpu/.
*/
#pragma once

#include "gpu/gemm/cublaslt_library.h"
#include "gpu/gemm/gemm_cuda.h"

/*
  A stream's scratch begins with the library's workspace; the size is NVIDIA's for its newest GPUs.
*/
static const int64_t TRS_GEMM_WORKSPACE_BYTES = (int64_t)32 << 20;

/* Rules for later choices. */
struct TrsGemmRules {
  TrsDensePrecision precision;
  /* number of algorithms to choose from by time; 1: use the heuristic's first */
  int most_algorithms;
};

struct TrsGemmChoice;

#define CALL_BLAS(...) \
  do { \
    const cublasStatus_t status_ = (__VA_ARGS__); \
    PetscCheck(status_ == CUBLAS_STATUS_SUCCESS, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, \
               "cuBLASLt: status %d from %s", static_cast<int>(status_), #__VA_ARGS__); \
  } while (0)

/*
  Find or make the choice for a product. *found is NULL if cuBLASLt has no kernel for it. The
  product's operands must be valid on the stream and have one type. A mask or sums must be allowed
  by TrsGemmCanFuse().
*/
PetscErrorCode TrsGemmChoiceFind(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsStream stream,
                                 const TrsProduct *p, const TrsGemmChoice **found);

/* Compute a product with its choice. */
PetscErrorCode TrsGemmChoiceMultiply(const TrsCublasLt *blas, TrsStream stream, const TrsGemmChoice *choice,
                                     const TrsProduct *p);

PetscErrorCode TrsGemmChoicesForget(const TrsCublasLt *blas);

/*
  Number of shapes for which cuBLASLt had no kernel, and of shapes for which it had none with the
  mask or the sums.
*/
int TrsGemmChoicesOwn();
int TrsGemmChoicesApart();

/* True if cuBLASLt may be asked for the product's mask or sums. */
bool TrsGemmCanFuse(const TrsProduct *p);

/* One line for each product whose algorithm was chosen by time, for the result file. Borrowed. */
const char *TrsGemmChoicesText();

/* The matrix that is multiplied by beta. */
static inline const void *TrsProductAdded(const TrsProduct *p)
{
  return p->added ? p->added : p->c.data;
}
