/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/follow.h"

#include "core/clock.h"
#include "core/names.h"
#include "core/start.h"
#include "data/data_mapping.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/*
  The time between two looks into the folder is at least look_every_s, and at least look_share times
  the duration of a look, because a folder may have many files. A network file system may show a new
  file to some hosts later. see_within_s is the limit on the time until all ranks see the file.
*/
static const double look_every_s = 0.1, look_share = 20.0, see_within_s = 60.0;
enum { TRS_NAP_NS = 5000000 }; /* longest sleep of a rank that waits for other ranks */

static const TrsOptionSpec specs[] = {
    {"-data_follow", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "folder from which a training takes dataset files in the order of their names, after the files of "
     "-data_train. The training waits for the next file until the folder has a file named STOP. Give a file "
     "its final name only when it is complete: names that begin with '.' or end in '.tmp' do not count"},
    {"-data_follow_bad", TRS_OPTION_ENUM, "stop", NULL, "stop,skip", NULL,
     "what to do if a file of -data_follow is damaged, or does not fit the other files. stop: end the run "
     "with an error. skip: name the file and the reason in the log, and go on without this file"},
    {"-data_follow_idle_seconds", TRS_OPTION_REAL, NULL, "[0,]", NULL, "s",
     "end the training, as STOP does, after waiting this long for a file (default: no limit). 0: take only "
     "files that are already there"},
    {"-eval_ahead", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "evaluate each file of -data_follow before the first step that trains on its samples. The file of "
     "-output has the metrics of each file in /ahead"},
};
const TrsOptionGroup trs_follow_options = TRS_OPTION_GROUP("Follow a folder", specs);

/* A part of the stream: a file of the folder, or all files of -data_train, with the name "". */
typedef struct {
  char name[TRS_FOLLOW_NAME];
  int64_t first, samples, hash; /* first: index of its first sample in the stream */
  PetscBool was_evaluated;
} TrsStreamPart;

struct TrsFollowImpl {
  MPI_Comm comm;
  int rank;
  const char *path; /* borrowed from the options */
  PetscBool skips, evaluates, has_ended;
  double idle_s;          /* -data_follow_idle_seconds, or -1 */
  TrsFollowFolder folder; /* only on rank 0 */
  TrsFollowPlace place;   /* the place at which a resumed training continues, or zeros */
  /* [n_parts] the parts of the stream, beginning with the part of the last position */
  TrsStreamPart *part;
  int n_parts;
  TrsDataset dataset;            /* borrowed after TrsFollowOpenData() */
  TrsReader reader;              /* borrowed; NULL before TrsFollowSetReader() */
  const TrsTableConfigs *tables; /* borrowed; NULL as long as the reader is NULL */
  int64_t n_taken, n_bad;
  char end[PATH_MAX + 64];
  /*
    Only on rank 0: the earliest time of the next look; the time at which the ranks began to wait
    for a file, or -1 if they do not wait; the time at which rank 0 found a file that some rank does
    not see yet, or -1 if there is no such file.
  */
  double next_look_s, waiting_since_s, unseen_since_s;
};

/* --- the stream --- */

static int64_t end_of_stream(TrsFollow f)
{
  const TrsStreamPart *last = f->n_parts ? &f->part[f->n_parts - 1] : NULL;

  return last ? last->first + last->samples : 0;
}

static PetscErrorCode add_part(TrsFollow f, const char *name, int64_t first, int64_t samples, int64_t hash)
{
  TrsStreamPart *part;

  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(f->n_parts + 1) * sizeof(*f->part), &f->part));
  part = &f->part[f->n_parts++];
  *part = (TrsStreamPart){.first = first, .samples = samples, .hash = hash};
  PetscCall(PetscStrncpy(part->name, name, sizeof(part->name)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Forget the parts that end before this position. */
static PetscErrorCode forget_before(TrsFollow f, int64_t position)
{
  int n = 0;

  PetscFunctionBegin;
  while (n < f->n_parts - 1 && f->part[n].first + f->part[n].samples < position) n++;
  if (n) memmove(f->part, f->part + n, (size_t)(f->n_parts - n) * sizeof(*f->part));
  f->n_parts -= n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsFollowFindPlace(TrsFollow f, int64_t position, TrsFollowPlace *place)
{
  int k = f->n_parts - 1;

  while (k > 0 && f->part[k].first >= position) k--;
  *place = (TrsFollowPlace){.position = position};
  /* At the beginning of the stream, no samples were taken from any file. */
  if (k < 0 || (position == 0 && f->part[k].name[0])) return;
  snprintf(place->file, sizeof(place->file), "%s", f->part[k].name);
  place->taken = position - f->part[k].first;
  place->samples = f->part[k].samples;
  place->hash = f->part[k].hash;
}

/* --- files --- */

/* Check that the tables have rows for the ids of a file, as a training checks its first files. */
static PetscErrorCode check_tables(TrsFollow f, const TrsDatasetInfo *info)
{
  PetscFunctionBegin;
  for (int t = 0; f->tables && t < f->tables->n; t++) {
    const TrsTableConfig *table = &f->tables->table[t];

    if (table->id_map.kind != TRS_ID_MAP_NONE) continue;
    for (int k = 0; k < info->n_features; k++)
      for (int i = 0; i < table->n_features; i++)
        PetscCheck(strcmp(info->features[k], table->features[i]) != 0 ||
                       info->num_embeddings[k] <= table->num_embeddings,
                   PETSC_COMM_SELF, TRS_ERR_DATA,
                   "%s: the ids of feature '%s' range to %" PRId64 ", but table \"%.100s\" has %" PRId64
                   " rows: give it -table_<name>_num_embeddings, or an id_map",
                   info->path, info->features[k], info->num_embeddings[k], table->name,
                   table->num_embeddings);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On rank 0, check that a file was converted as the stream's other files were. */
static PetscErrorCode check_mapping(TrsFollow f, const TrsDatasetInfo *info)
{
  const TrsMappingUse all = {.n_dense = info->dense_columns};
  const TrsMapping mapping = TrsDataMapping(info);
  const TrsDatasetInfo *stream;
  TrsMapping first;

  PetscFunctionBegin;
  PetscCall(TrsMappingCheck(&mapping, info->dense_columns));
  if (!f->dataset) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetGetInfo(f->dataset, &stream));
  first = TrsDataMapping(stream);
  PetscCall(TrsMappingCompare(&first, &mapping, &all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append a checked dataset to the stream's dataset, or make it the first one. */
static PetscErrorCode append(TrsFollow f, TrsDataset *one)
{
  PetscFunctionBegin;
  if (f->reader) {
    PetscCall(TrsReaderAppend(f->reader, one));
  } else if (f->dataset) {
    PetscCall(TrsDatasetAppend(f->dataset, one));
  } else {
    f->dataset = *one;
    *one = NULL;
    TrsDatasetWidenIds(f->dataset);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open a file of the folder, check it, and append it. After an error, the stream is unchanged. */
static PetscErrorCode open_file(TrsFollow f, const char *name, int64_t first)
{
  char path[PATH_MAX];
  const char *const paths[1] = {path};
  const TrsDatasetInfo *info;
  int64_t samples, hash;
  TrsDataset one = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  snprintf(path, sizeof(path), "%s/%s", f->path, name);
  PetscCall(TrsDatasetOpen(f->comm, 1, paths, &one));
  PetscCall(TrsDatasetGetInfo(one, &info));
  samples = info->num_samples;
  hash = info->sample_hash;
  ierr = check_tables(f, info);
  if (ierr == PETSC_SUCCESS) ierr = TrsAgree(f->comm, check_mapping(f, info));
  if (ierr == PETSC_SUCCESS) ierr = append(f, &one);
  (void)TrsDatasetClose(&one);
  PetscCall(ierr);
  PetscCall(add_part(f, name, first, samples, hash));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Raise the error of a bad file, and name the option that would set the file aside. Collective. */
static PetscErrorCode refuse(TrsFollow f, PetscErrorCode code)
{
  char text[2048];

  PetscFunctionBegin;
  snprintf(text, sizeof(text), "%s", TrsErrorMessage());
  TrsErrorClear();
  SETERRQ(f->comm, code, "%s (-data_follow_bad skip sets such a file aside)", text);
}

/* Take a file that all ranks see. A bad file ends the run or is set aside. Collective. */
static PetscErrorCode take_file(TrsFollow f, const char *name, TrsFollowNews *news)
{
  const PetscErrorCode ierr = TrsAgree(f->comm, open_file(f, name, end_of_stream(f)));
  const PetscBool is_bad = (PetscBool)(ierr == TRS_ERR_DATA || ierr == TRS_ERR_NO_INPUT);

  PetscFunctionBegin;
  *news = TRS_FOLLOW_FILE;
  if (ierr == TRS_ERR_STOPPED) {
    /* a signal came while the file was checked; the ranks agree on it at the next step or look */
    TrsErrorClear();
    *news = TRS_FOLLOW_NOTHING;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (is_bad && f->skips) {
    PetscCall(PetscPrintf(f->comm, "%-10s %s (-data_follow_bad skip)\n", "set aside", TrsErrorMessage()));
    TrsErrorClear();
    f->n_bad++;
  } else {
    if (is_bad) PetscCall(TrsAgree(f->comm, refuse(f, ierr)));
    PetscCall(ierr);
    f->n_taken++;
  }
  if (f->rank == 0) PetscCall(TrsFollowFolderTake(&f->folder, name));
  f->waiting_since_s = f->unseen_since_s = -1;
  f->next_look_s = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find out if all ranks see a file that rank 0 has found. If rank 0 no longer sees the file, the
  file was removed, and *seen is false. If another rank does not see the file within see_within_s,
  *seen is true, so that the attempt to open it fails with an error that names the rank. Collective.
*/
static PetscErrorCode is_seen(TrsFollow f, const char *name, PetscBool *seen)
{
  char path[PATH_MAX];
  struct stat info;
  int all[2];

  PetscFunctionBegin;
  snprintf(path, sizeof(path), "%s/%s", f->path, name);
  all[0] = lstat(path, &info) == 0; /* a link without a target is a bad file */
  if (f->rank == 0 && f->unseen_since_s < 0) f->unseen_since_s = TrsClock();
  all[1] = f->rank != 0 || !all[0] || TrsClock() - f->unseen_since_s < see_within_s;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, all, 2, MPI_INT, MPI_MIN, f->comm));
  *seen = (PetscBool)(all[0] || !all[1]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- looking --- */

/*
  Wait for an exchange without keeping a core busy. The first sleep is short, because the ranks
  usually arrive at about the same time. Each later sleep is longer than the one before it.
*/
static PetscErrorCode wait_asleep(MPI_Request *request)
{
  struct timespec nap = {0, 20000};
  int done = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
  while (!done) {
    (void)nanosleep(&nap, NULL);
    nap.tv_nsec = PetscMin(2 * nap.tv_nsec, TRS_NAP_NS);
    PetscCallMPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode tell_late(TrsFollow f, const TrsFollowLook *look)
{
  char more[64] = "";

  PetscFunctionBegin;
  if (!look->n_late) PetscFunctionReturn(PETSC_SUCCESS);
  if (look->n_late > 1) snprintf(more, sizeof(more), " and %d more", look->n_late - 1);
  PetscCall(PetscPrintf(
      PETSC_COMM_SELF, "%-10s %s/%s%s came too late and is left alone: it sorts before %s, which was taken\n",
      "follow", f->path, look->late, more, f->folder.last));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On rank 0, look into the folder if a look is due. `name` gets the name of a new file. */
static PetscErrorCode look(TrsFollow f, PetscBool waits, char *name, TrsFollowNews *news)
{
  const double now_s = TrsClock();
  TrsFollowLook found;

  PetscFunctionBegin;
  *news = TRS_FOLLOW_NOTHING;
  if (waits && f->waiting_since_s < 0) f->waiting_since_s = now_s;
  if (now_s < f->next_look_s) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsFollowFolderLook(&f->folder, &found));
  f->next_look_s = TrsClock() + PetscMax(look_every_s, look_share * (TrsClock() - now_s));
  PetscCall(tell_late(f, &found));
  PetscCall(PetscStrncpy(name, found.next, TRS_FOLLOW_NAME));
  if (found.next[0]) {
    *news = TRS_FOLLOW_FILE;
  } else if (found.has_stop) {
    *news = TRS_FOLLOW_END;
    snprintf(f->end, sizeof(f->end), TRS_FOLLOW_STOP " in %s", f->path);
  } else if (waits && f->idle_s >= 0 && now_s - f->waiting_since_s >= f->idle_s) {
    *news = TRS_FOLLOW_END;
    snprintf(f->end, sizeof(f->end), "no file for %g s (-data_follow_idle_seconds)", f->idle_s);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Agree on rank 0's news, and on a request to stop. Collective. */
static PetscErrorCode agree(TrsFollow f, PetscBool waits, PetscErrorCode ierr, char *name,
                            TrsFollowNews *news)
{
  int all[3] = {(int)*news, waits && trs_stop_requested != 0, ierr != PETSC_SUCCESS};
  MPI_Request request;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Iallreduce(MPI_IN_PLACE, all, 3, MPI_INT, MPI_MAX, f->comm, &request));
  PetscCall(wait_asleep(&request));
  if (all[2]) PetscCall(TrsAgree(f->comm, ierr));
  *news = all[1] ? TRS_FOLLOW_STOPPED : (TrsFollowNews)all[0];
  if (*news == TRS_FOLLOW_FILE) PetscCallMPI(MPI_Bcast(name, TRS_FOLLOW_NAME, MPI_CHAR, 0, f->comm));
  if (*news == TRS_FOLLOW_END) PetscCallMPI(MPI_Bcast(f->end, (int)sizeof(f->end), MPI_CHAR, 0, f->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowTake(TrsFollow f, int64_t position, PetscBool waits, TrsFollowNews *news)
{
  const struct timespec pause = {0, (long)(look_every_s * 1e9)};
  char name[TRS_FOLLOW_NAME] = "";
  PetscErrorCode ierr = PETSC_SUCCESS;
  PetscBool seen = PETSC_FALSE;

  PetscFunctionBegin;
  *news = TRS_FOLLOW_NOTHING;
  PetscCall(forget_before(f, position));
  if (f->rank == 0) ierr = look(f, waits, name, news);
  PetscCall(agree(f, waits, ierr, name, news));
  if (*news == TRS_FOLLOW_FILE) {
    PetscCall(is_seen(f, name, &seen));
    *news = TRS_FOLLOW_NOTHING;
    if (seen) PetscCall(take_file(f, name, news));
  } else if (*news == TRS_FOLLOW_END) {
    f->has_ended = PETSC_TRUE;
    if (f->reader) PetscCall(TrsReaderEndStream(f->reader));
  }
  /* a signal ends the sleep */
  if (*news == TRS_FOLLOW_NOTHING && waits) (void)nanosleep(&pause, NULL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the start --- */

/* Refuse options that need all samples at the start. */
static PetscErrorCode check_options(TrsOptions options)
{
  int64_t epochs = 1, repeated;
  PetscBool shuffled;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-data_shuffle", &shuffled, NULL));
  PetscCall(TrsOptionsGetInt(options, "-epochs", &epochs, NULL));
  PetscCall(TrsOptionsGetInt(options, "-data_repeat_batches", &repeated, NULL));
  if (shuffled)
    PetscCall(
        TrsOptionError(options, "-data_shuffle",
                       "needs all samples at the start, but those of -data_follow come later: leave this "
                       "option out, and shuffle the samples when you write the files"));
  if (epochs != 1)
    PetscCall(TrsOptionError(options, "-epochs", "is %" PRId64 ", but -data_follow takes each sample once",
                             epochs));
  if (repeated)
    PetscCall(TrsOptionError(options, "-data_repeat_batches",
                             "repeats samples, but -data_follow takes each sample once"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowCreate(MPI_Comm comm, TrsOptions options, const char *resumed_from, TrsFollow *follow)
{
  static const char *const others[] = {"-data_follow_bad", "-data_follow_idle_seconds", "-eval_ahead"};
  const char *path = NULL;
  PetscBool follows = PETSC_FALSE;
  PetscErrorCode ierr = PETSC_SUCCESS;
  int bad, n_before = 0;
  TrsFollow f;

  PetscFunctionBegin;
  *follow = NULL;
  PetscCall(TrsOptionsGetString(options, "-data_follow", &path, NULL));
  for (int i = 0; i < 3 && !path; i++)
    if (TrsOptionsIsGiven(options, others[i]))
      PetscCall(TrsOptionError(options, others[i], "needs -data_follow, the folder of the files"));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(check_options(options));
  PetscCall(PetscNew(&f));
  *follow = f;
  f->path = path;
  f->idle_s = f->waiting_since_s = f->unseen_since_s = -1;
  PetscCallMPI(MPI_Comm_dup(comm, &f->comm));
  PetscCallMPI(MPI_Comm_rank(comm, &f->rank));
  PetscCall(TrsOptionsGetEnum(options, "-data_follow_bad", &bad, NULL));
  PetscCall(TrsOptionsGetReal(options, "-data_follow_idle_seconds", &f->idle_s, NULL));
  PetscCall(TrsOptionsGetBool(options, "-eval_ahead", &f->evaluates, NULL));
  f->skips = (PetscBool)(bad == 1);
  if (resumed_from) {
    PetscCall(TrsCheckpointReadFollowPlace(comm, resumed_from, &follows, &f->place));
    if (!follows)
      PetscCall(TrsOptionError(options, "-data_follow",
                               "%s is the checkpoint of a training that did not follow a folder: start a new "
                               "training from its weights with -init_from",
                               resumed_from));
  }
  if (f->rank == 0) ierr = TrsFollowFolderOpen(path, f->place.file, &f->folder, &n_before);
  PetscCall(TrsAgree(comm, ierr));
  if (f->place.file[0] && n_before > 1)
    PetscCall(PetscPrintf(
        comm,
        "%-10s %d file%s in %s sort%s before %s, where the training goes on; such files are left alone\n",
        "follow", n_before - 1, TrsPlural(n_before - 1, "s"), path, n_before == 2 ? "s" : "", f->place.file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowDestroy(TrsFollow *follow)
{
  PetscFunctionBegin;
  if (!*follow) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsFollowFolderFree(&(*follow)->folder));
  PetscCall(PetscFree((*follow)->part));
  PetscCallMPI(MPI_Comm_free(&(*follow)->comm));
  PetscCall(PetscFree(*follow));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that the part in which a resumed training continues is still the one that it read before.
*/
static PetscErrorCode check_place(TrsFollow f, const char *what)
{
  const TrsStreamPart *part = &f->part[f->n_parts - 1];

  PetscFunctionBegin;
  PetscCheck(part->samples == f->place.samples, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has %" PRId64 " samples, expected %" PRId64
             ", because the training goes on after its sample %" PRId64,
             what, part->samples, f->place.samples, f->place.taken);
  if (part->hash != f->place.hash)
    PetscCall(PetscPrintf(f->comm,
                          "%-10s %s has as many samples as before, but not the same samples: the training "
                          "goes on at the same place in it\n",
                          "resume", what));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open the files of -data_train. */
static PetscErrorCode open_first(TrsFollow f, int n, const char *const *names)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(TrsDatasetOpen(f->comm, n, names, &f->dataset));
  TrsDatasetWidenIds(f->dataset);
  PetscCall(TrsDatasetGetInfo(f->dataset, &info));
  PetscCall(add_part(f, "", 0, info->num_samples, info->sample_hash));
  if (!f->place.file[0] && f->place.samples) PetscCall(check_place(f, "-data_train"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Open the file in which a resumed training continues. If all of its samples were taken, the file
  may have been removed.
*/
static PetscErrorCode open_place(TrsFollow f)
{
  const TrsFollowPlace *at = &f->place;
  char path[PATH_MAX];
  struct stat info;
  int is_there;

  PetscFunctionBegin;
  if (!at->file[0] && (f->n_parts || at->taken < at->samples)) {
    PetscCheck(f->n_parts, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "-data_train is missing: the training goes on after its sample %" PRId64, at->taken);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  snprintf(path, sizeof(path), "%s/%s", f->path, at->file);
  is_there = at->file[0] && stat(path, &info) == 0;
  PetscCallMPI(MPI_Bcast(&is_there, 1, MPI_INT, 0, f->comm));
  PetscCheck(is_there || at->taken == at->samples, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "%s is not there, but the training goes on after its sample %" PRId64 " of %" PRId64, path,
             at->taken, at->samples);
  if (is_there) {
    PetscCall(open_file(f, at->file, at->position - at->taken));
    PetscCall(check_place(f, path));
  } else {
    PetscCall(add_part(f, at->file, at->position - at->taken, at->samples, at->hash));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowOpenData(TrsFollow f, int n, const char *const *names, TrsDataset *dataset)
{
  TrsFollowNews news = TRS_FOLLOW_NOTHING;
  PetscErrorCode ierr = PETSC_SUCCESS;
  PetscBool told = PETSC_FALSE;

  PetscFunctionBegin;
  if (n) ierr = open_first(f, n, names);
  if (ierr == PETSC_SUCCESS) ierr = open_place(f);
  while (ierr == PETSC_SUCCESS && !f->dataset && news != TRS_FOLLOW_END && news != TRS_FOLLOW_STOPPED) {
    ierr = TrsFollowTake(f, f->place.position, PETSC_TRUE, &news);
    if (ierr != PETSC_SUCCESS || told || news != TRS_FOLLOW_NOTHING) continue;
    ierr = PetscPrintf(f->comm, "waiting for data: no file in %s yet\n", f->path);
    told = PETSC_TRUE;
  }
  *dataset = f->dataset;
  PetscCall(ierr);
  PetscCheck(news != TRS_FOLLOW_STOPPED, PETSC_COMM_SELF, TRS_ERR_STOPPED,
             "stopped on request while waiting for the first file in %s; nothing was changed", f->path);
  PetscCheck(f->dataset, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s has no file to train on: %s", f->path,
             f->end);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowSetReader(TrsFollow f, TrsReader reader, int64_t step, const TrsTableConfigs *tables)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(f->dataset, &info));
  PetscCall(TrsReaderSetStream(reader, step, f->place.position, end_of_stream(f) - info->num_samples));
  f->reader = reader;
  f->tables = tables;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsFollowHasEnded(TrsFollow f)
{
  return f->has_ended;
}

const char *TrsFollowEnd(TrsFollow f)
{
  return f->end;
}

void TrsFollowCount(TrsFollow f, const char **path, int64_t *n_taken, int64_t *n_bad)
{
  if (path) *path = f->path;
  if (n_taken) *n_taken = f->n_taken;
  if (n_bad) *n_bad = f->n_bad;
}

PetscBool TrsFollowEvaluates(TrsFollow f)
{
  return f->evaluates;
}

PetscBool TrsFollowNextAhead(TrsFollow f, int64_t from, int64_t to, TrsFollowAhead *ahead)
{
  const TrsDatasetInfo *info;

  if (!f->evaluates || TrsDatasetGetInfo(f->dataset, &info) != PETSC_SUCCESS) return PETSC_FALSE;
  for (int k = 0; k < f->n_parts; k++) {
    TrsStreamPart *part = &f->part[k];

    if (part->was_evaluated || !part->name[0] || part->first < from || part->first >= to) continue;
    part->was_evaluated = PETSC_TRUE;
    *ahead = (TrsFollowAhead){.file = part->name,
                              .position = part->first,
                              .first = part->first - (end_of_stream(f) - info->num_samples),
                              .n = part->samples};
    return PETSC_TRUE;
  }
  return PETSC_FALSE;
}
