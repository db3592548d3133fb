/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The state of a training, and the code that starts it: it opens the checkpoint folder and finds the
  step at which the training continues. Internal to task_train.c and training_start.c.
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
  /* numbers of updates and samples that the weights had seen before this run */
  TrsCheckpointInfo start;
  char run_id[TRS_RUN_ID_SIZE];
  int64_t first_step; /* the reader's step at the start */
  int64_t total_steps, per_epoch;
  int64_t done;    /* the reader's step after the last update */
  int64_t samples; /* number of samples that the weights have seen */
  int64_t checkpoint_every, checkpoint_keep, eval_every, metrics_every, metrics_window;
  int64_t metrics_done;       /* the step of the last row of metrics */
  TrsRunningValues *measured; /* [tasks] the values in the last row of metrics */
  TrsMetricValues *evaluated; /* [tasks] the values of the last evaluation */
  TrsRecall recall;
  char *metrics_of; /* name of the label or tasks that the metrics measure, for checkpoints */
  const char *checkpoint_dir, *checkpoint_final, *checkpoint_best;
  TrsCheckpointFolder folder; /* NULL without -checkpoint_dir */
  PetscBool has_checkpoint;   /* true: the folder has a checkpoint of this run */
  /* step of the newest checkpoint that was written since this start; -1: there is none */
  int64_t kept_at;
  PetscBool checkpoint_due;   /* true: a periodic checkpoint waits until the copies are averaged */
  PetscBool told_of_mean;     /* true: the log already has a message about this wait */
  PetscBool stop_waits;       /* true: a requested stop also waits until the copies are averaged */
  PetscBool told_of_stop;     /* true: the log has a line about whether the stop waits */
  PetscBool evaluation_due;   /* true: the evaluation after the last step has not been made */
  PetscBool told_bad_ids;     /* true: a step has warned of bad ids; the end reports their total */
  PetscBool told_bad_numbers; /* true: a step has warned of bad numbers */
  int64_t allocations;        /* number of allocations in the steps after the warm-up */
} TrsTraining;

/*
  Open the checkpoint folder. Must be called before any other work: another job may still own the
  folder, and it occupies memory until it ends. Collective on comm. Errors: OPTION, CANT_CREATE,
  those of TrsCheckpointFolderOpen()
*/
PetscErrorCode TrsTrainingOpenFolder(TrsTraining *training, MPI_Comm comm, TrsOptions options);

/*
  Load the initial weights. For a resumed training, also load its position in the data and its other
  numbers. Sets first_step, run_id, metrics_of, has_checkpoint and evaluation_due. Collective.
  Errors: those of TrsStartStateLoad()
*/
PetscErrorCode TrsTrainingLoad(TrsTraining *training);
