/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Expected numbers come from Random123's known-answer vectors, from its philox4x32 called with our
  counters, and from the laws of the distributions.
*/
#include "core/random/philox.h"
#include "core/random/random.h"
#include "core/random/random_tiles.h"
#include "trs_test.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>

/* kat_vectors of Random123: philox4x32, 10 rounds. */
static void test_known_answers(void **state)
{
  static const struct {
    uint32_t counter[4], key[2], expected[4];
  } kat[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
             {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
             {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
              {0xa4093822, 0x299f31d0},
              {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};

  (void)state;
  for (size_t i = 0; i < sizeof(kat) / sizeof(kat[0]); i++) {
    const uint32_t *c = kat[i].counter;
    uint32_t out[4];

    TrsPhilox((uint64_t)kat[i].key[1] << 32 | kat[i].key[0], (uint64_t)c[3] << 32 | c[2],
              (uint64_t)c[1] << 32 | c[0], out);
    assert_memory_equal(out, kat[i].expected, sizeof(out));
  }
}

/* Compute TrsRandom() with Random123. */
static void expected_block(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t b, uint32_t out[4])
{
  uint64_t key = TrsPhiloxKey(seed, purpose);
  philox4x32_ctr_t c = {{(uint32_t)b, (uint32_t)(b >> 32), (uint32_t)a, (uint32_t)(a >> 32)}};
  philox4x32_key_t k = {{(uint32_t)key, (uint32_t)(key >> 32)}};

  c = philox4x32(c, k);
  memcpy(out, c.v, 4 * sizeof(*out));
}

static void test_blocks(void **state)
{
  (void)state;
  for (uint64_t i = 0; i < 1000; i++) {
    uint64_t b = i * 0x123456789ABCDEFu; /* both halves of the counter have bits */
    uint32_t found[4], expected[4];

    TrsRandom(i, TRS_RANDOM_TEST, ~i, b, found);
    expected_block(i, TRS_RANDOM_TEST, ~i, b, expected);
    assert_memory_equal(found, expected, sizeof(found));
  }
}

/*
  Each element is determined by its own block. It does not depend on where a fill begins and ends.
*/
static void test_uniform_fill(void **state)
{
  static const uint64_t firsts[] = {0, 1, 3, 4, 127, 128, 1000, ((uint64_t)1 << 33) - 5};
  static const int64_t sizes[] = {0, 1, 2, 5, 125, 128, 129, 400};
  const float lo = -0.3f, hi = 0.7f;

  (void)state;
  for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
      float out[401];

      out[sizes[s]] = 77.0f;
      TrsRandomUniformFill(5, TRS_RANDOM_TABLE_INIT, 42, firsts[f], sizes[s], lo, hi, out);
      assert_true(out[sizes[s]] == 77.0f);
      for (int64_t i = 0; i < sizes[s]; i++) {
        uint64_t element = firsts[f] + (uint64_t)i;
        uint32_t block[4];
        volatile float product; /* volatile prevents a fused multiply-add here as well */

        expected_block(5, TRS_RANDOM_TABLE_INIT, 42, element / 4, block);
        product = (hi - lo) * TrsUniform24(block[element % 4]);
        assert_true(out[i] == lo + product);
      }
    }
  }
}

/*
  Compare the tiles of every instruction set with the definition. Some block indices exceed 32 bits.
*/
static void test_uniform_tiles(void **state)
{
  static const uint64_t blocks[] = {0, 32, ((uint64_t)1 << 32) - 40, ~(uint64_t)0 - 10};
  const float lo = 0.25f, width = -0.7f;
  float out[2 * TRS_TILE + 1];

  (void)state;
  for (int v = 0; v < TRS_N_UNIFORM_TILES; v++) {
    if (!trs_uniform_tiles[v].available()) continue;
    for (size_t k = 0; k < sizeof(blocks) / sizeof(blocks[0]); k++) {
      const uint64_t a = 0x8000000180000001u * (k + 1);

      out[2 * TRS_TILE] = 77.0f;
      trs_uniform_tiles[v].fill(TrsPhiloxKey(5, TRS_RANDOM_TEST), a, blocks[k], 2, lo, width, out);
      assert_true(out[2 * TRS_TILE] == 77.0f);
      for (int i = 0; i < 2 * TRS_TILE; i++) {
        volatile float product;
        uint32_t block[4];

        expected_block(5, TRS_RANDOM_TEST, a, blocks[k] + (uint64_t)(i / 4), block);
        product = width * TrsUniform24(block[i % 4]);
        assert_true(out[i] == lo + product);
      }
    }
  }
}

/* TrsRandomSetIsa() selects an instruction set. All instruction sets compute the same bits. */
static void test_limits(void **state)
{
  for (int v = 0; v < TRS_N_UNIFORM_TILES; v++) {
    const TrsUniformTiles *named = &trs_uniform_tiles[v], *best = TrsUniformTilesBest(named->name);

    assert_true(best->available() && best >= named);
    if (named->available()) assert_string_equal(best->name, named->name);
    TrsRandomSetIsa(named->name);
    test_uniform_fill(state);
  }
  assert_string_equal(TrsUniformTilesBest("none of these")->name, "portable");
  TrsRandomSetIsa(NULL);
}

static void test_uniform_law(void **state)
{
  enum { TRS_N_DRAWN = 100000 };
  float *out = malloc(TRS_N_DRAWN * sizeof(*out));
  double sum = 0, squares = 0;

  (void)state;
  assert_non_null(out);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 2, 0, TRS_N_DRAWN, -1, 1, out);
  for (int i = 0; i < TRS_N_DRAWN; i++) {
    assert_true(out[i] >= -1 && out[i] <= 1);
    sum += (double)out[i];
    squares += (double)out[i] * (double)out[i];
  }
  assert_close(sum / TRS_N_DRAWN, 0, 5 * sqrt(1.0 / 3 / TRS_N_DRAWN),
               0); /* the variance is 1/3; the tolerance is 5 standard errors */
  assert_close(squares / TRS_N_DRAWN, 1.0 / 3, 5 * sqrt(4.0 / 45 / TRS_N_DRAWN), 0);
  free(out);
}

static void test_normal(void **state)
{
  enum { TRS_N_DRAWN = 100000 };
  float *out = malloc(TRS_N_DRAWN * sizeof(*out)), part[7];
  double sum = 0, squares = 0, fourth = 0;

  (void)state;
  assert_non_null(out);
  TrsRandomNormalFill(1, TRS_RANDOM_TEST, 3, 0, TRS_N_DRAWN, 0.0f, 2.0f, out);
  for (int i = 0; i < TRS_N_DRAWN; i++) {
    double x = (double)out[i] / 2;

    assert_true(isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  assert_close(sum / TRS_N_DRAWN, 0, 5 * sqrt(1.0 / TRS_N_DRAWN),
               0); /* moments 1, 2 and 4 are 0, 1 and 3; the tolerance is 5 standard errors */
  assert_close(squares / TRS_N_DRAWN, 1, 5 * sqrt(2.0 / TRS_N_DRAWN), 0);
  assert_close(fourth / TRS_N_DRAWN, 3, 5 * sqrt(96.0 / TRS_N_DRAWN), 0);
  TrsRandomNormalFill(1, TRS_RANDOM_TEST, 3, 1001, 7, 0.0f, 2.0f,
                      part); /* a separately filled part equals the same part of the array */
  assert_memory_equal(part, out + 1001, sizeof(part));
  free(out);
}

static void test_streams_differ(void **state)
{
  uint32_t a[4], b[4];

  (void)state;
  TrsRandom(0, TRS_RANDOM_TEST, 0, 0, a);
  TrsRandom(0, TRS_RANDOM_SHUFFLE, 0, 0, b);
  assert_memory_not_equal(a, b, sizeof(a));
  TrsRandom(1, TRS_RANDOM_TEST, 0, 0, b);
  assert_memory_not_equal(a, b, sizeof(a));
  assert_true(TrsNameHash("user") != TrsNameHash("item"));
  /* XXH3's published value for an empty input */
  assert_true(TrsNameHash("") == 0x2d06800538d394c2u);
}

TRS_TEST_MAIN(cmocka_unit_test(test_known_answers), cmocka_unit_test(test_blocks),
              cmocka_unit_test(test_uniform_fill), cmocka_unit_test(test_uniform_tiles),
              cmocka_unit_test(test_limits), cmocka_unit_test(test_uniform_law),
              cmocka_unit_test(test_normal), cmocka_unit_test(test_streams_differ))
