/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_eval.h"

#include "run/checkpoint_model.h"
#include "run/outputs.h"
#include "run/recall.h"
#include "run/record.h"
#include "run/report.h"
#include "run/signals.h"
#include "train/evaluate.h"

PetscErrorCode TrsEvaluateSession(TrsSession *session, TrsResults results, const TrsBatchObserver *observer,
                                  TrsMetricValues *values, PetscBool *stopped)
{
  const TrsDatasetInfo *info;
  TrsEvaluationTarget target = {.results = results, .metrics = session->options};
  TrsReader reader;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->eval, &info));
  target.n_total = info->num_samples;
  PetscCall(TrsSessionReader(session, PETSC_FALSE, 0, &reader));
  PetscCall(TrsEvaluate(session->machine.groups.dense, session->options, session->model, reader, &target,
                        observer, &trs_stop_requested, values, stopped));
  if (!session->told_of_bad_ids && !*stopped) PetscCall(TrsReportBadIds(session, info, reader, "eval"));
  session->told_of_bad_ids = (PetscBool)(session->told_of_bad_ids || !*stopped);
  PetscCall(TrsReaderDestroy(&reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What looks at each batch of -task eval. */
typedef struct {
  TrsRecall recall;
  TrsWatchdog watchdog;
} TrsEvalBatches;

/* A TrsBatchObserver. */
static PetscErrorCode after_batch(void *context, const TrsBatch *batch, const float *predictions,
                                  const double *losses, double seconds)
{
  TrsEvalBatches *e = (TrsEvalBatches *)context;

  PetscFunctionBegin;
  TrsWatchdogBeat(e->watchdog, batch->step);
  if (e->recall.n) PetscCall(TrsRecallAdd(&e->recall, batch, predictions, losses, seconds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Evaluate under the watchdog, which a caller of TrshardRun() must not keep after an error. */
static PetscErrorCode evaluate(TrsSession *session, TrsResults results, TrsEvalBatches *e,
                               TrsMetricValues *values, PetscBool *stopped)
{
  const TrsBatchObserver observer = {after_batch, e};
  double watchdog_s;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(session->options, "-watchdog_seconds", &watchdog_s, NULL));
  PetscCall(TrsWatchdogStart(watchdog_s, session->rank, &e->watchdog));
  ierr = TrsEvaluateSession(session, results, &observer, values, stopped);
  PetscCall(TrsWatchdogStop(&e->watchdog));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunEval(MPI_Comm comm, TrsOptions options)
{
  TrsCheckpointInfo info = {.step = 0};
  const char *init_from = NULL, *output = NULL;
  TrsEvalBatches batches = {.watchdog = NULL};
  TrsMetricValues *values;
  TrsOutputs outputs;
  TrsResults results;
  TrsSession session;
  PetscBool stopped;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-init_from", &init_from, NULL));
  PetscCall(TrsOptionsGetString(options, "-output", &output, NULL));
  PetscCheck(init_from, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-init_from is missing: evaluation needs a checkpoint to take weights from");
  PetscCall(TrsResultsCreate(comm, output, &results));
  PetscCall(TrsCheckpointModelTake(comm, options, init_from));
  PetscCall(TrsOutputsOpen(comm, options, 1u << TRS_OUTPUT_RESULTS, &outputs));
  PetscCall(TrsOutputsClaim(&outputs, ""));
  PetscCall(TrsResultsSetOutput(results, &outputs.file[TRS_OUTPUT_RESULTS]));
  PetscCall(TrsSessionOpen(comm, options, PETSC_FALSE, &session));
  PetscCall(TrsSessionNeedLabels(&session));
  PetscCall(TrsCheckpointModelCheckData(&session));
  PetscCall(TrsSessionBuild(&session, PETSC_FALSE, PETSC_FALSE));
  PetscCall(TrsRecallOpen(&session, &batches.recall));
  PetscCall(TrsReportBanner(&session));
  PetscCall(TrsReportAttributes(&session, results));
  PetscCall(TrsCheckpointRead(session.comm, init_from, &session.state, &info));
  PetscCall(TrsCheckpointInfoFree(&info));
  PetscCall(PetscCalloc1((size_t)session.tasks.n, &values));
  PetscCall(evaluate(&session, results, &batches, values, &stopped));
  PetscCheck(!stopped, PETSC_COMM_SELF, TRS_ERR_STOPPED,
             "stopped on request during the evaluation: no metrics or predictions were written");
  PetscCall(TrsRecordMetrics(results, info.step, &session.tasks, values));
  PetscCall(TrsReportMetrics(session.comm, "eval", &session.tasks, values));
  PetscCall(TrsRecallReport(&batches.recall, session.comm, results));
  PetscCall(TrsRecallFree(&batches.recall));
  PetscCall(PetscFree(values));
  PetscCall(TrsResultsWrite(results));
  PetscCall(TrsOutputsReport(&outputs, PETSC_FALSE, NULL));
  PetscCall(TrsResultsDestroy(&results));
  PetscCall(TrsOutputsClose(&outputs));
  PetscCall(TrsSessionDestroy(&session));
  PetscFunctionReturn(PETSC_SUCCESS);
}
