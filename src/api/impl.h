/* SPDX-License-Identifier: BSD-3-Clause */
/* A TrshardCollection from the inside. Internal to api/. */
#pragma once

#include "api/machine.h"
#include "api/trshard.h"
#include "data/id_map.h"
#include "optim/schedule.h"
#include "shard/sharded_ebc.h"
#include "spec/text.h"
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
  PetscBool has_caller; /* the caller gave a stream */
  TrsStream caller;     /* that stream, on which we enqueue only waits and the event */
  TrsEvent reached;     /* our stream, or the caller's, came to the border of a call */
  int n_features;
  int64_t *columns;        /* [n_features] of the caller's matrix */
  int64_t *places_columns; /* [n_features] of `places` */
  int64_t width;
  const TrsTableConfig **table_of; /* [n_features] */
  TrsIdMap *map;                   /* [n_features] */
  PetscBool weighted;              /* some table is */
  PetscBool by_id;                 /* pooling none: a row for each id (rows.c) */
  PetscBool changes;               /* a backward changes its matrix: clamps, rounds or divides */
  TrsDeviceBuffer places;          /* float [bags, places_width] embeddings that stay in here */
  int64_t places_width;            /* columns of all features */
  TrsWorkspace workspace;          /* of rows.c */
  int64_t batch_size;
  int64_t step;  /* updates done */
  double factor; /* of the learning rates */
  char *plan_text;
  /* Batches of trainings are in slots 0 .. TRS_TRAINING_SLOTS - 1 in turn; an evaluation has the
     first slot behind them. */
  TrsApiBatch slot[TRS_TRAINING_SLOTS + 1];
  int oldest, n_started; /* of the ring */
  TrshardReader readers; /* those that are open, the newest first (read.c) */
  PetscBool forwarded;   /* the oldest batch had its forward */
};

/*
  Every public function is a body that uses PETSc's chain of errors. Enter makes the chain silent
  and gives this thread the C locale, as in the program. Finish gives PETSc and the locale back to
  the caller, and turns the error into its code.
*/
#define TRS_API_CALL(body) (TrsApiEnter() ? (int)TRSHARD_ERROR_INTERNAL : TrsApiFinish(body))
/* The same for a body that needs a living object, called `what`, and MPI. */
#define TRS_API_CALL_WITH(object, what, body) \
  TRS_API_CALL(TrsApiAlive((object), __func__, what) || TrsApiMpiGoesOn() ? TRS_ERR_OPTION : (body))
#define TRS_API_CALL_OF(c, body) \
  TRS_API_CALL_WITH(c, "collection", TrsApiUseDevice(c) ? TRS_ERR_UNAVAILABLE : (body))
/* For a body that frees what a failed call left: the message of the first error stays. */
#define TRS_API_CLEAR(body) ((void)(TrsApiEnterAgain() ? 0 : TrsApiFinish(body)))
PetscErrorCode TrsApiEnter(void);
PetscErrorCode TrsApiEnterAgain(void);
/* Give this thread the collection's device until Finish. Not collective. */
PetscErrorCode TrsApiUseDevice(TrshardCollection collection);
int TrsApiFinish(PetscErrorCode ierr);

/*
  Check comm, and start PETSc unless it is started; MPI must be. Not collective. Returns a status,
  with a message of this thread.
*/
int TrsApiStart(MPI_Comm comm);

/* Set this thread's message without PETSc; borrowed. NULL: that of PETSc's last error. */
void TrsApiEarlyError(const char *message);

/*
  Make an id outside of its table an error, unless an option says what to do with it: a caller has
  no report in which repaired ids are counted. Not collective.
*/
PetscErrorCode TrsApiRefuseBadIds(TrsOptions options, TrsTableConfigs *tables);

/* Check that a pointer is not NULL. Not collective. Errors: OPTION with the function's name */
PetscErrorCode TrsApiGiven(const void *pointer, const char *function, const char *what);

/*
  The handles of objects. Create allocates an object of zeros and makes it alive, *handle being the
  caller's variable of any pointer type. Take ends its life and is true for one caller only, who
  must then free what the object points to, and call Free. Functions of the library must check that
  a handle is alive before they read through it. Any thread.
*/
PetscErrorCode TrsApiHandleCreate(size_t bytes, void *handle);
int TrsApiHandleIsAlive(const void *handle);
int TrsApiHandleTake(void *handle);
void TrsApiHandleFree(void *handle);

/* Check that a handle is alive. Not collective. Errors: OPTION with the function's name */
PetscErrorCode TrsApiAlive(const void *handle, const char *function, const char *what);

/* Close all readers of a collection that are open. Collective. */
PetscErrorCode TrsApiReadersClose(TrshardCollection collection);

/* Check that MPI is not finalised. Not collective. Errors: OPTION */
PetscErrorCode TrsApiMpiGoesOn(void);

/*
  The words of config.options, and behind them those that say the same as the structs. Collective.
  Errors: OPTION, also for words of config.options that say what the structs say
*/
PetscErrorCode TrsApiOptions(MPI_Comm comm, const TrshardConfig *config, TrsOptions *options);

/* The options of a reader, given as one text. Collective. */
PetscErrorCode TrsApiReaderOptions(MPI_Comm comm, int64_t batch_size, const char *options,
                                   TrsOptions *reader_options);

/* Add a word and its final 0 to the words of a command line. Not collective. */
PetscErrorCode TrsApiAddWord(TrsText *words, const char *word);

/*
  Add the words of a text, which white space or double quotes divide; NULL has none. Not collective.
  Errors: OPTION for a quote that is not closed, naming the text by `what`
*/
PetscErrorCode TrsApiAddText(TrsText *words, const char *what, const char *text);

/*
  TrsOptionsCreate() of such words, the first of which is a program's name. Collective on comm.
  ierr: this rank's result of making the words.
*/
PetscErrorCode TrsApiOptionsOfWords(MPI_Comm comm, PetscErrorCode ierr, const TrsText *words,
                                    const TrsOptionGroup *const *of, int n_groups, TrsOptions *options);

/* Wait for the ids of all batches that are under way. Collective. */
PetscErrorCode TrsApiAwaitAll(TrshardCollection collection);

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
  The gradient that a backward takes: the caller's, or a copy in that matrix, where the backward
  would change it or the rows are those of ids.
*/
PetscErrorCode TrsApiGradient(TrshardCollection collection, int slot, const float *gradient, int64_t stride,
                              TrsPooledMatrix *matrix);

/*
  Check the ids of a batch, and make them rows of tables in `batch`. Not collective. Errors: DATA
  with feature, sample and id.
*/
PetscErrorCode TrsApiTakeBatch(TrshardCollection collection, const TrshardBatch *from, TrsBatch *batch);
