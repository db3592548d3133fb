/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/group_metrics.h"

#include "core/buffer.h"
#include "data/weight_sum.h"
#include "train/metrics/record_exchange.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* In logarithms, predictions and the mean label are clamped to [EPS, 1 - EPS], as for NE. */
#define EPS 1e-12

typedef struct {
  int64_t group;
  float prediction, label, weight, unused;
} TrsGroupRecord;

struct TrsGroupMetricsImpl {
  MPI_Comm comm;
  int64_t capacity; /* samples of this rank in the window; 0: keep all */
  int64_t n, next;  /* number of kept samples, and the place of the next one */
  TrsBuffer records, sorted, mine;
  int n_at;
  int64_t at[TRS_GROUP_MAX_AT];
  int64_t n_segments;
};

/* --- samples --- */

PetscErrorCode TrsGroupMetricsCreate(MPI_Comm comm, TrsOptions options, int64_t window_samples,
                                     TrsGroupMetrics *metrics)
{
  const char *group = NULL;
  int64_t n_segments;
  const int64_t *at;
  PetscBool given;
  TrsGroupMetrics m;
  int size, n;

  PetscFunctionBegin;
  *metrics = NULL;
  PetscCall(TrsOptionsGetString(options, "-metrics_group", &group, NULL));
  PetscCall(TrsOptionsGetInts(options, "-metrics_at", &n, &at, &given));
  if (given && !group)
    PetscCall(TrsOptionError(options, "-metrics_at", "needs -metrics_group, the groups of samples"));
  PetscCall(TrsOptionsGetInt(options, "-metrics_segments", &n_segments, NULL));
  if (n_segments && !group)
    PetscCall(TrsOptionError(options, "-metrics_segments", "needs -metrics_group, the groups of samples"));
  if (n > TRS_GROUP_MAX_AT)
    PetscCall(
        TrsOptionError(options, "-metrics_at", "has %d numbers, expected at most %d", n, TRS_GROUP_MAX_AT));
  if (!group) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&m));
  PetscCallMPI(MPI_Comm_dup(comm, &m->comm));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  m->n_at = n;
  m->n_segments = n_segments;
  for (int k = 0; k < n; k++) m->at[k] = at[k];
  m->capacity = window_samples > 0 ? (window_samples - 1) / size + 1 : 0;
  PetscCall(TrsBufferReserve(&m->records, m->capacity * (int64_t)sizeof(TrsGroupRecord), PETSC_FALSE));
  *metrics = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGroupMetricsAdd(TrsGroupMetrics m, int64_t n, const float *predictions, const float *labels,
                                  const float *weights, const int64_t *group)
{
  TrsGroupRecord *records;

  PetscFunctionBegin;
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  if (m->capacity == 0)
    PetscCall(TrsBufferReserve(&m->records, (m->n + n) * (int64_t)sizeof(*records), PETSC_TRUE));
  records = (TrsGroupRecord *)m->records.data;
  for (int64_t i = 0; i < n; i++) {
    records[m->next++] = (TrsGroupRecord){group[i], predictions[i], labels[i], weights ? weights[i] : 1.0f,
                                          0.0f};
    m->n = PetscMax(m->n, m->next);
    if (m->next == m->capacity) m->next = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGroupMetricsRestart(TrsGroupMetrics m, int64_t n)
{
  PetscFunctionBegin;
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  m->n = m->next = 0;
  if (m->capacity == 0)
    PetscCall(TrsBufferReserve(&m->records, n * (int64_t)sizeof(TrsGroupRecord), PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGroupMetricsDestroy(TrsGroupMetrics *metrics)
{
  PetscFunctionBegin;
  if (!*metrics) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_free(&(*metrics)->comm));
  PetscCall(TrsBufferFree(&(*metrics)->records));
  PetscCall(TrsBufferFree(&(*metrics)->sorted));
  PetscCall(TrsBufferFree(&(*metrics)->mine));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- groups come together --- */

/* The rank that owns a group: mixes the number's bits (the finaliser of splitmix64). */
static int owner_of(int64_t group, int size)
{
  uint64_t x = (uint64_t)group;

  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  x ^= x >> 31;
  return (int)(x % (uint64_t)size);
}

/* Decreasing order, NaN last. */
static int falling(float a, float b)
{
  if (isnan(a) || isnan(b)) return (isnan(a) != 0) - (isnan(b) != 0);
  return (a < b) - (a > b);
}

/* Order by group, then decreasing prediction. Different records are always in the same order. */
static int by_group(const void *a, const void *b)
{
  const TrsGroupRecord *x = a, *y = b;
  int order = (x->group > y->group) - (x->group < y->group);

  if (!order) order = falling(x->prediction, y->prediction);
  if (!order) order = falling(x->label, y->label);
  return order ? order : falling(x->weight, y->weight);
}

/* Gather the samples of this rank's groups, sorted. */
static PetscErrorCode gather_groups(TrsGroupMetrics m, int64_t *n_mine)
{
  const TrsGroupRecord *records = m->records.data;
  TrsGroupRecord *sorted;
  int64_t *displs, *next;
  int size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(m->comm, &size));
  PetscCall(PetscCalloc2((size_t)size + 1, &displs, (size_t)size + 1, &next));
  PetscCall(TrsBufferReserve(&m->sorted, PetscMax(m->n, 1) * (int64_t)sizeof(*records), PETSC_FALSE));
  sorted = m->sorted.data;
  for (int64_t i = 0; i < m->n; i++) displs[owner_of(records[i].group, size) + 1]++;
  for (int r = 0; r < size; r++) displs[r + 1] += displs[r];
  PetscCall(PetscArraycpy(next, displs, (size_t)size + 1));
  for (int64_t i = 0; i < m->n; i++) sorted[next[owner_of(records[i].group, size)]++] = records[i];
  PetscCall(TrsRecordExchange(m->comm, sizeof(*sorted), sorted, displs, n_mine, &m->mine));
  PetscCall(PetscFree2(displs, next));
  qsort(m->mine.data, (size_t)*n_mine, sizeof(*sorted), by_group);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- one group --- */

/* A group's contributions to the sums over groups. */
enum {
  TRS_GROUPS, /* counts: 0 or 1 */
  TRS_WITH_POSITIVE,
  TRS_WITH_BOTH,
  TRS_AUC,
  TRS_NE,
  TRS_MSE,
  TRS_MAE,
  TRS_POSITIVE_WEIGHT,
  TRS_N_PLAIN,  /* number of sums that do not depend on K */
  TRS_NDCG = 0, /* places of each K's sums, after the other sums */
  TRS_HIT,
  TRS_TRUE_POSITIVE,
  TRS_TAKEN_WEIGHT,
  TRS_N_OF_K,
  TRS_N_GROUP_SUMS = TRS_N_PLAIN + TRS_GROUP_MAX_AT * TRS_N_OF_K
};

/* Samples with equal predictions, from rank `first` of their group on. */
typedef struct {
  int64_t first, n, n_positive;
  double weight, positive; /* sums of w and of w y */
} TrsTie;

static TrsTie next_tie(int64_t first, int64_t n, const TrsGroupRecord *records)
{
  TrsTie tie = {.first = first};

  do {
    const TrsGroupRecord *r = &records[first + tie.n++];

    tie.weight += (double)r->weight;
    tie.positive += (double)r->weight * (double)r->label;
    tie.n_positive += (double)r->weight * (double)r->label > 0.0;
  } while (first + tie.n < n && records[first + tie.n].prediction == records[first].prediction);
  return tie;
}

/* The sum of the discounts for ranks first .. end - 1. */
static double discounts(int64_t first, int64_t end)
{
  double sum = 0.0;

  for (int64_t r = first; r < end; r++) sum += 1.0 / log2((double)r + 2.0);
  return sum;
}

/*
  The largest gain for the first `at` ranks. gains [n] holds the samples' w y in decreasing order.
*/
static double ideal_gain(int64_t n, const double *gains, int64_t at)
{
  double sum = 0.0;

  for (int64_t r = 0; r < PetscMin(n, at); r++) sum += gains[r] / log2((double)r + 2.0);
  return sum;
}

/*
  Add the contributions of a group's first `at` samples. If a tie does not fit, all choices of its
  samples are equally likely.
*/
static void add_first(int64_t n, const TrsGroupRecord *records, int64_t at, double ideal, double *sums)
{
  double gain = 0.0, miss = 1.0;
  TrsTie tie;

  for (int64_t i = 0; i < PetscMin(n, at); i += tie.n) {
    int64_t taken;

    tie = next_tie(i, n, records);
    taken = PetscMin(tie.n, at - i);
    sums[TRS_TRUE_POSITIVE] += tie.positive * ((double)taken / (double)tie.n);
    sums[TRS_TAKEN_WEIGHT] += tie.weight * ((double)taken / (double)tie.n);
    gain += tie.positive / (double)tie.n * discounts(i, i + taken);
    for (int64_t k = 0; k < taken && miss > 0.0; k++)
      miss *= (double)PetscMax(tie.n - tie.n_positive - k, 0) / (double)(tie.n - k);
  }
  if (ideal <= 0.0) return;
  sums[TRS_NDCG] = gain / ideal;
  sums[TRS_HIT] = 1.0 - miss;
}

static int falling_doubles(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;

  return (x < y) - (x > y);
}

/* Cross entropy divided by the entropy of the mean label. */
static double normalised_entropy(double cross_entropy, double weight, double positive)
{
  const double mean = fmin(fmax(positive / weight, EPS), 1.0 - EPS);

  return cross_entropy / -(positive * log(mean) + (weight - positive) * log(1.0 - mean));
}

/* Fill a group's sums, except those for the first K. Returns the group's NE, or NaN. */
static double sum_group(int64_t n, const TrsGroupRecord *records, double *gains, double *sums)
{
  double entropy = 0.0, square = 0.0, absolute = 0.0, weight = 0.0, positive = 0.0, area = 0.0, ne;
  TrsTie tie;

  for (int64_t i = 0; i < n; i++) {
    const double p = (double)records[i].prediction, y = (double)records[i].label;
    const double w = (double)records[i].weight, q = fmin(fmax(p, EPS), 1.0 - EPS);

    entropy -= w * (y * log(q) + (1.0 - y) * log(1.0 - q));
    square += w * (p - y) * (p - y);
    absolute += w * fabs(p - y);
    gains[i] = w * y;
  }
  for (int64_t i = 0; i < n; i += tie.n) {
    tie = next_tie(i, n, records);
    area += (tie.weight - tie.positive) * (positive + 0.5 * tie.positive);
    weight += tie.weight;
    positive += tie.positive;
  }
  if (!(weight > 0.0)) return (double)NAN;
  ne = normalised_entropy(entropy, weight, positive);
  sums[TRS_GROUPS] = 1.0;
  sums[TRS_MSE] = square / weight;
  sums[TRS_MAE] = absolute / weight;
  sums[TRS_POSITIVE_WEIGHT] = positive;
  sums[TRS_WITH_POSITIVE] = positive > 0.0;
  if (!(positive > 0.0 && weight - positive > 0.0)) return ne;
  sums[TRS_WITH_BOTH] = 1.0;
  sums[TRS_AUC] = area / (positive * (weight - positive));
  sums[TRS_NE] = ne;
  return ne;
}

/* --- sums over groups --- */

/* Add a double exactly (down to 2^-149), as floats. */
static void add_exactly(double digits[TRS_WEIGHT_DIGITS], double value)
{
  float parts[3];

  for (int i = 0; i < 3; i++) {
    parts[i] = (float)value;
    value -= (double)parts[i];
  }
  TrsWeightSumAdd(digits, isfinite(parts[0]) ? 3 : 1, parts);
}

/* Values of each segment. Ranks other than a segment's owner have zeros. */
typedef struct {
  double ne[TRS_GROUP_MAX_SEGMENTS], samples[TRS_GROUP_MAX_SEGMENTS], both[TRS_GROUP_MAX_SEGMENTS];
} TrsSegments;

/* Add up the sums of this rank's groups, and fill its segments. */
static PetscErrorCode add_groups(TrsGroupMetrics m, int64_t n, double (*digits)[TRS_WEIGHT_DIGITS],
                                 TrsSegments *segments)
{
  const TrsGroupRecord *records = m->mine.data;
  double *gains;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)PetscMax(n, 1), &gains));
  for (int64_t i = 0, end; i < n; i = end) {
    const int64_t group = records[i].group;
    double sums[TRS_N_GROUP_SUMS] = {0}, ne;

    for (end = i + 1; end < n && records[end].group == group; end++) continue;
    ne = sum_group(end - i, records + i, gains, sums);
    if (group >= 0 && group < m->n_segments) {
      segments->ne[group] = ne;
      segments->samples[group] = (double)(end - i);
      segments->both[group] = sums[TRS_WITH_BOTH];
    }
    qsort(gains, (size_t)(end - i), sizeof(*gains), falling_doubles);
    for (int k = 0; k < m->n_at; k++)
      add_first(end - i, records + i, m->at[k], ideal_gain(end - i, gains, m->at[k]),
                &sums[TRS_N_PLAIN + k * TRS_N_OF_K]);
    for (int s = 0; s < TRS_N_PLAIN + m->n_at * TRS_N_OF_K; s++)
      if (sums[s] != 0.0) add_exactly(digits[s], sums[s]);
  }
  PetscCall(PetscFree(gains));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NaN if no group counts; 0 / 0 is written "-nan" on x86. */
static double mean_of(double sum, double n)
{
  return n > 0.0 ? sum / n : (double)NAN;
}

static void fill_values(TrsGroupMetrics m, const double *total, TrsGroupValues *values)
{
  *values = (TrsGroupValues){.n_groups = (int64_t)total[TRS_GROUPS],
                             .n_positive = (int64_t)total[TRS_WITH_POSITIVE],
                             .n_both = (int64_t)total[TRS_WITH_BOTH],
                             .gauc = mean_of(total[TRS_AUC], total[TRS_WITH_BOTH]),
                             .ne = mean_of(total[TRS_NE], total[TRS_WITH_BOTH]),
                             .mse = mean_of(total[TRS_MSE], total[TRS_GROUPS]),
                             .mae = mean_of(total[TRS_MAE], total[TRS_GROUPS]),
                             .n_at = m->n_at};
  for (int k = 0; k < m->n_at; k++) {
    const double *of_k = &total[TRS_N_PLAIN + k * TRS_N_OF_K];

    values->at[k] = m->at[k];
    values->ndcg[k] = mean_of(of_k[TRS_NDCG], total[TRS_WITH_POSITIVE]);
    values->hit_rate[k] = mean_of(of_k[TRS_HIT], total[TRS_WITH_POSITIVE]);
    values->recall[k] = mean_of(of_k[TRS_TRUE_POSITIVE], total[TRS_POSITIVE_WEIGHT]);
    values->precision[k] = mean_of(of_k[TRS_TRUE_POSITIVE], of_k[TRS_TAKEN_WEIGHT]);
  }
}

/* Combine the segments. Only one rank adds to a segment, so the sum is exact. */
static PetscErrorCode fill_segments(TrsGroupMetrics m, const TrsSegments *mine, TrsGroupValues *values)
{
  PetscFunctionBegin;
  values->n_segments = (int)m->n_segments;
  if (m->n_segments == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Allreduce(mine->ne, values->segment_ne, values->n_segments, MPI_DOUBLE, MPI_SUM, m->comm));
  PetscCallMPI(MPI_Allreduce(mine->samples, values->segment_samples, values->n_segments, MPI_DOUBLE, MPI_SUM,
                             m->comm));
  PetscCallMPI(
      MPI_Allreduce(mine->both, values->segment_both, values->n_segments, MPI_DOUBLE, MPI_SUM, m->comm));
  for (int i = 0; i < values->n_segments; i++)
    if (values->segment_samples[i] == 0.0) values->segment_ne[i] = (double)NAN;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGroupMetricsCompute(TrsGroupMetrics m, TrsGroupValues *values)
{
  double digits[TRS_N_GROUP_SUMS][TRS_WEIGHT_DIGITS] = {{0}}, total[TRS_N_GROUP_SUMS];
  TrsSegments segments = {.ne = {0}};
  int64_t n;

  PetscFunctionBegin;
  *values = (TrsGroupValues){.n_groups = 0};
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(gather_groups(m, &n));
  PetscCall(add_groups(m, n, digits, &segments));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, digits, TRS_N_GROUP_SUMS * TRS_WEIGHT_DIGITS, MPI_DOUBLE, MPI_SUM,
                             m->comm));
  for (int s = 0; s < TRS_N_GROUP_SUMS; s++) total[s] = TrsWeightSumTotal(digits[s]);
  fill_values(m, total, values);
  PetscCall(fill_segments(m, &segments, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}
