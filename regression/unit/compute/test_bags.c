/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests that equal bags are found and stored once. On every backend, the result is compared with the
  definition: each bag is compared with all earlier bags. The cases include empty bags, equal bags,
  bags with equal hashes, and weights with equal bits. Distinct bags are copied packed and padded,
  and as the first bags of blocks. The test also covers copies of runs of columns.
*/
#include "compute/bag_hash.h"
#include "hosted_compute.h"

#include <stdlib.h>

enum { MOST = 5 }; /* largest number of ids in a bag */

static const TrsComputeOps *compute;
static TrsWorkspace workspace;

/* [blocks][batch] bags. No call uses the last block. */
typedef struct {
  int n_blocks;
  int64_t batch;
  TrsJagged in;
  TrsBagLists lists;
  int64_t *inverse;
} problem;

static void make_problem(int n_blocks, int64_t batch, PetscBool weighted, problem *p)
{
  const size_t bags = (size_t)(n_blocks * batch), values = bags * MOST + 1;

  *p = (problem){.n_blocks = n_blocks, .batch = batch};
  p->in = (TrsJagged){.n_bags = (int64_t)bags,
                      .lengths = calloc(bags + 1, sizeof(int32_t)),
                      .offsets = calloc(bags + 1, sizeof(int64_t)),
                      .values = calloc(values, sizeof(int64_t)),
                      .weights = weighted ? calloc(values, sizeof(float)) : NULL};
  p->lists = (TrsBagLists){.batch = batch,
                           .sample = malloc((bags + 1) * sizeof(int32_t)),
                           .n = malloc((size_t)n_blocks * sizeof(int64_t))};
  p->inverse = malloc((bags + 1) * sizeof(int64_t));
}

static void free_problem(problem *p)
{
  free(p->in.lengths);
  free(p->in.offsets);
  free(p->in.values);
  free(p->in.weights);
  free(p->lists.sample);
  free(p->lists.n);
  free(p->inverse);
}

/* Append a bag. */
static void add_bag(problem *p, int64_t bag, int length, const int64_t *ids, const float *weights)
{
  const int64_t at = p->in.offsets[bag];

  p->in.lengths[bag] = length;
  p->in.offsets[bag + 1] = at + length;
  for (int k = 0; k < length; k++) {
    p->in.values[at + k] = ids[k];
    if (p->in.weights) p->in.weights[at + k] = weights[k];
  }
  p->in.n_values = at + length;
}

static PetscBool equal_bags(const TrsJagged *a, int64_t bag_a, const TrsJagged *b, int64_t bag_b)
{
  const int64_t n = a->offsets[bag_a + 1] - a->offsets[bag_a];

  if (n != b->offsets[bag_b + 1] - b->offsets[bag_b]) return PETSC_FALSE;
  for (int64_t k = 0; k < n; k++) {
    const int64_t i = a->offsets[bag_a] + k, j = b->offsets[bag_b] + k;

    if (a->values[i] != b->values[j]) return PETSC_FALSE;
    if (a->weights && memcmp(&a->weights[i], &b->weights[j], sizeof(float)) != 0) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

/*
  Each distinct bag of a feature is listed once, by the first sample that has it. The list is in the
  order of samples.
*/
static void check_unique(problem *p, int n, const int *feature)
{
  const int64_t B = p->batch;

  for (int64_t i = 0; i < n * B; i++) p->inverse[i] = -1;
  assert_petsc_ok(compute->unique_bags(NULL, workspace, n, feature, &p->in, &p->lists, p->inverse));
  for (int f = 0; f < n; f++) {
    int64_t n_found = 0;

    for (int64_t s = 0; s < B; s++) {
      int64_t first = 0;

      while (!equal_bags(&p->in, feature[f] * B + first, &p->in, feature[f] * B + s)) first++;
      if (first == s) {
        assert_int_equal(p->lists.sample[f * B + n_found], s);
        assert_int_equal(p->inverse[f * B + s], n_found++);
      } else {
        assert_int_equal(p->inverse[f * B + s], p->inverse[f * B + first]);
      }
    }
    assert_int_equal(p->lists.n[f], n_found);
  }
}

/*
  Copy the bags of lists, packed or padded. Lists without samples mean the first bags of each block.
*/
static void check_taken(const problem *p, int n, const int *block, const int *list, PetscBool packed,
                        PetscBool with_samples)
{
  const int64_t B = p->batch, room = n * B * MOST + 1;
  TrsBagLists lists = p->lists;
  TrsJagged out = {.lengths = malloc((size_t)(n * B + 1) * sizeof(int32_t)),
                   .offsets = malloc((size_t)(n * B + 1) * sizeof(int64_t)),
                   .values = malloc((size_t)room * sizeof(int64_t)),
                   .weights = p->in.weights ? malloc((size_t)room * sizeof(float)) : NULL,
                   .n_values = room};
  int64_t *limits = malloc((size_t)(2 * n + 1) * sizeof(int64_t)), bag = 0;

  if (!with_samples) lists.sample = NULL;
  assert_petsc_ok(
      compute->take_bags(NULL, workspace, n, block, list, &lists, &p->in, &out, packed ? limits : NULL));
  assert_int_equal(out.offsets[0], 0);
  for (int j = 0; j < n; j++) {
    const int64_t n_bags = lists.n[list[j]];

    if (packed) assert_int_equal(limits[j], n_bags);
    if (packed) assert_int_equal(limits[n + j], out.offsets[bag]);
    for (int64_t k = 0; k < (packed ? n_bags : B); k++, bag++) {
      const int64_t sample = with_samples && k < n_bags ? lists.sample[list[j] * B + k] : k;

      assert_int_equal(out.lengths[bag], out.offsets[bag + 1] - out.offsets[bag]);
      if (k < n_bags)
        assert_true(equal_bags(&p->in, block[j] * B + sample, &out, bag));
      else
        assert_int_equal(out.lengths[bag], 0);
    }
  }
  if (packed) assert_int_equal(limits[2 * n], out.offsets[bag]);
  for (; bag < n * B; bag++) assert_int_equal(out.offsets[bag + 1], out.offsets[bag]);
  free(out.lengths);
  free(out.offsets);
  free(out.values);
  free(out.weights);
  free(limits);
}

static void check_problem(problem *p)
{
  const int feature[3] = {2, 0, 1}, block[5] = {0, 2, 2, 0, 1}, list[5] = {1, 0, 0, 1, 2};

  check_unique(p, 3, feature);
  check_taken(p, 5, block, list, PETSC_TRUE, PETSC_TRUE);
  check_taken(p, 5, block, list, PETSC_FALSE, PETSC_TRUE);
  check_taken(p, 5, block, list, PETSC_TRUE, PETSC_FALSE);
}

/*
  With few ids, most bags occur more than once. Weights include 0 and -0, which compare as equal
  numbers, and NaN, which is not equal to itself.
*/
static void check_few_ids(int64_t batch, PetscBool weighted)
{
  const float weights[4] = {0.0F, -0.0F, 1.5F, (float)NAN};
  problem p;

  make_problem(4, batch, weighted, &p);
  for (int64_t bag = 0; bag < p.in.n_bags; bag++) {
    const uint64_t mixed = TrsPhiloxKey((uint64_t)bag, 7);
    int64_t ids[MOST];
    float w[MOST];

    for (int k = 0; k < MOST; k++) {
      ids[k] = (int64_t)(mixed >> (8 + 3 * k) & 3) - 1;
      w[k] = weights[mixed >> (40 + 2 * k) & 3];
    }
    add_bag(&p, bag, (int)(mixed % (weighted ? 3 : MOST + 1)), ids, w);
  }
  check_problem(&p);
  free_problem(&p);
}

/* kind: 0 for empty bags, 1 for equal bags, 2 for distinct bags. */
static void check_uniform(int64_t batch, int kind)
{
  problem p;

  make_problem(4, batch, PETSC_FALSE, &p);
  for (int64_t bag = 0; bag < p.in.n_bags; bag++)
    add_bag(&p, bag, kind == 0 ? 0 : 3, (const int64_t[3]){1 - kind, 7, kind == 2 ? bag : 7}, NULL);
  check_problem(&p);
  assert_int_equal(p.lists.n[0], kind == 2 ? batch : PetscMin(batch, 1));
  free_problem(&p);
}

/*
  Invert the mixing function of TrsPhiloxKey(). An odd factor is inverted by Newton's method, a
  shift by repetition.
*/
static uint64_t unshift(uint64_t x, int by)
{
  uint64_t found = x;

  for (int n = by; n < 64; n += by) found = x ^ found >> by;
  return found;
}

static uint64_t inverse_of(uint64_t factor)
{
  uint64_t x = factor;

  for (int i = 0; i < 6; i++) x *= 2 - factor * x;
  return x;
}

static uint64_t unmix(uint64_t hash, uint32_t purpose)
{
  uint64_t z = unshift(hash, 31);

  z = unshift(z * inverse_of(0x94D049BB133111EBU), 27);
  z = unshift(z * inverse_of(0xBF58476D1CE4E5B9U), 30);
  return z - 0x9E3779B97F4A7C15U * purpose;
}

/*
  Bags of two ids whose terms add up to the same hash. Each bag occurs twice. Empty bags, whose hash
  is 0, are between them. In one block all hashes are 0.
*/
static void check_collisions(void)
{
  enum { BATCH = 60 };
  problem p;

  make_problem(4, BATCH, PETSC_FALSE, &p);
  for (int64_t bag = 0; bag < p.in.n_bags; bag++) {
    const uint64_t wanted = bag / BATCH == 1 ? 0 : 12345, first = (uint64_t)(bag % (BATCH / 2));
    const int64_t ids[2] = {(int64_t)first, (int64_t)unmix(wanted - TrsBagHashTerm(0, (int64_t)first, 0), 1)};

    assert_true(TrsBagHashTerm(0, ids[0], 0) + TrsBagHashTerm(1, ids[1], 0) == wanted);
    add_bag(&p, bag, bag % 7 == 3 ? 0 : 2, ids, NULL);
  }
  check_problem(&p);
  free_problem(&p);
}

static void check_pad(void)
{
  const int64_t strides[3] = {2, 0, 3}, offsets[6] = {0, 1, 3, 5, 5, 6};
  const int64_t wanted[13] = {0, 1, 3, 3, 3, 3, 3, 3, 3, 5, 5, 6, 6};
  int64_t to[13];

  assert_petsc_ok(compute->pad_offsets(NULL, workspace, 3, strides, 4, offsets, to));
  assert_memory_equal(to, wanted, sizeof(wanted));
  assert_petsc_ok(compute->pad_offsets(NULL, workspace, 1, strides + 1, 0, offsets + 3, to));
  assert_int_equal(to[0], 5);
}

/*
  Copy runs of `width`, 2 * width or `unit` columns from one matrix to another, in reverse order and
  with gaps. Then divide each run by the lengths of its bags.
*/
static void check_columns(int64_t rows, int n, int64_t width, int64_t unit)
{
  const int64_t stride = n * (2 * width + unit), floats = rows * stride;
  TrsColumnCopy *copy;
  TrsMeanColumns *mean;
  float *from, *to, *wanted;
  int32_t *lengths;
  int64_t *place;

  assert_petsc_ok(TrsAlloc(floats, sizeof(*from), &from));
  assert_petsc_ok(TrsAlloc(floats, sizeof(*to), &to));
  assert_petsc_ok(TrsAlloc(floats, sizeof(*wanted), &wanted));
  assert_petsc_ok(TrsAlloc(n * rows, sizeof(*lengths), &lengths));
  assert_petsc_ok(PetscMalloc3((size_t)n, &copy, (size_t)n, &mean, (size_t)n, &place));
  for (int64_t i = 0; i < floats; i++) {
    from[i] = (float)(i % 65521 + 1);
    to[i] = wanted[i] = -1.0F;
  }
  for (int64_t i = 0; i < n * rows; i++) lengths[i] = (int32_t)(i % 7);
  for (int i = 0; i < n; i++) {
    const int64_t cols = i % 3 == 2 ? unit : (i % 3 + 1) * width, at = i * (2 * width + unit);

    place[i] = stride - at - (2 * width + unit);
    copy[i] = (TrsColumnCopy){
        .from = TrsFloats(from + at, stride), .to = TrsFloats(to + place[i], stride), .cols = cols};
    mean[n - 1 - i] = (TrsMeanColumns){.columns = copy[i].to, .lengths = lengths + i * rows, .cols = cols};
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < cols; c++) wanted[place[i] + r * stride + c] = from[at + r * stride + c];
  }
  assert_petsc_ok(compute->copy_columns(NULL, rows, n, copy));
  assert_memory_equal(to, wanted, (size_t)floats * sizeof(*to));
  for (int i = 0; i < n; i++)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < mean[i].cols; c++)
        if (mean[i].lengths[r] > 1) wanted[place[n - 1 - i] + r * stride + c] /= (float)mean[i].lengths[r];
  assert_petsc_ok(compute->divide_columns(NULL, rows, n, mean));
  assert_memory_equal(to, wanted, (size_t)floats * sizeof(*to));
  assert_petsc_ok(PetscFree3(copy, mean, place));
  assert_petsc_ok(TrsFree(&lengths));
  assert_petsc_ok(TrsFree(&wanted));
  assert_petsc_ok(TrsFree(&to));
  assert_petsc_ok(TrsFree(&from));
}

static void test_bags(void **state)
{
  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) {
    assert_petsc_ok(compute->workspace_create(&workspace));
    for (int64_t batch = 0; batch <= 100; batch = batch < 2 ? batch + 1 : batch * 7 + 19) {
      check_few_ids(batch, PETSC_FALSE);
      check_few_ids(batch, PETSC_TRUE);
      for (int kind = 0; kind < 3; kind++) check_uniform(batch, kind);
    }
    check_collisions();
    check_pad();
    for (int64_t rows = 0; rows <= 37; rows = rows < 2 ? rows + 1 : rows * 5 + 7) {
      check_columns(rows, 1, 3, 1);
      check_columns(rows, 3, 1, 0);
      check_columns(rows, 7, 4, 4);  /* all runs consist of units of 16 bytes */
      check_columns(rows, 70, 4, 4); /* more runs than one launch handles */
      check_columns(rows, 70, 8, 1); /* some runs consist of units of 16 bytes */
    }
    assert_petsc_ok(compute->workspace_destroy(&workspace));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_bags))
