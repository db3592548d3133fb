/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/* TEST isas: portable avx2 */
/*
  Compares batches that are assembled from samples with their definition, with every instruction set
  and on the GPU, which also maps ids. The cases include: lengths from 0 to 200, equal lengths, and
  one id per key; batches around the sizes of tiles; ids of 4 and 8 bytes, with invalid ids at all
  bounds; weights; shuffled samples; keys that are not used or used twice; and samples in parts.
  Memory after the results must stay unchanged.
*/
#include "compute/assemble.h"
#include "data/id_map.h"
#include "hosted_compute.h"

#include <stdlib.h>

enum { MOST_KEYS = 150, GUARD = 16 };

typedef struct {
  uint64_t state;
} dice;

/* Draw a number from 0 to n - 1 (splitmix64). */
static int64_t throw_one(dice *d, int64_t n)
{
  uint64_t x = d->state += 0x9e3779b97f4a7c15u;

  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (int64_t)((x ^ x >> 31) % (uint64_t)n);
}

typedef enum { ONE_ID, EQUAL_LENGTHS, RAGGED, SHORT_BAGS, N_LENGTHS } lengths_kind;

typedef struct {
  TrsSamples samples;
  int n_features, first[MOST_KEYS];
  TrsSampleFeature feature[2 * MOST_KEYS];
  int32_t *lengths, *sample;
  int64_t *start;
  void *values;
  float *weights;
} problem;

static void make_lengths(problem *p, lengths_kind kind, dice *d)
{
  const int n = p->samples.n_keys;

  for (int64_t i = 0; i < p->samples.batch * n; i++)
    p->lengths[i] = kind == ONE_ID          ? 1
                    : kind == EQUAL_LENGTHS ? (int32_t)((i % n) * 7 % 20)
                    : kind == SHORT_BAGS    ? (int32_t)throw_one(d, 4)
                    : throw_one(d, 8)       ? (int32_t)throw_one(d, 18)
                                            : (int32_t)throw_one(d, 201);
  p->start[0] = 0;
  for (int64_t i = 0; i < p->samples.batch; i++) {
    p->start[i + 1] = p->start[i];
    for (int k = 0; k < n; k++) p->start[i + 1] += p->lengths[i * n + k];
  }
}

/* Make features in any order. Some keys are not used, and one key is used twice. */
static void make_features(problem *p, PetscBool limited, dice *d)
{
  static const int64_t rows[] = {1,         2, 100, INT32_MAX, (int64_t)1 << 31, ((int64_t)1 << 31) + 5,
                                 INT64_MAX, 0};
  const int n = p->samples.n_keys;
  int key[MOST_KEYS + 1], n_taken = 0;

  for (int k = 0; k < n; k++)
    if (n < 3 || throw_one(d, 8)) key[n_taken++] = k;
  if (n_taken == 0) key[n_taken++] = 0;
  for (int f = n_taken - 1; f > 0; f--) {
    const int other = (int)throw_one(d, f + 1), swapped = key[f];

    key[f] = key[other];
    key[other] = swapped;
  }
  key[n_taken] = key[0];
  n_taken += (int)throw_one(d, 2);
  p->n_features = n_taken;
  for (int k = 0; k < n; k++) p->first[k] = -1;
  for (int f = n_taken - 1; f >= 0; f--) {
    p->feature[f] = (TrsSampleFeature){.key = key[f],
                                       .next = p->first[key[f]],
                                       .max_length = limited ? (int32_t)throw_one(d, 3) * 100 : 0,
                                       .rows = rows[throw_one(d, 8)]};
    p->first[key[f]] = f;
  }
}

/*
  Make ids. If good is set, every id is a row of the smallest table. If not, ids are at all bounds.
*/
static void make_values(problem *p, PetscBool good, dice *d)
{
  static const int64_t edges[] = {-1,
                                  -2,
                                  0,
                                  1,
                                  2,
                                  99,
                                  100,
                                  INT32_MIN,
                                  INT32_MAX,
                                  INT32_MAX - 1,
                                  (int64_t)1 << 31,
                                  ((int64_t)1 << 31) - 1,
                                  ((int64_t)1 << 40) - 1,
                                  (int64_t)1 << 40,
                                  INT64_MIN,
                                  INT64_MAX};

  for (int64_t i = 0; i < p->start[p->samples.batch]; i++) {
    const int64_t id = good ? -throw_one(d, 2) : edges[throw_one(d, 16)];

    if (p->samples.value_bytes == 4)
      ((int32_t *)p->values)[i] = (int32_t)id;
    else
      ((int64_t *)p->values)[i] = id;
    if (p->weights) p->weights[i] = (float)throw_one(d, 1000) * 0.5F;
  }
}

static void make_problem(problem *p, int64_t batch, int n_keys, lengths_kind kind, dice *d)
{
  const PetscBool weighted = (PetscBool)throw_one(d, 2), shuffled = (PetscBool)throw_one(d, 2);

  *p = (problem){.samples = {.batch = batch, .n_keys = n_keys, .value_bytes = throw_one(d, 2) ? 4 : 8}};
  p->lengths = malloc((size_t)(batch * n_keys + 1) * sizeof(int32_t));
  p->start = malloc((size_t)(batch + 1) * sizeof(int64_t));
  make_lengths(p, kind, d);
  p->values = malloc((size_t)(p->start[batch] + 1) * sizeof(int64_t));
  if (weighted) p->weights = malloc((size_t)(p->start[batch] + 1) * sizeof(float));
  if (shuffled) {
    p->sample = malloc((size_t)(batch + 1) * sizeof(int32_t));
    for (int64_t b = 0; b < batch; b++) {
      const int64_t other = throw_one(d, b + 1);

      p->sample[b] = p->sample[other];
      p->sample[other] = (int32_t)b;
    }
  }
  make_features(p, (PetscBool)throw_one(d, 2), d);
  make_values(p, (PetscBool)throw_one(d, 2), d);
  p->samples.first = p->first;
  p->samples.lengths = p->lengths;
  p->samples.start = p->start;
  p->samples.sample = p->sample;
}

static void free_problem(problem *p)
{
  free(p->lengths);
  free(p->start);
  free(p->values);
  free(p->weights);
  free(p->sample);
}

/* Find the index of the first id of a sample's bag in the file. */
static int64_t place_of(const problem *p, int64_t sample, int key)
{
  int64_t at = p->start[sample];

  for (int k = 0; k < key; k++) at += p->lengths[sample * p->samples.n_keys + k];
  return at;
}

static int64_t id_at(const problem *p, int64_t at)
{
  return p->samples.value_bytes == 4 ? ((const int32_t *)p->values)[at] : ((const int64_t *)p->values)[at];
}

/*
  Compare a result with the definition. Part k ends at sample end[k], and odd[k] of odd [n_parts]
  belongs to it.
*/
static void check_result(const problem *p, const TrsJagged *out, int n_parts, const int64_t *end,
                         const int32_t *odd)
{
  const int64_t B = p->samples.batch;
  int32_t expected[4] = {0};
  int64_t to = 0;

  for (int f = 0; f < p->n_features; f++)
    for (int64_t b = 0; b < B; b++) {
      const TrsSampleFeature *feature = &p->feature[f];
      const int64_t i = p->sample ? p->sample[b] : b, from = place_of(p, i, feature->key);
      const int32_t n = p->lengths[i * p->samples.n_keys + feature->key];
      int part = 0;

      while (part < n_parts - 1 && b >= end[part]) part++;
      assert_int_equal(out->lengths[f * B + b], n);
      assert_int_equal(out->offsets[f * B + b], to);
      if (feature->max_length && n > feature->max_length) expected[part] = 1;
      for (int j = 0; j < n; j++, to++) {
        int64_t id = id_at(p, from + j);
        const PetscBool good = (PetscBool)(feature->rows == 0 || (id >= -1 && id < feature->rows));

        TrsIdMapApplyPortably(&feature->map, 1, &id);
        assert_int_equal(out->values[to], good ? id : 0);
        if (p->weights) assert_true(out->weights[to] == p->weights[from + j]);
        if (!good) expected[part] = 1;
      }
    }
  assert_int_equal(out->offsets[p->n_features * B], to);
  assert_int_equal(out->n_values, to);
  assert_int_equal(out->n_bags, p->n_features * B);
  for (int part = 0; part < n_parts; part++) assert_int_equal(odd[part], expected[part]);
}

static void *guarded(int64_t n, size_t bytes)
{
  char *memory = malloc((size_t)(n + GUARD) * bytes);

  memset(memory, 0x55, (size_t)(n + GUARD) * bytes);
  return memory;
}

static void check_guard(void *memory, int64_t n, size_t bytes)
{
  for (size_t i = 0; i < GUARD * bytes; i++) assert_int_equal(((char *)memory)[(size_t)n * bytes + i], 0x55);
  free(memory);
}

static void check_problem(const problem *p, int n_parts)
{
  const int64_t B = p->samples.batch, n_bags = p->n_features * B;
  TrsSamples part = p->samples;
  int64_t n_values = 0, end[4];
  int32_t odd[4];
  TrsJagged out;

  for (int f = 0; f < p->n_features; f++)
    for (int64_t i = 0; i < B; i++) n_values += p->lengths[i * part.n_keys + p->feature[f].key];
  out = (TrsJagged){.lengths = guarded(n_bags, sizeof(int32_t)),
                    .offsets = guarded(n_bags + 1, sizeof(int64_t)),
                    .values = guarded(n_values, sizeof(int64_t)),
                    .weights = p->weights ? guarded(n_values, sizeof(float)) : NULL};
  for (int k = 0; k < n_parts; k++) {
    end[k] = k == n_parts - 1 ? B : B * (k + 1) / n_parts;
    part.begin = k ? end[k - 1] : 0;
    part.end = end[k];
    part.values = (const char *)p->values + p->start[part.begin] * part.value_bytes;
    part.weights = p->weights ? p->weights + p->start[part.begin] : NULL;
    odd[k] = TrsAssemble(&part, p->n_features, p->feature, &out);
  }
  check_result(p, &out, n_parts, end, odd);
  check_guard(out.lengths, n_bags, sizeof(int32_t));
  check_guard(out.offsets, n_bags + 1, sizeof(int64_t));
  check_guard(out.values, n_values, sizeof(int64_t));
  if (out.weights) check_guard(out.weights, n_values, sizeof(float));
}

/* Give some features a rule that turns their ids into rows. */
static void make_maps(problem *p, dice *d)
{
  for (int f = 0; f < p->n_features; f++) {
    const TrsIdMapRule rule = {.kind = (TrsIdMapKind)throw_one(d, 5),
                               .rows = 1 + throw_one(d, 1 << 20),
                               .collisions = 1 + throw_one(d, 5),
                               .is_unsigned = (PetscBool)throw_one(d, 2)};

    p->feature[f].map = TrsIdMapMake(&rule);
    if (rule.kind != TRS_ID_MAP_NONE) p->feature[f].rows = 0;
  }
}

/* Assemble the samples on the GPU twice, and check the memory after the results. */
static void check_device(const problem *p, const TrsComputeOps *compute, TrsWorkspace workspace)
{
  const int64_t B = p->samples.batch, n_bags = p->n_features * B, n_in = p->start[B];
  TrsSamples samples = p->samples;
  TrsJagged out = {0}, on_device;
  int32_t *odd;

  for (int f = 0; f < p->n_features; f++)
    for (int64_t i = 0; i < B; i++) out.n_values += p->lengths[i * samples.n_keys + p->feature[f].key];
  out.lengths = guarded(n_bags, sizeof(int32_t));
  out.offsets = guarded(n_bags + 1, sizeof(int64_t));
  out.values = guarded(out.n_values, sizeof(int64_t));
  out.weights = p->weights ? guarded(out.n_values, sizeof(float)) : NULL;
  samples.lengths = IN(p->lengths, B * samples.n_keys * 4);
  samples.start = IN(p->start, (B + 1) * 8);
  samples.sample = IN(p->sample, B * 4);
  samples.values = IN(p->values, n_in * samples.value_bytes);
  samples.weights = IN(p->weights, n_in * 4);
  on_device = hosted_jagged(&out, n_bags + GUARD, out.n_values + GUARD, PETSC_TRUE);
  assert_petsc_ok(hosted_device->alloc_host(sizeof(*odd), (void **)&odd));
  *odd = 7;
  for (int again = 0; again < 2; again++)
    assert_petsc_ok(compute->assemble(NULL, workspace, &samples, p->n_features, p->feature, &on_device, odd));
  assert_petsc_ok(hosted_device->stream_synchronize(NULL));
  out.n_bags = on_device.n_bags;
  hosted_after(PETSC_SUCCESS);
  check_result(p, &out, 1, &B, odd);
  check_guard(out.lengths, n_bags, sizeof(int32_t));
  check_guard(out.offsets, n_bags + 1, sizeof(int64_t));
  check_guard(out.values, out.n_values, sizeof(int64_t));
  if (out.weights) check_guard(out.weights, out.n_values, sizeof(float));
  assert_petsc_ok(hosted_device->release_host((void **)&odd));
}

static void test_devices(void **state)
{
  static const int64_t batches[] = {0, 1, 2, 31, 32, 33, 64, 97, 200};
  static const int keys[] = {1, 2, 7, 26, 65};
  const TrsComputeOps *compute;
  TrsWorkspace workspace = NULL;
  dice d = {99};
  problem p;

  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) {
    if (!compute->assemble) continue;
    assert_petsc_ok(compute->workspace_create(&workspace));
    for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
      for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
        for (int kind = 0; kind < N_LENGTHS; kind++) {
          /* of the large cases, try only some */
          if (batches[b] * keys[k] > 1000 && throw_one(&d, 4)) continue;
          make_problem(&p, batches[b], keys[k], (lengths_kind)kind, &d);
          if (throw_one(&d, 2)) make_maps(&p, &d);
          check_device(&p, compute, workspace);
          free_problem(&p);
        }
    assert_petsc_ok(compute->workspace_destroy(&workspace));
  }
}

static void test_assemble(void **state)
{
  static const int64_t batches[] = {0, 1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 97, 200};
  static const int keys[] = {1, 2, 7, 8, 9, 26, 63, 64, 65, 149};
  dice d = {2024};
  problem p;

  (void)state;
  for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
      for (int kind = 0; kind < N_LENGTHS; kind++) {
        /* of the large cases, try only some */
        if (batches[b] * keys[k] > 3000 && throw_one(&d, 4)) continue;
        make_problem(&p, batches[b], keys[k], (lengths_kind)kind, &d);
        check_problem(&p, p.sample || batches[b] < 5 ? 1 : 1 + (int)throw_one(&d, 4));
        free_problem(&p);
      }
}

/* Test batches that are larger than the caches. */
static void test_large(void **state)
{
  dice d = {7};
  problem p;

  (void)state;
  for (int kind = 0; kind < N_LENGTHS; kind++)
    for (int again = 0; again < 3; again++) {
      make_problem(&p, kind == ONE_ID ? 5500 : 1500 + again, kind == SHORT_BAGS ? 70 : 26, (lengths_kind)kind,
                   &d);
      check_problem(&p, p.sample ? 1 : 3);
      free_problem(&p);
    }
}

TRS_TEST_MAIN(cmocka_unit_test(test_assemble), cmocka_unit_test(test_large), cmocka_unit_test(test_devices))
