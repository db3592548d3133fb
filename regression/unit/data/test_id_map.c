/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests how ids become rows: FBGEMM's hash, torch's remainder, and whole ranges of ids and table
  sizes.
*/
#include "data/id_map.h"
#include "trs_test.h"

#include <stdlib.h>

/* Map an id with the widest instructions and with portable instructions. */
static int64_t mapped(const TrsIdMapRule *rule, PetscBool is_unsigned, int64_t id)
{
  const TrsIdMap map = TrsIdMapMake(&(TrsIdMapRule){rule->kind, rule->rows, rule->collisions, is_unsigned});
  int64_t portably = id;

  TrsIdMapApply(&map, 1, &id);
  TrsIdMapApplyPortably(&map, 1, &portably);
  assert_int_equal(id, portably);
  return id;
}

/* Results of FBGEMM's zero_collision_hash with max_probe 1. */
static void test_hash_of_fbgemm(void **state)
{
  static const int64_t id[] = {0, 1, 2, 1000000000000000, -5, (int64_t)1 << 62};
  static const TrsIdMapRule thousand = {.kind = TRS_ID_MAP_HASH, .rows = 1000};
  static const int64_t row[] = {8, 125, 258, 816, 169, 297};

  (void)state;
  for (size_t i = 0; i < sizeof(id) / sizeof(*id); i++) {
    assert_int_equal(mapped(&thousand, PETSC_FALSE, id[i]), row[i]);
    assert_int_equal(mapped(&thousand, PETSC_TRUE, id[i]), row[i]);
  }
}

/* Compute a remainder with the processor's division. */
static int64_t remainder_of(int64_t id, int64_t rows, PetscBool is_unsigned)
{
  int64_t rest = is_unsigned ? (int64_t)((uint64_t)id % (uint64_t)rows) : id % rows;

  return rest < 0 ? rest + rows : rest;
}

/* Check the modulo, quotient and remainder of an id with the processor's division. */
static void check_division(int64_t id, int64_t rows, int64_t collisions, PetscBool is_unsigned)
{
  const int64_t row = remainder_of(id, rows, is_unsigned);
  TrsIdMapRule rule = {.kind = TRS_ID_MAP_MODULO, .rows = rows, .collisions = collisions};

  assert_int_equal(mapped(&rule, is_unsigned, id), row);
  rule.kind = TRS_ID_MAP_QUOTIENT;
  assert_int_equal(mapped(&rule, is_unsigned, id), row / collisions);
  rule.kind = TRS_ID_MAP_REMAINDER;
  assert_int_equal(mapped(&rule, is_unsigned, id), row % collisions);
}

static uint64_t next_bits(uint64_t *state)
{
  return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

static void test_divisions(void **state)
{
  enum { N_RANDOM = 1 << 18 };
  static const int64_t edge[] = {0,
                                 1,
                                 2,
                                 3,
                                 4,
                                 5,
                                 1000,
                                 1024,
                                 2147483647,
                                 (int64_t)1 << 32,
                                 999999999989,
                                 ((int64_t)1 << 57) - 1,
                                 (int64_t)1 << 57};
  uint64_t bits = 12345;

  (void)state;
  for (size_t r = 1; r < sizeof(edge) / sizeof(*edge); r++)
    for (size_t i = 0; i < sizeof(edge) / sizeof(*edge); i++)
      for (int64_t sign = -1; sign <= 1; sign += 2)
        for (int64_t near = -2; near <= 2; near++) {
          const int64_t ids[] = {sign * edge[i] + near, INT64_MIN + edge[i], INT64_MAX - edge[i]};

          for (int k = 0; k < 3; k++)
            for (int u = 0; u < 2; u++) check_division(ids[k], edge[r], edge[1 + (r + i) % 12], (PetscBool)u);
        }
  for (int n = 0; n < N_RANDOM; n++) {
    const int64_t id = (int64_t)next_bits(&bits);
    const int64_t rows = 1 + (int64_t)(next_bits(&bits) >> (7 + n % 57));

    check_division(id, rows, 1 + (int64_t)(next_bits(&bits) >> (7 + n % 53)), (PetscBool)(n & 1));
    /* an id next to a multiple */
    check_division(id / rows * rows + n % 3 - 1, rows, rows, (PetscBool)(n & 1));
  }
}

/*
  Many ids in one call give the same rows as single ids with portable instructions. The kind none
  keeps ids unchanged.
*/
static void test_many(void **state)
{
  enum { N = 5001 };
  static int64_t ids[N];

  (void)state;
  for (int kind = TRS_ID_MAP_NONE; kind <= TRS_ID_MAP_REMAINDER; kind++) {
    const TrsIdMapRule rule = {.kind = (TrsIdMapKind)kind, .rows = 777, .collisions = 29};
    const TrsIdMap map = TrsIdMapMake(&rule);

    for (int64_t i = 0; i < N; i++) ids[i] = (i - 2500) * 0x123456789abc;
    TrsIdMapApply(&map, N, ids);
    for (int64_t i = 0; i < N; i++) {
      const int64_t id = (i - 2500) * 0x123456789abc;

      assert_int_equal(ids[i], kind ? mapped(&rule, PETSC_FALSE, id) : id);
    }
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_hash_of_fbgemm), cmocka_unit_test(test_divisions),
              cmocka_unit_test(test_many))
