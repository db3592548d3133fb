/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libtrshard: sharded embedding tables for a model of your own.

  A collection is a set of embedding tables that a plan spreads over the ranks of a communicator,
  with their exchanges and optimizers. Your program has the rest of the model: it passes in a
  batch's ids, receives pooled embeddings, and passes back their gradients.

    TrshardCollectionCreate(comm, &config, &collection);
    for each step:
      TrshardInputDist(collection, &batch);                    ids travel to their shards
      TrshardForward(collection, pooled, stride);              pooled embeddings come back
      TrshardBackward(collection, gradient, stride);           rows are updated
    TrshardCollectionDestroy(&collection);

  To hide the exchange of ids, call TrshardInputDist() for the next batch before TrshardForward() of
  this one: up to TRSHARD_BATCHES may be under way.

  A trained model can predict without ranks and without MPI, on any thread: TrshardPredictorOpen().
  One call can also do a whole run of the program: TrshardRun().

  MPI must be initialised before the first call and finalised after the last call, except for
  predictors. It needs MPI_THREAD_FUNNELED or more, or MPI_THREAD_SERIALIZED or more if another
  thread calls the library. Numbers are read and written with a decimal point in every locale. Only
  one thread may call the library at a time, except for TrshardPredict(). "Collective" means that
  all ranks of the communicator must call in the same order, with the same arguments except batches
  and matrices. Several collections may live at once. A call uses its collection's GPU and then
  restores the thread's previous GPU, if any. The library never ends the process: functions return 0
  or one of the codes below, and then TrshardErrorMessage() says what was found and what was
  expected. Mistakes in arguments are found before anything is sent, on all ranks, and leave the
  collection as it was. The exception is a matrix of TrshardForward() or TrshardBackward(), which is
  refused on one rank only: the other ranks wait until that rank calls again with a correct matrix.
  After any other error the collection can only be destroyed. If only one rank fails in the middle
  of an exchange, for example for lack of memory, the others wait for it: then end the job with
  MPI_Abort().

  If a handle was destroyed or closed, a copy of it is a dead handle: every function returns
  TRSHARD_ERROR_OPTION for it, as for NULL, and so does a second Destroy through a copy. This holds
  for the last 256 dead handles. At most 4096 objects may be alive at once.

  Pointers to embeddings and gradients are memory of the collection's device: the host, or the GPU
  with -device cuda. All other pointers are host memory. On a GPU, matrices must be complete when a
  function is called, and are complete when the function returns. A caller who sets a CUDA stream
  (TrshardSetStream()) need not wait.
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

/* The number of this interface. libtrshard.so.1 keeps everything that programs built with 1 use. */
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
  TRSHARD_STOPPED = 75,         /* a run ended on request, after a checkpoint: no error */
  TRSHARD_ERROR_LOST = 76,      /* a rank is lost or hangs */
  TRSHARD_ERROR_NOT_FINITE = 78 /* weights are infinite or NaN */
};

/* Batches that may be under way between TrshardInputDist() and TrshardBackward(). */
enum { TRSHARD_BATCHES = 2 };

/*
  Pooling none gives a row for each id (TorchRec's EmbeddingCollection). All tables of the
  collection must then have pooling none and the same embedding_dim D. Instead of a matrix [batch,
  stride] of pooled embeddings or their gradients, the functions below then take a matrix [n_values,
  stride] with D columns: the row of each id, in the order of TrshardBatch.values. The id -1 gives
  zeros if its table has no id_map.
*/
typedef enum { TRSHARD_POOLING_SUM, TRSHARD_POOLING_MEAN, TRSHARD_POOLING_NONE } TrshardPooling;

/* An embedding table. */
typedef struct {
  const char *name;
  int64_t num_embeddings; /* rows */
  int32_t embedding_dim;  /* columns */
  TrshardPooling pooling;
  int32_t weighted;            /* not 0: each id has a weight, with pooling sum */
  int32_t n_features;          /* at least 1; 0 or 1 if features is NULL */
  const char *const *features; /* [n_features] names; NULL: one feature, named like the table */
} TrshardTable;

/*
  The configuration of a collection. `options` are words as on trshard's command line, such as
  "-embedding_optimizer adam -table_user_sharding_types row_wise -options_file run.opts", with
  double quotes around words that have spaces; NULL for none. input/OPTIONS.md describes them. A
  collection accepts the options of tables, optimizers, exchanges, planner and machine. Other
  options are an error, also if the structs already set them, such as -batch_size and
  -table_user_pooling. Two defaults differ from the program's: -cpu_bind none, and
  -bounds_check_mode fatal. With warning or ignore an id outside of its table becomes 0; the library
  prints no warning.
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
  const int64_t *values;  /* [n_values] rows of the tables, or ids for their id_map. Row -1: none */
  const float *weights;   /* [n_values]; NULL if no table is weighted */
} TrshardBatch;

/* A tensor of the caller in a checkpoint. All ranks have the same. */
typedef struct {
  const char *name; /* its path in the file is dense/<name> */
  int32_t ndim;     /* 1 or 2 */
  int64_t rows, cols;
  float *data; /* host [rows, cols] */
} TrshardTensor;

typedef struct TrshardCollectionImpl *TrshardCollection;

/* The message of the last function that returned an error, "" if there is none. Borrowed. */
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
  The Fortran handle of MPI_COMM_WORLD, for callers without mpi.h. If MPI is not yet initialised,
  this initialises it, and MPI is finalised at the end of the process. Errors: OPTION if MPI is
  finalised
*/
TRSHARD_API int TrshardWorld(int *comm);

/*
  Free a collection, after closing its open readers. Collective. *collection may be NULL and becomes
  NULL. Errors: OPTION for a dead handle
*/
TRSHARD_API int TrshardCollectionDestroy(TrshardCollection *collection);

/*
  The place of each feature's embeddings in a row of the pooled matrix: columns[f] is the first
  column of feature f, *width the number of columns. Any pointer may be NULL. Borrowed until
  Destroy. Not collective.
*/
TRSHARD_API int TrshardCollectionColumns(TrshardCollection collection, int32_t *n_features,
                                         const int64_t **columns, int64_t *width);

/* The plan as JSON text, as -plan_output writes it. Borrowed until Destroy. Not collective. */
TRSHARD_API int TrshardCollectionPlan(TrshardCollection collection, const char **json);

/*
  TrshardInputDist - Check a batch's ids and start to send them to their shards.

  Collective. The batch is copied. Tables with -table_<t>_id_map zch or dynamic give rows to ids in
  the order of the calls. Ids of a batch count feature after feature, and sample after sample in the
  order of the ranks.

  Errors: DATA, on all ranks, for an id outside of its table (-bounds_check_mode) or lengths that do
          not fit; INTERNAL if TRSHARD_BATCHES are under way. After an error nothing has been sent
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

  In: gradient  device [batch, stride], for the loss over all ranks' samples: with a mean over the
                global batch, the caller must divide by the global batch's size
*/
TRSHARD_API int TrshardBackward(TrshardCollection collection, const float *gradient, int64_t stride);

/*
  Get the pooled embeddings of a batch without a backward. This may be called between any two of the
  calls above. It gives rows to no ids, and may find rows of a batch that is under way. Collective.
  Errors: as for TrshardInputDist().
*/
TRSHARD_API int TrshardEvaluate(TrshardCollection collection, const TrshardBatch *batch, float *pooled,
                                int64_t stride);

/* The samples of a reader's batch; borrowed until the next call for the reader. */
typedef struct {
  TrshardBatch ids; /* for TrshardInputDist() */
  int32_t num_dense, n_labels;
  const float *dense;   /* [batch, num_dense]; NULL without /dense */
  const float *labels;  /* [batch, n_labels]; NULL without /labels */
  const float *weights; /* [batch] weights of samples; NULL if all are equal */
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
          step     the first step to read, such as TrshardSamples.step, to resume; else 0
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
  TrshardSetStream - Order the work of the next calls by the caller's CUDA stream, so that the
    caller never has to wait for the device.

  Work on a matrix begins after all work that is on the stream when the function is called. Work
  that is enqueued after the function returns finds embeddings complete, and may overwrite a
  gradient. TrshardInputDist() and TrshardEvaluate() still wait for the library's earlier work. The
  caller may set another stream at any time. Not collective.

  In:     cuda_stream  a cudaStream_t of the collection's GPU; NULL is CUDA's default stream. The
                       stream must live as long as the collection, or until another stream is set
  Errors: OPTION if the collection's device is a CPU
*/
TRSHARD_API int TrshardSetStream(TrshardCollection collection, void *cuda_stream);

/*
  Multiply the learning rates of all tables by `factor` from the next backward on. The factor is 1
  at the start. Not collective, but all ranks must pass the same factor. Errors: OPTION unless it is
  finite and 0 or more, or if it is not 1 and a table's optimizer is ftrl
*/
TRSHARD_API int TrshardSetLearningRateFactor(TrshardCollection collection, double factor);

/*
  TrshardSave - Write tables, optimizers' states and the caller's tensors to a checkpoint
    (input/FORMAT.md), replacing the file in one step.

  Collective. No batch may be under way.

  In:     tensors  [n_tensors] rank 0's values are written
  Errors: NOT_FINITE, CANT_CREATE, IO
*/
TRSHARD_API int TrshardSave(TrshardCollection collection, const char *path, int32_t n_tensors,
                            const TrshardTensor *tensors);

/*
  TrshardLoad - Read a checkpoint of any plan and number of ranks, to continue from its step.

  Collective. No batch may be under way. As with -resume, the file must have the states of the
  tables' optimizers, and no states of other optimizers. A file of step 0 may lack states; the
  collection then keeps its own states. A collection with -embedding_optimizer sgd has no states and
  accepts the weights of any file.

  Out:    tensors  [n_tensors] filled on every rank; the file must have them in these shapes
  Errors: NO_INPUT; DATA, also for states of another optimizer or a table of another id_map (zch,
          dynamic, or rows that are not given to ids). The tables' content is then undefined
*/
TRSHARD_API int TrshardLoad(TrshardCollection collection, const char *path, int32_t n_tensors,
                            const TrshardTensor *tensors);

/* A trained model that predicts, with all its tables and layers in this process. */
typedef struct TrshardPredictorImpl *TrshardPredictor;

/*
  TrshardPredictorOpen - Read a checkpoint that trshard wrote, for predictions.

  Not collective: each process has a model of its own. A table is mapped if the file holds it in the
  type that the predictor uses, so that the processes of a host share its pages; other tables are
  read. The file must not be written to until Close. Replacing it by another file of its name, as
  trshard does, is safe. Each TrshardPredict() first checks the size of a mapped file and returns IO
  if the file has become shorter. The process ends with SIGBUS only if the file is cut, or the disk
  fails, while a call is reading. Tables that are read do not have this risk: choose a
  -tables_data_type other than the file's. MPI is neither initialised nor called: a process can
  predict without MPI, before MPI_Init() and after MPI_Finalize(). Only one thread at a time may
  open and close, as with all functions above; TrshardPredict() may run on other threads meanwhile.

  In:     options  words as in TrshardConfig; NULL for none. -tables_data_type int8 (int4, int2,
                   fp16, bf16) holds the tables in this type, the default is the checkpoint's;
                   -ema_decay 0 ignores a training's averaged weights; -check_weights false opens a
                   file that is known to be whole: it reads no mapped tables, compares no checksums,
                   and does not fork(). Otherwise child processes read the file first, because HDF5
                   crashes on some damaged files; forking a process of many GB takes long, and its
                   other threads meanwhile wait for pages that they write to
  Errors: NO_INPUT, DATA, OPTION, MEMORY, NOT_FINITE
*/
TRSHARD_API int TrshardPredictorOpen(const char *checkpoint, const char *options,
                                     TrshardPredictor *predictor);

/*
  The model's inputs and outputs: the number of dense features, the names of sparse features in the
  order of TrshardBatch, and the count of numbers per sample (one for each task, or class of a
  task). Any pointer may be NULL. Borrowed until Close.
*/
TRSHARD_API int TrshardPredictorShape(TrshardPredictor predictor, int32_t *num_dense, int32_t *n_features,
                                      const char *const **features, int32_t *n_outputs);

/*
  TrshardPredict - Predict a batch of any size.

  Not collective. Any number of threads may call it at the same time, and so may a process that was
  forked from a process with a predictor: calls only read the model's memory, and each call has its
  own workspace, which is kept for later calls. A call works only on its own thread, so the caller
  should cut a batch that is too large for one thread. -task predict gives the same numbers up to
  the order of sums.

  In:     ids          bags as for TrshardInputDist(); weights NULL if no table is weighted
          dense        [batch, num_dense]; NULL if num_dense is 0
  Out:    predictions  [batch, n_outputs]. With a batch of 0 samples all pointers may be NULL
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

  Collective on comm, which is duplicated. Several runs may follow each other, and parts of a job
  may do one run each at the same time. The options decide what a run reads, writes and prints. As
  in the program, threads are bound unless `options` has -cpu_bind none, and -watchdog_seconds ends
  the process if ranks wait forever. PETSc's own options, such as -log_view, have no effect here. No
  signal is handled; your own handler may call TrshardRequestStop().

  In:     options  words as on trshard's command line, such as "-options_file run.opts -steps 100",
                   with double quotes around words that have spaces; all of input/OPTIONS.md
  Errors: all codes, the same on all ranks, with the message that the program would print. If only
          one rank fails while others wait for it, it returns its code after a few seconds
*/
TRSHARD_API int TrshardRun(MPI_Comm comm, const char *options);

/* TrshardRun() for callers that have a communicator's Fortran handle. */
TRSHARD_API int TrshardRunFortran(int comm, const char *options);

/*
  Ask the run of this process, or its next one, to stop at its next step or batch. All ranks of the
  run stop with it. A training then writes a checkpoint to -checkpoint_dir, and TrshardRun() returns
  TRSHARD_STOPPED. Signal handlers and any thread may call this.
*/
TRSHARD_API void TrshardRequestStop(void);

/*
  The main() of the program trshard: start MPI, run the task of the command line, end MPI. Returns
  the exit status. No other function of the library may be called before or after it.
*/
TRSHARD_API int TrshardMain(int argc, char **argv);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
#endif
