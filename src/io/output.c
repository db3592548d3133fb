/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/output.h"

#include "core/file_text.h"
#include "io/hdf5_util.h"
#include "io/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRS_BACKUP_ROOM = 16 }; /* largest length of ".~<n>~" */

/* Identify the file that a path names, after following symbolic links. */
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

/* Read the attribute run_id of an HDF5 file into *context, a TrsOutput. */
static PetscErrorCode read_run_id(void *context)
{
  TrsOutput *output = (TrsOutput *)context;
  TrsHDF5File file;
  PetscErrorCode ierr;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(output->path, &file));
  ierr = TrsHDF5ReadString(&file, file.id, "", "run_id", &found, &output->found_run_id);
  PetscCall(TrsHDF5FileClose(&file));
  PetscCall(ierr);
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
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsOutputOpenText(path, existing, output));
  if (output->found.is_there) {
    TrsHDF5Lock();
    ierr = TrsPreflight(path, read_run_id, output);
    if (ierr == PETSC_SUCCESS) ierr = read_run_id(output);
    TrsHDF5Unlock();
    if (ierr != PETSC_SUCCESS && ierr != TRS_ERR_DATA && ierr != TRS_ERR_NO_INPUT) PetscCall(ierr);
    /* the file is damaged or not HDF5, so not of this run */
    if (ierr != PETSC_SUCCESS) TrsErrorClear();
  }
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

/* --- backups --- */

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

/* Keep the file at `path` under the first free name of <path>.~1~, <path>.~2~ and so on. */
static PetscErrorCode make_backup(TrsOutput *output, const char *path)
{
  const size_t n = strlen(path) + TRS_BACKUP_ROOM;
  char *backup;
  int error = EEXIST;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &backup));
  for (int i = 1; error == EEXIST && i < INT_MAX; i++) {
    snprintf(backup, n, "%s.~%d~", path, i);
    error = keep_as(path, backup);
  }
  /* The file has vanished meanwhile, so no backup is needed. */
  if (error == ENOENT) PetscCall(PetscFree(backup));
  if (error == ENOENT) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s is another run's file and cannot be kept as %s: %s",
             path, backup, strerror(error));
  PetscCall(PetscFree(output->backup));
  output->backup = backup;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode make_way(TrsOutput *output, const TrsAtomicFile *file)
{
  const TrsFileIdentity now = identify(file->path);
  /* An earlier publication may have made the backup and then failed. */
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
  /* The file is in place, even if flushing failed. */
  if (output && !file->made) output->own = identify(file->path);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Does the file at a path have these contents? */
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
  *output = (TrsOutput){.path = NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}
