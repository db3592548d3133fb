/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST timeout: 300 */
/*
  Tests table-batched embedding on every backend. Every width from 1 to 130, every type and every
  optimizer is compared with the definition in double. All instruction sets and numbers of threads
  give the same bits. Stochastic rounding has the right statistics. Bags may be empty or long, and
  may hold pruned (-1), invalid and repeated ids.
*/
#include "compute/half.h"
#include "cpu/isa/tbe_kernels.h"
#include "optimizer_definition.h"
#include "tbe_problem.h"

#include <math.h>
#include <omp.h>

static void run_problem(problem *p)
{
  TrsWorkspace workspace;

  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_forward(NULL, workspace, &p->tbe, &p->input, TrsFloats(p->out, p->out_stride)));
  assert_petsc_ok(ops->tbe_weight_gradients(NULL, workspace, &p->tbe, &p->input, p->grad, p->out_stride,
                                            p->grad_weights));
  assert_petsc_ok(
      ops->tbe_backward(NULL, workspace, &p->tbe, &p->input, TrsFloats(p->grad, p->out_stride), &p->args));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
}

/* --- the definition, in double --- */

static double element(const TrsTbeTable *table, int64_t row, int d)
{
  const int64_t at = row * table->stride + d;

  if (table->dtype == TRS_FP16) return (double)TrsHalfToFloat(((const uint16_t *)table->weight)[at]);
  if (table->dtype == TRS_BF16) return (double)TrsBf16ToFloat(((const uint16_t *)table->weight)[at]);
  return (double)((const float *)table->weight)[at];
}

static int is_row(const TrsTbeTable *table, int64_t id)
{
  return id >= 0 && id < table->rows;
}

static void check_forward(const problem *p)
{
  float *before = uniforms(p->input.batch * p->out_stride, 40, -1.0f);

  for (int f = 0; f < N_FEATURES; f++) {
    const TrsTbeTable *table = &p->table[p->feature[f].table];
    for (int64_t b = 0; b < p->input.batch; b++) {
      const int64_t begin = p->offsets[f * p->input.batch + b], end = p->offsets[f * p->input.batch + b + 1];
      const int64_t at = b * p->out_stride + p->feature[f].out_column;
      for (int d = 0; d < table->dim; d++) {
        double sum = 0.0;
        for (int64_t i = begin; i < end; i++)
          if (is_row(table, p->values[i]))
            sum += (p->weights ? (double)p->weights[i] : 1.0) * element(table, p->values[i], d);
        if (p->feature[f].mean && end > begin) sum /= (double)(end - begin);
        assert_close(p->out[at + d], sum, 2e-5, 1e-6);
      }
      assert_true(p->out[at + table->dim] == before[at + table->dim]); /* the gap must not change */
    }
  }
  free(before);
}

static void check_weight_gradients(const problem *p)
{
  for (int f = 0; f < N_FEATURES; f++) {
    const TrsTbeTable *table = &p->table[p->feature[f].table];
    for (int64_t b = 0; b < p->input.batch; b++)
      for (int64_t bag = f * p->input.batch + b, i = p->offsets[bag]; i < p->offsets[bag + 1]; i++) {
        double sum = 0.0;
        for (int d = 0; is_row(table, p->values[i]) && d < table->dim; d++)
          sum += (double)p->grad[b * p->out_stride + p->feature[f].out_column + d] *
                 element(table, p->values[i], d);
        assert_close(p->grad_weights[i], sum, 1e-5, 1e-6);
      }
  }
}

/* Sum the gradient of every row of table t, and count how often each row occurs in the batch. */
static void sum_gradients(const problem *p, int t, double *g, int *occurs)
{
  const TrsTbeTable *table = &p->table[t];

  for (int64_t bag = 0; bag < N_FEATURES * p->input.batch; bag++) {
    const TrsTbeFeature *feature = &p->feature[bag / p->input.batch];
    const int64_t begin = p->offsets[bag], end = p->offsets[bag + 1];
    const float *from = p->grad + bag % p->input.batch * p->out_stride + feature->out_column;
    for (int64_t i = begin; feature->table == t && i < end; i++) {
      const double scale = (p->weights ? (double)p->weights[i] : 1.0) /
                           (double)(feature->mean ? end - begin : 1);
      if (!is_row(table, p->values[i])) continue;
      occurs[p->values[i]]++;
      for (int d = 0; d < table->dim; d++) g[p->values[i] * table->dim + d] += scale * (double)from[d];
    }
  }
}

/*
  A row of a table and its states before the step, in double. A state has at most one number for
  each column.
*/
typedef struct {
  double w[MAX_DIM], state[2][MAX_DIM];
} row_image;

static void read_row(const TrsTbeTable *table, const char *states, int64_t row, row_image *image)
{
  for (int d = 0; d < table->dim; d++) image->w[d] = element(table, row, d);
  for (int s = 0; s < (int)strlen(states); s++) {
    const int n = states[s] == 'r' ? 1 : table->dim;
    for (int d = 0; d < n; d++) image->state[s][d] = (double)table->state[s][row * n + d];
  }
}

/*
  Rows that occur follow the definition, except for the rounding of the type. All other rows keep
  every bit.
*/
static void check_table(const shape *s, const problem *before, const problem *after, int t)
{
  const TrsTbeTable *table = &after->table[t];
  const char *states = optimizers[s->kind].states;
  const double unit = s->dtype == TRS_FP16 ? 0x1p-11 : s->dtype == TRS_BF16 ? 0x1p-8 : 1e-6;
  double *g = memory(table->rows * table->dim, sizeof(*g));
  int *occurs = memory(table->rows, sizeof(*occurs));

  sum_gradients(before, t, g, occurs);
  for (int64_t r = 0; r < table->rows; r++) {
    row_image expected, found;
    read_row(&before->table[t], states, r, &expected);
    read_row(table, states, r, &found);
    if (occurs[r])
      step_by_definition(&after->args, table->dim, expected.w, g + r * table->dim, expected.state[0],
                         expected.state[1]);
    for (int d = 0; d < table->dim; d++)
      assert_close(found.w[d], expected.w[d], occurs[r] ? 1e-5 : 0.0, occurs[r] ? unit : 0.0);
    for (int i = 0; i < (int)strlen(states); i++)
      for (int d = 0; d < (states[i] == 'r' ? 1 : table->dim); d++)
        assert_close(found.state[i][d], expected.state[i][d], occurs[r] ? 1e-5 : 0.0, occurs[r] ? 2e-5 : 0.0);
  }
  free(g);
  free(occurs);
}

/* As the width grows, all combinations of pooling, weights and type are used. */
static shape shape_of(int dim, int kind)
{
  const int n = dim + 5 * kind;

  return (shape){.dim = dim,
                 .batch = 11,
                 .rows = 23,
                 .kind = kind,
                 .dtype = (TrsDType[N_DTYPES]){TRS_FP32, TRS_FP16, TRS_BF16}[n % N_DTYPES],
                 .mean = n & 1,
                 .weighted = n >> 1 & 1};
}

static void check_definition(int step)
{
  for (int dim = 1; dim <= MAX_DIM; dim += step)
    for (int kind = 0; kind < N_KINDS; kind++) {
      const shape s = shape_of(dim, kind);
      problem before, after;
      make_problem(&s, &before);
      make_problem(&s, &after);
      run_problem(&after);
      for (int i = 0; i < N_TABLES; i++) check_table(&s, &before, &after, i);
      memcpy(before.out, after.out, (size_t)(s.batch * after.out_stride) * sizeof(float));
      memcpy(before.grad_weights, after.grad_weights, (size_t)after.input.n_values * sizeof(float));
      check_forward(&before);
      check_weight_gradients(&before);
      free_problem(&before);
      free_problem(&after);
    }
}

/*
  The stand-in for a GPU is slow. So its build sets TRS_FEW and tests only every seventh width,
  which includes each remainder modulo 2, 4 and 8. Other builds test the CPU's kernels at every
  width.
*/
static void test_definition(void **state)
{
  const int few = getenv("TRS_FEW") != NULL;

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) check_definition(few ? 7 : i == 0 ? 1 : 3);
}

/* --- equal bits --- */

static void assert_same(const problem *a, const problem *b, const char *states)
{
  assert_memory_equal(a->out, b->out, (size_t)(a->input.batch * a->out_stride) * sizeof(float));
  assert_memory_equal(a->grad_weights, b->grad_weights, (size_t)a->input.n_values * sizeof(float));
  for (int t = 0; t < N_TABLES; t++) {
    const TrsTbeTable *table = &a->table[t];
    assert_memory_equal(table->weight, b->table[t].weight,
                        (size_t)(table->rows * table->stride * TrsDTypeBytes(table->dtype)));
    for (int i = 0; i < (int)strlen(states); i++)
      assert_memory_equal(table->state[i], b->table[t].state[i],
                          (size_t)state_floats(states, i, table) * sizeof(float));
  }
}

/* If isa is "best", the processor's best instruction set is used. */
static void run_with(const shape *s, const char *isa, int threads, problem *p)
{
  make_problem(s, p);
  for (int t = 0; t < N_TABLES; t++) p->table[t].stochastic_rounding = 1;
  if (strcmp(isa, "best") == 0)
    TrsComputeSetIsa(NULL);
  else
    TrsComputeSetIsa(isa);
  omp_set_num_threads(threads);
  run_problem(p);
  omp_set_num_threads(1);
  TrsComputeSetIsa(NULL);
}

static void test_instruction_sets(void **state)
{
  (void)state;
  for (int dim = 1; dim <= MAX_DIM; dim++)
    for (int kind = 0; kind < N_KINDS; kind++) {
      const shape s = shape_of(dim, kind);
      problem portable, other;
      run_with(&s, "portable", 1, &portable);
      for (int i = 0; i < 2; i++) {
        run_with(&s, i == 0 ? "avx2" : "best", 1, &other);
        assert_same(&portable, &other, optimizers[kind].states);
        free_problem(&other);
      }
      free_problem(&portable);
    }
}

/*
  With few rows and many ids, the ids of one row extend over the parts of several threads. In the
  larger batches, all threads together group the rows of one table. The rows of the last shape do
  not fit on the stack, and threads work on both tables at the same time.
*/
static void test_threads(void **state)
{
  static const struct {
    int dim, batch, more;
  } shapes[] = {{1, 700, 0},  {5, 9000, 0},  {16, 9000, 0},
                {67, 700, 0}, {128, 700, 0}, {1, 700, TRS_TBE_STACK_COLUMNS}};

  (void)state;
  for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
    for (int kind = 0; kind < N_KINDS; kind++) {
      shape s = shape_of(shapes[i].dim, kind);
      problem alone, together;
      s.batch = shapes[i].batch;
      s.more = shapes[i].more;
      run_with(&s, "best", 1, &alone);
      for (int threads = 2; threads <= 4; threads++) {
        run_with(&s, "best", threads, &together);
        assert_same(&alone, &together, optimizers[kind].states);
        free_problem(&together);
      }
      free_problem(&alone);
    }
}

/* --- other ways to the same result --- */

/*
  Rows that were listed ahead equal the rows of the gradients. The call for gradients then need not
  list rows again.
*/
static void check_listed_rows(problem *p, const int64_t *begin, const int64_t *rows, const float *row_grad)
{
  const int64_t n = begin[N_TABLES];
  int64_t listed_begin[N_TABLES + 1], *listed = memory(p->input.n_values, sizeof(*listed));
  float *alone = memory(p->input.n_values * MAX_DIM, sizeof(*alone));
  TrsWorkspace workspace;

  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_list_rows(NULL, workspace, &p->tbe, &p->input, listed_begin, listed));
  assert_memory_equal(listed_begin, begin, (N_TABLES + 1) * sizeof(*begin));
  assert_memory_equal(listed, rows, (size_t)n * sizeof(*rows));
  assert_petsc_ok(ops->tbe_row_gradients(NULL, workspace, &p->tbe, &p->input,
                                         TrsFloats(p->grad, p->out_stride), NULL, NULL, alone, MAX_DIM));
  for (int t = 0; t < N_TABLES; t++)
    for (int64_t i = begin[t]; i < begin[t + 1]; i++)
      assert_memory_equal(alone + i * MAX_DIM, row_grad + i * MAX_DIM,
                          (size_t)p->table[t].dim * sizeof(*alone));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free(alone);
  free(listed);
}

/*
  Compute row gradients first and then update these rows, as in data_parallel. This gives the same
  bits as the fused backward.
*/
static void check_row_gradients(void)
{
  for (int kind = 0; kind < N_KINDS; kind++) {
    const shape s = shape_of(37 + kind, kind);
    int64_t begin[N_TABLES + 1], *rows;
    float *row_grad;
    problem fused, apart;
    TrsWorkspace workspace;

    make_problem(&s, &fused);
    make_problem(&s, &apart);
    run_problem(&fused);
    rows = memory(apart.input.n_values, sizeof(*rows));
    row_grad = memory(apart.input.n_values * MAX_DIM, sizeof(*row_grad));
    assert_petsc_ok(ops->workspace_create(&workspace));
    assert_petsc_ok(ops->tbe_row_gradients(NULL, workspace, &apart.tbe, &apart.input,
                                           TrsFloats(apart.grad, apart.out_stride), begin, rows, row_grad,
                                           MAX_DIM));
    check_listed_rows(&apart, begin, rows, row_grad);
    for (int t = 0; t < N_TABLES; t++) {
      for (int64_t i = begin[t] + 1; i < begin[t + 1]; i++) assert_true(rows[i - 1] < rows[i]);
      assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &apart.table[t],
                                           &(TrsRowGradients){begin[t + 1] - begin[t], rows + begin[t], NULL,
                                                              row_grad + begin[t] * MAX_DIM, MAX_DIM},
                                           &apart.args));
    }
    memcpy(apart.out, fused.out, (size_t)(s.batch * fused.out_stride) * sizeof(float));
    memcpy(apart.grad_weights, fused.grad_weights, (size_t)fused.input.n_values * sizeof(float));
    assert_same(&fused, &apart, optimizers[kind].states);
    assert_petsc_ok(ops->workspace_destroy(&workspace));
    free(rows);
    free(row_grad);
    free_problem(&fused);
    free_problem(&apart);
  }
}

static void test_row_gradients(void **state)
{
  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) check_row_gradients();
}

/* --- parts of a batch: the call must not read values before and after the bags --- */

enum { BEFORE = 5, BEHIND = 9 };

/*
  Move the problem's batch into the middle of a longer batch. The other values are row 0, which the
  call must not change.
*/
static void widen(problem *p)
{
  const int64_t n = p->input.n_values, bags = (int64_t)N_FEATURES * p->input.batch;
  int64_t *values = memory(n + BEFORE + BEHIND, sizeof(*values));
  float *weights = memory(n + BEFORE + BEHIND, sizeof(*weights));

  /* the ids before and after the batch are 0, with weight 1 */
  for (int64_t i = 0; i < n + BEFORE + BEHIND; i++) weights[i] = 1.0f;
  memcpy(values + BEFORE, p->values, (size_t)n * sizeof(*values));
  if (p->weights) memcpy(weights + BEFORE, p->weights, (size_t)n * sizeof(*weights));
  for (int64_t b = 0; b <= bags; b++) p->offsets[b] += BEFORE;
  free(p->values);
  p->input.values = p->values = values;
  if (p->weights) {
    free(p->weights);
    p->input.weights = p->weights = weights;
  } else {
    free(weights);
  }
  p->input.n_values = n + BEFORE + BEHIND;
}

static void update_all(problem *p)
{
  TrsWorkspace workspace;

  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(
      ops->tbe_backward(NULL, workspace, &p->tbe, &p->input, TrsFloats(p->grad, p->out_stride), &p->args));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
}

static void test_parts(void **state)
{
  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++)
    for (int kind = 0; kind < N_KINDS; kind++) {
      const shape s = shape_of(11 + 3 * kind, kind);
      problem whole, part;

      make_problem(&s, &whole);
      make_problem(&s, &part);
      widen(&part);
      update_all(&whole);
      update_all(&part);
      for (int t = 0; t < N_TABLES; t++)
        assert_memory_equal(part.table[t].weight, whole.table[t].weight,
                            (size_t)hosted_table_bytes(&whole.table[t]));
      free_problem(&whole);
      free_problem(&part);
    }
}

/* Find the distinct ids of a table whose values do not begin at index 0. */
static void test_unique_of_a_part(void **state)
{
  enum { FIRST = 4, N = 9 };
  static const int64_t values[N] = {7, 7, 1, 0, 5, 3, 5, 3, 9}, expected[3] = {3, 5, 9},
                       place[N - FIRST] = {1, 0, 1, 0, 2};
  const int64_t begin[2] = {FIRST, N};
  int64_t unique_begin[2], unique[N], reverse[N];
  TrsWorkspace workspace;

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) {
    memset(unique, 0, sizeof(unique));
    memset(reverse, 0, sizeof(reverse));
    assert_petsc_ok(ops->workspace_create(&workspace));
    assert_petsc_ok(ops->unique(NULL, workspace, 1, begin, values, unique_begin, unique, reverse));
    assert_petsc_ok(ops->workspace_destroy(&workspace));
    assert_int_equal(unique_begin[0], 0);
    assert_int_equal(unique_begin[1], 3);
    assert_memory_equal(unique, expected, sizeof(expected));
    assert_memory_equal(reverse + FIRST, place, sizeof(place));
  }
}

/* --- merging lists of rows --- */

enum { MOST_LISTS = 5, MOST_TABLES = 3, LONGEST = 40 };

/*
  Draw ascending rows from a table of `rows` rows, one row in `sparse`. Some lists also begin or end
  with a row outside of the table. Returns the number of rows.
*/
static int64_t draw_list(uint64_t seed, int64_t rows, int sparse, int64_t *list)
{
  int64_t n = 0;

  if (draw(seed, 1000) % 3 == 0) list[n++] = -1;
  for (int64_t row = 0; row < rows; row++)
    if (draw(seed, row) % (uint32_t)sparse == 0) list[n++] = row;
  if (draw(seed, 1001) % 3 == 0) list[n++] = rows + (int64_t)(draw(seed, 1002) % 2);
  return n;
}

/*
  The merged list is ordered by table, row and list. Rows outside of their table come last, in any
  order. The entries' places are all different.
*/
static void check_merged(int n_tables, const TrsTbeTable *table, int n_lists, const int64_t *begin,
                         const int64_t *rows, const int64_t *keys, const int64_t *index)
{
  const int64_t n = begin[n_lists * n_tables];
  int64_t at = 0, first = 0, *met = memory(n, sizeof(*met));

  for (int t = 0; t < n_tables; first += table[t++].rows)
    for (int64_t row = 0; row < table[t].rows; row++)
      for (int q = 0; q < n_lists; q++)
        for (int64_t i = begin[q * n_tables + t]; i < begin[q * n_tables + t + 1]; i++) {
          if (rows[i] != row) continue;
          assert_int_equal(keys[at], first + row);
          assert_int_equal(index[at++], i);
        }
  for (; at < n; at++) assert_int_equal(keys[at], first);
  for (at = 0; at < n; at++) assert_int_equal(met[index[at]]++, 0);
  free(met);
}

static void check_merge(int draw_of, int n_lists, int n_tables, TrsWorkspace workspace)
{
  enum { ROOM = MOST_LISTS * MOST_TABLES * (LONGEST + 2) };
  const TrsTbeTable table[MOST_TABLES] = {{.rows = LONGEST}, {.rows = draw_of % 2}, {.rows = 7}};
  int64_t begin[MOST_LISTS * MOST_TABLES + 1] = {0}, rows[ROOM], keys[ROOM], index[ROOM];

  for (int i = 0; i < n_lists * n_tables; i++)
    begin[i + 1] = begin[i] + draw_list((uint64_t)(100 * draw_of + i), table[i % n_tables].rows,
                                        1 + (draw_of + i) % 4, rows + begin[i]);
  assert_petsc_ok(ops->merge_rows(NULL, workspace, n_tables, table, n_lists, begin, rows, keys, index));
  check_merged(n_tables, table, n_lists, begin, rows, keys, index);
}

static void test_merge_rows(void **state)
{
  TrsWorkspace workspace;

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) {
    assert_petsc_ok(ops->workspace_create(&workspace));
    for (int n_lists = 1; n_lists <= MOST_LISTS; n_lists++)
      for (int n_tables = 1; n_tables <= MOST_TABLES; n_tables++)
        for (int d = 0; d < 3; d++) check_merge(d + 7 * n_lists, n_lists, n_tables, workspace);
    assert_petsc_ok(ops->workspace_destroy(&workspace));
  }
}

/* Rows outside of the table have no effect. */
static void test_strangers(void **state)
{
  enum { N = 4, DIM = 5 };
  const int64_t rows[N] = {0, 2, 3, 3};
  const TrsSparseOptimizerArgs args = {.kind = TRS_OPTIM_SGD, .learning_rate = 1.0f, .step = 1};
  const float grad[N * DIM] = {1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  TrsWorkspace workspace;

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) {
    float weight[3 * DIM] = {0};
    const TrsTbeTable table = {
        .weight = weight, .rows = 3, .stride = DIM, .dim = DIM, .dtype = TRS_FP32, .table_dim = DIM};

    assert_petsc_ok(ops->workspace_create(&workspace));
    assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                         &(TrsRowGradients){N, rows, NULL, grad, DIM}, &args));
    for (int d = 0; d < DIM; d++) {
      assert_true(weight[d] == -1.0f && weight[DIM + d] == 0.0f && weight[2 * DIM + d] == -2.0f);
    }
    assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                         &(TrsRowGradients){2, rows + 2, NULL, grad, DIM}, &args));
    assert_true(weight[2 * DIM] == -2.0f);
    assert_petsc_ok(ops->workspace_destroy(&workspace));
  }
}

/*
  Rows that are selected from a table in any order are rounded with the random bits of the table.
*/
static void check_rounding_of_picked(const uint16_t *whole, const float *grad, TrsWorkspace workspace,
                                     const TrsSparseOptimizerArgs *args, TrsTbeTable table)
{
  enum { N = 3 };
  const int64_t picked[N] = {10, 3, 7};
  uint16_t *found = calloc((size_t)(N * table.stride), sizeof(*found));

  assert_non_null(found);
  table.weight = found;
  table.rows = N;
  table.row_of = picked;
  assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                       &(TrsRowGradients){N, NULL, picked, grad, table.stride}, args));
  for (int i = 0; i < N; i++)
    assert_memory_equal(found + i * table.stride, whole + picked[i] * table.stride,
                        (size_t)table.dim * sizeof(*whole));
  free(found);
}

/*
  A table of rows x dim, and shards with half of its columns or rows, are rounded with the same
  random bits.
*/
static void check_rounding_by_shards(void)
{
  enum { ROWS = 12, DIM = 14, LEFT = 6, UPPER = 5 };
  uint16_t whole[ROWS * DIM] = {0}, part[4][ROWS * DIM] = {{0}};
  const int64_t offset[2] = {0, UPPER}, column[2] = {0, LEFT};
  float *grad = uniforms(ROWS * DIM, 50, -1.0f);
  const TrsSparseOptimizerArgs args = {.kind = TRS_OPTIM_SGD, .learning_rate = 0.3f, .step = 2, .seed = 11};
  TrsTbeTable table = {.weight = whole,
                       .rows = ROWS,
                       .stride = DIM,
                       .dim = DIM,
                       .dtype = TRS_FP16,
                       .stochastic_rounding = 1,
                       .key = 3,
                       .table_dim = DIM};
  int64_t rows[ROWS];
  TrsWorkspace workspace;

  for (int r = 0; r < ROWS; r++) rows[r] = r;
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                       &(TrsRowGradients){ROWS, rows, NULL, grad, DIM}, &args));
  check_rounding_of_picked(whole, grad, workspace, &args, table);
  for (int i = 0; i < 4; i++) {
    const int r = i / 2, c = i % 2;
    table.weight = part[i];
    table.rows = r ? ROWS - UPPER : UPPER;
    table.dim = c ? DIM - LEFT : LEFT;
    table.row_offset = offset[r];
    table.col_offset = column[c];
    assert_petsc_ok(ops->tbe_update_rows(
        NULL, workspace, 1, &table,
        &(TrsRowGradients){table.rows, rows, NULL, grad + offset[r] * DIM + column[c], DIM}, &args));
    for (int64_t row = 0; row < table.rows; row++)
      assert_memory_equal(part[i] + row * DIM, whole + (offset[r] + row) * DIM + column[c],
                          (size_t)table.dim * sizeof(*whole));
  }
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free(grad);
}

static void test_rounding_by_shards(void **state)
{
  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) check_rounding_by_shards();
}

/* --- stochastic rounding --- */

enum { DRAW_ROWS = 1000, DRAW_COLUMNS = 100, DRAWS = DRAW_ROWS * DRAW_COLUMNS };

/*
  Store x into every element of a table, by the step 0 - 1 * -x. up[i] is 1 if element i was rounded
  away from zero.
*/
static void round_table(TrsDType dtype, float x, uint64_t seed, int64_t step, uint8_t *up)
{
  const float spacing = dtype == TRS_FP16 ? fmaxf(ldexpf(1.0f, ilogbf(x) - 10), 0x1p-24f)
                                          : ldexpf(1.0f, ilogbf(x) - 7);
  uint16_t *weight = memory(DRAWS, sizeof(*weight));
  float *grad = memory(DRAWS, sizeof(*grad));
  int64_t rows[DRAW_ROWS];
  const TrsSparseOptimizerArgs args = {
      .kind = TRS_OPTIM_SGD, .learning_rate = 1.0f, .step = step, .seed = seed};
  const TrsTbeTable table = {.weight = weight,
                             .rows = DRAW_ROWS,
                             .stride = DRAW_COLUMNS,
                             .dim = DRAW_COLUMNS,
                             .dtype = dtype,
                             .stochastic_rounding = 1,
                             .key = 77,
                             .table_dim = DRAW_COLUMNS};
  TrsWorkspace workspace;

  for (int i = 0; i < DRAWS; i++) grad[i] = -x;
  for (int r = 0; r < DRAW_ROWS; r++) rows[r] = r;
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                       &(TrsRowGradients){DRAW_ROWS, rows, NULL, grad, DRAW_COLUMNS}, &args));
  for (int i = 0; i < DRAWS; i++) {
    const float found = dtype == TRS_FP16 ? TrsHalfToFloat(weight[i]) : TrsBf16ToFloat(weight[i]);
    /* the result is a neighbour of x, or x itself if x has a code */
    assert_true(fabsf(found - x) < spacing);
    up[i] = fabsf(found) > fabsf(x);
  }
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free(weight);
  free(grad);
}

/* The fraction of ones in n draws with probability p must be within 4 standard deviations. */
static void assert_share(int64_t ones, int64_t n, double p)
{
  assert_close((double)ones / (double)n, p, 4.0 * sqrt(p * (1.0 - p) / (double)n), 0.0);
}

/*
  x = lo + p (hi - lo) is rounded up with probability p. Neighbouring elements, other steps and
  other seeds are drawn independently.
*/
static void check_draws(TrsDType dtype, float x, double p)
{
  uint8_t *up = memory(DRAWS, 1), *again = memory(DRAWS, 1), *later = memory(DRAWS, 1),
          *seeded = memory(DRAWS, 1);
  const double q = p * p + (1.0 - p) * (1.0 - p); /* probability that two independent draws agree */
  int64_t ones = 0, column = 0, row = 0, step = 0, seed = 0;

  round_table(dtype, x, 1, 1, up);
  round_table(dtype, x, 1, 1, again);
  round_table(dtype, x, 1, 2, later);
  round_table(dtype, x, 2, 1, seeded);
  assert_memory_equal(up, again, DRAWS);
  for (int i = 0; i < DRAWS; i++) {
    ones += up[i];
    step += up[i] == later[i];
    seed += up[i] == seeded[i];
    column += up[i] == up[(i + 1) % DRAWS];
    row += up[i] == up[(i + DRAW_COLUMNS) % DRAWS];
  }
  assert_share(ones, DRAWS, p);
  assert_share(step, DRAWS, q);
  assert_share(seed, DRAWS, q);
  assert_share(column, DRAWS, q);
  assert_share(row, DRAWS, q);
  free(up);
  free(again);
  free(later);
  free(seeded);
}

static void check_stochastic_rounding(size_t step)
{
  static const double shares[] = {0.0, 0.0625, 0.25, 0.5, 0.875};

  for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i += step) {
    const float p = (float)shares[i];
    check_draws(TRS_FP16, 1.5f + p * 0x1p-10f, shares[i]);
    check_draws(TRS_FP16, -0.3125f - p * 0x1p-12f, shares[i]);
    check_draws(TRS_FP16, 0x1p-24f * (5.0f + p), shares[i]); /* denormal */
    check_draws(TRS_BF16, 1.5f + p * 0x1p-7f, shares[i]);
    check_draws(TRS_BF16, -0x1p-100f * (1.25f + p * 0x1p-7f), shares[i]);
  }
}

static void test_stochastic_rounding(void **state)
{
  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++) check_stochastic_rounding(getenv("TRS_FEW") ? 2 : 1);
}

/* As soon as the workspace is large enough, a step allocates nothing. */
static void test_no_allocation(void **state)
{
  const shape s = shape_of(64, 2);
  int64_t before, after, held;
  TrsWorkspace workspace;
  problem p;

  (void)state;
  make_problem(&s, &p);
  assert_petsc_ok(ops->workspace_create(&workspace));
  for (int step = 0; step < 3; step++) {
    assert_petsc_ok(ops->tbe_forward(NULL, workspace, &p.tbe, &p.input, TrsFloats(p.out, p.out_stride)));
    assert_petsc_ok(
        ops->tbe_backward(NULL, workspace, &p.tbe, &p.input, TrsFloats(p.grad, p.out_stride), &p.args));
    if (step == 0) TrsMemoryUse(&before, &held);
  }
  TrsMemoryUse(&after, &held);
  assert_int_equal(before, after);
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free_problem(&p);
}

static int set_up(void **state)
{
  (void)state;
  return TrsComputeFind("cpu", &ops);
}

TRS_TEST_MAIN(cmocka_unit_test_setup(test_definition, set_up),
              cmocka_unit_test_setup(test_instruction_sets, set_up),
              cmocka_unit_test_setup(test_threads, set_up),
              cmocka_unit_test_setup(test_row_gradients, set_up), cmocka_unit_test_setup(test_parts, set_up),
              cmocka_unit_test_setup(test_unique_of_a_part, set_up),
              cmocka_unit_test_setup(test_merge_rows, set_up), cmocka_unit_test_setup(test_strangers, set_up),
              cmocka_unit_test_setup(test_rounding_by_shards, set_up),
              cmocka_unit_test_setup(test_stochastic_rounding, set_up),
              cmocka_unit_test_setup(test_no_allocation, set_up))
