/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libtrshard: sharded embedding tables for a model of your own.

  A collection is a set of embedding tables, with their exchanges and optimizers, that a plan
  spreads over the ranks of a communicator. Your program has the rest of the model: it passes a
  batch's ids to the library, receives pooled embeddings, and returns their gradients.

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
  predictors and encoders. It needs MPI_THREAD_FUNNELED or more, or MPI_THREAD_SERIALIZED or more if
  another thread calls the library. Numbers are read and written with a decimal point in every
  locale. Only one thread may call the library at a time, except for TrshardPredict() and
  TrshardEncode(). "Collective" means that all ranks of the communicator must call in the same
  order, with the same arguments except batches and matrices. Several collections may exist at the
  same time. A call uses its collection's GPU and then restores the thread's previous GPU, if any.
  The library never ends the process: functions return 0 or one of the codes below, and then
  TrshardErrorMessage() says what was found and what was expected. The library checks arguments
  before it sends anything. A mistake is an error on all ranks, and leaves the collection unchanged.
  The exception is a wrong matrix for TrshardForward() or TrshardBackward(), which is an error on
  its own rank only: the other ranks wait until that rank calls again with a correct matrix. After
  any other error the collection can only be destroyed. If only one rank fails in the middle of an
  exchange, for example because it lacks memory, the other ranks wait for it. The job must then be
  ended with MPI_Abort().

  A copy of a handle that was destroyed or closed is a dead handle. Every function, also Destroy,
  returns TRSHARD_ERROR_OPTION for a dead handle, as for NULL. This holds for the last 256 dead
  handles. At most 4096 objects may be alive at the same time.

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

/* NOLINTBEGIN(readability-identifier-naming): names have the library's prefix. */

#define TRSHARD_API __attribute__((visibility("default")))

/*
  The version of this interface. libtrshard.so.1 keeps everything that programs built for version 1
  use.
*/
#define TRSHARD_API_VERSION 1

/* The codes are the exit statuses of the program trshard. */
enum {
  TRSHARD_SUCCESS = 0,
  TRSHARD_ERROR_OPTION = 64,      /* error in an argument, or in an option of config.options */
  TRSHARD_ERROR_DATA = 65,        /* error in ids, or in the content of a file */
  TRSHARD_ERROR_NO_INPUT = 66,    /* a file is missing or unreadable */
  TRSHARD_ERROR_UNAVAILABLE = 69, /* a device, NCCL or an MPI feature is missing */
  TRSHARD_ERROR_INTERNAL = 70,    /* a bug, or calls in the wrong order */
  TRSHARD_ERROR_MEMORY = 71,
  TRSHARD_ERROR_NO_PLAN = 72, /* the planner found no feasible plan */
  TRSHARD_ERROR_CANT_CREATE = 73,
  TRSHARD_ERROR_IO = 74,
  /* a run ended on request, after it wrote a checkpoint; this is no error */
  TRSHARD_STOPPED = 75,
  TRSHARD_ERROR_LOST = 76,      /* a rank is lost or hangs */
  TRSHARD_ERROR_NOT_FINITE = 78 /* weights are infinite or NaN */
};

/* Largest number of batches between their TrshardInputDist() and their TrshardBackward(). */
enum { TRSHARD_BATCHES = 2 };

/*
  Pooling of a table. TRSHARD_POOLING_NONE returns a row for each id (TorchRec's
  EmbeddingCollection). All tables of the collection must then have this pooling and the same
  embedding_dim D. The functions below then use a matrix [n_values, stride] instead of the matrix
  [batch, stride] of pooled embeddings or their gradients. It has D columns and the row of each id,
  in the order of TrshardBatch.values. The id -1 gives zeros if its table has no id_map.
*/
typedef enum { TRSHARD_POOLING_SUM, TRSHARD_POOLING_MEAN, TRSHARD_POOLING_NONE } TrshardPooling;

/* An embedding table. */
typedef struct {
  const char *name;
  int64_t num_embeddings; /* rows */
  int32_t embedding_dim;  /* columns */
  TrshardPooling pooling;
  int32_t weighted;   /* if not 0, each id has a weight; pooling must be sum */
  int32_t n_features; /* at least 1; 0 or 1 if features is NULL */
  /* [n_features] names; if NULL, the table has one feature with the table's name */
  const char *const *features;
} TrshardTable;

/*
  The configuration of a collection. `options` are words as on trshard's command line, such as
  "-embedding_optimizer adam -table_user_sharding_types row_wise -options_file run.opts", with
  double quotes around words that have spaces. NULL means no options. input/OPTIONS.md describes
  them. A collection accepts the options of tables, optimizers, exchanges, planner and machine.
  Other options are an error. So are options that the structs already set, such as -batch_size and
  -table_user_pooling. Two defaults differ from the program's: -cpu_bind none, and
  -bounds_check_mode fatal. In the modes warning and ignore, an id outside of its table becomes 0,
  and the library prints no warning.
*/
typedef struct {
  int32_t n_tables;
  const TrshardTable *tables;
  int64_t batch_size; /* largest number of samples in a rank's batch */
  const char *options;
} TrshardConfig;

/*
  The ids of this rank's samples: all ids of the first feature, then of the next. The features are
  in the order of the tables, and in each table in the order of its features (TorchRec's
  KeyedJaggedTensor).
*/
typedef struct {
  /* number of samples, 0 to config.batch_size; ranks may have different numbers */
  int64_t batch;
  const int32_t *lengths; /* [features, batch] number of ids of each sample */
  int64_t n_values;       /* sum of the lengths */
  /* [n_values] rows of the tables, or ids for their id_map; -1 means no row */
  const int64_t *values;
  const float *weights; /* [n_values] weights of the ids; NULL if no table is weighted */
} TrshardBatch;

/* A tensor of the caller in a checkpoint. All ranks must pass the same tensors. */
typedef struct {
  const char *name; /* its path in the file is dense/<name> */
  int32_t ndim;     /* 1 or 2 */
  int64_t rows, cols;
  float *data; /* [rows, cols] in host memory */
} TrshardTensor;

typedef struct TrshardCollectionImpl *TrshardCollection;

/*
  Return the message of the last function that returned an error, or "" if there is none. Borrowed.
*/
TRSHARD_API const char *TrshardErrorMessage(void);

/* Return the library's version, such as "1.0.0", and the version of its interface. */
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
  Return the Fortran handle of MPI_COMM_WORLD, for callers without mpi.h. If MPI is not yet
  initialised, this function initialises MPI, and MPI is finalised at the end of the process.
  Errors: OPTION if MPI is finalised
*/
TRSHARD_API int TrshardWorld(int *comm);

/*
  Close a collection's open readers, and free the collection. Collective. *collection may be NULL
  and becomes NULL. Errors: OPTION for a dead handle
*/
TRSHARD_API int TrshardCollectionDestroy(TrshardCollection *collection);

/*
  Return where each feature's embeddings are in a row of the pooled matrix: columns[f] is the first
  column of feature f, and *width is the number of all columns. Any pointer may be NULL. The arrays
  are borrowed until Destroy. Not collective.
*/
TRSHARD_API int TrshardCollectionColumns(TrshardCollection collection, int32_t *n_features,
                                         const int64_t **columns, int64_t *width);

/*
  Return the plan as JSON text, as -plan_output writes it. Borrowed until Destroy. Not collective.
*/
TRSHARD_API int TrshardCollectionPlan(TrshardCollection collection, const char **json);

/*
  TrshardInputDist - Check a batch's ids and start to send them to their shards.

  Collective. The batch is copied. Tables with -table_<t>_id_map zch or dynamic give rows to ids in
  the order of the calls. Ids of a batch count feature after feature, and sample after sample in the
  order of the ranks.

  Errors: DATA, on all ranks, for an id outside of its table (-bounds_check_mode) or lengths that do
          not fit; INTERNAL if TRSHARD_BATCHES batches are under way. After an error nothing has
          been sent
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

  Collective. The step count, on which some optimizers depend, grows by one.

  In: gradient  device [batch, stride], of the loss over all ranks' samples. If the loss is a mean
                over the global batch, the caller must divide by the global batch's size
*/
TRSHARD_API int TrshardBackward(TrshardCollection collection, const float *gradient, int64_t stride);

/*
  Get the pooled embeddings of a batch without a backward. This may be called between any two of the
  calls above. It gives rows to no ids, and may find rows of a batch that is under way. Collective.
  Errors: as for TrshardInputDist().
*/
TRSHARD_API int TrshardEvaluate(TrshardCollection collection, const TrshardBatch *batch, float *pooled,
                                int64_t stride);

/* The samples of a reader's batch. They are borrowed until the next call with this reader. */
typedef struct {
  TrshardBatch ids; /* the batch for TrshardInputDist() */
  int32_t num_dense, n_labels;
  const float *dense;   /* [batch, num_dense]; NULL if the dataset has no /dense */
  const float *labels;  /* [batch, n_labels]; NULL if the dataset has no /labels */
  const float *weights; /* [batch] weights of the samples; NULL if all weights are equal */
  int64_t step, epoch;  /* both count from 0 */
  int64_t global_batch; /* number of samples of all ranks */
} TrshardSamples;

typedef struct TrshardReaderImpl *TrshardReader;

/*
  TrshardReaderOpen - Open a dataset (input/FORMAT.md) for the features of a collection.

  Collective. A thread of the library reads ahead. With W ranks and batches of B samples, rank r
  gets samples (s W + r) B to (s W + r + 1) B - 1 of step s, in the order of the epoch.

  In:     paths    [n_paths] files in their order, or patterns such as "day_*.h5"
          options  words as in TrshardConfig: -epochs, -steps, -drop_last, -data_shuffle, -seed,
                   -data_check, -data_dense, -data_weights, -data_read_ahead, -data_repeat_batches,
                   -reader_threads; NULL for none. Other options are an error
          step     the first step to read: 0, or to resume, a TrshardSamples.step
  Errors: NO_INPUT, DATA, OPTION, MEMORY
*/
TRSHARD_API int TrshardReaderOpen(TrshardCollection collection, int32_t n_paths, const char *const *paths,
                                  const char *options, int64_t step, TrshardReader *reader);

/*
  TrshardReaderNext - Read this rank's part of the next global batch.

  Collective. Errors (on all ranks): DATA, IO

  Out: samples  unchanged after the last step
       more     1, or 0 after the last step; the same on all ranks
*/
TRSHARD_API int TrshardReaderNext(TrshardReader reader, TrshardSamples *samples, int32_t *more);

/*
  Close a reader. Collective. *reader may be NULL and becomes NULL. Errors: OPTION for a dead
  handle; destroying a collection closes its readers, so their handles are then dead, too
*/
TRSHARD_API int TrshardReaderClose(TrshardReader *reader);

/*
  TrshardSetStream - From the next call on, run work in the order of the caller's CUDA stream, so
    that the caller never has to wait for the device.

  Work on a matrix begins after all work that is on the stream when the function is called. Work
  that is enqueued after the function returns can read the embeddings, and may overwrite the
  gradient. TrshardInputDist() and TrshardEvaluate() still wait for the library's earlier work. The
  caller may set another stream at any time. Not collective.

  In:     cuda_stream  a cudaStream_t of the collection's GPU; NULL is CUDA's default stream. The
                       stream must live as long as the collection, or until another stream is set
  Errors: OPTION if the collection's device is a CPU
*/
TRSHARD_API int TrshardSetStream(TrshardCollection collection, void *cuda_stream);

/*
  Multiply the learning rates of all tables by `factor` from the next backward on. The factor is 1
  at the start. Not collective, but all ranks must pass the same factor. Errors: OPTION if the
  factor is negative or not finite, or if it is not 1 and a table's optimizer is ftrl
*/
TRSHARD_API int TrshardSetLearningRateFactor(TrshardCollection collection, double factor);

/*
  TrshardSave - Write tables, optimizers' states and the caller's tensors to a checkpoint
    (input/FORMAT.md), and replace an existing file in one step.

  Collective. No batch may be under way. The file carries the mapping (input/FORMAT.md, "Mapping")
  of the last data with a mapping that TrshardReaderOpen() opened. If there is no such data, it
  carries the mapping of the last file with a mapping that TrshardLoad() read.

  In:     tensors  [n_tensors] rank 0's values are written
  Errors: NOT_FINITE, CANT_CREATE, IO
*/
TRSHARD_API int TrshardSave(TrshardCollection collection, const char *path, int32_t n_tensors,
                            const TrshardTensor *tensors);

/*
  TrshardLoad - Read a checkpoint, to continue from its step. Any plan and any number of ranks may
    have written it.

  Collective. No batch may be under way. As with -resume, the file must have the states of the
  tables' optimizers, and no states of other optimizers. A file of step 0 may lack states; the
  collection then keeps its own states. A collection with -embedding_optimizer sgd has no states and
  accepts the weights of any file.

  Out:    tensors  [n_tensors] filled on every rank; the file must have them in these shapes
  Errors: NO_INPUT; DATA, also for states of another optimizer, and for a table that gives rows to
          ids in the file or here (id_map zch, dynamic), but not in the same way in both, and for a
          file whose mapping differs from that of the data. After an error the tables' content is
          undefined
*/
TRSHARD_API int TrshardLoad(TrshardCollection collection, const char *path, int32_t n_tensors,
                            const TrshardTensor *tensors);

/*
  TrshardTableRead - Read rows of a table into host memory, on every rank.
  TrshardTableWrite - Set rows of a table. All ranks must pass the same numbers. The states of the
    table's optimizer are unchanged.

  Collective. No batch may be under way. Rows of fp16 and bf16 are converted from and to float.

  In:     table    its name
          first, n rows first to first + n - 1
  InOut:  rows     [n, embedding_dim] in host memory; TrshardTableRead() writes it
  Errors: OPTION for a table or rows that do not exist, and for a table with id_map dynamic;
          INTERNAL if a batch is under way
*/
TRSHARD_API int TrshardTableRead(TrshardCollection collection, const char *table, int64_t first, int64_t n,
                                 float *rows);
TRSHARD_API int TrshardTableWrite(TrshardCollection collection, const char *table, int64_t first, int64_t n,
                                  const float *rows);

/* A trained model that predicts, with all its tables and layers in this process. */
typedef struct TrshardPredictorImpl *TrshardPredictor;

/*
  TrshardPredictorOpen - Read a checkpoint that trshard wrote, for predictions.

  Not collective: each process has a model of its own. If the file has a table in the type that the
  predictor uses, the table is mapped into memory, and the processes of a host share its pages.
  Other tables are read. The file must not be written to until Close. Replacing the file by another
  file with the same name, as trshard does, is safe. Each TrshardPredict() first checks the size of
  a mapped file and returns IO if the file has become shorter. The process ends with SIGBUS only if
  the file is shortened, or the disk fails, while a call is reading. Tables that are read do not
  have this risk: choose a -tables_data_type other than the file's. MPI is neither initialised nor
  called: a process can predict without MPI, before MPI_Init() and after MPI_Finalize(). Only one
  thread at a time may open and close predictors, as with all functions above. Meanwhile other
  threads may call TrshardPredict().

  In:     options  words as in TrshardConfig; NULL for none. -tables_data_type int8 (int4, int2,
                   fp16, bf16) keeps the tables in this type instead of the checkpoint's type;
                   -ema_decay 0 ignores a training's averaged weights; -check_weights false is for a
                   file that is known to be undamaged: mapped tables are not read, checksums are not
                   compared, and the process does not fork(). Without it, child processes read the
                   file first, because HDF5 crashes on some damaged files. Forking a process of many
                   GB takes long, and its other threads wait if they write to memory meanwhile
  Errors: NO_INPUT, DATA, OPTION, MEMORY, NOT_FINITE
*/
TRSHARD_API int TrshardPredictorOpen(const char *checkpoint, const char *options,
                                     TrshardPredictor *predictor);

/*
  Return the model's inputs and outputs: the number of dense features, the names of the sparse
  features in the order of TrshardBatch, and the number of outputs per sample (one for each task, or
  for each class of a task). Any pointer may be NULL. The names are borrowed until Close.
*/
TRSHARD_API int TrshardPredictorShape(TrshardPredictor predictor, int32_t *num_dense, int32_t *n_features,
                                      const char *const **features, int32_t *n_outputs);

/*
  Return the names [num_dense] of the dense features and [n_outputs] of the outputs. *dense is NULL
  if the checkpoint has no mapping. An output has the name of its task. If a task has several
  classes, each has its own name: "kind_0", "kind_1". Without -tasks, the output has the name of the
  label, or "prediction" if the label has no name. Any pointer may be NULL. The names are borrowed
  until TrshardPredictorClose().
*/
TRSHARD_API int TrshardPredictorNames(TrshardPredictor predictor, const char *const **dense,
                                      const char *const **outputs);

/*
  Return the number of updates that the model's weights have seen, deltas included, and the
  checkpoint's mapping. The mapping is the JSON text that says how the training data was made from
  raw columns (input/FORMAT.md, "Mapping"). *mapping is NULL if the checkpoint has none. Any pointer
  may be NULL. The mapping is borrowed until TrshardPredictorClose().
*/
TRSHARD_API int TrshardPredictorCheckpoint(TrshardPredictor predictor, int64_t *step, const char **mapping);

/*
  TrshardPredict - Predict a batch of any size.

  Not collective. Any number of threads may call it at the same time, and so may a process that was
  forked from a process with a predictor. Calls only read the model's memory. Each call uses a
  workspace of its own, which is kept for later calls. A call works only on its own thread, so the
  caller should divide a batch that is too large for one thread. -task predict gives the same
  numbers, except that it may add them in another order.

  In:     ids          bags as for TrshardInputDist(); weights NULL if no table is weighted
          dense        [batch, num_dense]; NULL if num_dense is 0
  Out:    predictions  [batch, n_outputs]. With a batch of 0 samples all pointers may be NULL
  Errors: DATA, as for TrshardInputDist(), and for a dense feature or weight that is not finite; IO
          if mapped tables cannot be read because the model's file has become shorter; MEMORY
*/
TRSHARD_API int TrshardPredict(TrshardPredictor predictor, const TrshardBatch *ids, const float *dense,
                               float *predictions);

/*
  TrshardPredictStep - TrshardPredict() that also returns the number of updates that the weights of
    this call have seen. All samples of a call are predicted with the same weights.

  Out:    step  may be NULL
*/
TRSHARD_API int TrshardPredictStep(TrshardPredictor predictor, const TrshardBatch *ids, const float *dense,
                                   float *predictions, int64_t *step);

/* These values say how a delta fits to a model. */
typedef enum {
  TRSHARD_DELTA_FITS,   /* it continues the model's chain */
  TRSHARD_DELTA_EARLY,  /* a delta before it is missing */
  TRSHARD_DELTA_LATE,   /* the model already has it, or a later one */
  TRSHARD_DELTA_FOREIGN /* it belongs to another chain, or to another branch of the chain */
} TrshardDeltaFit;

/*
  TrshardPredictorApplyDelta - Change the model's weights by a delta of a training (-delta_dir), or
    by a delta that tools/apply_delta.py --forget_delta has made.

  Not collective. Other threads may call TrshardPredict() meanwhile, and never wait: each call uses
  the weights before or after the delta, as a whole. The function returns when no call uses the
  weights before the delta any more. The predictions then equal those of the checkpoint that
  tools/apply_delta.py makes, bit for bit, with the predictor's options. The delta must be the next
  one of the chain of the model's checkpoint (input/FORMAT.md, "Delta"). It is checked completely
  first, so the model is unchanged after an error. Only one thread at a time may call this function
  and those that open and close predictors. A process that was forked cannot apply deltas to the
  predictors of its parent.

  From the first delta on, the predictor has two copies of the tables that are in memory. Mapped
  tables need memory only for the pages that deltas change, in each copy.

  In:     delta  path of the file
  Out:    fit    how the delta fits; may be NULL. Other deltas than TRSHARD_DELTA_FITS are refused.
                 If the file cannot be read, the value has no meaning
  Errors: NO_INPUT; DATA for a damaged file, a delta that does not fit, and a model whose file has
          quantised tables; OPTION; MEMORY; IO
*/
TRSHARD_API int TrshardPredictorApplyDelta(TrshardPredictor predictor, const char *delta,
                                           TrshardDeltaFit *fit);

/*
  Count the ids of each sparse feature since the predictor was opened, and those of them that had no
  row: ids that a table with id_map zch or dynamic does not know, and ids outside of a table without
  an id_map that became 0. ids, unknown [n_features]; either may be NULL. Any thread may call it.
*/
TRSHARD_API int TrshardPredictorIdCounts(TrshardPredictor predictor, int64_t *ids, int64_t *unknown);

/*
  Free a model. No call may be using it. *predictor may be NULL and becomes NULL. Errors: OPTION for
  a dead handle
*/
TRSHARD_API int TrshardPredictorClose(TrshardPredictor *predictor);

/*
  Encoders make the inputs of a model from raw rows, exactly as the converter of the training data
  did. A column is a sequence of values, such as words, numbers or times, as a table or a request
  has them:

    TrshardEncoderCreate(predictor, &encoder);
    TrshardEncoderColumns(encoder, &n, &infos);          the columns that the model needs
    TrshardEncode(encoder, rows, columns, &encoded);     columns[i] has the values of infos[i]
    TrshardPredict(predictor, &encoded->ids, encoded->dense, predictions);
*/
typedef struct TrshardEncoderImpl *TrshardEncoder;

/*
  TRSHARD_MISSING has no value. A double that is NaN, an empty text, and a text that is one of the
  mapping's `nulls` are missing, too.
*/
typedef enum {
  TRSHARD_MISSING,
  TRSHARD_INTEGER,  /* as.integer; a time is the number of the column's units since 1970 */
  TRSHARD_UNSIGNED, /* as.natural, for numbers of 2^63 and above */
  TRSHARD_DOUBLE,   /* as.number */
  TRSHARD_TEXT      /* as.text, n_bytes bytes, usually of UTF-8; a 0 byte does not end the text */
} TrshardValueKind;

/* A raw value. */
typedef struct {
  TrshardValueKind kind;
  int64_t n_bytes; /* of a text */
  union {
    int64_t integer;
    uint64_t natural;
    double number;
    const char *text;
  } as;
} TrshardValue;

/* The raw values of a column. */
typedef struct {
  int64_t n_values;
  /* [n_values] row after row; NULL if the rows lack the column, which needs may_lack */
  const TrshardValue *values;
  /*
    [rows] number of values of each row, for a column of lists: bags, or `width` values. NULL if
    each row has one value
  */
  const int32_t *lengths;
} TrshardColumn;

/* The values that a feature expects in a column. If several features use it, the first decides. */
typedef enum {
  TRSHARD_WANTS_NUMBERS,  /* a dense feature or weights: numbers, also as text such as "1.5" */
  TRSHARD_WANTS_INTEGERS, /* ids: integers, also as text */
  TRSHARD_WANTS_TEXT,     /* ids: words */
  TRSHARD_WANTS_ANY       /* ids: integers or words, because the training data had no value */
} TrshardWanted;

/* A raw column that a model needs. */
typedef struct {
  const char *name;
  TrshardWanted wants;
  const char *unit; /* of times: "s", "ms", "us", "ns" or "day"; NULL for other columns */
  int32_t width;    /* values in each row; a list, if more than 1 */
  int32_t is_bag;   /* if not 0, a row has a list of ids, or a text with separators between ids */
  int32_t may_lack; /* if not 0, the mapping has a value for rows that lack the column */
} TrshardColumnInfo;

/* Rows as the arguments of TrshardPredict(). */
typedef struct {
  TrshardBatch ids;   /* weights are NULL if no feature has weights */
  int32_t num_dense;  /* number of dense features */
  const float *dense; /* [batch, num_dense]; NULL if num_dense is 0 */
} TrshardEncoded;

/*
  TrshardEncoderCreate - Make the encoder of a predictor's features, from the mapping of the
    predictor's checkpoint.

  Not collective. The encoder does not need the predictor afterwards. MPI is neither initialised nor
  called. Only one thread at a time may create and destroy encoders. Meanwhile other threads may
  call TrshardEncode().

  Errors: DATA if the checkpoint has no mapping, or if its mapping does not say how a feature comes
          from a column
*/
TRSHARD_API int TrshardEncoderCreate(TrshardPredictor predictor, TrshardEncoder *encoder);

/*
  TrshardEncoderCreateFrom - Make the encoder of the named features from the text of a mapping
    (input/FORMAT.md, "Mapping").

  Not collective. The arguments are not needed afterwards.

  In:     mapping   as from TrshardPredictorCheckpoint()
          dense     [num_dense] names of the dense features; NULL for all of the mapping, in order
          features  [n_features] names of the sparse features; NULL for all of the mapping, in order
  Errors: DATA, as for TrshardEncoderCreate()
*/
TRSHARD_API int TrshardEncoderCreateFrom(const char *mapping, int32_t num_dense, const char *const *dense,
                                         int32_t n_features, const char *const *features,
                                         TrshardEncoder *encoder);

/*
  Return the raw columns that the encoder needs, each once. Any pointer may be NULL. The array is
  borrowed until TrshardEncoderDestroy().
*/
TRSHARD_API int TrshardEncoderColumns(TrshardEncoder encoder, int32_t *n_columns,
                                      const TrshardColumnInfo **columns);

/*
  TrshardEncode - Make the inputs of a model from raw rows.

  Not collective. Any number of threads may call it at the same time, each with its own *encoded. A
  process that was forked from a process with an encoder may call it, too. Python's
  trshard.Predictor.encode() gives the same bits.

  In:     rows     number of rows, 0 or more
          columns  [n_columns] in the order of TrshardEncoderColumns(); may be NULL without rows
  InOut:  encoded  *encoded must be NULL, or from an earlier call, whose memory is used again. The
                   caller frees it with TrshardEncodedFree(), also after an error
  Errors: DATA for a value that the converter would refuse (the message names its row, counted from
          0, and its column); MEMORY
*/
TRSHARD_API int TrshardEncode(TrshardEncoder encoder, int64_t rows, const TrshardColumn *columns,
                              TrshardEncoded **encoded);

/* Free encoded rows. *encoded may be NULL and becomes NULL. Any thread may call it. */
TRSHARD_API void TrshardEncodedFree(TrshardEncoded **encoded);

/*
  Free an encoder. No call may be using it. *encoder may be NULL and becomes NULL. Errors: OPTION
  for a dead handle
*/
TRSHARD_API int TrshardEncoderDestroy(TrshardEncoder *encoder);

/*
  TrshardRun - Run a task as the program trshard does: train, eval, predict, plan or bench.

  Collective on comm, which is duplicated. A process may do several runs one after another. Groups
  of a job's ranks may each do a run at the same time. The options decide what a run reads, writes
  and prints. As in the program, threads are bound unless `options` has -cpu_bind none, and
  -watchdog_seconds ends the process if ranks wait forever. PETSc's own options, such as -log_view,
  have no effect here. No signal is handled; your own handler may call TrshardRequestStop().

  In:     options  words as on trshard's command line, such as "-options_file run.opts -steps 100",
                   with double quotes around words that have spaces; all of input/OPTIONS.md
  Errors: all codes, the same on all ranks, with the message that the program would print. If only
          one rank fails while others wait for it, it returns its code after a few seconds
*/
TRSHARD_API int TrshardRun(MPI_Comm comm, const char *options);

/* TrshardRun() for callers that have a communicator's Fortran handle. */
TRSHARD_API int TrshardRunFortran(int comm, const char *options);

/*
  Ask the current run of this process, or its next run, to stop at its next step or batch. All ranks
  of the run stop with it. A training then writes a checkpoint to -checkpoint_dir, and TrshardRun()
  returns TRSHARD_STOPPED. Signal handlers and any thread may call this function.
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
