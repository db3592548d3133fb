/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A training from the inside, and how it begins: the folder of its checkpoints, and where it goes
  on. Internal to task_train.c and training_start.c.
*/
#pragma once

#include "report/history.h"
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
  TrsTaskRunning metrics; /* NULL if not wanted */
  TrsEarlyStopping early;
  TrsLearningRates rates;
  TrsWatchdog watchdog;
  TrsTrace trace;
  TrsStartPoint from;
  TrsCheckpointInfo start; /* updates and samples that the weights had seen before this run */
  char run_id[TRS_RUN_ID_SIZE];
  int64_t first_step; /* step of the reader */
  int64_t total_steps, per_epoch;
  int64_t done;    /* the reader's step after the last update */
  int64_t samples; /* samples that the weights have seen */
  int64_t checkpoint_every, checkpoint_keep, eval_every, metrics_every, metrics_window;
  int64_t metrics_done;       /* step of the last row of metrics */
  TrsRunningValues *measured; /* [tasks] the last row of metrics */
  TrsMetricValues *evaluated; /* [tasks] of the last evaluation */
  TrsRecall recall;
  char *metrics_of; /* names of the metrics' tasks, for checkpoints */
  const char *checkpoint_dir, *checkpoint_final, *checkpoint_best;
  TrsCheckpointFolder folder; /* NULL without -checkpoint_dir */
  PetscBool has_checkpoint;   /* the folder holds a checkpoint of this run */
  int64_t kept_at;            /* step of this start's newest checkpoint there, or -1 */
  PetscBool evaluation_due;   /* the evaluation that follows the last step was not made yet */
  PetscBool told_bad_ids;     /* a step has warned of bad ids; the end counts all */
  PetscBool told_bad_numbers; /* likewise */
  int64_t allocations;        /* allocations in steps after the warm-up */
} TrsTraining;

/*
  Open the folder of checkpoints before any other work, because another owner that has to leave
  first still holds its memory. Collective on comm. Errors: OPTION, CANT_CREATE, those of
  TrsCheckpointFolderOpen()
*/
PetscErrorCode TrsTrainingOpenFolder(TrsTraining *training, MPI_Comm comm, TrsOptions options);

/*
  Load the weights to start from, and for a resumed training its place and its other numbers. Sets
  first_step, run_id, metrics_of, has_checkpoint and evaluation_due. Collective. Errors: those of
  TrsStartStateLoad()
*/
PetscErrorCode TrsTrainingLoad(TrsTraining *training);
