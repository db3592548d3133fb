/* SPDX-License-Identifier: BSD-3-Clause */
/* Ids become rows: FBGEMM's hash, torch's remainder, whole ranges of ids and of table sizes. */
#include "data/id_map.h"
#include "trs_test.h"

#include <stdlib.h>

/* By the widest instructions and by portable ones. */
static int64_t mapped(TrsIdMapKind kind, int64_t rows, PetscBool is_unsigned, int64_t id)
{
  const TrsIdMap map = TrsIdMapMake(&(TrsIdMapRule){.kind = kind, .rows = rows}, is_unsigned);
  int64_t portably = id;

  TrsIdMapApply(&map, 1, &id);
  TrsIdMapApplyPortably(&map, 1, &portably);
  assert_int_equal(id, portably);
  return id;
}

/* What fbgemm's zero_collision_hash with max_probe 1 answers. */
static void test_hash_of_fbgemm(void **state)
{
  static const int64_t id[] = {0, 1, 2, 1000000000000000, -5, (int64_t)1 << 62};
  static const int64_t row[] = {8, 125, 258, 816, 169, 297};

  (void)state;
  for (size_t i = 0; i < sizeof(id) / sizeof(*id); i++) {
    assert_int_equal(mapped(TRS_ID_MAP_HASH, 1000, PETSC_FALSE, id[i]), row[i]);
    assert_int_equal(mapped(TRS_ID_MAP_HASH, 1000, PETSC_TRUE, id[i]), row[i]);
  }
}

/* By the processor's division. */
static int64_t remainder_of(int64_t id, int64_t rows, PetscBool is_unsigned)
{
  int64_t rest = is_unsigned ? (int64_t)((uint64_t)id % (uint64_t)rows) : id % rows;

  return rest < 0 ? rest + rows : rest;
}

static void test_remainders(void **state)
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
            for (int u = 0; u < 2; u++)
              assert_int_equal(mapped(TRS_ID_MAP_MODULO, edge[r], (PetscBool)u, ids[k]),
                               remainder_of(ids[k], edge[r], (PetscBool)u));
        }
  for (int n = 0; n < N_RANDOM; n++) {
    const int64_t id = (int64_t)(bits = bits * 6364136223846793005u + 1442695040888963407u);
    const int64_t rows = 1 + (int64_t)((bits = bits * 6364136223846793005u + 1442695040888963407u) >>
                                       (7 + n % 57));
    const PetscBool is_unsigned = (PetscBool)(n & 1);

    assert_int_equal(mapped(TRS_ID_MAP_MODULO, rows, is_unsigned, id), remainder_of(id, rows, is_unsigned));
  }
}

/* Many ids at once are what portable instructions make of them one by one; with kind none they stay. */
static void test_many(void **state)
{
  enum { N = 5001 };
  static int64_t ids[N];

  (void)state;
  for (int kind = TRS_ID_MAP_NONE; kind <= TRS_ID_MAP_HASH; kind++) {
    const TrsIdMap map = TrsIdMapMake(
        &(TrsIdMapRule){.kind = (TrsIdMapKind)kind, .rows = 777, .collisions = 29}, PETSC_FALSE);

    for (int64_t i = 0; i < N; i++) ids[i] = (i - 2500) * 0x123456789abc;
    TrsIdMapApply(&map, N, ids);
    for (int64_t i = 0; i < N; i++)
      assert_int_equal(ids[i], kind
                                   ? mapped((TrsIdMapKind)kind, 777, PETSC_FALSE, (i - 2500) * 0x123456789abc)
                                   : (i - 2500) * 0x123456789abc);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_hash_of_fbgemm), cmocka_unit_test(test_remainders),
              cmocka_unit_test(test_many))
