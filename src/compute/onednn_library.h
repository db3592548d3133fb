/* SPDX-License-Identifier: BSD-3-Clause */
/*
  oneDNN's matrix products, opened when the first product wants them: a program without the library runs on OpenBLAS. Internal to compute/.

  Declared here and not by its header, so that a build needs none: sgemm is in the header of versions 1 to 3 alike, gemm_bf16 is exported by the
  library and in no header (a version without it has the pointer NULL). Matrices are row-major; char: 'T' or 'N'; 0: success.
*/
#pragma once

#include <stdint.h>

typedef struct {
  int (*sgemm)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
  /* bf16 operands, fp32 sums; or NULL */
  int (*gemm_bf16)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                   const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *c,
                   int64_t ldc);
  char name[32]; /* "oneDNN 2.6.3" */
} TrsOneDnn;

/* Open it, once a process. NULL: there is none, it has threads of its own that we could not bound, or TRSHARD_GEMM=openblas in the environment. */
const TrsOneDnn *TrsOneDnnOpen(void);
