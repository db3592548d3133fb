/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libtrshard: sharded embedding tables for a model of your own.

  A collection is a set of embedding tables that a plan spreads over the ranks of a communicator,
  with their exchanges and optimizers. Your program brings the rest of the model: it gives a batch's
  ids, gets pooled embeddings, and gives back their gradients.

    TrshardCollectionCreate(comm, &config, &collection);
    for each step:
      TrshardInputDist(collection, &batch);                    ids travel to their shards
      TrshardForward(collection, pooled, stride);              pooled embeddings come back
      TrshardBackward(collection, gradient, stride);           rows are updated
    TrshardCollectionDestroy(&collection);

  To hide the exchange of ids, call TrshardInputDist() for the next batch before TrshardForward() of
  this one: up to TRSHARD_BATCHES may be under way.

  A trained model predicts without ranks and without MPI, on any thread: TrshardPredictorOpen().
  Whole runs of the program are a call, too: TrshardRun().

  MPI must be initialised before the first call, with MPI_THREAD_FUNNELED or more, for calls of
  another thread with MPI_THREAD_SERIALIZED or more, and finalised after the last one, but for
  predictors. Numbers are read and written with a decimal point, whatever the locale of the process
  is. Only one thread may call the library at a time, but for TrshardPredict(). "Collective" means:
  all ranks of the communicator, in the same order, with the same arguments but for batches and
  matrices.
  Several collections may live at once. A call uses its collection's GPU, and gives the thread the
  GPU back that it had, if it had one. Nothing here ends the process: functions return 0 or one
  of the codes below, and then TrshardErrorMessage() says what was found and what was expected.
  Mistakes in arguments are found before anything is sent, on all ranks, and leave the collection
  as it was. TrshardForward() and TrshardBackward() alone refuse a matrix on one rank: the other
  ranks wait until that rank has called again, with a right one. After any other error the
  collection can only be destroyed. If one rank alone fails in the middle of an exchange, for
  example for lack of memory, the others wait for it: end the job then, with MPI_Abort().

  A copy of a handle that was destroyed or closed stays a dead handle: every function answers it
  with TRSHARD_ERROR_OPTION, as it does a NULL, and so does a second Destroy through a copy. This
  holds for the last 256 dead handles. At most 4096 objects may be alive at once.

  Pointers to embeddings and gradients are memory of the collection's device: of the host, or with
  -device cuda of the GPU. All other pointers are memory of the host. On a GPU, matrices must be
  complete when a function is called, and are complete when the function returns. A caller who gives
  a CUDA stream (TrshardSetStream()) needs no such waits.
*/
#ifndef TRSHARD_H
#define TRSHARD_H

#include <mpi.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): this header has the prefix of the library. */

#define TRSHARD_API __attribute__((visibility("default")))

/* Number of this interface; libtrshard.so.1 keeps what programs built with 1 use. */
#define TRSHARD_API_VERSION 1

/* The codes are the exit statuses of the program trshard. */
enum {
  TRSHARD_SUCCESS = 0,
  TRSHARD_ERROR_OPTION = 64,      /* an argument, or an option of config.options */
  TRSHARD_ERROR_DATA = 65,        /* ids, or the content of a file */
  TRSHARD_ERROR_NO_INPUT = 66,    /* a file is missing or unreadable */
  TRSHARD_ERROR_UNAVAILABLE = 69, /* device, NCCL or an MPI feature */
  TRSHARD_ERROR_INTERNAL = 70,    /* a bug, or calls in the wrong order */
  TRSHARD_ERROR_MEMORY = 71,
  TRSHARD_ERROR_NO_PLAN = 72, /* the planner found no feasible plan */
  TRSHARD_ERROR_CANT_CREATE = 73,
  TRSHARD_ERROR_IO = 74,
  TRSHARD_STOPPED = 75,         /* a run has ended on request, after a checkpoint: no error */
  TRSHARD_ERROR_LOST = 76,      /* a rank is lost or hangs */
  TRSHARD_ERROR_NOT_FINITE = 78 /* weights are infinite or no numbers */
};

/* Batches that may be under way between TrshardInputDist() and TrshardBackward(). */
enum { TRSHARD_BATCHES = 2 };

/*
  Pooling none gives a row for each id (TorchRec's EmbeddingCollection). Then all tables of the
  collection have it, and one embedding_dim D. Where the functions below speak of a matrix [batch,
  stride] of pooled embeddings or their gradients, such a collection has a matrix [n_values, stride]
  with D columns: the row of each id, in the order of TrshardBatch.values. The id -1 gives zeros.
*/
typedef enum { TRSHARD_POOLING_SUM, TRSHARD_POOLING_MEAN, TRSHARD_POOLING_NONE } TrshardPooling;

/* An embedding table. */
typedef struct {
  const char *name;
  int64_t num_embeddings; /* rows */
  int32_t embedding_dim;  /* columns */
  TrshardPooling pooling;
  int32_t weighted;            /* not 0: each id has a weight, with pooling sum */
  int32_t n_features;          /* with features NULL 0 or 1, else at least 1 */
  const char *const *features; /* [n_features] names; NULL: one feature of the table's name */
} TrshardTable;

/*
  What a collection is made of. `options` are words as on trshard's command line, such as
  "-embedding_optimizer adam -table_user_sharding_types row_wise -options_file run.opts",
  with double quotes around words that have spaces; NULL for none. input/OPTIONS.md describes them.
  Those of tables, optimizers, exchanges, planner and machine are known here, others are an error,
  and so are those that say what the structs say, such as -batch_size and -table_user_pooling.
  Two defaults are a library's: -cpu_bind none, and -bounds_check_mode fatal.
*/
typedef struct {
  int32_t n_tables;
  const TrshardTable *tables;
  int64_t batch_size; /* samples of a rank's largest batch */
  const char *options;
} TrshardConfig;

/*
  The ids of this rank's samples, feature after feature in the order of the tables and of their
  features (TorchRec's KeyedJaggedTensor).
*/
typedef struct {
  int64_t batch;          /* samples, 0 to config.batch_size; may differ from rank to rank */
  const int32_t *lengths; /* [features, batch] ids of each sample */
  int64_t n_values;       /* sum of the lengths */
  const int64_t *values;  /* [n_values] rows of the tables, or ids for their id_map; -1: no row */
  const float *weights;   /* [n_values]; NULL if no table is weighted */
} TrshardBatch;

/* A tensor of the caller's own in a checkpoint: the same on all ranks. */
typedef struct {
  const char *name; /* it becomes dense/<name> in the file */
  int32_t ndim;     /* 1 or 2 */
  int64_t rows, cols;
  float *data; /* host [rows, cols] */
} TrshardTensor;

typedef struct TrshardCollectionImpl *TrshardCollection;

/* The message of the last function that returned an error, "" if none has. Borrowed. */
TRSHARD_API const char *TrshardErrorMessage(void);

/* The library's version, such as "1.0.0", and the number of its interface. */
TRSHARD_API const char *TrshardVersion(int *api_version);

/*
  TrshardCollectionCreate - Plan the tables, allocate this rank's shards, and fill them with their
    initial values.

  Collective on comm, which is duplicated. The arguments are not needed afterwards.

  Errors: OPTION, NO_INPUT, NO_PLAN, UNAVAILABLE, MEMORY
*/
TRSHARD_API int TrshardCollectionCreate(MPI_Comm comm, const TrshardConfig *config,
                                        TrshardCollection *collection);

/*
  TrshardCollectionCreate() for callers that have a communicator's Fortran handle (mpi4py's
  comm.py2f()).
*/
TRSHARD_API int TrshardCollectionCreateFortran(int comm, const TrshardConfig *config,
                                               TrshardCollection *collection);

/*
  The Fortran handle of MPI_COMM_WORLD, for callers without mpi.h. MPI is initialised if nobody has
  done so, and is then finalised at the end of the process. Errors: OPTION if MPI is finalised
*/
TRSHARD_API int TrshardWorld(int *comm);

/*
  Free a collection, after closing its open readers. Collective. *collection may be NULL and becomes
  NULL. Errors: OPTION for a dead handle
*/
TRSHARD_API int TrshardCollectionDestroy(TrshardCollection *collection);

/*
  Where the embeddings of each feature are in a row of the pooled matrix: columns[f] is the first
  column of feature f, *width the number of columns. Any pointer may be NULL. Borrowed until
  Destroy. Not collective.
*/
TRSHARD_API int TrshardCollectionColumns(TrshardCollection collection, int32_t *n_features,
                                         const int64_t **columns, int64_t *width);

/* The plan as JSON text, as -plan_output writes it. Borrowed until Destroy. Not collective. */
TRSHARD_API int TrshardCollectionPlan(TrshardCollection collection, const char **json);

/*
  TrshardInputDist - Check a batch's ids and start to send them to their shards.

  Collective. The batch is copied.

  Errors: DATA, on all ranks, for an id outside of its table (-bounds_check_mode) or lengths that do
          not fit; INTERNAL if TRSHARD_BATCHES are under way. Then nothing has been sent
*/
TRSHARD_API int TrshardInputDist(TrshardCollection collection, const TrshardBatch *batch);

/*
  TrshardForward - Get the pooled embeddings of the oldest batch that has not had its forward.

  Collective.

  Out: pooled  device [batch, stride]; the columns of TrshardCollectionColumns() are written
*/
TRSHARD_API int TrshardForward(TrshardCollection collection, float *pooled, int64_t stride);

/*
  TrshardBackward - Update the rows that the last forward's batch looked up.

  Collective. The step's number, on which some optimizers depend, grows by one.

  In: gradient  device [batch, stride] of the loss of all ranks' samples: a mean over the global
                batch divides by its size
*/
TRSHARD_API int TrshardBackward(TrshardCollection collection, const float *gradient, int64_t stride);

/*
  Get the pooled embeddings of a batch without a backward. This may be called between any two of the
  calls above. Collective. Errors: as for TrshardInputDist().
*/
TRSHARD_API int TrshardEvaluate(TrshardCollection collection, const TrshardBatch *batch, float *pooled,
                                int64_t stride);

/* The samples of a reader's batch; borrowed until the next call for the reader. */
typedef struct {
  TrshardBatch ids; /* for TrshardInputDist() */
  int32_t num_dense, n_labels;
  const float *dense;   /* [batch, num_dense]; NULL without /dense */
  const float *labels;  /* [batch, n_labels]; NULL without /labels */
  const float *weights; /* [batch] of samples; NULL if all count alike */
  int64_t step, epoch;  /* from 0 on */
  int64_t global_batch; /* samples of all ranks */
} TrshardSamples;

typedef struct TrshardReaderImpl *TrshardReader;

/*
  TrshardReaderOpen - Open a dataset (input/FORMAT.md) for the features of a collection.

  Collective. A thread reads ahead. With W ranks and batches of B samples, rank r gets samples
  (s W + r) B to (s W + r + 1) B - 1 of step s, in the order of the epoch.

  In:     paths    [n_paths] files in their order, or patterns such as "day_*.h5"
          options  words as in TrshardConfig: -epochs, -steps, -drop_last, -data_shuffle, -seed,
                   -data_check, -data_dense, -data_weights, -data_read_ahead, -data_repeat_batches,
                   -reader_threads; NULL for none. Others are an error
          step     the first one to read, to resume at the step that TrshardSamples has; else 0
  Errors: NO_INPUT, DATA, OPTION, MEMORY
*/
TRSHARD_API int TrshardReaderOpen(TrshardCollection collection, int32_t n_paths, const char *const *paths,
                                  const char *options, int64_t step, TrshardReader *reader);

/*
  TrshardReaderNext - Read this rank's part of the next global batch.

  Collective. Errors (on all ranks): DATA, IO

  Out: samples  unchanged after the last step
       more     0 after the last step, else 1; the same on all ranks
*/
TRSHARD_API int TrshardReaderNext(TrshardReader reader, TrshardSamples *samples, int32_t *more);

/*
  Close a reader. Collective. *reader may be NULL and becomes NULL. Errors: OPTION for a dead
  handle, also if its collection was destroyed, which closes its readers
*/
TRSHARD_API int TrshardReaderClose(TrshardReader *reader);

/*
  TrshardSetStream - Order the work of the next calls by a CUDA stream of the caller, who then never
    has to wait for the device.

  Work on a matrix begins after all that the stream has when the function is called. What comes to
  the stream after the function returns finds embeddings complete, and may write over a gradient.
  TrshardInputDist() and TrshardEvaluate() still wait for the library's work before them. The caller
  may give another stream at any time. Not collective.

  In:     cuda_stream  a cudaStream_t of the collection's GPU; NULL is CUDA's default stream. The
                       stream must live as long as the collection, or until another one is given
  Errors: OPTION if the collection's device is a CPU
*/
TRSHARD_API int TrshardSetStream(TrshardCollection collection, void *cuda_stream);

/*
  Multiply the learning rates of all tables by `factor` from the next backward on. The factor is 1
  at the start. Not collective; all ranks give the same. Errors: OPTION unless it is finite and 0
  or more, and for another factor than 1 if a table's optimizer is ftrl
*/
TRSHARD_API int TrshardSetLearningRateFactor(TrshardCollection collection, double factor);

/*
  TrshardSave - Write tables, optimizers' states and the caller's tensors to a checkpoint
    (input/FORMAT.md), replacing the file in one step.

  Collective. No batch may be under way.

  In:     tensors  [n_tensors] rank 0's are written
  Errors: NOT_FINITE, CANT_CREATE, IO
*/
TRSHARD_API int TrshardSave(TrshardCollection collection, const char *path, int32_t n_tensors,
                            const TrshardTensor *tensors);

/*
  TrshardLoad - Read a checkpoint of any plan and number of ranks, to go on from its step.

  Collective. No batch may be under way. As with -resume, the file must have the states of the
  tables' optimizers, and of no other optimizers. A file of step 0 may lack states; the collection's
  own then stay. A collection with -embedding_optimizer sgd has no states and takes the weights of
  any file.

  Out:    tensors  [n_tensors] filled on every rank; the file must have them in these shapes
  Errors: NO_INPUT; DATA, also for states of another optimizer. The tables' content is then
          undefined
*/
TRSHARD_API int TrshardLoad(TrshardCollection collection, const char *path, int32_t n_tensors,
                            const TrshardTensor *tensors);

/* A trained model that predicts: tables, layers and all, in this process alone. */
typedef struct TrshardPredictorImpl *TrshardPredictor;

/*
  TrshardPredictorOpen - Read a checkpoint that trshard wrote, for predictions.

  Not collective: each process has a model of its own. Tables that the file has in the type in which
  they are held are mapped, so that the processes of a host share their pages; others are read. The
  file must not be written to until Close; to replace it by another file under its name is no harm,
  and is what trshard does. Each TrshardPredict() first checks the size of a mapped file, so a file
  that was cut gives IO. Only a file that is cut while a call is reading it, or a disk that fails
  then, ends the process with SIGBUS. Tables that are read instead have no such risk:
  -tables_data_type with another type than the file's. MPI is neither initialised nor called: a
  process without MPI can predict, and one with MPI before MPI_Init() and after MPI_Finalize(), too.
  Opening and closing belong to one thread at a time, as all functions above; TrshardPredict() may
  meanwhile run on others.

  In:     options  words as in TrshardConfig; NULL for none. -tables_data_type int8 (int4, int2,
                   fp16, bf16) holds the tables in this type, the default is the checkpoint's;
                   -ema_decay 0 leaves out a training's average of weights; -check_weights false
                   opens a file that is known to be whole: it reads no mapped tables, compares no
                   checksums, and does not fork(). Otherwise children look at the file first, since
                   HDF5 crashes on some damaged ones; a process of many GB takes long to copy, and
                   its other threads wait meanwhile for pages that they write to
  Errors: NO_INPUT, DATA, OPTION, MEMORY, NOT_FINITE
*/
TRSHARD_API int TrshardPredictorOpen(const char *checkpoint, const char *options,
                                     TrshardPredictor *predictor);

/*
  What the model takes and gives: dense features, the names of sparse features in the order of
  TrshardBatch, and numbers for each sample (one for each task, or class of a task). Any pointer may
  be NULL. Borrowed until Close.
*/
TRSHARD_API int TrshardPredictorShape(TrshardPredictor predictor, int32_t *num_dense, int32_t *n_features,
                                      const char *const **features, int32_t *n_outputs);

/*
  TrshardPredict - Predict a batch of any size.

  Not collective. Any number of threads may call it at the same time, and a process that fork() made
  of one with a predictor may, too: the model's memory is read alone, and each call has a workspace
  of its own, which stays for later calls. A call works on its own thread alone, so that a batch too
  large for one thread is best cut by the caller. -task predict gives the same numbers up to the
  order of sums.

  In:     ids          bags as for TrshardInputDist(); weights NULL if no table is weighted
          dense        [batch, num_dense]; NULL if num_dense is 0
  Out:    predictions  [batch, n_outputs]. A batch of 0 samples needs no pointers
  Errors: DATA, as for TrshardInputDist(), and for a dense feature or weight that is not finite; IO
          if mapped tables cannot be read because the model's file has become shorter; MEMORY
*/
TRSHARD_API int TrshardPredict(TrshardPredictor predictor, const TrshardBatch *ids, const float *dense,
                               float *predictions);

/*
  Free a model. No call for it may be under way. *predictor may be NULL and becomes NULL. Errors:
  OPTION for a dead handle
*/
TRSHARD_API int TrshardPredictorClose(TrshardPredictor *predictor);

/*
  TrshardRun - Run a task as the program trshard does: train, eval, predict, plan or bench.

  Collective on comm, which is duplicated; several runs may follow each other, and parts of a job
  may have one each at the same time. What a run reads, writes and prints is what its options say.
  It is the program's run, so threads are bound unless the words have -cpu_bind none, and
  -watchdog_seconds ends the process where ranks wait for ever. PETSc's own options, such as
  -log_view, have no effect here. No signal is handled; a handler of yours may call
  TrshardRequestStop().

  In:     options  words as on trshard's command line, such as "-options_file run.opts -steps 100",
                   with double quotes around words that have spaces; all of input/OPTIONS.md
  Errors: all codes, the same on all ranks, with the message that the program would print. A rank
          that fails alone, while others wait for it, returns its code after a few seconds
*/
TRSHARD_API int TrshardRun(MPI_Comm comm, const char *options);

/* TrshardRun() for callers that have a communicator's Fortran handle. */
TRSHARD_API int TrshardRunFortran(int comm, const char *options);

/*
  Ask the run of this process, or its next one, to stop at its next step or batch. All ranks of the
  run stop with it. A training writes a checkpoint to -checkpoint_dir then, and TrshardRun() returns
  TRSHARD_STOPPED. This may be called by a signal handler and by any thread.
*/
TRSHARD_API void TrshardRequestStop(void);

/*
  The main() of the program trshard: start MPI, run the task of the command line, end MPI. Returns
  the exit status. Nothing of the library may be called before or after it.
*/
TRSHARD_API int TrshardMain(int argc, char **argv);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
#endif
