/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One row's step of an optimizer, part of tbe_kernels_<isa>.c. The formulas are in src/RULES.md,
  section 6. w and g are [D]; m and v are the states.
*/

typedef struct {
  const TrsSparseOptimizerArgs *args;
  float correction1, correction2;
  float *scratch; /* [D] */
  /* If other shards have columns of the row, the sum of squares over all `columns`. If not,
     NULL. */
  const float *squares;
  int64_t columns;
} TrsStep;

/* Return the sum of squares, added in blocks of TRS_SQUARES_COLUMNS columns. */
ALWAYS_INLINE float sum_of_squares(int D, const float *g)
{
  float sum = 0.0f;
  int d = 0;

  for (; d + TRS_SQUARES_COLUMNS <= D; d += TRS_SQUARES_COLUMNS)
    sum += dot(TRS_SQUARES_COLUMNS, g + d, g + d);
  return d < D ? sum + dot(D - d, g + d, g + d) : sum;
}

/* Return the mean of a row's squared gradients, over all columns of the table. */
ALWAYS_INLINE float mean_square(const TrsStep *step, int D, const float *g)
{
  return step->squares ? *step->squares / (float)step->columns : sum_of_squares(D, g) / (float)D;
}

/*
  Compute w -= scale * g with explicit vectors, because the compiler would check for each row
  whether w and g overlap.
*/
ALWAYS_INLINE void subtract(int D, float *w, float scale, const float *g)
{
  int d = 0;

  for (; d + PART <= D; d += PART) store(w + d, load(w + d) - scale * load(g + d));
  for (; d < D; d++) w[d] -= scale * g[d];
}

static void step_adagrad(const TrsStep *step, int D, float *restrict w, const float *restrict g,
                         float *restrict m)
{
  const float lr = step->args->learning_rate, eps = step->args->eps;
  for (int d = 0; d < D; d++) {
    m[d] += g[d] * g[d];
    w[d] -= lr * g[d] / (sqrtf(m[d]) + eps);
  }
}

static void step_decayed_adagrad(const TrsStep *step, int D, float *restrict w, const float *restrict g,
                                 float *m)
{
  const TrsSparseOptimizerArgs *a = step->args;
  float keep = 1.0f, scale;

  if (a->weight_decay_mode == TRS_DECAY_L2) {
    for (int d = 0; d < D; d++) step->scratch[d] = g[d] + a->weight_decay * w[d];
    *m += sum_of_squares(D, step->scratch) / (float)D;
  } else {
    *m += mean_square(step, D, g);
  }
  scale = a->learning_rate / (sqrtf(*m) + a->eps);
  if (a->weight_decay_mode == TRS_DECAY_L2) keep = 1.0f - scale * a->weight_decay;
  if (a->weight_decay_mode == TRS_DECAY_DECOUPLE) keep = 1.0f - a->learning_rate * a->weight_decay;
  if (keep == 1.0f)
    for (int d = 0; d < D; d++) w[d] -= scale * g[d];
  else
    for (int d = 0; d < D; d++) w[d] = keep * w[d] - scale * g[d];
}

/* Update the state of a row, without weight decay. Returns the factor of g in the step. */
ALWAYS_INLINE float rowwise_adagrad_scale(const TrsStep *step, int D, const float *g, float *m)
{
  *m += mean_square(step, D, g);
  return step->args->learning_rate / (sqrtf(*m) + step->args->eps);
}

ALWAYS_INLINE void step_rowwise_adagrad(const TrsStep *step, int D, float *w, const float *g, float *m)
{
  if (step->args->weight_decay_mode == TRS_DECAY_NONE)
    subtract(D, w, rowwise_adagrad_scale(step, D, g, m), g);
  else
    step_decayed_adagrad(step, D, w, g, m);
}

static void moment(float beta, int D, const float *restrict g, float *restrict m)
{
  for (int d = 0; d < D; d++) m[d] = beta * m[d] + (1.0f - beta) * g[d];
}

static void second_moment(float beta, int D, const float *restrict g, float *restrict v)
{
  for (int d = 0; d < D; d++) v[d] = beta * v[d] + (1.0f - beta) * (g[d] * g[d]);
}

/*
  Compute adam's direction r, including weight decay. If `partial` is set, v has one number for the
  row; otherwise it is [D].
*/
static void adam_direction(const TrsStep *step, int D, const float *restrict w, const float *restrict m,
                           const float *restrict v, int partial, float *restrict r)
{
  const float eps = step->args->eps, decay = step->args->weight_decay, c1 = step->correction1,
              c2 = step->correction2;
  if (partial) {
    const float below = sqrtf(v[0] / c2) + eps;
    for (int d = 0; d < D; d++) r[d] = (m[d] / c1) / below + decay * w[d];
  } else {
    for (int d = 0; d < D; d++) r[d] = (m[d] / c1) / (sqrtf(v[d] / c2) + eps) + decay * w[d];
  }
}

static void step_adam_family(const TrsStep *step, int D, float *restrict w, const float *restrict g,
                             float *restrict m, float *restrict v, int partial, int lamb)
{
  const TrsSparseOptimizerArgs *a = step->args;
  float *r = step->scratch, lr = a->learning_rate;

  moment(a->beta1, D, g, m);
  if (partial)
    v[0] = a->beta2 * v[0] + (1.0f - a->beta2) * mean_square(step, D, g);
  else
    second_moment(a->beta2, D, g, v);
  adam_direction(step, D, w, m, v, partial, r);
  if (lamb) { /* no step if |r| = 0; FBGEMM would divide by 0 */
    const float r_norm = sqrtf(dot(D, r, r));
    lr = r_norm > 0.0f ? lr * (sqrtf(dot(D, w, w)) / r_norm) : 0.0f;
  }
  for (int d = 0; d < D; d++) w[d] -= lr * r[d];
}

static void step_lars_sgd(const TrsStep *step, int D, float *restrict w, const float *restrict g,
                          float *restrict m)
{
  const TrsSparseOptimizerArgs *a = step->args;
  const float w_norm = sqrtf(dot(D, w, w)), below = sqrtf(dot(D, g, g)) + a->weight_decay * w_norm;
  const float rate = below > 0.0f ? a->learning_rate * a->eta * w_norm / below : 0.0f;

  for (int d = 0; d < D; d++) {
    m[d] = a->momentum * m[d] + rate * (g[d] + a->weight_decay * w[d]);
    w[d] -= m[d];
  }
}

static void step_lion(const TrsStep *step, int D, float *restrict w, const float *restrict g,
                      float *restrict m)
{
  const TrsSparseOptimizerArgs *a = step->args;

  for (int d = 0; d < D; d++) {
    const float u = a->beta1 * m[d] + (1.0f - a->beta1) * g[d];
    const float sign = (float)((u > 0.0f) - (u < 0.0f));
    w[d] -= a->learning_rate * (sign + a->weight_decay * w[d]);
    m[d] = a->beta2 * m[d] + (1.0f - a->beta2) * g[d];
  }
}

/* Do the step of ftrl (McMahan et al. 2013, algorithm 1). The learning rate is their alpha. */
static void step_ftrl(const TrsStep *step, int D, float *restrict w, const float *restrict g,
                      float *restrict z, float *restrict n)
{
  const float alpha = step->args->learning_rate, beta = step->args->beta, l1 = step->args->l1,
              l2 = step->args->l2;

  for (int d = 0; d < D; d++) {
    const float sum = n[d] + g[d] * g[d], root = sqrtf(sum);
    const float next = z[d] + g[d] - (root - sqrtf(n[d])) / alpha * w[d], beyond = fabsf(next) - l1;
    z[d] = next;
    n[d] = sum;
    w[d] = beyond > 0.0f ? -copysignf(beyond, next) / ((beta + root) / alpha + l2) : 0.0f;
  }
}

/* Return state s of the row. The state has one number for each element, or one for the row. */
ALWAYS_INLINE float *elements(const TrsTbeTable *table, int s, int64_t row, int D)
{
  return table->state[s] + row * D;
}

ALWAYS_INLINE float *of_row(const TrsTbeTable *table, int s, int64_t row)
{
  return table->state[s] + row;
}

/*
  The steps: X(KIND, statement). Each step has its own update function. An optimizer whose KIND has
  no step is rejected when the run is set up.
*/
#define STEPS(X) \
  X(NONE, (void)w) \
  X(SGD, subtract(D, w, step->args->learning_rate, g)) \
  X(ADAGRAD, step_adagrad(step, D, w, g, elements(table, 0, row, D))) \
  X(ROWWISE_ADAGRAD, step_rowwise_adagrad(step, D, w, g, of_row(table, 0, row))) \
  X(ADAM, step_adam_family(step, D, w, g, elements(table, 0, row, D), elements(table, 1, row, D), 0, 0)) \
  X(PARTIAL_ROWWISE_ADAM, \
    step_adam_family(step, D, w, g, elements(table, 0, row, D), of_row(table, 1, row), 1, 0)) \
  X(LAMB, step_adam_family(step, D, w, g, elements(table, 0, row, D), elements(table, 1, row, D), 0, 1)) \
  X(PARTIAL_ROWWISE_LAMB, \
    step_adam_family(step, D, w, g, elements(table, 0, row, D), of_row(table, 1, row), 1, 1)) \
  X(LARS_SGD, step_lars_sgd(step, D, w, g, elements(table, 0, row, D))) \
  X(LION, step_lion(step, D, w, g, elements(table, 0, row, D))) \
  X(FTRL, step_ftrl(step, D, w, g, elements(table, 0, row, D), elements(table, 1, row, D)))

/*
  Do one row's step. `kind` is a compile-time constant, so the compiler keeps only one statement.
*/
ALWAYS_INLINE void step_row(const TrsSparseOptimizerKind kind, const TrsStep *step, const TrsTbeTable *table,
                            int64_t row, int D, float *w, const float *g)
{
#define STEP_OF(KIND, statement) \
  if (kind == TRS_OPTIM_##KIND) (statement);
  STEPS(STEP_OF)
#undef STEP_OF
}

/*
  If the step is w -= *scale * g, compute the scale, update the row's state, and return 1. A loop
  that reads and writes w anyway can then do the step. If the step has another form, return 0.
*/
ALWAYS_INLINE int step_scale(const TrsSparseOptimizerKind kind, const TrsStep *step, const TrsTbeTable *table,
                             int64_t row, int D, const float *g, float *scale)
{
  if (kind == TRS_OPTIM_SGD) {
    *scale = step->args->learning_rate;
    return 1;
  }
  if (kind == TRS_OPTIM_ROWWISE_ADAGRAD && step->args->weight_decay_mode == TRS_DECAY_NONE) {
    *scale = rowwise_adagrad_scale(step, D, g, of_row(table, 0, row));
    return 1;
  }
  return 0;
}
