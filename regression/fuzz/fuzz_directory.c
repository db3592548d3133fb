/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: any bytes make the state of a bucket of a zch or dynamic table, as a checkpoint
  has it. The state must be refused with a tensor's name, or the bucket must train on with it and
  give rows of its own. A zch bucket must then have a state that is not refused.
*/
#include "core/buffer.h"
#include "embed/dynamic.h"
#include "embed/zch.h"
#include "fuzz_start.h"

#include <string.h>

enum { ROWS = 6, LIST = 4, BATCH = 9, STEPS = 5 };

/* The bytes that are left. Reading beyond them gives zeros. */
typedef struct {
  const uint8_t *data;
  size_t size;
} Bytes;

/*
  Take an integer. The first byte chooses its kind, because integers of eight random bytes would
  hardly ever be a state that is accepted.
*/
static int64_t take(Bytes *bytes)
{
  static const int64_t odd[] = {INT64_MIN,  INT64_MAX, INT64_MAX - 1, INT32_MAX,
                                UINT32_MAX, -1,        1LL << 40,     1LL << 60};
  const uint8_t first = bytes->size ? *bytes->data : 0;
  int64_t value = 0;

  if (bytes->size) {
    bytes->data++;
    bytes->size--;
  }
  if (first < 224) return first % 32;
  if (first < 248) return odd[first % 8];
  memcpy(&value, bytes->data, bytes->size < 8 ? bytes->size : 8);
  bytes->data += bytes->size < 8 ? bytes->size : 8;
  bytes->size -= bytes->size < 8 ? bytes->size : 8;
  return value;
}

static int64_t take_below(Bytes *bytes, int64_t n)
{
  return (int64_t)((uint64_t)take(bytes) % (uint64_t)n);
}

static void take_all(Bytes *bytes, int64_t n, int64_t *to)
{
  for (int64_t i = 0; i < n; i++) to[i] = take(bytes);
}

/* A fault must name a tensor and say something. Returns whether there is one. */
static PetscBool is_refused(const TrsDirectoryFault *fault)
{
  if (!fault->what) return PETSC_FALSE;
  if (!fault->tensor || !*fault->tensor || !*fault->what) abort();
  return PETSC_TRUE;
}

static void check_rows(int64_t n, const int64_t *rows)
{
  for (int64_t i = 0; i < n; i++)
    if (rows[i] < 0 || rows[i] >= ROWS) abort();
}

/* Make ascending ids and a permutation of rows, changed at places that the bytes choose. */
static void make_arrays(Bytes *bytes, TrsZchArrays *arrays)
{
  for (int i = 0; i < ROWS; i++) {
    arrays->raw[i] = i < ROWS - 2 ? 3 * i : INT64_MAX;
    arrays->slot[i] = i < ROWS - 1 ? (i + 2) % (ROWS - 1) : i;
    arrays->count[i] = arrays->last[i] = arrays->times[i] = i;
  }
  for (int64_t n = take_below(bytes, 4); n > 0; n--) {
    int64_t *const array[] = {arrays->raw, arrays->slot, arrays->count, arrays->last, arrays->times};
    const int64_t which = take_below(bytes, 5), at = take_below(bytes, ROWS);

    array[which][at] = take(bytes);
  }
}

static PetscErrorCode try_zch(Bytes *bytes)
{
  const TrsZchRule rule = {.policy = (TrsZchPolicy)(take(bytes) & 1 ? TRS_ZCH_LFU : TRS_ZCH_DISTANCE_LFU),
                           .interval = 2,
                           .exponent = 1,
                           .buckets = 1};
  int64_t array[5][ROWS], numbers[TRS_ZCH_NUMBERS] = {3, 2, 9, 4, -1}, ids[BATCH], rows[BATCH];
  TrsZchArrays arrays = {array[0], array[1], array[2], array[3], array[4]};
  TrsDirectoryFault fault;
  TrsZchSeen seen[LIST];
  TrsGivenRows given;
  TrsZch bucket;

  PetscFunctionBegin;
  make_arrays(bytes, &arrays);
  if (take(bytes) & 1) take_all(bytes, TRS_ZCH_NUMBERS, numbers);
  take_all(bytes, LIST * TRS_ZCH_SEEN_COLUMNS, (int64_t *)seen);
  PetscCall(TrsZchCreate(&rule, ROWS, &bucket));
  PetscCall(TrsZchSet(bucket, numbers, &arrays, take_below(bytes, LIST + 1), seen, &fault));
  if (!is_refused(&fault)) {
    for (int step = 0; step < STEPS; step++) {
      take_all(bytes, BATCH, ids);
      PetscCall(TrsZchBegin(bucket, BATCH));
      (void)TrsZchFind(bucket, PETSC_TRUE, 0, BATCH, ids, rows);
      PetscCall(TrsZchEnd(bucket, ids, rows));
      if (TrsZchIsDue(bucket)) PetscCall(TrsZchEvict(bucket, &given));
      (void)TrsZchFind(bucket, PETSC_TRUE, 0, BATCH, ids, rows);
      check_rows(BATCH, rows);
    }
    PetscCall(TrsZchGet(bucket, numbers, &arrays));
    PetscCall(TrsZchSet(bucket, numbers, &arrays, 0, NULL, &fault));
    if (fault.what) abort();
  }
  PetscCall(TrsZchDestroy(&bucket));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode try_dynamic(Bytes *bytes)
{
  const TrsDynamicRule rule = {
      .policy = (TrsDynamicPolicy)(take(bytes) & 1 ? TRS_DYNAMIC_LFU : TRS_DYNAMIC_LRU),
      .buckets = 1,
      .ttl = take(bytes) & 1 ? 3 : 0,
      .admit_after = 2,
      .admit_probability = 1,
      .candidates = 3};
  int64_t place[LIST], ids[BATCH], rows[BATCH], n_known;
  TrsDynamicRow row[LIST], candidate[LIST];
  TrsDynamicCell cell[LIST];
  TrsDynamicState state = {.row = row, .place = place, .candidate = candidate, .cell = cell};
  TrsDirectoryFault fault;
  TrsGivenRows given;
  TrsDynamic bucket;

  PetscFunctionBegin;
  take_all(bytes, TRS_DYNAMIC_NUMBERS, state.number);
  take_all(bytes, LIST, place);
  take_all(bytes, LIST * TRS_DYNAMIC_ROW_COLUMNS, (int64_t *)row);
  take_all(bytes, LIST * TRS_DYNAMIC_ROW_COLUMNS, (int64_t *)candidate);
  take_all(bytes, LIST * TRS_DYNAMIC_ROW_COLUMNS, (int64_t *)cell);
  state.n_rows = take_below(bytes, LIST + 1);
  state.n_candidates = take_below(bytes, LIST + 1);
  state.n_cells = take_below(bytes, LIST + 1);
  PetscCall(TrsDynamicCreate(&rule, 7, ROWS, &bucket));
  PetscCall(TrsDynamicSet(bucket, &state, &fault));
  for (int step = 0; step < STEPS && !is_refused(&fault); step++) {
    take_all(bytes, BATCH, ids);
    PetscCall(TrsDynamicBegin(bucket));
    n_known = TrsDynamicFind(bucket, PETSC_TRUE, BATCH, ids, rows);
    if (n_known < BATCH) PetscCall(TrsDynamicAdmit(bucket, BATCH, ids, rows, &n_known, &given));
    check_rows(BATCH, rows);
  }
  PetscCall(TrsDynamicDestroy(&bucket));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  Bytes bytes = {data, size};

  if ((take(&bytes) & 1 ? try_zch : try_dynamic)(&bytes)) abort();
  return 0;
}
