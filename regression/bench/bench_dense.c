/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares the dense part of a DLRM step with the best matrix product in the same process. They take
  turns.

    OMP_NUM_THREADS=1 bench_dense [-rounds 9] [-batch_size 2048] [-n_embeddings 26] [-dim 64]
                                  [model options]

  For each part of the step, prints the median in milliseconds, the part's share of the step,
  GFLOP/s, and the ratio of its GFLOP/s to those of sgemm (batch x 1024 x 1024).
*/
#include "bench.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "cpu/cpu_kernels.h"
#include "model/dlrm.h"
#include "optim/dense_optimizer.h"

#include <string.h>

enum {
  PART_SGEMM,
  PART_FORWARD_DENSE,
  PART_FORWARD,
  PART_BACKWARD_OVER,
  PART_BACKWARD_DENSE,
  PART_OPTIMIZER,
  N_PARTS,
  MAX_ROUNDS = 101
};
static const char *const part_names[] = {"sgemm",         "forward dense",  "forward over",
                                         "backward over", "backward dense", "optimizer"};

static const TrsOptionSpec specs[] = {
    {"-rounds", TRS_OPTION_INT, "9", "[1,101]", NULL, NULL, "rounds, of which the median counts"},
    {"-batch_size", TRS_OPTION_INT, "2048", "[1,]", NULL, "samples", "samples of a step"},
    {"-n_embeddings", TRS_OPTION_INT, "26", "[0,]", NULL, NULL, "embeddings of a sample"},
    {"-dim", TRS_OPTION_INT, "64", "[1,]", NULL, NULL, "their width"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Bench", specs);

typedef struct {
  int64_t rounds, batch, n_embeddings, dim;
  const TrsComputeOps *compute;
  TrsDlrm dlrm;
  TrsDenseOptimizer optimizer;
  float *dense, *labels, *a, *b, *c, *grads;
  double seconds[N_PARTS][MAX_ROUNDS];
  double flops[N_PARTS];
} Bench;

enum { NUM_DENSE = 13, SIZE = 1024 };

static PetscErrorCode set_up(Bench *bench, TrsOptions options)
{
  const TrsDeviceOps *device;
  float *values;
  int64_t n_values;
  TrsMatrix x;
  const int64_t *columns;
  int *dims;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-rounds", &bench->rounds, NULL));
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &bench->batch, NULL));
  PetscCall(TrsOptionsGetInt(options, "-n_embeddings", &bench->n_embeddings, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dim", &bench->dim, NULL));
  PetscCall(TrsDeviceFind("cpu", &device));
  PetscCall(TrsComputeFind("cpu", &bench->compute));
  PetscCall(PetscMalloc1((size_t)bench->n_embeddings, &dims));
  for (int64_t f = 0; f < bench->n_embeddings; f++) dims[f] = (int)bench->dim;
  PetscCall(TrsDlrmCreate(device, bench->compute, &bench->dlrm));
  PetscCall(TrsDlrmSetFromOptions(bench->dlrm, options));
  PetscCall(TrsDlrmSetUp(bench->dlrm, NUM_DENSE, (int)bench->n_embeddings, dims, bench->batch, 1));
  PetscCall(PetscFree(dims));
  PetscCall(TrsDlrmParameters(bench->dlrm, NULL, NULL, &values, &bench->grads, &n_values));
  PetscCall(TrsDenseOptimizerCreate(device, bench->compute, &bench->optimizer));
  PetscCall(TrsDenseOptimizerSetFromOptions(bench->optimizer, options));
  PetscCall(TrsDenseOptimizerSetUp(bench->optimizer, values, n_values));
  PetscCall(TrsAlloc(bench->batch * NUM_DENSE, sizeof(float), &bench->dense));
  PetscCall(TrsAlloc(bench->batch, sizeof(float), &bench->labels));
  PetscCall(TrsAlloc(bench->batch * SIZE, sizeof(float), &bench->a));
  PetscCall(TrsAlloc(SIZE * SIZE, sizeof(float), &bench->b));
  PetscCall(TrsAlloc(bench->batch * SIZE, sizeof(float), &bench->c));
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 1, 0, bench->batch * NUM_DENSE, -1.0f, 1.0f, bench->dense);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 2, 0, bench->batch * SIZE, -1.0f, 1.0f, bench->a);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 3, 0, SIZE * SIZE, -1.0f, 1.0f, bench->b);
  PetscCall(TrsDlrmEmbeddings(bench->dlrm, &x, &columns));
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 4, 0, bench->batch * x.stride, -0.1f, 0.1f, (float *)x.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Count the multiplications and additions for one sample. Each weight has 2 in the forward and 4 in
  the backward, or 2 in the backward if the layer's input needs no gradient.
*/
static PetscErrorCode count_flops(Bench *bench)
{
  const double batch = (double)bench->batch, n = (double)bench->n_embeddings + 1.0;
  const TrsDenseParameter *param;
  int n_params;

  PetscFunctionBegin;
  PetscCall(TrsDlrmParameters(bench->dlrm, &n_params, &param, NULL, NULL, NULL));
  for (int p = 0; p < n_params; p++) {
    const double weights = param[p].ndim == 2 ? batch * (double)(param[p].rows * param[p].cols) : 0.0;
    const int of_dense = !strncmp(param[p].name, "dense_arch", 10);

    bench->flops[of_dense ? PART_FORWARD_DENSE : PART_FORWARD] += 2.0 * weights;
    bench->flops[of_dense ? PART_BACKWARD_DENSE : PART_BACKWARD_OVER] +=
        (strcmp(param[p].name, "dense_arch/0/weight") ? 4.0 : 2.0) * weights;
    /* dot */
    if (!strcmp(param[p].name, "over_arch/0/weight") && param[p].cols != (int64_t)n * bench->dim) {
      bench->flops[PART_FORWARD] += batch * n * (n - 1.0) * (double)bench->dim;
      bench->flops[PART_BACKWARD_OVER] += 2.0 * batch * n * (n - 1.0) * (double)bench->dim;
    }
  }
  bench->flops[PART_SGEMM] = 2.0 * batch * SIZE * SIZE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_part(Bench *bench, int part, int64_t step)
{
  const float *predictions;
  double loss;

  PetscFunctionBegin;
  switch (part) {
  case PART_SGEMM:
    PetscCall(bench->compute->multiply(NULL, &(TrsMatrixProduct){PETSC_FALSE, PETSC_TRUE, bench->batch, SIZE,
                                                                 SIZE, 1.0f, TrsFloats(bench->a, SIZE),
                                                                 TrsFloats(bench->b, SIZE), 0.0f,
                                                                 TrsFloats(bench->c, SIZE)}));
    break;
  case PART_FORWARD_DENSE:
    PetscCall(TrsDlrmForwardDense(bench->dlrm, NULL, bench->batch, bench->dense));
    break;
  case PART_FORWARD:
    PetscCall(TrsDlrmForward(bench->dlrm, NULL, bench->batch, bench->labels, NULL, 1.0f / (float)bench->batch,
                             &loss, &predictions));
    break;
  case PART_BACKWARD_OVER: PetscCall(TrsDlrmBackwardOver(bench->dlrm, NULL, bench->batch)); break;
  case PART_BACKWARD_DENSE:
    PetscCall(TrsDlrmBackwardDense(bench->dlrm, NULL, bench->batch, bench->dense));
    break;
  case PART_OPTIMIZER:
    PetscCall(TrsDenseOptimizerStep(bench->optimizer, NULL, step, 1.0, bench->grads));
    break;
  default: break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report(Bench *bench)
{
  const double peak = bench->flops[PART_SGEMM] / bench_median(bench->rounds, bench->seconds[PART_SGEMM]) *
                      1e-9;
  double step_s = 0.0, step_flops = 0.0;

  PetscFunctionBegin;
  for (int part = PART_FORWARD_DENSE; part < N_PARTS; part++) {
    step_s += bench_median(bench->rounds, bench->seconds[part]);
    step_flops += bench->flops[part];
  }
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%s\n%-16s %9s %7s %9s %7s\n", TrsProductLibraryCpu(), "part", "ms",
                        "share", "GFLOP/s", "ratio"));
  for (int part = 0; part < N_PARTS; part++) {
    const double s = bench_median(bench->rounds, bench->seconds[part]), rate = bench->flops[part] / s * 1e-9;

    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-16s %9.3f %7.3f %9.1f %7.3f\n", part_names[part], 1e3 * s,
                          part ? s / step_s : 0.0, rate, rate / peak));
  }
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-16s %9.3f %7.3f %9.1f %7.3f  goal 0.85\n", "step", 1e3 * step_s,
                        1.0, step_flops / step_s * 1e-9, step_flops / step_s * 1e-9 / peak));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode bench_dense(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options,     &trs_model_options,
                                                 &trs_tasks_options, &trs_task_options,
                                                 &trs_heads_options, &trs_dense_optimizer_options};
  TrsOptions options;
  Bench *bench;

  PetscFunctionBegin;
  PetscCall(PetscNew(&bench));
  PetscCall(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 6, &options));
  PetscCall(set_up(bench, options));
  PetscCall(count_flops(bench));
  for (int64_t round = -1; round < bench->rounds; round++) { /* the first round is a warm-up */
    for (int part = 0; part < N_PARTS; part++) {
      const double start = bench_now();

      PetscCall(run_part(bench, part, round + 2));
      bench->seconds[part][round < 0 ? 0 : round] = bench_now() - start;
    }
  }
  PetscCall(report(bench));
  PetscCall(TrsDenseOptimizerDestroy(&bench->optimizer));
  PetscCall(TrsDlrmDestroy(&bench->dlrm));
  for (float **p = &bench->dense; p <= &bench->c; p++) PetscCall(TrsFree(p));
  PetscCall(PetscFree(bench));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, bench_dense);
}
