/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/output.h"

#include "core/file_text.h"
#include "io/hdf5_util.h"
#include "io/preflight.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* largest length of ".~<n>~"; largest number of digits of n */
enum { TRS_BACKUP_ROOM = 16, TRS_BACKUP_DIGITS = 9 };

/* Get the identity of the file that a path names. Symbolic links are followed. */
static TrsFileIdentity identify(const char *path)
{
  struct stat status;

  if (stat(path, &status) != 0) return (TrsFileIdentity){.is_there = PETSC_FALSE};
  return (TrsFileIdentity){.is_there = PETSC_TRUE,
                           .device = (uint64_t)status.st_dev,
                           .inode = (uint64_t)status.st_ino,
                           .bytes = status.st_size,
                           .modified_s = status.st_mtim.tv_sec,
                           .modified_ns = status.st_mtim.tv_nsec};
}

static PetscBool is_same(const TrsFileIdentity *a, const TrsFileIdentity *b)
{
  return (PetscBool)(a->is_there && b->is_there && a->device == b->device && a->inode == b->inode &&
                     a->bytes == b->bytes && a->modified_s == b->modified_s &&
                     a->modified_ns == b->modified_ns);
}

/* --- the owner of a file --- */

/*
  Read a text attribute of the root of an HDF5 file. *text is NULL if there is none. Free it with
  PetscFree().
*/
static PetscErrorCode read_root(const char *path, const char *attribute, char **text)
{
  TrsHDF5File file;
  PetscErrorCode ierr;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(path, &file));
  ierr = TrsHDF5ReadString(&file, file.id, "", attribute, &found, text);
  PetscCall(TrsHDF5FileClose(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the attribute run_id of an HDF5 file. *context is a TrsOutput, which gets the id. */
static PetscErrorCode read_run_id(void *context)
{
  TrsOutput *output = (TrsOutput *)context;

  PetscFunctionBegin;
  PetscCall(read_root(output->path, "run_id", &output->found_run_id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a file with HDF5, in a child process first. A file that cannot be read is not an error. */
static PetscErrorCode read_carefully(const char *path, PetscErrorCode (*read)(void *), void *context)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsHDF5Lock();
  ierr = TrsPreflight(path, read, context);
  if (ierr == PETSC_SUCCESS) ierr = read(context);
  TrsHDF5Unlock();
  if (ierr != PETSC_SUCCESS && ierr != TRS_ERR_DATA && ierr != TRS_ERR_NO_INPUT) PetscCall(ierr);
  if (ierr != PETSC_SUCCESS) TrsErrorClear(); /* the file is damaged, or not an HDF5 file */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputOpenText(const char *path, TrsExisting existing, TrsOutput *output)
{
  PetscFunctionBegin;
  *output = (TrsOutput){.existing = existing};
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrallocpy(path, &output->path));
  output->found = identify(path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputOpen(const char *path, TrsExisting existing, TrsOutput *output)
{
  PetscFunctionBegin;
  PetscCall(TrsOutputOpenText(path, existing, output));
  if (output->found.is_there) PetscCall(read_carefully(path, read_run_id, output));
  if (path && !output->found_run_id) PetscCall(PetscStrallocpy("", &output->found_run_id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsOutputIsOwn(const TrsOutput *output)
{
  return (PetscBool)(output->path && output->found.is_there && output->run_id && output->found_run_id &&
                     strcmp(output->found_run_id, output->run_id) == 0);
}

/* Check that the existing file may be replaced. Errors: CANT_CREATE. */
static PetscErrorCode check_may_replace(const TrsOutput *output)
{
  const char *base, *run_id = output->found_run_id ? output->found_run_id : "";

  PetscFunctionBegin;
  if (!output->found.is_there || TrsOutputIsOwn(output) || output->existing == TRS_EXISTING_REPLACE)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(
      output->existing != TRS_EXISTING_REFUSE, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
      "%s is there already%s%s: name another file, move that one away, or let it be kept as a numbered "
      "backup (-existing_outputs backup)",
      output->path,
      run_id[0]              ? ", and belongs to run "
      : output->found_run_id ? ", and does not say which run it is of"
                             : "",
      run_id);
  base = strrchr(output->path, '/');
  base = base ? base + 1 : output->path;
  PetscCheck(strlen(base) + TRS_BACKUP_ROOM <= NAME_MAX, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s is another run's file, and its name is too long for a numbered backup: move it away",
             output->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputDisown(TrsOutput *output)
{
  PetscFunctionBegin;
  if (output->found_run_id) output->found_run_id[0] = '\0';
  if (output->existing == TRS_EXISTING_REPLACE) output->existing = TRS_EXISTING_BACKUP;
  PetscCall(check_may_replace(output));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputClaim(TrsOutput *output, const char *run_id)
{
  PetscFunctionBegin;
  if (!output->path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree(output->run_id));
  if (run_id && run_id[0]) PetscCall(PetscStrallocpy(run_id, &output->run_id));
  PetscCall(check_may_replace(output));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- earlier backups --- */

/*
  The number n in a backup's name <base>.~<n>~ of the form that make_backup() makes; 0 for another
  name.
*/
static int backup_number(const char *name, const char *base)
{
  const char *number = name + strlen(base) + 2;
  size_t n;

  if (strncmp(name, base, strlen(base)) != 0 || strncmp(number - 2, ".~", 2) != 0) return 0;
  n = strspn(number, "0123456789");
  if (n == 0 || n > TRS_BACKUP_DIGITS || number[0] == '0' || strcmp(number + n, "~") != 0) return 0;
  return (int)strtol(number, NULL, 10);
}

/* Call visit(context, number, path) for each backup of the file at `path` in the same folder. */
static PetscErrorCode each_backup(const char *path, PetscErrorCode (*visit)(void *, int, const char *),
                                  void *context)
{
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  const size_t n_folder = (size_t)(base - path), size = strlen(path) + TRS_BACKUP_ROOM;
  PetscErrorCode ierr = PETSC_SUCCESS;
  char *name;
  DIR *dir;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(size, &name));
  PetscCall(PetscSNPrintf(name, size, "%.*s.", (int)n_folder, path));
  dir = opendir(name);
  for (struct dirent *entry; dir && !ierr && (entry = readdir(dir));) {
    const int number = backup_number(entry->d_name, base);

    if (number == 0) continue;
    snprintf(name, size, "%s.~%d~", path, number);
    ierr = visit(context, number, name);
  }
  if (dir) (void)closedir(dir);
  PetscCall(PetscFree(name));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_highest(void *context, int number, const char *path)
{
  int *highest = (int *)context;

  (void)path;
  *highest = PetscMax(*highest, number);
  return PETSC_SUCCESS;
}

/* A file that this program may have written, and the text of its attribute format. */
typedef struct {
  const char *path;
  char *format;
} TrsOurs;

static PetscErrorCode read_format(void *context)
{
  TrsOurs *ours = (TrsOurs *)context;

  PetscFunctionBegin;
  PetscCall(read_root(ours->path, "format", &ours->format));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set *ours to true if this program wrote the file. */
static PetscErrorCode is_ours(const char *path, PetscBool *ours)
{
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  char head[257] = "";
  TrsOurs file = {.path = path};
  struct stat status;
  ssize_t n;

  PetscFunctionBegin;
  *ours = PETSC_FALSE;
  if (fd < 0) PetscFunctionReturn(PETSC_SUCCESS);
  n = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? pread(fd, head, sizeof(head) - 1, 0) : 0;
  (void)close(fd);
  if (n > 4 && memcmp(head, "\x89HDF", 4) == 0) {
    PetscCall(read_carefully(path, read_format, &file));
    *ours = (PetscBool)(file.format && strncmp(file.format, "trshard-", 8) == 0);
    PetscCall(PetscFree(file.format));
  } else {
    *ours = (PetscBool)(n > 0 && (strstr(head, "trshard") || strstr(head, "\nPlanner statistics: ")));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_ours(void *context, int number, const char *path)
{
  TrsOutput *output = (TrsOutput *)context;
  PetscBool ours;

  PetscFunctionBegin;
  PetscCall(is_ours(path, &ours));
  if (!ours) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscRealloc(sizeof(*output->backups) * (size_t)(output->n_backups + 1), &output->backups));
  output->backups[output->n_backups++] = (TrsBackup){number, identify(path)};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int by_number(const void *a, const void *b)
{
  return ((const TrsBackup *)a)->number - ((const TrsBackup *)b)->number;
}

PetscErrorCode TrsOutputLimitBackups(TrsOutput *output, int most)
{
  char *target;

  PetscFunctionBegin;
  output->most = most;
  if (!output->found.is_there || TrsOutputIsOwn(output)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAtomicTarget(output->path, &target));
  PetscCall(each_backup(target, take_ours, output));
  PetscCall(PetscFree(target));
  if (output->n_backups)
    qsort(output->backups, (size_t)output->n_backups, sizeof(*output->backups), by_number);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Remove the oldest backups, so that with the new backup there are not too many. */
static PetscErrorCode remove_oldest(TrsOutput *output, const char *path)
{
  const size_t n = strlen(path) + TRS_BACKUP_ROOM;

  PetscFunctionBegin;
  while (output->most && output->n_backups >= output->most) {
    const TrsBackup oldest = output->backups[0];
    TrsFileIdentity now;

    output->n_backups--;
    memmove(output->backups, output->backups + 1, (size_t)output->n_backups * sizeof(*output->backups));
    PetscCall(PetscFree(output->removed));
    PetscCall(PetscMalloc1(n, &output->removed));
    snprintf(output->removed, n, "%s.~%d~", path, oldest.number);
    now = identify(output->removed);
    if (!is_same(&now, &oldest.file) || unlink(output->removed) != 0) PetscCall(PetscFree(output->removed));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- out of the way --- */

/*
  Give the file at `path` the additional name `backup`. On a file system without links, rename it.
  Returns 0 or an errno.
*/
static int keep_as(const char *path, const char *backup)
{
  struct stat status;
  int error;

  if (linkat(AT_FDCWD, path, AT_FDCWD, backup, 0) == 0) return 0;
  error = errno;
  if (error == EEXIST || error == ENOENT || error == EIO || error == ENOSPC || error == EDQUOT) return error;
  if (lstat(backup, &status) == 0) return EEXIST;
  return rename(path, backup) == 0 ? 0 : errno;
}

/* Keep the file at `path` as <path>.~<n>~, where n is one above the highest existing number. */
static PetscErrorCode make_backup(TrsOutput *output, const char *path)
{
  const size_t n = strlen(path) + TRS_BACKUP_ROOM;
  char *backup;
  int error = EEXIST, highest = 0;

  PetscFunctionBegin;
  PetscCall(each_backup(path, take_highest, &highest));
  PetscCall(PetscMalloc1(n, &backup));
  for (int i = highest + 1; error == EEXIST && i < INT_MAX; i++) {
    snprintf(backup, n, "%s.~%d~", path, i);
    error = keep_as(path, backup);
  }
  /* If the file has been removed meanwhile, no backup is needed. */
  if (error == ENOENT) PetscCall(PetscFree(backup));
  if (error == ENOENT) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s is another run's file and cannot be kept as %s: %s",
             path, backup, strerror(error));
  PetscCall(PetscFree(output->backup));
  output->backup = backup;
  PetscCall(remove_oldest(output, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode make_way(TrsOutput *output, const TrsAtomicFile *file)
{
  const TrsFileIdentity now = identify(file->path);
  /* An earlier TrsOutputPublish() may have made the backup and then failed. */
  const TrsFileIdentity kept = output->backup ? identify(output->backup) : (TrsFileIdentity){0};

  PetscFunctionBegin;
  if (!now.is_there || output->existing == TRS_EXISTING_REPLACE || is_same(&now, &output->own) ||
      is_same(&now, &kept) || (TrsOutputIsOwn(output) && is_same(&now, &output->found)))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(make_backup(output, file->path));
  PetscCall(TrsAtomicSyncFolder(file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputPublish(TrsOutput *output, TrsAtomicFile *file)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (output) PetscCall(make_way(output, file));
  ierr = TrsAtomicPublish(file);
  /* The file is in place, even if the flush failed. */
  if (output && !file->made) output->own = identify(file->path);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set *same to true if the file at a path has these contents. */
static PetscErrorCode has_contents(const char *path, const void *data, int64_t n_bytes, PetscBool *same)
{
  TrsFileText file;

  PetscFunctionBegin;
  PetscCall(TrsFileReadText(path, n_bytes, &file));
  *same = (PetscBool)(file.outcome == TRS_FILE_READ && file.n_bytes == n_bytes &&
                      memcmp(file.text, data, (size_t)n_bytes) == 0);
  PetscCall(PetscFree(file.text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputSave(TrsOutput *output, const void *data, int64_t n_bytes)
{
  TrsAtomicFile file;
  PetscBool same = PETSC_FALSE;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(has_contents(output->path, data, n_bytes, &same));
  if (same) output->existing = TRS_EXISTING_REPLACE;
  ierr = TrsAtomicCreate(output->path, &file);
  if (!ierr) ierr = TrsAtomicWrite(&file, data, n_bytes);
  if (!ierr) ierr = TrsOutputPublish(output, &file);
  PetscCall(TrsAtomicDiscard(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputClose(TrsOutput *output)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(output->path));
  PetscCall(PetscFree(output->run_id));
  PetscCall(PetscFree(output->found_run_id));
  PetscCall(PetscFree(output->backup));
  PetscCall(PetscFree(output->backups));
  PetscCall(PetscFree(output->removed));
  *output = (TrsOutput){.path = NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}
