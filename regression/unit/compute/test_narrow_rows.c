/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests that rows of fp16 and bf16 are rounded element by element as compute/half.h defines. The
  random bits depend on row and column. The test covers any float, any width and any position, on
  each instruction set.
*/
#include "compute/compute_ops.h"
#include "compute/half.h"
#include "core/random/philox.h"
#include "core/random/random.h"
#include "trs_test.h"

#include <stdlib.h>

enum { ROWS = 40, MOST_COLUMNS = 100, SEED = 11, STEP = 3 };

/*
  The rounded element by definition. row and column are the element's position in the whole table.
*/
static uint16_t rounded(TrsDType dtype, int stochastic, uint64_t table_key, uint64_t row, uint32_t column,
                        float x)
{
  uint32_t random;

  if (!stochastic) return dtype == TRS_FP16 ? TrsFloatToHalf(x) : TrsFloatToBf16(x);
  random = TrsRoundingBits(TrsRoundingRow(TrsRoundingTable(SEED, STEP, table_key), row), column);
  return dtype == TRS_FP16 ? TrsFloatToHalfStochastic(x, random) : TrsFloatToBf16Stochastic(x, random);
}

/*
  A float with any bits. Every third number is near a limit of a format's range, or subnormal in the
  format. If tame is set, the number is finite and below 2^15, so that no element of the row needs
  special rounding.
*/
static float any_float(int64_t i, int tame)
{
  static const uint32_t edges[] = {0x00000000u, 0x33000000u, 0x33800000u, 0x387fc000u, 0x38800000u,
                                   0x477fe000u, 0x477ff000u, 0x7f7f0000u, 0x7f800000u, 0x7fc00000u};
  uint32_t random[4];

  TrsRandom(5, TRS_RANDOM_TEST, 0, (uint64_t)i, random);
  if (i % 3 == 1)
    return TrsBitsFloat(edges[random[1] % (tame ? 5 : 10)] + random[2] % 5 - (random[1] % 5 ? 2 : 0) +
                        (random[3] & 0x80000000u));
  if (i % 3 == 2 || tame)
    return TrsBitsFloat((random[0] & 0x80ffffffu) + 0x33000000u + ((random[1] % (tame ? 39 : 32)) << 23));
  return TrsBitsFloat(random[0]);
}

/*
  The row starts as 0. So an SGD step with learning rate 1 makes it 0 - g. With `zeros`, it starts
  as -0 and stays -0.
*/
static void check_shape(TrsDType dtype, int stochastic, int dim, int64_t table_dim, int64_t column, int zeros)
{
  const TrsComputeOps *ops = trs_compute_backends[0];
  uint16_t weight[ROWS * MOST_COLUMNS] = {0};
  float grad[ROWS * MOST_COLUMNS];
  int64_t rows[ROWS];
  const TrsSparseOptimizerArgs args = {
      .kind = TRS_OPTIM_SGD, .learning_rate = 1.0f, .step = STEP, .seed = SEED};
  const TrsTbeTable table = {.weight = weight,
                             .rows = ROWS,
                             .stride = dim,
                             .dim = dim,
                             .dtype = dtype,
                             .stochastic_rounding = stochastic,
                             .key = 77,
                             .row_offset = INT64_C(3) << 33,
                             .col_offset = column,
                             .table_dim = table_dim};
  TrsWorkspace workspace;

  for (int r = 0; r < ROWS; r++) rows[r] = r;
  for (int64_t i = 0; i < ROWS * dim; i++) {
    weight[i] = zeros ? 0x8000 : 0;
    grad[i] = zeros ? 0.0f : any_float(i, i / dim % 2 == 0);
  }
  assert_petsc_ok(ops->workspace_create(&workspace));
  assert_petsc_ok(ops->tbe_update_rows(NULL, workspace, 1, &table,
                                       &(TrsRowGradients){ROWS, rows, NULL, grad, dim}, &args));
  assert_petsc_ok(ops->workspace_destroy(&workspace));
  for (int64_t i = 0; i < ROWS * dim; i++) {
    const float x = (zeros ? -0.0f : 0.0f) - grad[i];
    const uint16_t expected = rounded(dtype, stochastic, table.key, (uint64_t)(table.row_offset + i / dim),
                                      (uint32_t)(column + i % dim), x);

    if (weight[i] != expected)
      fail_msg("%s %s, %d columns from %d of %d: %g (%08x) became %04x, expected %04x", TrsComputeIsa(),
               TrsDTypeName(dtype), dim, (int)column, (int)table_dim, (double)x, TrsFloatBits(x), weight[i],
               expected);
  }
}

static void test_rounding(void **state)
{
  static const char *const isas[] = {"portable", "avx2", "avx512"};
  static const int dims[] = {1, 4, 7, 8, 16, 20, 24, 33, 48, 64, 100};

  (void)state;
  for (int k = 0; k < 3; k++) {
    TrsComputeSetIsa(isas[k]);
    /* this processor does not have the instruction set */
    if (strcmp(TrsComputeIsa(), isas[k]) != 0) continue;
    for (int bits = 0; bits < 4; bits++)
      for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++) {
        const TrsDType dtype = bits & 1 ? TRS_FP16 : TRS_BF16;

        check_shape(dtype, bits >> 1, dims[d], dims[d], 0, 0);
        /* rows begin at any position in a block of random bits */
        check_shape(dtype, bits >> 1, dims[d], 203, 100, 0);
        check_shape(dtype, bits >> 1, dims[d], 256, 36, 0);
      }
    /* random bits of fp16 are zero in one of 8,192 columns */
    for (int64_t column = 0; column < 10240; column += 64) check_shape(TRS_FP16, 1, 64, 10240, column, 1);
  }
  TrsComputeSetIsa(NULL);
}

/*
  Bits are uniform, and independent of the bits of the next step, the next row, the next column, and
  the column that shares a random word. Each bit is 1 in half of N draws, and differs from its
  neighbour in half of them. 6 standard deviations of N draws are 3 sqrt(N). The draws are fixed, so
  the test either always passes or always fails.
*/
static void test_bits(void **state)
{
  enum { N = 1 << 18, COLUMNS = 64, BITS = 16, NEIGHBOURS = 4 };
  int count[1 + NEIGHBOURS][BITS] = {{0}};

  (void)state;
  for (int i = 0; i < N; i++) {
    const uint64_t table = TrsRoundingTable(SEED, STEP, 77), row = (uint64_t)(i / COLUMNS);
    const uint64_t of_row = TrsRoundingRow(table, row);
    const uint32_t column = (uint32_t)(i % COLUMNS), bits = TrsRoundingBits(of_row, column);
    const uint32_t neighbours[NEIGHBOURS] = {
        TrsRoundingBits(TrsRoundingRow(TrsRoundingTable(SEED, STEP + 1, 77), row), column),
        TrsRoundingBits(TrsRoundingRow(table, row + 1), column), TrsRoundingBits(of_row, column + 1),
        TrsRoundingBits(of_row, column ^ 1)};

    for (int b = 0; b < BITS; b++) {
      count[0][b] += (int)(bits >> b & 1);
      for (int k = 0; k < NEIGHBOURS; k++) count[1 + k][b] += (int)((bits ^ neighbours[k]) >> b & 1);
    }
  }
  for (int k = 0; k <= NEIGHBOURS; k++)
    for (int b = 0; b < BITS; b++)
      if (abs(count[k][b] - N / 2) > 3 * 512) fail_msg("bit %d, case %d: %d of %d", b, k, count[k][b], N);
}

TRS_TEST_MAIN(cmocka_unit_test(test_rounding), cmocka_unit_test(test_bits))
