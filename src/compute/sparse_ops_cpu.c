/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Jagged tensors on the CPU: scan, permutation of blocks, row buckets, bounds check, unique ids.
  Source: FBGEMM permute_2D_sparse_data, block_bucketize_sparse_features, bounds_check_indices, jagged_unique_indices
*/
#include "compute/cpu_kernels.h"
#include "compute/row_sort.h"

#include <inttypes.h>
#include <omp.h>
#include <string.h>

PetscErrorCode TrsOffsetsCpu(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets)
{
  int64_t sum = 0;

  PetscFunctionBegin;
  (void)stream;
  for (int64_t i = 0; i < n; i++) {
    offsets[i] = sum;
    sum += lengths[i];
  }
  offsets[n] = sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPermuteBlocksCpu(TrsStream stream, TrsWorkspace workspace, int n_in,
                                   const int64_t *block_begin, int n_out, const int *permutation,
                                   const TrsJagged *in, TrsJagged *out)
{
  int64_t bag = 0, value = 0;

  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
  (void)n_in;
  for (int j = 0; j < n_out; j++) {
    const int64_t first_bag = block_begin[permutation[j]],
                  n_bags = block_begin[permutation[j] + 1] - first_bag;
    const int64_t first = in->offsets[first_bag], n = in->offsets[first_bag + n_bags] - first;
    if (n_bags > 0)
      memcpy(out->lengths + bag, in->lengths + first_bag, (size_t)n_bags * sizeof(*in->lengths));
    if (n > 0) memcpy(out->values + value, in->values + first, (size_t)n * sizeof(*in->values));
    if (n > 0 && in->weights && out->weights)
      memcpy(out->weights + value, in->weights + first, (size_t)n * sizeof(*in->weights));
    if (out->offsets) /* a shifted copy: cheaper than another scan */
      for (int64_t b = 0; b < n_bags; b++) out->offsets[bag + b] = in->offsets[first_bag + b] - first + value;
    bag += n_bags;
    value += n;
  }
  if (out->offsets) out->offsets[bag] = value;
  out->n_bags = bag;
  out->n_values = value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- bucketize --- */

__extension__ typedef unsigned __int128 TrsUint128;

/* Exact division of 0 <= id < 2^32 by a block size, by a multiplication (Lemire, Kaser, Kurz 2019): a 64-bit division takes 5 times as long. */
typedef struct {
  uint64_t magic; /* 0: divide */
  int64_t block;
} TrsDivider;

static TrsDivider divider_of(int64_t block)
{
  return (TrsDivider){.magic = block > 1 && block < ((int64_t)1 << 31) ? UINT64_MAX / (uint64_t)block + 1 : 0,
                      .block = block};
}

static inline int64_t divide(const TrsDivider *d, int64_t id)
{
  if (d->magic && (uint64_t)id <= UINT32_MAX) return (int64_t)(((TrsUint128)d->magic * (uint64_t)id) >> 64);
  return id / d->block;
}

/* First bucket whose upper bound lies above id; bounds may repeat. */
static inline int64_t bucket_in(const int64_t *bounds, int n_buckets, int64_t id)
{
  int low = 0, high = n_buckets - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (id < bounds[middle + 1])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* First id that no bucket holds. */
static inline int64_t end_of(const TrsBucketSpec *spec, int n_buckets)
{
  return spec->bounds ? spec->bounds[n_buckets] : spec->block_size * n_buckets;
}

static inline int64_t bucket_of(const TrsBucketSpec *spec, const TrsDivider *divider, int n_buckets,
                                int64_t end, int64_t id)
{
  if (id < 0) return 0;
  if (id >= end) return id % n_buckets;
  return spec->bounds ? bucket_in(spec->bounds, n_buckets, id) : divide(divider, id);
}

static inline int64_t local_id(const TrsBucketSpec *spec, int n_buckets, int64_t end, int64_t bucket,
                               int64_t id)
{
  if (id < 0) return id;
  if (id >= end) return id / n_buckets;
  return id - (spec->bounds ? spec->bounds[bucket] : bucket * spec->block_size);
}

/*
  Features are cut into parts of some bags, threads take whole parts. A part's ids of one bucket are neighbours in the result, so that a cursor for each
  bucket is all that the second pass needs. Lengths are counted a strip of bags at a time: rows of lengths often lie a multiple of 4096 bytes apart,
  and single writes to all of them would throw each other out of the cache.
*/
enum { TRS_STRIP_BAGS = 64, TRS_PART_BAGS = 32 * TRS_STRIP_BAGS };

typedef struct {
  int n_buckets, n_features;
  int64_t batch, parts_a_feature;
  const TrsBucketSpec *spec;
  const TrsJagged *in;
  TrsJagged *out;
  PetscBool keep_ids;
  int64_t *positions, *unbucketize;
  int32_t *bucket; /* [N] of each id */
  int64_t *cursor; /* [parts, n_buckets] ids of a bucket, then where the next one goes */
  int32_t *strips; /* [threads, n_buckets, TRS_STRIP_BAGS] */
} TrsBucketizeJob;

/* First pass: every id's bucket, the lengths, and how many ids the part has for each bucket. */
static void count_part(const TrsBucketizeJob *job, int64_t part)
{
  const int64_t f = part / job->parts_a_feature, bags = job->n_features * job->batch;
  const int64_t begin = f * job->batch + part % job->parts_a_feature * TRS_PART_BAGS,
                end = PetscMin(begin + TRS_PART_BAGS, (f + 1) * job->batch);
  const TrsBucketSpec *spec = &job->spec[f];
  const TrsDivider divider = divider_of(spec->block_size);
  const int64_t last_id = end_of(spec, job->n_buckets);
  int64_t *total = job->cursor + part * job->n_buckets;
  int32_t *count = job->strips + (int64_t)omp_get_thread_num() * job->n_buckets * TRS_STRIP_BAGS;

  for (int64_t first = begin; first < end; first += TRS_STRIP_BAGS) {
    const int64_t n = PetscMin(TRS_STRIP_BAGS, end - first);

    memset(count, 0, (size_t)job->n_buckets * TRS_STRIP_BAGS * sizeof(*count));
    for (int64_t b = 0; b < n; b++)
      for (int64_t i = job->in->offsets[first + b]; i < job->in->offsets[first + b + 1]; i++) {
        const int64_t q = bucket_of(spec, &divider, job->n_buckets, last_id, job->in->values[i]);

        job->bucket[i] = (int32_t)q;
        count[q * TRS_STRIP_BAGS + b]++;
      }
    for (int64_t q = 0; q < job->n_buckets; q++) {
      int32_t sum = 0;

      for (int64_t b = 0; b < n; b++) sum += count[q * TRS_STRIP_BAGS + b];
      memcpy(job->out->lengths + q * bags + first, count + q * TRS_STRIP_BAGS, (size_t)n * sizeof(*count));
      total[q] += sum;
    }
  }
}

/* Second pass: every id to its place. */
static void place_part(const TrsBucketizeJob *job, int64_t part)
{
  const int64_t f = part / job->parts_a_feature;
  const int64_t begin = f * job->batch + part % job->parts_a_feature * TRS_PART_BAGS,
                end = PetscMin(begin + TRS_PART_BAGS, (f + 1) * job->batch);
  const TrsBucketSpec *spec = &job->spec[f];
  const TrsJagged *in = job->in;
  const int64_t last_id = end_of(spec, job->n_buckets);
  int64_t *cursor = job->cursor + part * job->n_buckets;

  for (int64_t bag = begin; bag < end; bag++)
    for (int64_t i = in->offsets[bag]; i < in->offsets[bag + 1]; i++) {
      const int64_t q = job->bucket[i], at = cursor[q]++, id = in->values[i];

      job->out->values[at] = job->keep_ids ? id : local_id(spec, job->n_buckets, last_id, q, id);
      if (in->weights && job->out->weights) job->out->weights[at] = in->weights[i];
      if (job->positions) job->positions[at] = i - in->offsets[bag];
      if (job->unbucketize) job->unbucketize[i] = at;
    }
}

/* NOLINTNEXTLINE(readability-function-size): the slot's parameters */
PetscErrorCode TrsBucketizeCpu(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                               int64_t batch, const TrsBucketSpec *spec, PetscBool keep_ids,
                               const TrsJagged *in, TrsJagged *out, int64_t *positions, int64_t *unbucketize)
{
  const int64_t parts_a_feature = (batch + TRS_PART_BAGS - 1) / TRS_PART_BAGS,
                n_parts = n_features * parts_a_feature;
  TrsBucketizeJob job = {.n_buckets = n_buckets,
                         .n_features = n_features,
                         .batch = batch,
                         .parts_a_feature = parts_a_feature,
                         .spec = spec,
                         .in = in,
                         .out = out,
                         .keep_ids = keep_ids};
  int64_t sum = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&workspace->keys, in->n_values * (int64_t)sizeof(*job.bucket), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->positions, n_parts * n_buckets * (int64_t)sizeof(*job.cursor),
                             PETSC_FALSE));
  PetscCall(TrsBufferReserve(&workspace->histogram,
                             omp_get_max_threads() * (int64_t)n_buckets * TRS_STRIP_BAGS *
                                 (int64_t)sizeof(*job.strips),
                             PETSC_FALSE));
  job.positions = positions;
  job.unbucketize = unbucketize;
  job.bucket = (int32_t *)workspace->keys.data;
  job.cursor = (int64_t *)workspace->positions.data;
  job.strips = (int32_t *)workspace->histogram.data;
  if (n_parts > 0) memset(job.cursor, 0, (size_t)(n_parts * n_buckets) * sizeof(*job.cursor));
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < n_parts; part++) count_part(&job, part);
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

/* --- bounds check --- */

static void note(int64_t report[5], int64_t feature, int64_t bag, int64_t id, int64_t position)
{
  if (report[0]++ > 0) return;
  report[1] = feature;
  report[2] = bag;
  report[3] = id;
  report[4] = position;
}

static inline int64_t clamp_to(int64_t x, int64_t low, int64_t high)
{
  return x < low ? low : x > high ? high : x;
}

PetscErrorCode TrsBoundsCheckCpu(TrsStream stream, int mode, int n_features, int64_t batch,
                                 const int64_t *rows, int64_t *offsets, int64_t *values, int64_t n_values,
                                 int64_t report[5])
{
  const PetscBool repair = (PetscBool)(mode == 1 || mode == 2); /* warning, ignore; fatal reports the first */

  PetscFunctionBegin;
  (void)stream;
  if (mode == 3) PetscFunctionReturn(PETSC_SUCCESS);
  if (offsets[n_features * batch] != n_values) {
    note(report, n_features, 0, offsets[n_features * batch], n_values);
    if (!repair) PetscFunctionReturn(PETSC_SUCCESS);
    offsets[n_features * batch] = n_values;
  }
  for (int f = 0; f < n_features; f++)
    for (int64_t bag = f * batch; bag < (f + 1) * batch; bag++) {
      int64_t begin = offsets[bag], end = offsets[bag + 1];
      if (begin < 0 || begin > end || end > n_values) {
        note(report, f, bag - f * batch, begin, end);
        if (!repair) PetscFunctionReturn(PETSC_SUCCESS);
        offsets[bag] = begin = clamp_to(begin, 0, n_values);
        offsets[bag + 1] = end = clamp_to(end, begin, n_values);
      }
      for (int64_t i = begin; i < end; i++) {
        if ((uint64_t)values[i] < (uint64_t)rows[f] || values[i] == -1) continue;
        note(report, f, bag - f * batch, values[i], i);
        if (!repair) PetscFunctionReturn(PETSC_SUCCESS);
        values[i] = 0;
      }
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- unique --- */

PetscErrorCode TrsUniqueCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                            const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                            int64_t *unique_values, int64_t *reverse)
{
  int64_t n_unique = 0;

  PetscFunctionBegin;
  (void)stream;
  for (int t = 0; t < n_tables; t++) {
    const int64_t begin = values_begin[t], n = values_begin[t + 1] - begin;
    const int position_bits = TrsBitsFor((uint64_t)n);
    uint64_t *key, largest = 0;

    unique_begin[t] = n_unique;
    PetscCall(TrsBufferReserve(&workspace->keys, n * (int64_t)sizeof(*key), PETSC_FALSE));
    PetscCall(TrsBufferReserve(&workspace->scratch, n * (int64_t)sizeof(*key), PETSC_FALSE));
    key = (uint64_t *)workspace->keys.data;
    for (int64_t i = 0; i < n; i++) {
      const uint64_t from_0 = (uint64_t)(PetscMax(values[begin + i], -1) + 1);
      key[i] = from_0 << position_bits | (uint64_t)i;
      largest |= from_0;
    }
    PetscCheck(TrsBitsFor(largest) + position_bits <= 64, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%" PRId64 " ids of up to %" PRIu64 " are too many to be made unique at once", n, largest);
    key = TrsRowSort(n, position_bits, position_bits + TrsBitsFor(largest), key,
                     (uint64_t *)workspace->scratch.data);
    for (int64_t i = 0; i < n; i++) {
      const uint64_t row = key[i] >> position_bits;
      if (i == 0 || row != key[i - 1] >> position_bits) unique_values[n_unique++] = (int64_t)row - 1;
      reverse[begin + (int64_t)(key[i] & (((uint64_t)1 << position_bits) - 1))] = n_unique - 1;
    }
  }
  unique_begin[n_tables] = n_unique;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGatherIdsCpu(TrsStream stream, int64_t n, const int64_t *index, const int64_t *from,
                               int64_t *to)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++) to[i] = from[index[i]];
  PetscFunctionReturn(PETSC_SUCCESS);
}
