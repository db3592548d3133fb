/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Elements of the dense layers' kernels: one float or four, loaded from floats or bf16. Internal to
  gpu/.
*/
#pragma once

#include "gpu/wide_cuda.h"

static __device__ __forceinline__ float4 operator+(float4 a, float4 b)
{
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ float4 operator*(float4 a, float4 b)
{
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

/* T is float or float4. S is the type in memory: float or Bf16. */
static __device__ __forceinline__ void load_as(const float *from, float *x)
{
  *x = *from;
}

static __device__ __forceinline__ void load_as(const Bf16 *from, float *x)
{
  *x = to_float(*from);
}

template <class S> static __device__ __forceinline__ void load_as(const S *from, float4 *x)
{
  float v[4];

  load_numbers<4>(from, v);
  *x = make_float4(v[0], v[1], v[2], v[3]);
}

template <class S> static __device__ __forceinline__ void keep_as(S *to, float x)
{
  keep_numbers<1>(to, &x);
}

template <class S> static __device__ __forceinline__ void keep_as(S *to, float4 x)
{
  const float v[4] = {x.x, x.y, x.z, x.w};

  keep_numbers<4>(to, v);
}
