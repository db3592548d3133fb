/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One optimizer step of one row on the GPU, by a group of lanes (tbe_rows_cuda.h). Twin of the steps
  in src/cpu/isa/tbe_steps_template.h. A sum over columns is computed in each lane first, then over
  the lanes. So it differs from the CPU's sum in the last bits.
*/
#pragma once

#include "gpu/tbe/tbe_rows_cuda.h"

struct Step {
  TrsSparseOptimizerArgs args;
  float correction1, correction2; /* 1 - beta^step */
};

/*
  The row that a group of lanes updates. Its first columns are loaded before the gradients, so that
  the step waits for one load less. So is its state, if the optimizer is rowwise (one float per
  row).
*/
template <TrsDType DTYPE, int COLUMNS> struct GroupRow {
  const TrsTbeTable *table;
  char *weight; /* the row's address in its table or in a cache line */
  int64_t row;
  int lane, lanes;
  unsigned mask;
  RawColumns<DTYPE, COLUMNS> first; /* columns from lane * COLUMNS on */
  float *row_state;
  float row_value; /* the row's state value, in lane 0 */
};

/* Store COLUMNS 16-bit numbers, which are packed in pairs into words. */
template <int COLUMNS> static __device__ __forceinline__ void store_words(uint16_t *to, const unsigned *word)
{
  if constexpr (COLUMNS == 8)
    __stcg(reinterpret_cast<uint4 *>(to), uint4{word[0], word[1], word[2], word[3]});
  else
    *to = static_cast<uint16_t>(word[0]);
}

/*
  Store a row's columns from col on. Each number is rounded to the nearest number of the table's
  type.
*/
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void store_nearest(char *row, int col, const float *x)
{
  if constexpr (DTYPE == TRS_FP32) {
    keep_floats<COLUMNS>(reinterpret_cast<float *>(row) + col, x);
  } else {
    unsigned word[(COLUMNS + 1) / 2] = {};

    if constexpr (DTYPE == TRS_BF16 && COLUMNS % 2 == 0)
      narrow_numbers<COLUMNS>(x, word);
    else
      for (int j = 0; j < COLUMNS; j++)
        word[j / 2] |= static_cast<unsigned>(DTYPE == TRS_FP16 ? float_to_half(x[j]) : TrsFloatToBf16(x[j]))
                       << 16 * (j % 2);
    store_words<COLUMNS>(reinterpret_cast<uint16_t *>(row) + col, word);
  }
}

/* TrsRoundingRow() of the table's row `row`. */
static __device__ __forceinline__ uint64_t rounding_row(const Step &step, const TrsTbeTable *table,
                                                        int64_t row)
{
  const uint64_t of_table = TrsRoundingTable(step.args.seed, static_cast<uint64_t>(step.args.step),
                                             table->key);

  return TrsRoundingRow(
      of_table, static_cast<uint64_t>(table->row_offset + (table->row_of ? table->row_of[row] : row)));
}

/*
  |x| plus a random fraction, of 13 bits, of its last bit in fp16, as TrsFloatToHalfStochastic()
  adds it.
*/
static __device__ __forceinline__ float add_fraction(float x, uint32_t random)
{
  const uint32_t exponent = TrsFloatBits(x) & 0x7f800000u,
                 unit = exponent > 0x38800000u ? exponent : 0x38800000u;

  return fabsf(x) + (TrsBitsFloat(unit | (random & 0x1fffu)) - TrsBitsFloat(unit));
}

/*
  Round two numbers stochastically with 16 random bits each, and pack them into a word. The bits
  equal those of the CPU for magnitudes below 2.
*/
template <TrsDType DTYPE>
static __device__ __forceinline__ unsigned round_two(float low, float high, uint32_t random)
{
  const uint32_t low_bits = TrsFloatBits(low), high_bits = TrsFloatBits(high);

  if (DTYPE == TRS_FP16)
    return cut_to_halves(add_fraction(low, random), add_fraction(high, random >> 16)) |
           (upper_halves(low_bits, high_bits) & 0x80008000u);
  return upper_halves(low_bits + (random & 0xffffu), high_bits + (random >> 16));
}

/*
  Round the columns from `first` on of a row of the whole table. Random bits depend on the element's
  position there, as on the CPU. EVEN means that `first` is even.
*/
template <TrsDType DTYPE, int COLUMNS, bool EVEN>
static __device__ __forceinline__ void round_columns(uint64_t of_row, uint32_t first, const float *x,
                                                     unsigned *word)
{
  static_assert(COLUMNS == 1 || COLUMNS % 2 == 0, "one column, or pairs");
  if constexpr (COLUMNS == 1) {
    const uint32_t bits = TrsRoundingBits(of_row, first);

    word[0] = DTYPE == TRS_FP16 ? TrsFloatToHalfStochastic(x[0], bits) : TrsFloatToBf16Stochastic(x[0], bits);
  } else {
    uint32_t all = 0;

    for (int j = 0; j < COLUMNS; j += 2) {
      uint32_t random = TrsRoundingWord(of_row, first / 2 + static_cast<uint32_t>(j / 2));

      if (!EVEN && first % 2) /* a table cut at an odd column: half of each of two words */
        random = random >> 16 | TrsRoundingWord(of_row, first / 2 + static_cast<uint32_t>(j / 2) + 1) << 16;
      word[j / 2] = round_two<DTYPE>(x[j], x[j + 1], random);
      all |= TrsFloatBits(x[j]) | TrsFloatBits(x[j + 1]);
    }
    if (!(all & 0x40000000u)) return;
    /* a number is 2 or more, or NaN: those near the type's largest number are rounded otherwise */
    for (int j = 0; j < COLUMNS; j++) {
      const unsigned nearest = DTYPE == TRS_FP16 ? float_to_half(x[j]) : TrsFloatToBf16(x[j]);

      if ((TrsFloatBits(x[j]) & 0x7fffffffu) >= (DTYPE == TRS_FP16 ? 0x477fe000u : 0x7f7f0000u))
        word[j / 2] = (word[j / 2] & 0xffff0000u >> 16 * (j % 2)) | nearest << 16 * (j % 2);
    }
  }
}

/* Round columns stochastically and store them. The first one has the index `first` in the table. */
template <TrsDType DTYPE, int COLUMNS, bool EVEN>
static __device__ __forceinline__ void store_rounded(char *row, int col, uint64_t of_row, uint32_t first,
                                                     const float *x)
{
  unsigned word[(COLUMNS + 1) / 2];

  round_columns<DTYPE, COLUMNS, EVEN>(of_row, first, x, word);
  store_words<COLUMNS>(reinterpret_cast<uint16_t *>(row) + col, word);
}

/* Round to the table's type as the table asks for, and store. */
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void store_columns(const Step &step, const GroupRow<DTYPE, COLUMNS> &at,
                                                     int col, const float *x)
{
  const TrsTbeTable *const table = at.table;

  if (DTYPE == TRS_FP32 || !table->stochastic_rounding)
    store_nearest<DTYPE, COLUMNS>(at.weight, col, x);
  else
    store_rounded<DTYPE, COLUMNS, false>(at.weight, col, rounding_row(step, table, at.row),
                                         static_cast<uint32_t>(table->col_offset + col), x);
}

/* Load the row's weights from before the step. */
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void load_weights(const GroupRow<DTYPE, COLUMNS> &at, int col, float *w)
{
  if (col < at.lanes * COLUMNS)
    widen<DTYPE, COLUMNS>(at.first, w);
  else
    load_columns<DTYPE, COLUMNS>(at.weight, col, w);
}

/* Update a state with one float per row. Lane 0 writes it, and all lanes get the new value. */
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ float update_row_state(const GroupRow<DTYPE, COLUMNS> &at, float keep,
                                                         float add)
{
  float value = 0.0f;

  if (at.lane == 0) {
    value = keep * at.row_value + add;
    *at.row_state = value;
  }
  return __shfl_sync(at.mask, value, 0, at.lanes);
}

/* FOR_COLUMNS(col) { } loops over this lane's columns. */
#define FOR_COLUMNS(col) for (int col = at.lane * COLUMNS; col < at.table->dim; col += at.lanes * COLUMNS)

/*
  adam's direction in the columns from col on. The second moment v has one number per element; with
  `partial` it has one number per row.
*/
template <int COLUMNS>
static __device__ __forceinline__ void adam_direction(const Step &step, const float *w, const float *m,
                                                      const float *v, float *r)
{
  for (int j = 0; j < COLUMNS; j++)
    r[j] = (m[j] / step.correction1) / (sqrtf(v[j] / step.correction2) + step.args.eps) +
           step.args.weight_decay * w[j];
}

template <TrsDType DTYPE, int COLUMNS>
static __device__ void step_adam_family(const Step &step, const GroupRow<DTYPE, COLUMNS> &at, const float *g,
                                        float *r, bool partial, bool lamb)
{
  const TrsSparseOptimizerArgs &a = step.args;
  const int64_t first = at.row * at.table->dim;
  float row_v = 0.0f, w_sum = 0.0f, r_sum = 0.0f, lr = a.learning_rate;

  if (partial) {
    float sum = 0.0f;

    FOR_COLUMNS(col)
    for (int j = 0; j < COLUMNS; j++) sum += g[col + j] * g[col + j];
    sum = group_sum(sum, at.lanes, at.mask);
    row_v = update_row_state(at, a.beta2, (1.0f - a.beta2) * (sum / static_cast<float>(at.table->dim)));
  }
  FOR_COLUMNS(col)
  {
    float w[COLUMNS], m[COLUMNS], v[COLUMNS], d[COLUMNS];

    load_weights(at, col, w);
    load_floats<COLUMNS>(at.table->state[0] + first + col, m);
    if (!partial) load_floats<COLUMNS>(at.table->state[1] + first + col, v);
    for (int j = 0; j < COLUMNS; j++) {
      m[j] = a.beta1 * m[j] + (1.0f - a.beta1) * g[col + j];
      v[j] = partial ? row_v : a.beta2 * v[j] + (1.0f - a.beta2) * (g[col + j] * g[col + j]);
    }
    store_floats<COLUMNS>(at.table->state[0] + first + col, m);
    if (!partial) store_floats<COLUMNS>(at.table->state[1] + first + col, v);
    adam_direction<COLUMNS>(step, w, m, v, d);
    if (lamb) {
      for (int j = 0; j < COLUMNS; j++) {
        w_sum += w[j] * w[j];
        r_sum += d[j] * d[j];
        r[col + j] = d[j];
      }
    } else {
      for (int j = 0; j < COLUMNS; j++) w[j] -= lr * d[j];
      store_columns<DTYPE, COLUMNS>(step, at, col, w);
    }
  }
  if (!lamb) return;
  const float r_norm = sqrtf(group_sum(r_sum, at.lanes, at.mask)),
              w_norm = sqrtf(group_sum(w_sum, at.lanes, at.mask));
  lr = r_norm > 0.0f ? lr * (w_norm / r_norm) : 0.0f; /* if |r| is 0, there is no step */
  FOR_COLUMNS(col)
  {
    float w[COLUMNS];

    load_weights(at, col, w);
    for (int j = 0; j < COLUMNS; j++) w[j] -= lr * r[col + j];
    store_columns<DTYPE, COLUMNS>(step, at, col, w);
  }
}

template <TrsDType DTYPE, int COLUMNS>
static __device__ void step_rowwise_adagrad(const Step &step, const GroupRow<DTYPE, COLUMNS> &at,
                                            const float *g)
{
  const TrsSparseOptimizerArgs &a = step.args;
  float sum = 0.0f, keep = 1.0f;

  FOR_COLUMNS(col)
  {
    float w[COLUMNS] = {};

    if (a.weight_decay_mode == TRS_DECAY_L2) load_weights(at, col, w);
    for (int j = 0; j < COLUMNS; j++) {
      const float x = a.weight_decay_mode == TRS_DECAY_L2 ? g[col + j] + a.weight_decay * w[j] : g[col + j];
      sum += x * x;
    }
  }
  sum = group_sum(sum, at.lanes, at.mask);
  const float m = update_row_state(at, 1.0f, sum / static_cast<float>(at.table->dim));
  const float scale = a.learning_rate / (sqrtf(m) + a.eps);
  if (a.weight_decay_mode == TRS_DECAY_L2) keep = 1.0f - scale * a.weight_decay;
  if (a.weight_decay_mode == TRS_DECAY_DECOUPLE) keep = 1.0f - a.learning_rate * a.weight_decay;
  FOR_COLUMNS(col)
  {
    float w[COLUMNS];

    load_weights(at, col, w);
    for (int j = 0; j < COLUMNS; j++) w[j] = keep * w[j] - scale * g[col + j];
    store_columns<DTYPE, COLUMNS>(step, at, col, w);
  }
}

template <TrsDType DTYPE, int COLUMNS>
static __device__ float lars_rate(const Step &step, const GroupRow<DTYPE, COLUMNS> &at, const float *g)
{
  const TrsSparseOptimizerArgs &a = step.args;
  float w_sum = 0.0f, g_sum = 0.0f;

  FOR_COLUMNS(col)
  {
    float w[COLUMNS];

    load_weights(at, col, w);
    for (int j = 0; j < COLUMNS; j++) {
      w_sum += w[j] * w[j];
      g_sum += g[col + j] * g[col + j];
    }
  }
  const float w_norm = sqrtf(group_sum(w_sum, at.lanes, at.mask));
  const float below = sqrtf(group_sum(g_sum, at.lanes, at.mask)) + a.weight_decay * w_norm;
  return below > 0.0f ? a.learning_rate * a.eta * w_norm / below : 0.0f;
}

/*
  The optimizer step of the group's row. There is one specialisation per optimizer. Its arguments
  are the gradient g [D] and, if `scratch` is set, work memory r [D]. Both are in shared memory,
  where each lane uses only its own columns. An optimizer without a specialisation is refused at
  set-up.
*/
template <int KIND> struct StepOf {
  static constexpr bool defined = false, scratch = false;
  template <TrsDType DTYPE, int COLUMNS>
  static __device__ void step(const Step &, const GroupRow<DTYPE, COLUMNS> &, const float *, float *)
  {
  }
};

template <> struct StepOf<TRS_OPTIM_NONE> : StepOf<-1> {
  static constexpr bool defined = true;
};

/*
  Base of optimizers that treat all elements alike. OWN::element() updates one weight w and its
  states m and v (STATES of them) in place. OWN::rate() computes a number for the whole row before.
*/
template <class OWN, int STATES> struct ElementStep {
  static constexpr bool defined = true, scratch = false;

  template <TrsDType DTYPE, int COLUMNS>
  static __device__ __forceinline__ float rate(const Step &, const GroupRow<DTYPE, COLUMNS> &, const float *)
  {
    return 0.0f;
  }

  template <TrsDType DTYPE, int COLUMNS>
  static __device__ __forceinline__ void step(const Step &step, const GroupRow<DTYPE, COLUMNS> &at,
                                              const float *g, float *)
  {
    const float rate = OWN::template rate<DTYPE, COLUMNS>(step, at, g);

    FOR_COLUMNS(col)
    {
      const int64_t place = at.row * at.table->dim + col;
      float w[COLUMNS], m[COLUMNS] = {}, v[COLUMNS] = {};

      load_weights(at, col, w);
      if (STATES > 0) load_floats<COLUMNS>(at.table->state[0] + place, m);
      if (STATES > 1) load_floats<COLUMNS>(at.table->state[1] + place, v);
      for (int j = 0; j < COLUMNS; j++) OWN::element(step.args, rate, g[col + j], &w[j], &m[j], &v[j]);
      if (STATES > 0) store_floats<COLUMNS>(at.table->state[0] + place, m);
      if (STATES > 1) store_floats<COLUMNS>(at.table->state[1] + place, v);
      store_columns<DTYPE, COLUMNS>(step, at, col, w);
    }
  }
};

template <> struct StepOf<TRS_OPTIM_SGD> : ElementStep<StepOf<TRS_OPTIM_SGD>, 0> {
  static __device__ __forceinline__ void element(const TrsSparseOptimizerArgs &a, float, float g, float *w,
                                                 float *, float *)
  {
    *w -= a.learning_rate * g;
  }
};

template <> struct StepOf<TRS_OPTIM_ADAGRAD> : ElementStep<StepOf<TRS_OPTIM_ADAGRAD>, 1> {
  static __device__ __forceinline__ void element(const TrsSparseOptimizerArgs &a, float, float g, float *w,
                                                 float *m, float *)
  {
    *m += g * g;
    *w -= a.learning_rate * g / (sqrtf(*m) + a.eps);
  }
};

template <> struct StepOf<TRS_OPTIM_LARS_SGD> : ElementStep<StepOf<TRS_OPTIM_LARS_SGD>, 1> {
  template <TrsDType DTYPE, int COLUMNS>
  static __device__ __forceinline__ float rate(const Step &step, const GroupRow<DTYPE, COLUMNS> &at,
                                               const float *g)
  {
    return lars_rate<DTYPE, COLUMNS>(step, at, g);
  }

  static __device__ __forceinline__ void element(const TrsSparseOptimizerArgs &a, float rate, float g,
                                                 float *w, float *m, float *)
  {
    *m = a.momentum * *m + rate * (g + a.weight_decay * *w);
    *w -= *m;
  }
};

template <> struct StepOf<TRS_OPTIM_LION> : ElementStep<StepOf<TRS_OPTIM_LION>, 1> {
  static __device__ __forceinline__ void element(const TrsSparseOptimizerArgs &a, float, float g, float *w,
                                                 float *m, float *)
  {
    const float u = a.beta1 * *m + (1.0f - a.beta1) * g, sign = static_cast<float>((u > 0.0f) - (u < 0.0f));
    *w -= a.learning_rate * (sign + a.weight_decay * *w);
    *m = a.beta2 * *m + (1.0f - a.beta2) * g;
  }
};

template <> struct StepOf<TRS_OPTIM_FTRL> : ElementStep<StepOf<TRS_OPTIM_FTRL>, 2> {
  static __device__ __forceinline__ void element(const TrsSparseOptimizerArgs &a, float, float g, float *w,
                                                 float *z, float *n)
  {
    const float sum = *n + g * g, root = sqrtf(sum);
    const float next = *z + g - (root - sqrtf(*n)) / a.learning_rate * *w, beyond = fabsf(next) - a.l1;

    *z = next;
    *n = sum;
    *w = beyond > 0.0f ? -copysignf(beyond, next) / ((a.beta + root) / a.learning_rate + a.l2) : 0.0f;
  }
};

template <> struct StepOf<TRS_OPTIM_ROWWISE_ADAGRAD> {
  static constexpr bool defined = true, scratch = false;
  template <TrsDType DTYPE, int COLUMNS>
  static __device__ void step(const Step &step, const GroupRow<DTYPE, COLUMNS> &at, const float *g, float *)
  {
    step_rowwise_adagrad<DTYPE, COLUMNS>(step, at, g);
  }
};

template <bool PARTIAL, bool LAMB> struct AdamStep {
  static constexpr bool defined = true, scratch = LAMB;
  template <TrsDType DTYPE, int COLUMNS>
  static __device__ void step(const Step &step, const GroupRow<DTYPE, COLUMNS> &at, const float *g, float *r)
  {
    step_adam_family<DTYPE, COLUMNS>(step, at, g, r, PARTIAL, LAMB);
  }
};

template <> struct StepOf<TRS_OPTIM_ADAM> : AdamStep<false, false> {
};
template <> struct StepOf<TRS_OPTIM_PARTIAL_ROWWISE_ADAM> : AdamStep<true, false> {
};
template <> struct StepOf<TRS_OPTIM_LAMB> : AdamStep<false, true> {
};
template <> struct StepOf<TRS_OPTIM_PARTIAL_ROWWISE_LAMB> : AdamStep<true, true> {
};

/*
  The optimizer. KIND is the optimizer if the kernel is for one optimizer only, and TRS_N_OPTIMS if
  not.
*/
template <int KIND> static __device__ __forceinline__ TrsSparseOptimizerKind kind_of(const Step &step)
{
  return KIND < static_cast<int>(TRS_N_OPTIMS) ? static_cast<TrsSparseOptimizerKind>(KIND) : step.args.kind;
}

/*
  The index of the optimizer's state that has one number per row: 0 or 1. It is -1 if there is no
  such state.
*/
static __device__ __forceinline__ int row_state_of(TrsSparseOptimizerKind kind)
{
#define ROW_STATE(KIND, word, shape0, name0, shape1, ...) \
  case TRS_OPTIM_##KIND: \
    return TRS_STATE_##shape0 == TRS_STATE_ROW ? 0 : TRS_STATE_##shape1 == TRS_STATE_ROW ? 1 : -1;
  switch (kind) {
    TRS_EMBEDDING_OPTIMIZERS(ROW_STATE)
  }
  return -1;
}

/*
  Start the step's loads. The caller must set at.table, weight, row and the lanes. Data that is not
  loaded into registers is prefetched into L2.
*/
template <int KIND, TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void begin_step(const Step &step, GroupRow<DTYPE, COLUMNS> *row)
{
  const int row_state = row_state_of(kind_of<KIND>(step));
  const GroupRow<DTYPE, COLUMNS> &at = *row;

  row->row_state = row_state < 0 ? nullptr : at.table->state[row_state] + at.row;
  if (at.row_state && at.lane == 0) row->row_value = *at.row_state;
  if (at.lane * COLUMNS < at.table->dim) row->first = load_raw<DTYPE, COLUMNS>(at.weight, at.lane * COLUMNS);
#if defined(__CUDA_ARCH__)
  const float *const state = row_state == 0 ? nullptr : at.table->state[0];

  FOR_COLUMNS(col)
  {
    const char *const w = at.weight + col * at.first.element;

    if (col >= at.lanes * COLUMNS) asm volatile("prefetch.global.L2 [%0];" ::"l"(w));
    if (state) asm volatile("prefetch.global.L2 [%0];" ::"l"(state + at.row * at.table->dim + col));
  }
#endif
}

template <int KIND, TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void step_row(const Step &step, const GroupRow<DTYPE, COLUMNS> &at,
                                                const float *g, float *r)
{
#define STEP_CASE(K, ...) \
  case TRS_OPTIM_##K: StepOf<TRS_OPTIM_##K>::template step<DTYPE, COLUMNS>(step, at, g, r); return;
  switch (kind_of<KIND>(step)) {
    TRS_EMBEDDING_OPTIMIZERS(STEP_CASE)
  }
}
