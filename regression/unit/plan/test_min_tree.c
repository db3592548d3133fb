/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares the tournament tree with a loop over all bins. Many bins have equal loads. */
#include "plan/search/min_tree.h"
#include "trs_test.h"

#include <math.h>

enum { MAX_BINS = 70, N_CHANGES = 3000 };

static uint64_t seed = 1;

static int draw(int n)
{
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((seed >> 33) % (uint64_t)n);
}

typedef struct {
  double load;
  int64_t hbm, ddr;
} bin_t;

/* The first bin with the least load among the bins with enough memory, or -1. */
static int expected(const bin_t *bin, int n, int64_t hbm, int64_t ddr)
{
  int best = -1;

  for (int i = 0; i < n; i++)
    if (bin[i].hbm >= hbm && bin[i].ddr >= ddr && (best < 0 || bin[i].load < bin[best].load)) best = i;
  return best;
}

static bin_t random_bin(void)
{
  return (bin_t){draw(4) ? 0.25 * draw(8) : 0, draw(10), draw(10)};
}

static void test_find(void **state)
{
  const int sizes[] = {1, 2, 3, 8, 33, MAX_BINS};
  int n_found = 0, n_searched = 0;

  (void)state;
  for (int k = 0; k < 6; k++) {
    const int n = sizes[k];
    bin_t bin[MAX_BINS];
    TrsMinTree tree;

    assert_petsc_ok(TrsMinTreeCreate(n, &tree));
    for (int i = 0; i < n; i++) {
      bin[i] = random_bin();
      tree.node[tree.n_leaves + i] = (TrsMinNode){.load = bin[i].load, .hbm = bin[i].hbm, .ddr = bin[i].ddr};
    }
    TrsMinTreeBuild(&tree);
    for (int c = 0; c < N_CHANGES; c++) {
      const int64_t hbm = draw(4) ? draw(11) : 0, ddr = draw(4) ? draw(11) : 0;
      const int i = draw(n), found = TrsMinTreeFind(&tree, hbm, ddr);

      assert_int_equal(found, expected(bin, n, hbm, ddr));
      n_found += found >= 0;
      n_searched += found >= 0 && found != expected(bin, n, INT64_MIN, INT64_MIN);
      bin[i] = random_bin();
      TrsMinTreeSet(&tree, i, bin[i].load, bin[i].hbm, bin[i].ddr);
    }
    assert_petsc_ok(TrsMinTreeFree(&tree));
  }
  /* all three outcomes occur: the least loaded bin, another bin, none */
  assert_true(n_found > N_CHANGES && n_searched > N_CHANGES && n_found < 6 * N_CHANGES - 100);
}

TRS_TEST_MAIN(cmocka_unit_test(test_find))
