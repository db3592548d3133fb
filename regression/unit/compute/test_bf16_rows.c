/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST timeout: 300 */
/* TEST labels: cuda */
/*
  Compares lookups, sums of rows, updates and copies of columns for bf16 with the same backend's
  results for float. Pooled rows in bf16 equal the float results rounded once. If only the gradients
  are bf16, the results have equal bits. The CPU supports only float and refuses other types.
*/
#include "compute/half.h"
#include "tbe_problem.h"

/*
  Widths for one lane, for a whole group of lanes, and for several passes. Some are multiples of 16
  bytes.
*/
static const int dims[] = {1, 6, 8, 20, 64, 100, 128, 130};
enum { N_DIMS = sizeof(dims) / sizeof(dims[0]) };

static TrsMatrix of_bf16(uint16_t *data, int64_t stride)
{
  return (TrsMatrix){.type = TRS_BF16, .stride = stride, .data = data};
}

/* n bf16 numbers with random signs and magnitudes. */
static uint16_t *halves(int64_t n, uint64_t seed)
{
  float *x = uniforms(n, seed, -1.0F);
  uint16_t *h = memory(n, sizeof(*h));

  for (int64_t i = 0; i < n; i++) h[i] = TrsFloatToBf16(x[i]);
  free(x);
  return h;
}

static float *widen(const uint16_t *h, int64_t n)
{
  float *x = memory(n, sizeof(*x));

  for (int64_t i = 0; i < n; i++) x[i] = TrsBf16ToFloat(h[i]);
  return x;
}

/* Align features to 16 bytes of bf16, and make rows multiples of 16 bytes. */
static void align(problem *p)
{
  int64_t at = 0;

  for (int f = 0; f < N_FEATURES; f++) {
    p->feature[f].out_column = at;
    at += (p->table[p->feature[f].table].dim + 7) / 8 * 8;
  }
  p->out_stride = at;
}

/* The results of a problem for gradients of one type. */
typedef struct {
  problem p;
  float *row_grad;
} answer;

static void ask(const shape *s, int aligned, TrsMatrix grad, answer *a)
{
  TrsWorkspace workspace;
  problem *p = &a->p;

  make_problem(s, p);
  if (aligned) align(p);
  grad.stride = p->out_stride;
  a->row_grad = memory(p->input.n_values * MAX_DIM, sizeof(float));
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(
      ops->tbe_row_gradients(NULL, workspace, &p->tbe, &p->input, grad, NULL, NULL, a->row_grad, MAX_DIM));
  assert_petsc_ok(ops->tbe_backward(NULL, workspace, &p->tbe, &p->input, grad, &p->args));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
}

static void check_gradients(const shape *s, int aligned)
{
  const int64_t n = s->batch * (3 * MAX_DIM + 32);
  uint16_t *h = halves(n, 50);
  float *x = widen(h, n);
  answer a, b;

  ask(s, aligned, of_bf16(h, 0), &a);
  ask(s, aligned, TrsFloats(x, 0), &b);
  assert_memory_equal(a.row_grad, b.row_grad, (size_t)(a.p.input.n_values * MAX_DIM) * sizeof(float));
  for (int t = 0; t < N_TABLES; t++) {
    const TrsTbeTable *found = &a.p.table[t], *expected = &b.p.table[t];

    assert_memory_equal(found->weight, expected->weight,
                        (size_t)(found->rows * found->stride * TrsDTypeBytes(found->dtype)));
    for (int i = 0; i < 2; i++)
      if (expected->state[i])
        assert_memory_equal(found->state[i], expected->state[i],
                            (size_t)state_floats(optimizers[s->kind].states, i, expected) * sizeof(float));
  }
  free_problem(&a.p);
  free_problem(&b.p);
  free(a.row_grad);
  free(b.row_grad);
  free(h);
  free(x);
}

/* Compare the lookup. It must write nothing between the features. */
static void check_forward(const shape *s, int aligned)
{
  TrsWorkspace workspace;
  uint16_t *out;
  int64_t n;
  problem p;

  make_problem(s, &p);
  if (aligned) align(&p);
  n = s->batch * p.out_stride;
  free(p.out);
  out = halves(n, 60);
  p.out = widen(out, n);
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_forward(NULL, workspace, &p.tbe, &p.input, TrsFloats(p.out, p.out_stride)));
  assert_petsc_ok(ops->tbe_forward(NULL, workspace, &p.tbe, &p.input, of_bf16(out, p.out_stride)));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  for (int64_t i = 0; i < n; i++) assert_int_equal(out[i], TrsFloatToBf16(p.out[i]));
  free(out);
  free_problem(&p);
}

static void test_bags(void **state)
{
  (void)state;
  for (int i = 1; (ops = trs_hosted(i)); i++)
    for (int d = 0; d < N_DIMS; d++)
      for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        const shape s = {.dim = dims[d],
                         .batch = 13,
                         .rows = d % 2 ? 9 : 40,
                         .kind = (d + 5 * dtype) % N_KINDS,
                         .dtype = (TrsDType)dtype,
                         .mean = d % 3 == 1,
                         .weighted = d % 2};

        for (int aligned = 0; aligned < 2; aligned++) {
          check_forward(&s, aligned);
          check_gradients(&s, aligned);
        }
      }
}

enum { ROWS = 37, STRIDE = 96, N_RUNS = 3 };

/* Copy runs of 32, 5 and 1 columns from one type to another. */
static void check_columns(TrsDType from_type, TrsDType to_type, int64_t shift)
{
  const int64_t n = (int64_t)ROWS * STRIDE, at[N_RUNS] = {0, 40, 80}, cols[N_RUNS] = {32, 5, 1};
  uint16_t *h = halves(n, 70), *to_h = halves(n, 71), *old_h = halves(n, 71);
  float *x = uniforms(n, 72, -1.0F), *to_x = uniforms(n, 73, -1.0F), *old_x = uniforms(n, 73, -1.0F);
  const TrsMatrix from = from_type == TRS_BF16 ? of_bf16(h, STRIDE) : TrsFloats(x, STRIDE),
                  to = to_type == TRS_BF16 ? of_bf16(to_h, STRIDE) : TrsFloats(to_x, STRIDE);
  TrsColumnCopy copy[N_RUNS];

  for (int i = 0; i < N_RUNS; i++)
    copy[i] = (TrsColumnCopy){
        .from = TrsMatrixColumns(from, at[i]), .to = TrsMatrixColumns(to, at[i] + shift), .cols = cols[i]};
  assert_petsc_ok(ops->copy_columns(NULL, ROWS, N_RUNS, copy));
  for (int64_t k = 0; k < n; k++) {
    const int64_t c = k % STRIDE - shift;
    float expected = to_type == TRS_BF16 ? TrsBf16ToFloat(old_h[k]) : old_x[k];

    for (int i = 0; i < N_RUNS; i++)
      if (c >= at[i] && c < at[i] + cols[i])
        expected = from_type == TRS_BF16 ? TrsBf16ToFloat(h[k - shift]) : x[k - shift];
    if (to_type == TRS_BF16)
      assert_int_equal(to_h[k], TrsFloatToBf16(expected));
    else
      assert_memory_equal(&to_x[k], &expected, sizeof(expected));
  }
  free(h);
  free(to_h);
  free(old_h);
  free(x);
  free(to_x);
  free(old_x);
}

static void test_columns(void **state)
{
  static const TrsDType types[] = {TRS_FP32, TRS_BF16};

  (void)state;
  for (int i = 1; (ops = trs_hosted(i)); i++)
    for (int64_t shift = 0; shift < 9; shift++) /* shifts 0, 4 and 8 keep groups of four aligned */
      for (int f = 0; f < 2; f++)
        for (int t = 0; t < 2; t++) check_columns(types[f], types[t], shift);
}

/* For each check of a matrix's type, call one CPU kernel. */
static void test_cpu_refuses(void **state)
{
  const shape s = {.dim = 8, .batch = 3, .rows = 5};
  const TrsComputeOps *cpu = trs_compute_backends[0];
  TrsMatrix out;
  problem p;

  (void)state;
  make_problem(&s, &p);
  out = (TrsMatrix){.type = TRS_BF16, .stride = p.out_stride, .data = p.out};
  assert_petsc_error(cpu->tbe_forward(NULL, NULL, &p.tbe, &p.input, out), TRS_ERR_INTERNAL);
  assert_petsc_error(cpu->tbe_backward(NULL, NULL, &p.tbe, &p.input, out, &p.args), TRS_ERR_INTERNAL);
  assert_petsc_error(cpu->copy_columns(NULL, 3, 1, &(TrsColumnCopy){.from = out, .to = out, .cols = 1}),
                     TRS_ERR_INTERNAL);
  free_problem(&p);
}

TRS_TEST_MAIN(cmocka_unit_test(test_bags), cmocka_unit_test(test_columns), cmocka_unit_test(test_cpu_refuses))
