/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares row buckets with their definition, at every edge of a block and of the table, and at the
  limits of the fast division by multiplication. There are few and many bags. The result is the same
  for any number of threads.
*/
#include "compute/compute_ops.h"
#include "trs_test.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const TrsComputeOps *compute;
static TrsWorkspace workspace;

typedef struct {
  int n_buckets, n_features, max_length; /* every third bag is empty */
  int64_t batch, rows;
  PetscBool with_places;
} shape;

/* Ids at the edges of buckets and of number formats. Their order is unrelated to the bags. */
static int64_t id_at(int64_t i, int64_t block, int64_t rows, int n_buckets)
{
  const int64_t mixed = (i * 2654435761) % 1000003, edge = mixed % (n_buckets + 2) * block;

  if (mixed % 97 == 0) return -1 - mixed % 3;
  if (mixed % 101 == 0) return rows + mixed;
  if (mixed % 103 == 0) return ((int64_t)1 << (30 + mixed % 5)) - mixed % 2;
  return mixed % 5 == 0 ? PetscMax(edge - 1, 0) : mixed % 5 == 1 ? edge : mixed * 7919 % rows;
}

static int64_t bucket_by_definition(int64_t id, int64_t block, int n_buckets)
{
  return id < 0 ? 0 : id >= block * n_buckets ? id % n_buckets : id / block;
}

static int64_t local_by_definition(int64_t id, int64_t block, int n_buckets)
{
  return id < 0 ? id : id >= block * n_buckets ? id / n_buckets : id % block;
}

/* Compare the output of bucketize with the definition, bucket by bucket and bag by bag. */
static void check(const shape *s, int64_t block, const TrsJagged *in, const TrsJagged *out,
                  const int64_t *unbucketize)
{
  int64_t at = 0, bag_out = 0;

  for (int q = 0; q < s->n_buckets; q++)
    for (int64_t bag = 0; bag < in->n_bags; bag++, bag_out++) {
      const int64_t before = at;

      for (int64_t i = in->offsets[bag]; i < in->offsets[bag + 1]; i++) {
        const int64_t id = in->values[i];

        if (bucket_by_definition(id, block, s->n_buckets) != q) continue;
        assert_int_equal(out->values[at], local_by_definition(id, block, s->n_buckets));
        if (unbucketize) assert_int_equal(unbucketize[i], at);
        at++;
      }
      assert_int_equal(out->lengths[bag_out], at - before);
    }
  assert_int_equal(at, in->n_values);
  assert_int_equal(out->n_bags, bag_out);
  assert_int_equal(out->n_values, at);
}

static void run_shape(const shape *s)
{
  const int64_t bags = s->n_features * s->batch, block = (s->rows + s->n_buckets - 1) / s->n_buckets;
  TrsJagged in = {.n_bags = bags, .lengths = calloc((size_t)bags, 4), .offsets = calloc((size_t)bags + 1, 8)};
  TrsJagged out = {0};
  TrsBucketSpec *spec = calloc((size_t)s->n_features, sizeof(*spec));
  int64_t *unbucketize = NULL;

  for (int f = 0; f < s->n_features; f++) spec[f].bucket_rows = block;
  for (int64_t b = 0; b < bags; b++) {
    in.lengths[b] = b % 3 == 1 ? 0 : (int32_t)(b * 7 % s->max_length + 1);
    in.offsets[b + 1] = in.offsets[b] + in.lengths[b];
  }
  in.n_values = in.offsets[bags];
  in.values = malloc((size_t)in.n_values * 8);
  for (int64_t i = 0; i < in.n_values; i++) in.values[i] = id_at(i, block, s->rows, s->n_buckets);
  assert_petsc_ok(TrsAlloc(s->n_buckets * bags, sizeof(int32_t), &out.lengths));
  assert_petsc_ok(TrsAlloc(in.n_values, sizeof(int64_t), &out.values));
  if (s->with_places) unbucketize = malloc((size_t)in.n_values * 8);
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    memset(out.lengths, 0x55, (size_t)(s->n_buckets * bags) * 4);
    memset(out.values, 0x55, (size_t)in.n_values * 8);
    assert_petsc_ok(compute->bucketize(NULL, workspace, s->n_buckets, s->n_features, s->batch, spec, &in,
                                       &out, unbucketize));
    check(s, block, &in, &out, unbucketize);
  }
  assert_petsc_ok(TrsFree(&out.lengths));
  assert_petsc_ok(TrsFree(&out.values));
  free(unbucketize);
  free(in.lengths);
  free(in.offsets);
  free(in.values);
  free(spec);
}

static void test_definition(void **state)
{
  /*
    The benchmark's goals use 8 and 64 buckets. The lengths of 2 features x 8448 bags x 64 buckets
    have more than 4 MiB, so they are written without the cache.
  */
  static const shape shapes[] = {
      {3, 2, 5, 130, 1000, PETSC_FALSE},
      {1, 1, 4, 64, 77, PETSC_FALSE},
      {7, 3, 4, 2049, 100003, PETSC_TRUE},
      {8, 2, 3, 2112, 3000000019, PETSC_FALSE},
      {5, 1, 6, 300, ((int64_t)1 << 31) + 5, PETSC_TRUE},
      {64, 2, 2, 8448, 100000, PETSC_FALSE},
      {64, 2, 2, 8449, 100000, PETSC_TRUE},
  };

  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(compute->workspace_create(&workspace));
  for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) run_shape(&shapes[i]);
  assert_petsc_ok(compute->workspace_destroy(&workspace));
}

/*
  Test only the division by multiplication, for ids inside the table: every edge of every block, up
  to 2^31 rows.
*/
static void test_product(void **state)
{
  static const int64_t blocks[] = {1, 3, 7, 49, 1000, 1563, 65537, 33554431, 33554432, 715827883, 1073741823};
  static const int n_buckets[] = {64, 64, 64, 64, 64, 64, 64, 64, 64, 3, 2};
  int64_t ids[200], offsets[2] = {0, 0}, found[200];
  int32_t lengths[64], length;

  (void)state;
  assert_petsc_ok(compute->workspace_create(&workspace));
  for (size_t k = 0; k < sizeof(blocks) / sizeof(blocks[0]); k++) {
    const TrsBucketSpec spec = {.bucket_rows = blocks[k]};
    TrsJagged in = {.n_bags = 1, .lengths = &length, .offsets = offsets, .values = ids},
              out = {.lengths = lengths, .values = found};
    int64_t n = 0;

    for (int q = 0; q < n_buckets[k]; q++) {
      ids[n++] = q * blocks[k];
      ids[n++] = (q + 1) * blocks[k] - 1;
    }
    in.n_values = offsets[1] = length = (int32_t)n;
    assert_petsc_ok(compute->bucketize(NULL, workspace, n_buckets[k], 1, 1, &spec, &in, &out, NULL));
    for (int q = 0; q < n_buckets[k]; q++) {
      assert_int_equal(lengths[q], 2);
      assert_int_equal(found[2 * q], 0);
      assert_int_equal(found[2 * q + 1], blocks[k] - 1);
    }
  }
  assert_petsc_ok(compute->workspace_destroy(&workspace));
}

TRS_TEST_MAIN(cmocka_unit_test(test_definition), cmocka_unit_test(test_product))
