/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST timeout: 300 */
/* TEST labels: cuda */
/*
  Compares table-batched embedding on a GPU backend with the CPU. Sums of bags, sums of rows, and
  rounding have the same bits. The cases include long runs of one row, sequences, and quantised
  tables. A repeated step gives the same bits and allocates nothing. A build without a GPU or its
  stand-in has only the CPU, which is compared with itself.
*/
#include "compute/half.h"
#include "tbe_problem.h"

#include <math.h>

#if defined(__has_include)
  #if __has_include("cuda_on_cpu.h") /* only the stand-in has this header */
    #include <cuda_runtime_api.h>
  #endif
#endif

/*
  Widths for each code path: one lane, a whole group of lanes, several passes, no multiple of 4, and
  all of these with alignment.
*/
static const int dims[] = {1, 4, 6, 16, 20, 64, 100, 127, 128, 130};
enum { N_DIMS = sizeof(dims) / sizeof(dims[0]) };

typedef struct {
  problem p;
  float *rows, *row_grad;
  int64_t begin[N_TABLES + 1], *ids;           /* results of tbe_row_gradients */
  int64_t listed_begin[N_TABLES + 1], *listed; /* results of tbe_list_rows */
} answer;

enum { N_USES = TRS_TBE_LISTS + 1 };

/*
  When the rows of a batch are found: in the update itself; before it, with the ids' weights; or
  before it and before the weights are known.
*/
enum { IN_THE_CALL, AHEAD, BEFORE_WEIGHTS };

/* Run the updates and list the rows. */
static void ask_backward(TrsWorkspace workspace, int ahead, answer *a)
{
  static const TrsTbeUse uses[N_USES] = {TRS_TBE_LISTS, TRS_TBE_BY_BAG, TRS_TBE_BY_ID};
  TrsTbeOccurrences occurrences[N_USES] = {NULL};
  TrsTbeInput input[N_USES], found_in = a->p.input;
  problem *p = &a->p;
  const int64_t n = p->input.n_values;
  int64_t *others = memory(n, sizeof(*others));

  /* The calls get other ids, which they must not read if the rows were found before. */
  for (int64_t i = 0; i < n; i++) others[i] = i % p->table[0].rows;
  if (ahead == BEFORE_WEIGHTS) {
    found_in.weights = NULL;
    found_in.weights_later = 1;
  }
  for (int u = 0; u < N_USES; u++) {
    if (ahead)
      assert_petsc_ok(
          ops->tbe_find_occurrences(NULL, workspace, &p->tbe, &found_in, uses[u], &occurrences[u]));
    input[u] = p->input;
    input[u].occurrences = occurrences[u];
    if (ahead) input[u].values = others;
  }
  assert_petsc_ok(ops->tbe_row_gradients(NULL, workspace, &p->tbe, &input[0],
                                         TrsFloats(p->grad, p->out_stride), a->begin, a->ids, a->row_grad,
                                         MAX_DIM));
  assert_petsc_ok(ops->tbe_list_rows(NULL, workspace, &p->tbe, &input[0], a->listed_begin, a->listed));
  assert_petsc_ok(
      ops->tbe_backward(NULL, workspace, &p->tbe, &input[1], TrsFloats(p->grad, p->out_stride), &p->args));
  assert_petsc_ok(ops->tbe_backward_rows(NULL, workspace, &p->tbe, &input[2], a->rows, MAX_DIM, &p->args));
  for (int u = 0; u < N_USES && ahead; u++) assert_petsc_ok(ops->tbe_occurrences_destroy(&occurrences[u]));
  free(others);
}

/* Run every operation on a batch. */
static void ask_so(const shape *s, int stochastic, int ahead, answer *a)
{
  TrsWorkspace workspace;
  problem *p = &a->p;
  int64_t n;

  make_problem(s, p);
  n = p->input.n_values;
  for (int t = 0; t < N_TABLES; t++) p->table[t].stochastic_rounding = stochastic;
  a->rows = memory(n * MAX_DIM, sizeof(float));
  a->row_grad = memory(n * MAX_DIM, sizeof(float));
  a->ids = memory(n, sizeof(int64_t));
  a->listed = memory(n, sizeof(int64_t));
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_forward(NULL, workspace, &p->tbe, &p->input, TrsFloats(p->out, p->out_stride)));
  assert_petsc_ok(ops->tbe_forward_rows(NULL, workspace, &p->tbe, &p->input, a->rows, MAX_DIM));
  assert_petsc_ok(ops->tbe_weight_gradients(NULL, workspace, &p->tbe, &p->input, p->grad, p->out_stride,
                                            p->grad_weights));
  ask_backward(workspace, ahead, a);
  assert_petsc_ok(ops->workspace_destroy(&workspace));
}

static void ask(const shape *s, int stochastic, answer *a)
{
  ask_so(s, stochastic, 0, a);
}

static void forget(answer *a)
{
  free_problem(&a->p);
  free(a->rows);
  free(a->row_grad);
  free(a->ids);
  free(a->listed);
}

static void assert_floats(const float *found, const float *expected, int64_t n, double atol, double rtol)
{
  for (int64_t i = 0; i < n; i++) assert_close(found[i], expected[i], atol, rtol);
}

static float widened(const TrsTbeTable *table, int64_t i)
{
  float x;

  if (table->dtype == TRS_FP32) return ((const float *)table->weight)[i];
  assert_petsc_ok(trs_compute_backends[0]->convert(NULL, 1, table->dtype, (const uint16_t *)table->weight + i,
                                                   TRS_FP32, &x));
  return x;
}

/*
  With tolerance 0 no run is cut into pieces and no sum is over columns, so all bits must agree.
  With a larger tolerance, rounded weights may differ by one unit.
*/
static void assert_agree(const answer *a, const answer *b, const char *states, double tolerance)
{
  const problem *p = &a->p, *q = &b->p;
  const int64_t n = p->input.n_values;

  assert_memory_equal(p->out, q->out, (size_t)(p->input.batch * p->out_stride) * sizeof(float));
  assert_memory_equal(a->rows, b->rows, (size_t)(n * MAX_DIM) * sizeof(float));
  assert_memory_equal(a->begin, b->begin, sizeof(a->begin));
  assert_memory_equal(a->ids, b->ids, (size_t)a->begin[N_TABLES] * sizeof(int64_t));
  assert_memory_equal(a->listed_begin, b->listed_begin, sizeof(a->listed_begin));
  assert_memory_equal(a->listed, b->listed, (size_t)a->listed_begin[N_TABLES] * sizeof(int64_t));
  assert_floats(a->row_grad, b->row_grad, a->begin[N_TABLES] * MAX_DIM, tolerance, tolerance);
  assert_floats(p->grad_weights, q->grad_weights, n, 2e-6, 2e-6);
  for (int t = 0; t < N_TABLES; t++) {
    const TrsTbeTable *table = &p->table[t], *other = &q->table[t];
    const double unit = table->dtype == TRS_FP16 ? 0x1p-10 : table->dtype == TRS_BF16 ? 0x1p-7 : 0.0;

    for (int64_t i = 0; i < table->rows * table->stride; i++)
      assert_close(widened(table, i), widened(other, i), tolerance, tolerance > 0.0 ? unit + tolerance : 0.0);
    for (int i = 0; i < (int)strlen(states); i++)
      assert_floats(table->state[i], other->state[i], state_floats(states, i, table), tolerance, tolerance);
  }
}

static int sums_columns(int kind)
{
  const TrsSparseOptimizerKind k = optimizers[kind].kind;

  return k != TRS_OPTIM_SGD && k != TRS_OPTIM_ADAGRAD && k != TRS_OPTIM_ADAM && k != TRS_OPTIM_LION &&
         k != TRS_OPTIM_FTRL;
}

static shape shape_of(int dim, int kind, int batch)
{
  const int n = dim + 5 * kind;

  return (shape){.dim = dim,
                 .batch = batch,
                 .rows = 23,
                 .kind = kind,
                 .dtype = (TrsDType[N_DTYPES]){TRS_FP32, TRS_FP16, TRS_BF16}[n % N_DTYPES],
                 .mean = n & 1,
                 .weighted = n >> 1 & 1};
}

/* Compare each backend with the first one, the CPU. */
static void compare(const shape *s, int stochastic, double tolerance)
{
  answer cpu, other;

  ops = trs_hosted(0);
  ask(s, stochastic, &cpu);
  for (int i = 1; (ops = trs_hosted(i)); i++) {
    ask(s, stochastic, &other);
    assert_agree(&cpu, &other, optimizers[s->kind].states,
                 sums_columns(s->kind) ? fmax(tolerance, 4e-6) : tolerance);
    forget(&other);
  }
  forget(&cpu);
}

static void test_short_runs(void **state)
{
  (void)state;
  for (int d = 0; d < N_DIMS; d++)
    for (int kind = 0; kind < N_KINDS; kind++) {
      shape s = shape_of(dims[d], kind, 5);
      s.rows = 97;
      compare(&s, kind == 0 || kind == 1, 0.0);
    }
}

/* With 200 bags per feature on 3 rows, each row occurs hundreds of times. */
static void test_long_runs(void **state)
{
  (void)state;
  for (int d = 0; d < N_DIMS; d += 3)
    for (int kind = 0; kind < 3; kind++) {
      shape s = shape_of(dims[d], kind, 200);
      s.rows = 3;
      s.dtype = TRS_FP32;
      compare(&s, 0, 5e-5); /* fp32 sums of about 300 numbers of at most 1, in another order */
    }
}

/* A step that is repeated from the same state gives the same bits. */
static void test_repeats(void **state)
{
  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++)
    for (int kind = 0; kind < N_KINDS; kind++) {
      shape s = shape_of(36, kind, 60);
      answer once, again;

      s.rows = 3;
      ask(&s, 1, &once);
      ask(&s, 1, &again);
      assert_memory_equal(once.p.out, again.p.out, (size_t)(s.batch * once.p.out_stride) * sizeof(float));
      for (int t = 0; t < N_TABLES; t++)
        assert_memory_equal(once.p.table[t].weight, again.p.table[t].weight,
                            (size_t)hosted_table_bytes(&once.p.table[t]));
      forget(&once);
      forget(&again);
    }
}

/*
  If occurrences are found before the backward, the result has the same bits, although the calls
  then get other ids. This shows that no call sorts ids again. The same is true if the weights were
  not known then.
*/
static void test_found_ahead(void **state)
{
  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++)
    for (int d = 0; d < N_DIMS && ops->tbe_find_occurrences; d += 2)
      for (int batch = 5; batch <= 200; batch *= 40)
        for (int later = 0; later < 2; later++) {
          shape s = shape_of(dims[d], d % N_KINDS, batch);
          answer found, ahead;

          s.rows = batch == 5 ? 97 : 3;
          if (later) s.mean = !(s.weighted = 1);
          ask_so(&s, 0, IN_THE_CALL, &found);
          ask_so(&s, 0, later ? BEFORE_WEIGHTS : AHEAD, &ahead);
          assert_agree(&found, &ahead, optimizers[s.kind].states, 0.0);
          forget(&found);
          forget(&ahead);
        }
}

/*
  Run the backward of one feature, with gradients of float or bf16 that begin at `column` of rows
  with the given stride.
*/
static void step_from(const shape *s, TrsDType type, int64_t column, int64_t stride, problem *p)
{
  const TrsTbeFeature feature = {.out_column = column};
  const TrsTbe tbe = {.n_tables = 1, .n_features = 1, .table = p->table, .feature = &feature};
  const int64_t n = s->batch * stride;
  TrsTbeInput input = p->input;
  float *grad = memory(n, sizeof(*grad)), *narrow = memory(n, sizeof(*narrow));
  TrsMatrix matrix = TrsFloats(grad, stride);
  TrsWorkspace workspace;

  input.n_values = input.offsets[s->batch];
  for (int b = 0; b < s->batch; b++)
    memcpy(grad + b * stride + column, p->grad + b * p->out_stride, (size_t)s->dim * sizeof(*grad));
  if (type == TRS_BF16) {
    assert_petsc_ok(trs_compute_backends[0]->convert(NULL, n, TRS_FP32, grad, TRS_BF16, narrow));
    matrix = (TrsMatrix){.type = TRS_BF16, .stride = stride, .data = narrow};
  }
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_backward(NULL, workspace, &tbe, &input, matrix, &p->args));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  free(grad);
  free(narrow);
}

static void assert_same_table(const TrsTbeTable *a, const TrsTbeTable *b, int kind)
{
  assert_memory_equal(a->weight, b->weight, (size_t)hosted_table_bytes(a));
  for (int i = 0; i < (int)strlen(optimizers[kind].states); i++)
    assert_memory_equal(a->state[i], b->state[i],
                        (size_t)state_floats(optimizers[kind].states, i, a) * sizeof(float));
}

/*
  Weights and states get the same bits from gradients in three layouts: aligned to 16 bytes, in
  unaligned columns, and in unaligned rows. For aligned gradients of rowwise_adagrad, a GPU has
  separate kernels with 8, 16 and 32 lanes per row.
*/
static void check_places(const shape *s, TrsDType type, int stochastic)
{
  /* column, and how much the stride exceeds dim */
  static const int64_t places[][2] = {{4, 8}, {3, 8}, {4, 9}};
  problem p[3];

  for (int i = 0; i < 3; i++) {
    make_problem(s, &p[i]);
    p[i].table[0].stochastic_rounding = stochastic;
    step_from(s, type, places[i][0], s->dim + places[i][1], &p[i]);
    assert_same_table(&p[0].table[0], &p[i].table[0], s->kind);
  }
  for (int i = 0; i < 3; i++) free_problem(&p[i]);
}

static void test_places(void **state)
{
  static const int widths[] = {36, 48, 96, 120};

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++)
    for (int kind = 0; kind < N_KINDS; kind++)
      for (int w = 0; w < 4; w++)
        for (int k = 0; k < 12; k++) {
          const shape s = {.dim = widths[w],
                           .batch = 60,
                           .rows = k % 2 ? 997 : 3,
                           .kind = kind,
                           .dtype = (TrsDType[]){TRS_FP32, TRS_FP16, TRS_BF16}[k / 4],
                           .weighted = k % 4 > 1};
          if (kind != 2 && k % 6) continue; /* only rowwise_adagrad runs all cases */
          check_places(&s, TRS_FP32, k % 4 == 3);
          if (i > 0) check_places(&s, TRS_BF16, k % 4 == 3);
        }
}

/* A finite number near a limit of fp16's range, subnormal in fp16, or any other below `most`. */
static float edge(int64_t i, float most)
{
  static const uint32_t edges[] = {0x00000000u, 0x33000000u, 0x33800000u, 0x387fc000u, 0x38800000u,
                                   0x3fffffffu, 0x40000000u, 0x477fe000u, 0x477ff000u, 0x47800000u};
  const uint32_t random = (uint32_t)draw(61, i);
  const float x = TrsBitsFloat(i % 3 ? edges[random % 10] + random / 10 % 5 - (random % 10 ? 2 : 0)
                                     : 0x32000000u + random % 0x16000000u);

  return (random >> 30 & 1 ? -1.0f : 1.0f) * PetscMin(x, most);
}

/*
  Rows that were 0 become -g, rounded stochastically as compute/half.h defines. The steps are of
  sgd, and of rowwise_adagrad, for which a GPU has kernels with 8, 16 and 32 lanes per row; its eps
  and learning rate are so large that the factor of g is 1. Rows begin at an even and at an odd
  column of the table.
*/
static void check_rounding(TrsDType dtype, TrsSparseOptimizerKind kind, int dim, int64_t column)
{
  enum { ROWS = 21, MOST = 200, SEED = 5, STEP = 9, KEY = 77 };
  const float large = 0x1p100f;
  const TrsSparseOptimizerArgs args = {.kind = kind,
                                       .learning_rate = kind == TRS_OPTIM_SGD ? 1.0f : large,
                                       .eps = large,
                                       .step = STEP,
                                       .seed = SEED};
  uint16_t *const weight = memory((int64_t)ROWS * MOST, sizeof(*weight));
  float *const state = memory(ROWS, sizeof(*state)), *const grad = memory((int64_t)ROWS * MOST,
                                                                          sizeof(*grad));
  int64_t keys[ROWS];
  const TrsTbeTable table = {.weight = weight,
                             .state = {kind == TRS_OPTIM_SGD ? NULL : state},
                             .rows = ROWS,
                             .stride = dim,
                             .dim = dim,
                             .dtype = dtype,
                             .stochastic_rounding = 1,
                             .key = KEY,
                             .row_offset = INT64_C(5) << 32,
                             .col_offset = column,
                             .table_dim = 256};
  TrsWorkspace workspace;

  for (int r = 0; r < ROWS; r++) keys[r] = r;
  memset(weight, 0, ROWS * MOST * sizeof(*weight));
  memset(state, 0, ROWS * sizeof(*state));
  for (int64_t i = 0; i < ROWS * (int64_t)dim; i++)
    grad[i] = edge(i, kind == TRS_OPTIM_SGD ? INFINITY : 1e9f);
  if (kind == TRS_OPTIM_SGD)
    for (int64_t i = 0; i < 3 * (int64_t)dim; i += 7)
      grad[i] = (float[]){NAN, INFINITY, -INFINITY, 3.39e38f, TrsBitsFloat(0xffffffffu)}[i % 5];
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                       &(TrsRowGradients){ROWS, keys, NULL, grad, dim}, &args));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  for (int64_t i = 0; i < ROWS * (int64_t)dim; i++) {
    const uint64_t of_table = TrsRoundingTable(SEED, STEP, KEY),
                   of_row = TrsRoundingRow(of_table, (uint64_t)(table.row_offset + i / dim));
    const uint32_t random = TrsRoundingBits(of_row, (uint32_t)(column + i % dim));
    const float x = 0.0f - grad[i];
    const uint16_t expected = dtype == TRS_FP16 ? TrsFloatToHalfStochastic(x, random)
                                                : TrsFloatToBf16Stochastic(x, random);

    if (weight[i] != expected)
      fail_msg("%s %s, %d columns from %d: %g (%08x) became %04x, expected %04x", ops->name,
               TrsDTypeName(dtype), dim, (int)column, (double)x, TrsFloatBits(x), weight[i], expected);
  }
  free(weight);
  free(state);
  free(grad);
}

static void test_rounding(void **state)
{
  static const int widths[] = {7, 64, 120, 200};

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)); i++)
    for (int d = 0; d < 4; d++)
      for (int k = 0; k < 8; k++)
        check_rounding(k & 1 ? TRS_FP16 : TRS_BF16, k & 2 ? TRS_OPTIM_ROWWISE_ADAGRAD : TRS_OPTIM_SGD,
                       widths[d], k & 4 ? 41 : 40);
}

/*
  Copy rows of any number of bytes between any two strides. A call has the index of the source, of
  the target, both or none, and makes one, two or all copies.
*/
static void test_copy_rows(void **state)
{
  enum { N = 9, ROWS = 20, MOST = 64, N_LAYOUTS = 6 };
  static const int64_t layouts[N_LAYOUTS][3] = {/* row bytes, stride of `from`, stride of `to` */
                                                {16, 16, 48}, {48, 64, 48}, {12, 16, 20},
                                                {6, 6, 10},   {7, 9, 7},    {0, 8, 8}};
  static const int64_t index[2][N] = {{3, 1, 4, 1, 5, 9, 2, 6, 5}, {19, 0, 7, 3, 12, 5, 1, 18, 2}};
  static char from[ROWS * MOST], to[N_LAYOUTS][ROWS * MOST], expected[N_LAYOUTS][ROWS * MOST];
  TrsWorkspace workspace;

  (void)state;
  for (size_t i = 0; i < sizeof(from); i++) from[i] = (char)draw(6, (int64_t)i);
  for (int k = 0; (ops = trs_hosted(k)); k++) {
    assert_petsc_ok(ops->workspace_create(&workspace));
    for (int way = 0; way < 12; way++) {
      const int together = way < 4 ? 1 : way < 8 ? 2 : N_LAYOUTS;
      TrsRowsCopy copy[N_LAYOUTS];

      memset(to, 1, sizeof(to));
      memset(expected, 1, sizeof(expected));
      for (int l = 0; l < N_LAYOUTS; l++) {
        const int64_t *const x = layouts[l];
        const TrsRowsCopy c = {.n = l == way ? 0 : N,
                               .row_bytes = x[0],
                               .from = from,
                               .from_stride = x[1],
                               .from_index = way & 1 ? index[0] : NULL,
                               .to = to[l],
                               .to_stride = x[2],
                               .to_index = way & 2 ? index[1] : NULL};

        copy[l] = c;
        for (int64_t i = 0; i < c.n; i++)
          memcpy(expected[l] + (c.to_index ? c.to_index[i] : i) * x[2],
                 from + (c.from_index ? c.from_index[i] : i) * x[1], (size_t)x[0]);
        if (l % together == together - 1)
          assert_petsc_ok(ops->copy_rows(NULL, workspace, together, &copy[l - together + 1]));
      }
      assert_memory_equal(to, expected, sizeof(to));
    }
    assert_petsc_ok(ops->copy_rows(NULL, workspace, 0, NULL));
    assert_petsc_ok(ops->workspace_destroy(&workspace));
  }
}

/* Quantised tables of every width and type give the same bits as on the CPU. */
static void check_quantised(TrsDType dtype, int dim, int weighted)
{
  enum { ROWS = 31, BATCH = 9 };
  const int64_t bytes = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim);
  const shape s = {.dim = 4, .batch = BATCH, .rows = ROWS, .weighted = weighted};
  const TrsTbeFeature feature[N_FEATURES] = {{0, 0, 0}, {0, 1, dim}, {0, 0, 2 * dim}};
  float *weight = uniforms((int64_t)ROWS * dim, 60, -1.0f), *expected = NULL;
  TrsTbeTable table = {.rows = ROWS, .stride = bytes, .dim = dim, .dtype = dtype, .table_dim = dim};
  const TrsTbe tbe = {.n_tables = 1, .n_features = N_FEATURES, .table = &table, .feature = feature};
  TrsWorkspace workspace;
  problem p;

  table.weight = memory(ROWS * bytes, 1);
  assert_petsc_ok(TrsQuantiseRows(dtype, TRS_ROWS_TBE, ROWS, dim, weight, dim, table.weight));
  make_problem(&s, &p);
  for (int i = 0; (ops = trs_hosted(i)); i++) {
    float *out = memory((int64_t)BATCH * N_FEATURES * dim, sizeof(*out));

    assert_petsc_ok(ops->workspace_create(&workspace));
    assert_petsc_ok(
        ops->tbe_forward(NULL, workspace, &tbe, &p.input, TrsFloats(out, (int64_t)N_FEATURES * dim)));
    assert_petsc_ok(ops->workspace_destroy(&workspace));
    if (!expected) {
      expected = out;
      continue;
    }
    assert_memory_equal(out, expected, (size_t)(BATCH * N_FEATURES * dim) * sizeof(*out));
    free(out);
  }
  free(expected);
  free(weight);
  free(table.weight);
  free_problem(&p);
}

static void test_quantised(void **state)
{
  static const TrsDType dtypes[] = {TRS_INT8, TRS_INT4, TRS_INT2};

  (void)state;
  for (int d = 0; d < N_DIMS; d++)
    for (int i = 0; i < 3; i++) check_quantised(dtypes[i], dims[d], d & 1);
}

#if defined(CUDA_ON_CPU)
/*
  The backward of data_parallel: find the gradients of known rows, merge the lists of two ranks, and
  update once.
*/
static void step_of_replicas(const problem *p, const TrsHostedTbe *copy, TrsStream stream,
                             const TrsWorkspace workspace[3], const int64_t *begin, const float *grad,
                             int64_t *rows, float *row_grad)
{
  const int64_t n = begin[2 * N_TABLES];

  assert_petsc_ok(hosted_ops->tbe_row_gradients(stream, workspace[0], &copy->tbe, &copy->input,
                                                TrsFloats(grad, p->out_stride), NULL, NULL, row_grad,
                                                MAX_DIM));
  assert_petsc_ok(hosted_device->copy(rows + n / 2, rows, n / 2 * 8, stream));
  assert_petsc_ok(hosted_device->copy(row_grad + n / 2 * MAX_DIM, row_grad, n / 2 * MAX_DIM * 4, stream));
  assert_petsc_ok(hosted_ops->merge_rows(stream, workspace[1], N_TABLES, copy->tbe.table, 2, begin, rows,
                                         rows + n, rows + 2 * n));
  assert_petsc_ok(hosted_ops->tbe_update_rows(
      stream, workspace[2], N_TABLES, copy->tbe.table,
      &(TrsRowGradients){n, rows + n, rows + 2 * n, row_grad, MAX_DIM}, &p->args));
}
#endif

/*
  In the steady state of a device, a step only adds launches. It adds no allocation, no wait and no
  pageable copy.
*/
static void test_steady_step(void **state)
{
#if defined(CUDA_ON_CPU)
  enum { WARM = 2, STEPS = 6 };
  const shape s = shape_of(64, 2, 40);
  cuda_on_cpu_counters warm = {0}, end;
  /* one workspace for each call, so that small arrays stay on the device */
  TrsWorkspace workspace, own[3];
  TrsHostedTbe copy;
  TrsStream stream;
  int64_t begin[2 * N_TABLES + 1], *rows;
  float *out, *grad, *row_grad;
  problem p;

  (void)state;
  for (int i = 0; (ops = trs_hosted(i)) && strcmp(ops->name, "cuda") != 0; i++) continue;
  assert_non_null(ops);
  make_problem(&s, &p);
  hosted_tbe(&p.tbe, &p.input, &p.args, &copy);
  out = IN(p.out, s.batch * p.out_stride * 4);
  grad = IN(p.grad, s.batch * p.out_stride * 4);
  assert_petsc_ok(hosted_device->stream_create("default", &stream));
  assert_petsc_ok(hosted_ops->workspace_create(&workspace));
  for (int k = 0; k < 3; k++) assert_petsc_ok(hosted_ops->workspace_create(&own[k]));
  assert_petsc_ok(hosted_device->alloc(6 * p.input.n_values * 8, (void **)&rows));
  assert_petsc_ok(hosted_device->alloc(2 * p.input.n_values * MAX_DIM * 4, (void **)&row_grad));
  assert_petsc_ok(hosted_ops->tbe_list_rows(stream, workspace, &copy.tbe, &copy.input, begin, rows));
  for (int t = 0; t < N_TABLES; t++) begin[N_TABLES + t + 1] = begin[N_TABLES] + begin[t + 1];
  for (int step = 0; step < STEPS; step++) {
    if (step == WARM) warm = cuda_on_cpu_count();
    p.args.step = step + 1;
    assert_petsc_ok(
        hosted_ops->tbe_forward(stream, workspace, &copy.tbe, &copy.input, TrsFloats(out, p.out_stride)));
    assert_petsc_ok(hosted_ops->tbe_backward(stream, workspace, &copy.tbe, &copy.input,
                                             TrsFloats(grad, p.out_stride), &p.args));
    step_of_replicas(&p, &copy, stream, own, begin, grad, rows, row_grad);
  }
  end = cuda_on_cpu_count();
  assert_true(end.launches > warm.launches);
  assert_int_equal(end.allocations, warm.allocations);
  assert_int_equal(end.host_waits, warm.host_waits);
  assert_int_equal(end.device_waits, warm.device_waits);
  assert_int_equal(end.pageable_copies, warm.pageable_copies);
  assert_petsc_ok(hosted_device->stream_synchronize(stream));
  assert_petsc_ok(hosted_ops->workspace_destroy(&workspace));
  for (int k = 0; k < 3; k++) assert_petsc_ok(hosted_ops->workspace_destroy(&own[k]));
  assert_petsc_ok(hosted_device->stream_destroy(&stream));
  assert_petsc_ok(hosted_device->release((void **)&rows));
  assert_petsc_ok(hosted_device->release((void **)&row_grad));
  hosted_after(PETSC_SUCCESS);
  free_problem(&p);
#else
  (void)state;
  skip(); /* only the stand-in has counters */
#endif
}

TRS_TEST_MAIN(cmocka_unit_test(test_rounding), cmocka_unit_test(test_steady_step),
              cmocka_unit_test(test_short_runs), cmocka_unit_test(test_long_runs),
              cmocka_unit_test(test_repeats), cmocka_unit_test(test_places), cmocka_unit_test(test_copy_rows),
              cmocka_unit_test(test_quantised), cmocka_unit_test(test_found_ahead))
