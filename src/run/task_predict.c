/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_predict.h"

#include "core/names.h"
#include "quant/quantised_tables.h"
#include "report/banner.h"
#include "report/data.h"
#include "report/ids.h"
#include "report/latency.h"
#include "report/metrics.h"
#include "report/record.h"
#include "run/neighbours.h"
#include "run/predict_embeddings.h"
#include "session/checkpoint_model.h"
#include "session/left_over.h"
#include "session/outputs.h"
#include "session/session_mapping.h"
#include "session/signals.h"

#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>

typedef struct {
  MPI_Comm comm;
  TrsOptions options; /* borrowed */
  TrsSession session;
  TrsResults results;
  TrsOutputs outputs;
  char *path;             /* path of the checkpoint */
  int hold;               /* lock that prevents a training from removing the file, or -1 */
  TrsStoredTable *stored; /* [tables] the form of each table in the checkpoint */
  TrsCheckpointInfo info;
  TrsPredictEmbeddings embeddings;
  TrsNeighbours neighbours;
  int64_t n_samples; /* number of samples in the dataset */
  TrsLatency latency;
  TrsWatchdog watchdog;
  TrsMetricValues *values; /* [tasks] */
} TrsPrediction;

enum { TRS_N_TRIES = 20 };

/*
  Find the checkpoint: -init_from, or without this option the newest checkpoint in -checkpoint_dir.
*/
static PetscErrorCode find_checkpoint(TrsPrediction *p)
{
  TrsOptions options = p->options;
  const char *init_from = NULL, *folder = NULL;

  PetscFunctionBegin;
  TrsCheckpointRelease(&p->hold);
  PetscCall(TrsOptionsGetString(options, "-init_from", &init_from, NULL));
  PetscCall(TrsOptionsGetString(options, "-checkpoint_dir", &folder, NULL));
  PetscCheck(init_from || folder, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-init_from is missing: -task predict needs a checkpoint, or -checkpoint_dir, a folder of them");
  if (init_from)
    PetscCall(PetscStrallocpy(init_from, &p->path));
  else
    PetscCall(TrsCheckpointFolderFindNewest(p->comm, folder, &p->hold, &p->path));
  PetscCheck(p->path, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: no checkpoint is there (-checkpoint_dir)",
             folder);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Report the peak memory of the rank with the highest peak. */
static PetscErrorCode report_peak(const TrsPrediction *p)
{
  struct rusage usage;
  int64_t peak_bytes;
  char text[32];

  PetscFunctionBegin;
  getrusage(RUSAGE_SELF, &usage);
  peak_bytes = (int64_t)usage.ru_maxrss * 1024;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &peak_bytes, 1, MPI_INT64_T, MPI_MAX, p->session.comm));
  PetscCall(TrsResultsSetInt(p->results, "peak_memory_bytes", peak_bytes));
  PetscCall(PetscPrintf(p->session.comm, "%-10s at most %s a rank\n", "peak",
                        TrsBytesText((double)peak_bytes, text, sizeof(text))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse options that contradict a prediction. */
static PetscErrorCode check_options(TrsOptions options)
{
  enum { TRS_SHARDER_TRAINING };
  int sharder = 1;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-plan_sharder", &sharder, NULL));
  if (sharder == TRS_SHARDER_TRAINING)
    PetscCall(TrsOptionError(options, "-plan_sharder",
                             "-task predict shards quantised tables: leave it out, or quant"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Call `use` with the checkpoint. On a file system without locks, a training may have removed the
  file in the meantime. If so, try again with the file that is the newest now. The files of a run
  differ only in their numbers.
*/
static PetscErrorCode with_newest(TrsPrediction *p, PetscErrorCode (*use)(TrsPrediction *p))
{
  const char *init_from = NULL;
  PetscErrorCode ierr;
  PetscBool gone;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(p->options, "-init_from", &init_from, NULL));
  ierr = use(p);
  for (int i = 0; i < TRS_N_TRIES && ierr != PETSC_SUCCESS && !init_from; i++) {
    PetscCall(TrsCheckpointIsGone(p->comm, p->path, &gone));
    if (!gone) break;
    TrsErrorClear();
    PetscCall(PetscFree(p->path));
    PetscCall(find_checkpoint(p));
    ierr = use(p);
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_model(TrsPrediction *p)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointModelTake(p->comm, p->options, p->path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode look_at_tables(TrsPrediction *p)
{
  TrsSession *s = &p->session;

  PetscFunctionBegin;
  PetscCall(TrsQuantTableTypes(s->comm, s->options, p->path, &s->tables, p->stored));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the checkpoint's dense layers and tables. Quantise the tables while reading them. */
static PetscErrorCode read_checkpoint(TrsPrediction *p)
{
  TrsSession *s = &p->session;
  TrsQuantReader reader;
  TrsState state = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsModelParallelAddState(s->model, &state));
  PetscCall(TrsQuantReaderCreate(p->path, TrsModelParallelShards(s->model), p->stored, &reader));
  PetscCall(TrsQuantReaderAddState(reader, &state));
  ierr = TrsCheckpointRead(s->comm, p->path, &state, &p->info);
  PetscCall(TrsQuantReaderDestroy(&reader));
  PetscCall(TrsStateFree(&state));
  PetscCall(ierr);
  PetscCall(TrsSessionTakeMapping(s, p->path, p->info.mapping_read, PETSC_TRUE, p->results));
  PetscCall(PetscPrintf(s->comm, "%-10s %s, after %" PRId64 " update%s\n", "weights", p->path, p->info.step,
                        TrsPlural(p->info.step, "s")));
  PetscCall(TrsReportDroppedIds(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Report the bytes of each rank's shards, as they are stored and as they would be in fp32. */
static PetscErrorCode report_memory(const TrsPrediction *p)
{
  const TrsSession *s = &p->session;
  char held[32], as_fp32[32];
  int64_t tables, states, dense;
  double mine[2], most[2], *all;

  PetscFunctionBegin;
  PetscCall(TrsModelParallelBytes(s->model, &tables, &states, &dense));
  mine[0] = (double)tables;
  mine[1] = (double)TrsQuantFloatBytes(TrsModelParallelShards(s->model));
  PetscCall(PetscCalloc1(2 * (size_t)s->size, &all));
  PetscCallMPI(MPI_Gather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, s->comm));
  PetscCall(TrsResultsSetArray(p->results, "memory/table_bytes", s->size, 2, all));
  PetscCall(TrsResultsSetText(p->results, "table_bytes_names", "held,as_fp32"));
  PetscCall(PetscFree(all));
  PetscCallMPI(MPI_Allreduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, s->comm));
  PetscCall(PetscPrintf(s->comm, "%-10s at most %s a rank, %s as fp32\n", "tables",
                        TrsBytesText(most[0], held, sizeof(held)),
                        TrsBytesText(most[1], as_fp32, sizeof(as_fp32))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the tensors of -quant_checkpoint. Free with TrsStateFree(). */
static PetscErrorCode list_tensors(const TrsPrediction *p, TrsState *state)
{
  PetscFunctionBegin;
  *state = (TrsState){0};
  PetscCall(TrsModelParallelAddState(p->session.model, state));
  PetscCall(TrsQuantAddState(TrsModelParallelShards(p->session.model), state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that the file of -quant_checkpoint can be written. If `path` is NULL, nothing is checked.
  Collective.
*/
static PetscErrorCode try_checkpoint(const TrsPrediction *p, const char *path)
{
  TrsState state;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointTry(p->comm, path));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(list_tensors(p, &state));
  PetscCall(TrsCheckpointTryNames(path, &state));
  PetscCall(TrsStateFree(&state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TrsPrediction *p, MPI_Comm comm, TrsOptions options)
{
  TrsSession *s = &p->session;
  const char *output = NULL, *quant_checkpoint = NULL;
  double watchdog_s;

  PetscFunctionBegin;
  PetscCall(check_options(options));
  PetscCall(TrsOptionsGetString(options, "-output", &output, NULL));
  PetscCall(TrsOptionsGetString(options, "-quant_checkpoint", &quant_checkpoint, NULL));
  PetscCall(TrsOptionsGetReal(options, "-watchdog_seconds", &watchdog_s, NULL));
  PetscCall(TrsResultsCreate(comm, output, &p->results));
  p->comm = comm;
  p->options = options;
  PetscCall(find_checkpoint(p));
  PetscCall(with_newest(p, take_model));
  PetscCall(TrsSessionOpen(comm, options, PETSC_FALSE, NULL, s));
  PetscCall(TrsCheckpointModelCheckData(s));
  PetscCall(TrsPredictEmbeddingsOpen(s, &p->embeddings));
  PetscCall(PetscCalloc1((size_t)s->tables.n, &p->stored));
  PetscCall(with_newest(p, look_at_tables));
  PetscCall(TrsSessionBuild(s, PETSC_FALSE, PETSC_TRUE));
  PetscCall(TrsPredictEmbeddingsKeep(&p->embeddings, s));
  PetscCall(TrsNeighboursOpen(s, &p->neighbours));
  PetscCall(TrsReportBanner(s));
  PetscCall(TrsReportAttributes(s, p->results));
  PetscCall(report_memory(p));
  PetscCall(try_checkpoint(p, quant_checkpoint));
  PetscCall(
      TrsOutputsOpen(s->comm, options, 1u << TRS_OUTPUT_RESULTS | 1u << TRS_OUTPUT_QUANTISED, &p->outputs));
  PetscCall(TrsOutputsClaim(&p->outputs, ""));
  PetscCall(TrsResultsSetOutput(p->results, &p->outputs.file[TRS_OUTPUT_RESULTS]));
  PetscCall(PetscCalloc1((size_t)s->tasks.n, &p->values));
  PetscCall(with_newest(p, read_checkpoint));
  TrsCheckpointRelease(&p->hold);
  PetscCall(TrsWatchdogStart(watchdog_s, s->rank, &p->watchdog));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Called after each batch, as a TrsBatchObserver. */
static PetscErrorCode after_batch(void *context, const TrsBatch *batch, const float *predictions,
                                  const double *losses, double seconds)
{
  TrsPrediction *p = context;
  const int64_t columns = p->session.tasks.columns;
  const char *unchecked;

  PetscFunctionBegin;
  (void)losses;
  TrsWatchdogBeat(p->watchdog, batch->step);
  /* This call is collective, so it comes before checks that may fail on only one rank. */
  PetscCall(TrsPredictEmbeddingsAdd(&p->embeddings, p->session.model, batch, p->n_samples, p->results));
  PetscCall(TrsNeighboursAdd(&p->neighbours, batch));
  PetscCall(TrsLatencyAdd(&p->latency, batch->global_batch, seconds));
  for (int64_t i = 0; i < batch->batch * columns; i++) {
    if (isfinite(predictions[i])) continue;
    PetscCheck(!batch->bad_numbers, PETSC_COMM_SELF, TRS_ERR_DATA,
               "the prediction of sample %" PRId64 " is %g: its batch has %" PRId64
               " number%s not finite or out of range, which -data_check warning let pass",
               batch->first + i / columns, (double)predictions[i], batch->bad_numbers,
               TrsPlural(batch->bad_numbers, "s"));
    PetscCall(TrsReportUnchecked(&p->session, &unchecked));
    SETERRQ(PETSC_COMM_SELF, TRS_ERR_NOT_FINITE,
            "the prediction of sample %" PRId64 " is %g: %s holds weights that are not finite or too large%s",
            batch->first + i / columns, (double)predictions[i], p->path, unchecked);
  }
  PetscCheck(!trs_stop_requested, PETSC_COMM_SELF, TRS_ERR_STOPPED,
             "stopped on request after batch %" PRId64 ": no predictions were written", batch->step + 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode predict(TrsPrediction *p)
{
  const TrsBatchObserver observer = {after_batch, p};
  TrsSession *s = &p->session;
  const TrsDatasetInfo *info;
  PetscBool stopped; /* unused, because the observer's error reports the stop and its batch */
  TrsEvaluationTarget target = {.results = p->results, .metrics = s->options};

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(s->eval, &info));
  target.n_total = p->n_samples = info->num_samples;
  /* Predict without overlapping batches, because a latency is measured for one batch. */
  PetscCall(TrsSessionEvaluate(s, NULL, &target, &observer, NULL, p->values, &stopped));
  PetscCall(TrsReportBadInput(s, info, s->eval_reader, "predict"));
  PetscCall(TrsReaderDestroy(&s->eval_reader));
  PetscCall(TrsLatencyReport(s->comm, &p->latency, p->results));
  PetscCall(TrsNeighboursFind(&p->neighbours, s->comm, p->n_samples, p->results));
  if (info->has_labels) {
    PetscCall(TrsRecordMetrics(p->results, p->info.step, &s->tasks, p->values));
    PetscCall(TrsReportMetrics(s->comm, "predict", &s->tasks, p->values));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_checkpoint(TrsPrediction *p)
{
  const TrsSession *s = &p->session;
  TrsCheckpointInfo info = p->info;
  const char *path = NULL;
  char *options, *plan, *model;
  TrsState state;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(s->options, "-quant_checkpoint", &path, NULL));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsText(s->options, &options));
  PetscCall(TrsShardingPlanToJson(&s->plan, &plan));
  PetscCall(TrsCheckpointModelText(s, &model));
  info.options = options;
  info.model = model;
  info.plan = plan;
  info.mapping = p->info.mapping_read;
  info.output = &p->outputs.file[TRS_OUTPUT_QUANTISED];
  PetscCall(list_tensors(p, &state));
  PetscCall(TrsCheckpointWrite(s->comm, path, &state, &info));
  PetscCall(PetscPrintf(s->comm, "%-10s quantised tables: %s\n", "checkpoint", path));
  PetscCall(TrsStateFree(&state));
  PetscCall(PetscFree(options));
  PetscCall(PetscFree(plan));
  PetscCall(PetscFree(model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(void *state, MPI_Comm comm, TrsOptions options)
{
  TrsPrediction *p = (TrsPrediction *)state;
  PetscFunctionBegin;
  PetscCall(set_up(p, comm, options));
  PetscCall(predict(p));
  PetscCall(TrsWatchdogStop(&p->watchdog));
  PetscCall(write_checkpoint(p));
  PetscCall(report_peak(p));
  PetscCall(TrsResultsWrite(p->results));
  PetscCall(TrsOutputsReport(&p->outputs, PETSC_FALSE, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(void *prediction)
{
  TrsPrediction *p = (TrsPrediction *)prediction;

  PetscFunctionBegin;
  PetscCall(PetscFree(p->values));
  PetscCall(TrsResultsDestroy(&p->results));
  PetscCall(TrsOutputsClose(&p->outputs));
  PetscCall(TrsLatencyFree(&p->latency));
  PetscCall(TrsPredictEmbeddingsFree(&p->embeddings));
  PetscCall(TrsNeighboursFree(&p->neighbours));
  PetscCall(TrsCheckpointInfoFree(&p->info));
  PetscCall(TrsSessionDestroy(&p->session));
  TrsCheckpointRelease(&p->hold);
  PetscCall(PetscFree(p->stored));
  PetscCall(PetscFree(p->path));
  PetscCall(PetscFree(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunPredict(MPI_Comm comm, TrsOptions options)
{
  TrsPrediction *p;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  p->hold = -1;
  PetscCall(TrsRunAndFree(p, &p->watchdog, run, destroy, comm, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}
