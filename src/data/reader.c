/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/reader.h"

#include "core/c_locale.h"
#include "core/clock.h"
#include "core/trace.h"
#include "data/batch.h"
#include "data/batch_room.h"
#include "data/id_map.h"
#include "device/cpu_bind.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const TrsOptionSpec reader_options[] = {
    {"-data_train", TRS_OPTION_FILES, NULL, NULL, NULL, NULL,
     "dataset to train on: one or more files, in this order. 'day_*.h5' stands for the files it matches, "
     "sorted by name"},
    {"-data_eval", TRS_OPTION_FILES, NULL, NULL, NULL, NULL,
     "dataset to evaluate or predict on, given like -data_train"},
    {"-data_weights", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "weight the samples in losses and metrics by the dataset's /weights, if it has them"},
    {"-data_label", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "label to train on and to evaluate, of a dataset whose /labels have names (default: the first one of "
     "the "
     "training data; of the evaluation data without training)"},
    {"-data_dense", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "columns of the datasets' /dense that are the model's dense features, in this order, counted from 0; "
     "none: no dense features (default: all)"},
    {"-batch_size", TRS_OPTION_INT, "512", "[1,1000000000]", NULL, "samples", "batch size of each rank"},
    {"-accumulate_steps", TRS_OPTION_INT, "1", "[1,1000000]", NULL, "batches",
     "batches of a training step. The dense layers run on one batch after the other, and their gradients and "
     "those of the tables are summed; one update ends the step. A step then equals one of a larger "
     "-batch_size and needs less memory for activations"},
    {"-steps", TRS_OPTION_INT, NULL, "[0,]", NULL, "steps",
     "length of the training; passes over the data repeat until this step (default: as -epochs)"},
    {"-epochs", TRS_OPTION_INT, NULL, "[1,]", NULL, "passes",
     "length of the training in passes over the data (default: 1, or unlimited with -steps)"},
    {"-drop_last", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "leave out the smaller batch at the end of a pass"},
    {"-data_shuffle", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "use a new order of the samples in each epoch, which depends only on -seed and the epoch; slow for "
     "large compressed datasets"},
    {"-seed", TRS_OPTION_INT, "0", "[0,]", NULL, NULL,
     "seed of all random numbers: shuffling, initial weights, stochastic rounding"},
    {"-data_check", TRS_OPTION_ENUM, "fatal", NULL, "fatal,warning,none", NULL,
     "numbers that are refused in the data. They are NaN and Inf in dense features and weights, negative "
     "weights of samples, and labels that their loss cannot have, as those outside [0, 1]. fatal: stop with "
     "an error. warning: count them and warn. none: do not check"},
    {"-data_read_ahead", TRS_OPTION_INT, "2", "[1,1000]", NULL, "batches",
     "batches that are read before they are needed"},
    {"-data_repeat_batches", TRS_OPTION_INT, "0", "[0,1000000]", NULL, "batches",
     "for benchmarks: a training keeps its first so many batches in memory and repeats them, so that "
     "reading takes no time. Step s has the samples of step s mod n of an ordinary training. 0: no batch is "
     "kept"},
    {"-reader_threads", TRS_OPTION_INT, NULL, "[1,256]", NULL, "threads",
     "threads of each rank that read. Thread i mod n reads batch i. Batches and their order do not "
     "depend on it. Filtered (gzip) and converted data are unpacked by one thread at a time (default: 1, "
     "or 2 if they map ids; a GPU maps its ids itself)"},
};
const TrsOptionGroup trs_reader_options = TRS_OPTION_GROUP_OF_MODEL("Data", NULL, reader_options, NULL,
                                                                    "-data_dense,-data_label");

/*
  States of a slot: free, ready, and out, in this order. Between free and ready, a slot may need
  more memory.
*/
typedef enum { TRS_SLOT_FREE, TRS_SLOT_NEEDS_ROOM, TRS_SLOT_READY, TRS_SLOT_OUT } TrsSlotState;

typedef struct {
  /* must be the first field, because the address of a batch is used as the address of its slot */
  TrsBatch batch;
  TrsBatchRoom room;
  TrsBadIds *bad_ids; /* [n] */
  TrsSlotState state;
  int64_t next; /* the step whose batch the slot has or will have */
  TrsFault fault;
  PetscBool kept; /* the slot keeps its batch, which is repeated: -data_repeat_batches */
} TrsSlot;

/* A reader thread. If there are n threads, each reads every n-th batch. */
typedef struct {
  TrsReader reader;
  int64_t first; /* first step of the thread */
  pthread_t thread;
  PetscBool running; /* the thread has been started */
  /* Only the thread uses this memory, except while the main thread enlarges it. */
  TrsBatchScratch scratch;
} TrsReaderThread;

struct TrsReaderImpl {
  MPI_Comm comm;
  TrsDeviceOps memory; /* a device whose alloc() returns host memory for batches */
  TrsBatchOrder schedule;
  int64_t steps, epochs; /* the values of -steps and -epochs, or -1 if not given */
  PetscBool training, weighted, grouped;
  PetscBool keeps; /* true if batches are repeated */
  /* before the reader is set up, n_threads is 0 if it was not given */
  int64_t seed, read_ahead, n_threads;
  /* number of batches that are read once and then repeated; 0 if none */
  int64_t n_repeated;
  TrsBatchSpec spec;
  int64_t start, total, max_batch;

  TrsSlot *slots; /* [n_slots] step s is read into slot s % n_slots */
  int64_t n_slots, next_out;
  TrsBadIds *bad_ids;  /* [n] the repaired ids of each feature so far */
  int64_t bad_numbers; /* number of bad numbers that were accepted so far */

  TrsReaderThread *threads; /* [n_threads] thread s % n_threads reads step s */
  PetscBool maps;           /* true if ids are mapped to rows */
  /* protects the states and steps of the slots, the reader's row of the trace, and `stop` */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  PetscBool stop;
  TrsBatchScratch check; /* scratch of TrsReaderCheck(), created at the first use */
};

PetscErrorCode TrsReaderCreate(MPI_Comm comm, TrsReader *reader)
{
  TrsReader r;
  const TrsDeviceOps *cpu;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(1, &r));
  r->comm = comm;
  PetscCallMPI(MPI_Comm_rank(comm, &r->schedule.rank));
  PetscCallMPI(MPI_Comm_size(comm, &r->schedule.size));
  r->schedule.batch_size = 512;
  r->steps = r->epochs = -1;
  r->read_ahead = 2;
  r->weighted = PETSC_TRUE;
  r->spec.group_key = TRS_GROUP_OF_DATASET;
  PetscCall(TrsDeviceFind("cpu", &cpu));
  PetscCall(TrsReaderSetDevice(r, cpu));
  PetscCheck(pthread_mutex_init(&r->lock, NULL) == 0 && pthread_cond_init(&r->changed, NULL) == 0,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "cannot make the reader's lock");
  *reader = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderChooseDense(TrsOptions options, TrsDataset dataset)
{
  const char *const *words = NULL;
  const TrsDatasetInfo *info;
  int n = 0, columns[TRS_MAX_DENSE_COLUMNS];
  PetscBool none;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, "-data_dense", &n, &words, NULL));
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  none = (PetscBool)(n == 1 && strcmp(words[0], "none") == 0);
  if (n > TRS_MAX_DENSE_COLUMNS)
    PetscCall(TrsOptionError(options, "-data_dense", "has %d columns, expected at most %d", n,
                             TRS_MAX_DENSE_COLUMNS));
  for (int i = 0; i < n && !none; i++) {
    char *end;
    const long column = strtol(words[i], &end, 10);

    if (*end || end == words[i] || column < 0 || column >= info->dense_columns)
      PetscCall(
          TrsOptionError(options, "-data_dense",
                         "\"%.50s\": expected none or columns of %s, whose /dense has %d, counted from 0",
                         words[i], info->path, info->dense_columns));
    columns[i] = (int)column;
  }
  PetscCall(TrsDatasetChooseDense(dataset, none ? 0 : n, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderStepBatch(TrsOptions options, int64_t *samples)
{
  const int64_t most = 1000000000; /* the same limit as for -batch_size */
  int64_t n;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", samples, NULL));
  PetscCall(TrsOptionsGetInt(options, "-accumulate_steps", &n, NULL));
  if (*samples > most / n)
    PetscCall(TrsOptionError(options, "-accumulate_steps",
                             "with -batch_size %" PRId64 " a step has more than %" PRId64 " samples a rank",
                             *samples, most));
  *samples *= n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetFromOptions(TrsReader reader, TrsOptions options, PetscBool training)
{
  int check = TRS_DATA_CHECK_FATAL;

  PetscFunctionBegin;
  reader->training = training;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &reader->schedule.batch_size, NULL));
  PetscCall(TrsOptionsGetInt(options, "-data_read_ahead", &reader->read_ahead, NULL));
  PetscCall(TrsOptionsGetInt(options, "-reader_threads", &reader->n_threads, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-data_check", &check, NULL));
  PetscCall(TrsOptionsGetBool(options, "-data_weights", &reader->weighted, NULL));
  reader->spec.check = (TrsDataCheck)check;
  if (training) {
    PetscCall(TrsReaderStepBatch(options, &reader->schedule.batch_size));
    PetscCall(TrsOptionsGetInt(options, "-steps", &reader->steps, NULL));
    PetscCall(TrsOptionsGetInt(options, "-data_repeat_batches", &reader->n_repeated, NULL));
    PetscCall(TrsOptionsGetInt(options, "-epochs", &reader->epochs, NULL));
    PetscCall(TrsOptionsGetBool(options, "-drop_last", &reader->schedule.drop_last, NULL));
    PetscCall(TrsOptionsGetBool(options, "-data_shuffle", &reader->spec.is_shuffled, NULL));
    PetscCall(TrsOptionsGetInt(options, "-seed", &reader->seed, NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetDataset(TrsReader reader, TrsDataset dataset)
{
  PetscFunctionBegin;
  reader->spec.dataset = dataset;
  PetscCall(TrsDatasetGetInfo(dataset, &reader->spec.info));
  reader->schedule.num_samples = reader->spec.info->num_samples;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetFeatures(TrsReader reader, int n, const int *keys, const int64_t *rows,
                                    const TrsBoundsCheckMode *mode, PetscBool with_weights)
{
  TrsBatchSpec *spec = &reader->spec;

  PetscFunctionBegin;
  PetscCheck(spec->info, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "TrsReaderSetFeatures before TrsReaderSetDataset");
  PetscCall(PetscMalloc3(spec->info->n_features, &spec->first_of_key, n, &spec->feature, n, &spec->mode));
  PetscCall(PetscCalloc1(n, &reader->bad_ids));
  for (int k = 0; k < spec->info->n_features; k++) spec->first_of_key[k] = -1;
  for (int f = n - 1; f >= 0; f--) {
    PetscCheck(keys[f] >= 0 && keys[f] < spec->info->n_features, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "feature %d is key %d, which is out of range", f, keys[f]);
    spec->feature[f] = (TrsSampleFeature){.key = keys[f],
                                          .next = spec->first_of_key[keys[f]],
                                          .rows = mode[f] == TRS_BOUNDS_NONE ? 0 : rows[f]};
    if (spec->feature[f].next >= 0) spec->has_twins = PETSC_TRUE;
    spec->first_of_key[keys[f]] = f;
    spec->mode[f] = mode[f];
  }
  spec->n = n;
  spec->with_weights = with_weights;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetIdMaps(TrsReader reader, const TrsIdMapRule *map)
{
  TrsBatchSpec *spec = &reader->spec;

  PetscFunctionBegin;
  for (int f = 0; f < spec->n; f++) {
    spec->feature[f].map = TrsIdMapMake(&map[f]);
    if (map[f].kind == TRS_ID_MAP_NONE) continue;
    spec->feature[f].rows = 0; /* the id map gives every id a row */
    reader->maps = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetMaxLengths(TrsReader reader, const int *max_length)
{
  PetscFunctionBegin;
  for (int f = 0; f < reader->spec.n; f++) reader->spec.feature[f].max_length = max_length[f];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetLabels(TrsReader reader, int n, const TrsReaderLabel *labels)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(reader->spec.label));
  PetscCall(PetscMalloc1((size_t)n, &reader->spec.label));
  PetscCall(PetscArraycpy(reader->spec.label, labels, (size_t)n));
  reader->spec.n_labels = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetGroup(TrsReader reader, int key, int64_t n_segments)
{
  PetscFunctionBegin;
  reader->grouped = PETSC_TRUE;
  reader->spec.group_key = key;
  reader->spec.n_segments = n_segments;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetDevice(TrsReader reader, const TrsDeviceOps *device)
{
  PetscFunctionBegin;
  reader->spec.for_device = (PetscBool)!device->host_memory;
  reader->memory = TrsDeviceStaging(device);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetBatch(TrsReader reader, int64_t samples)
{
  PetscFunctionBegin;
  reader->schedule.batch_size = samples;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetStart(TrsReader reader, int64_t step)
{
  PetscFunctionBegin;
  reader->start = step;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSteps(TrsReader reader, int64_t *total, int64_t *per_epoch)
{
  int64_t n = TrsBatchOrderStepsPerEpoch(&reader->schedule), steps;

  PetscFunctionBegin;
  if (reader->epochs < 0 && reader->steps >= 0) {
    steps = reader->steps;
  } else {
    PetscCheck(!__builtin_mul_overflow(n, reader->epochs < 0 ? 1 : reader->epochs, &steps), PETSC_COMM_SELF,
               TRS_ERR_OPTION, "-epochs %" PRId64 " is too large", reader->epochs);
    if (reader->steps >= 0 && reader->steps < steps) steps = reader->steps;
  }
  if (total) *total = steps;
  if (per_epoch) *per_epoch = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderBadIds(TrsReader reader, const TrsBadIds **per_feature)
{
  PetscFunctionBegin;
  *per_feature = reader->bad_ids;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsReaderBadNumbers(TrsReader reader)
{
  return reader->bad_numbers;
}

/* --- the threads --- */

/*
  Wait until the main thread has enlarged the memory for the batch's ids, both in the slot and in
  this thread. The slot alone may already be large enough, because another thread's batch was large.
  Returns false if this thread must stop.
*/
static PetscBool wait_for_room(TrsReaderThread *t, TrsSlot *s)
{
  TrsReader reader = t->reader;
  PetscBool go_on;

  if (t->scratch.n_values <= PetscMin(s->room.n_values, t->scratch.most_values)) return PETSC_TRUE;
  pthread_mutex_lock(&reader->lock);
  s->state = TRS_SLOT_NEEDS_ROOM;
  pthread_cond_broadcast(&reader->changed);
  while (s->state == TRS_SLOT_NEEDS_ROOM && !reader->stop) pthread_cond_wait(&reader->changed, &reader->lock);
  go_on = reader->stop ? PETSC_FALSE : PETSC_TRUE;
  pthread_mutex_unlock(&reader->lock);
  return go_on;
}

/*
  Wait until the slot is free for this step. Several steps may wait for the same slot, which then
  takes them in order.
*/
static PetscBool wait_for_slot(TrsReader reader, const TrsSlot *s, int64_t step)
{
  PetscBool go_on;

  pthread_mutex_lock(&reader->lock);
  while ((s->state != TRS_SLOT_FREE || s->next != step) && !reader->stop)
    pthread_cond_wait(&reader->changed, &reader->lock);
  go_on = reader->stop ? PETSC_FALSE : PETSC_TRUE;
  pthread_mutex_unlock(&reader->lock);
  return go_on;
}

/*
  Mark a slot's batch as ready. Its reading began at start_s, which is negative for a batch that was
  kept.
*/
static void set_ready(TrsReader reader, TrsSlot *s, double start_s)
{
  pthread_mutex_lock(&reader->lock);
  if (start_s >= 0 && reader->training && TrsTraceWants(s->batch.step))
    TrsTraceRecord(TRS_TRACE_READER, TRS_TRACE_READ, s->batch.step, start_s, TrsClock(), -1);
  s->state = TRS_SLOT_READY;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->lock);
}

/*
  Read a step's batch into the slot. An error is stored in the slot's fault. Returns false if this
  thread must stop.
*/
static PetscBool read_step(TrsReaderThread *t, int64_t step, TrsShuffle *shuffle, TrsSlot *s)
{
  TrsReader reader = t->reader;
  TrsBatchOrderStep at;

  s->batch.step = step;
  if (s->kept) return PETSC_TRUE;
  TrsBatchOrderAt(&reader->schedule, reader->n_repeated ? step % reader->n_repeated : step, &at);
  s->kept = reader->keeps;
  s->batch.epoch = at.epoch;
  s->batch.position = at.position;
  s->batch.first = at.first;
  s->batch.batch = at.batch;
  s->batch.global_batch = at.global_batch;
  if (reader->spec.is_shuffled)
    TrsShuffleInit(shuffle, (uint64_t)reader->seed, at.epoch, reader->schedule.num_samples);
  t->scratch.n_values = 0;
  TrsBatchRoomUse(&reader->spec, &s->room, &t->scratch, &s->batch);
  if (TrsBatchReadSamples(&reader->spec, reader->spec.is_shuffled ? shuffle : NULL, &t->scratch, &s->batch,
                          &s->fault) != PETSC_SUCCESS)
    return PETSC_TRUE;
  if (!wait_for_room(t, s)) return PETSC_FALSE;
  TrsBatchRoomUse(&reader->spec, &s->room, &t->scratch, &s->batch);
  memset(s->bad_ids, 0, (size_t)reader->spec.n * sizeof(*s->bad_ids));
  if (TrsBatchReadValues(&reader->spec, &t->scratch, &s->batch, s->bad_ids, &s->fault) == PETSC_SUCCESS &&
      reader->maps && !reader->spec.for_device)
    TrsBatchMapIds(&reader->spec, &s->batch);
  return PETSC_TRUE;
}

static void *read_ahead(void *context)
{
  TrsReaderThread *t = context;
  TrsReader reader = t->reader;
  TrsShuffle shuffle;

  TrsCpuHelps();
  (void)TrsCLocale(); /* messages contain numbers, which need a decimal point */
  for (int64_t step = t->first; step < reader->total; step += reader->n_threads) {
    TrsSlot *s = &reader->slots[step % reader->n_slots];
    PetscBool failed;
    double start_s;

    if (!wait_for_slot(reader, s, step)) break;
    start_s = s->kept ? -1 : TrsClock();
    if (!read_step(t, step, &shuffle, s)) break;
    failed = (PetscBool)(s->fault.code != PETSC_SUCCESS);
    /* after this call the slot may already have another step's batch */
    set_ready(reader, s, start_s);
    if (failed) break;
  }
  return NULL;
}

/* --- the main thread --- */

static PetscErrorCode create_slot(TrsReader reader, TrsSlot *s, int64_t n_values)
{
  const TrsBatchSpec *spec = &reader->spec;

  PetscFunctionBegin;
  s->batch.n_labels = spec->n_labels;
  s->batch.features = spec->for_device ? spec->feature : NULL;
  PetscCall(PetscCalloc1(spec->n, &s->bad_ids));
  PetscCall(
      TrsBatchRoomReserve(&reader->spec, &reader->memory, reader->max_batch, n_values, &s->room, &s->batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the size of this rank's largest batch. A rank may have no samples if the dataset is small;
  memory for one sample is allocated anyway.
*/
static void find_largest(TrsReader reader)
{
  TrsBatchOrderStep first;

  /* the first step of an epoch has the largest batch */
  TrsBatchOrderAt(&reader->schedule, 0, &first);
  reader->max_batch = first.batch > 0 ? first.batch : 1;
}

/*
  Create the memory of the reader threads. Thread t reads the steps that are t modulo the number of
  threads.
*/
static PetscErrorCode create_threads(TrsReader reader, int64_t n_values)
{
  PetscFunctionBegin;
  if (reader->n_threads == 0) reader->n_threads = reader->maps && !reader->spec.for_device ? 2 : 1;
  PetscCall(PetscCalloc1(reader->n_threads, &reader->threads));
  for (int64_t step = reader->start; step < reader->start + reader->n_threads; step++) {
    TrsReaderThread *t = &reader->threads[step % reader->n_threads];

    t->reader = reader;
    t->first = step;
    PetscCall(TrsBatchScratchCreate(&reader->spec, reader->max_batch, &t->scratch));
    PetscCall(TrsBatchScratchReserve(&reader->spec, &t->scratch, n_values));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TrsReader reader)
{
  TrsBatchSpec *spec = &reader->spec;
  int64_t per_epoch, n_values;
  double mean = 0;

  PetscFunctionBegin;
  PetscCheck(spec->info && spec->first_of_key, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "the reader has no dataset or no features");
  /* a caller of the library may have samples without labels, and then chooses no labels */
  PetscCheck(!reader->training || spec->info->has_labels || !spec->label, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has no dataset /labels", spec->info->path);
  PetscCheck(!spec->with_weights || spec->info->has_weights, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has no dataset /sparse/weights, which weighted tables need", spec->info->path);
  PetscCall(TrsReaderSteps(reader, &reader->total, &per_epoch));
  PetscCheck(per_epoch > 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-drop_last leaves no batch: %s has %" PRId64 " samples, a global batch takes %" PRId64,
             spec->info->path, spec->info->num_samples, reader->schedule.batch_size * reader->schedule.size);
  find_largest(reader);
  spec->with_labels = spec->info->has_labels;
  if (!spec->label) PetscCall(TrsReaderSetLabels(reader, 1, &(TrsReaderLabel){.place = 0}));
  spec->with_sample_weights = (PetscBool)(spec->info->has_sample_weights && reader->weighted);
  /* an evaluation writes groups and times together with its predictions */
  spec->with_group = (PetscBool)(reader->grouped || (spec->info->has_group && !reader->training));
  spec->with_time = (PetscBool)(spec->info->has_time && !reader->training);
  for (int k = 0; k < spec->info->n_features; k++) mean += spec->info->mean_lengths[k];
  n_values = (int64_t)(1.25 * mean * (double)reader->max_batch) + 64;
  PetscCall(create_threads(reader, n_values));
  reader->n_slots = TRS_READER_OUT + spec->for_device + reader->read_ahead + reader->n_threads - 1;
  /* each batch that is repeated stays in its slot, so n_slots must be a multiple of n_repeated */
  reader->keeps = (PetscBool)(reader->n_repeated > 0 && reader->n_repeated < reader->total - reader->start);
  if (reader->keeps)
    reader->n_slots = (reader->n_slots + reader->n_repeated - 1) / reader->n_repeated * reader->n_repeated;
  PetscCall(PetscCalloc1(reader->n_slots, &reader->slots));
  for (int64_t i = 0; i < reader->n_slots; i++) PetscCall(create_slot(reader, &reader->slots[i], n_values));
  for (int64_t step = reader->start; step < reader->start + reader->n_slots; step++)
    reader->slots[step % reader->n_slots].next = step;
  reader->next_out = reader->start;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start the threads. The main thread continues to receive all signals. */
static PetscErrorCode start_threads(TrsReader reader)
{
  sigset_t all, before;
  int status = 0;

  PetscFunctionBegin;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int64_t i = 0; i < reader->n_threads && status == 0; i++) {
    TrsReaderThread *t = &reader->threads[i];

    status = pthread_create(&t->thread, NULL, read_ahead, t);
    t->running = (PetscBool)(status == 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  PetscCheck(status == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "cannot start a thread of the reader: %s",
             strerror(status));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetUp(TrsReader reader)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_BATCHES);

  PetscFunctionBegin;
  PetscCall(TrsAgree(reader->comm, set_up(reader)));
  (void)TrsMemoryFor(before);
  PetscCall(TrsAgree(reader->comm, start_threads(reader)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Enlarge the slots whose batch is larger than all their earlier batches. The new memory is a
  quarter larger than necessary, so that slots rarely grow again. The caller must hold the lock.
*/
static PetscErrorCode grow(TrsReader reader)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_BATCHES);

  PetscFunctionBegin;
  for (int64_t i = 0; i < reader->n_slots; i++) {
    TrsSlot *s = &reader->slots[i];
    TrsBatchScratch *scratch = &reader->threads[s->next % reader->n_threads].scratch;
    int64_t n_values;

    /* the slot's thread waits while the slot needs memory, so its scratch memory may be changed */
    if (s->state != TRS_SLOT_NEEDS_ROOM) continue;
    n_values = scratch->n_values + scratch->n_values / 4;
    PetscCall(TrsBatchScratchReserve(&reader->spec, scratch, n_values));
    PetscCall(TrsBatchRoomReserve(&reader->spec, &reader->memory, reader->max_batch, n_values, &s->room,
                                  &s->batch));
    s->state = TRS_SLOT_FREE;
    pthread_cond_broadcast(&reader->changed);
  }
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Wait until the slot is ready, and take its batch. While waiting, enlarge every slot that needs
  memory. The caller must hold the lock.
*/
static PetscErrorCode take_slot(TrsReader reader, TrsSlot *s)
{
  PetscFunctionBegin;
  PetscCall(grow(reader));
  while (s->state != TRS_SLOT_READY) {
    PetscCheck(s->state != TRS_SLOT_OUT, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "all %" PRId64 " batches are out",
               reader->n_slots);
    pthread_cond_wait(&reader->changed, &reader->lock);
    PetscCall(grow(reader));
  }
  PetscCall(TrsFaultRaise(&s->fault));
  s->state = TRS_SLOT_OUT;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderNext(TrsReader reader, TrsBatch **batch)
{
  TrsSlot *s;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *batch = NULL;
  if (reader->next_out >= reader->total) PetscFunctionReturn(PETSC_SUCCESS);
  s = &reader->slots[reader->next_out % reader->n_slots];
  pthread_mutex_lock(&reader->lock);
  ierr = take_slot(reader, s);
  pthread_mutex_unlock(&reader->lock);
  PetscCall(ierr);
  reader->next_out++;
  for (int f = 0; f < reader->spec.n; f++) {
    TrsBadIds *bad = &reader->bad_ids[f];

    if (bad->n == 0) bad->first = s->bad_ids[f].first;
    bad->n += s->bad_ids[f].n;
  }
  reader->bad_numbers += s->batch.bad_numbers;
  *batch = &s->batch;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderCheck(TrsReader reader, TrsBatch *batch)
{
  TrsBatchScratch *scratch = &reader->check;
  TrsFault fault = {.code = PETSC_SUCCESS};
  TrsShuffle shuffle;

  PetscFunctionBegin;
  if (!batch->odd || !*batch->odd) PetscFunctionReturn(PETSC_SUCCESS);
  if (!scratch->sample) PetscCall(TrsBatchScratchCreate(&reader->spec, reader->max_batch, scratch));
  scratch->file = ((TrsSlot *)(void *)batch)->room.file;
  if (reader->spec.is_shuffled)
    TrsShuffleInit(&shuffle, (uint64_t)reader->seed, batch->epoch, reader->schedule.num_samples);
  (void)TrsBatchCheckIds(&reader->spec, reader->spec.is_shuffled ? &shuffle : NULL, scratch, batch,
                         reader->bad_ids, &fault);
  PetscCall(TrsFaultRaise(&fault));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderReturn(TrsReader reader, TrsBatch **batch)
{
  TrsSlot *s;

  PetscFunctionBegin;
  if (!*batch) PetscFunctionReturn(PETSC_SUCCESS);
  s = &reader->slots[(*batch)->step % reader->n_slots];
  pthread_mutex_lock(&reader->lock);
  s->state = TRS_SLOT_FREE;
  s->next += reader->n_slots;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->lock);
  *batch = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stop_threads(TrsReader reader)
{
  PetscFunctionBegin;
  if (!reader->threads) PetscFunctionReturn(PETSC_SUCCESS);
  pthread_mutex_lock(&reader->lock);
  reader->stop = PETSC_TRUE;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->lock);
  for (int64_t i = 0; i < reader->n_threads; i++) {
    TrsReaderThread *t = &reader->threads[i];

    if (t->running) pthread_join(t->thread, NULL);
    t->running = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderDestroy(TrsReader *reader)
{
  TrsReader r = *reader;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(stop_threads(r));
  for (int64_t i = 0; r->slots && i < r->n_slots; i++) {
    PetscCall(TrsBatchRoomFree(&r->memory, &r->slots[i].room, &r->slots[i].batch));
    PetscCall(PetscFree(r->slots[i].bad_ids));
  }
  PetscCall(PetscFree(r->slots));
  for (int64_t i = 0; r->threads && i < r->n_threads; i++)
    PetscCall(TrsBatchScratchFree(&r->spec, &r->threads[i].scratch));
  PetscCall(PetscFree(r->threads));
  PetscCall(TrsBatchScratchFree(&r->spec, &r->check));
  PetscCall(PetscFree3(r->spec.first_of_key, r->spec.feature, r->spec.mode));
  PetscCall(PetscFree(r->spec.label));
  PetscCall(PetscFree(r->bad_ids));
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->lock);
  PetscCall(PetscFree(*reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}
