/* SPDX-License-Identifier: BSD-3-Clause */
/* The definition of TrshardCollection. Internal to api/. */
#pragma once

#include "api/machine.h"
#include "api/trshard.h"
#include "data/id_map.h"
#include "optim/schedule.h"
#include "shard/sharded_ebc.h"
#include "spec/text.h"
#include "train/device_batch.h"

/* A batch from its input dist to its backward. Its slot in the tables is its index in the ring. */
typedef struct {
  TrsBatch batch; /* the ids as rows, in memory that the device copies from */
  TrsDeviceBatch copy;
  enum { TRS_IDS_COUNTED, TRS_IDS_SENT, TRS_IDS_ARRIVED } ids; /* progress of the input dist */
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
  TrsStream stream;  /* all work is enqueued here */
  PetscBool stream_made;
  PetscBool has_caller; /* the caller gave a stream */
  TrsStream caller;     /* the caller's stream, on which we enqueue only waits and the event */
  TrsEvent reached;     /* recorded on either stream where a call begins or ends */
  int n_features;
  int64_t *columns;        /* [n_features] of the caller's matrix */
  int64_t *places_columns; /* [n_features] of `places` */
  int64_t width;
  const TrsTableConfig **table_of; /* [n_features] */
  TrsIdMap *map;                   /* [n_features] */
  PetscBool weighted;              /* true if any table is weighted */
  PetscBool by_id;                 /* pooling none: a row for each id (rows.c) */
  /* the backward would change its gradient matrix: it clamps, rounds or divides */
  PetscBool changes;
  /* float [bags, places_width] embeddings that stay in the library */
  TrsDeviceBuffer places;
  int64_t places_width;   /* columns of all features */
  TrsWorkspace workspace; /* of rows.c */
  int64_t batch_size;
  int64_t step;  /* number of updates done */
  double factor; /* of the learning rates */
  char *plan_text;
  /* Training batches use slots 0 .. TRS_TRAINING_SLOTS - 1 in turn; an evaluation uses the next
     slot. */
  TrsApiBatch slot[TRS_TRAINING_SLOTS + 1];
  int oldest, n_started; /* slot of the oldest batch in the ring; number of batches in it */
  TrshardReader readers; /* open readers, the newest first (read.c) */
  PetscBool forwarded;   /* the oldest batch had its forward */
};

/*
  Every public function wraps a body that uses PETSc's error chain. Enter silences the chain and
  sets this thread's C locale, as in the program. Finish restores PETSc and the caller's locale, and
  converts the error into its code.
*/
#define TRS_API_CALL(body) (TrsApiEnter() ? (int)TRSHARD_ERROR_INTERNAL : TrsApiFinish(body))
/* The same for a body that needs MPI and a living object, named `what` in messages. */
#define TRS_API_CALL_WITH(object, what, body) \
  TRS_API_CALL(TrsApiAlive((object), __func__, what) || TrsApiMpiGoesOn() ? TRS_ERR_OPTION : (body))
#define TRS_API_CALL_OF(c, body) \
  TRS_API_CALL_WITH(c, "collection", TrsApiUseDevice(c) ? TRS_ERR_UNAVAILABLE : (body))
/* For a body that frees the remains of a failed call. The message of the first error is kept. */
#define TRS_API_CLEAR(body) ((void)(TrsApiEnterAgain() ? 0 : TrsApiFinish(body)))
PetscErrorCode TrsApiEnter(void);
PetscErrorCode TrsApiEnterAgain(void);
/* Make the collection's device this thread's device until Finish. Not collective. */
PetscErrorCode TrsApiUseDevice(TrshardCollection collection);
int TrsApiFinish(PetscErrorCode ierr);

/*
  Check comm, and start PETSc if it has not started. MPI must have started. Not collective. Returns
  a status, and sets this thread's message.
*/
int TrsApiStart(MPI_Comm comm);

/*
  Set this thread's message without PETSc; borrowed. NULL: use the message of PETSc's last error.
*/
void TrsApiEarlyError(const char *message);

/*
  Make an id outside of its table an error unless an option sets another mode, because a library's
  caller gets no report that counts repaired ids. Not collective.
*/
PetscErrorCode TrsApiRefuseBadIds(TrsOptions options, TrsTableConfigs *tables);

/* Check that a pointer is not NULL. Not collective. Errors: OPTION with the function's name */
PetscErrorCode TrsApiGiven(const void *pointer, const char *function, const char *what);

/*
  Handles of objects. Create allocates a zeroed object and makes it alive; *handle is the caller's
  variable, of any pointer type. Take ends its life and returns true to one caller only, who must
  then free what the object points to, and call Free. Functions of the library must check that a
  handle is alive before they read through it. Any thread.
*/
PetscErrorCode TrsApiHandleCreate(size_t bytes, void *handle);
int TrsApiHandleIsAlive(const void *handle);
int TrsApiHandleTake(void *handle);
void TrsApiHandleFree(void *handle);

/* Check that a handle is alive. Not collective. Errors: OPTION with the function's name */
PetscErrorCode TrsApiAlive(const void *handle, const char *function, const char *what);

/* Close all open readers of a collection. Collective. */
PetscErrorCode TrsApiReadersClose(TrshardCollection collection);

/* Check that MPI is not finalised. Not collective. Errors: OPTION */
PetscErrorCode TrsApiMpiGoesOn(void);

/*
  Combine the words of config.options with the words for the structs' fields. Collective. Errors:
  OPTION, also for words of config.options that set what the structs set
*/
PetscErrorCode TrsApiOptions(MPI_Comm comm, const TrshardConfig *config, TrsOptions *options);

/* Read the options of a reader from one text. Collective. */
PetscErrorCode TrsApiReaderOptions(MPI_Comm comm, int64_t batch_size, const char *options,
                                   TrsOptions *reader_options);

/* Append a word and its final 0 to the words of a command line. Not collective. */
PetscErrorCode TrsApiAddWord(TrsText *words, const char *word);

/*
  Append the words of a text, separated by white space; double quotes keep white space. NULL has no
  words. Not collective.
  Errors: OPTION for a quote that is not closed, naming the text by `what`
*/
PetscErrorCode TrsApiAddText(TrsText *words, const char *what, const char *text);

/*
  Call TrsOptionsCreate() with such words; the first word is the program's name. Collective on comm.
  ierr: this rank's result of making the words.
*/
PetscErrorCode TrsApiOptionsOfWords(MPI_Comm comm, PetscErrorCode ierr, const TrsText *words,
                                    const TrsOptionGroup *const *of, int n_groups, TrsOptions *options);

/* Wait for the ids of all batches that are under way. Collective. */
PetscErrorCode TrsApiAwaitAll(TrshardCollection collection);

/*
  Collections of rows (pooling none). Their tables get bags of one id: Spread gives every feature as
  many bags as the largest feature has ids, and the bags after a feature's last id are empty. Thus
  the rows form a matrix with columns for each feature. Not collective.
*/
PetscErrorCode TrsApiRowsCreate(TrshardCollection collection);
PetscErrorCode TrsApiRowsDestroy(TrshardCollection collection);
PetscErrorCode TrsApiRowsSpread(TrshardCollection collection, TrsKjt *kjt);

/* The library's own matrix for a batch's embeddings (`places`), borrowed until the next call. */
PetscErrorCode TrsApiPlaces(TrshardCollection collection, int slot, TrsPooledMatrix *matrix);

/* Copy the rows of a batch's ids from `places` to the caller's memory, or back. */
PetscErrorCode TrsApiRowsCopy(TrshardCollection collection, int slot, float *rows, int64_t stride,
                              PetscBool to_caller);

/*
  The gradient for a backward: the caller's matrix, or a copy in `places` if the backward would
  change it or if the collection has a row for each id.
*/
PetscErrorCode TrsApiGradient(TrshardCollection collection, int slot, const float *gradient, int64_t stride,
                              TrsPooledMatrix *matrix);

/*
  Check the ids of a batch, and store them in `batch` as rows of the tables. Not collective. Errors:
  DATA with feature, sample and id
*/
PetscErrorCode TrsApiTakeBatch(TrshardCollection collection, const TrshardBatch *from, TrsBatch *batch);
