/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels for any processor. */
#include "compute/half.h"
#include "cpu/isa/codec_kernels.h"

#include <math.h>
#include <string.h>

#define VECTOR 4

typedef float Vec __attribute__((vector_size(4 * VECTOR)));
typedef uint32_t Words __attribute__((vector_size(4 * VECTOR)));

static inline Vec minimum(Vec a, Vec b)
{
  Vec r;

  for (int l = 0; l < VECTOR; l++) r[l] = a[l] < b[l] ? a[l] : b[l];
  return r;
}

static inline Vec maximum(Vec a, Vec b)
{
  Vec r;

  for (int l = 0; l < VECTOR; l++) r[l] = a[l] > b[l] ? a[l] : b[l];
  return r;
}

static inline Vec multiply_add(Vec a, Vec b, Vec c)
{
  Vec r;

  for (int l = 0; l < VECTOR; l++) r[l] = fmaf(a[l], b[l], c[l]);
  return r;
}

static inline float least_lane(Vec v)
{
  float least = v[0];

  for (int l = 1; l < VECTOR; l++) least = v[l] < least ? v[l] : least;
  return least;
}

/* Load VECTOR bytes as integers. narrow_bytes() stores the lowest byte of each integer. */
static inline Words widen_bytes(const uint8_t *p)
{
  Words w;

  for (int l = 0; l < VECTOR; l++) w[l] = p[l];
  return w;
}

static inline void narrow_bytes(uint8_t *p, Words w)
{
  for (int l = 0; l < VECTOR; l++) p[l] = (uint8_t)w[l];
}

static inline Vec widen_fp16(const uint16_t *p)
{
  Vec r;

  for (int l = 0; l < VECTOR; l++) r[l] = TrsHalfToFloat(p[l]);
  return r;
}

static inline void narrow_fp16(uint16_t *p, Vec v)
{
  for (int l = 0; l < VECTOR; l++) p[l] = TrsFloatToHalf(v[l]);
}

static inline void scale_and_bias(const uint8_t *row, float *scale, float *bias)
{
  uint16_t half[2];

  memcpy(half, row, sizeof(half));
  *scale = TrsHalfToFloat(half[0]);
  *bias = TrsHalfToFloat(half[1]);
}

#include "cpu/isa/codec_kernels_template.h"

const TrsCodecKernels trs_codec_kernels_portable = CODEC_KERNELS;
