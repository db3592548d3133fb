/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/names.h"
#include "io/atomic_file.h"
#include "io/checkpoint_impl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "step-", suffix[] = ".h5";
enum { TRS_MAX_DIGITS = 18 };

static int descending(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

  return (y > x) - (y < x);
}

/* step-<digits>.h5 as TrsCheckpointFolderWrite names it; -1: another name. */
static int64_t step_of(const char *name)
{
  const char *digits = name + strlen(prefix);
  size_t n;

  if (strncmp(name, prefix, strlen(prefix)) != 0) return -1;
  n = strspn(digits, "0123456789");
  if (n < 9 || n > TRS_MAX_DIGITS || (n > 9 && digits[0] == '0') || strcmp(digits + n, suffix) != 0)
    return -1;
  return strtoll(digits, NULL, 10);
}

static PetscErrorCode checkpoint_path(const char *folder, int64_t step, char **path)
{
  size_t n = strlen(folder) + 64;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, path));
  snprintf(*path, n, "%s/%s%09" PRId64 "%s", folder, prefix, step, suffix);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Steps of the checkpoints in a folder, newest first; none when there is no such folder. Free with PetscFree(). */
static PetscErrorCode list_steps(const char *folder, int *n, int64_t **steps)
{
  DIR *dir = opendir(folder);
  struct dirent *entry;
  int capacity = 0;

  PetscFunctionBegin;
  *n = 0;
  *steps = NULL;
  PetscCheck(dir || errno == ENOENT, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: cannot be listed: %s", folder,
             strerror(errno));
  while (dir && (entry = readdir(dir)) != NULL) {
    int64_t step = step_of(entry->d_name);

    if (step < 0) continue;
    if (*n == capacity) {
      capacity = capacity ? 2 * capacity : 16;
      PetscCall(PetscRealloc((size_t)capacity * sizeof(**steps), steps));
    }
    (*steps)[(*n)++] = step;
  }
  if (dir) (void)closedir(dir);
  if (*n) qsort(*steps, (size_t)*n, sizeof(**steps), descending);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The folder, and those above it. */
static PetscErrorCode make_folder(const char *folder)
{
  char *path;
  struct stat status;

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(folder, &path));
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    (void)mkdir(path, 0777);
    *slash = '/';
  }
  PetscCall(PetscFree(path));
  PetscCheck(mkdir(folder, 0777) == 0 || errno == EEXIST, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "the folder %s cannot be made: %s", folder, strerror(errno));
  PetscCheck(stat(folder, &status) == 0 && S_ISDIR(status.st_mode), PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s is not a folder", folder);
  TrsAtomicClean(folder, prefix);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode try_both(const char *file, const char *folder)
{
  char *path;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (file) PetscCall(TrsAtomicTry(file));
  if (!folder) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(make_folder(folder));
  PetscCall(checkpoint_path(folder, 0, &path));
  ierr = TrsAtomicTry(path);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointTry(MPI_Comm comm, const char *file, const char *folder)
{
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsAgree(comm, rank == 0 ? try_both(file, folder) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The oldest beyond keep. That one cannot be removed is no reason to end a run. */
static PetscErrorCode remove_old(const char *folder, int keep)
{
  int n;
  int64_t *steps;
  char *path;

  PetscFunctionBegin;
  PetscCall(list_steps(folder, &n, &steps));
  for (int i = keep < 1 ? 1 : keep; i < n; i++) {
    PetscCall(checkpoint_path(folder, steps[i], &path));
    (void)unlink(path);
    PetscCall(PetscFree(path));
  }
  PetscCall(PetscFree(steps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFolderWrite(MPI_Comm comm, const char *folder, int keep, const TrsState *state,
                                        const TrsCheckpointInfo *info)
{
  int rank;
  char *path;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsAgree(comm, rank == 0 ? make_folder(folder) : PETSC_SUCCESS));
  PetscCall(checkpoint_path(folder, info->step, &path));
  ierr = TrsCheckpointWrite(comm, path, state, info);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscCall(TrsAgree(comm, rank == 0 ? remove_old(folder, keep) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rank 0's list reaches all. */
static PetscErrorCode list_agreed(MPI_Comm comm, const char *folder, int *n, int64_t **steps)
{
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsAgree(comm, rank == 0 ? list_steps(folder, n, steps) : PETSC_SUCCESS));
  PetscCallMPI(MPI_Bcast(n, 1, MPI_INT, 0, comm));
  if (rank != 0) PetscCall(PetscMalloc1(*n, steps));
  if (*n) PetscCallMPI(MPI_Bcast(*steps, *n, MPI_INT64_T, 0, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A checkpoint that is passed over is named, once; its error is forgotten. */
static void warn(int rank)
{
  char text[2048];

  TrsNameEscape(TrsErrorMessage(), text, sizeof(text));
  if (rank == 0) fprintf(stderr, "trshard: warning: %s; looking for an older checkpoint\n", text);
  TrsErrorClear();
}

PetscErrorCode TrsCheckpointFolderFindNewest(MPI_Comm comm, const char *folder, char **path)
{
  int rank, n = 0;
  int64_t *steps = NULL;

  PetscFunctionBegin;
  *path = NULL;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(list_agreed(comm, folder, &n, &steps));
  for (int i = 0; i < n && steps && !*path; i++) {
    PetscErrorCode ierr;

    PetscCall(checkpoint_path(folder, steps[i], path));
    TrsErrorClear();
    ierr = TrsCheckpointVerify(comm, *path);
    if (ierr == PETSC_SUCCESS) break;
    warn(rank);
    PetscCall(PetscFree(*path));
    PetscCheck(ierr == TRS_ERR_DATA || ierr == TRS_ERR_NO_INPUT || ierr == TRS_ERR_IO, comm, ierr,
               "%s: cannot be searched for checkpoints", folder);
  }
  PetscCall(PetscFree(steps));
  PetscCheck(*path || n == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: none of its %d checkpoints can be read; move them away to start from the beginning", folder,
             n);
  PetscFunctionReturn(PETSC_SUCCESS);
}
