/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The choice of a cuBLASLt algorithm for the shape of a matrix product. A choice has cuBLASLt's
  descriptions and an algorithm. Choices and the library's handle are kept for later products. They
  belong to the process. Only the main thread may call these functions. Internal to gpu/.
*/
#pragma once

#include "gpu/gemm/cublaslt_library.h"
#include "gpu/gemm/gemm_cuda.h"

/*
  The first bytes of a stream's scratch memory are cuBLASLt's workspace. NVIDIA recommends this size
  for its newest GPUs.
*/
static const int64_t TRS_GEMM_WORKSPACE_BYTES = (int64_t)32 << 20;

/* Rules for all later choices. */
struct TrsGemmRules {
  TrsDensePrecision precision;
  /*
    number of algorithms from which the fastest is chosen; 1 means the heuristic's first algorithm
  */
  int most_algorithms;
  TrsProductTable table; /* algorithms that are used where they hold, without measurements */
};

/* The name of the current GPU, the library's version and the precision, for tables of products. */
PetscErrorCode TrsGemmKey(const TrsCublasLt *blas, TrsDensePrecision precision, char key[TRS_PRODUCT_KEY]);

enum { TRS_GEMM_TEXT = 16384 }; /* bytes of the text of all choices */

struct TrsGemmChoice;

#define CALL_BLAS(...) \
  do { \
    const cublasStatus_t status_ = (__VA_ARGS__); \
    PetscCheck(status_ == CUBLAS_STATUS_SUCCESS, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, \
               "cuBLASLt: status %d from %s", static_cast<int>(status_), #__VA_ARGS__); \
  } while (0)

/*
  Find or make the choice for a product. *found is NULL if cuBLASLt has no kernel for it. The
  product's operands must be valid on the stream and have the same type. If the product has a mask
  or sums, TrsGemmCanFuse() must be true.
*/
PetscErrorCode TrsGemmChoiceFind(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsStream stream,
                                 const TrsProduct *p, const TrsGemmChoice **found);

/* Compute a product with the choice that was found for it. */
PetscErrorCode TrsGemmChoiceMultiply(const TrsCublasLt *blas, TrsStream stream, const TrsGemmChoice *choice,
                                     const TrsProduct *p);

PetscErrorCode TrsGemmChoicesForget(const TrsCublasLt *blas);

/* Time the algorithms of all choices (TrsProductTimesFn in compute/dense_layers.h). */
PetscErrorCode TrsGemmChoicesTime(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsStream stream,
                                  PetscErrorCode (*tell)(void *context, const TrsProductTime *time),
                                  void *context);

/*
  Number of shapes for which cuBLASLt had no kernel. TrsGemmChoicesApart(): number of shapes for
  which it had no kernel with the mask or the sums.
*/
int TrsGemmChoicesOwn();
int TrsGemmChoicesApart();

/* Number of shapes whose algorithm is from the table. */
int TrsGemmChoicesListed();

/* True if cuBLASLt may be asked for the product's mask or sums. */
bool TrsGemmCanFuse(const TrsProduct *p);

/*
  One line for each product whose algorithm was chosen by time. The text goes to the result file.
  Borrowed.
*/
const char *TrsGemmChoicesText();

/* The matrix that is multiplied by beta. */
static inline const void *TrsProductAdded(const TrsProduct *p)
{
  return p->added ? p->added : p->c.data;
}
