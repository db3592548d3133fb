/* SPDX-License-Identifier: BSD-3-Clause */
/* The definition of TrshardCollection. Internal to api/. */
#pragma once

#include "api/machine.h"
#include "api/trshard.h"
#include "data/id_map.h"
#include "optim/schedule.h"
#include "shard/sharded_ebc.h"
#include "spec/mapping.h"
#include "spec/text.h"
#include "train/device_batch.h"

/*
  A batch between its input dist and its backward. Its slot in the tables is its index in the ring
  of batches.
*/
typedef struct {
  TrsBatch batch; /* the ids as rows of the tables, in memory from which the device copies */
  TrsDeviceBatch copy;
  enum { TRS_IDS_COUNTED, TRS_IDS_SENT, TRS_IDS_ARRIVED } ids; /* progress of the input dist */
} TrsApiBatch;

/* A mapping, and the path of its file. Both are owned, or NULL. */
typedef struct {
  char *path, *text;
} TrsKeptMapping;

struct TrshardCollectionImpl {
  MPI_Comm comm; /* a duplicate of the caller's communicator */
  TrsOptions options;
  TrsMachine machine;
  TrsTableConfigs tables;
  TrsShardingPlan plan;
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs *step_args; /* [optimizers.n] */
  TrsSchedule schedule;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDeviceOps host; /* the operations of TrsDeviceStaging() */
  TrsStream stream;  /* all work is enqueued here */
  PetscBool stream_made;
  PetscBool has_caller; /* the caller gave a stream */
  /* the caller's stream, to which we add only waits and the event `reached` */
  TrsStream caller;
  TrsEvent reached; /* recorded on our or the caller's stream at the begin or end of a call */
  int n_features;
  int64_t *columns;        /* [n_features] first column of each feature in the caller's matrix */
  int64_t *places_columns; /* [n_features] first column of each feature in `places` */
  int64_t width;
  const TrsTableConfig **table_of; /* [n_features] */
  TrsIdMap *map;                   /* [n_features] how each feature maps ids to rows */
  PetscBool weighted;              /* true if any table is weighted */
  PetscBool by_id;                 /* pooling is none: each id has a row of its own (rows.c) */
  /* true if the backward would change the gradient matrix, because it clamps, rounds or divides */
  PetscBool changes;
  /* float [bags, places_width] embeddings in the library's own memory */
  TrsDeviceBuffer places;
  int64_t places_width;   /* number of columns of all features together */
  TrsWorkspace workspace; /* scratch memory of rows.c */
  int64_t batch_size;
  int64_t step;  /* number of updates done */
  double factor; /* the caller's factor of all learning rates */
  char *plan_text;
  /* Training batches use slots 0 .. TRS_TRAINING_SLOTS - 1 in turn; an evaluation uses the next
     slot. */
  TrsApiBatch slot[TRS_TRAINING_SLOTS + 1];
  int oldest, n_started; /* slot of the oldest batch under way; number of batches under way */
  TrshardReader readers; /* open readers, the newest first (read.c) */
  /*
    The mappings on rank 0: of the data of the last reader whose data has one, and of the last
    checkpoint that was loaded and has one. TrshardSave() writes the first, else the second. The
    texts and paths are owned; they are NULL if there is no mapping.
  */
  TrsKeptMapping of_data, of_file;
  PetscBool forwarded; /* the forward of the oldest batch was done */
};

/*
  The wrapper of every public function's body. A body uses PETSc's error chain. TrsApiEnter()
  silences the chain and sets this thread's C locale, as in the program. TrsApiFinish() restores
  PETSc and the caller's locale, and converts the error into its code.
*/
#define TRS_API_CALL(body) (TrsApiEnter() ? (int)TRSHARD_ERROR_INTERNAL : TrsApiFinish(body))
/* TRS_API_CALL() for a function that needs MPI and a living object, which messages call `what`. */
#define TRS_API_CALL_WITH(object, what, body) \
  TRS_API_CALL(TrsApiAlive((object), __func__, what) || TrsApiMpiGoesOn() ? TRS_ERR_OPTION : (body))
#define TRS_API_CALL_OF(c, body) \
  TRS_API_CALL_WITH(c, "collection", TrsApiUseDevice(c) ? TRS_ERR_UNAVAILABLE : (body))
/*
  TRS_API_CALL() for a body that frees memory after a failed call. The message of the failed call is
  kept.
*/
#define TRS_API_CLEAR(body) ((void)(TrsApiEnterAgain() ? 0 : TrsApiFinish(body)))
PetscErrorCode TrsApiEnter(void);
PetscErrorCode TrsApiEnterAgain(void);
/* Make the collection's device this thread's device until TrsApiFinish(). Not collective. */
PetscErrorCode TrsApiUseDevice(TrshardCollection collection);
int TrsApiFinish(PetscErrorCode ierr);

/*
  Check comm, and start PETSc if it has not started. MPI must have started. Not collective. Returns
  a status, and on failure sets this thread's message.
*/
int TrsApiStart(MPI_Comm comm);

/*
  Set this thread's message without PETSc. `message` is borrowed. If it is NULL, the message is that
  of PETSc's last error.
*/
void TrsApiEarlyError(const char *message);

/*
  Make ids outside of a table an error, unless an option sets another mode. The library reports no
  count of repaired ids, so they would stay unnoticed. Not collective.
*/
PetscErrorCode TrsApiRefuseBadIds(TrsOptions options, TrsTableConfigs *tables);

/* Check that a pointer is not NULL. Not collective. Errors: OPTION with the function's name */
PetscErrorCode TrsApiGiven(const void *pointer, const char *function, const char *what);

/*
  Handles of objects, on any thread. TrsApiHandleCreate() allocates a zeroed object and makes its
  handle alive; *handle is the caller's variable, of any pointer type. TrsApiHandleTake() ends the
  handle's life. It returns true to exactly one caller, who must then free the memory to which the
  object points, and call TrsApiHandleFree(). A function must check that a handle is alive before it
  reads through the handle.
*/
PetscErrorCode TrsApiHandleCreate(size_t bytes, void *handle);
int TrsApiHandleIsAlive(const void *handle);
int TrsApiHandleTake(void *handle);
void TrsApiHandleFree(void *handle);

/* Check that a handle is alive. Not collective. Errors: OPTION with the function's name */
PetscErrorCode TrsApiAlive(const void *handle, const char *function, const char *what);

/*
  On rank 0, keep a mapping for TrshardSave() in *kept, which is the collection's of_data or
  of_file. Refuse the mapping if it differs from the other of these two in a feature of the
  collection. A mapping without a text leaves *kept unchanged. Collective. Errors (agreed): DATA
*/
PetscErrorCode TrsApiKeepMapping(TrshardCollection collection, const TrsMapping *mapping,
                                 TrsKeptMapping *kept);
/* Free the collection's mappings. Not collective. */
PetscErrorCode TrsApiFreeMappings(TrshardCollection collection);

/* Close all open readers of a collection. Collective. */
PetscErrorCode TrsApiReadersClose(TrshardCollection collection);

/* Check that MPI is not finalised. Not collective. Errors: OPTION */
PetscErrorCode TrsApiMpiGoesOn(void);

/*
  Combine the words of config.options with the words for the structs' fields. Collective. Errors:
  OPTION, also for words of config.options that set what the structs set
*/
PetscErrorCode TrsApiOptions(MPI_Comm comm, const TrshardConfig *config, TrsOptions *options);

/* Read the options of a dataset's reader from one text. Collective. */
PetscErrorCode TrsApiReaderOptions(MPI_Comm comm, int64_t batch_size, const char *options,
                                   TrsOptions *reader_options);

/* Append a word and its final 0 to the words of a command line. Not collective. */
PetscErrorCode TrsApiAddWord(TrsText *words, const char *word);

/*
  Append the words of a text, separated by white space; double quotes keep white space. If `text` is
  NULL, no words are appended. Not collective.
  Errors: OPTION for a quote that is not closed, naming the text by `what`
*/
PetscErrorCode TrsApiAddText(TrsText *words, const char *what, const char *text);

/*
  Call TrsOptionsCreate() with words that TrsApiAddWord() appended; the first word is the program's
  name. Collective on comm. ierr: this rank's result of making the words.
*/
PetscErrorCode TrsApiOptionsOfWords(MPI_Comm comm, PetscErrorCode ierr, const TrsText *words,
                                    const TrsOptionGroup *const *of, int n_groups, TrsOptions *options);

/* Wait for the ids of all batches that are under way. Collective. */
PetscErrorCode TrsApiAwaitAll(TrshardCollection collection);

/*
  Collections with pooling none, where each id has a row of its own. Each table gets bags of one id.
  TrsApiRowsSpread() gives every feature as many bags as the largest feature has ids, and the bags
  after a feature's last id are empty. Thus the rows form a matrix with columns for each feature.
  Not collective.
*/
PetscErrorCode TrsApiRowsCreate(TrshardCollection collection);
PetscErrorCode TrsApiRowsDestroy(TrshardCollection collection);
PetscErrorCode TrsApiRowsSpread(TrshardCollection collection, TrsKjt *kjt);

/*
  Set *matrix to the collection's buffer `places`, which has space for the embeddings of the slot's
  batch. The next call reuses this buffer.
*/
PetscErrorCode TrsApiPlaces(TrshardCollection collection, int slot, TrsPooledMatrix *matrix);

/*
  Copy the rows of a batch's ids from `places` to the caller's memory, or in the opposite direction.
*/
PetscErrorCode TrsApiRowsCopy(TrshardCollection collection, int slot, float *rows, int64_t stride,
                              PetscBool to_caller);

/*
  Choose the gradient matrix for a backward: normally the caller's matrix. If the backward would
  change it, or if each id has a row of its own, a copy in `places`.
*/
PetscErrorCode TrsApiGradient(TrshardCollection collection, int slot, const float *gradient, int64_t stride,
                              TrsPooledMatrix *matrix);

/*
  Check the ids of a batch, and store them in `batch` as rows of the tables. Not collective. Errors:
  DATA, with feature, sample and id
*/
PetscErrorCode TrsApiTakeBatch(TrshardCollection collection, const TrshardBatch *from, TrsBatch *batch);
