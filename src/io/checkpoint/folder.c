/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* needed for F_OFD_SETLK. NOLINT(bugprone-reserved-identifier) */
#include "core/names.h"
#include "core/print.h"
#include "io/atomic_file.h"
#include "io/checkpoint/impl.h"
#include "io/checkpoint/list.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRS_N_SEARCHES = 100 };

const TrsFolderKind trs_folder_checkpoints = {
    .option = "-checkpoint_dir",
    .file = "checkpoint",
    .remedy = "take another -checkpoint_dir, or set them aside in the folder NAME within it with "
              "-checkpoint_set_aside NAME"};
const TrsFolderKind trs_folder_deltas = {
    .option = "-delta_dir", .file = "delta", .remedy = "or take another -delta_dir"};

struct TrsCheckpointFolderImpl {
  MPI_Comm comm;
  int rank, keep;
  char *path;
  const TrsFolderKind *kind;
  TrsRunLock lock;
  char run_id[TRS_RUN_ID_SIZE];
  /* the files found when the folder was opened, and the files written since */
  TrsCheckpointList list;
};

/* --- checks before training --- */

/*
  Open the file that rank 0 has made, in the same way as when a checkpoint is written. `what` is the
  path for messages.
*/
static PetscErrorCode join(const char *temporary, const char *what, int rank)
{
  char host[MPI_MAX_PROCESSOR_NAME];
  const int fd = TrsAtomicJoin(temporary), error = errno;
  int length;

  PetscFunctionBegin;
  if (fd >= 0) (void)close(fd);
  PetscCallMPI(MPI_Get_processor_name(host, &length));
  PetscCheck(
      fd >= 0, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
      "%s cannot be written by all ranks: rank %d on host %s cannot open the file that rank 0 has made "
      "there (%s). All hosts need one file system at this path",
      what, rank, host, strerror(error));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that rank 0 can make a file at `path` and that all ranks can write to it, because each rank
  writes its part of a checkpoint.
*/
static PetscErrorCode try_file(MPI_Comm comm, const char *path, const char *what)
{
  TrsAtomicFile file = {.fd = -1};
  char temporary[PATH_MAX] = "";
  PetscErrorCode ierr;
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  ierr = TrsAgree(comm, rank == 0 ? TrsAtomicCreate(path, &file) : PETSC_SUCCESS);
  if (ierr == PETSC_SUCCESS) {
    if (rank == 0) snprintf(temporary, sizeof(temporary), "%s", file.temporary);
    PetscCallMPI(MPI_Bcast(temporary, sizeof(temporary), MPI_CHAR, 0, comm));
    ierr = TrsAgree(comm, rank == 0 ? PETSC_SUCCESS : join(temporary, what, rank));
  }
  PetscCall(TrsAtomicDiscard(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointTry(MPI_Comm comm, const char *file)
{
  PetscFunctionBegin;
  if (file) PetscCall(try_file(comm, file, file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a run's own folder --- */

/* Check that a checkpoint can be made here, and remove left-overs of killed jobs. */
static PetscErrorCode try_folder(const TrsCheckpointFolder f)
{
  PetscErrorCode ierr;
  char *path;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointStepPath(f->path, 0, &path));
  ierr = try_file(f->comm, path, f->path);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  if (f->rank == 0) TrsAtomicClean(f->path, trs_checkpoint_prefix);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_folder(TrsCheckpointFolder f, const TrsRunWait *wait)
{
  PetscFunctionBegin;
  PetscCall(TrsRunFolderLock(f->comm, f->path, f->kind->option, wait, &f->lock));
  PetscCall(try_folder(f));
  PetscCall(TrsCheckpointListAgreed(f->comm, f->path, &f->list));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderOpen(MPI_Comm comm, const char *path, const TrsFolderKind *kind, int keep,
                                       const TrsRunWait *wait, TrsCheckpointFolder *folder)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscNew(folder));
  (*folder)->comm = comm;
  (*folder)->keep = keep;
  (*folder)->kind = kind;
  PetscCallMPI(MPI_Comm_rank(comm, &(*folder)->rank));
  PetscCall(PetscStrallocpy(path, &(*folder)->path));
  ierr = open_folder(*folder, wait);
  if (ierr != PETSC_SUCCESS) PetscCall(TrsCheckpointFolderClose(folder));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderClose(TrsCheckpointFolder *folder)
{
  PetscFunctionBegin;
  if (!*folder) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRunFolderUnlock(&(*folder)->lock));
  PetscCall(PetscFree((*folder)->list.entry));
  PetscCall(PetscFree((*folder)->path));
  PetscCall(PetscFree(*folder));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Move the listed files into a new subfolder `name` of their folder. */
static PetscErrorCode set_aside(const TrsCheckpointFolder f, const char *name)
{
  const size_t n = strlen(f->path) + strlen(name) + 2;
  int fd;
  char *aside;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &aside));
  snprintf(aside, n, "%s/%s", f->path, name);
  PetscCheck(mkdir(aside, 0777) == 0, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "the folder %s cannot be made for earlier checkpoints: %s (-checkpoint_set_aside)", aside,
             strerror(errno));
  /* Move the oldest file first, so that the newest files remain here if a move fails. */
  for (int i = f->list.n - 1; i >= 0; i--) {
    char *from, *to;

    PetscCall(TrsCheckpointStepPath(f->path, f->list.entry[i].step, &from));
    PetscCall(TrsCheckpointStepPath(aside, f->list.entry[i].step, &to));
    PetscCheck(rename(from, to) == 0, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be moved to %s: %s",
               from, aside, strerror(errno));
    PetscCall(PetscFree(from));
    PetscCall(PetscFree(to));
  }
  fd = open(aside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) (void)fsync(fd);
  if (fd >= 0) (void)close(fd);
  TrsPrint(stdout, "%-10s %d earlier checkpoint%s moved to %s\n", "set aside", f->list.n,
           TrsPlural(f->list.n, "s"), aside);
  PetscCall(PetscFree(aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderClaim(TrsCheckpointFolder f, PetscBool resume, const char *aside)
{
  const TrsCheckpointEntry *newest = f->list.entry;

  PetscFunctionBegin;
  if (resume) PetscCall(TrsCheckpointListOneRun(f->path, &f->list, f->run_id));
  if (resume && f->list.n == 0)
    PetscCall(PetscStrncpy(f->run_id, TrsRunFolderInterrupted(f->lock), sizeof(f->run_id)));
  if (resume || f->list.n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(aside, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s holds %d %s%s of another run (%s%sup to step %" PRId64
             "): go on from there with -resume, %s",
             f->path, f->list.n, f->kind->file, TrsPlural(f->list.n, "s"), newest->run_id,
             newest->run_id[0] ? ", " : "", newest->step, f->kind->remedy);
  PetscCall(TrsAgree(f->comm, f->rank == 0 ? set_aside(f, aside) : PETSC_SUCCESS));
  f->list.n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsCheckpointFolderRun(TrsCheckpointFolder folder)
{
  return folder ? folder->run_id : "";
}

PetscBool TrsCheckpointFolderIsEmpty(TrsCheckpointFolder folder)
{
  return (PetscBool)(folder->list.n == 0);
}

void TrsCheckpointFolderName(TrsCheckpointFolder folder, const char *run_id)
{
  if (folder) TrsRunFolderName(folder->lock, run_id);
}

/*
  Insert the entry of the file just written into the list. If an entry has the same step, replace
  it.
*/
static PetscErrorCode add_entry(TrsCheckpointList *list, const TrsCheckpointEntry *written)
{
  int at = 0;

  PetscFunctionBegin;
  while (at < list->n && list->entry[at].step > written->step) at++;
  if (at == list->n || list->entry[at].step != written->step) {
    PetscCall(PetscRealloc((size_t)(list->n + 1) * sizeof(*list->entry), &list->entry));
    memmove(list->entry + at + 1, list->entry + at, (size_t)(list->n - at) * sizeof(*list->entry));
    list->n++;
  }
  list->entry[at] = *written;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Hold the file. The lock lasts until this descriptor is closed, even if other code opens and closes
  the file.
*/
int TrsCheckpointHold(const char *path)
{
  struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

  if (fd >= 0) (void)fcntl(fd, F_OFD_SETLK, &whole);
  return fd;
}

static int is_held(const char *path)
{
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int held = fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;

  if (fd >= 0) (void)close(fd);
  return held;
}

void TrsCheckpointRelease(int *hold)
{
  if (*hold >= 0) (void)close(*hold);
  *hold = -1;
}

/* Return the index of a step's file in the list, or -1. */
static int entry_of(const TrsCheckpointList *list, int64_t step)
{
  for (int i = 0; i < list->n; i++)
    if (list->entry[i].step == step) return i;
  return -1;
}

/*
  Keep the newest `keep` of this run's files up to the file just written, and the files that these
  need. A chain is removed from its end, so that the rest is always whole. Files with later steps
  were written before a resume that could not read them; the run will replace them when it reaches
  their steps. A file that a reader holds stays until a later call. If a file cannot be removed, the
  run continues.
*/
static PetscErrorCode remove_old(TrsCheckpointFolder f, const TrsCheckpointEntry *written)
{
  TrsCheckpointList *list = &f->list;
  int n_left = 0, n_own = 0;
  PetscBool *needed; /* [list->n] */

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)list->n, &needed));
  for (int i = 0; i < list->n; i++) {
    const TrsCheckpointEntry entry = list->entry[i];
    const int needs = entry_of(list, entry.needs);
    const PetscBool own = (PetscBool)(entry.step <= written->step &&
                                      strcmp(entry.run_id, written->run_id) == 0);
    int stays = 1;

    n_own += own ? 1 : 0;
    if (own && n_own > PetscMax(f->keep, 1) && !needed[i]) {
      char *path;

      PetscCall(TrsCheckpointStepPath(f->path, entry.step, &path));
      stays = f->rank == 0 && is_held(path);
      if (f->rank == 0 && !stays) (void)unlink(path);
      PetscCallMPI(MPI_Bcast(&stays, 1, MPI_INT, 0, f->comm));
      PetscCall(PetscFree(path));
    }
    if (stays && needs >= 0) needed[needs] = PETSC_TRUE;
    if (stays) list->entry[n_left++] = entry;
  }
  list->n = n_left;
  PetscCall(PetscFree(needed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Does the folder have the file of this step, and all files that it needs? For rank 0. */
static PetscErrorCode has_chain(const TrsCheckpointFolder f, int64_t step, int *has)
{
  PetscFunctionBegin;
  *has = 1;
  while (*has && step >= 0) {
    const int i = entry_of(&f->list, step);
    char *path;

    PetscCall(TrsCheckpointStepPath(f->path, step, &path));
    *has = i >= 0 && access(path, F_OK) == 0;
    PetscCall(PetscFree(path));
    step = i >= 0 ? f->list.entry[i].needs : -1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderHasChain(TrsCheckpointFolder f, int64_t step, PetscBool *has)
{
  int answer = 0;

  PetscFunctionBegin;
  PetscCall(TrsAgree(f->comm, f->rank == 0 ? has_chain(f, step, &answer) : PETSC_SUCCESS));
  PetscCallMPI(MPI_Bcast(&answer, 1, MPI_INT, 0, f->comm));
  *has = (PetscBool)answer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderPath(TrsCheckpointFolder f, int64_t step, char **path)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointStepPath(f->path, step, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode remove_file(const TrsCheckpointFolder f, int64_t step)
{
  char *path;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointStepPath(f->path, step, &path));
  PetscCheck(unlink(path) == 0 || errno == ENOENT, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s has a step that the resumed training repeats, and cannot be removed: %s", path,
             strerror(errno));
  PetscCall(PetscFree(path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderCut(TrsCheckpointFolder f, const char *run_id, int64_t step)
{
  int n_left = 0;

  PetscFunctionBegin;
  for (int i = 0; i < f->list.n; i++) {
    const TrsCheckpointEntry entry = f->list.entry[i];

    if (entry.step > step && strcmp(entry.run_id, run_id) == 0)
      PetscCall(TrsAgree(f->comm, f->rank == 0 ? remove_file(f, entry.step) : PETSC_SUCCESS));
    else
      f->list.entry[n_left++] = entry;
  }
  f->list.n = n_left;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If the folder was removed or replaced during the run, the folder at this path is no longer the
  locked one. Open and lock it again. Another job may own it by now, or may have left files in it.
*/
static PetscErrorCode keep_folder(TrsCheckpointFolder f, const char *run_id)
{
  const TrsRunWait no_wait = {.seconds = 0};
  int lost = f->rank == 0 && (!f->lock || !TrsRunFolderIsLocked(f->lock, f->path));
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Bcast(&lost, 1, MPI_INT, 0, f->comm));
  if (!lost) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRunFolderUnlock(&f->lock));
  PetscCall(PetscFree(f->list.entry));
  f->list.n = 0;
  ierr = open_folder(f, &no_wait);
  for (int i = 0; i < f->list.n && ierr == PETSC_SUCCESS; i++)
    if (strcmp(f->list.entry[i].run_id, run_id) != 0) ierr = TrsCheckpointFolderClaim(f, PETSC_FALSE, NULL);
  /* A caller that goes on tries again later, and must be refused again. */
  if (ierr != PETSC_SUCCESS) PetscCall(TrsRunFolderUnlock(&f->lock));
  PetscCall(ierr);
  TrsRunFolderName(f->lock, run_id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderWrite(TrsCheckpointFolder f, const TrsState *state,
                                        const TrsCheckpointInfo *info)
{
  PetscErrorCode ierr;
  char *path;

  PetscFunctionBegin;
  PetscCall(keep_folder(f, info->run_id));
  PetscCall(TrsCheckpointStepPath(f->path, info->step, &path));
  ierr = TrsCheckpointWrite(f->comm, path, state, info);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscCall(TrsCheckpointFolderAdd(f, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderBegin(TrsCheckpointFolder f, const TrsState *state,
                                        const TrsCheckpointInfo *info, TrsCheckpointWriter *writer)
{
  PetscErrorCode ierr;
  char *path;

  PetscFunctionBegin;
  PetscCall(keep_folder(f, info->run_id));
  PetscCall(TrsCheckpointStepPath(f->path, info->step, &path));
  ierr = TrsCheckpointBegin(f->comm, path, state, info, writer);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderAdd(TrsCheckpointFolder f, const TrsCheckpointInfo *info)
{
  TrsCheckpointEntry written = {.step = info->step, .needs = info->is_increment ? info->chain.step : -1};

  PetscFunctionBegin;
  PetscCall(PetscStrncpy(written.run_id, info->run_id, sizeof(written.run_id)));
  PetscCall(add_entry(&f->list, &written));
  PetscCall(remove_old(f, &written));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the newest file --- */

/* Print a warning about a checkpoint that is skipped, and clear the error. */
static void warn(int rank)
{
  if (rank == 0)
    TrsPrint(stderr, "trshard: warning: %s; looking for an older checkpoint\n", TrsErrorMessage());
  TrsErrorClear();
}

PetscErrorCode TrsCheckpointIsGone(MPI_Comm comm, const char *path, PetscBool *gone)
{
  int rank, answer;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  /* A link without a target counts as present, because it will not disappear. */
  answer = rank == 0 && lstat(path, &(struct stat){0}) != 0 && errno == ENOENT;
  PetscCallMPI(MPI_Bcast(&answer, 1, MPI_INT, 0, comm));
  *gone = (PetscBool)answer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Raise an error if entry i needs a file that is known to be bad. The lists' links may be wrong, so
  at most n of them are followed.
*/
static PetscErrorCode check_needed(const char *folder, const TrsCheckpointList *list, const PetscBool *bad,
                                   int i)
{
  PetscFunctionBegin;
  for (int k = entry_of(list, list->entry[i].needs), n = 0; k >= 0 && n < list->n;
       n++, k = entry_of(list, list->entry[k].needs))
    PetscCheck(!bad[k], PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s/%s%09" PRId64 ".h5 needs the file of step %" PRId64 ", which cannot be used", folder,
               trs_checkpoint_prefix, list->entry[i].step, list->entry[k].step);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check entry i of the list with all files that it needs, and note a bad file. */
static PetscErrorCode verify(MPI_Comm comm, const char *folder, const TrsCheckpointList *list, int i,
                             const char *path, PetscBool *bad)
{
  PetscErrorCode ierr;
  int64_t fault;
  int k;

  PetscFunctionBegin;
  PetscCall(check_needed(folder, list, bad, i));
  ierr = TrsCheckpointVerify(comm, path, &fault);
  k = entry_of(list, fault);
  if (ierr) bad[k >= 0 ? k : i] = PETSC_TRUE;
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Search the folder once. *again is true if a file was removed meanwhile. */
static PetscErrorCode search(MPI_Comm comm, int rank, const char *folder, int *hold, char **path,
                             PetscBool *again)
{
  char run_id[TRS_RUN_ID_SIZE];
  TrsCheckpointList list;
  PetscBool *bad;
  int n;

  PetscFunctionBegin;
  *again = PETSC_FALSE;
  PetscCall(TrsCheckpointListAgreed(comm, folder, &list));
  PetscCall(TrsCheckpointListOneRun(folder, &list, run_id));
  n = list.n;
  PetscCall(PetscCalloc1((size_t)n, &bad));
  for (int i = 0; i < n && !*again; i++) {
    PetscErrorCode ierr;

    if (bad[i]) continue; /* an increment after it has named it */
    PetscCall(TrsCheckpointStepPath(folder, list.entry[i].step, path));
    TrsErrorClear();
    if (hold && rank == 0) *hold = TrsCheckpointHold(*path);
    ierr = verify(comm, folder, &list, i, *path, bad);
    if (ierr == PETSC_SUCCESS) break;
    if (hold) TrsCheckpointRelease(hold);
    /* If the program was asked to stop or ran out of memory, the file may be good. */
    if (ierr != TRS_ERR_DATA && ierr != TRS_ERR_NO_INPUT && ierr != TRS_ERR_IO) PetscCall(ierr);
    PetscCall(TrsCheckpointIsGone(comm, *path, again));
    if (*again)
      TrsErrorClear();
    else
      warn(rank);
    PetscCall(PetscFree(*path));
  }
  PetscCall(PetscFree(bad));
  PetscCall(PetscFree(list.entry));
  PetscCheck(*path || n == 0 || *again, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: none of its %d checkpoint%s can be read; move them away to start from the beginning",
             folder, n, TrsPlural(n, "s"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderFindNewest(MPI_Comm comm, const char *folder, int *hold, char **path)
{
  PetscBool again = PETSC_TRUE;
  int rank;

  PetscFunctionBegin;
  *path = NULL;
  if (hold) *hold = -1;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  for (int i = 0; i < TRS_N_SEARCHES && again; i++) PetscCall(search(comm, rank, folder, hold, path, &again));
  PetscCheck(!again, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "%s: its checkpoints are removed faster than they can be read", folder);
  PetscFunctionReturn(PETSC_SUCCESS);
}
