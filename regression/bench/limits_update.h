/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Simple loops that sort ids by row, and update rows by row-wise AdaGrad, as fast as the machine
  can. Like those of limits.h, they are limits, and must not call kernels of the program.
*/
#pragma once

#include "limits.h"

#include <math.h>

enum { DIGIT_BITS = 11 };

/*
  Sort keys stably by the bits from low_bit on, in two passes: to `other`, and back to `key`.
*/
static void sort_keys(int64_t n, int low_bit, int bits, uint32_t *key, uint32_t *other)
{
  const int half = (bits + 1) / 2;
  uint32_t count[2][1 << DIGIT_BITS] = {{0}}, mask = ((uint32_t)1 << half) - 1;

  for (int64_t i = 0; i < n; i++) {
    count[0][key[i] >> low_bit & mask]++;
    count[1][key[i] >> low_bit >> half]++;
  }
  for (int digit = 0; digit < 2; digit++) {
    uint32_t *from = digit ? other : key, *to = digit ? key : other, sum = 0;

    for (uint32_t c = 0; c <= mask; c++) {
      const uint32_t here = count[digit][c];

      count[digit][c] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < n; i++) to[count[digit][from[i] >> low_bit >> digit * half & mask]++] = from[i];
  }
}

/* The arrays of one table, in registers. */
typedef struct {
  int bits;
  int64_t n, stride;
  const uint32_t *key;
  const float *grad;
  float *weight, *state;
} Update;

INLINE void prefetch_update(const int D, const Update *u, int64_t i)
{
  const uint32_t key = u->key[i < u->n ? i : u->n - 1];
  const int64_t row = key >> u->bits, bag = key & (((uint32_t)1 << u->bits) - 1);

#pragma GCC unroll 32
  for (int v = 0; v < D / LINE; v++) {
    __builtin_prefetch(u->weight + row * D + (int64_t)LINE * v);
    __builtin_prefetch(u->grad + bag * u->stride + (int64_t)LINE * v);
  }
  __builtin_prefetch(u->state + row);
}

INLINE void update_dim(const int D, const Update *of, int64_t ahead)
{
  const Update copy = *of, *u = &copy;
  const uint32_t mask = ((uint32_t)1 << u->bits) - 1;

  for (int64_t i = 0, next; i < u->n; i = next) {
    const uint32_t row = u->key[i] >> u->bits;
    const float *from = u->grad + (u->key[i] & mask) * u->stride;
    float *w = u->weight + (int64_t)row * D, sum, scale;
    Vec g[32], squares, even = {0}, odd = {0};

    prefetch_update(D, u, i + ahead);
#pragma GCC unroll 32
    for (int v = 0; v < D / LANES; v++) g[v] = LOAD(from + (int64_t)LANES * v);
    for (next = i + 1; next < u->n && u->key[next] >> u->bits == row; next++) {
      from = u->grad + (u->key[next] & mask) * u->stride;
      prefetch_update(D, u, next + ahead);
#pragma GCC unroll 32
      for (int v = 0; v < D / LANES; v++) g[v] += LOAD(from + (int64_t)LANES * v);
    }
#pragma GCC unroll 32
    for (int v = 0; v < D / LANES; v += 2) {
      even += g[v] * g[v];
      odd += g[v + 1] * g[v + 1];
    }
    squares = even + odd;
    sum = (squares[0] + squares[4]) + (squares[1] + squares[5]) + (squares[2] + squares[6]) +
          (squares[3] + squares[7]);
    u->state[row] += sum / (float)D;
    scale = 0.01f / (sqrtf(u->state[row]) + 1e-8f);
#pragma GCC unroll 32
    for (int v = 0; v < D / LANES; v++)
      *(Vec *)(w + (int64_t)LANES * v) = LOAD(w + (int64_t)LANES * v) - scale * g[v];
  }
}

FMA static void update(int64_t D, const Update *u, int64_t ahead)
{
  if (D == 32) update_dim(32, u, ahead);
  if (D == 64) update_dim(64, u, ahead);
  if (D == 128) update_dim(128, u, ahead);
  if (D == 256) update_dim(256, u, ahead);
}
