/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/qcomm.h"

#include "comm/qcomm.h"
#include "core/names.h"
#include "io/results.h"
#include "report/banner.h"
#include "session/outputs.h"
#include "session/session.h"
#include "session/signals.h"
#include "train/pipeline.h"

#include <math.h>

enum { TRS_INT8_ROW = 32 };

typedef enum { TRS_LOSS_BYTES, TRS_LOSS_MEAN, TRS_LOSS_MOST, TRS_LOSS_ZEROED, TRS_N_LOSSES } TrsLoss;

/* The precisions of the -qcomm_ options. fp8 is listed in both of its formats. */
static const struct {
  const char *name;
  TrsCodecKind kind;
  int row_dim;
} precisions[] = {{"fp16", TRS_CODEC_FP16, 0},
                  {"bf16", TRS_CODEC_BF16, 0},
                  {"fp8", TRS_CODEC_FP8, 0},
                  {"fp8 by 32", TRS_CODEC_FP8, TRS_INT8_ROW},
                  {"int8", TRS_CODEC_INT8, TRS_INT8_ROW}};
enum { TRS_N_PRECISIONS = sizeof(precisions) / sizeof(precisions[0]) };

/* Train a given number of steps. Out: batch, the number of this rank's samples in the last step. */
static PetscErrorCode train(TrsSession *s, TrsReader reader, int64_t steps, int64_t *batch)
{
  TrsStepResult result = {.step = 0};
  PetscBool more = PETSC_TRUE;
  TrsPipeline pipeline;

  PetscFunctionBegin;
  PetscCall(TrsPipelineCreate(s->machine.groups.dense, s->options, s->model, reader, 0, &trs_stop_requested,
                              &pipeline));
  for (int64_t i = 0; i < steps && more && !result.stop; i++) {
    PetscCall(TrsPipelineProgress(pipeline, &result, &more));
    PetscCheck(isfinite(result.loss), PETSC_COMM_SELF, TRS_ERR_NOT_FINITE, "the loss of step %d is %s",
               (int)result.step, isnan(result.loss) ? "nan" : "infinite");
  }
  *batch = result.global_batch / s->size + (s->rank < result.global_batch % s->size ? 1 : 0);
  PetscCall(PetscPrintf(s->comm, "%-10s of %d step%s, the last one's loss %.5f\n", "qcomm",
                        (int)result.step + 1, TrsPlural(result.step + 1, "s"), result.loss));
  PetscCall(TrsPipelineDestroy(&pipeline));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Encode and decode one block of numbers as for a message. Collective. */
static PetscErrorCode measure(const TrsSession *s, const TrsCodec *codec, int64_t n, const float *values,
                              double loss[TRS_N_LOSSES])
{
  TrsComm world = s->machine.groups.world;
  /* sums: |error|, |x|, bytes, numbers that became 0, and numbers that are not 0. most: the
     largest |error| and the largest |x|. */
  double sums[5] = {0}, most[2] = {0};
  TrsDeviceBuffer scratch = {0};
  float *decoded;
  void *wire;

  PetscFunctionBegin;
  sums[2] = (double)TrsQcommBytes(s->machine.compute, codec, n);
  PetscCall(TrsAlloc((int64_t)sums[2] + 1, 1, &wire));
  PetscCall(TrsAlloc(n + 1, sizeof(*decoded), &decoded));
  PetscCall(TrsQcommEncode(world, NULL, codec, n, values, wire, &scratch));
  PetscCall(TrsQcommDecode(world, NULL, codec, n, wire, decoded, &scratch));
  for (int64_t i = 0; i < n; i++) {
    const double x = fabs((double)values[i]), error = fabs((double)decoded[i] - (double)values[i]);

    sums[0] += error;
    sums[1] += x;
    sums[3] += x > 0 && decoded[i] == 0.0f;
    sums[4] += x > 0;
    most[0] = fmax(most[0], error);
    most[1] = fmax(most[1], x);
  }
  PetscCall(TrsDeviceBufferFree(world->device, &scratch));
  PetscCall(TrsFree(&decoded));
  PetscCall(TrsFree(&wire));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, sums, 5, MPI_DOUBLE, MPI_SUM, s->comm));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_DOUBLE, MPI_MAX, s->comm));
  loss[TRS_LOSS_BYTES] = sums[2];
  loss[TRS_LOSS_MEAN] = sums[1] > 0 ? sums[0] / sums[1] : 0;
  loss[TRS_LOSS_MOST] = most[1] > 0 ? most[0] / most[1] : 0;
  loss[TRS_LOSS_ZEROED] = sums[4] > 0 ? sums[3] / sums[4] : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure all precisions for the messages of one direction, with this rank's values [n]. */
static PetscErrorCode measure_all(const TrsSession *s, PetscBool backward, int64_t n, const float *values,
                                  TrsResults results)
{
  double loss_scale = 1, losses[TRS_N_PRECISIONS][TRS_N_LOSSES], bytes = (double)n * (double)sizeof(float);

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(
      s->options, backward ? "-qcomm_backward_loss_scale" : "-qcomm_forward_loss_scale", &loss_scale, NULL));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_SUM, s->comm));
  for (int i = 0; i < TRS_N_PRECISIONS; i++) {
    const TrsCodecKind kind = precisions[i].kind;
    const TrsCodec codec = {.kind = kind,
                            .row_dim = precisions[i].row_dim,
                            .backward = backward ? 1 : 0,
                            .loss_scale = kind == TRS_CODEC_FP16 || kind == TRS_CODEC_BF16 ? (float)loss_scale
                                                                                           : 1.0f};

    PetscCall(measure(s, &codec, n, values, losses[i]));
    losses[i][TRS_LOSS_BYTES] /= fmax(bytes, 1);
    PetscCall(PetscPrintf(s->comm, "%-10s %-9s  %8.4f  %12.3e  %12.3e  %9.5f%%\n",
                          backward ? "backward" : "forward", precisions[i].name, losses[i][TRS_LOSS_BYTES],
                          losses[i][TRS_LOSS_MEAN], losses[i][TRS_LOSS_MOST],
                          100 * losses[i][TRS_LOSS_ZEROED]));
  }
  PetscCall(TrsResultsSetArray(results, backward ? "qcomm/backward" : "qcomm/forward", TRS_N_PRECISIONS,
                               TRS_N_LOSSES, &losses[0][0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy some columns of a matrix to host memory without gaps. Free *values with TrsFree(). */
static PetscErrorCode gather_columns(const TrsDeviceOps *device, int64_t rows, int64_t cols, int64_t stride,
                                     const float *from, float **values)
{
  PetscFunctionBegin;
  PetscCall(TrsAlloc(rows * cols + 1, sizeof(**values), values));
  for (int64_t r = 0; r < rows; r++)
    PetscCall(device->copy(*values + r * cols, from + r * stride, cols * (int64_t)sizeof(float), NULL));
  PetscCall(device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure_both(const TrsSession *s, int64_t batch, TrsResults results)
{
  const float *matrix[2];
  int64_t stride, cols;

  PetscFunctionBegin;
  PetscCall(TrsModelParallelEmbeddings(s->model, &matrix[0], &matrix[1], &stride, &cols));
  PetscCall(PetscPrintf(s->comm, "%-10s %-9s  %8s  %12s  %12s  %10s\n", "qcomm", "precision", "bytes",
                        "mean error", "most error", "became 0"));
  for (int d = 0; d < 2; d++) {
    float *values;

    PetscCall(gather_columns(s->machine.device, batch, cols, stride, matrix[d], &values));
    PetscCall(measure_all(s, (PetscBool)(d == 1), batch * cols, values, results));
    PetscCall(TrsFree(&values));
  }
  PetscCall(PetscPrintf(
      s->comm,
      "%-10s bytes to those of fp32, errors to the mean and to the largest number; sums over ranks "
      "take fp16 forward and bf16 backward in place of fp8 and int8\n",
      ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBenchQcomm(MPI_Comm comm, TrsOptions options)
{
  const char *output = NULL;
  int64_t steps, batch = 0;
  TrsOutputs outputs;
  TrsResults results;
  TrsSession session;
  TrsReader reader;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-output", &output, NULL));
  PetscCall(TrsOptionsGetInt(options, "-bench_steps", &steps, NULL));
  PetscCall(TrsResultsCreate(comm, output, &results));
  PetscCall(TrsOutputsOpen(comm, options, 1u << TRS_OUTPUT_RESULTS, &outputs));
  PetscCall(TrsOutputsClaim(&outputs, ""));
  PetscCall(TrsResultsSetOutput(results, &outputs.file[TRS_OUTPUT_RESULTS]));
  PetscCall(TrsSessionOpen(comm, options, PETSC_TRUE, NULL, &session));
  session.keeps_embeddings = PETSC_TRUE;
  PetscCall(TrsSessionBuild(&session, PETSC_TRUE, PETSC_FALSE));
  PetscCheck(session.machine.device->host_memory, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-bench_qcomm runs on the CPU's kernels: use -device cpu");
  PetscCall(TrsReportAttributes(&session, results));
  PetscCall(TrsModelParallelFillTables(session.model));
  PetscCall(TrsSessionReader(&session, PETSC_TRUE, 0, &reader));
  PetscCall(train(&session, reader, steps, &batch));
  PetscCall(measure_both(&session, batch, results));
  PetscCall(TrsResultsSetText(results, "qcomm_precisions", "fp16,bf16,fp8,fp8 by 32,int8"));
  PetscCall(TrsResultsWrite(results));
  PetscCall(TrsReaderDestroy(&reader));
  PetscCall(TrsOutputsReport(&outputs, PETSC_FALSE, NULL));
  PetscCall(TrsResultsDestroy(&results));
  PetscCall(TrsOutputsClose(&outputs));
  PetscCall(TrsSessionDestroy(&session));
  PetscFunctionReturn(PETSC_SUCCESS);
}
