/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes a batch of samples on the CPU. First the lengths of all samples are copied, because they
  determine each bag's position. Then ids are copied in tiles of TRS_SAMPLE_TILE samples, one key
  after another. So a tile's rows of the file stay in the first-level cache, and each feature's bags
  are written in sequence.

  Two frequent cases have a fast path: all samples have the same lengths, or each bag of a tile has
  one id, so that the copy is a transposition.
*/
#include "compute/assemble.h"

#include "cpu/cpu_kernels.h"
#include "cpu/isa/assemble_kernels.h"
#include "cpu/past_cache.h"

#include <string.h>

/*
  Sizes of buffers on the stack: number of a tile's keys, and number of ids that are collected
  before they are written past the caches. Batches with at least TRS_PAST_CACHE_IDS ids are written
  past the caches, because several batches are in flight and none is read soon.
*/
enum { TRS_KEYS_AT_ONCE = 64, TRS_STAGED_IDS = 512, TRS_LINE_BYTES = 64, TRS_PAST_CACHE_IDS = 1 << 17 };

/* A tile: the samples first .. first + n - 1 of the batch. */
typedef struct {
  int64_t first;
  int n;
  /* for each sample, the index of the next key's first id among the part's ids */
  int64_t at[TRS_SAMPLE_TILE];
} TrsTile;

static int64_t sample_at(const TrsSamples *samples, int64_t place)
{
  return samples->sample ? samples->sample[place] : place;
}

static int smaller(int64_t a, int64_t b)
{
  return (int)(a < b ? a : b);
}

/* --- lengths and offsets --- */

/* True if all samples have the same lengths. Each row of lengths is compared with the next row. */
static PetscBool lengths_repeat(const TrsSamples *samples)
{
  const int n = samples->n_keys;
  const int64_t others = samples->batch - 1;

  return (PetscBool)(others >= 0 && memcmp(samples->lengths, samples->lengths + n,
                                           (size_t)(others * n) * sizeof(*samples->lengths)) == 0);
}

/*
  Write lengths and offsets if all samples have the same lengths. The offsets of a feature then
  increase in equal steps.
*/
static void repeat_lengths(const TrsSamples *samples, int n_features, const TrsSampleFeature *features,
                           TrsJagged *out)
{
  const int64_t B = samples->batch;
  int64_t begin = 0;

  for (int f = 0; f < n_features; f++) {
    const int32_t length = samples->lengths[features[f].key];

    for (int64_t b = 0; b < B; b++) out->lengths[f * B + b] = length;
    for (int64_t b = 0; b < B; b++) out->offsets[f * B + b] = begin + b * length;
    begin += B * length;
  }
  out->offsets[n_features * B] = begin;
}

/* Copy a tile's lengths of some keys to the features of these keys. */
static void place_lengths(const TrsSamples *samples, const TrsSampleFeature *features, int first_key,
                          int n_keys, const int32_t *lengths, const TrsTile *tile, TrsJagged *out)
{
  for (int k = 0; k < n_keys; k++)
    for (int f = samples->first[first_key + k]; f >= 0; f = features[f].next)
      memcpy(out->lengths + f * samples->batch + tile->first, lengths + TrsTilePlace(k, 0),
             (size_t)tile->n * sizeof(*lengths));
}

static void transpose_lengths(const TrsAssembleKernels *kernels, const TrsSamples *samples,
                              const TrsSampleFeature *features, TrsJagged *out)
{
  int32_t lengths[TRS_KEYS_AT_ONCE * TRS_SAMPLE_TILE];
  const int32_t *row[TRS_SAMPLE_TILE];
  TrsTile tile;

  for (tile.first = 0; tile.first < samples->batch; tile.first += TRS_SAMPLE_TILE) {
    tile.n = smaller(samples->batch - tile.first, TRS_SAMPLE_TILE);
    for (int k = 0; k < samples->n_keys; k += TRS_KEYS_AT_ONCE) {
      const int n = smaller(samples->n_keys - k, TRS_KEYS_AT_ONCE);

      for (int i = 0; i < tile.n; i++)
        row[i] = samples->lengths + sample_at(samples, tile.first + i) * samples->n_keys + k;
      kernels->transpose(tile.n, n, row, lengths);
      place_lengths(samples, features, k, n, lengths, &tile, out);
    }
  }
}

static void take_lengths(const TrsAssembleKernels *kernels, const TrsSamples *samples, int n_features,
                         const TrsSampleFeature *features, TrsJagged *out)
{
  const int64_t n_bags = n_features * samples->batch;

  if (lengths_repeat(samples)) {
    repeat_lengths(samples, n_features, features, out);
  } else {
    int64_t sum = 0;

    transpose_lengths(kernels, samples, features, out);
    for (int64_t bag = 0; bag < n_bags; bag++) {
      out->offsets[bag] = sum;
      sum += out->lengths[bag];
    }
    out->offsets[n_bags] = sum;
  }
  out->n_bags = n_bags;
  out->n_values = out->offsets[n_bags];
}

/* True if a bag of the part is longer than its feature allows. */
static int has_long_bag(const TrsSamples *samples, int n_features, const TrsSampleFeature *features,
                        const TrsJagged *out)
{
  int found = 0;

  for (int f = 0; f < n_features; f++) {
    const int32_t most = features[f].max_length, *lengths = out->lengths + f * samples->batch;

    for (int64_t b = samples->begin; most > 0 && b < samples->end; b++) found |= lengths[b] > most;
  }
  return found;
}

/* --- ids and weights --- */

/* A function that copies bags of a tile like the place functions of TrsAssembleKernels. */
typedef int TrsPlaceIds(const TrsAssembleKernels *kernels, const TrsSamples *samples, int n_bags,
                        const int32_t *lengths, const int64_t *at, const void *from, int64_t rows,
                        int64_t *to);

static int place_ids(const TrsAssembleKernels *kernels, const TrsSamples *samples, int n_bags,
                     const int32_t *lengths, const int64_t *at, const void *from, int64_t rows, int64_t *to)
{
  if (samples->value_bytes == (int)sizeof(int32_t))
    return kernels->place_narrow(n_bags, lengths, at, from, rows, to);
  return kernels->place_wide(n_bags, lengths, at, from, rows, to);
}

/*
  Copy n ids past the caches, except at the ends of `to`, where cache lines are incomplete. `from`
  and `to` must have the same offset in a cache line.
*/
static void copy_past_cache(int64_t n, const int64_t *from, int64_t *to)
{
  const int64_t ids = TRS_LINE_BYTES / (int64_t)sizeof(*to),
                place = (int64_t)((uintptr_t)to / sizeof(*to)) % ids;
  const int64_t head = smaller(n, (ids - place) % ids), whole = (n - head) / ids * ids;

  for (int64_t i = 0; i < head; i++) to[i] = from[i];
  TrsPastCacheCopy(whole * 2, (const float *)(const void *)(from + head), 0, (float *)(void *)(to + head));
  for (int64_t i = head + whole; i < n; i++) to[i] = from[i];
}

/*
  Do the work of place_ids(), but write past the caches, through a small buffer that stays in the
  first-level cache.
*/
static int place_past_cache(const TrsAssembleKernels *kernels, const TrsSamples *samples, int n_bags,
                            const int32_t *lengths, const int64_t *at, const void *from, int64_t rows,
                            int64_t *to)
{
  _Alignas(TRS_LINE_BYTES) int64_t stage[TRS_STAGED_IDS + TRS_LINE_BYTES / sizeof(int64_t)];
  int odd = 0;

  for (int i = 0, n; i < n_bags; i += n) {
    int64_t *staged = stage + (uintptr_t)to / sizeof(*to) % (TRS_LINE_BYTES / sizeof(*to));
    int64_t n_ids = 0;

    for (n = 0; i + n < n_bags && n_ids + lengths[i + n] <= TRS_STAGED_IDS; n++) n_ids += lengths[i + n];
    if (n == 0) { /* the next bag is longer than the buffer */
      n_ids = lengths[i];
      n = 1;
      staged = to;
    }
    odd |= place_ids(kernels, samples, n, lengths + i, at + i, from, rows, staged);
    if (staged != to) copy_past_cache(n_ids, staged, to);
    to += n_ids;
  }
  return odd;
}

/* Copy a tile's bags of all keys. */
static int place_tile(const TrsAssembleKernels *kernels, const TrsSamples *samples,
                      const TrsSampleFeature *features, TrsTile *tile, TrsJagged *out)
{
  TrsPlaceIds *place = out->n_values >= TRS_PAST_CACHE_IDS ? place_past_cache : place_ids;
  int32_t left_out[TRS_SAMPLE_TILE];
  int odd = 0;

  for (int k = 0; k < samples->n_keys; k++) {
    const int32_t *lengths = left_out;

    for (int f = samples->first[k]; f >= 0; f = features[f].next) {
      const int64_t bag = f * samples->batch + tile->first, to = out->offsets[bag];

      lengths = out->lengths + bag;
      odd |= place(kernels, samples, tile->n, lengths, tile->at, samples->values, features[f].rows,
                   out->values + to);
      if (samples->weights)
        kernels->place_weights(tile->n, lengths, tile->at, samples->weights, out->weights + to);
    }
    for (int i = 0; lengths == left_out && i < tile->n; i++)
      left_out[i] = samples->lengths[sample_at(samples, tile->first + i) * samples->n_keys + k];
    for (int i = 0; i < tile->n; i++) tile->at[i] += lengths[i];
  }
  return odd;
}

/*
  Do the work of place_tile() for a tile in which each bag has one id of four bytes. The ids are
  transposed: each row of the result has the ids of one key.
*/
static int transpose_tile(const TrsAssembleKernels *kernels, const TrsSamples *samples,
                          const TrsSampleFeature *features, const TrsTile *tile, TrsJagged *out)
{
  TrsPlaceIds *place = out->n_values >= TRS_PAST_CACHE_IDS ? place_past_cache : place_ids;
  int32_t ids[TRS_KEYS_AT_ONCE * TRS_SAMPLE_TILE];
  const int32_t *row[TRS_SAMPLE_TILE], one_bag = tile->n;
  const int64_t from_0 = 0;
  int odd = 0;

  for (int first = 0; first < samples->n_keys; first += TRS_KEYS_AT_ONCE) {
    const int n = smaller(samples->n_keys - first, TRS_KEYS_AT_ONCE);

    for (int i = 0; i < tile->n; i++) row[i] = (const int32_t *)samples->values + tile->at[i] + first;
    kernels->transpose(tile->n, n, row, ids);
    for (int k = 0; k < n; k++)
      for (int f = samples->first[first + k]; f >= 0; f = features[f].next)
        odd |= place(kernels, samples, 1, &one_bag, &from_0, ids + TrsTilePlace(k, 0), features[f].rows,
                     out->values + out->offsets[f * samples->batch + tile->first]);
  }
  return odd;
}

/* True if each bag of a tile has one id of four bytes and no weight. */
static PetscBool is_transposition(const TrsSamples *samples, const TrsTile *tile)
{
  int32_t others = samples->weights || samples->value_bytes != (int)sizeof(int32_t);

  for (int i = 0; i < tile->n && !others; i++) {
    const int32_t *lengths = samples->lengths + sample_at(samples, tile->first + i) * samples->n_keys;

    for (int k = 0; k < samples->n_keys; k++) others |= lengths[k] ^ 1;
  }
  return (PetscBool)!others;
}

PetscBool TrsAssemble(const TrsSamples *samples, int n_features, const TrsSampleFeature *features,
                      TrsJagged *out)
{
  const TrsAssembleKernels *kernels = TRS_KERNELS_OF_ISA(trs_assemble_kernels);
  const int64_t from = samples->start[samples->begin];
  TrsTile tile;
  int odd;

  if (samples->begin == 0) take_lengths(kernels, samples, n_features, features, out);
  odd = has_long_bag(samples, n_features, features, out);
  for (tile.first = samples->begin; tile.first < samples->end; tile.first += TRS_SAMPLE_TILE) {
    tile.n = smaller(samples->end - tile.first, TRS_SAMPLE_TILE);
    for (int i = 0; i < tile.n; i++) tile.at[i] = samples->start[sample_at(samples, tile.first + i)] - from;
    odd |= is_transposition(samples, &tile) ? transpose_tile(kernels, samples, features, &tile, out)
                                            : place_tile(kernels, samples, features, &tile, out);
  }
  TrsPastCacheEnd();
  return odd ? PETSC_TRUE : PETSC_FALSE;
}
