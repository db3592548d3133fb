/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt's choice for the shape of a product: descriptions and an algorithm. A choice is kept, and
  so is the library's handle. Both belong to the process, as the library's state does. All calls
  come from the main thread. Internal to gpu/.
*/
#pragma once

#include "gpu/gemm/cublaslt_library.h"
#include "gpu/gemm/gemm_cuda.h"

/* The scratch of a stream begins with the library's; as NVIDIA advises for its newest GPUs. */
static const int64_t TRS_GEMM_WORKSPACE_BYTES = (int64_t)32 << 20;

/* How the choices that follow are made. */
struct TrsGemmRules {
  TrsDensePrecision precision;
  int most_algorithms; /* that a choice is made among by their time; 1: the heuristic's first */
};

struct TrsGemmChoice;

#define CALL_BLAS(...) \
  do { \
    const cublasStatus_t status_ = (__VA_ARGS__); \
    PetscCheck(status_ == CUBLAS_STATUS_SUCCESS, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, \
               "cuBLASLt: status %d from %s", static_cast<int>(status_), #__VA_ARGS__); \
  } while (0)

/*
  Find the choice for a product, or make it. NULL: cuBLASLt has no kernel for it. The product's
  operands are valid on the stream, and of one type. TrsGemmCanFuse() allowed its mask or sums.
*/
PetscErrorCode TrsGemmChoiceFind(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsStream stream,
                                 const TrsProduct *p, const TrsGemmChoice **found);

/* Make a product as it was chosen. */
PetscErrorCode TrsGemmChoiceMultiply(const TrsCublasLt *blas, TrsStream stream, const TrsGemmChoice *choice,
                                     const TrsProduct *p);

PetscErrorCode TrsGemmChoicesForget(const TrsCublasLt *blas);

/*
  Number of shapes for which cuBLASLt had no kernel, and of those for which it had none with the
  mask or the sums.
*/
int TrsGemmChoicesOwn();
int TrsGemmChoicesApart();

/* May cuBLASLt be asked for the product's mask or sums? */
bool TrsGemmCanFuse(const TrsProduct *p);

/* A line for each product whose algorithm was chosen by its time, for the result file. Borrowed. */
const char *TrsGemmChoicesText();

/* The matrix that beta is a factor of. */
static inline const void *TrsProductAdded(const TrsProduct *p)
{
  return p->added ? p->added : p->c.data;
}
