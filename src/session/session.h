/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A session holds what all tasks that run a model on data have in common: device, communicators,
  datasets, tables, plan and model, built in this order.
*/
#pragma once

#include "api/machine.h"
#include "data/reader.h"
#include "io/checkpoint/checkpoint.h"
#include "train/metrics/evaluate.h"

typedef struct {
  MPI_Comm comm; /* for set-up, files and metrics */
  int rank, size;
  TrsOptions options; /* borrowed */
  TrsMachine machine;
  TrsDataset train, eval; /* NULL if not given */
  const char *group;      /* -metrics_group, or NULL */
  /* Name of the label that is trained or evaluated, NULL if it has none or -tasks are given. */
  const char *label;
  TrsTaskConfigs tasks; /* what the model learns */
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsModelParallel model;
  TrsState state; /* all tensors of a checkpoint */
  /* Bad ids of the evaluation data were reported. Each further evaluation would report the same
     ids. */
  PetscBool told_of_bad_ids;
  uint64_t seed;
  int64_t batch_size;         /* B of a full batch */
  int64_t step_batch;         /* samples of a rank in a full training step */
  PetscBool keeps_embeddings; /* TrsModelParallelConfig; set between Open and Build */
  TrsReader eval_reader;      /* of TrsSessionEvaluate(), or NULL */
  TrsEvaluation evaluation;   /* under way, or NULL */
} TrsSession;

/*
  TrsSessionCreate - Build everything from the options to a model. A checkpoint or
    TrsModelParallelFillTables() fills its tables.

  Collective on comm. With `training`, -data_train is required, and there are gradients and
  optimizers. Otherwise -data_eval is required.

  Errors: OPTION, DATA, NO_INPUT, NO_PLAN, UNAVAILABLE, MEMORY
*/
PetscErrorCode TrsSessionCreate(MPI_Comm comm, TrsOptions options, PetscBool training, TrsSession *session);

/*
  TrsSessionOpen, TrsSessionBuild - The two halves of TrsSessionCreate().

  Open sets up what is given (machine, datasets, tables), and Build makes plan and model. Between
  the two calls tables' data types may change. Collective on comm.

  In:  quantised  the plan is for quantised tables, which the model holds as TrsModelParallelConfig
                  says; the session's state has only the dense layers
*/
PetscErrorCode TrsSessionOpen(MPI_Comm comm, TrsOptions options, PetscBool training, TrsSession *session);
PetscErrorCode TrsSessionBuild(TrsSession *session, PetscBool training, PetscBool quantised);

/*
  Check that the evaluation's data has labels. Open does so for a training. Not collective. Errors:
  DATA
*/
PetscErrorCode TrsSessionNeedLabels(const TrsSession *session);

/*
  Free a session, also one whose Open or Build failed. Collective. Ends an evaluation that failed,
  too.
*/
PetscErrorCode TrsSessionDestroy(TrsSession *session);

/* The tables of the options. The dataset supplies what the options leave open. Not collective. */
PetscErrorCode TrsSessionTables(TrsOptions options, TrsDataset dataset, TrsTableConfigs *tables);

/*
  Create a reader of the session's training or evaluation data from a step on, and set it up. Free
  it with TrsReaderDestroy(). Collective.
*/
PetscErrorCode TrsSessionReader(TrsSession *session, PetscBool training, int64_t first_step,
                                TrsReader *reader);

/*
  Evaluate the session's model on its evaluation data (TrsEvaluationRun()). session->eval_reader has
  read them, and is destroyed by the caller, or with the session. Collective.
*/
PetscErrorCode TrsSessionEvaluate(TrsSession *session, TrsOptions overlap, const TrsEvaluationTarget *target,
                                  const TrsBatchObserver *observer, const volatile int *stop,
                                  TrsMetricValues *values, PetscBool *stopped);
