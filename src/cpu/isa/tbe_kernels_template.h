/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The common part of tbe_kernels_<isa>.c. These files first define Part (a register of PART floats),
  widen_fp16() and widen_bf16(), which return a Part, and MAX_REGISTER_COLUMNS, the largest number
  of fp32 sums in registers. This header defines TBE_KERNELS. It has no include guard, because each
  file includes it once.

  If a row's width is known at compile time, its sums stay in registers, which is 1.7 times as fast
  as a loop over a width that is known only at run time. Sums over columns always have 16 lanes,
  which are added by halves. So all instruction sets with fused multiply-add have the same results,
  bit for bit.
*/

#include "compute/cache.h"
#include "cpu/fetch_ahead.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LANES         16

typedef float TrsPartInMemory __attribute__((vector_size(4 * PART), aligned(4), may_alias));

ALWAYS_INLINE Part load(const float *p)
{
  return *(const TrsPartInMemory *)p;
}

ALWAYS_INLINE void store(float *p, Part x)
{
  *(TrsPartInMemory *)p = x;
}

ALWAYS_INLINE const char *row_at(const TrsTbeTable *table, TrsDType dtype, int64_t row)
{
  return (const char *)table->weight + row * table->stride * (dtype == TRS_FP32 ? 4 : 2);
}

/*
  Return the address of the row of value i, which must be a row of the table. If `cached` is set,
  the table's rows may be in cache lines.
*/
ALWAYS_INLINE const char *row_of_value(const TrsTbeTable *table, TrsDType dtype, const TrsTbeInput *input,
                                       int64_t i, const int cached)
{
  return (const char *)TrsCacheRow(table, input->values[i], cached ? input->locations[i] : -1,
                                   dtype == TRS_FP32 ? 4 : 2);
}

ALWAYS_INLINE void prefetch_bytes(const void *from, int bytes)
{
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)from + at);
}

/*
  Prefetch the lines of a row at the bytes first, first + step, ... Prefetching the address of a bad
  id does no harm.
*/
ALWAYS_INLINE void prefetch_row(const TrsTbeTable *table, TrsDType dtype, int64_t row, int first, int step,
                                int D)
{
  const int element = dtype == TRS_FP32 ? 4 : 2;
  const char *from = (const char *)table->weight + (uint64_t)row * (uint64_t)(table->stride * element);

  for (int at = first; at < D * element; at += step) __builtin_prefetch(from + at);
}

/*
  Prefetch rows of values after value i and before value `last`. Many processors load the other line
  of a pair into the second-level cache without a request. So for rows of up to four lines, the
  second line of each pair is prefetched late: its prefetch then uses one of the few miss buffers
  only for a short time. For longer rows this has no advantage.
*/
ALWAYS_INLINE void prefetch_ahead(const TrsTbeTable *table, TrsDType dtype, const int64_t *values, int64_t i,
                                  int64_t last, int D)
{
  const int64_t far = i + TrsIdsAhead(4 * D), near = i + TRS_IDS_NEAR;
  const int bytes = D * (dtype == TRS_FP32 ? 4 : 2), in_pairs = bytes <= 256;

  if (far < last) prefetch_row(table, dtype, values[far], 0, in_pairs ? 128 : 64, D);
  if (in_pairs && near < last) prefetch_row(table, dtype, values[near], 64, 128, D);
}

/* Load columns [PART * p, PART * (p + 1)) of a row as floats. */
ALWAYS_INLINE Part load_part(const char *row, TrsDType dtype, int p)
{
  if (dtype == TRS_FP16) return widen_fp16((const uint16_t *)(const void *)row + (int64_t)p * PART);
  if (dtype == TRS_BF16) return widen_bf16((const uint16_t *)(const void *)row + (int64_t)p * PART);
  return load((const float *)(const void *)row + (int64_t)p * PART);
}

ALWAYS_INLINE float load_column(const char *row, TrsDType dtype, int d)
{
  if (dtype == TRS_FP16) return TrsHalfToFloat(((const uint16_t *)(const void *)row)[d]);
  if (dtype == TRS_BF16) return TrsBf16ToFloat(((const uint16_t *)(const void *)row)[d]);
  return ((const float *)(const void *)row)[d];
}

/* --- forward --- */

/*
  Pool one bag of a table whose width is a multiple of 16 that is known at compile time. The sum
  stays in registers.
*/
ALWAYS_INLINE void forward_bag(const TrsTbeTable *table, TrsDType dtype, const int D,
                               const TrsTbeInput *input, int weighted, int64_t bag, int64_t last, int mean,
                               float *out)
{
  const int64_t begin = input->offsets[bag], end = input->offsets[bag + 1];
  Part sum[MAX_REGISTER_COLUMNS / PART];

  for (int p = 0; p < D / PART; p++) sum[p] = (Part){0};
  for (int64_t i = begin; i < end; i++) {
    const int64_t id = input->values[i];
    prefetch_ahead(table, dtype, input->values, i, last, D);
    if ((uint64_t)id >= (uint64_t)table->rows) continue;
    const char *row = row_at(table, dtype, id);
    for (int p = 0; p < D / PART; p++)
      sum[p] += weighted ? input->weights[i] * load_part(row, dtype, p) : load_part(row, dtype, p);
  }
  if (mean && end - begin > 1)
    for (int p = 0; p < D / PART; p++) sum[p] /= (float)(end - begin);
  for (int p = 0; p < D / PART; p++) store(out + (int64_t)p * PART, sum[p]);
}

/* Pool one bag of a table of any width. The sum is computed in `out`. */
ALWAYS_INLINE void forward_bag_any(const TrsTbeTable *table, TrsDType dtype, int D, const TrsTbeInput *input,
                                   int weighted, const int cached, int64_t bag, int64_t last, int mean,
                                   float *out)
{
  const int64_t begin = input->offsets[bag], end = input->offsets[bag + 1];

  for (int d = 0; d < D; d++) out[d] = 0.0f;
  for (int64_t i = begin; i < end; i++) {
    const int64_t id = input->values[i];
    const float weight = weighted ? input->weights[i] : 1.0f;
    int d = 0;
    if (!cached) prefetch_ahead(table, dtype, input->values, i, last, D);
    if ((uint64_t)id >= (uint64_t)table->rows) continue;
    const char *row = row_of_value(table, dtype, input, i, cached);
    for (; d + PART <= D; d += PART) store(out + d, load(out + d) + weight * load_part(row, dtype, d / PART));
    for (; d < D; d++) out[d] += weight * load_column(row, dtype, d);
  }
  if (mean && end - begin > 1)
    for (int d = 0; d < D; d++) out[d] /= (float)(end - begin);
}

/* NOLINTNEXTLINE(readability-function-size): inlined, arguments are constants or registers */
ALWAYS_INLINE void forward_bags(const TrsTbeTable *table, TrsDType dtype, const int D,
                                const TrsTbeInput *input, int weighted, int64_t first, int64_t begin,
                                int64_t end, int mean, float *out, int64_t out_stride)
{
  const int64_t end_bag = first + input->batch, last = input->offsets[end_bag];
  const int width = D ? D : table->dim;

  if (begin < end)
    for (int64_t i = input->offsets[begin], n = 0; n < TrsIdsAhead(4 * width) && i < last; i++, n++)
      prefetch_row(table, dtype, input->values[i], 0, 64, width);
  for (int64_t bag = begin; bag < end; bag++) {
    float *to = out + (bag - first) * out_stride;
    /* prefetch for reading, because a prefetch for writing takes twice as long */
    if (bag + TRS_BAGS_AHEAD < end_bag) prefetch_bytes(to + TRS_BAGS_AHEAD * out_stride, width * 4);
    if (D)
      forward_bag(table, dtype, D, input, weighted, bag, last, mean, to);
    else
      forward_bag_any(table, dtype, table->dim, input, weighted, 0, bag, last, mean, to);
  }
}

/* Pool bags of a cached table of any width, with the same bits as forward(). */
static void forward_cached(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                           int64_t end, int mean, float *out, int64_t out_stride)
{
#define FORWARD(dtype) forward_bag_any(table, dtype, table->dim, input, weighted, 1, bag, 0, mean, to)
  const int weighted = input->weights != NULL;

  for (int64_t bag = begin; bag < end; bag++) {
    float *to = out + (bag - first) * out_stride;
    if (table->dtype == TRS_FP16)
      FORWARD(TRS_FP16);
    else if (table->dtype == TRS_BF16)
      FORWARD(TRS_BF16);
    else
      FORWARD(TRS_FP32);
  }
#undef FORWARD
}

/*
  Choose the loop that pools bags. Some combinations of width and type have a loop of their own; all
  other widths of a type share one loop. The loops read copies of the structs, which can stay in
  registers. Otherwise the compiler must assume that a store to `out` changes the structs. This
  makes lookups a tenth faster.
*/
static void forward(const TrsTbeTable *of, const TrsTbeInput *from, int64_t first, int64_t begin, int64_t end,
                    int mean, float *out, int64_t out_stride)
{
#define FORWARD(dtype, D, weighted) \
  forward_bags(table, dtype, D, &input, weighted, first, begin, end, mean, out, out_stride)
  const TrsTbeTable copy = *of, *table = &copy;
  const TrsTbeInput input = *from;
  const int weighted = input.weights != NULL;
  const int width = table->dim <= MAX_REGISTER_COLUMNS ? table->dim : 0;

  if (table->lines && input.locations) {
    forward_cached(of, from, first, begin, end, mean, out, out_stride);
    return;
  }
  if (table->dtype == TRS_FP16) {
    if (width == 64 && !weighted)
      FORWARD(TRS_FP16, 64, 0);
    else if (width == 128 && !weighted)
      FORWARD(TRS_FP16, 128 <= MAX_REGISTER_COLUMNS ? 128 : 0, 0);
    else
      FORWARD(TRS_FP16, 0, weighted);
  } else if (table->dtype == TRS_BF16) {
    FORWARD(TRS_BF16, 0, weighted);
  } else if (weighted) {
    if (width == 64)
      FORWARD(TRS_FP32, 64, 1);
    else if (width == 128)
      FORWARD(TRS_FP32, 128 <= MAX_REGISTER_COLUMNS ? 128 : 0, 1);
    else
      FORWARD(TRS_FP32, 0, 1);
  } else {
    if (width == 16)
      FORWARD(TRS_FP32, 16, 0);
    else if (width == 32)
      FORWARD(TRS_FP32, 32, 0);
    else if (width == 64)
      FORWARD(TRS_FP32, 64, 0);
    else if (width == 128)
      FORWARD(TRS_FP32, 128 <= MAX_REGISTER_COLUMNS ? 128 : 0, 0);
    else if (width == 256)
      FORWARD(TRS_FP32, 256 <= MAX_REGISTER_COLUMNS ? 256 : 0, 0);
    else
      FORWARD(TRS_FP32, 0, 0);
  }
#undef FORWARD
}

ALWAYS_INLINE void widen_row(const TrsDType dtype, const int D, const char *from, float *restrict to)
{
  int d = 0;
  for (; d + PART <= D; d += PART) store(to + d, load_part(from, dtype, d / PART));
  for (; d < D; d++) to[d] = load_column(from, dtype, d);
}

static void forward_rows(const TrsTbeTable *of, const TrsTbeInput *from, int64_t begin, int64_t end,
                         float *out, int64_t out_stride)
{
  /* a copy that stays in registers, as in forward() */
  const TrsTbeTable copy = *of, *table = &copy;
  const TrsTbeInput input_copy = *from, *input = &input_copy;
  const int cached = table->lines && input->locations;

  for (int64_t i = begin; i < end; i++, out += out_stride) {
    prefetch_ahead(table, table->dtype, input->values, i, end, table->dim);
    if ((uint64_t)input->values[i] < (uint64_t)table->rows)
      widen_row(table->dtype, table->dim, row_of_value(table, table->dtype, input, i, cached), out);
    else
      memset(out, 0, (size_t)table->dim * sizeof(float));
  }
}

/* --- sums over columns --- */

typedef float TrsEight __attribute__((vector_size(32)));
typedef float TrsFour __attribute__((vector_size(16)));

ALWAYS_INLINE float fold(const Part *part)
{
  union {
    Part part[LANES / PART];
    TrsEight eight[2];
  } lanes;
  TrsEight x;
  TrsFour y;

  for (int p = 0; p < LANES / PART; p++) lanes.part[p] = part[p];
  x = lanes.eight[0] + lanes.eight[1];
  y = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
  return (y[0] + y[2]) + (y[1] + y[3]);
}

ALWAYS_INLINE float dot(int D, const float *a, const float *b)
{
  float tail_a[LANES] = {0}, tail_b[LANES] = {0};
  Part lanes[LANES / PART] = {{0}};
  int d = 0;

  for (; d + LANES <= D; d += LANES)
    for (int c = 0; c < LANES; c += PART) lanes[c / PART] += load(a + d + c) * load(b + d + c);
  if (d < D) {
    for (int i = 0; d + i < D; i++) {
      tail_a[i] = a[d + i];
      tail_b[i] = b[d + i];
    }
    for (int c = 0; c < LANES; c += PART) lanes[c / PART] += load(tail_a + c) * load(tail_b + c);
  }
  return fold(lanes);
}

static void weight_gradients(const TrsTbeTable *table, const TrsTbeInput *input, int64_t first, int64_t begin,
                             int64_t end, const float *grad, int64_t grad_stride, float *to)
{
  const int cached = table->lines && input->locations;

  for (int64_t bag = begin; bag < end; bag++)
    for (int64_t i = input->offsets[bag]; i < input->offsets[bag + 1]; i++) {
      const float *g = grad + (bag - first) * grad_stride;
      float sum = 0.0f;
      if ((uint64_t)input->values[i] < (uint64_t)table->rows) {
        const char *row = row_of_value(table, table->dtype, input, i, cached);
        if (table->dtype == TRS_FP32)
          sum = dot(table->dim, g, (const float *)(const void *)row);
        else
          for (int d = 0; d < table->dim; d++) sum += g[d] * load_column(row, table->dtype, d);
      }
      to[i] = sum;
    }
}

/* --- one step of a row --- */

#include "cpu/isa/tbe_steps_template.h"

/* --- backward --- */

/* Return the address of key i's row. */
ALWAYS_INLINE char *row_of_key(const TrsRowJob *job, TrsDType dtype, int64_t i)
{
  return (char *)TrsCacheRow(job->table, (int64_t)(job->key[i] >> job->position_bits),
                             job->location ? job->location[i] : -1, dtype == TRS_FP32 ? 4 : 2);
}

/* --- rows of half width --- */

/*
  Round n columns one by one. `random` has 16 bits for each column; if it is NULL, round to nearest.
*/
__attribute__((noinline)) static void narrow_columns(TrsDType dtype, const uint16_t *random, int n,
                                                     const float *from, uint16_t *to)
{
  for (int d = 0; d < n; d++)
    if (!random)
      to[d] = dtype == TRS_FP16 ? TrsFloatToHalf(from[d]) : TrsFloatToBf16(from[d]);
    else
      to[d] = dtype == TRS_FP16 ? TrsFloatToHalfStochastic(from[d], random[d])
                                : TrsFloatToBf16Stochastic(from[d], random[d]);
}

/* Compute wide = row - scale * g in columns [begin, n). */
ALWAYS_INLINE void step_columns(TrsDType dtype, int begin, int n, const float *g, float scale,
                                const uint16_t *row, float *wide)
{
  for (int d = begin; d < n; d++)
    wide[d] = load_column((const char *)(const void *)row, dtype, d) - scale * g[d];
}

#if defined(VECTOR_ROUNDING)
/*
  The rounding of compute/half.h for many elements at a time, with the same bits. The including file
  must define TrsWords (PART integers of 32 bits), larger(), load_halves(), store_halves(),
  any_bit(), nearest_fp16() and cut_fp16().
*/

/* Store TrsRoundingBits() & mask for a block of columns. */
ALWAYS_INLINE void draw(uint64_t of_row, uint32_t block, uint16_t mask, uint16_t *to)
{
  static const uint32_t steps[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const uint32_t of_both = (uint32_t)mask << 16 | mask;

  for (int w = 0; w < 16; w += PART) {
    TrsWords x;

    memcpy(&x, steps + w, sizeof(x));
    x = (x + block * 16) * 0x9E3779B9u + (uint32_t)of_row;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu ^ (uint32_t)(of_row >> 32);
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    x = (x ^ (x >> 16)) & of_both;
    /* vector code is little-endian: the lower half is first */
    memcpy(to + 2 * (int64_t)w, &x, sizeof(x));
  }
}

/*
  Return a constant that stays in a vector register or on the stack. Without this, the compiler
  copies it again for each vector from a general register: 7 ns for a row of 64 bf16 columns.
*/
ALWAYS_INLINE TrsWords hold(uint32_t x)
{
  TrsWords words = (TrsWords){0} + x;

  __asm__("" : "+v"(words));
  return words;
}

/*
  Return the bits of the smallest magnitude that may need special rounding, because the number is
  NaN or close to the type's largest number.
*/
ALWAYS_INLINE uint32_t least_special(TrsDType dtype, int is_stochastic)
{
  return !is_stochastic ? 0x7f800001u : dtype == TRS_FP16 ? 0x47000000u : 0x7f7f0000u;
}

/*
  Round the columns that fill whole vectors, with random bits or to nearest. Returns their number,
  or 0 if a column needs special rounding. If has_step is set, `wide` is first computed as in
  step_columns().
*/
/* NOLINTNEXTLINE(readability-function-size): inlined, arguments are constants or registers */
ALWAYS_INLINE int narrow_parts(const TrsDType dtype, const int is_stochastic, const uint16_t *random,
                               const int n, const int has_step, const float *g, float scale, float *wide,
                               uint16_t *to)
{
  const TrsWords magnitude = hold(0x7fffffffu), exponent = hold(0x7f800000u), least = hold(0x38800000u),
                 half = hold(0x7fffu), one = hold(1);
  TrsWords largest = {0}, special;
  int d = 0;

  for (; d + PART <= n; d += PART) {
    const Part x = has_step ? load_part((const char *)(const void *)to, dtype, d / PART) - scale * load(g + d)
                            : load(wide + d);
    const TrsWords bits = (TrsWords)x;

    if (has_step) store(wide + d, x);
    if (dtype == TRS_FP16 && is_stochastic) {
      const TrsWords power = larger(bits & exponent, least), sign = bits & ~magnitude, unit = power | sign;

      largest = larger(largest, power);
      /* the sign is added again for -0, whose sum without random bits is +0 */
      cut_fp16(to + d, (Part)((TrsWords)(x + ((Part)(unit | load_halves(random + d)) - (Part)unit)) | sign));
      continue;
    }
    largest = larger(largest, bits & magnitude);
    if (dtype == TRS_FP16)
      nearest_fp16(to + d, x);
    else
      store_halves(to + d,
                   (bits + (is_stochastic ? load_halves(random + d) : half + (bits >> 16 & one))) >> 16);
  }
  if (has_step) step_columns(dtype, d, n, g, scale, to, wide);
  special = (TrsWords)(largest >= least_special(dtype, is_stochastic));
  return any_bit(&special) ? 0 : d;
}
#else
ALWAYS_INLINE void draw(uint64_t of_row, uint32_t block, uint16_t mask, uint16_t *to)
{
  for (uint32_t c = 0; c < TRS_ROUNDING_BLOCK; c++)
    to[c] = (uint16_t)TrsRoundingBits(of_row, block * TRS_ROUNDING_BLOCK + c) & mask;
}

/* NOLINTNEXTLINE(readability-function-size): inlined, arguments are constants or registers */
ALWAYS_INLINE int narrow_parts(TrsDType dtype, int is_stochastic, const uint16_t *random, int n, int has_step,
                               const float *g, float scale, float *wide, uint16_t *to)
{
  (void)is_stochastic, (void)random;
  if (has_step) step_columns(dtype, 0, n, g, scale, to, wide);
  return 0;
}
#endif

/* Number of columns of a row that are rounded together. Their random bits are computed together. */
#define ROUNDED 128

/*
  Round a row as narrow_row() does, either with the row's random bits from column `first` on, or to
  nearest.
*/
/* NOLINTNEXTLINE(readability-function-size): inlined, arguments are constants or registers */
ALWAYS_INLINE void round_row(const TrsDType dtype, const int is_stochastic, const int D, uint64_t of_row,
                             uint32_t first, const int has_step, const float *g, float scale, float *wide,
                             uint16_t *to)
{
  /* offset of the first column in its block of random bits */
  const int shift = (int)(first % TRS_ROUNDING_BLOCK);

  for (int begin = 0; begin < D; begin += ROUNDED) {
    const int n = D - begin < ROUNDED ? D - begin : ROUNDED;
    uint16_t bits[ROUNDED + 2 * TRS_ROUNDING_BLOCK], *random = is_stochastic ? bits + shift : NULL;
    int d;

    for (int i = 0; is_stochastic && i < shift + n; i += TRS_ROUNDING_BLOCK)
      draw(of_row, (first + (uint32_t)(begin + i)) / TRS_ROUNDING_BLOCK,
           dtype == TRS_FP16 ? 0x1fffu : UINT16_MAX, bits + i);
    d = narrow_parts(dtype, is_stochastic, random, n, has_step, has_step ? g + begin : NULL, scale,
                     wide + begin, to + begin);
    if (d < n) narrow_columns(dtype, random ? random + d : NULL, n - d, wide + begin + d, to + begin + d);
  }
}

/*
  Round the fp32 row `wide` to 16 bits. If has_step is set, `wide` is first computed as to - scale *
  g. Random bits depend on the element's row and column in the whole table, and on of_table, which
  is TrsRoundingTable().
*/
/* NOLINTNEXTLINE(readability-function-size): inlined, arguments are constants or registers */
ALWAYS_INLINE void narrow_row(const TrsTbeTable *table, const TrsDType dtype, const int D, int64_t row,
                              uint64_t of_table, const int has_step, const float *g, float scale, float *wide,
                              uint16_t *to)
{
  const int64_t place = table->row_offset + (table->row_of ? table->row_of[row] : row);
  const uint64_t of_row = TrsRoundingRow(of_table, (uint64_t)place);
  const uint32_t first = (uint32_t)table->col_offset;

  if (table->stochastic_rounding)
    round_row(dtype, 1, D, of_row, first, has_step, g, scale, wide, to);
  else
    round_row(dtype, 0, D, of_row, first, has_step, g, scale, wide, to);
}

/* Return the address of key i's gradient. */
ALWAYS_INLINE const float *gradient_of_key(const TrsRowJob *job, int64_t i)
{
  const uint64_t mask = ((uint64_t)1 << job->position_bits) - 1;

  return job->grad + (job->source ? job->source[i] : (int64_t)(job->key[i] & mask) * job->grad_stride);
}

/* Return the factor of key i's gradient. */
ALWAYS_INLINE float factor_of_key(const TrsRowJob *job, int64_t i)
{
  const uint64_t mask = ((uint64_t)1 << job->position_bits) - 1;

  if (!job->scale) return 1.0f;
  return job->scale[job->source ? i : (int64_t)(job->key[i] & mask)];
}

/* Compute g [D], the sum of the gradients of keys [begin, end), in order. */
ALWAYS_INLINE void sum_gradients(const TrsRowJob *job, const int D, int64_t begin, int64_t end,
                                 float *restrict g)
{
  int zero = 0;

  /* explicit vectors, because the compiler's `rep stos` starts slowly */
  for (; zero + PART <= D; zero += PART) store(g + zero, (Part){0});
  for (; zero < D; zero++) g[zero] = 0.0f;
  for (int64_t i = begin; i < end; i++) {
    const float *from = gradient_of_key(job, i);
    const float scale = factor_of_key(job, i);
    int d = 0;
    for (; d + PART <= D; d += PART) store(g + d, load(g + d) + scale * load(from + d));
    for (; d < D; d++) g[d] += scale * from[d];
  }
}

/* True if key i exists and belongs to this row. */
ALWAYS_INLINE int is_of_row(const TrsRowJob *job, int64_t i, int64_t row)
{
  return i < job->n_keys && (int64_t)(job->key[i] >> job->position_bits) == row;
}

/* Return the index after the last key of key i's row. */
ALWAYS_INLINE int64_t run_end(const TrsRowJob *job, int64_t i)
{
  const int64_t row = (int64_t)(job->key[i] >> job->position_bits);
  do i++;
  while (is_of_row(job, i, row));
  return i;
}

/*
  Compute g, the sum of the gradients of the row that begins at key i. Returns the index after the
  row's last key. The function is not inlined: few rows need it, and all others are faster if they
  do not need its registers.
*/
__attribute__((noinline)) static int64_t sum_run(const TrsRowJob *job, int64_t i, float *g)
{
  const int64_t end = run_end(job, i);
  const int D = job->table->dim;

  if (D == 64)
    sum_gradients(job, 64, i, end, g);
  else if (D == 128)
    sum_gradients(job, 128, i, end, g);
  else
    sum_gradients(job, D, i, end, g);
  return end;
}

/* Prefetch state s of a row. */
ALWAYS_INLINE void prefetch_state(const TrsTbeTable *table, const TrsStateShape shape, int s, int64_t row,
                                  int D)
{
  if (shape == TRS_STATE_ROW) prefetch_bytes(of_row(table, s, row), 4);
  if (shape == TRS_STATE_ELEMENT) prefetch_bytes(elements(table, s, row, D), D * 4);
}

/* Prefetch the row of key i, its states and its gradient. */
ALWAYS_INLINE void prefetch_key(const TrsRowJob *job, const TrsSparseOptimizerKind kind, TrsDType dtype,
                                int64_t i, int D)
{
#define SHAPES(KIND, word, first, first_name, second, ...) {TRS_STATE_##first, TRS_STATE_##second},
  static const TrsStateShape shapes[][TRS_OPTIMIZER_STATES] = {TRS_EMBEDDING_OPTIMIZERS(SHAPES)};
  int64_t row;

  if (i >= job->n_keys) return;
  row = (int64_t)(job->key[i] >> job->position_bits);
  prefetch_bytes(gradient_of_key(job, i), D * 4);
  if (kind == TRS_OPTIM_NONE) return;
  prefetch_bytes(row_of_key(job, dtype, i), D * (dtype == TRS_FP32 ? 4 : 2));
  for (int s = 0; s < TRS_OPTIMIZER_STATES; s++) prefetch_state(job->table, shapes[kind][s], s, row, D);
}

/*
  True if the keys' positions determine the addresses of their gradients, and the job has no other
  arrays.
*/
ALWAYS_INLINE int is_plain(const TrsRowJob *job)
{
  return !job->source && !job->scale && !job->location && !job->row_squares;
}

/*
  Update the rows that begin at keys [begin, end). An update takes little more time than its cache
  misses, so the loop must have few branches. The constant `plain`, from is_plain(), removes the
  branches that only other jobs need.
*/
/* NOLINTNEXTLINE(readability-non-const-parameter): scratch is written through the step */
ALWAYS_INLINE void update_rows(const TrsRowJob *of, const int plain, const TrsSparseOptimizerKind kind,
                               const TrsDType dtype, const int D, int64_t begin, int64_t end, float *g,
                               float *scratch)
{
  TrsRowJob copy = *of; /* a copy can stay in registers, because no store changes it */
  const TrsRowJob *job = &copy;
  const TrsTbeTable *table = job->table;
  TrsStep step = {.args = job->args,
                  .correction1 = job->correction1,
                  .correction2 = job->correction2,
                  .scratch = scratch,
                  .columns = table->table_dim};
  const uint64_t of_table = TrsRoundingTable(job->args->seed, (uint64_t)job->args->step, table->key);
  float *wide = scratch + D;

  if (plain) {
    copy.source = NULL;
    copy.scale = NULL;
    copy.location = NULL;
    copy.row_squares = NULL;
  }
  if (begin == 0)
    for (int64_t k = 0; k < TrsIdsAhead(4 * D); k++) prefetch_key(job, kind, dtype, k, D);
  for (int64_t i = begin, next; i < end; i = next) {
    const int64_t row = (int64_t)(job->key[i] >> job->position_bits);
    /* most rows have a single gradient, which is used in its array */
    const float *total = gradient_of_key(job, i);

    next = i + 1;
    prefetch_key(job, kind, dtype, i + TrsIdsAhead(4 * D), D);
    if (__builtin_expect(job->scale || is_of_row(job, next, row), 0)) {
      next = sum_run(of, i, g);
      total = g;
      for (int64_t k = i + 1; k < next; k++) prefetch_key(job, kind, dtype, k + TrsIdsAhead(4 * D), D);
    }
    if (job->row_squares) step.squares = job->row_squares + i;
    void *memory = row_of_key(job, dtype, i);
    if (dtype == TRS_FP32) {
      step_row(kind, &step, table, row, D, (float *)memory, total);
    } else {
      float scale = 0.0f;
      if (step_scale(kind, &step, table, row, D, total, &scale)) {
        narrow_row(table, dtype, D, row, of_table, 1, total, scale, wide, (uint16_t *)memory);
      } else {
        widen_row(dtype, D, (const char *)memory, wide);
        step_row(kind, &step, table, row, D, wide, total);
        narrow_row(table, dtype, D, row, of_table, 0, NULL, 0.0f, wide, (uint16_t *)memory);
      }
    }
  }
}

/* Call update_rows() with a constant width if the width is a common one. */
ALWAYS_INLINE void update_rows_of(const TrsRowJob *job, const TrsSparseOptimizerKind kind,
                                  const TrsDType dtype, int64_t begin, int64_t end, float *g, float *scratch)
{
  const int D = job->table->dim, plain = is_plain(job);

  if (D == 64 && plain)
    update_rows(job, 1, kind, dtype, 64, begin, end, g, scratch);
  else if (D == 64)
    update_rows(job, 0, kind, dtype, 64, begin, end, g, scratch);
  else if (D == 128 && plain)
    update_rows(job, 1, kind, dtype, 128, begin, end, g, scratch);
  else if (D == 128)
    update_rows(job, 0, kind, dtype, 128, begin, end, g, scratch);
  else
    update_rows(job, 0, kind, dtype, D, begin, end, g, scratch);
}

ALWAYS_INLINE void update(const TrsRowJob *job, const TrsSparseOptimizerKind kind, int64_t begin, int64_t end)
{
  float on_stack[3 * TRS_TBE_STACK_COLUMNS] __attribute__((aligned(64)));
  const int D = job->table->dim;
  float *g = D <= TRS_TBE_STACK_COLUMNS ? on_stack : job->scratch, *scratch = g + D;

  if (job->table->dtype == TRS_FP32) {
    if (D == 16)
      update_rows(job, 0, kind, TRS_FP32, 16, begin, end, g, scratch);
    else
      update_rows_of(job, kind, TRS_FP32, begin, end, g, scratch);
  } else if (job->table->dtype == TRS_FP16) {
    update_rows_of(job, kind, TRS_FP16, begin, end, g, scratch);
  } else {
    update_rows_of(job, kind, TRS_BF16, begin, end, g, scratch);
  }
}

#define UPDATE_OF(KIND, statement) \
  static void update_##KIND(const TrsRowJob *job, int64_t begin, int64_t end) \
  { \
    update(job, TRS_OPTIM_##KIND, begin, end); \
  }
STEPS(UPDATE_OF)

static void squares(const TrsRowJob *job, int64_t begin, int64_t end)
{
  float on_stack[TRS_TBE_STACK_COLUMNS] __attribute__((aligned(64)));
  const int D = job->table->dim, blocks = (D + TRS_SQUARES_COLUMNS - 1) / TRS_SQUARES_COLUMNS;
  float *g = D <= TRS_TBE_STACK_COLUMNS ? on_stack : job->scratch;

  for (int64_t i = begin, next; i < end; i = next) {
    const float *total = gradient_of_key(job, i);
    next = run_end(job, i);
    for (int64_t k = i; k < next; k++)
      prefetch_key(job, TRS_OPTIM_NONE, job->table->dtype, k + TrsIdsAhead(4 * D), D);
    if (next > i + 1 || job->scale) {
      sum_gradients(job, D, i, next, g);
      total = g;
    }
    for (int b = 0; b < blocks; b++) {
      const int d = b * TRS_SQUARES_COLUMNS;
      job->squares[i * blocks + b] = d + TRS_SQUARES_COLUMNS <= D
                                         ? sum_of_squares(TRS_SQUARES_COLUMNS, total + d)
                                         : sum_of_squares(D - d, total + d);
    }
  }
}

static int64_t sum(const TrsRowJob *job, int64_t begin, int64_t end, int64_t *rows, float *row_grad,
                   int64_t row_stride)
{
  int64_t n = 0;

  for (int64_t i = begin, next; i < end; i = next, n++) {
    next = run_end(job, i);
    for (int64_t k = i; k < next; k++)
      prefetch_key(job, TRS_OPTIM_NONE, job->table->dtype, k + TrsIdsAhead(4 * job->table->dim),
                   job->table->dim);
    if (rows) rows[n] = (int64_t)(job->key[i] >> job->position_bits);
    sum_gradients(job, job->table->dim, i, next, row_grad + n * row_stride);
  }
  return n;
}

#define UPDATE_CELL(KIND, statement) .update[TRS_OPTIM_##KIND] = update_##KIND,
#define TBE_KERNELS \
  { \
    .forward = forward, .forward_rows = forward_rows, STEPS(UPDATE_CELL).squares = squares, .sum = sum, \
    .weight_gradients = weight_gradients \
  }
