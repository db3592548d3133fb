/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A small batch of table-batched embedding (TBE) for tests. It has two tables, three features, and
  any width, type and optimizer. Bags may be empty or long, and may hold pruned (-1), invalid and
  repeated ids.
*/
#pragma once

#include "core/random/random.h"
#include "hosted_compute.h"

enum { N_TABLES = 2, N_FEATURES = 3, MAX_DIM = 130, N_KINDS = 12, N_DTYPES = 3 };

static const TrsComputeOps *ops;

typedef struct {
  int dim, batch, rows, kind; /* kind is an index into optimizers */
  TrsDType dtype;
  int mean, weighted;
  int more; /* number of extra columns of each table */
} shape;

typedef struct {
  TrsTbeTable table[N_TABLES]; /* the tables have dim + more and MAX_DIM + 1 - dim + more columns */
  TrsTbeFeature feature[N_FEATURES];
  TrsTbe tbe;
  TrsTbeInput input;
  int64_t *offsets, *values, out_stride;
  float *weights, *out, *grad, *grad_weights;
  TrsSparseOptimizerArgs args;
} problem;

/*
  The states of each optimizer. 'e' means one number for each element, 'r' one number for each row.
*/
static const struct {
  TrsSparseOptimizerKind kind;
  TrsWeightDecayMode decay;
  const char *states;
} optimizers[N_KINDS] = {
    {TRS_OPTIM_SGD, TRS_DECAY_NONE, ""},
    {TRS_OPTIM_ADAGRAD, TRS_DECAY_NONE, "e"},
    {TRS_OPTIM_ROWWISE_ADAGRAD, TRS_DECAY_NONE, "r"},
    {TRS_OPTIM_ROWWISE_ADAGRAD, TRS_DECAY_L2, "r"},
    {TRS_OPTIM_ROWWISE_ADAGRAD, TRS_DECAY_DECOUPLE, "r"},
    {TRS_OPTIM_ADAM, TRS_DECAY_NONE, "ee"},
    {TRS_OPTIM_PARTIAL_ROWWISE_ADAM, TRS_DECAY_NONE, "er"},
    {TRS_OPTIM_LAMB, TRS_DECAY_NONE, "ee"},
    {TRS_OPTIM_PARTIAL_ROWWISE_LAMB, TRS_DECAY_NONE, "er"},
    {TRS_OPTIM_LARS_SGD, TRS_DECAY_NONE, "e"},
    {TRS_OPTIM_LION, TRS_DECAY_NONE, "e"},
    {TRS_OPTIM_FTRL, TRS_DECAY_NONE, "ee"},
};

static void *memory(int64_t n, size_t size)
{
  void *p = calloc((size_t)n + 1, size);

  assert_non_null(p);
  return p;
}

static float *uniforms(int64_t n, uint64_t seed, float low)
{
  float *x = memory(n, sizeof(*x));

  TrsRandomUniformFill(seed, TRS_RANDOM_TEST, 1, 0, n, low, 1.0f, x);
  return x;
}

static uint32_t draw(uint64_t a, int64_t i)
{
  uint32_t words[4];

  TrsRandom(7, TRS_RANDOM_TEST, a, (uint64_t)i, words);
  return words[0];
}

/* Number of floats in state s. It is 0 if the optimizer has no such state. */
static int64_t state_floats(const char *states, int s, const TrsTbeTable *table)
{
  if (s >= (int)strlen(states)) return 0;
  return states[s] == 'r' ? table->rows : table->rows * table->dim;
}

static void make_table(const shape *s, int t, TrsTbeTable *table)
{
  const int dim = s->more + (t == 0 ? s->dim : MAX_DIM + 1 - s->dim);
  const int64_t stride = dim + dim % 3, n = s->rows * stride;
  float *x = uniforms(n, 10 + (uint64_t)t, -1.0f);

  *table = (TrsTbeTable){.rows = s->rows,
                         .stride = stride,
                         .dim = dim,
                         .dtype = s->dtype,
                         .key = 99 + (uint64_t)t,
                         .table_dim = dim};
  table->weight = memory(n, sizeof(float));
  assert_petsc_ok(trs_compute_backends[0]->convert(NULL, n, TRS_FP32, x, s->dtype, table->weight));
  free(x);
  for (int i = 0; i < 2; i++) {
    const int64_t floats = state_floats(optimizers[s->kind].states, i, table);
    if (floats > 0) table->state[i] = uniforms(floats, 20 + (uint64_t)i, 0.0f);
  }
}

/*
  Make ids. Bags have 0 to 6 ids, and one bag has 100. Every 5th id is pruned or not a row of the
  table.
*/
static void make_ids(const shape *s, problem *p)
{
  const int64_t bags = (int64_t)N_FEATURES * s->batch;
  int64_t n = 0;

  p->offsets = memory(bags + 1, sizeof(*p->offsets));
  for (int64_t b = 0; b < bags; b++) {
    p->offsets[b] = n;
    n += b == bags / 2 ? 100 : draw(1, b) % 7;
  }
  p->offsets[bags] = n;
  p->values = memory(n, sizeof(*p->values));
  for (int64_t i = 0; i < n; i++) {
    p->values[i] = draw(2, i) % (uint32_t)s->rows;
    if (i % 5 == 4) p->values[i] = i % 3 == 0 ? -1 : i % 3 == 1 ? s->rows : INT64_MIN + i;
  }
  p->weights = s->weighted ? uniforms(n, 30, -1.0f) : NULL;
  p->grad_weights = memory(n, sizeof(float));
  p->input = (TrsTbeInput){
      .batch = s->batch, .offsets = p->offsets, .values = p->values, .weights = p->weights, .n_values = n};
}

/*
  Make a problem. Features 0 and 2 share table 1. Pooled rows leave a gap of one float between
  features.
*/
static void make_problem(const shape *s, problem *p)
{
  *p = (problem){0};
  p->args = (TrsSparseOptimizerArgs){.kind = optimizers[s->kind].kind,
                                     .weight_decay_mode = optimizers[s->kind].decay,
                                     .learning_rate = 0.1f,
                                     .eps = 1e-3f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.99f,
                                     .weight_decay = 0.05f,
                                     .eta = 0.1f,
                                     .momentum = 0.8f,
                                     .beta = 0.5f,
                                     .l1 = 0.3f,
                                     .l2 = 0.2f,
                                     .step = 3,
                                     .seed = 5};
  for (int t = 0; t < N_TABLES; t++) make_table(s, t, &p->table[t]);
  for (int f = 0; f < N_FEATURES; f++) {
    p->feature[f] = (TrsTbeFeature){.table = f != 1, .mean = s->mean, .out_column = p->out_stride};
    p->out_stride += p->table[p->feature[f].table].dim + 1;
  }
  p->tbe = (TrsTbe){.n_tables = N_TABLES, .n_features = N_FEATURES, .table = p->table, .feature = p->feature};
  make_ids(s, p);
  p->out = uniforms(s->batch * p->out_stride, 40, -1.0f);
  p->grad = uniforms(s->batch * p->out_stride, 41, -1.0f);
}

static void free_problem(problem *p)
{
  for (int t = 0; t < N_TABLES; t++) {
    free(p->table[t].weight);
    free(p->table[t].state[0]);
    free(p->table[t].state[1]);
  }
  free(p->offsets);
  free(p->values);
  free(p->weights);
  free(p->out);
  free(p->grad);
  free(p->grad_weights);
}
