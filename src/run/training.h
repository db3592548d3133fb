/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The state of a training, and its start: the folder of its checkpoints, and the step at which it
  continues. Internal to task_train.c and training_start.c.
*/
#pragma once

#include "report/history.h"
#include "report/ids.h"
#include "report/progress.h"
#include "report/recall.h"
#include "report/record.h"
#include "report/trace.h"
#include "run/early_stopping.h"
#include "session/outputs.h"
#include "session/session.h"
#include "session/signals.h"
#include "session/start_state.h"

typedef struct {
  TrsSession session;
  TrsReader reader;
  TrsPipeline pipeline;
  TrsResults results;
  TrsOutputs outputs;
  TrsHistory history;
  TrsProgress progress;
  TrsIdReport ids;
  TrsTaskRunning metrics; /* NULL if not requested */
  TrsEarlyStopping early;
  TrsLearningRates rates;
  TrsWatchdog watchdog;
  TrsTrace trace;
  TrsStartPoint from;
  TrsCheckpointInfo start; /* updates and samples that the weights had seen before this run */
  char run_id[TRS_RUN_ID_SIZE];
  int64_t first_step; /* the reader's first step */
  int64_t total_steps, per_epoch;
  int64_t done;    /* the reader's step after the last update */
  int64_t samples; /* samples that the weights have seen */
  int64_t checkpoint_every, checkpoint_keep, eval_every, metrics_every, metrics_window;
  int64_t metrics_done;       /* step of the last row of metrics */
  TrsRunningValues *measured; /* [tasks] values of that row */
  TrsMetricValues *evaluated; /* [tasks] values of the last evaluation */
  TrsRecall recall;
  char *metrics_of; /* the label or tasks that the metrics measure, for checkpoints */
  const char *checkpoint_dir, *checkpoint_final, *checkpoint_best;
  TrsCheckpointFolder folder; /* NULL without -checkpoint_dir */
  PetscBool has_checkpoint;   /* the folder holds a checkpoint of this run */
  int64_t kept_at;            /* step of the newest checkpoint since this start, or -1 */
  PetscBool checkpoint_due;   /* a periodic checkpoint waits for the next mean of the copies */
  PetscBool told_of_mean;     /* the log says that checkpoints wait */
  PetscBool stop_waits;       /* a requested stop waits for that mean, too */
  PetscBool told_of_stop;     /* the log says whether it waits */
  PetscBool evaluation_due;   /* the evaluation after the last step is still missing */
  PetscBool told_bad_ids;     /* a step has warned of bad ids; the end reports the total */
  PetscBool told_bad_numbers; /* a step has warned of bad numbers */
  int64_t allocations;        /* allocations in steps after the warm-up */
} TrsTraining;

/*
  Open the checkpoint folder before any other work, because its present owner may have to leave
  first and still occupies memory. Collective on comm. Errors: OPTION, CANT_CREATE, those of
  TrsCheckpointFolderOpen()
*/
PetscErrorCode TrsTrainingOpenFolder(TrsTraining *training, MPI_Comm comm, TrsOptions options);

/*
  Load the initial weights, and for a resumed training its place and its other numbers. Sets
  first_step, run_id, metrics_of, has_checkpoint and evaluation_due. Collective. Errors: those of
  TrsStartStateLoad()
*/
PetscErrorCode TrsTrainingLoad(TrsTraining *training);
