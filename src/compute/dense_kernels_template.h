/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The text of dense_kernels_<isa>.c, which define before: VECTOR, TrsVec, FORWARD_ROWS, BACKWARD_VECTORS, load_lanes(), store_lanes(),
  transpose(). Defines DENSE_KERNELS. No include guard: each of those files takes it once.
*/

#include <math.h>

enum {
  TRS_TILE_COLUMNS = 2 * VECTOR, /* of products */
  TRS_TILE_DEPTH = 256, /* columns of x in one pass: a transposed tile stays in the first-level cache */
  TRS_BACKWARD_ROWS = 6
};

typedef float TrsVecInMemory __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

static inline TrsVec load_vec(const float *p)
{
  return *(const TrsVecInMemory *)p;
}

static inline void store_vec(float *p, TrsVec v)
{
  *(TrsVecInMemory *)p = v;
}

/* A NaN stays one, as with torch: a run must notice it. */
static void add_bias(int64_t rows, int64_t cols, const float *restrict bias, int relu, float *y,
                     int64_t y_stride)
{
  for (int64_t r = 0; r < rows; r++) {
    float *restrict to = y + r * y_stride;

    if (relu) {
      for (int64_t c = 0; c < cols; c++) {
        const float z = to[c] + bias[c];

        to[c] = z <= 0.0f ? 0.0f : z;
      }
    } else {
      for (int64_t c = 0; c < cols; c++) to[c] += bias[c];
    }
  }
}

static void mask_and_sum(int64_t rows, int64_t cols, const float *y, int64_t y_stride, float *dy,
                         int64_t dy_stride, float *restrict sum)
{
  for (int64_t c = 0; c < cols; c++) sum[c] = 0.0f;
  for (int64_t r = 0; r < rows; r++) {
    float *restrict g = dy + r * dy_stride;

    if (y) {
      const float *restrict a = y + r * y_stride;

      for (int64_t c = 0; c < cols; c++) {
        g[c] = a[c] <= 0.0f ? 0.0f : g[c];
        sum[c] += g[c];
      }
    } else {
      for (int64_t c = 0; c < cols; c++) sum[c] += g[c];
    }
  }
}

static void cross_forward(int64_t n, const float *restrict x0, const float *restrict u,
                          const float *restrict bias, const float *restrict x, float *restrict y)
{
  for (int64_t i = 0; i < n; i++) y[i] = x0[i] * (u[i] + bias[i]) + x[i];
}

static void cross_backward(int64_t rows, int64_t cols, int64_t n, const float *restrict x0,
                           const float *restrict u, const float *restrict bias, const float *restrict g,
                           float *restrict dx0, float *restrict h, float *restrict sum)
{
  for (int64_t c = 0; c < cols; c++) sum[c] = 0.0f;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c++) {
      const int64_t i = r * n + c;

      dx0[i] += g[i] * (u[i] + bias[c]);
      h[i] = g[i] * x0[i];
      sum[c] += h[i];
    }
  }
}

/* --- dot interaction --- */

/* to [depth, TRS_TILE_COLUMNS] = transposed columns [d0, d0 + depth) of rows j0 .. j0 + TRS_TILE_COLUMNS - 1 of x, zeros beyond row n. */
static void transpose_tile(int n, int D, const float *x, int j0, int d0, int depth, float *to)
{
  static const float zeros[TRS_TILE_DEPTH];

  for (int half = 0; half < TRS_TILE_COLUMNS; half += VECTOR) {
    const float *row[VECTOR];
    int d = 0;

    for (int i = 0; i < VECTOR; i++)
      row[i] = j0 + half + i < n ? x + (int64_t)(j0 + half + i) * D + d0 : zeros;
    for (; d + VECTOR <= depth; d += VECTOR) {
      transpose(row, to + (int64_t)d * TRS_TILE_COLUMNS + half, TRS_TILE_COLUMNS);
      for (int i = 0; i < VECTOR; i++) row[i] += VECTOR;
    }
    for (int rest = 0; d < depth; d++, rest++)
      for (int i = 0; i < VECTOR; i++) to[(int64_t)d * TRS_TILE_COLUMNS + half + i] = row[i][rest];
  }
}

/*
  Products of rows i0 .. i0 + FORWARD_ROWS - 1 (those that exist) with the columns j0 .. j0 + TRS_TILE_COLUMNS - 1 right of the diagonal, from the
  transposed tile; added to what is there unless first. first_vector 1: the tile's left half lies left of the diagonal.
*/
static inline __attribute__((always_inline)) void products_block(const int first_vector, int n, int D,
                                                                 const float *x, int i0, int j0, int depth,
                                                                 const float *restrict tile, int first,
                                                                 float *restrict products)
{
  const float *row[FORWARD_ROWS];
  TrsVec sum[FORWARD_ROWS][2];

  for (int k = 0; k < FORWARD_ROWS; k++) {
    row[k] = x + (int64_t)(i0 + k < n ? i0 + k : n - 1) * D;
    for (int v = first_vector; v < 2; v++) sum[k][v] = (TrsVec){0.0f};
  }
  for (int d = 0; d < depth; d++) {
    TrsVec b[2];

    for (int v = first_vector; v < 2; v++)
      b[v] = load_vec(tile + (int64_t)d * TRS_TILE_COLUMNS + (int64_t)v * VECTOR);
    for (int k = 0; k < FORWARD_ROWS; k++)
      for (int v = first_vector; v < 2; v++) sum[k][v] += row[k][d] * b[v];
  }
  for (int k = 0; k < FORWARD_ROWS && i0 + k < n - 1; k++) {
    const int64_t i = i0 + k, before = i * (n - 1) - i * (i - 1) / 2; /* products of the rows above */

    for (int v = first_vector; v < 2; v++) {
      const int64_t j = j0 + v * VECTOR;
      const int begin = i + 1 > j ? (int)(i + 1 - j) : 0, end = n - j < VECTOR ? (int)(n - j) : VECTOR;
      float *p = products + (before + j - i - 1);

      if (begin >= end) continue;
      if (!first) sum[k][v] += load_lanes(p, begin, end);
      store_lanes(p, sum[k][v], begin, end);
    }
  }
}

static void dot_forward(int n, int D, const float *x, float *products)
{
  float tile[TRS_TILE_DEPTH * TRS_TILE_COLUMNS] __attribute__((aligned(64)));

  for (int d0 = 0; d0 < D; d0 += TRS_TILE_DEPTH) {
    const int depth = D - d0 < TRS_TILE_DEPTH ? D - d0 : TRS_TILE_DEPTH;

    for (int j0 = 0; j0 < n; j0 += TRS_TILE_COLUMNS) {
      transpose_tile(n, D, x, j0, d0, depth, tile);
      for (int i0 = 0; i0 < n - 1 && i0 < j0 + TRS_TILE_COLUMNS - 1; i0 += FORWARD_ROWS) {
        if (j0 + VECTOR - 1 <= i0)
          products_block(1, n, D, x + d0, i0, j0, depth, tile, d0 == 0, products);
        else
          products_block(0, n, D, x + d0, i0, j0, depth, tile, d0 == 0, products);
      }
    }
  }
}

/* One sample: dx [n, D] from x [n, D] and the gradients of its products. */
typedef struct {
  int n, D;
  const float *x, *dproducts;
  float *dx;
} TrsDotGradient;

/* The gradient of x_i . x_j, i < j, stands at upper(i)[j]: where row i of the triangle would begin if it were a full one. */
static inline const float *upper(const TrsDotGradient *g, int64_t i)
{
  return g->dproducts + (i * (g->n - 1) - i * (i - 1) / 2 - i - 1);
}

/* Columns c0 .. of rows i0 .. i0 + n_rows - 1 of dx: n_vectors full ones, or (lanes > 0, n_vectors 1) the first lanes of one. */
static inline __attribute__((always_inline)) void gradient_block(const int n_rows, const int n_vectors,
                                                                 int lanes, const TrsDotGradient *gradient,
                                                                 int i0, int c0)
{
  const int n = gradient->n, D = gradient->D, masked = lanes > 0;
  TrsVec sum[TRS_BACKWARD_ROWS][BACKWARD_VECTORS];
  const float *row[TRS_BACKWARD_ROWS];

  for (int k = 0; k < n_rows; k++) {
    row[k] = upper(gradient, i0 + k);
    for (int v = 0; v < n_vectors; v++) sum[k][v] = (TrsVec){0.0f};
  }
  for (int j = 0; j < n; j++) {
    const float *above = upper(gradient, j) + i0; /* with rows i0 .. below j */
    const float *xj = gradient->x + (int64_t)j * D + c0;
    TrsVec b[BACKWARD_VECTORS];

    for (int v = 0; v < n_vectors; v++)
      b[v] = masked ? load_lanes(xj, 0, lanes) : load_vec(xj + (int64_t)v * VECTOR);
    if (j < i0) {
      for (int k = 0; k < n_rows; k++)
        for (int v = 0; v < n_vectors; v++) sum[k][v] += above[k] * b[v];
    } else if (j >= i0 + n_rows) {
      for (int k = 0; k < n_rows; k++)
        for (int v = 0; v < n_vectors; v++) sum[k][v] += row[k][j] * b[v];
    } else {
      for (int k = 0; k < n_rows; k++) {
        const float g = j == i0 + k ? 0.0f : j < i0 + k ? above[k] : row[k][j];

        for (int v = 0; v < n_vectors; v++) sum[k][v] += g * b[v];
      }
    }
  }
  for (int k = 0; k < n_rows; k++) {
    float *p = gradient->dx + (int64_t)(i0 + k) * D + c0;

    for (int v = 0; v < n_vectors; v++) {
      if (masked)
        store_lanes(p, sum[k][v], 0, lanes);
      else
        store_vec(p + (int64_t)v * VECTOR, sum[k][v]);
    }
  }
}

/* All columns of n_rows rows: as many vectors at once as registers hold, then one, then the rest of one. */
static inline __attribute__((always_inline)) void gradient_rows(const int n_rows,
                                                                const TrsDotGradient *gradient, int i0)
{
  const int D = gradient->D;
  int c = 0;

  for (; c + BACKWARD_VECTORS * VECTOR <= D; c += BACKWARD_VECTORS * VECTOR)
    gradient_block(n_rows, BACKWARD_VECTORS, 0, gradient, i0, c);
  for (; c + VECTOR <= D; c += VECTOR) gradient_block(n_rows, 1, 0, gradient, i0, c);
  if (c < D) gradient_block(n_rows, 1, D - c, gradient, i0, c);
}

static void dot_backward(int n, int D, const float *x, const float *dproducts, float *dx)
{
  TrsDotGradient gradient = {.n = n, .D = D, .x = x, .dproducts = dproducts};
  int i = 0;

  gradient.dx = dx;
  for (; i + TRS_BACKWARD_ROWS <= n; i += TRS_BACKWARD_ROWS) gradient_rows(TRS_BACKWARD_ROWS, &gradient, i);
  for (; i + 3 <= n; i += 3) gradient_rows(3, &gradient, i);
  for (; i < n; i++) gradient_rows(1, &gradient, i);
}

/* --- optimizers --- */

static void update(int64_t n, const TrsDenseOptimizerArgs *args, float bias_correction1,
                   float bias_correction2, const float *restrict grad, float *restrict weight,
                   float *restrict state1, float *restrict state2)
{
  const float lr = args->learning_rate, eps = args->eps, decay = args->weight_decay, scale = args->grad_scale;
  const float b1 = (float)args->beta1, b2 = (float)args->beta2, adam_lr = lr / bias_correction1,
              root = sqrtf(bias_correction2);
  const float rest1 = (float)(1.0 - args->beta1), rest2 = (float)(1.0 - args->beta2);

  switch (args->kind) {
  case TRS_DENSE_SGD:
    for (int64_t i = 0; i < n; i++) weight[i] -= lr * (grad[i] * scale + decay * weight[i]);
    break;
  case TRS_DENSE_ADAGRAD:
    for (int64_t i = 0; i < n; i++) {
      const float g = grad[i] * scale + decay * weight[i];

      state1[i] += g * g;
      weight[i] -= lr * g / (sqrtf(state1[i]) + eps);
    }
    break;
  case TRS_DENSE_ADAM:
    for (int64_t i = 0; i < n; i++) {
      const float g = grad[i] * scale + decay * weight[i];

      state1[i] = b1 * state1[i] + rest1 * g;
      state2[i] = b2 * state2[i] + rest2 * g * g;
      weight[i] -= adam_lr * state1[i] / (sqrtf(state2[i]) / root + eps);
    }
    break;
  }
}

#define DENSE_KERNELS \
  { \
    .add_bias = add_bias, .mask_and_sum = mask_and_sum, .cross_forward = cross_forward, \
    .cross_backward = cross_backward, .dot_forward = dot_forward, .dot_backward = dot_backward, \
    .update = update \
  }
