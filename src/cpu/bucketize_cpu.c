/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Row buckets on the CPU: sort each feature's ids by the rank that owns the row. The time grows with
  N + W*F*B: every id is read twice, and every length of the result is written once, in whole cache
  lines.

  Source: FBGEMM block_bucketize_sparse_features
*/
#include "cpu/cpu_kernels.h"
#include "cpu/past_cache.h"

#include <omp.h>
#include <string.h>

/*
  The first pass is also compiled for wider vectors, which does not change integer results.
  core/random/random.c explains why sanitizers and clang are excluded.
*/
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
  #define WIDE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
  #define WIDE_CLONES
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The rule that maps one feature's ids to buckets. */
typedef struct {
  int64_t n_buckets, rows, end; /* end is the first id outside of all buckets */
  const int64_t *bounds;        /* NULL if all buckets have equal size */
  double inverse;               /* slightly larger than 1 / rows */
  /* an id below this has the bucket (int32_t)(id * inverse); 0 if this holds for no id */
  uint64_t plain;
  TrsIdBuckets keys; /* if it has buckets, ids are keys */
} TrsBucketRule;

/*
  Make the rule for one feature. A division takes 5 times as long as the multiplication id *
  inverse. The multiplication gives the exact bucket for 0 <= id < 2^31, because inverse exceeds 1 /
  rows by at most one part in 2^50. So the rounded id * inverse is at least id / rows if that is
  whole. It exceeds id / rows by less than 1 / rows, which is the distance to the next whole number.
*/
static TrsBucketRule rule_of(const TrsBucketSpec *spec, int64_t n_buckets)
{
  TrsBucketRule rule = {
      .n_buckets = n_buckets, .rows = spec->bucket_rows, .bounds = spec->bounds, .keys = spec->keys};

  rule.end = spec->bounds ? spec->bounds[n_buckets] : spec->bucket_rows * n_buckets;
  if (!rule.bounds && rule.rows > 0 && !rule.keys.n.value) {
    rule.inverse = 1.0 / (double)rule.rows * (1.0 + 0x1p-52);
    rule.plain = (uint64_t)PetscMin(rule.end, (int64_t)1 << 31);
  }
  return rule;
}

/* Find the first bucket whose upper bound is greater than id. Several bounds may be equal. */
static int64_t bucket_in(const TrsBucketRule *rule, int64_t id)
{
  int64_t low = 0, high = rule->n_buckets - 1;

  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (id < rule->bounds[middle + 1])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static int64_t bucket_of(const TrsBucketRule *rule, int64_t id)
{
  if (rule->keys.n.value) id = TrsIdBucket(&rule->keys, id) * rule->keys.rows;
  if (id < 0) return 0;
  if (id >= rule->end) return id % rule->n_buckets;
  return rule->bounds ? bucket_in(rule, id) : id / rule->rows;
}

static inline int64_t local_id(const TrsBucketRule *rule, int64_t bucket, int64_t id)
{
  if ((uint64_t)id < rule->plain) return id - bucket * rule->rows;
  if (id < 0 || rule->keys.n.value) return id;
  if (id >= rule->end) return id / rule->n_buckets;
  return id - (rule->bounds ? rule->bounds[bucket] : bucket * rule->rows);
}

/* Find the buckets of n ids. If all ids are below rule->plain, the loop is vectorised. */
ALWAYS_INLINE void find_buckets(const TrsBucketRule *rule, int64_t n, const int64_t *restrict id,
                                int32_t *restrict bucket)
{
  const uint64_t plain = rule->plain;
  const double inverse = rule->inverse;
  uint64_t others = 0;

  for (int64_t i = 0; i < n; i++) others |= (uint64_t)((uint64_t)id[i] >= plain);
  if (others)
    for (int64_t i = 0; i < n; i++) bucket[i] = (int32_t)bucket_of(rule, id[i]);
  else
    for (int64_t i = 0; i < n; i++) bucket[i] = (int32_t)((double)(int32_t)id[i] * inverse);
}

/*
  A feature's bags are divided into parts of TRS_PART_BAGS bags, and a thread processes whole parts.
  A part's ids for one bucket are adjacent in the result, so the second pass needs only one cursor
  for each bucket. Lengths are counted for strips of TRS_STRIP_BAGS bags at a time. The reason: rows
  of lengths are often a multiple of 4096 bytes apart, so writing to all of them in turn would evict
  their cache lines.
*/
enum { TRS_STRIP_BAGS = 64, TRS_PART_BAGS = 32 * TRS_STRIP_BAGS };

typedef struct {
  int n_buckets, n_features;
  int64_t batch, parts_a_feature;
  const TrsBucketSpec *spec;
  const TrsJagged *in;
  TrsJagged *out;
  PetscBool stream_lengths; /* write lengths past the caches */
  int64_t *unbucketize;
  int32_t *bucket; /* [N] bucket of each id */
  /* [parts, n_buckets] number of the part's ids in each bucket; later the position of the next
     id */
  int64_t *cursor;
  int32_t *strips; /* [threads, n_buckets, TRS_STRIP_BAGS] lengths of a strip */
} TrsBucketizeJob;

/*
  Write the lengths that were counted for a bucket and n bags to the result, and reset the counts to
  zero. Returns their sum.
*/
ALWAYS_INLINE int64_t flush_counts(int64_t n, int streaming, int32_t *restrict count,
                                   int32_t *restrict lengths)
{
  int32_t sum = 0;

#if defined(__SSE2__)
  if (streaming)
    for (int64_t b = 0; b < n; b += 4)
      _mm_stream_si128((__m128i *)(void *)(lengths + b),
                       _mm_load_si128((const __m128i *)(void *)(count + b)));
#endif
  for (int64_t b = 0; b < n; b++) {
    sum += count[b];
    if (!streaming) lengths[b] = count[b];
    count[b] = 0;
  }
  return sum;
}

/*
  First pass: find every id's bucket, the lengths in the result, and the number of the part's ids in
  each bucket.
*/
WIDE_CLONES static void count_part(const TrsBucketizeJob *job, int64_t part, int32_t *restrict count)
{
  const int64_t f = part / job->parts_a_feature, n_buckets = job->n_buckets,
                bags = job->n_features * job->batch;
  const int64_t begin = f * job->batch + part % job->parts_a_feature * TRS_PART_BAGS,
                end = PetscMin(begin + TRS_PART_BAGS, (f + 1) * job->batch);
  const TrsBucketRule rule = rule_of(&job->spec[f], n_buckets);
  const int64_t *offsets = job->in->offsets;
  int64_t *total = job->cursor + part * n_buckets;
  int32_t *bucket = job->bucket;

  memset(count, 0, (size_t)n_buckets * TRS_STRIP_BAGS * sizeof(*count));
  for (int64_t first = begin; first < end; first += TRS_STRIP_BAGS) {
    const int64_t n = PetscMin(TRS_STRIP_BAGS, end - first);
    int32_t *lengths = job->out->lengths + first;
    const int streaming = TRS_CAN_PAST_CACHE && job->stream_lengths && n == TRS_STRIP_BAGS &&
                          (uintptr_t)lengths % 16 == 0 && bags % 4 == 0;

    find_buckets(&rule, offsets[first + n] - offsets[first], job->in->values + offsets[first],
                 bucket + offsets[first]);
    for (int64_t b = 0; b < n; b++)
      for (int64_t i = offsets[first + b]; i < offsets[first + b + 1]; i++)
        count[bucket[i] * (int64_t)TRS_STRIP_BAGS + b]++;
    for (int64_t q = 0; q < n_buckets; q++) {
      int32_t *of_bucket = count + q * TRS_STRIP_BAGS, *to = lengths + q * bags;

      if (streaming)
        total[q] += flush_counts(TRS_STRIP_BAGS, 1, of_bucket, to);
      else if (n == TRS_STRIP_BAGS)
        total[q] += flush_counts(TRS_STRIP_BAGS, 0, of_bucket, to);
      else
        total[q] += flush_counts(n, 0, of_bucket, to);
    }
  }
  if (job->stream_lengths) TrsPastCacheEnd();
}

/* Second pass: copy every id to its position in the result. */
static void place_part(const TrsBucketizeJob *job, int64_t part)
{
  const int64_t f = part / job->parts_a_feature;
  const int64_t begin = f * job->batch + part % job->parts_a_feature * TRS_PART_BAGS,
                end = PetscMin(begin + TRS_PART_BAGS, (f + 1) * job->batch);
  const TrsBucketRule rule = rule_of(&job->spec[f], job->n_buckets);
  const TrsJagged *in = job->in;
  const float *weights = job->out->weights ? in->weights : NULL;
  const int32_t *bucket = job->bucket;
  const int64_t first = in->offsets[begin], last = in->offsets[end];
  int64_t *restrict cursor = job->cursor + part * job->n_buckets, *restrict values = job->out->values;

  /* neither weights nor positions belong to the ids, so bags need not be distinguished */
  if (!weights && !job->unbucketize) {
    for (int64_t i = first; i < last; i++) {
      const int64_t id = in->values[i];

      values[cursor[bucket[i]]++] = local_id(&rule, bucket[i], id);
    }
    return;
  }
  for (int64_t bag = begin; bag < end; bag++)
    for (int64_t i = in->offsets[bag]; i < in->offsets[bag + 1]; i++) {
      const int64_t q = bucket[i], at = cursor[q]++, id = in->values[i];

      values[at] = local_id(&rule, q, id);
      if (weights) job->out->weights[at] = weights[i];
      if (job->unbucketize) job->unbucketize[i] = at;
    }
}

/* NOLINTNEXTLINE(readability-function-size): the function type has many parameters */
PetscErrorCode TrsBucketizeCpu(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                               int64_t batch, const TrsBucketSpec *spec, const TrsJagged *in, TrsJagged *out,
                               int64_t *unbucketize)
{
  const int64_t parts_a_feature = (batch + TRS_PART_BAGS - 1) / TRS_PART_BAGS,
                n_parts = n_features * parts_a_feature;
  TrsBucketizeJob job = {
      .n_buckets = n_buckets,
      .n_features = n_features,
      .batch = batch,
      .parts_a_feature = parts_a_feature,
      .spec = spec,
      .in = in,
      .out = out,
      .stream_lengths = (PetscBool)(batch * n_features * n_buckets * (int64_t)sizeof(*out->lengths) >=
                                    TRS_PAST_CACHE_BYTES)};
  int64_t sum = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&workspace->keys, in->n_values * (int64_t)sizeof(*job.bucket), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->positions, n_parts * n_buckets * (int64_t)sizeof(*job.cursor),
                             PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->by_thread,
                             omp_get_max_threads() * (int64_t)n_buckets * TRS_STRIP_BAGS *
                                 (int64_t)sizeof(*job.strips),
                             PETSC_FALSE));
  job.unbucketize = unbucketize;
  job.bucket = (int32_t *)workspace->keys.data;
  job.cursor = (int64_t *)workspace->positions.data;
  job.strips = (int32_t *)workspace->by_thread.data;
  if (n_parts > 0) memset(job.cursor, 0, (size_t)(n_parts * n_buckets) * sizeof(*job.cursor));
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < n_parts; part++)
    count_part(&job, part, job.strips + (int64_t)omp_get_thread_num() * n_buckets * TRS_STRIP_BAGS);
  for (int q = 0; q < n_buckets; q++)
    for (int64_t part = 0; part < n_parts; part++) {
      const int64_t here = job.cursor[part * n_buckets + q];

      job.cursor[part * n_buckets + q] = sum;
      sum += here;
    }
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < n_parts; part++) place_part(&job, part);
  out->n_bags = n_features * batch * n_buckets;
  out->n_values = in->n_values;
  if (out->offsets) PetscCall(TrsOffsetsCpu(stream, out->n_bags, out->lengths, out->offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}
