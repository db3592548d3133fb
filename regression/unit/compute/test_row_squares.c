/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables cut by columns and updated with the squares of whole rows give the same bits as uncut
  tables. The cases include every type, every optimizer that uses squares, every position of the
  cut, weights, means, and pruned and invalid ids. They run on every instruction set and with
  several numbers of threads.
*/
#include "tbe_problem.h"

#include <omp.h>

/*
  One side of the cut in both tables: columns [column, column + dim), with the row stride of the
  whole tables.
*/
typedef struct {
  TrsTbeTable table[N_TABLES];
  TrsTbeFeature feature[N_FEATURES];
  TrsTbe tbe;
  float *sums[N_TABLES];
} side;

static int64_t columns_left(int64_t dim)
{
  return dim > 2 * TRS_SQUARES_COLUMNS ? 2 * TRS_SQUARES_COLUMNS : TRS_SQUARES_COLUMNS;
}

/*
  Copy a state. If it has one number for each element, copy the columns of this side. If it has one
  number for each row, copy that number.
*/
static float *copy_state(const TrsTbeTable *whole, const TrsTbeTable *part, int s, char kind)
{
  const int64_t dim = kind == 'r' ? 1 : part->dim, whole_dim = kind == 'r' ? 1 : whole->dim;
  float *to = memory(part->rows * dim, sizeof(*to));

  for (int64_t row = 0; row < part->rows; row++)
    memcpy(to + row * dim, whole->state[s] + row * whole_dim + (kind == 'r' ? 0 : part->col_offset),
           (size_t)dim * sizeof(*to));
  return to;
}

static void cut(const problem *p, const char *states, int right, side *s)
{
  for (int t = 0; t < N_TABLES; t++) {
    const TrsTbeTable *whole = &p->table[t];
    const int64_t left = columns_left(whole->dim), bytes = TrsDTypeBytes(whole->dtype),
                  all = whole->rows * whole->stride;
    char *copy = memory(all, sizeof(float));

    memcpy(copy, whole->weight, (size_t)(all * bytes));
    s->table[t] = *whole;
    s->table[t].col_offset = right ? left : 0;
    s->table[t].dim = (int32_t)(right ? whole->dim - left : left);
    s->table[t].weight = copy + s->table[t].col_offset * bytes;
    for (int i = 0; states[i]; i++) s->table[t].state[i] = copy_state(whole, &s->table[t], i, states[i]);
    s->sums[t] = memory(p->input.n_values * 4, sizeof(float));
  }
  for (int f = 0; f < N_FEATURES; f++) {
    s->feature[f] = p->feature[f];
    s->feature[f].out_column += s->table[p->feature[f].table].col_offset;
  }
  s->tbe = (TrsTbe){.n_tables = N_TABLES, .n_features = N_FEATURES, .table = s->table, .feature = s->feature};
}

static void free_side(side *s)
{
  for (int t = 0; t < N_TABLES; t++) {
    free((char *)s->table[t].weight - s->table[t].col_offset * TrsDTypeBytes(s->table[t].dtype));
    free(s->table[t].state[0]);
    free(s->table[t].state[1]);
    free(s->sums[t]);
  }
}

/* Add the squares of both sides, in the order of columns. */
static void add_up(const problem *p, const side sides[2], float *total[N_TABLES])
{
  for (int t = 0; t < N_TABLES; t++)
    for (int64_t i = 0; i < p->input.n_values; i++) {
      total[t][i] = 0.0f;
      for (int right = 0; right < 2; right++) {
        const int64_t blocks = (sides[right].table[t].dim + TRS_SQUARES_COLUMNS - 1) / TRS_SQUARES_COLUMNS;
        for (int64_t b = 0; b < blocks; b++) total[t][i] += sides[right].sums[t][i * blocks + b];
      }
    }
}

static void check_side(const problem *p, const char *states, const side *s)
{
  for (int t = 0; t < N_TABLES; t++) {
    const TrsTbeTable *whole = &p->table[t], *part = &s->table[t];
    const int64_t bytes = TrsDTypeBytes(whole->dtype), row_bytes = whole->stride * bytes;

    for (int64_t row = 0; row < whole->rows; row++) {
      assert_memory_equal((char *)part->weight + row * row_bytes,
                          (char *)whole->weight + row * row_bytes + part->col_offset * bytes,
                          (size_t)(part->dim * bytes));
      for (int i = 0; states[i]; i++) {
        const int64_t dim = states[i] == 'r' ? 1 : part->dim;
        assert_memory_equal(part->state[i] + row * dim,
                            states[i] == 'r' ? whole->state[i] + row
                                             : whole->state[i] + row * whole->dim + part->col_offset,
                            (size_t)dim * sizeof(float));
      }
    }
  }
}

static void check_cut(const shape *s)
{
  const char *states = optimizers[s->kind].states;
  float *total[N_TABLES];
  side sides[2] = {{.tbe = {0}}};
  TrsWorkspace workspace;
  problem p;

  make_problem(s, &p);
  for (int t = 0; t < N_TABLES; t++) {
    p.table[t].stochastic_rounding = s->batch % 2;
    total[t] = memory(p.input.n_values, sizeof(float));
  }
  assert_petsc_ok(ops->workspace_create(&workspace));
  for (int i = 0; i < 2; i++) {
    cut(&p, states, i, &sides[i]);
    assert_petsc_ok(
        ops->tbe_row_squares(NULL, workspace, &sides[i].tbe, &p.input, p.grad, p.out_stride, sides[i].sums));
  }
  add_up(&p, sides, total);
  assert_petsc_ok(
      ops->tbe_backward(NULL, workspace, &p.tbe, &p.input, TrsFloats(p.grad, p.out_stride), &p.args));
  p.input.row_squares = total;
  for (int i = 0; i < 2; i++) {
    assert_petsc_ok(ops->tbe_backward(NULL, workspace, &sides[i].tbe, &p.input,
                                      TrsFloats(p.grad, p.out_stride), &p.args));
    check_side(&p, states, &sides[i]);
    free_side(&sides[i]);
  }
  for (int t = 0; t < N_TABLES; t++) free(total[t]);
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free_problem(&p);
}

static void test_cuts(void **state)
{
  static const char *const isas[] = {"portable", "avx2", NULL};
  /* the other table has 131 - dim columns */
  static const int dims[] = {33, 40, 64, 65, 66, 97, 98};
  int n = 0;

  (void)state;
  ops = trs_hosted(0);
  for (int kind = 0; kind < N_KINDS; kind++) {
    if (optimizers[kind].kind != TRS_OPTIM_PARTIAL_ROWWISE_ADAM &&
        (optimizers[kind].kind != TRS_OPTIM_ROWWISE_ADAGRAD || optimizers[kind].decay == TRS_DECAY_L2))
      continue;
    for (int d = 0; d < 7; d++)
      for (int type = 0; type < N_DTYPES; type++, n++) {
        const shape s = {.dim = dims[d],
                         .batch = 8 + n % 2,
                         .rows = n % 3 == 0 ? 5 : 60,
                         .kind = kind,
                         .dtype = type == 0   ? TRS_FP32
                                  : type == 1 ? TRS_FP16
                                              : TRS_BF16,
                         .mean = n % 4 == 1,
                         .weighted = n % 5 < 2};
        TrsComputeSetIsa(isas[n % 3]);
        omp_set_num_threads(1 + n % 2 * 2);
        check_cut(&s);
      }
  }
  TrsComputeSetIsa(NULL);
  omp_set_num_threads(1);
  assert_int_equal(n, 3 * 7 * N_DTYPES);
}

TRS_TEST_MAIN(cmocka_unit_test(test_cuts))
