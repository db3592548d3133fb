/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/dense_kernels.h"

#define VECTOR           4 /* floats */
#define FORWARD_ROWS     4 /* the dot interaction's tiles: FORWARD_ROWS x 2 vectors of products, */
#define BACKWARD_VECTORS 2 /* 6 rows x BACKWARD_VECTORS vectors of gradients */

typedef float TrsVec __attribute__((vector_size(4 * VECTOR)));

/* v[l] = p[l] for begin <= l < end, the others 0 */
static inline TrsVec load_lanes(const float *p, int begin, int end)
{
  TrsVec v = {0.0f};

  for (int l = begin; l < end; l++) v[l] = p[l];
  return v;
}

/* p[l] = v[l] for begin <= l < end */
static inline void store_lanes(float *p, TrsVec v, int begin, int end)
{
  for (int l = begin; l < end; l++) p[l] = v[l];
}

/* to[j * to_stride + i] = row[i][j], VECTOR x VECTOR */
static inline void transpose(const float *const row[VECTOR], float *to, int64_t to_stride)
{
  for (int i = 0; i < VECTOR; i++)
    for (int j = 0; j < VECTOR; j++) to[j * to_stride + i] = row[i][j];
}

#include "compute/dense_kernels_template.h"

const TrsDenseKernels trs_dense_kernels_portable = DENSE_KERNELS;
