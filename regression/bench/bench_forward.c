/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Measures the computation of a prediction: lookups in int8 tables, and the layers. Checks and
  copies of ids, locks and workspaces are not included.

    OMP_NUM_THREADS=1 bench_forward [-batch_size 1] [-seconds 2] [-n_embeddings 26] [-dim 64]
                                    [model options]

  Each feature has one id below 1,000, as in tools/examples/predict.c. Prints the median and the
  99th percentile in us, and samples a second.
*/
#include "bench.h"
#include "compute/quant.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "model/dlrm.h"

enum { NUM_DENSE = 13, ROWS = 1000, MAX_CALLS = 1 << 20 };

static const TrsOptionSpec specs[] = {
    {"-batch_size", TRS_OPTION_INT, "1", "[1,]", NULL, "samples", "samples of a prediction"},
    {"-seconds", TRS_OPTION_REAL, "2", "[0,]", NULL, "s", "how long to measure"},
    {"-n_embeddings", TRS_OPTION_INT, "26", "[1,]", NULL, NULL, "embeddings of a sample"},
    {"-dim", TRS_OPTION_INT, "64", "[1,]", NULL, NULL, "their width"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Bench", specs);

typedef struct {
  int64_t batch, n, dim;
  double seconds;
  const TrsComputeOps *compute;
  TrsWorkspace workspace;
  TrsDlrm dlrm;
  TrsTbe tbe;
  TrsTbeTable *table;
  TrsTbeFeature *feature;
  TrsTbeInput input;
  int64_t *offsets, *values;
  float *dense;
  double *latency;
} Bench;

static PetscErrorCode set_up_tables(Bench *bench, const int64_t *columns)
{
  const int64_t row_bytes = TrsQuantRowBytes(TRS_INT8, TRS_ROWS_TBE, (int)bench->dim);
  float *numbers;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(ROWS * bench->dim, sizeof(float), &numbers));
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 1, 0, ROWS * bench->dim, -0.1f, 0.1f, numbers);
  PetscCall(PetscCalloc2((size_t)bench->n, &bench->table, (size_t)bench->n, &bench->feature));
  for (int64_t t = 0; t < bench->n; t++) {
    TrsTbeTable *table = &bench->table[t];

    *table = (TrsTbeTable){.rows = ROWS, .dim = (int32_t)bench->dim, .stride = row_bytes, .dtype = TRS_INT8};
    PetscCall(TrsAlloc(ROWS * row_bytes, 1, &table->weight));
    PetscCall(TrsQuantiseRows(TRS_INT8, TRS_ROWS_TBE, ROWS, (int)bench->dim, numbers, (int)bench->dim,
                              table->weight));
    bench->feature[t] = (TrsTbeFeature){.table = (int32_t)t, .out_column = columns[t]};
  }
  bench->tbe = (TrsTbe){.n_tables = (int)bench->n,
                        .n_features = (int)bench->n,
                        .table = bench->table,
                        .feature = bench->feature};
  PetscCall(TrsFree(&numbers));
  PetscCall(TrsAlloc(bench->n * bench->batch + 1, sizeof(int64_t), &bench->offsets));
  PetscCall(TrsAlloc(bench->n * bench->batch, sizeof(int64_t), &bench->values));
  for (int64_t i = 0; i <= bench->n * bench->batch; i++) bench->offsets[i] = i;
  bench->input = (TrsTbeInput){.batch = bench->batch,
                               .offsets = bench->offsets,
                               .values = bench->values,
                               .n_values = bench->n * bench->batch};
  PetscCall(bench->compute->workspace_create(&bench->workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(Bench *bench, TrsOptions options)
{
  const TrsDeviceOps *device;
  const int64_t *columns;
  TrsMatrix x;
  int *dims;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &bench->batch, NULL));
  PetscCall(TrsOptionsGetReal(options, "-seconds", &bench->seconds, NULL));
  PetscCall(TrsOptionsGetInt(options, "-n_embeddings", &bench->n, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dim", &bench->dim, NULL));
  PetscCall(TrsDeviceFind("cpu", &device));
  PetscCall(TrsComputeFind("cpu", &bench->compute));
  PetscCall(PetscMalloc1((size_t)bench->n, &dims));
  for (int64_t f = 0; f < bench->n; f++) dims[f] = (int)bench->dim;
  PetscCall(TrsDlrmCreate(device, bench->compute, &bench->dlrm));
  PetscCall(TrsDlrmSetFromOptions(bench->dlrm, options));
  PetscCall(TrsDlrmSetForwardOnly(bench->dlrm));
  PetscCall(TrsDlrmSetUp(bench->dlrm, NUM_DENSE, (int)bench->n, dims, bench->batch, 1));
  PetscCall(PetscFree(dims));
  PetscCall(TrsAlloc(bench->batch * NUM_DENSE, sizeof(float), &bench->dense));
  PetscCall(TrsAlloc(MAX_CALLS, sizeof(double), &bench->latency));
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 2, 0, bench->batch * NUM_DENSE, -1.0f, 1.0f, bench->dense);
  PetscCall(TrsDlrmEmbeddings(bench->dlrm, &x, &columns));
  PetscCall(set_up_tables(bench, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode predict(Bench *bench)
{
  const float *predictions;
  TrsMatrix x;

  PetscFunctionBegin;
  PetscCall(TrsDlrmEmbeddings(bench->dlrm, &x, NULL));
  PetscCall(TrsDlrmForwardDense(bench->dlrm, NULL, bench->batch, bench->dense));
  PetscCall(bench->compute->tbe_forward(NULL, bench->workspace, &bench->tbe, &bench->input, x));
  PetscCall(TrsDlrmForward(bench->dlrm, NULL, bench->batch, NULL, NULL, 0.0f, NULL, &predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure(Bench *bench)
{
  const double end = bench_clock(CLOCK_MONOTONIC) + bench->seconds;
  double sum = 0;
  int64_t n = 0;

  PetscFunctionBegin;
  for (int i = 0; i < 20; i++) PetscCall(predict(bench));
  for (; n == 0 || (n < MAX_CALLS && bench_clock(CLOCK_MONOTONIC) < end); n++) {
    double start;

    for (int64_t i = 0; i < bench->input.n_values; i++) bench->values[i] = rand() % ROWS;
    start = bench_clock(CLOCK_MONOTONIC);
    PetscCall(predict(bench));
    bench->latency[n] = bench_clock(CLOCK_MONOTONIC) - start;
    sum += bench->latency[n];
  }
  qsort(bench->latency, (size_t)n, sizeof(*bench->latency), bench_ascending);
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%.1f %.1f %.0f\n", 1e6 * bench->latency[n / 2],
                        1e6 * bench->latency[n * 99 / 100], (double)(n * bench->batch) / sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode bench_forward(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options, &trs_model_options, &trs_tasks_options,
                                                 &trs_task_options, &trs_heads_options};
  TrsOptions options;
  Bench bench = {.batch = 0};

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 5, &options));
  PetscCall(set_up(&bench, options));
  PetscCall(measure(&bench));
  PetscCall(TrsDlrmDestroy(&bench.dlrm));
  PetscCall(bench.compute->workspace_destroy(&bench.workspace));
  for (int64_t t = 0; t < bench.n; t++) PetscCall(TrsFree(&bench.table[t].weight));
  PetscCall(PetscFree2(bench.table, bench.feature));
  PetscCall(TrsFree(&bench.offsets));
  PetscCall(TrsFree(&bench.values));
  PetscCall(TrsFree(&bench.dense));
  PetscCall(TrsFree(&bench.latency));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, bench_forward);
}
