/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The common part of dense_kernels_<isa>.c. These files first define VECTOR, TrsVec,
  BACKWARD_VECTORS, load_lanes(), store_lanes(), stream_vec(), fold(), mul_add(), passes_relu() and
  keep_lanes(). This header defines DENSE_KERNELS. It has no include guard, because each file
  includes it once.

  mul_add() is sum + a * b. If the instruction set can, it rounds only once. It is explicit, because
  compilers fuse some multiplications and additions but not others, so that equal inputs could have
  different results.
*/

#include "cpu/isa/exponential.h"

#include <math.h>

#define LINE 16 /* floats in a cache line */

/*
  Number of vectors in the columns and rows of a tile of products that are computed together, and
  number of gradient rows that are computed together.
*/
enum { TRS_TILE_COLUMNS = 4, TRS_TILE_ROWS = VECTOR / TRS_TILE_COLUMNS, TRS_BACKWARD_ROWS = 6 };

typedef float TrsVecInMemory __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

static inline TrsVec load_vec(const float *p)
{
  return *(const TrsVecInMemory *)p;
}

static inline void store_vec(float *p, TrsVec v)
{
  *(TrsVecInMemory *)p = v;
}

/* Add biases to y. A NaN stays a NaN, as in torch, so that the run notices it. */
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

static void relu_bits(int64_t rows, int64_t cols, const float *y, int64_t y_stride, unsigned char *bits,
                      int64_t row_bytes)
{
  for (int64_t r = 0; r < rows; r++) {
    const float *from = y + r * y_stride;
    unsigned char *to = bits + r * row_bytes;

    for (int64_t c = 0; c < 8 * row_bytes; c += LINE) {
      uint32_t word = 0;

      for (int k = 0; k < LINE && c + k < cols; k += VECTOR) {
        const TrsVec v = c + k + VECTOR <= cols ? load_vec(from + c + k)
                                                : load_lanes(from + c + k, (int)(cols - c) - k);

        word |= passes_relu(v) << k;
      }
      to[c / 8] = (unsigned char)word;
      to[c / 8 + 1] = (unsigned char)(word >> 8);
    }
  }
}

static void mask_by_bits_and_sum(int64_t rows, int64_t cols, const unsigned char *bits, int64_t row_bytes,
                                 float *dy, int64_t dy_stride, float *sum)
{
  const int64_t whole = cols / LINE * LINE;

  for (int64_t c = 0; c < cols; c++) sum[c] = 0.0f;
  for (int64_t r = 0; r < rows; r++) {
    const unsigned char *row = bits + r * row_bytes;
    float *g = dy + r * dy_stride;

    for (int64_t c = 0; c < whole; c += LINE) {
      const uint32_t word = (uint32_t)row[c / 8] | (uint32_t)row[c / 8 + 1] << 8;

      for (int k = 0; k < LINE; k += VECTOR) {
        const TrsVec kept = keep_lanes(load_vec(g + c + k), word >> k);

        store_vec(g + c + k, kept);
        store_vec(sum + c + k, load_vec(sum + c + k) + kept);
      }
    }
    for (int64_t c = whole; c < cols; c++) {
      if (!(row[c / 8] >> c % 8 & 1)) g[c] = 0.0f;
      sum[c] += g[c];
    }
  }
}

static void activate(int64_t n, TrsActivation activation, float *y)
{
  switch (activation) {
  case TRS_ACTIVATION_NONE: break;
  case TRS_ACTIVATION_RELU:
    for (int64_t i = 0; i < n; i++) y[i] = y[i] <= 0.0f ? 0.0f : y[i]; /* a NaN stays a NaN */
    break;
  case TRS_ACTIVATION_SIGMOID:
    for (int64_t i = 0; i < n; i++) y[i] = TrsSigmoid(y[i]);
    break;
  case TRS_ACTIVATION_TANH:
    for (int64_t i = 0; i < n; i++) y[i] = TrsTanh(y[i]);
    break;
  }
}

static void activate_backward(int64_t n, TrsActivation activation, const float *restrict y,
                              float *restrict dy)
{
  switch (activation) {
  case TRS_ACTIVATION_NONE: break;
  case TRS_ACTIVATION_RELU:
    for (int64_t i = 0; i < n; i++) dy[i] = y[i] <= 0.0f ? 0.0f : dy[i];
    break;
  case TRS_ACTIVATION_SIGMOID:
    for (int64_t i = 0; i < n; i++) dy[i] *= y[i] * (1.0f - y[i]);
    break;
  case TRS_ACTIVATION_TANH:
    for (int64_t i = 0; i < n; i++) dy[i] *= 1.0f - y[i] * y[i];
    break;
  }
}

static void exponentials(int64_t n, float *x)
{
  for (int64_t i = 0; i < n; i++) x[i] = TrsExp(x[i]);
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

/*
  Return the offset of row i in the products: the product of x_i and x_j, i < j, is at index
  triangle_row(n, i) + j.
*/
static inline int64_t triangle_row(int n, int64_t i)
{
  return i * (n - 1) - i * (i - 1) / 2 - i - 1;
}

/*
  Add to a tile's sums the products of VECTOR elements; if lanes > 0, of only the first `lanes`
  elements. `rows` and `columns` are the tile's first vectors.
*/
static inline __attribute__((always_inline)) void add_to_tile(int lanes, int64_t D, const float *rows,
                                                              const float *columns, TrsVec *sum)
{
  TrsVec b[TRS_TILE_COLUMNS];

#pragma GCC unroll 4
  for (int c = 0; c < TRS_TILE_COLUMNS; c++)
    b[c] = lanes ? load_lanes(columns + c * D, lanes) : load_vec(columns + c * D);
#pragma GCC unroll 4
  for (int r = 0; r < TRS_TILE_ROWS; r++) {
    const TrsVec a = lanes ? load_lanes(rows + r * D, lanes) : load_vec(rows + r * D);

#pragma GCC unroll 4
    for (int c = 0; c < TRS_TILE_COLUMNS; c++) {
      const int k = r * TRS_TILE_COLUMNS + c;

      sum[k] = mul_add(a, b[c], sum[k]);
    }
  }
}

/* Compute a tile: the dot products of TRS_TILE_ROWS vectors with TRS_TILE_COLUMNS vectors. */
static inline __attribute__((always_inline)) TrsVec tile_of(int D, const float *rows, const float *columns)
{
  TrsVec sum[VECTOR];
  int d = 0;

#pragma GCC unroll 16
  for (int k = 0; k < VECTOR; k++) sum[k] = (TrsVec){0.0f};
  for (; d + VECTOR <= D; d += VECTOR) add_to_tile(0, D, rows + d, columns + d, sum);
  if (d < D) add_to_tile(D - d, D, rows + d, columns + d, sum);
  return fold(sum);
}

/* Load n_vectors vectors. If lanes > 0, load only the first `lanes` lanes of the last vector. */
static inline __attribute__((always_inline)) void load_row(const int n_vectors, int lanes, const float *from,
                                                           TrsVec *to)
{
  for (int v = 0; v < n_vectors; v++, from += VECTOR)
    to[v] = lanes && v == n_vectors - 1 ? load_lanes(from, lanes) : load_vec(from);
}

static void collect(int n, int D, const TrsVectorPlace *places, int64_t sample, float *to)
{
  for (int v = 0; v < n; v++, to += D) {
    const float *from = (const float *)places[v].data + sample * places[v].stride,
                *next = from + places[v].stride;
    int d = 0;

    for (; d + LINE <= D; d += LINE) {
      __builtin_prefetch(next + d);
      for (int k = 0; k < LINE; k += VECTOR) store_vec(to + d + k, load_vec(from + d + k));
    }
    if (d < D) __builtin_prefetch(next + d);
    for (; d < D; d++) to[d] = from[d];
  }
}

/* Compute the products if there are fewer vectors than a tile has columns. */
static void dot_forward_few(int n, int D, const float *x, float *products)
{
  TrsVec sum[VECTOR] = {{0.0f}};
  int n_sums = 0;

  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++, n_sums++) {
      const float *a = x + (int64_t)i * D, *b = x + (int64_t)j * D;
      int d = 0;

      for (; d + VECTOR <= D; d += VECTOR)
        sum[n_sums] = mul_add(load_vec(a + d), load_vec(b + d), sum[n_sums]);
      if (d < D) sum[n_sums] = mul_add(load_lanes(a + d, D - d), load_lanes(b + d, D - d), sum[n_sums]);
    }
  if (n_sums) store_lanes(products, fold(sum), n_sums);
}

/*
  Compute the triangle of products in tiles. At the edges of the triangle, tiles overlap and compute
  the same products twice, with the same bits. On the diagonal they also compute products that are
  not used.
*/
static inline __attribute__((always_inline)) void dot_forward_of(const int D, int n, const float *x,
                                                                 float *products)
{
  _Alignas(4 * VECTOR) float tile[TRS_TILE_ROWS][TRS_TILE_COLUMNS];

  for (int next = 0; next < n - 1; next += TRS_TILE_ROWS) {
    const int i = PetscMin(next, n - TRS_TILE_ROWS);
    float *to[TRS_TILE_ROWS];

    for (int r = 0; r < TRS_TILE_ROWS; r++) to[r] = products + triangle_row(n, i + r);
    for (int after = i + 1; after < n; after += TRS_TILE_COLUMNS) {
      const int j = PetscMin(after, n - TRS_TILE_COLUMNS);

      store_vec(tile[0], tile_of(D, x + (int64_t)i * D, x + (int64_t)j * D));
      if (j >= i + TRS_TILE_ROWS)
        for (int r = 0; r < TRS_TILE_ROWS; r++) memcpy(to[r] + j, tile[r], sizeof(tile[r]));
      else
        for (int r = 0; r < TRS_TILE_ROWS; r++)
          for (int c = PetscMax(0, i + r + 1 - j); c < TRS_TILE_COLUMNS; c++) to[r][j + c] = tile[r][c];
    }
  }
}

static void dot_forward(int n, int D, const float *x, float *products)
{
  if (n < TRS_TILE_COLUMNS) {
    dot_forward_few(n, D, x, products);
    return;
  }
  switch (D) {
  case 16: dot_forward_of(16, n, x, products); break;
  case 32: dot_forward_of(32, n, x, products); break;
  case 64: dot_forward_of(64, n, x, products); break;
  case 128: dot_forward_of(128, n, x, products); break;
  default: dot_forward_of(D, n, x, products);
  }
}

static inline __attribute__((always_inline)) void add_scaled(const int n_vectors, float g, const TrsVec *b,
                                                             TrsVec *sum)
{
  /* subtracting zeros copies g to all lanes */
  for (int v = 0; v < n_vectors; v++) sum[v] = mul_add(g - (TrsVec){0.0f}, b[v], sum[v]);
}

/* The arguments of dot_backward(). */
typedef struct {
  int n, D, past_cache;
  const float *x, *copy, *dproducts;
  float *dx;
  const TrsVectorPlace *places;
  int64_t sample;
} TrsDotGradient;

/* Return the address of the gradient of vector v. */
static inline float *gradient_row(const TrsDotGradient *g, int64_t v)
{
  return g->dx ? g->dx + v * g->D : (float *)g->places[v].data + g->sample * g->places[v].stride;
}

/*
  Return an address for row i: upper(i)[j] is the gradient of x_i . x_j for i < j. Row i would begin
  at this address if the triangle were a full matrix.
*/
static inline const float *upper(const TrsDotGradient *g, int64_t i)
{
  return g->dproducts + triangle_row(g->n, i);
}

/*
  Compute a block of dx that begins at row i0 and column c0. The block has n_rows rows of n_vectors
  vectors. If lanes > 0, it has only the first `lanes` lanes of one vector.
*/
static inline __attribute__((always_inline)) void gradient_block(const int n_rows, const int n_vectors,
                                                                 int lanes, const TrsDotGradient *gradient,
                                                                 int i0, int c0)
{
  const int n = gradient->n, D = gradient->D, n_lines = gradient->dx ? n_rows * n_vectors * VECTOR / LINE : 0;
  const float *above = upper(gradient, 0) + i0, *xj = gradient->x + c0;
  const float *next = gradient->x + (int64_t)(n + i0) * D +
                      /* this block's share of the next sample, which is prefetched */
                      (int64_t)n_rows * c0;
  TrsVec sum[TRS_BACKWARD_ROWS][BACKWARD_VECTORS], b[BACKWARD_VECTORS];
  const float *row[TRS_BACKWARD_ROWS];
  int j = 0;

  for (int k = 0; k < n_rows; k++) {
    row[k] = upper(gradient, i0 + k);
    for (int v = 0; v < n_vectors; v++) sum[k][v] = (TrsVec){0.0f};
  }
  for (; j < i0; j++, xj += D) {
    if (j < n_lines) __builtin_prefetch(next + (int64_t)j * LINE);
    load_row(n_vectors, lanes, xj, b);
    for (int k = 0; k < n_rows; k++) add_scaled(n_vectors, above[k], b, sum[k]);
    above += n - 2 - j;
  }
  for (; j < i0 + n_rows; j++, xj += D) {
    if (j < n_lines) __builtin_prefetch(next + (int64_t)j * LINE);
    load_row(n_vectors, lanes, xj, b);
    for (int k = 0; k < n_rows; k++)
      add_scaled(n_vectors, j == i0 + k ? 0.0f : j < i0 + k ? above[k] : row[k][j], b, sum[k]);
    above += n - 2 - j;
  }
  for (; j < n; j++, xj += D) {
    if (j < n_lines) __builtin_prefetch(next + (int64_t)j * LINE);
    load_row(n_vectors, lanes, xj, b);
    for (int k = 0; k < n_rows; k++) add_scaled(n_vectors, row[k][j], b, sum[k]);
  }
  if (gradient->copy && i0 == 0) {
    load_row(n_vectors, lanes, gradient->copy + c0, b);
    add_scaled(n_vectors, 1.0f, b, sum[0]);
  }
  for (int k = 0; k < n_rows; k++) {
    float *p = gradient_row(gradient, i0 + k) + c0;

    for (int v = 0; v < n_vectors; v++, p += VECTOR) {
      if (lanes)
        store_lanes(p, sum[k][v], lanes);
      else if (gradient->past_cache)
        stream_vec(p, sum[k][v]);
      else
        store_vec(p, sum[k][v]);
    }
  }
}

/*
  Compute all columns of n_rows rows: first as many vectors at a time as fit the registers, then
  single vectors, then the rest of a vector.
*/
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

static void dot_backward(int n, int D, const float *x, const float *copy, const float *dproducts,
                         int past_cache, float *dx, const TrsVectorPlace *places, int64_t sample)
{
  TrsDotGradient gradient = {.n = n,
                             .D = D,
                             .past_cache = past_cache,
                             .x = x,
                             .copy = copy,
                             .dproducts = dproducts,
                             .places = places,
                             .sample = sample};
  int i = 0;

  gradient.dx = dx;
  for (; i + TRS_BACKWARD_ROWS <= n; i += TRS_BACKWARD_ROWS) gradient_rows(TRS_BACKWARD_ROWS, &gradient, i);
  for (; i + 3 <= n; i += 3) gradient_rows(3, &gradient, i);
  for (; i < n; i++) gradient_rows(1, &gradient, i);
}

/* --- attention --- */

#include "cpu/isa/attention_template.h"

/* --- optimizers --- */

/* Clamp g to [-limit, limit]. A NaN stays a NaN. */
static inline float clamped(float g, float limit)
{
  return g > limit ? limit : g < -limit ? -limit : g;
}

static void update(int64_t n, const TrsDenseOptimizerArgs *args, float bias_correction1,
                   float bias_correction2, const float *restrict grad, float *restrict weight,
                   float *restrict state1, float *restrict state2)
{
  const float lr = args->learning_rate, eps = args->eps, decay = args->weight_decay, scale = args->grad_scale;
  const float b1 = (float)args->beta1, b2 = (float)args->beta2, adam_lr = lr / bias_correction1,
              root = sqrtf(bias_correction2);
  const float rest1 = (float)(1.0 - args->beta1), rest2 = (float)(1.0 - args->beta2);
  const float kept = (float)(1.0 - (double)lr * (double)decay);
  const float limit = args->max_value > 0.0f ? args->max_value : INFINITY;

  switch (args->kind) {
  case TRS_DENSE_SGD:
    for (int64_t i = 0; i < n; i++) weight[i] -= lr * (clamped(grad[i] * scale, limit) + decay * weight[i]);
    break;
  case TRS_DENSE_ADAGRAD:
    for (int64_t i = 0; i < n; i++) {
      const float g = clamped(grad[i] * scale, limit) + decay * weight[i];

      state1[i] += g * g;
      weight[i] -= lr * g / (sqrtf(state1[i]) + eps);
    }
    break;
  case TRS_DENSE_ADAM:
    for (int64_t i = 0; i < n; i++) {
      const float g = clamped(grad[i] * scale, limit) + decay * weight[i];

      state1[i] = b1 * state1[i] + rest1 * g;
      state2[i] = b2 * state2[i] + rest2 * g * g;
      weight[i] -= adam_lr * state1[i] / (sqrtf(state2[i]) / root + eps);
    }
    break;
  case TRS_DENSE_ADAMW:
    for (int64_t i = 0; i < n; i++) {
      const float g = clamped(grad[i] * scale, limit);

      state1[i] = b1 * state1[i] + rest1 * g;
      state2[i] = b2 * state2[i] + rest2 * g * g;
      weight[i] = kept * weight[i] - adam_lr * state1[i] / (sqrtf(state2[i]) / root + eps);
    }
    break;
  case TRS_DENSE_LAMB: /* lamb_apply() changes the weights */
    for (int64_t i = 0; i < n; i++) {
      const float g = clamped(grad[i] * scale, limit);

      state1[i] = b1 * state1[i] + rest1 * g;
      state2[i] = b2 * state2[i] + rest2 * g * g;
    }
    break;
  }
}

#define DENSE_KERNELS \
  { \
    .add_bias = add_bias, .mask_and_sum = mask_and_sum, .relu_bits = relu_bits, \
    .mask_by_bits_and_sum = mask_by_bits_and_sum, .activate = activate, \
    .activate_backward = activate_backward, .exponentials = exponentials, .cross_forward = cross_forward, \
    .cross_backward = cross_backward, .collect = collect, .dot_forward = dot_forward, \
    .dot_backward = dot_backward, .attend = attend, .attend_backward = attend_backward, .update = update \
  }
