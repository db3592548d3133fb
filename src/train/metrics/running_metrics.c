/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/running_metrics.h"

#include "train/metrics/metric_sums.h"

#include <math.h>

/*
  A run's first steps, which throughput leaves out because they fill caches, buffers and the
  read-ahead.
*/
enum { TRS_THROUGHPUT_WARM_UP = 8 };

/* The numbers in a checkpoint, in order: first the sums, then these. */
enum { TRS_KEPT_EXAMPLES = TRS_METRIC_SUM_DOUBLES, TRS_KEPT_TIMED, TRS_KEPT_TIME, TRS_N_KEPT };

struct TrsRunningMetricsImpl {
  MPI_Comm comm;
  TrsMetricKind kind;
  int rank;
  /* The window: its size on this rank, the samples in it, and the place of the next one. */
  int64_t capacity, n, next;
  TrsAucRecord *record; /* [capacity], a ring */
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
     "number of the last samples that the window metrics cover. Each of W ranks keeps the last W-th part "
     "of them that it has seen itself"},
    {"-metrics_group", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "also compute metrics within groups of samples: GAUC, NDCG, recall, hit rate, precision, NE, MSE, "
     "MAE. Groups are those of the dataset's /group, or of a feature with one id a sample, by its name"},
    {"-metrics_segments", TRS_OPTION_INT, "0", "[0,256]", NULL, NULL,
     "also compute NE of each group, where the groups of -metrics_group are 0 to this number minus 1. "
     "Another group is an error of the data. 0: not"},
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
  m->capacity = (window_samples - 1) / size + 1;
  PetscCall(TrsAlloc(m->capacity, sizeof(*m->record), &m->record));
  PetscCall(TrsAucScratchReserve(&m->scratch, m->capacity));
  if (options) PetscCall(TrsGroupMetricsCreate(comm, options, window_samples, &m->groups));
  *metrics = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsAdd(TrsRunningMetrics m, int64_t n, const float *predictions,
                                    const float *labels, const float *weights, const int64_t *group)
{
  PetscFunctionBegin;
  PetscCall(TrsGroupMetricsAdd(m->groups, n, predictions, labels, weights, group));
  for (int64_t i = 0; i < n;) { /* copy runs that do not wrap around */
    const int64_t run = PetscMin(n - i, m->capacity - m->next);

    for (int64_t k = 0; k < run; k++)
      m->record[m->next + k] = (TrsAucRecord){predictions[i + k], labels[i + k],
                                              weights ? weights[i + k] : 1.0f};
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

/* Add up the sums over ranks into m->total, and compute the values. */
static PetscErrorCode add_up(TrsRunningMetrics m, const TrsMetricSums *sums, TrsMetricValues *values)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(sums, &m->total, TRS_METRIC_SUM_DOUBLES, MPI_DOUBLE, MPI_SUM, m->comm));
  m->total.sum[TRS_SUM_LOSS] = m->total.sum[TRS_SUM_CROSS_ENTROPY];
  if (values) TrsMetricSumsValues(&m->kind, &m->total, values);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsCompute(TrsRunningMetrics m, TrsRunningValues *values)
{
  const double timed_s = m->now_s - m->warm_s;
  double rates[3] = {m->window_s > 0.0 ? rate(m->window_examples, m->now_s - m->window_s) : (double)NAN,
                     rate(m->timed_before + m->timed, m->time_before_s + timed_s), rate(m->timed, timed_s)};

  PetscFunctionBegin;
  m->window = (TrsMetricSums){0};
  TrsMetricSumsAdd(&m->kind, &m->window, m->n, m->record);
  PetscCall(add_up(m, &m->window, &values->window));
  if (m->kind.labels == TRS_LABEL_PROBABILITY && values->window.lack != TRS_LACK_WEIGHT)
    PetscCall(TrsAuc(m->comm, m->n, m->record, &m->scratch, &values->window.auc, &values->window.auprc));
  PetscCall(TrsGroupMetricsCompute(m->groups, &values->window.groups));
  PetscCall(add_up(m, &m->lifetime, &values->lifetime));
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
  PetscCall(add_up(m, &m->lifetime, NULL));
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
  if (m->rank == 0) PetscCall(PetscMemcpy(&m->lifetime, numbers, sizeof(m->lifetime)));
  m->examples_before = (int64_t)numbers[TRS_KEPT_EXAMPLES];
  m->timed_before = (int64_t)numbers[TRS_KEPT_TIMED];
  m->time_before_s = numbers[TRS_KEPT_TIME];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunningMetricsDestroy(TrsRunningMetrics *metrics)
{
  PetscFunctionBegin;
  if (!*metrics) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_free(&(*metrics)->comm));
  PetscCall(TrsFree(&(*metrics)->record));
  PetscCall(TrsAucScratchFree(&(*metrics)->scratch));
  PetscCall(TrsGroupMetricsDestroy(&(*metrics)->groups));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
