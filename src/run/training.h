/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The state of a training, and the code that starts it: it opens the checkpoint folder and finds the
  step at which the training continues. Internal to task_train.c and training_start.c.
*/
#pragma once

#include "report/history.h"
#include "report/ids.h"
#include "report/kernels.h"
#include "report/progress.h"
#include "report/recall.h"
#include "report/record.h"
#include "report/trace.h"
#include "run/beside.h"
#include "run/deltas.h"
#include "run/early_stopping.h"
#include "run/increments.h"
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
  TrsKernelReport kernels;
  TrsStartPoint from;
  TrsFollow follow; /* NULL without -data_follow */
  /* numbers of updates and samples that the weights had seen before this run */
  TrsCheckpointInfo start;
  char run_id[TRS_RUN_ID_SIZE];
  int64_t first_step; /* the reader's step at the start */
  int64_t total_steps, per_epoch;
  int64_t done;    /* the reader's step after the last update */
  int64_t samples; /* number of samples that the weights have seen */
  /* Only with -data_follow: number of samples of the stream before step `done`. */
  int64_t position;
  double waited_s; /* time spent waiting for data */
  int64_t n_waits;
  PetscClassId wait_class;
  PetscLogEvent wait_event; /* the row of -log_view for these waits */
  int64_t checkpoint_every, checkpoint_keep, eval_every, metrics_every, metrics_window;
  int64_t metrics_done;       /* the step of the last row of metrics */
  TrsRunningValues *measured; /* [tasks] the values in the last row of metrics */
  TrsMetricValues *evaluated; /* [tasks] the values of the last evaluation */
  int64_t evaluated_at;       /* the reader's step of the last complete evaluation; -1: none */
  TrsMetricValues *ahead;     /* [tasks] the values of the last evaluation of -eval_ahead */
  TrsRecall recall;
  char *metrics_of; /* name of the label or tasks that the metrics measure, for checkpoints */
  const char *checkpoint_dir, *checkpoint_final, *checkpoint_best;
  TrsCheckpointFolder folder; /* NULL without -checkpoint_dir */
  TrsIncrements increments;
  TrsBeside beside;
  TrsDeltas deltas;
  PetscBool has_checkpoint; /* true: the folder has a checkpoint of this run */
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

/*
  If a checkpoint is being written beside the training, go on with it. busy: a rank's thread was
  busy. Collective. Errors (agreed): those of TrsBesideAdvance()
*/
PetscErrorCode TrsTrainingAdvanceCheckpoint(TrsTraining *training, PetscBool busy);

/*
  The next functions are for a training with session.follow (training_follow.c).

  TrsTrainingFollowSetUp() sets the numbers of steps. As long as the stream grows, the total is
  -steps, or has no limit without this option. Must be called after the reader was created.
  Logically collective.
*/
PetscErrorCode TrsTrainingFollowSetUp(TrsTraining *training);

/*
  TrsTrainingFollow - Take new files after a step. If the pipeline had no batch, wait for data.

  Collective. Must be called after each TrsPipelineProgress().

  InOut:  more    in: true if the pipeline did a step. out: true if the training can go on
          result  `stop` is set if a rank was asked to stop during the wait
  Errors (agreed): those of TrsFollowTake()
*/
PetscErrorCode TrsTrainingFollow(TrsTraining *training, TrsStepResult *result, PetscBool *more);

/*
  With -eval_ahead, evaluate the files whose first samples are in the next step. If a stop is
  requested, *stopped is set to true on all ranks. Collective. Errors: those of an evaluation
*/
PetscErrorCode TrsTrainingEvaluateAhead(TrsTraining *training, PetscBool *stopped);

/* Find the place in the stream after step `done`. Not collective. */
void TrsTrainingFollowPlace(const TrsTraining *training, TrsFollowPlace *place);

/* Print and record the numbers of files and waits. Logically collective. */
PetscErrorCode TrsTrainingFollowReport(TrsTraining *training);
