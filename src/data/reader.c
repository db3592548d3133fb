/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/reader.h"

#include "data/id_map.h"
#include "data/reader_impl.h"

#include <inttypes.h>
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
     "weights of samples, and labels that their loss cannot have, such as labels outside [0, 1]. fatal: "
     "stop with an error. warning: count them and warn. none: do not check"},
    {"-data_read_ahead", TRS_OPTION_INT, "2", "[1,1000]", NULL, "batches",
     "batches that are read before they are needed"},
    {"-data_repeat_batches", TRS_OPTION_INT, "0", "[0,1000000]", NULL, "batches",
     "for benchmarks: a training keeps this many batches, the first ones, in memory and repeats them, so "
     "that reading takes no time. Step s has the samples of step s mod n of an ordinary training. 0: no "
     "batch is kept"},
    {"-reader_threads", TRS_OPTION_INT, NULL, "[1,256]", NULL, "threads",
     "threads of each rank that read. Thread i mod n reads batch i. Batches and their order do not "
     "depend on it. Filtered (gzip) and converted data are unpacked by one thread at a time (default: 1, "
     "or 2 if they map ids; a GPU maps its ids itself)"},
};
const TrsOptionGroup trs_reader_options = TRS_OPTION_GROUP_OF_MODEL("Data", NULL, reader_options, NULL,
                                                                    "-data_dense,-data_label");

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

PetscErrorCode TrsReaderSetPart(TrsReader reader, int64_t first, int64_t n)
{
  PetscFunctionBegin;
  PetscCheck(!reader->spec.is_shuffled, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a part is shuffled");
  reader->schedule.num_samples = n;
  reader->spec.before_dataset = -first;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetStream(TrsReader reader, int64_t step, int64_t first_sample,
                                  int64_t before_dataset)
{
  PetscFunctionBegin;
  PetscCheck(!reader->spec.is_shuffled && reader->n_repeated == 0 && reader->epochs <= 1, PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "a stream is shuffled or repeated");
  reader->start = step;
  reader->schedule.is_stream = PETSC_TRUE;
  reader->schedule.first_step = step;
  reader->schedule.first_sample = first_sample;
  reader->schedule.num_samples = before_dataset + reader->spec.info->num_samples;
  reader->spec.before_dataset = before_dataset;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsReaderAhead(TrsReader reader)
{
  return reader->n_slots;
}

PetscErrorCode TrsReaderSteps(TrsReader reader, int64_t *total, int64_t *per_epoch)
{
  int64_t n = TrsBatchOrderStepsPerEpoch(&reader->schedule), steps;

  PetscFunctionBegin;
  if (reader->schedule.is_stream) {
    steps = reader->steps >= 0 ? PetscMin(reader->steps, n) : n;
  } else if (reader->epochs < 0 && reader->steps >= 0) {
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
  TrsBatchOrderStep first = {.batch = reader->schedule.batch_size};

  /* the first step of an epoch has the largest batch */
  if (!reader->schedule.is_stream) TrsBatchOrderAt(&reader->schedule, 0, &first);
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
  PetscCheck(per_epoch > 0 || reader->schedule.is_stream, PETSC_COMM_SELF, TRS_ERR_OPTION,
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

PetscErrorCode TrsReaderSetUp(TrsReader reader)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_BATCHES);

  PetscFunctionBegin;
  PetscCall(TrsAgree(reader->comm, set_up(reader)));
  (void)TrsMemoryFor(before);
  PetscCall(TrsAgree(reader->comm, TrsReaderThreadsStart(reader)));
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

PetscErrorCode TrsReaderDestroy(TrsReader *reader)
{
  TrsReader r = *reader;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsReaderThreadsStop(r));
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
