/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/isa/dense_kernels.h"

#define VECTOR           4 /* floats in a vector */
#define BACKWARD_VECTORS 2 /* number of vectors in registers for each of 6 gradient rows */

typedef float TrsVec __attribute__((vector_size(4 * VECTOR)));

/* Load the first `lanes` lanes of p; the other lanes are 0. */
static inline TrsVec load_lanes(const float *p, int lanes)
{
  TrsVec v = {0.0f};

  for (int l = 0; l < lanes; l++) v[l] = p[l];
  return v;
}

static inline void store_lanes(float *p, TrsVec v, int lanes)
{
  for (int l = 0; l < lanes; l++) p[l] = v[l];
}

static inline void stream_vec(float *p, TrsVec v)
{
  for (int l = 0; l < VECTOR; l++) p[l] = v[l];
}

/* Return a bit for each lane, which is set unless the lane is <= 0. So it is also set for NaN. */
static inline uint32_t passes_relu(TrsVec v)
{
  uint32_t bits = 0;

  for (int l = 0; l < VECTOR; l++) bits |= (uint32_t) !(v[l] <= 0.0f) << l;
  return bits;
}

/* Keep the lanes whose bits are set, and set the others to 0. */
static inline TrsVec keep_lanes(TrsVec v, uint32_t bits)
{
  for (int l = 0; l < VECTOR; l++) v[l] = bits >> l & 1 ? v[l] : 0.0f;
  return v;
}

static inline TrsVec mul_add(TrsVec a, TrsVec b, TrsVec sum)
{
  return sum + a * b;
}

/* Return a vector whose lane i is the sum of all lanes of v[i]. */
static inline TrsVec fold(const TrsVec v[VECTOR])
{
  TrsVec sums;

  for (int i = 0; i < VECTOR; i++) sums[i] = (v[i][0] + v[i][2]) + (v[i][1] + v[i][3]);
  return sums;
}

#include "cpu/isa/dense_kernels_template.h"

const TrsDenseKernels trs_dense_kernels_portable = DENSE_KERNELS;
