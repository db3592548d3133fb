/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares sequences with results computed by hand: mean, maximum and concatenation, with pruned
  ids, empty bags, and an index with repeats. Also tests unique ids below 0.
*/
#include "hosted_compute.h"

enum { D = 3, N = 6, B = 4 };

static const TrsComputeOps *compute;

/*
  Bags {0, 1, 2}, {}, {3}, {4, 5}. Id 1 and the only id of the third bag are pruned. Rows have a
  stride of 4, and the spare column has the number 9.
*/
static const int64_t offsets[B + 1] = {0, 3, 3, 4, 6}, ids[N] = {7, -1, 5, -1, 2, 2};
static const float rows[N * 4] = {1, -2, 3, 9, 0,  0,  0,  9, 4,  -5, 3,  9,
                                  0, 0,  0, 9, -1, -1, -1, 9, -1, -1, -1, 9};

static TrsSequenceBags bags(TrsSequencePooling pooling)
{
  return (TrsSequenceBags){.pooling = pooling,
                           .batch = B,
                           .dim = D,
                           .row_stride = 4,
                           .places = 2,
                           .place_stride = 5,
                           .offsets = offsets,
                           .ids = ids};
}

static void assert_rows(const float *found, const float *wanted, int64_t n)
{
  for (int64_t i = 0; i < n; i++)
    if (found[i] != wanted[i]) /* NOLINT(clang-diagnostic-float-equal): values are exact */
      fail_msg("element %d is %g, expected %g", (int)i, (double)found[i], (double)wanted[i]);
}

static void check_forward(void)
{
  const float mean[B * D] = {5.0F / 3.0F, -7.0F / 3.0F, 2, 0, 0, 0, 0, 0, 0, -1, -1, -1};
  const float max[B * D] = {4, -2, 3, 0, 0, 0, 0, 0, 0, -1, -1, -1};
  /* two positions of 3 columns each, 5 columns apart; the gap between them is not written */
  const float concat[B * 8] = {1, -2, 3, 8, 8, 0, 0, 0, 0,  0,  0,  8, 8, 0,  0,  0,
                               0, 0,  0, 8, 8, 0, 0, 0, -1, -1, -1, 8, 8, -1, -1, -1};
  TrsSequenceBags b = bags(TRS_SEQUENCE_MEAN);
  float out[B * 8];

  assert_petsc_ok(compute->sequence_forward(NULL, &b, rows, out, D));
  assert_rows(out, mean, (int64_t)B * D);
  b.pooling = TRS_SEQUENCE_MAX;
  assert_petsc_ok(compute->sequence_forward(NULL, &b, rows, out, D));
  assert_rows(out, max, (int64_t)B * D);
  b.pooling = TRS_SEQUENCE_CONCAT;
  for (int i = 0; i < B * 8; i++) out[i] = 8.0F;
  assert_petsc_ok(compute->sequence_forward(NULL, &b, rows, out, 8));
  assert_rows(out, concat, (int64_t)B * 8);
}

static void check_backward(void)
{
  const float grad[B * D] = {3, 6, 9, 1, 1, 1, 2, 2, 2, 4, 5, 6};
  const float grad_places[B * 8] = {1, 2, 3, 9, 9, 4, 5, 6, 9, 9, 9, 9, 9, 9,  9,  9,
                                    9, 9, 9, 9, 9, 9, 9, 9, 7, 8, 9, 9, 9, 10, 11, 12};
  /*
    The spare column stays 8. In a tie, the first id has the maximum, as in column 2 of bag 0 and in
    all columns of bag 3.
  */
  const float mean[N * 4] = {1, 2, 3, 8, 0, 0, 0, 8, 1, 2, 3, 8, 0, 0, 0, 8, 2, 2.5F, 3, 8, 2, 2.5F, 3, 8};
  const float max[N * 4] = {0, 6, 9, 8, 0, 0, 0, 8, 3, 0, 0, 8, 0, 0, 0, 8, 4, 5, 6, 8, 0, 0, 0, 8};
  const float concat[N * 4] = {1, 2, 3, 8, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 8, 7, 8, 9, 8, 10, 11, 12, 8};
  const float *const wanted[] = {mean, max, concat};
  float to[N * 4];

  for (int pooling = TRS_SEQUENCE_MEAN; pooling <= TRS_SEQUENCE_CONCAT; pooling++) {
    const TrsSequenceBags b = bags((TrsSequencePooling)pooling);
    const PetscBool places = (PetscBool)(pooling == TRS_SEQUENCE_CONCAT);
    for (int i = 0; i < N * 4; i++) to[i] = 8.0F;
    assert_petsc_ok(compute->sequence_backward(NULL, &b, rows, places ? grad_places : grad, places ? 8 : D,
                                               PETSC_FALSE, to));
    assert_rows(to, wanted[pooling], (int64_t)N * 4);
  }
}

/*
  Rows in another order: id i has row index[i] + shift. The forward reads this row. The backward
  writes this row or row i.
*/
static void check_index(void)
{
  const int64_t index[N] = {2, 1, 3, 1, 0, 0};
  const float grad[B * D] = {3, 6, 9, 1, 1, 1, 2, 2, 2, 4, 5, 6};
  const int64_t straight[N] = {5, 4, 3, 2, 1, 0};
  TrsSequenceBags b = bags(TRS_SEQUENCE_MAX);
  float apart[(N + 1) * 4], out[B * D], wanted[B * D], to[(N + 1) * 4], by_id[N * 4], expected[N * 4];

  assert_petsc_ok(compute->sequence_forward(NULL, &b, rows, wanted, D));
  assert_petsc_ok(compute->sequence_backward(NULL, &b, rows, grad, D, PETSC_FALSE, expected));
  memset(apart, 0, sizeof(apart));
  for (int i = 0; i < N; i++) memcpy(apart + (index[i] + 1) * 4, rows + i * 4L, 4 * sizeof(float));
  b.index = index;
  b.shift = 1;
  assert_petsc_ok(compute->sequence_forward(NULL, &b, apart, out, D));
  assert_rows(out, wanted, (int64_t)B * D);
  assert_petsc_ok(compute->sequence_backward(NULL, &b, apart, grad, D, PETSC_TRUE, by_id));
  for (int i = 0; i < N; i++) assert_rows(by_id + i * 4L, expected + i * 4L, D);

  b.index = straight;
  for (int i = 0; i < N; i++) memcpy(apart + (straight[i] + 1) * 4, rows + i * 4L, 4 * sizeof(float));
  assert_petsc_ok(compute->sequence_backward(NULL, &b, apart, grad, D, PETSC_FALSE, to));
  for (int i = 0; i < N; i++) assert_rows(to + (straight[i] + 1) * 4, expected + i * 4L, D);
}

/*
  Compare with the CPU's results, for widths where a lane has several columns. Some bags have more
  rows than a group keeps in flight.
*/
static void check_widths(void)
{
  enum { WIDE = 8, STRIDE = 12, N_IDS = 15, N_BAGS = 5, PLACES = 6 };
  const int64_t begins[N_BAGS + 1] = {0, 6, 6, 7, 11, 15};
  int64_t some_ids[N_IDS];
  float in[N_IDS * STRIDE], out[2][N_BAGS * PLACES * WIDE], to[2][N_IDS * STRIDE];
  const TrsComputeOps *cpu;

  assert_petsc_ok(TrsComputeFind("cpu", &cpu));
  for (int i = 0; i < N_IDS; i++) some_ids[i] = i % 4 == 1 || i == 6 ? -1 : i % 3;
  for (int i = 0; i < N_IDS * STRIDE; i++) in[i] = 0.25F * (float)(i * 37 % 11 - 5);
  for (int pooling = TRS_SEQUENCE_MEAN; pooling <= TRS_SEQUENCE_CONCAT; pooling++) {
    const int64_t stride = (pooling == TRS_SEQUENCE_CONCAT ? PLACES : 1) * (int64_t)WIDE;
    const TrsSequenceBags b = {.pooling = (TrsSequencePooling)pooling,
                               .batch = N_BAGS,
                               .dim = WIDE,
                               .row_stride = STRIDE,
                               .places = PLACES,
                               .place_stride = WIDE,
                               .offsets = begins,
                               .ids = some_ids};
    for (int k = 0; k < 2; k++) {
      const TrsComputeOps *ops = k ? compute : cpu;

      memset(to[k], 0, sizeof(to[k]));
      assert_petsc_ok(ops->sequence_forward(NULL, &b, in, out[k], stride));
      assert_petsc_ok(ops->sequence_backward(NULL, &b, in, out[0], stride, PETSC_FALSE, to[k]));
    }
    assert_rows(out[1], out[0], N_BAGS * stride);
    assert_rows(to[1], to[0], (int64_t)N_IDS * STRIDE);
  }
}

static void check_unique_pruned(void)
{
  const int64_t begin[3] = {0, 4, 6}, values[6] = {5, -1, 0, -7, 9, 9};
  const int64_t wanted[4] = {-1, 0, 5, 9}, wanted_reverse[6] = {2, 0, 1, 0, 0, 0};
  int64_t unique_begin[3], unique[6], reverse[6];
  TrsWorkspace workspace = NULL;

  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->unique(NULL, workspace, 2, begin, values, unique_begin, unique, reverse));
  assert_int_equal(unique_begin[1], 3);
  assert_int_equal(unique_begin[2], 4);
  assert_memory_equal(unique, wanted, sizeof(wanted));
  assert_memory_equal(reverse, wanted_reverse, sizeof(reverse));
  assert_petsc_ok(compute->workspace_destroy(&workspace));
}

static void test_all(void **state)
{
  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) {
    check_forward();
    check_backward();
    check_index();
    check_widths();
    check_unique_pruned();
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_all))
