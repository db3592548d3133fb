/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Compares kernels for layers of sequences and for losses of pairs on the GPU with the CPU, whose
  kernels are tested with golden data of torch.
*/
#include "gpu/twins.h"

enum { BAGS = 7, FIRST = 2, ROWS = 3 + 1 + 40 + 2 + 70 + 33 };
static const int64_t bag_offsets[BAGS + 1] = {FIRST,      FIRST + 3,  FIRST + 3,   FIRST + 4,
                                              FIRST + 44, FIRST + 46, FIRST + 116, FIRST + ROWS};

static void add_offsets(Arguments *arguments)
{
  int64_t *offsets = malloc(sizeof(bag_offsets));

  memcpy(offsets, bag_offsets, sizeof(bag_offsets));
  add_values(arguments, sizeof(bag_offsets), PETSC_FALSE, offsets);
}

/* Run all four kernels in the order of a step. */
static PetscErrorCode run_target(const TrsComputeOps *ops, int64_t D, PetscBool softmax, float *const *x)
{
  TrsTargetAttention a = {.n_bags = BAGS,
                          .D = D,
                          .first = FIRST,
                          .softmax = softmax,
                          .offsets = (const int64_t *)(const void *)x[0],
                          .rows = x[1],
                          .grads = x[2],
                          .q = x[3],
                          .dq = x[4],
                          .out = x[5],
                          .q_stride = D + 1,
                          .dq_stride = D + 2,
                          .out_stride = D + 3,
                          .parts = x[6],
                          .score = x[7],
                          .weight = x[8]};

  PetscFunctionBegin;
  PetscCall(ops->target_parts(NULL, &a));
  PetscCall(ops->target_pool(NULL, &a));
  PetscCall(ops->target_pool_backward(NULL, &a));
  PetscCall(ops->target_parts_backward(NULL, &a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_target_attention(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 4; s++) {
    const int64_t D = s < 2 ? 6 : 45;
    Arguments a = {0};

    add_offsets(&a);
    for (int i = 0; i < 2; i++) add(&a, (FIRST + ROWS) * D);
    for (int i = 1; i <= 3; i++) add(&a, BAGS * (D + i));
    add(&a, ROWS * 4 * D);
    for (int i = 0; i < 2; i++) add(&a, ROWS);
    TWINS(a, 1e-5, run_target(ops, D, (PetscBool)(s % 2), x));
  }
}

/*
  Check that a bf16 matrix of n numbers on the device has exactly the rounded values of n floats on
  the device.
*/
static void assert_rounded(const void *found, const void *floats, int64_t n)
{
  uint16_t *a = calloc((size_t)n, sizeof(*a)), *b = calloc((size_t)n, sizeof(*b));
  void *rounded;

  assert_petsc_ok(device->alloc(2 * n, &rounded));
  assert_petsc_ok(cuda->convert(NULL, n, TRS_FP32, floats, TRS_BF16, rounded));
  assert_petsc_ok(device->copy(a, found, 2 * n, NULL));
  assert_petsc_ok(device->copy(b, rounded, 2 * n, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  assert_memory_equal(a, b, (size_t)(2 * n));
  assert_petsc_ok(device->release(&rounded));
  free(a);
  free(b);
}

/* Device memory with random numbers in [-1, 1). */
static void *random_on_device(uint64_t array, int64_t n)
{
  float *values = calloc((size_t)n, sizeof(*values));
  void *on;

  for (int64_t i = 0; i < n; i++) values[i] = draw(array, (uint64_t)i);
  assert_petsc_ok(device->alloc(4 * n, &on));
  assert_petsc_ok(device->copy(on, values, 4 * n, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  free(values);
  return on;
}

/*
  The bf16 input of din's layers, and the copies that a gru makes for matrix products, are exactly
  the rounded floats.
*/
static void test_operands(void **state)
{
  enum { D = 45, M = 90, H = 64, GOING_ON = 40 };
  void *on[7], *copy[3], *offsets;
  int64_t bag[M];

  (void)state;
  if (!cuda) skip();
  assert_petsc_ok(device->alloc(sizeof(bag_offsets), &offsets));
  assert_petsc_ok(device->copy(offsets, bag_offsets, sizeof(bag_offsets), NULL));
  on[0] = random_on_device(1, (FIRST + ROWS) * D);
  on[1] = random_on_device(2, BAGS * D);
  on[2] = random_on_device(3, ROWS * 4 * D);
  assert_petsc_ok(device->alloc(2 * ROWS * 4 * D, &copy[0]));
  for (int narrow = 0; narrow < 2; narrow++) {
    const TrsTargetAttention a = {.n_bags = BAGS,
                                  .D = D,
                                  .first = FIRST,
                                  .offsets = offsets,
                                  .rows = on[0],
                                  .q = on[1],
                                  .q_stride = D,
                                  .parts = narrow ? copy[0] : on[2],
                                  .type = narrow ? TRS_BF16 : TRS_FP32};
    assert_petsc_ok(cuda->target_parts(NULL, &a));
  }
  assert_rounded(copy[0], on[2], ROWS * 4 * D);
  for (int i = 0; i < 3; i++) assert_petsc_ok(device->release(&on[i]));
  assert_petsc_ok(device->release(&copy[0]));
  assert_petsc_ok(device->release(&offsets));

  for (int64_t k = 0; k < M; k++) bag[k] = M - 1 - k;
  assert_petsc_ok(device->alloc(sizeof(bag), &offsets));
  assert_petsc_ok(device->copy(offsets, bag, sizeof(bag), NULL));
  for (int i = 0; i < 6; i++) on[i] = random_on_device((uint64_t)i, (i < 2 ? 3 : 1) * M * H);
  assert_petsc_ok(device->alloc(2 * M * H, &copy[0]));
  for (int i = 1; i < 3; i++) assert_petsc_ok(device->alloc(2 * 3 * M * H, &copy[i]));
  {
    const TrsGruStep step = {.m = M,
                             .H = H,
                             .going_on = GOING_ON,
                             .gates = on[0],
                             .from_h = on[1],
                             .before = on[2],
                             .next = on[3],
                             .bag = offsets,
                             .to = on[4],
                             .to_stride = H,
                             .dh = on[5],
                             .next_copy = copy[0],
                             .gates_copy = copy[1],
                             .from_h_copy = copy[2]};
    assert_petsc_ok(cuda->gru_forward(NULL, &step));
    assert_petsc_ok(cuda->gru_backward(NULL, &step));
  }
  assert_rounded(copy[0], on[3], GOING_ON * H);
  assert_rounded(copy[1], on[0], 3 * M * H);
  assert_rounded(copy[2], on[1], 3 * M * H);
  for (int i = 0; i < 6; i++) assert_petsc_ok(device->release(&on[i]));
  for (int i = 0; i < 3; i++) assert_petsc_ok(device->release(&copy[i]));
  assert_petsc_ok(device->release(&offsets));
}

static PetscErrorCode run_attention(const TrsComputeOps *ops, int64_t dim, int64_t heads, PetscBool causal,
                                    float *const *scratch, float *const *x)
{
  const TrsAttention a = {.n = BAGS,
                          .first = FIRST,
                          .offsets = (const int64_t *)(const void *)x[0],
                          .dim = dim,
                          .heads = heads,
                          .causal = causal,
                          .qkv = x[1],
                          .out = x[2],
                          .log_sums = x[3],
                          .scratch = scratch[ops != cpu],
                          .dout = x[4],
                          .dqkv = x[5]};

  PetscFunctionBegin;
  PetscCall(ops->attention_forward(NULL, &a));
  PetscCall(ops->attention_backward(NULL, &a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_attention(void **state)
{
  static const int64_t sizes[][2] = {
      /* columns and heads; with 150 columns per head, a warp needs several passes */
      {6, 3},
      {40, 1},
      {300, 2}};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 6; s++) {
    const int64_t dim = sizes[s / 2][0], heads = sizes[s / 2][1];
    float *scratch[2] = {malloc((size_t)TrsAttentionScratch(ROWS, dim, heads) * sizeof(float))};
    Arguments a = {0};

    assert_petsc_ok(device->alloc(ROWS * heads * (int64_t)sizeof(float), (void **)&scratch[1]));
    add_offsets(&a);
    add(&a, ROWS * 3 * dim);
    add(&a, ROWS * dim);
    add(&a, ROWS * heads);
    add(&a, ROWS * dim);
    add(&a, ROWS * 3 * dim);
    TWINS(a, 2e-5, run_attention(ops, dim, heads, (PetscBool)(s % 2), scratch, x));
    free(scratch[0]);
    assert_petsc_ok(device->release((void **)&scratch[1]));
  }
}

static PetscErrorCode run_gru(const TrsComputeOps *ops, int64_t m, int64_t H, float *const *x)
{
  const TrsGruStep step = {.m = m,
                           .H = H,
                           .going_on = m / 2,
                           .gates = x[0],
                           .from_h = x[1],
                           .before = x[2],
                           .next = x[3],
                           .bag = (const int64_t *)(const void *)x[4],
                           .to = x[5],
                           .to_stride = H + 3,
                           .dh = x[6]};

  PetscFunctionBegin;
  PetscCall(ops->gru_forward(NULL, &step));
  PetscCall(ops->gru_backward(NULL, &step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_gru(void **state)
{
  static const int64_t rows[] = {0, 1, 90};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 6; s++) {
    const int64_t m = rows[s % 3], H = s < 3 ? 5 : 64;
    int64_t *bag = malloc((size_t)(m + 1) * sizeof(*bag));
    Arguments a = {0};

    /* indices that differ from the indices of the rows */
    for (int64_t k = 0; k <= m; k++) bag[k] = m - k;
    for (int i = 0; i < 2; i++) add(&a, m * 3 * H);
    for (int i = 0; i < 2; i++) add(&a, m * H);
    add_values(&a, (m + 1) * (int64_t)sizeof(*bag), PETSC_FALSE, bag);
    add(&a, (m + 1) * (H + 3));
    add(&a, m * H);
    TWINS(a, 1e-5, run_gru(ops, m, H, x));
  }
}

/* Score the rows of m pairs, from `first` on, as queries and as candidates. */
static PetscErrorCode run_pairs(const TrsComputeOps *ops, int64_t m, float *const *x)
{
  TrsPairTile tile = {.first = m / 4,
                      .n = m / 2,
                      .m = m,
                      .pair = (const TrsPair *)(const void *)x[0],
                      .z = x[1],
                      .log_sum = (double *)(void *)x[3],
                      .row_loss = (double *)(void *)x[4],
                      .scale = 0.5F};

  PetscFunctionBegin;
  PetscCall(ops->pair_queries(NULL, &tile, (double *)(void *)x[5]));
  tile.z = x[2];
  tile.log_sum = (double *)(void *)x[6];
  PetscCall(ops->pair_candidates(NULL, &tile));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void add_doubles(Arguments *arguments, int64_t n, double value)
{
  double *values = malloc((size_t)n * sizeof(*values));

  for (int64_t i = 0; i < n; i++) values[i] = value;
  add_values(arguments, n * (int64_t)sizeof(*values), PETSC_TRUE, values);
}

static void test_pairs(void **state)
{
  static const int64_t sizes[] = {4, 100, 700};

  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 3; s++) {
    const int64_t m = sizes[s];
    TrsPair *pair = calloc((size_t)m, sizeof(*pair));
    Arguments a = {0};

    for (int64_t i = 0; i < m; i++)
      pair[i] = (TrsPair){i % 5 ? i % 7 : -1, i % 6 == 3 ? 0.0F : 1.0F + draw(20, (uint64_t)i),
                          draw(21, (uint64_t)i), i % 4 != 1, 0};
    add_values(&a, m * (int64_t)sizeof(*pair), PETSC_FALSE, pair);
    for (int i = 0; i < 2; i++) add(&a, m / 2 * m);
    for (int i = 0; i < 2; i++) add_doubles(&a, m / 2, 0.25);
    add_doubles(&a, 1, 3.0);
    add_doubles(&a, m, log((double)m) + 1.0);
    TWINS(a, 1e-5, run_pairs(ops, m, x));
  }
}

static PetscErrorCode run_list(const TrsComputeOps *ops, PetscBool weighted, float *const *x)
{
  return ops->pair_list(NULL, BAGS, (const int64_t *)(const void *)x[0], (const int64_t *)(const void *)x[1],
                        x[2], weighted ? x[3] : NULL, (TrsPair *)(void *)x[4]);
}

static void test_list(void **state)
{
  (void)state;
  if (!cuda) skip();
  for (int s = 0; s < 2; s++) {
    int64_t *ids = malloc((FIRST + ROWS) * sizeof(*ids));
    Arguments a = {0};

    for (int64_t i = 0; i < FIRST + ROWS; i++) ids[i] = 11 * i;
    add_offsets(&a);
    add_values(&a, (FIRST + ROWS) * (int64_t)sizeof(*ids), PETSC_FALSE, ids);
    for (int i = 0; i < 2; i++) add(&a, BAGS);
    add_values(&a, BAGS * (int64_t)sizeof(TrsPair), PETSC_FALSE, calloc(BAGS, sizeof(TrsPair)));
    TWINS(a, 0, run_list(ops, (PetscBool)(s == 1), x));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_find), cmocka_unit_test(test_target_attention),
              cmocka_unit_test(test_operands), cmocka_unit_test(test_attention), cmocka_unit_test(test_gru),
              cmocka_unit_test(test_pairs), cmocka_unit_test(test_list))
