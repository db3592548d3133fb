/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_eval.h"

#include "report/banner.h"
#include "report/data.h"
#include "report/ids.h"
#include "report/metrics.h"
#include "report/recall.h"
#include "report/record.h"
#include "session/checkpoint_model.h"
#include "session/left_over.h"
#include "session/outputs.h"
#include "session/session_mapping.h"
#include "session/signals.h"

PetscErrorCode TrsEvaluateSession(TrsSession *session, TrsResults results, const TrsBatchObserver *observer,
                                  TrsMetricValues *values, PetscBool *stopped)
{
  const TrsDatasetInfo *info;
  TrsEvaluationTarget target = {.results = results, .metrics = session->options};

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->eval, &info));
  target.n_total = info->num_samples;
  PetscCall(
      TrsSessionEvaluate(session, session->options, &target, observer, &trs_stop_requested, values, stopped));
  if (!session->told_of_bad_ids && !*stopped)
    PetscCall(TrsReportBadInput(session, info, session->eval_reader, "eval"));
  session->told_of_bad_ids = (PetscBool)(session->told_of_bad_ids || !*stopped);
  PetscCall(TrsReaderDestroy(&session->eval_reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The state of -task eval. */
typedef struct {
  TrsSession session;
  TrsResults results;
  TrsOutputs outputs;
  TrsRecall recall;
  TrsMetricValues *values; /* [tasks] */
  TrsWatchdog watchdog;
  int64_t updates; /* number of updates that the weights have seen */
} TrsEvalRun;

/* Called after each batch, as a TrsBatchObserver. */
static PetscErrorCode after_batch(void *context, const TrsBatch *batch, const float *predictions,
                                  const double *losses, double seconds)
{
  TrsEvalRun *e = (TrsEvalRun *)context;

  PetscFunctionBegin;
  TrsWatchdogBeat(e->watchdog, batch->step);
  if (e->recall.n) PetscCall(TrsRecallAdd(&e->recall, batch, predictions, losses, seconds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TrsEvalRun *e, MPI_Comm comm, TrsOptions options)
{
  TrsCheckpointInfo info = {.step = 0};
  TrsSession *s = &e->session;
  const char *init_from = NULL, *output = NULL;
  double watchdog_s;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-init_from", &init_from, NULL));
  PetscCall(TrsOptionsGetString(options, "-output", &output, NULL));
  PetscCall(TrsOptionsGetReal(options, "-watchdog_seconds", &watchdog_s, NULL));
  PetscCheck(init_from, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-init_from is missing: evaluation needs a checkpoint to take weights from");
  PetscCall(TrsResultsCreate(comm, output, &e->results));
  PetscCall(TrsCheckpointModelTake(comm, options, init_from));
  PetscCall(TrsOutputsOpen(comm, options, 1u << TRS_OUTPUT_RESULTS, &e->outputs));
  PetscCall(TrsOutputsClaim(&e->outputs, ""));
  PetscCall(TrsResultsSetOutput(e->results, &e->outputs.file[TRS_OUTPUT_RESULTS]));
  PetscCall(TrsSessionOpen(comm, options, PETSC_FALSE, NULL, s));
  PetscCall(TrsSessionNeedLabels(s));
  PetscCall(TrsCheckpointModelCheckData(s));
  PetscCall(TrsSessionBuild(s, PETSC_FALSE, PETSC_FALSE));
  PetscCall(TrsRecallOpen(s, &e->recall));
  PetscCall(PetscCalloc1((size_t)s->tasks.n, &e->values));
  PetscCall(TrsReportBanner(s));
  PetscCall(TrsReportAttributes(s, e->results));
  PetscCall(TrsCheckpointRead(s->comm, init_from, &s->state, &info));
  PetscCall(TrsSessionTakeMapping(s, init_from, info.mapping_read, PETSC_TRUE, e->results));
  PetscCall(TrsReportDroppedIds(s));
  e->updates = info.step;
  s->mapping = NULL; /* the results have a copy */
  PetscCall(TrsCheckpointInfoFree(&info));
  PetscCall(TrsWatchdogStart(watchdog_s, s->rank, &e->watchdog));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(void *state, MPI_Comm comm, TrsOptions options)
{
  TrsEvalRun *e = (TrsEvalRun *)state;
  const TrsBatchObserver observer = {after_batch, e};
  TrsSession *s = &e->session;
  PetscBool stopped;

  PetscFunctionBegin;
  PetscCall(set_up(e, comm, options));
  PetscCall(TrsEvaluateSession(s, e->results, &observer, e->values, &stopped));
  PetscCheck(!stopped, PETSC_COMM_SELF, TRS_ERR_STOPPED,
             "stopped on request during the evaluation: no metrics or predictions were written");
  PetscCall(TrsWatchdogStop(&e->watchdog));
  PetscCall(TrsRecordMetrics(e->results, e->updates, &s->tasks, e->values));
  PetscCall(TrsReportMetrics(s->comm, "eval", &s->tasks, e->values));
  PetscCall(TrsRecallReport(&e->recall, s->comm, e->results));
  PetscCall(TrsResultsWrite(e->results));
  PetscCall(TrsOutputsReport(&e->outputs, PETSC_FALSE, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(void *of_run)
{
  TrsEvalRun *e = (TrsEvalRun *)of_run;

  PetscFunctionBegin;
  PetscCall(TrsRecallFree(&e->recall));
  PetscCall(PetscFree(e->values));
  PetscCall(TrsResultsDestroy(&e->results));
  PetscCall(TrsOutputsClose(&e->outputs));
  PetscCall(TrsSessionDestroy(&e->session));
  PetscCall(PetscFree(e));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunEval(MPI_Comm comm, TrsOptions options)
{
  TrsEvalRun *e;

  PetscFunctionBegin;
  PetscCall(PetscNew(&e));
  PetscCall(TrsRunAndFree(e, &e->watchdog, run, destroy, comm, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}
