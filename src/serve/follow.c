/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/follow.h"

#include "serve/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRS_LEAST_DIGITS = 9 };

/* True if a name is a regular file, or a link to one. A named pipe would never open. */
static PetscBool is_file(DIR *dir, const char *name)
{
  struct stat status;

  return (PetscBool)(fstatat(dirfd(dir), name, &status, 0) == 0 && S_ISREG(status.st_mode));
}

/* Return the number in a name step-<digits>.h5, or -1 for another name. */
static int64_t step_of(const char *name)
{
  static const char prefix[] = "step-";
  const char *digits = name + sizeof(prefix) - 1;
  size_t n;

  if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) return -1;
  n = strspn(digits, "0123456789");
  if (n < TRS_LEAST_DIGITS || n > 18 || strcmp(digits + n, ".h5") != 0) return -1;
  return (int64_t)strtoll(digits, NULL, 10);
}

static PetscErrorCode join(const char *folder, const char *name, char **path)
{
  const size_t n = strlen(folder) + strlen(name) + 2;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, path));
  snprintf(*path, n, "%s/%s", folder, name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the file of a folder with the largest step from `begin` to below `end`, or with the smallest
  one. *path becomes NULL if there is none. `option` names the folder in messages.
*/
static PetscErrorCode find_step(const char *option, const char *folder, int64_t begin, int64_t end,
                                PetscBool largest, int64_t *step, char **path)
{
  DIR *dir = opendir(folder);
  char name[NAME_MAX + 1] = "";
  int64_t best = -1;

  PetscFunctionBegin;
  *path = NULL;
  PetscCheck(dir, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s %s: %s", option, folder, strerror(errno));
  for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
    const int64_t found = step_of(entry->d_name);

    if (found < begin || found >= end || (best >= 0 && (largest ? found <= best : found >= best)) ||
        !is_file(dir, entry->d_name))
      continue;
    best = found;
    snprintf(name, sizeof(name), "%s", entry->d_name);
  }
  (void)closedir(dir);
  if (best < 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (step) *step = best;
  PetscCall(join(folder, name, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the newest checkpoint with a step below `end`. *path becomes NULL if there is none. */
static PetscErrorCode find_newest(TrsServeFollow *follow, int64_t end, char **path)
{
  PetscFunctionBegin;
  PetscCall(find_step("-serve_follow", follow->folder, 0, end, PETSC_TRUE, &follow->step, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_same_time(const struct timespec *a, const struct timespec *b)
{
  return (PetscBool)(a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec);
}

static PetscBool is_same(const struct stat *a, const struct stat *b)
{
  return (PetscBool)(a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
                     is_same_time(&a->st_mtim, &b->st_mtim));
}

/*
  The time of the folder's last change, or 0 if it is so recent that another change may leave it as
  it is: a file system's times have a resolution of up to 10 ms.
*/
static struct timespec last_change(const struct stat *folder)
{
  static const struct timespec unknown = {.tv_sec = 0};
  const double age_s = 1e-9 * (double)(TrsServeNow() - (int64_t)folder->st_mtim.tv_sec * 1000000000 -
                                       folder->st_mtim.tv_nsec);

  return age_s >= 0.0 && age_s < 0.02 ? unknown : folder->st_mtim;
}

PetscErrorCode TrsServeFollowLook(TrsServeFollow *follow, char **path)
{
  struct stat folder = {.st_size = 0}, now;

  PetscFunctionBegin;
  (void)stat(follow->folder, &folder);
  if (follow->last_failed && !is_same_time(&folder.st_mtim, &follow->changed)) follow->has_last = PETSC_FALSE;
  follow->changed = last_change(&folder);
  PetscCall(find_newest(follow, INT64_MAX, path));
  if (!*path) PetscFunctionReturn(PETSC_SUCCESS);
  if (stat(*path, &now) == 0 && !(follow->has_last && is_same(&now, &follow->last))) {
    follow->last = now;
    follow->has_last = PETSC_TRUE;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscFree(*path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeFollowLookBefore(TrsServeFollow *follow, char **path)
{
  PetscFunctionBegin;
  PetscCall(find_newest(follow, follow->step, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeFollowNewest(TrsServeFollow *follow, char **path)
{
  PetscFunctionBegin;
  PetscCall(find_newest(follow, INT64_MAX, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- deltas --- */

PetscErrorCode TrsServeDeltasNext(TrsServeDeltas *d, int64_t step, char **path, TrsServeDeltaState *state)
{
  PetscFunctionBegin;
  *state = TRS_SERVE_DELTA_NEW;
  PetscCall(find_step("-serve_deltas", d->folder, step + 1, INT64_MAX, PETSC_FALSE, NULL, path));
  if (!*path) PetscFunctionReturn(PETSC_SUCCESS);
  if (stat(*path, &d->found) != 0) d->found = (struct stat){.st_size = -1};
  if (is_same(&d->found, &d->tried)) *state = d->state;
  if (*state == TRS_SERVE_DELTA_REFUSED) PetscCall(PetscFree(*path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsServeDeltasNote(TrsServeDeltas *d, TrsServeDeltaState state)
{
  d->tried = d->found;
  d->state = state;
}

/* Find what is known of a file forget*.h5, or add it. */
static PetscErrorCode find_forget(TrsServeDeltas *d, const struct stat *file, TrsServeForget **forget)
{
  int i = 0;

  PetscFunctionBegin;
  while (i < d->n_forgets && !is_same(&d->forget[i].file, file)) i++;
  if (i == d->n_forgets) {
    PetscCall(PetscRealloc((size_t)(i + 1) * sizeof(*d->forget), &d->forget));
    d->forget[d->n_forgets++] = (TrsServeForget){.file = *file, .step = -1};
  }
  *forget = &d->forget[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeDeltasForget(TrsServeDeltas *d, int64_t step, char **path, TrsServeForget **forget)
{
  static const char prefix[] = "forget", suffix[] = ".h5";
  DIR *dir = opendir(d->folder);

  PetscFunctionBegin;
  *path = NULL;
  PetscCheck(dir, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "-serve_deltas %s: %s", d->folder, strerror(errno));
  for (const struct dirent *entry = readdir(dir); entry && !*path; entry = readdir(dir)) {
    const size_t n = strlen(entry->d_name);
    struct stat file;

    if (strncmp(entry->d_name, prefix, sizeof(prefix) - 1) != 0 || n < sizeof(prefix) + sizeof(suffix) - 2 ||
        strcmp(entry->d_name + n - (sizeof(suffix) - 1), suffix) != 0 ||
        fstatat(dirfd(dir), entry->d_name, &file, 0) != 0 || !S_ISREG(file.st_mode))
      continue;
    PetscCall(find_forget(d, &file, forget));
    if ((*forget)->is_done || (*forget)->step == step) continue;
    (*forget)->step = step;
    PetscCall(join(d->folder, entry->d_name, path));
  }
  (void)closedir(dir);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsServeDeltasRestart(TrsServeDeltas *d)
{
  d->n_forgets = 0;
  d->state = TRS_SERVE_DELTA_NEW;
}
