/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/running_metrics.h"

#include "train/metrics/metric_sums.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/*
  A run's first steps, which throughput leaves out because they fill caches, buffers and the
  read-ahead.
*/
enum { TRS_THROUGHPUT_WARM_UP = 8 };

/* The numbers in a checkpoint, in order: first the sums, then these. */
enum { TRS_KEPT_EXAMPLES = TRS_METRIC_SUM_DOUBLES, TRS_KEPT_TIMED, TRS_KEPT_TIME, TRS_N_KEPT };

/* An exact sum in a checkpoint: its place, then the upper and lower 32 bits of each digit. */
enum { TRS_KEPT_OF_SUM = 1 + 2 * TRS_EXACT_DIGITS, TRS_N_EXACT = TRS_METRIC_SUM_DOUBLES * TRS_KEPT_OF_SUM };

/* The additional data of exact sums. */
typedef struct {
  TrsExactMetricSums lifetime, window, total;
  /* [capacity] places of the ring's samples among all samples; their groups */
  int64_t *place, *group;
  TrsAucRecord *chosen; /* [capacity] samples of the window */
  double kept[TRS_N_EXACT];
  /* Number of samples in the checkpoint's window. Their places are negative. */
  int64_t loaded;
  TrsBuffer kept_window; /* the window's numbers for a checkpoint */
} TrsExactMetrics;

struct TrsRunningMetricsImpl {
  MPI_Comm comm;
  TrsMetricKind kind;
  int rank;
  int64_t window_samples; /* over all ranks */
  /* The window: its size on this rank, the samples in it, and the place of the next one. */
  int64_t capacity, n, next;
  TrsAucRecord *record;   /* [capacity], a ring */
  TrsExactMetrics *exact; /* NULL without exact sums */
  TrsMetricSums lifetime, window, total;
  TrsAucScratch scratch;
  TrsGroupMetrics groups; /* for the same window; NULL if not wanted */
  int64_t steps;          /* steps of this run */
  /* Samples of earlier runs: all, and those with a measured time. */
  int64_t examples_before, timed_before;
  double time_before_s; /* time of these measured samples */
  /* This run's samples: all, in steps after the warm-up, and since the last values. */
  int64_t examples, timed, window_examples;
  /* Clock at the end of the warm-up, at the last values, and at the last step. */
  double warm_s, window_s, now_s;
  double kept[TRS_N_KEPT];
};

static const TrsOptionSpec specs[] = {
    {"-metrics_every", TRS_OPTION_INT, "100", "[0,]", NULL, "steps",
     "compute the training's metrics this often (NE, AUC, calibration ...), over the last samples and over "
     "all; 0: never"},
    {"-metrics_window_samples", TRS_OPTION_INT, "100000", "[1,]", NULL, "samples",
     "number of the last samples that the window metrics cover. Each of W ranks keeps the W-th part of "
     "this number, of the last samples that it has seen itself. With -reproducible they are the last "
     "samples of all ranks, and each rank keeps the whole number"},
    {"-metrics_group", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "also compute metrics within groups of samples: GAUC, NDCG, recall, hit rate, precision, NE, MSE, "
     "MAE. Groups are those of the dataset's /group, or of a feature with one id per sample, given by its "
     "name"},
    {"-metrics_segments", TRS_OPTION_INT, "0", "[0,256]", NULL, NULL,
     "also compute NE of each group, where the groups of -metrics_group are 0 to this number minus 1. Any "
     "other group is an error in the data. 0: off"},
    {"-metrics_at", TRS_OPTION_INTS, "10", "[1,1000000]", NULL, "samples",
     "the numbers K of the ranking metrics of groups, which look at the first K samples"},
};
const TrsOptionGroup trs_metrics_options = TRS_OPTION_GROUP("Metrics", specs);

PetscErrorCode TrsRunningMetricsCreate(MPI_Comm comm, const TrsMetricKind *kind, TrsOptions options,
                                       int64_t window_samples, TrsRunningMetrics *metrics)
{
  TrsRunningMetrics m;
  int size;

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  PetscCallMPI(MPI_Comm_dup(comm, &m->comm));
  PetscCallMPI(MPI_Comm_rank(comm, &m->rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  m->kind = *kind;
  m->window_samples = window_samples;
  m->capacity = kind->exact ? window_samples : (window_samples - 1) / size + 1;
  PetscCall(TrsAlloc(m->capacity, sizeof(*m->record), &m->record));
  PetscCall(TrsAucScratchReserve(&m->scratch, m->capacity));
  if (options) PetscCall(TrsGroupMetricsCreate(comm, options, kind->exact ? 0 : window_samples, &m->groups));
  *metrics = m;
  if (!kind->exact) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&m->exact));
  PetscCall(TrsAlloc(m->capacity, sizeof(*m->exact->place), &m->exact->place));
  PetscCall(TrsAlloc(m->capacity, sizeof(*m->exact->group), &m->exact->group));
  PetscCall(TrsAlloc(m->capacity, sizeof(*m->exact->chosen), &m->exact->chosen));
  PetscCall(TrsGroupMetricsRestart(m->groups, m->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsAdd(TrsRunningMetrics m, const TrsMetricSamples *s)
{
  PetscFunctionBegin;
  if (!m->exact)
    PetscCall(TrsGroupMetricsAdd(m->groups, s->n, s->predictions, s->labels, s->weights, s->group));
  for (int64_t i = 0; i < s->n;) { /* copy runs that do not wrap around */
    const int64_t run = PetscMin(s->n - i, m->capacity - m->next);

    for (int64_t k = 0; k < run; k++) {
      m->record[m->next + k] = (TrsAucRecord){s->predictions[i + k], s->labels[i + k],
                                              s->weights ? s->weights[i + k] : 1.0f};
      if (m->exact) m->exact->place[m->next + k] = m->examples + s->place[i + k];
      if (m->exact && s->group) m->exact->group[m->next + k] = s->group[i + k];
    }
    if (m->exact)
      TrsExactMetricSumsAdd(&m->kind, &m->exact->lifetime, run, m->record + m->next);
    else
      TrsMetricSumsAdd(&m->kind, &m->lifetime, run, m->record + m->next);
    i += run;
    m->next = (m->next + run) % m->capacity;
    m->n = PetscMin(m->n + run, m->capacity);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsStep(TrsRunningMetrics m, int64_t global_batch, double now_s)
{
  PetscFunctionBegin;
  m->steps++;
  m->examples += global_batch;
  m->window_examples += global_batch;
  m->now_s = now_s;
  if (m->steps > TRS_THROUGHPUT_WARM_UP)
    m->timed += global_batch;
  else
    m->warm_s = now_s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double rate(int64_t examples, double seconds)
{
  return seconds > 0.0 ? (double)examples / seconds : (double)NAN;
}

/* Compute values from the sums over ranks in m->total. */
static void finish(TrsRunningMetrics m, TrsMetricValues *values)
{
  m->total.sum[TRS_SUM_LOSS] = m->total.sum[TRS_SUM_CROSS_ENTROPY];
  TrsMetricSumsValues(&m->kind, &m->total, values);
}

/* Add the sums over ranks into m->total, and exact sums also into m->exact->total. */
static PetscErrorCode add_up(TrsRunningMetrics m, const TrsMetricSums *sums, const TrsExactMetricSums *exact)
{
  PetscFunctionBegin;
  if (m->exact) {
    PetscCall(TrsExactMetricSumsReduce(m->comm, exact, &m->exact->total));
    TrsExactMetricSumsRound(&m->exact->total, &m->total);
  } else {
    PetscCallMPI(MPI_Allreduce(sums, &m->total, TRS_METRIC_SUM_DOUBLES, MPI_DOUBLE, MPI_SUM, m->comm));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the window of exact sums --- */

/* The index in the ring of its i-th sample, counted from the oldest. */
static int64_t in_ring(TrsRunningMetrics m, int64_t i)
{
  return (m->next + m->capacity - m->n + i) % m->capacity;
}

/* The number of this rank's first sample in the ring whose place is at least `place`. */
static int64_t first_from(TrsRunningMetrics m, int64_t place)
{
  int64_t low = 0, high = m->n;

  while (low < high) {
    const int64_t i = low + (high - low) / 2;

    if (m->exact->place[in_ring(m, i)] < place)
      low = i + 1;
    else
      high = i;
  }
  return low;
}

/*
  Find this rank's first sample in the window. From there on, all ranks together have at most
  window_samples.
*/
static PetscErrorCode find_window(TrsRunningMetrics m, int64_t *first)
{
  int64_t low = -m->exact->loaded, high = m->examples;

  PetscFunctionBegin;
  while (low < high) {
    const int64_t place = low + (high - low) / 2;
    int64_t n = m->n - first_from(m, place);

    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT64_T, MPI_SUM, m->comm));
    if (n > m->window_samples)
      low = place + 1;
    else
      high = place;
  }
  *first = first_from(m, low);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Put this rank's samples in the window side by side, and their groups into m->groups. */
static PetscErrorCode choose_window(TrsRunningMetrics m, int64_t *n)
{
  int64_t first = 0;

  PetscFunctionBegin;
  PetscCall(find_window(m, &first));
  *n = m->n - first;
  PetscCall(TrsGroupMetricsRestart(m->groups, *n));
  for (int64_t i = 0; i < *n; i++) {
    const int64_t at = in_ring(m, first + i);
    const TrsAucRecord *record = &m->record[at];

    m->exact->chosen[i] = *record;
    PetscCall(TrsGroupMetricsAdd(m->groups, 1, &record->prediction, &record->label, &record->weight,
                                 &m->exact->group[at]));
  }
  PetscCall(PetscMemzero(&m->exact->window, sizeof(m->exact->window)));
  TrsExactMetricSumsAdd(&m->kind, &m->exact->window, *n, m->exact->chosen);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- values --- */

/* Compute the window's values. */
static PetscErrorCode compute_window(TrsRunningMetrics m, TrsMetricValues *values)
{
  int64_t n = m->n;

  PetscFunctionBegin;
  if (m->exact) {
    PetscCall(choose_window(m, &n));
  } else {
    m->window = (TrsMetricSums){0};
    TrsMetricSumsAdd(&m->kind, &m->window, n, m->record);
  }
  PetscCall(add_up(m, &m->window, m->exact ? &m->exact->window : NULL));
  finish(m, values);
  if (m->kind.labels == TRS_LABEL_PROBABILITY && values->lack != TRS_LACK_WEIGHT)
    PetscCall(TrsAuc(m->comm, n, m->exact ? m->exact->chosen : m->record, m->kind.exact, &m->scratch,
                     &values->auc, &values->auprc));
  PetscCall(TrsGroupMetricsCompute(m->groups, &values->groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsCompute(TrsRunningMetrics m, TrsRunningValues *values)
{
  const double timed_s = m->now_s - m->warm_s;
  double rates[3] = {m->window_s > 0.0 ? rate(m->window_examples, m->now_s - m->window_s) : (double)NAN,
                     rate(m->timed_before + m->timed, m->time_before_s + timed_s), rate(m->timed, timed_s)};

  PetscFunctionBegin;
  PetscCall(compute_window(m, &values->window));
  PetscCall(add_up(m, &m->lifetime, m->exact ? &m->exact->lifetime : NULL));
  finish(m, &values->lifetime);
  PetscCallMPI(MPI_Bcast(rates, 3, MPI_DOUBLE, 0, m->comm));
  values->window_throughput = rates[0];
  values->lifetime_throughput = rates[1];
  values->attempt_throughput = rates[2];
  values->attempt_examples = m->examples;
  values->total_examples = m->examples_before + m->examples;
  m->window_examples = 0;
  m->window_s = m->now_s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsSave(TrsRunningMetrics m, int *n, double **numbers)
{
  PetscFunctionBegin;
  PetscCall(add_up(m, &m->lifetime, m->exact ? &m->exact->lifetime : NULL));
  m->total.sum[TRS_SUM_LOSS] = m->total.sum[TRS_SUM_CROSS_ENTROPY];
  PetscCall(PetscMemcpy(m->kept, &m->total, sizeof(m->total)));
  m->kept[TRS_KEPT_EXAMPLES] = (double)(m->examples_before + m->examples);
  m->kept[TRS_KEPT_TIMED] = (double)(m->timed_before + m->timed);
  m->kept[TRS_KEPT_TIME] = m->time_before_s + (m->now_s - m->warm_s);
  *n = TRS_N_KEPT;
  *numbers = m->kept;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsLoad(TrsRunningMetrics m, const char *path, int n, const double *numbers)
{
  PetscFunctionBegin;
  PetscCheck(n == TRS_N_KEPT, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute metrics has %d sums of metrics, expected %d", path, n, TRS_N_KEPT);
  for (int i = 0; i < n; i++) {
    /* Labels outside [0, 1] make other sums negative, and large labels make them huge. */
    const PetscBool count = (PetscBool)(i == TRS_SUM_SAMPLES || i == TRS_KEPT_EXAMPLES ||
                                        i == TRS_KEPT_TIMED);
    const PetscBool sign = (PetscBool)(!count && i != TRS_KEPT_TIME);
    PetscCheck(isfinite(numbers[i]) && (sign || numbers[i] >= 0.0) && (!count || numbers[i] < 9e15),
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: sum %d of the metrics is %g, expected a number%s%s", path,
               i, numbers[i], sign ? "" : " of at least 0", count ? " and below 9e15" : "");
  }
  if (m->rank == 0 && !m->exact) PetscCall(PetscMemcpy(&m->lifetime, numbers, sizeof(m->lifetime)));
  for (int k = 0; k < TRS_METRIC_SUM_DOUBLES && m->rank == 0 && m->exact; k++) {
    m->exact->lifetime.sum[k] = (TrsExactSum){0};
    TrsExactSumAdd(&m->exact->lifetime.sum[k], numbers[k]);
  }
  m->examples_before = (int64_t)numbers[TRS_KEPT_EXAMPLES];
  m->timed_before = (int64_t)numbers[TRS_KEPT_TIMED];
  m->time_before_s = numbers[TRS_KEPT_TIME];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write an integer as two numbers for a file: its upper and lower 32 bits. */
static void put_halves(int64_t integer, double to[2])
{
  const int64_t low = integer & INT64_C(0xffffffff), high = (integer - low) / (INT64_C(1) << 32);

  to[0] = (double)high;
  to[1] = (double)low;
}

/*
  Read an integer from two numbers of a file. Returns true if they are valid, with an upper half in
  [-most, most).
*/
static PetscBool take_halves(const double from[2], double most, int64_t *integer)
{
  if (!(from[0] >= -most && from[0] < most && from[1] >= 0.0 && from[1] < 0x1p32)) return PETSC_FALSE;
  *integer = (int64_t)from[0] * (INT64_C(1) << 32) + (int64_t)from[1];
  return (PetscBool)(from[0] == floor(from[0]) && from[1] == floor(from[1]));
}

PetscErrorCode TrsRunningMetricsSaveExact(TrsRunningMetrics m, int *n, double **numbers)
{
  PetscFunctionBegin;
  *n = 0;
  *numbers = NULL;
  if (!m->exact) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < TRS_METRIC_SUM_DOUBLES; k++) {
    const TrsExactSum *sum = &m->exact->total.sum[k];
    double *to = m->exact->kept + (ptrdiff_t)k * TRS_KEPT_OF_SUM;

    to[0] = (double)sum->first;
    for (ptrdiff_t d = 0; d < TRS_EXACT_DIGITS; d++) put_halves(sum->digit[d], to + 1 + 2 * d);
  }
  *n = TRS_N_EXACT;
  *numbers = m->exact->kept;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a sum from a file's numbers. Returns true if they are valid. */
static PetscBool take_sum(const double *numbers, TrsExactSum *sum)
{
  if (!(fabs(numbers[0]) < 0x1p31 && numbers[0] == floor(numbers[0]))) return PETSC_FALSE;
  sum->first = (int64_t)numbers[0];
  for (ptrdiff_t d = 0; d < TRS_EXACT_DIGITS; d++)
    if (!take_halves(numbers + 1 + 2 * d, 0x1p30, &sum->digit[d])) return PETSC_FALSE;
  return TrsExactSumIsValid(sum);
}

PetscErrorCode TrsRunningMetricsLoadExact(TrsRunningMetrics m, const char *path, int n, const double *numbers)
{
  PetscFunctionBegin;
  if (!m->exact) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(n == TRS_N_EXACT, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute metrics_exact has %d numbers, expected %d", path, n, TRS_N_EXACT);
  for (int k = 0; k < TRS_METRIC_SUM_DOUBLES; k++) {
    TrsExactSum sum;

    PetscCheck(take_sum(numbers + (ptrdiff_t)k * TRS_KEPT_OF_SUM, &sum), PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: attribute metrics_exact: sum %d of the metrics is not a sum in digits", path, k);
    if (m->rank == 0) m->exact->lifetime.sum[k] = sum;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the window in a checkpoint: columns, samples, then a row for each sample --- */

enum { TRS_WINDOW_HEAD = 2, TRS_WINDOW_COLUMNS = 3, TRS_WINDOW_WITH_GROUPS = 5 };

typedef struct {
  int64_t place, group;
  TrsAucRecord record;
  float unused;
} TrsWindowRow;

static int by_place(const void *a, const void *b)
{
  const TrsWindowRow *x = a, *y = b;

  return (x->place > y->place) - (x->place < y->place);
}

/* Gather all ranks' rows, from `first` in each rank's ring on, in sample order. all: on rank 0. */
static PetscErrorCode gather_window(TrsRunningMetrics m, int64_t first, TrsWindowRow *all)
{
  const int n = (int)(m->n - first);
  TrsWindowRow *mine;
  MPI_Datatype row;
  int size, *counts, *displs;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(m->comm, &size));
  PetscCall(PetscMalloc3((size_t)PetscMax(n, 1), &mine, (size_t)size, &counts, (size_t)size + 1, &displs));
  for (int i = 0; i < n; i++) {
    const int64_t at = in_ring(m, first + i);

    mine[i] = (TrsWindowRow){m->exact->place[at], m->groups ? m->exact->group[at] : 0, m->record[at], 0.0f};
  }
  PetscCallMPI(MPI_Gather(&n, 1, MPI_INT, counts, 1, MPI_INT, 0, m->comm));
  displs[0] = 0;
  for (int q = 0; q < size && m->rank == 0; q++) displs[q + 1] = displs[q] + counts[q];
  PetscCallMPI(MPI_Type_contiguous((int)sizeof(TrsWindowRow), MPI_BYTE, &row));
  PetscCallMPI(MPI_Type_commit(&row));
  PetscCallMPI(MPI_Gatherv(mine, n, row, all, counts, displs, row, 0, m->comm));
  PetscCallMPI(MPI_Type_free(&row));
  if (m->rank == 0) qsort(all, (size_t)displs[size], sizeof(*all), by_place);
  PetscCall(PetscFree3(mine, counts, displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write n samples for a checkpoint. */
static void put_window(int64_t n, const TrsWindowRow *rows, int columns, double *to)
{
  *to++ = (double)columns;
  *to++ = (double)n;
  for (int64_t i = 0; i < n; i++, to += columns) {
    to[0] = (double)rows[i].record.prediction;
    to[1] = (double)rows[i].record.label;
    to[2] = (double)rows[i].record.weight;
    if (columns == TRS_WINDOW_WITH_GROUPS) put_halves(rows[i].group, to + TRS_WINDOW_COLUMNS);
  }
}

PetscErrorCode TrsRunningMetricsSaveWindow(TrsRunningMetrics m, int64_t most, int *n, double **numbers)
{
  const int columns = m->groups ? TRS_WINDOW_WITH_GROUPS : TRS_WINDOW_COLUMNS;
  int64_t first = 0, total;
  TrsWindowRow *rows;

  PetscFunctionBegin;
  *n = 0;
  *numbers = NULL;
  if (!m->exact) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_window(m, &first));
  total = m->n - first;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_INT64_T, MPI_SUM, m->comm));
  if (TRS_WINDOW_HEAD + total * columns > most) {
    first = m->n;
    total = 0;
  }
  PetscCall(PetscMalloc1((size_t)(m->rank == 0 ? PetscMax(total, 1) : 1), &rows));
  PetscCall(gather_window(m, first, rows));
  if (m->rank == 0) {
    *n = (int)(TRS_WINDOW_HEAD + total * columns);
    PetscCall(TrsBufferReserve(&m->exact->kept_window, *n * (int64_t)sizeof(double), PETSC_FALSE));
    *numbers = (double *)m->exact->kept_window.data;
    put_window(total, rows, columns, *numbers);
  }
  PetscCall(PetscFree(rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a sample from a file's numbers. Returns true if they are valid. */
static PetscBool take_row(const double *from, PetscBool grouped, TrsAucRecord *record, int64_t *group)
{
  const float value[] = {(float)from[0], (float)from[1], (float)from[2]};

  for (int i = 0; i < TRS_WINDOW_COLUMNS; i++) /* refuses NaN, too */
    if (!((double)value[i] == from[i] && isfinite(from[i]))) return PETSC_FALSE;
  *record = (TrsAucRecord){value[0], value[1], value[2]};
  return (PetscBool)(!grouped || take_halves(from + TRS_WINDOW_COLUMNS, 0x1p31, group));
}

PetscErrorCode TrsRunningMetricsLoadWindow(TrsRunningMetrics m, const char *path, int n,
                                           const double *numbers, int *used)
{
  const double columns = n < TRS_WINDOW_HEAD ? 0.0 : numbers[0],
               rows = n < TRS_WINDOW_HEAD ? 0.0 : numbers[1];
  const PetscBool grouped = (PetscBool)(columns == TRS_WINDOW_WITH_GROUPS);

  PetscFunctionBegin;
  PetscCheck((grouped || columns == TRS_WINDOW_COLUMNS) && rows >= 0.0 && rows == floor(rows) &&
                 rows * columns <= (double)(n - TRS_WINDOW_HEAD),
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute metrics_window: %d numbers do not hold %g samples of %g columns", path, n, rows,
             columns);
  *used = TRS_WINDOW_HEAD + (int)(rows * columns);
  if (!m->exact || (m->groups && !grouped)) PetscFunctionReturn(PETSC_SUCCESS);
  m->exact->loaded = (int64_t)rows;
  for (int64_t i = 0; i < m->exact->loaded; i++) {
    TrsAucRecord record;
    int64_t group = 0;

    PetscCheck(take_row(numbers + TRS_WINDOW_HEAD + i * (int64_t)columns, grouped, &record, &group),
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: attribute metrics_window: row %" PRId64 " is no sample",
               path, i);
    if (m->rank > 0) continue;
    m->record[m->next] = record;
    m->exact->place[m->next] = i - m->exact->loaded;
    m->exact->group[m->next] = group;
    m->next = (m->next + 1) % m->capacity;
    m->n = PetscMin(m->n + 1, m->capacity);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsDestroy(TrsRunningMetrics *metrics)
{
  PetscFunctionBegin;
  if (!*metrics) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_free(&(*metrics)->comm));
  PetscCall(TrsFree(&(*metrics)->record));
  if ((*metrics)->exact) {
    PetscCall(TrsFree(&(*metrics)->exact->place));
    PetscCall(TrsFree(&(*metrics)->exact->group));
    PetscCall(TrsFree(&(*metrics)->exact->chosen));
    PetscCall(TrsBufferFree(&(*metrics)->exact->kept_window));
    PetscCall(PetscFree((*metrics)->exact));
  }
  PetscCall(TrsAucScratchFree(&(*metrics)->scratch));
  PetscCall(TrsGroupMetricsDestroy(&(*metrics)->groups));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
