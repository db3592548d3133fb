/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Products of cross layers with the element-wise part that follows, in bf16 on tensor cores. A
  thread block computes a tile of the product. Four warps compute a quarter of it each, from parts
  of both operands in shared memory; copies of the next parts are under way meanwhile. Then the tile
  goes to shared memory, and rows of it become rows of the results. Two blocks share a
  multiprocessor, so that one of them can multiply while the other moves its rows. Two blocks of the
  backward need 141 KB of shared memory.

  The results have the bits of cross_forward and cross_backward for the same rounded product. Only
  the sums of a bias gradient may be added in a different order. Each block reads its part of both
  operands from L2. The other arrays are moved once; the sums of runs are written and read again.
*/
#include "gpu/column_sums_cuda.h"
#include "gpu/cross_tensor_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/tensor_cuda.h"

#include <type_traits>

enum {
  TRS_CROSS_TILE = 128, /* rows and columns of a block's tile */
  TRS_CROSS_WARP = 64,  /* rows and columns of a warp's quarter */
  TRS_CROSS_DEPTH = 32, /* values of k in a part */
  TRS_CROSS_PARTS = 3,  /* parts in shared memory: one is used, two are under way */
  TRS_CROSS_THREADS = 128,
  TRS_CROSS_PART = 2 * TRS_CROSS_TILE * TRS_CROSS_DEPTH, /* numbers of a part, of a and b */
  /* distance of two rows of the tile in shared memory; neighbouring rows use different banks */
  TRS_CROSS_PITCH = TRS_CROSS_TILE + 8,
  /* in a tile of floats, columns 4 to 7 of every eight lie this far behind columns 0 to 3, so that
     neighbouring threads read adjacent 16 bytes */
  TRS_CROSS_APART = TRS_CROSS_TILE / 2 + 4,
  TRS_CROSS_LANES = TRS_CROSS_TILE / 8,                 /* threads that move a row */
  TRS_CROSS_ROWS = TRS_CROSS_THREADS / TRS_CROSS_LANES, /* rows that the threads move at a time */
  /* rows of a run; a run is added first, then the sums of runs. visit_and_sum has these runs for
     multiples of 64 up to 8,192 rows */
  TRS_CROSS_RUN = TRS_SUM_LEAST_ROWS,
  TRS_CROSS_RUNS = TRS_CROSS_TILE / TRS_CROSS_RUN,
  TRS_CROSS_PARTS_BYTES = TRS_CROSS_PARTS * TRS_CROSS_PART * 2,
  TRS_CROSS_FLOATS_BYTES = TRS_CROSS_TILE * TRS_CROSS_PITCH * 4
};
static_assert(TRS_CROSS_TILE * TRS_CROSS_PITCH * 2 <= TRS_CROSS_PARTS_BYTES &&
                  TRS_CROSS_PARTS_BYTES <= TRS_CROSS_FLOATS_BYTES,
              "a tile of bf16 fits where the parts were, and the parts where a tile of floats will be");
static_assert(static_cast<int>(TRS_CROSS_ROWS) == static_cast<int>(TRS_SUM_LANES),
              "the threads add rows as in visit_and_sum");

/* a [m, k] b. b is [n, k] if it is transposed, and [k, n] otherwise. */
struct CrossOperands {
  int64_t m, n, k, lda, ldb;
  const Bf16 *a, *b;
};

/* A lane's part of a warp's sums: [tiles of 16 rows][tiles of 8 columns][numbers]. */
typedef float CrossSums[TRS_CROSS_WARP / 16][TRS_CROSS_WARP / 8][4];

/*
  The place of eight numbers in a part's rows of 64 bytes. The rows' groups of 16 bytes are
  exchanged so that eight neighbouring rows have the same group in different banks.
*/
static __device__ __forceinline__ int place_of(int row, int group)
{
  return row * TRS_CROSS_DEPTH + (group ^ (row >> 1 & 3)) * 8;
}

/* The same for a part of b whose row k has the tile's columns, 256 bytes. */
static __device__ __forceinline__ int place_in_wide(int k, int group)
{
  return k * TRS_CROSS_TILE + (group ^ (k & 7)) * 8;
}

/* A thread's part of a matrix [rows, k]: parts of its rows, from row `first` on. */
struct CrossRows {
  enum { EACH = TRS_CROSS_TILE * TRS_CROSS_DEPTH / 8 / TRS_CROSS_THREADS, APART = TRS_CROSS_TILE / EACH };
  const Bf16 *from[EACH];
  __device__ __forceinline__ CrossRows(const Bf16 *matrix, int64_t stride, int64_t first, int64_t rows)
  {
    const int thread = static_cast<int>(threadIdx.x);

#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int64_t row = first + thread / 4 + APART * i;
      /* behind the last row, the last row is read, and the result is not stored */
      from[i] = matrix + (row < rows ? row : rows - 1) * stride + thread % 4 * 8;
    }
  }
  /* Copy TRS_CROSS_DEPTH columns, from column k on. */
  __device__ __forceinline__ void copy(int64_t k, Bf16 *to) const
  {
    const int thread = static_cast<int>(threadIdx.x);

#pragma unroll
    for (int i = 0; i < EACH; i++) start_copy(to + place_of(thread / 4 + APART * i, thread % 4), from[i] + k);
  }
};

/* A thread's part of a matrix [k, cols]: eight columns of some rows. */
struct CrossColumns {
  enum { EACH = TRS_CROSS_TILE * TRS_CROSS_DEPTH / 8 / TRS_CROSS_THREADS };
  const Bf16 *from;
  int64_t stride;
  __device__ __forceinline__ CrossColumns(const Bf16 *matrix, int64_t its_stride, int64_t first, int64_t cols)
      : stride(its_stride)
  {
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t col = first + thread % TRS_CROSS_LANES * 8;
    /* behind the last column, the last columns are read, and the results are not stored */
    from = matrix + thread / TRS_CROSS_LANES * stride + (col < cols ? col : cols - 8);
  }
  /* Copy TRS_CROSS_DEPTH rows, from row k on. */
  __device__ __forceinline__ void copy(int64_t k, Bf16 *to) const
  {
    const int thread = static_cast<int>(threadIdx.x);

#pragma unroll
    for (int i = 0; i < EACH; i++)
      start_copy(to + place_in_wide(thread / TRS_CROSS_LANES + TRS_CROSS_ROWS * i, thread % TRS_CROSS_LANES),
                 from + (k + TRS_CROSS_ROWS * i) * stride);
  }
};

/*
  Load b's numbers for 16 columns from `col` on, and for 16 values of k. The argument k counts
  groups of eight values.
*/
template <bool TRANS_B>
static __device__ __forceinline__ void load_b(const Bf16 *b, int col, int k, unsigned word[4])
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

  if constexpr (TRANS_B)
    load_tiles(b + place_of(col + lane / 16 * 8 + lane % 8, k + lane / 8 % 2), word);
  else
    load_transposed<4>(b + place_in_wide(8 * (k + lane / 8 % 2) + lane % 8, col / 8 + lane / 16), word);
}

/* Add the products of one part to a warp's sums. row and col: first row and column of the warp. */
template <bool TRANS_B>
static __device__ __forceinline__ void multiply_part(const Bf16 *a, const Bf16 *b, int row, int col,
                                                     CrossSums &sum)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

#pragma unroll
  for (int k = 0; k < TRS_CROSS_DEPTH / 8; k += 2) {
    unsigned of_a[TRS_CROSS_WARP / 16][4], of_b[TRS_CROSS_WARP / 16][4];

#pragma unroll
    for (int r = 0; r < TRS_CROSS_WARP / 16; r++)
      load_tiles(a + place_of(row + 16 * r + lane % 16, k + lane / 16), of_a[r]);
#pragma unroll
    for (int c = 0; c < TRS_CROSS_WARP / 16; c++) load_b<TRANS_B>(b, col + 16 * c, k, of_b[c]);
#pragma unroll
    for (int r = 0; r < TRS_CROSS_WARP / 16; r++)
#pragma unroll
      for (int c = 0; c < TRS_CROSS_WARP / 8; c++)
        multiply_tile_bf16(of_a[r], of_b[c / 2] + c % 2 * 2, sum[r][c]);
  }
}

struct CrossPlace {
  int row, col;             /* first row and column of the warp's quarter in the tile */
  int64_t first, first_col; /* first row and column of the tile in the result */
  __device__ __forceinline__ CrossPlace()
      : row(static_cast<int>(threadIdx.x) / 64 * TRS_CROSS_WARP),
        col(static_cast<int>(threadIdx.x) / 32 % 2 * TRS_CROSS_WARP),
        first(static_cast<int64_t>(blockIdx.y) * TRS_CROSS_TILE),
        first_col(static_cast<int64_t>(blockIdx.x) * TRS_CROSS_TILE)
  {
  }
};

/* Compute a warp's sums. At the end, no thread reads the parts in `shared` any more. */
template <bool TRANS_B>
static __device__ __forceinline__ void multiply_operands(const CrossOperands &s, const CrossPlace &place,
                                                         Bf16 *shared, CrossSums &sum)
{
  const int parts = static_cast<int>(s.k / TRS_CROSS_DEPTH);
  const CrossRows a(s.a, s.lda, place.first, s.m);
  const std::conditional_t<TRANS_B, CrossRows, CrossColumns> b(s.b, s.ldb, place.first_col, s.n);
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
    multiply_part<TRANS_B>(shared + used * TRS_CROSS_PART,
                           shared + used * TRS_CROSS_PART + TRS_CROSS_PART / 2, place.row, place.col, sum);
    next = next + 1 < TRS_CROSS_PARTS ? next + 1 : 0;
    used = used + 1 < TRS_CROSS_PARTS ? used + 1 : 0;
  }
  __syncthreads();
}

/* --- the forward --- */

struct CrossForward {
  CrossOperands product;
  const Bf16 *x0, *x;
  const float *bias;
  Bf16 *u, *y;
};

/* y = x0 * (u + bias) + x for eight numbers, as in cross_forward_kernel */
static __device__ __forceinline__ uint4 cross_eight(uint4 x0, uint4 u, const float *bias, uint4 x)
{
  float of_x0[8], of_u[8], of_x[8];

  widen_eight(x0, of_x0);
  widen_eight(u, of_u);
  widen_eight(x, of_x);
#pragma unroll
  for (int j = 0; j < 8; j++) of_u[j] = of_x0[j] * (of_u[j] + bias[j]) + of_x[j];
  return narrow_eight(of_u);
}

/* Write u and y for a block's tile. `tile` has u in shared memory. */
static __device__ __forceinline__ void keep_outputs(const CrossForward &s, const CrossPlace &place,
                                                    const Bf16 *tile)
{
  enum { FLIGHT = 4 }; /* rows that a thread loads before it stores the first */
  const int thread = static_cast<int>(threadIdx.x), own = thread % TRS_CROSS_LANES * 8;
  const int64_t m = s.product.m, n = s.product.n, col = place.first_col + own;
  float bias[8];

  if (col >= n) return;
  load_floats<8>(s.bias + col, bias);
  for (int i = thread / TRS_CROSS_LANES; i < TRS_CROSS_TILE; i += FLIGHT * TRS_CROSS_ROWS) {
    uint4 x0[FLIGHT], x[FLIGHT];

#pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
      const int64_t row = place.first + i + f * TRS_CROSS_ROWS, at = (row < m ? row : m - 1) * n + col;

      x0[f] = *reinterpret_cast<const uint4 *>(s.x0 + at);
      x[f] = *reinterpret_cast<const uint4 *>(s.x + at);
    }
#pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
      const int64_t row = place.first + i + f * TRS_CROSS_ROWS, at = row * n + col;
      const uint4 u = *reinterpret_cast<const uint4 *>(tile + (i + f * TRS_CROSS_ROWS) * TRS_CROSS_PITCH +
                                                       own);

      if (row >= m) continue;
      __stcs(reinterpret_cast<uint4 *>(s.u + at), u); /* only the backward reads it */
      __stcg(reinterpret_cast<uint4 *>(s.y + at), cross_eight(x0[f], u, bias, x[f]));
    }
  }
}

static __global__ void __launch_bounds__(TRS_CROSS_THREADS, 2) cross_tensor_kernel(CrossForward s)
{
  CU_DYN_SHARED(Bf16, shared);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const CrossPlace place;
  CrossSums sum = {};

  multiply_operands<true>(s.product, place, shared, sum);
#pragma unroll
  for (int r = 0; r < TRS_CROSS_WARP / 16; r++) {
    unsigned word[TRS_CROSS_WARP / 8][2];

    narrow_numbers<TRS_CROSS_WARP / 2>(sum[r][0], word[0]);
#pragma unroll
    for (int c = 0; c < TRS_CROSS_WARP / 8; c++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        Bf16 *const to = shared + (place.row + 16 * r + 8 * h + lane / 4) * TRS_CROSS_PITCH + place.col +
                         8 * c + lane % 4 * 2;
        *reinterpret_cast<unsigned *>(to) = word[c][h];
      }
  }
  __syncthreads();
  keep_outputs(s, place, shared);
}

/* The grid of a product's tiles. */
static dim3 tiles_of(const CrossOperands &s)
{
  const int64_t tile = TRS_CROSS_TILE;

  return dim3(static_cast<unsigned>((s.n + tile - 1) / tile), static_cast<unsigned>((s.m + tile - 1) / tile));
}

static bool takes_operands(TrsMatrix a, TrsMatrix b, int64_t m, int64_t n, int64_t k)
{
  return a.type == TRS_BF16 && b.type == TRS_BF16 && m > 0 && k > 0 && k % TRS_CROSS_DEPTH == 0 &&
         k <= INT32_MAX && (n | a.stride | b.stride) % 8 == 0 &&
         (m + TRS_CROSS_TILE - 1) / TRS_CROSS_TILE <= 65535 && is_wide({a.data, b.data}, 0);
}

static CrossOperands operands_of(TrsMatrix a, TrsMatrix b, int64_t m, int64_t n, int64_t k)
{
  return {m, n, k, a.stride, b.stride, static_cast<const Bf16 *>(a.data), static_cast<const Bf16 *>(b.data)};
}

bool TrsCrossTakesTensorCores(const TrsCrossProduct *l)
{
  const TrsMatrixProduct *p = &l->product;

  return takes_operands(p->a, p->b, p->m, p->n, p->k) && p->c.type == TRS_BF16 && !p->trans_a && p->trans_b &&
         p->alpha == 1.0f && p->beta == 0.0f && p->c.stride == p->n &&
         is_wide({p->c.data, l->x0, l->x, l->bias, l->y}, 0);
}

PetscErrorCode TrsCrossTensorForward(TrsStream stream, const TrsCrossProduct *l)
{
  const TrsMatrixProduct *p = &l->product;
  const CrossForward s = {operands_of(p->a, p->b, p->m, p->n, p->k),
                          static_cast<const Bf16 *>(l->x0),
                          static_cast<const Bf16 *>(l->x),
                          l->bias,
                          static_cast<Bf16 *>(p->c.data),
                          static_cast<Bf16 *>(l->y)};

  PetscFunctionBegin;
  CU_LAUNCH(cross_tensor_kernel, tiles_of(s.product), TRS_CROSS_THREADS, TRS_CROSS_PARTS_BYTES,
            TrsCudaStream(stream), s);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the backward --- */

/*
  The gradient of the upper layer's input is the product plus `added`. It is also g of the lower
  layer, which is layer[KEPT]. KEPT is 0 if the lower layer is kept. Otherwise KEPT layers are above
  it, the total is computed, and layer[KEPT - 1].g is `added`.
*/
template <int KEPT> struct CrossLower {
  CrossOperands product;
  const Bf16 *added, *x0;
  struct {
    const Bf16 *g, *u;
    const float *bias;
  } layer[KEPT + 1];
  Bf16 *dx, *h, *total;
  float *sums; /* [runs, n] */
  unsigned *counters;
  float *grad_bias;
};

/* The numbers that a thread reads for eight columns of a row. */
template <int KEPT> struct CrossRow {
  uint4 added, x0, g[KEPT + 1], u[KEPT + 1];
  __device__ __forceinline__ void load(const CrossLower<KEPT> &s, int64_t at)
  {
    added = *reinterpret_cast<const uint4 *>(s.added + at);
    x0 = *reinterpret_cast<const uint4 *>(s.x0 + at);
#pragma unroll
    for (int k = 0; KEPT && k <= KEPT; k++) {
      if (k < KEPT - 1) g[k] = *reinterpret_cast<const uint4 *>(s.layer[k].g + at);
      u[k] = *reinterpret_cast<const uint4 *>(s.layer[k].u + at);
    }
  }
  /*
    Store the results, and add h to the sums of columns. product: columns 0 to 3 of the row in
    shared memory; columns 4 to 7 are TRS_CROSS_APART behind them.
  */
  __device__ __forceinline__ void use(const CrossLower<KEPT> &s, int64_t at, const float bias[][8],
                                      const float *product, float sum[8]) const
  {
    float value[8], other[8];
    uint4 lower; /* the gradient of the lower layer's output */

    load_floats<4>(product, value);
    load_floats<4>(product + TRS_CROSS_APART, value + 4);
    widen_eight(added, other);
#pragma unroll
    for (int j = 0; j < 8; j++) value[j] = value[j] + other[j];
    lower = narrow_eight(value);
    if (!KEPT) __stcg(reinterpret_cast<uint4 *>(s.dx + at), lower);
    widen_eight(lower, value);
    widen_eight(x0, other);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      other[j] = value[j] * other[j];
      sum[j] = sum[j] + other[j];
    }
    keep_eight(s.h + at, other);
    if (KEPT) {
      float all[8];

#pragma unroll
      for (int k = 0; k <= KEPT; k++) {
        float of_g[8], of_u[8];

        widen_eight(k == KEPT ? lower : k == KEPT - 1 ? added : g[k], of_g);
        widen_eight(u[k], of_u);
#pragma unroll
        for (int j = 0; j < 8; j++)
          all[j] = k ? all[j] + of_g[j] * (of_u[j] + bias[k][j]) : of_g[j] * (of_u[j] + bias[k][j]);
      }
#pragma unroll
      for (int j = 0; j < 8; j++) all[j] = all[j] + value[j];
      keep_eight(s.total + at, all);
    }
  }
};

/* Write h, and dx or the total. Add each column of h over this thread's rows of each run. */
template <int KEPT>
static __device__ __forceinline__ void keep_gradients(const CrossLower<KEPT> &s, const CrossPlace &place,
                                                      const float *tile, float sum[TRS_CROSS_RUNS][8])
{
  enum { FLIGHT = KEPT ? 2 : 4 }; /* rows that a thread loads before it stores the first */
  const int thread = static_cast<int>(threadIdx.x), own = thread % TRS_CROSS_LANES * 8;
  const int64_t m = s.product.m, n = s.product.n, col = place.first_col + own;
  float bias[KEPT + 1][8];

  if (col >= n) return;
#pragma unroll
  for (int k = 0; KEPT && k <= KEPT; k++) load_floats<8>(s.layer[k].bias + col, bias[k]);
#pragma unroll
  for (int run = 0; run < TRS_CROSS_RUNS; run++)
    for (int i = thread / TRS_CROSS_LANES; i < TRS_CROSS_RUN; i += FLIGHT * TRS_CROSS_ROWS) {
      const int first = run * TRS_CROSS_RUN + i; /* in the tile */
      CrossRow<KEPT> from[FLIGHT];

#pragma unroll
      for (int f = 0; f < FLIGHT; f++) {
        const int64_t row = place.first + first + f * TRS_CROSS_ROWS;

        from[f].load(s, (row < m ? row : m - 1) * n + col);
      }
#pragma unroll
      for (int f = 0; f < FLIGHT; f++) {
        const int64_t row = place.first + first + f * TRS_CROSS_ROWS;

        if (row < m)
          from[f].use(s, row * n + col, bias, tile + (first + f * TRS_CROSS_ROWS) * TRS_CROSS_PITCH + own / 2,
                      sum[run]);
      }
    }
}

/* Add the sums of a thread's own column in order. */
static __device__ __forceinline__ float add_column(const float part[][TRS_CROSS_TILE])
{
  float sum = part[0][threadIdx.x];

  for (int i = 1; i < TRS_CROSS_ROWS; i++) sum = sum + part[i][threadIdx.x];
  return sum;
}

/*
  Add the threads' sums of each run. The last block of a column of tiles then adds the runs' sums.
  Both orders are those of visit_kernel. part: shared memory, [TRS_CROSS_ROWS, TRS_CROSS_TILE].
*/
template <int KEPT>
static __device__ __forceinline__ void keep_sums(const CrossLower<KEPT> &s, const CrossPlace &place,
                                                 const float sum[TRS_CROSS_RUNS][8],
                                                 float part[][TRS_CROSS_TILE])
{
  const int thread = static_cast<int>(threadIdx.x), own = thread % TRS_CROSS_LANES * 8,
            lane = thread / TRS_CROSS_LANES;
  const int64_t n = s.product.n, runs = (s.product.m + TRS_CROSS_RUN - 1) / TRS_CROSS_RUN,
                col = place.first_col + thread, from = place.first_col + own;
  float of_runs[8] = {};

#pragma unroll
  for (int run = 0; run < TRS_CROSS_RUNS; run++) {
    const int64_t at = place.first / TRS_CROSS_RUN + run;

    __syncthreads(); /* all threads have read what was here */
    store_floats<8>(&part[lane][own], sum[run]);
    __syncthreads();
    if (at < runs && col < n) __stcg(&s.sums[at * n + col], add_column(part));
  }
  if (!is_last(&s.counters[blockIdx.x], gridDim.y)) return;
  for (int64_t run = lane; run < runs && from < n; run += TRS_CROSS_ROWS) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4 *>(&s.sums[run * n + from + j]));

      of_runs[j] = of_runs[j] + four.x;
      of_runs[j + 1] = of_runs[j + 1] + four.y;
      of_runs[j + 2] = of_runs[j + 2] + four.z;
      of_runs[j + 3] = of_runs[j + 3] + four.w;
    }
  }
  store_floats<8>(&part[lane][own], of_runs);
  __syncthreads();
  if (col < n) s.grad_bias[col] = add_column(part);
}

template <int KEPT>
static __global__ void __launch_bounds__(TRS_CROSS_THREADS, 2) cross_tensor_lower_kernel(CrossLower<KEPT> s)
{
  CU_DYN_SHARED(float, tile);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const CrossPlace place;
  CrossSums sum = {};
  float of_columns[TRS_CROSS_RUNS][8] = {};

  multiply_operands<false>(s.product, place, reinterpret_cast<Bf16 *>(tile), sum);
#pragma unroll
  for (int r = 0; r < TRS_CROSS_WARP / 16; r++)
#pragma unroll
    for (int c = 0; c < TRS_CROSS_WARP / 8; c++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float *const to = tile + (place.row + 16 * r + 8 * h + lane / 4) * TRS_CROSS_PITCH + place.col / 2 +
                          4 * c + lane % 4 / 2 * TRS_CROSS_APART + lane % 2 * 2;
        *reinterpret_cast<float2 *>(to) = make_float2(sum[r][c][2 * h], sum[r][c][2 * h + 1]);
      }
  __syncthreads();
  keep_gradients(s, place, tile, of_columns);
  keep_sums(s, place, of_columns, reinterpret_cast<float(*)[TRS_CROSS_TILE]>(tile));
}

template <int KEPT> static PetscErrorCode lower(TrsStream stream, const TrsCrossInputBackward *l)
{
  const TrsCrossBackward *to = &l->lower;
  const int64_t n = l->n, runs = (l->batch + TRS_CROSS_RUN - 1) / TRS_CROSS_RUN;
  CrossLower<KEPT> s = {};
  void *sums;

  PetscFunctionBegin;
  s.product = operands_of(l->q, l->V, l->batch, n, l->rank);
  s.added = static_cast<const Bf16 *>(l->g.data);
  s.x0 = static_cast<const Bf16 *>(to->x0);
  for (int k = 0; k < KEPT; k++)
    s.layer[k] = {static_cast<const Bf16 *>(to->kept[k].g), static_cast<const Bf16 *>(to->kept[k].u),
                  to->kept[k].bias};
  s.layer[KEPT] = {NULL, static_cast<const Bf16 *>(to->u), to->bias};
  s.dx = static_cast<Bf16 *>(l->dx.data);
  s.h = static_cast<Bf16 *>(to->h);
  s.total = static_cast<Bf16 *>(to->total);
  s.grad_bias = to->grad_bias;
  PetscCall(TrsCudaStreamScratch(stream, runs * n * (int64_t)sizeof(float), &sums));
  PetscCall(TrsCudaStreamCounters(stream, tiles_of(s.product).x, &s.counters));
  s.sums = static_cast<float *>(sums);
  TrsCallCUDA(cudaFuncSetAttribute(cross_tensor_lower_kernel<KEPT>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, TRS_CROSS_FLOATS_BYTES));
  CU_LAUNCH((cross_tensor_lower_kernel<KEPT>), tiles_of(s.product), TRS_CROSS_THREADS, TRS_CROSS_FLOATS_BYTES,
            TrsCudaStream(stream), s);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool TrsCrossLowerTakesTensorCores(const TrsCrossInputBackward *l)
{
  const TrsCrossBackward *to = &l->lower;
  bool wide = is_wide({l->g.data, l->dx.data, to->x0, to->h}, 0);

  for (int k = 0; k < to->n_kept; k++)
    wide = wide && is_wide({to->kept[k].g, to->kept[k].u, to->kept[k].bias}, 0);
  /* the kernel writes h while other blocks read q */
  return wide && takes_operands(l->q, l->V, l->batch, l->n, l->rank) && l->q.data != to->h &&
         l->g.type == TRS_BF16 && l->dx.type == TRS_BF16 && l->g.stride == l->n && l->dx.stride == l->n &&
         (l->place & TRS_CROSS_KEPT || (to->n_kept > 0 && to->kept[to->n_kept - 1].g == l->g.data &&
                                        is_wide({to->u, to->bias, to->total}, 0)));
}

PetscErrorCode TrsCrossTensorLower(TrsStream stream, const TrsCrossInputBackward *l)
{
  PetscFunctionBegin;
  if (l->place & TRS_CROSS_KEPT)
    PetscCall(lower<0>(stream, l));
  else if (l->lower.n_kept == 1)
    PetscCall(lower<1>(stream, l));
  else if (l->lower.n_kept == 2)
    PetscCall(lower<2>(stream, l));
  else
    PetscCall(lower<TRS_CROSS_MOST_KEPT>(stream, l));
  PetscFunctionReturn(PETSC_SUCCESS);
}
