/* SPDX-License-Identifier: BSD-3-Clause */
/* A TrshardCollection from the inside. Internal to api/. */
#pragma once

#include "api/machine.h"
#include "api/trshard.h"
#include "data/id_map.h"
#include "optim/schedule.h"
#include "shard/sharded_ebc.h"
#include "train/device_batch.h"

/* A batch from its input dist to its backward. Its slot in the tables is its place in the ring. */
typedef struct {
  TrsBatch batch; /* the ids as rows, in memory that the device copies from */
  TrsDeviceBatch copy;
  enum { TRS_IDS_COUNTED, TRS_IDS_SENT, TRS_IDS_ARRIVED } ids; /* how far the input dist is */
} TrsApiBatch;

struct TrshardCollectionImpl {
  MPI_Comm comm; /* own duplicate */
  TrsOptions options;
  TrsMachine machine;
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs *step_args; /* [optimizers.n] */
  TrsSchedule schedule;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDeviceOps host; /* TrsDeviceStaging() */
  TrsStream stream;  /* of all the work */
  PetscBool stream_made;
  int n_features;
  int64_t *columns;        /* [n_features] of the caller's matrix */
  int64_t *places_columns; /* [n_features] of `places` */
  int64_t width;
  const TrsTableConfig **table_of; /* [n_features] */
  TrsIdMap *map;                   /* [n_features] */
  PetscBool weighted;              /* some table is */
  PetscBool by_id;                 /* pooling none: a row for each id (rows.c) */
  TrsDeviceBuffer places;          /* float [bags, places_width] embeddings that stay in here */
  int64_t places_width;            /* columns of all features */
  TrsWorkspace workspace;          /* by_id */
  int64_t batch_size;
  int64_t step;  /* updates done */
  double factor; /* of the learning rates */
  char *plan_text;
  /* Batches of trainings are in slots 0 .. TRS_TRAINING_SLOTS - 1 in turn; an evaluation has the
     first slot behind them. */
  TrsApiBatch slot[TRS_TRAINING_SLOTS + 1];
  int oldest, n_started; /* of the ring */
  PetscBool forwarded;   /* the oldest batch had its forward */
};

/*
  Every public function is a body that uses PETSc's chain of errors. Enter makes the chain silent,
  as in the program. Finish gives PETSc back to the caller, and turns the error into its code.
*/
#define TRS_API_CALL(body) (TrsApiEnter() ? (int)TRSHARD_ERROR_INTERNAL : TrsApiFinish(body))
PetscErrorCode TrsApiEnter(void);
int TrsApiFinish(PetscErrorCode ierr);

/* The words of config.options, in front of them those that say the same as the structs. */
PetscErrorCode TrsApiOptions(MPI_Comm comm, const TrshardConfig *config, TrsOptions *options);

/*
  Collections of rows (pooling none). Their tables get bags of one id: Spread makes as many bags of
  each feature as the feature with most ids has, and the bags behind a feature's ids are empty. So
  rows lie in a matrix with columns for each feature. Not collective.
*/
PetscErrorCode TrsApiRowsCreate(TrshardCollection collection);
PetscErrorCode TrsApiRowsDestroy(TrshardCollection collection);
PetscErrorCode TrsApiRowsSpread(TrshardCollection collection, TrsKjt *kjt);

/* A matrix of the library for a batch's embeddings, borrowed until the next call. */
PetscErrorCode TrsApiPlaces(TrshardCollection collection, int slot, TrsPooledMatrix *matrix);

/* Copy the rows of a batch's ids from that matrix to the caller's memory, or back. */
PetscErrorCode TrsApiRowsCopy(TrshardCollection collection, int slot, float *rows, int64_t stride,
                              PetscBool to_caller);

/*
  Check the ids of a batch, and make them rows of tables in `batch`. Not collective. Errors: DATA
  with feature, sample and id.
*/
PetscErrorCode TrsApiTakeBatch(TrshardCollection collection, const TrshardBatch *from, TrsBatch *batch);
