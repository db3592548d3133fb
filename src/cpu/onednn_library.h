/* SPDX-License-Identifier: BSD-3-Clause */
/*
  oneDNN's matrix products. The library is opened for the first product. If it is missing, the
  program uses OpenBLAS. Internal to cpu/.

  The functions are declared here, so that a build does not need oneDNN's header. sgemm is in the
  header of versions 1 to 3. gemm_bf16 is exported by the library but is in no header. Its pointer
  is NULL if a version does not have it. Matrices are row-major. A char is 'T' or 'N', and a
  function returns 0 on success.
*/
#pragma once

#include <stdint.h>

typedef struct {
  int (*sgemm)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
  /* operands in bf16, sums in fp32; may be NULL */
  int (*gemm_bf16)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                   const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *c,
                   int64_t ldc);
  char name[32]; /* "oneDNN 2.6.3" */
} TrsOneDnn;

/*
  Open oneDNN, once per process. Returns NULL if oneDNN is missing, if it has its own threads that
  we cannot limit, or if the environment has TRSHARD_GEMM=openblas.
*/
const TrsOneDnn *TrsOneDnnOpen(void);
