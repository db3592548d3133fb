/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Session: what every task that runs a model on data has in common - device, communicators, datasets, tables, plan, model - built in that order.
*/
#pragma once

#include "data/reader.h"
#include "device/cpu_bind.h"
#include "io/checkpoint.h"
#include "train/model_parallel.h"

typedef struct {
  MPI_Comm comm; /* set-up, files, metrics */
  int rank, size;
  TrsOptions options; /* borrowed */
  const TrsDeviceOps *device;
  char binding
      [TRS_CPU_TEXT]; /* of this host's threads to cores; "": with a device of its own they are left alone */
  const TrsComputeOps *compute;
  TrsCommGroups groups;
  TrsDataset train, eval; /* NULL: not given */
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsModelParallel model;
  TrsState state;            /* all tensors of a checkpoint */
  PetscBool told_of_bad_ids; /* of the evaluation data: each evaluation would say the same */
  uint64_t seed;
  int64_t batch_size; /* B, of a full batch */
} TrsSession;

/*
  TrsSessionCreate - From options to a model, whose tables TrsModelParallelFillTables() or a checkpoint fills.

  Collective on comm. training: -data_train is required, and there are gradients and optimizers; else -data_eval is.
  Errors: OPTION, DATA, NO_INPUT, NO_PLAN, UNAVAILABLE, MEMORY
*/
PetscErrorCode TrsSessionCreate(MPI_Comm comm, TrsOptions options, PetscBool training, TrsSession *session);

/*
  TrsSessionOpen, TrsSessionBuild - The two halves of TrsSessionCreate(): what is given (machine, datasets, tables), and what is made of it (plan, model).

  Collective on comm. Between them tables' data types may change. quantised: the plan is one for quantised tables, which the model holds as
  TrsModelParallelConfig says; the session's state has the dense layers alone.
*/
PetscErrorCode TrsSessionOpen(MPI_Comm comm, TrsOptions options, PetscBool training, TrsSession *session);
PetscErrorCode TrsSessionBuild(TrsSession *session, PetscBool training, PetscBool quantised);

/* The machine's part alone: device, kernels, communicators. Collective on comm. Errors: OPTION, UNAVAILABLE */
PetscErrorCode TrsSessionCreateMachine(MPI_Comm comm, TrsOptions options, TrsSession *session);
PetscErrorCode TrsSessionDestroy(TrsSession *session);

/* The tables that the options name, with what the dataset says of them where they do not. Not collective. */
PetscErrorCode TrsSessionTables(TrsOptions options, TrsDataset dataset, TrsTableConfigs *tables);

/* A reader of the session's training or evaluation data from a step on, set up. Collective. Free with TrsReaderDestroy(). */
PetscErrorCode TrsSessionReader(TrsSession *session, PetscBool training, int64_t first_step,
                                TrsReader *reader);
