/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares sums over blocks with the tree that defines them. The bits do not depend on how many
  consecutive blocks each rank has. A rank may have no block. Samples that are sent to their blocks
  and back are unchanged.
*/
#include "core/random/random.h"
#include "train/block_sum.h"
#include "train/sample_blocks.h"
#include "trs_test.h"

#include <string.h>

enum { N = 11, MAX_BLOCKS = 40, MAX_RANKS = 16 };

static TrsComm comm;

static int64_t draw(uint64_t a, uint64_t b, int64_t limit)
{
  uint32_t bits[4];

  TrsRandom(3, TRS_RANDOM_TEST, a, b, bits);
  return (int64_t)(bits[0] % (uint64_t)limit);
}

/*
  Element i of the vector of block b. It has 24 random bits, and an exponent that makes sums round.
*/
static float value_of(int64_t block, int i)
{
  const int64_t bits = draw(100 + (uint64_t)block, (uint64_t)i, 1 << 24);

  return (float)(bits - (1 << 23)) * (block % 3 == 0 ? 0x1p-10F : 0x1p-20F);
}

/* The sum over the subtree of 2^level blocks that begins at block `first`. */
static float sum_subtree(int64_t first, int level, int i)
{
  if (level == 0) return value_of(first, i);
  return sum_subtree(first, level - 1, i) + sum_subtree(first + ((int64_t)1 << (level - 1)), level - 1, i);
}

/*
  The sum of n blocks from block `first` on: the largest subtree that begins there, plus the blocks
  after it.
*/
static float sum_blocks(int64_t first, int64_t n, int i)
{
  int level = 0;
  float left;

  while ((int64_t)2 << level <= n && first % ((int64_t)2 << level) == 0) level++;
  left = sum_subtree(first, level, i);
  if (n == (int64_t)1 << level) return left;
  return left + sum_blocks(first + ((int64_t)1 << level), n - ((int64_t)1 << level), i);
}

static void test_same_bits(void **state)
{
  TrsBlockSum sum;
  float vector[N], total[N];

  (void)state;
  assert_petsc_ok(TrsBlockSumCreate(comm, N, &sum));
  for (int64_t n = 1; n <= MAX_BLOCKS; n++)
    for (uint64_t share = 0; share < 4; share++) {
      /* first block of each rank; the blocks of consecutive ranks are consecutive */
      int64_t first[MAX_RANKS + 1] = {0};
      for (int q = 0; q < comm->size; q++)
        first[q + 1] = q == comm->size - 1 ? n
                                           : first[q] + draw(share, (uint64_t)(n * 8 + q), n - first[q] + 1);
      for (int64_t block = first[comm->rank]; block < first[comm->rank + 1]; block++) {
        for (int i = 0; i < N; i++) vector[i] = value_of(block, i);
        assert_petsc_ok(TrsBlockSumAdd(sum, NULL, block, vector));
      }
      memset(total, 0xFF, sizeof(total));
      assert_petsc_ok(TrsBlockSumFinish(sum, NULL, first, total));
      for (int i = 0; i < N; i++) {
        const float expected = sum_blocks(0, n, i);
        assert_memory_equal(&total[i], &expected, sizeof(expected));
      }
    }
  assert_petsc_ok(TrsBlockSumDestroy(&sum));
}

/*
  Sample s of the batch has the number s in both columns. The samples are sent to their blocks in
  order, and then back to their owners. In the first round, every rank has whole blocks of its own
  samples, so no sample is copied.
*/
static void test_samples(void **state)
{
  enum { MOST = 2 * TRS_BLOCK_SAMPLES }; /* largest number of samples on a rank */
  TrsSampleBlocks blocks;

  (void)state;
  assert_petsc_ok(TrsSampleBlocksCreate(comm, TRS_BLOCK_SAMPLES, &blocks));
  for (uint64_t round = 0; round < 30; round++) {
    int64_t sample[MAX_RANKS + 1] = {0}, n, n_blocks, first, n_all, begin = 0, n_mine = 0;
    const int64_t *first_block;
    static float of_blocks[2 * (MOST * MAX_RANKS + TRS_BLOCK_SAMPLES)];
    float own[2 * MOST], *back;
    const float *mine;
    for (int q = 0; q < comm->size; q++)
      sample[q + 1] = sample[q] + (round == 0 ? MOST
                                   : draw(7, round * 8 + (uint64_t)q, 3) == 0
                                       ? 0
                                       : draw(8, round * 8 + (uint64_t)q, MOST));
    n = sample[comm->rank + 1] - sample[comm->rank];
    for (int64_t i = 0; i < 2 * n; i++) own[i] = (float)(sample[comm->rank] + i / 2);
    assert_petsc_ok(TrsSampleBlocksShare(blocks, sample, &first_block));
    first = first_block[comm->rank];
    n_blocks = first_block[comm->rank + 1] - first;
    n_all = first_block[comm->size];
    assert_int_equal(first_block[0], 0);
    assert_int_equal(n_all, (sample[comm->size] + TRS_BLOCK_SAMPLES - 1) / TRS_BLOCK_SAMPLES);
    assert_petsc_ok(TrsSampleBlocksSend(blocks, NULL, TRS_BLOCK_ROWS, 2, own, &mine));
    for (int64_t i = 0; i < n_blocks; i++) {
      const int64_t size = TrsSampleBlocksSize(blocks, i, &begin);
      assert_int_equal(begin, n_mine);
      assert_true(size == TRS_BLOCK_SAMPLES || first + i == n_all - 1);
      for (int64_t s = 2 * begin; s < 2 * (begin + size); s++)
        assert_true(mine[s] == (float)(first * TRS_BLOCK_SAMPLES + s / 2));
      n_mine += size;
    }
    assert_true(round || (TrsSampleBlocksStay(blocks) && mine == own));
    memcpy(of_blocks, mine, (size_t)(2 * n_mine) * sizeof(float));
    assert_petsc_ok(TrsSampleBlocksReturn(blocks, NULL, TRS_BLOCK_RETURNED_GRADS, 2, of_blocks, &back));
    assert_memory_equal(back, own, (size_t)(2 * n) * sizeof(float));
  }
  assert_petsc_ok(TrsSampleBlocksDestroy(&blocks));
}

static int setup(void **state)
{
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  assert_petsc_ok(TrsCommDestroy(&comm));
  return 0;
}

TRS_TEST_MAIN(cmocka_unit_test_setup_teardown(test_same_bits, setup, teardown),
              cmocka_unit_test_setup_teardown(test_samples, setup, teardown))
