/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A session holds the parts that all tasks need to run a model on data: device, communicators,
  datasets, tables, plan and model. They are built in this order.
*/
#pragma once

#include "api/machine.h"
#include "data/reader.h"
#include "io/checkpoint/checkpoint.h"
#include "session/follow.h"
#include "train/metrics/evaluate.h"

typedef struct {
  MPI_Comm comm; /* used for set-up, files and metrics */
  int rank, size;
  TrsOptions options; /* borrowed */
  TrsMachine machine;
  TrsDataset train, eval; /* NULL if the option is not given */
  TrsFollow follow;       /* borrowed; NULL if the training data does not grow */
  const char *group;      /* value of -metrics_group, or NULL */
  /* Name of the label to train or evaluate. NULL if the label has no name or -tasks are given. */
  const char *label;
  /* On rank 0, the mapping that the run's files carry, or NULL. TrsSessionTakeMapping() sets it. */
  const char *mapping;
  TrsTaskConfigs tasks; /* tasks that the model learns */
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsModelParallel model;
  TrsState state; /* all tensors that a checkpoint has */
  /*
    true: the bad ids of the evaluation data were reported. A further evaluation would report the
    same ids again.
  */
  PetscBool told_of_bad_ids;
  uint64_t seed;
  int64_t batch_size; /* B, number of samples per rank in a full batch */
  int64_t step_batch; /* number of samples per rank in a full training step */
  int64_t eval_batch; /* number of samples per rank in a full batch of an evaluation */
  /* as in TrsModelParallelConfig; the caller sets it between Open and Build */
  PetscBool keeps_embeddings;
  TrsReader eval_reader;    /* the reader of TrsSessionEvaluate(), or NULL */
  TrsEvaluation evaluation; /* the evaluation in progress, or NULL */
} TrsSession;

/*
  TrsSessionCreate - Build all parts of a session from the options. The model's tables are empty
    until a checkpoint or TrsModelParallelFillTables() fills them.

  Collective on comm. With `training`, -data_train or `follow` is required, and the model has
  gradients and optimizers. Otherwise -data_eval is required.

  In:     follow  the folder that a training follows, borrowed; or NULL
  Errors: OPTION, DATA, NO_INPUT, NO_PLAN, UNAVAILABLE, MEMORY; with `follow` also STOPPED
*/
PetscErrorCode TrsSessionCreate(MPI_Comm comm, TrsOptions options, PetscBool training, TrsFollow follow,
                                TrsSession *session);

/*
  TrsSessionOpen, TrsSessionBuild - The two halves of TrsSessionCreate().

  Open sets up the inputs (machine, datasets, tables), and Build makes the plan and the model. The
  caller may change the tables' data types between the two calls. Collective on comm.

  In:  quantised  true: the plan and the model are for quantised tables (TrsModelParallelConfig),
                  and the session's state has only the dense layers
*/
PetscErrorCode TrsSessionOpen(MPI_Comm comm, TrsOptions options, PetscBool training, TrsFollow follow,
                              TrsSession *session);
PetscErrorCode TrsSessionBuild(TrsSession *session, PetscBool training, PetscBool quantised);

/*
  Check that the evaluation data has labels. For a training, Open already does this. Not collective.
  Errors: DATA
*/
PetscErrorCode TrsSessionNeedLabels(const TrsSession *session);

/*
  Free a session, even if Open or Build failed. If an evaluation failed, it is ended first.
  Collective.
*/
PetscErrorCode TrsSessionDestroy(TrsSession *session);

/*
  Make the tables from the options. The dataset supplies values that the options leave open. With
  `training`, the tables must have all rows that the dataset declares. Not collective.
*/
PetscErrorCode TrsSessionTables(TrsOptions options, TrsDataset dataset, PetscBool training,
                                TrsTableConfigs *tables);

/*
  Create a reader of the session's training or evaluation data that starts at `first_step`, and set
  it up. Free it with TrsReaderDestroy(). Collective.
*/
PetscErrorCode TrsSessionReader(TrsSession *session, PetscBool training, int64_t first_step,
                                TrsReader *reader);

/*
  Evaluate the session's model on its evaluation data (TrsEvaluationRun()). session->eval_reader
  reads the data. The caller or TrsSessionDestroy() destroys this reader. Collective.
*/
PetscErrorCode TrsSessionEvaluate(TrsSession *session, TrsOptions overlap, const TrsEvaluationTarget *target,
                                  const TrsBatchObserver *observer, const volatile int *stop,
                                  TrsMetricValues *values, PetscBool *stopped);

/*
  Evaluate the session's model on a file of the stream that the model has not been trained on.
  Collective. The other arguments are those of TrsSessionEvaluate().
*/
PetscErrorCode TrsSessionEvaluateAhead(TrsSession *session, const TrsFollowAhead *ahead,
                                       const volatile int *stop, TrsMetricValues *values, PetscBool *stopped);
