/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A cross layer's last product with its element-wise part, in bf16 on tensor cores. A thread block
  computes a tile of u = a b^T. Four warps compute a quarter of it each, from parts of a and b in
  shared memory; copies of the next parts are under way meanwhile. Then the tile's u, rounded to
  bf16, goes to shared memory, and rows of it become rows of u and of y = x0 * (u + bias) + x. Two
  blocks share a multiprocessor, so that one of them multiplies while the other moves its rows.

  y has the bits of cross_forward for the u that is written. Bytes moved: a and b from L2 once for
  each tile, x0, x, u and y once.
*/
#include "gpu/cross_tensor_cuda.h"
#include "gpu/tensor_cuda.h"

enum {
  TRS_CROSS_TILE = 128, /* rows and columns of a block's tile */
  TRS_CROSS_WARP = 64,  /* rows and columns of a warp's quarter */
  TRS_CROSS_DEPTH = 32, /* columns of a and b in a part */
  TRS_CROSS_PARTS = 3,  /* parts in shared memory: one is used, two are under way */
  TRS_CROSS_THREADS = 128,
  TRS_CROSS_PART = 2 * TRS_CROSS_TILE * TRS_CROSS_DEPTH, /* numbers of a part, of a and b */
  /* distance of two rows of u in shared memory, so that eight rows are in different banks */
  TRS_CROSS_PITCH = TRS_CROSS_TILE + 8,
  TRS_CROSS_FLIGHT = 4,                 /* rows that a thread loads before it stores the first */
  TRS_CROSS_LANES = TRS_CROSS_TILE / 8, /* threads that move a row, 16 bytes each */
  TRS_CROSS_ROWS = TRS_CROSS_THREADS / TRS_CROSS_LANES
};
static_assert(TRS_CROSS_TILE * TRS_CROSS_PITCH <= TRS_CROSS_PARTS * TRS_CROSS_PART,
              "the tile of u fits where the parts were");

struct CrossTensor {
  int64_t m, n, k, lda, ldb;
  const Bf16 *a, *b, *x0, *x;
  const float *bias;
  Bf16 *u, *y;
};

/*
  The place of eight numbers in a part's rows of 64 bytes. The rows' groups of 16 bytes are
  exchanged so that eight neighbouring rows have the same group in different banks.
*/
static __device__ __forceinline__ int place_of(int row, int group)
{
  return row * TRS_CROSS_DEPTH + (group ^ (row >> 1 & 3)) * 8;
}

/* The rows of a or b that a thread copies, from the first row of the tile on. */
struct CrossRows {
  enum { EACH = TRS_CROSS_TILE * TRS_CROSS_DEPTH / 8 / TRS_CROSS_THREADS, APART = TRS_CROSS_TILE / EACH };
  const Bf16 *from[EACH];
  __device__ __forceinline__ CrossRows(const Bf16 *matrix, int64_t stride, int64_t first, int64_t rows)
  {
    const int thread = static_cast<int>(threadIdx.x);

#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int64_t row = first + thread / 4 + APART * i;
      /* a valid row in any case; results of other rows are not stored */
      from[i] = matrix + (row < rows ? row : rows - 1) * stride + thread % 4 * 8;
    }
  }
  __device__ __forceinline__ void copy(int64_t column, Bf16 *to) const
  {
    const int thread = static_cast<int>(threadIdx.x);

#pragma unroll
    for (int i = 0; i < EACH; i++)
      start_copy(to + place_of(thread / 4 + APART * i, thread % 4), from[i] + column);
  }
};

/* Add the products of one part to a warp's sums. row and col: first row and column of the warp. */
static __device__ __forceinline__ void multiply_part(const Bf16 *a, const Bf16 *b, int row, int col,
                                                     float sum[TRS_CROSS_WARP / 16][TRS_CROSS_WARP / 8][4])
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

#pragma unroll
  for (int k = 0; k < TRS_CROSS_DEPTH / 8; k += 2) {
    unsigned of_a[TRS_CROSS_WARP / 16][4], of_b[TRS_CROSS_WARP / 16][4];

#pragma unroll
    for (int r = 0; r < TRS_CROSS_WARP / 16; r++)
      load_tiles(a + place_of(row + 16 * r + lane % 16, k + lane / 16), of_a[r]);
#pragma unroll
    for (int c = 0; c < TRS_CROSS_WARP / 16; c++)
      load_tiles(b + place_of(col + 16 * c + lane / 16 * 8 + lane % 8, k + lane / 8 % 2), of_b[c]);
#pragma unroll
    for (int r = 0; r < TRS_CROSS_WARP / 16; r++)
#pragma unroll
      for (int c = 0; c < TRS_CROSS_WARP / 8; c++)
        multiply_tile_bf16(of_a[r], of_b[c / 2] + c % 2 * 2, sum[r][c]);
  }
}

/* y = x0 * (u + bias) + x of eight numbers, as in cross_forward_kernel */
static __device__ __forceinline__ uint4 cross_eight(uint4 x0, uint4 u, const float *bias, uint4 x)
{
  float of_x0[8], of_u[8], of_x[8];
  unsigned word[4];

  widen_eight(x0, of_x0);
  widen_eight(u, of_u);
  widen_eight(x, of_x);
#pragma unroll
  for (int j = 0; j < 8; j++) of_u[j] = of_x0[j] * (of_u[j] + bias[j]) + of_x[j];
  narrow_numbers<8>(of_u, word);
  return uint4{word[0], word[1], word[2], word[3]};
}

/* Write the rows of u and y of a block's tile, whose u is in shared memory. */
static __device__ __forceinline__ void keep_tile(const CrossTensor &s, const Bf16 *tile, int64_t first,
                                                 int64_t first_col)
{
  const int thread = static_cast<int>(threadIdx.x), own = thread % TRS_CROSS_LANES * 8;
  const int64_t col = first_col + own;
  float bias[8];

  if (col >= s.n) return;
  load_floats<8>(s.bias + col, bias);
  for (int i = thread / TRS_CROSS_LANES; i < TRS_CROSS_TILE; i += TRS_CROSS_FLIGHT * TRS_CROSS_ROWS) {
    uint4 x0[TRS_CROSS_FLIGHT], x[TRS_CROSS_FLIGHT];

#pragma unroll
    for (int f = 0; f < TRS_CROSS_FLIGHT; f++) {
      const int64_t row = first + i + f * TRS_CROSS_ROWS, at = (row < s.m ? row : s.m - 1) * s.n + col;

      x0[f] = *reinterpret_cast<const uint4 *>(s.x0 + at);
      x[f] = *reinterpret_cast<const uint4 *>(s.x + at);
    }
#pragma unroll
    for (int f = 0; f < TRS_CROSS_FLIGHT; f++) {
      const int64_t row = first + i + f * TRS_CROSS_ROWS, at = row * s.n + col;
      const uint4 u = *reinterpret_cast<const uint4 *>(tile + (i + f * TRS_CROSS_ROWS) * TRS_CROSS_PITCH +
                                                       own);

      if (row >= s.m) continue;
      __stcs(reinterpret_cast<uint4 *>(s.u + at), u); /* only the backward reads it */
      __stcg(reinterpret_cast<uint4 *>(s.y + at), cross_eight(x0[f], u, bias, x[f]));
    }
  }
}

static __global__ void __launch_bounds__(TRS_CROSS_THREADS, 2) cross_tensor_kernel(CrossTensor s)
{
  CU_DYN_SHARED(Bf16, shared);
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) / 32,
            row = warp / 2 * TRS_CROSS_WARP, col = warp % 2 * TRS_CROSS_WARP,
            parts = static_cast<int>(s.k / TRS_CROSS_DEPTH);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * TRS_CROSS_TILE,
                first_col = static_cast<int64_t>(blockIdx.x) * TRS_CROSS_TILE;
  const CrossRows a(s.a, s.lda, first, s.m), b(s.b, s.ldb, first_col, s.n);
  float sum[TRS_CROSS_WARP / 16][TRS_CROSS_WARP / 8][4] = {};
  int next = 0, used = 0; /* places in shared memory */

  for (; next < TRS_CROSS_PARTS - 1; next++) {
    if (next < parts) {
      a.copy(next * TRS_CROSS_DEPTH, shared + next * TRS_CROSS_PART);
      b.copy(next * TRS_CROSS_DEPTH, shared + next * TRS_CROSS_PART + TRS_CROSS_PART / 2);
    }
    end_copies();
  }
  for (int part = 0; part < parts; part++) {
    const int ahead = part + TRS_CROSS_PARTS - 1;

    wait_for_copies<TRS_CROSS_PARTS - 2>();
    __syncthreads(); /* all copies of this part have arrived, and all have read the previous part */
    if (ahead < parts) {
      a.copy(static_cast<int64_t>(ahead) * TRS_CROSS_DEPTH, shared + next * TRS_CROSS_PART);
      b.copy(static_cast<int64_t>(ahead) * TRS_CROSS_DEPTH,
             shared + next * TRS_CROSS_PART + TRS_CROSS_PART / 2);
    }
    end_copies();
    multiply_part(shared + used * TRS_CROSS_PART, shared + used * TRS_CROSS_PART + TRS_CROSS_PART / 2, row,
                  col, sum);
    next = next + 1 < TRS_CROSS_PARTS ? next + 1 : 0;
    used = used + 1 < TRS_CROSS_PARTS ? used + 1 : 0;
  }
  __syncthreads(); /* wait, because the tile overwrites the parts */
#pragma unroll
  for (int r = 0; r < TRS_CROSS_WARP / 16; r++) {
    unsigned word[TRS_CROSS_WARP / 8][2];

    narrow_numbers<TRS_CROSS_WARP / 2>(sum[r][0], word[0]);
#pragma unroll
    for (int c = 0; c < TRS_CROSS_WARP / 8; c++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        Bf16 *const to = shared + (row + 16 * r + 8 * h + lane / 4) * TRS_CROSS_PITCH + col + 8 * c +
                         lane % 4 * 2;
        *reinterpret_cast<unsigned *>(to) = word[c][h];
      }
  }
  __syncthreads();
  keep_tile(s, shared, first, first_col);
}

bool TrsCrossTakesTensorCores(const TrsCrossProduct *l)
{
  const TrsMatrixProduct *p = &l->product;

  return p->a.type == TRS_BF16 && p->b.type == TRS_BF16 && p->c.type == TRS_BF16 && !p->trans_a &&
         p->trans_b && p->alpha == 1.0f && p->beta == 0.0f && p->m > 0 && p->k > 0 &&
         p->k % TRS_CROSS_DEPTH == 0 && p->k <= INT32_MAX && (p->n | p->a.stride | p->b.stride) % 8 == 0 &&
         p->c.stride == p->n && (p->m + TRS_CROSS_TILE - 1) / TRS_CROSS_TILE <= 65535 &&
         is_wide({p->a.data, p->b.data, p->c.data, l->x0, l->x, l->bias, l->y}, 0);
}

PetscErrorCode TrsCrossTensorForward(TrsStream stream, const TrsCrossProduct *l)
{
  const TrsMatrixProduct *p = &l->product;
  const int64_t tile = TRS_CROSS_TILE;
  const CrossTensor s = {p->m,
                         p->n,
                         p->k,
                         p->a.stride,
                         p->b.stride,
                         static_cast<const Bf16 *>(p->a.data),
                         static_cast<const Bf16 *>(p->b.data),
                         static_cast<const Bf16 *>(l->x0),
                         static_cast<const Bf16 *>(l->x),
                         l->bias,
                         static_cast<Bf16 *>(p->c.data),
                         static_cast<Bf16 *>(l->y)};

  PetscFunctionBegin;
  CU_LAUNCH(
      cross_tensor_kernel,
      dim3(static_cast<unsigned>((p->n + tile - 1) / tile), static_cast<unsigned>((p->m + tile - 1) / tile)),
      TRS_CROSS_THREADS, TRS_CROSS_PARTS * TRS_CROSS_PART * sizeof(Bf16), TrsCudaStream(stream), s);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
