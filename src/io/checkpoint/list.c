/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/checkpoint/list.h"

#include "io/checkpoint/impl.h"
#include "io/preflight.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TRS_MAX_DIGITS = 18, TRS_RUNS_TEXT = 512 };
const char trs_checkpoint_prefix[] = "step-";
static const char suffix[] = ".h5";

/* --- names --- */

static int descending(const void *a, const void *b)
{
  const int64_t x = ((const TrsCheckpointEntry *)a)->step, y = ((const TrsCheckpointEntry *)b)->step;

  return (y > x) - (y < x);
}

/*
  Return the step in a name step-<digits>.h5 of the form that TrsCheckpointStepPath() makes. Returns
  -1 for any other name.
*/
static int64_t step_of(const char *name)
{
  const char *digits = name + strlen(trs_checkpoint_prefix);
  int64_t step;
  size_t n;

  if (strncmp(name, trs_checkpoint_prefix, strlen(trs_checkpoint_prefix)) != 0) return -1;
  n = strspn(digits, "0123456789");
  if (n < 9 || n > TRS_MAX_DIGITS || (n > 9 && digits[0] == '0') || strcmp(digits + n, suffix) != 0)
    return -1;
  step = strtoll(digits, NULL, 10);
  return step <= TRS_MOST_COUNT ? step : -1;
}

PetscErrorCode TrsCheckpointStepPath(const char *folder, int64_t step, char **path)
{
  size_t n = strlen(folder) + 64;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, path));
  snprintf(*path, n, "%s/%s%09" PRId64 "%s", folder, trs_checkpoint_prefix, step, suffix);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List a folder's files, without the runs that wrote them. A missing folder has no files. */
static PetscErrorCode list_steps(const char *folder, TrsCheckpointList *list)
{
  DIR *dir = opendir(folder);
  struct dirent *entry;
  int capacity = 0;

  PetscFunctionBegin;
  *list = (TrsCheckpointList){.n = 0};
  PetscCheck(dir || errno == ENOENT, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: cannot be listed: %s", folder,
             strerror(errno));
  while (dir && (entry = readdir(dir)) != NULL) {
    const int64_t step = step_of(entry->d_name);

    if (step < 0) continue;
    if (list->n == capacity) {
      capacity = capacity ? 2 * capacity : 16;
      PetscCall(PetscRealloc((size_t)capacity * sizeof(*list->entry), &list->entry));
    }
    list->entry[list->n++] = (TrsCheckpointEntry){.step = step, .needs = -1};
  }
  if (dir) (void)closedir(dir);
  if (list->n) qsort(list->entry, (size_t)list->n, sizeof(*list->entry), descending);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the files' runs --- */

/*
  Memory shared with the child process. If the child crashes on a file, the next child begins after
  this file.
*/
typedef struct {
  int next;
  TrsCheckpointEntry entry[];
} TrsSharedEntries;

typedef struct {
  const char *folder;
  int n;
  TrsSharedEntries *shared;
} TrsRunsQuery;

static PetscErrorCode read_run(const char *folder, TrsCheckpointEntry *entry)
{
  TrsHDF5File file = {.path = NULL};
  TrsDeltaPlace place = {.number = 0};
  PetscErrorCode ierr;
  char *path;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointStepPath(folder, entry->step, &path));
  ierr = TrsCheckpointOpenAny(path, &file);
  if (ierr == PETSC_SUCCESS) ierr = TrsCheckpointRunId(&file, entry->run_id);
  if (ierr == PETSC_SUCCESS) ierr = TrsCheckpointReadChain(&file, &place);
  entry->needs = place.number > 0 ? place.step : -1;
  (void)TrsHDF5FileClose(&file);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the run ids and the steps of earlier files, in a child process if possible, and in this
  process if not. A file that cannot be read gets no run; its error is reported when its contents
  are read.
*/
static PetscErrorCode read_runs(void *context)
{
  const TrsRunsQuery *q = context;

  PetscFunctionBegin;
  for (; q->shared->next < q->n; q->shared->next++) {
    TrsCheckpointEntry *entry = &q->shared->entry[q->shared->next];

    if (read_run(q->folder, entry) != PETSC_SUCCESS) entry->run_id[0] = '\0';
    TrsErrorClear();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the run of each file. A child process opens the files, so a damaged file cannot crash this
  process.
*/
static PetscErrorCode list_runs(const char *folder, TrsCheckpointList *list)
{
  const size_t bytes = sizeof(TrsSharedEntries) + (size_t)list->n * sizeof(*list->entry);
  TrsRunsQuery q = {folder, list->n, NULL};

  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (list->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  q.shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PetscCheck(q.shared != MAP_FAILED, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: %s", strerror(errno));
  q.shared->next = 0;
  memcpy(q.shared->entry, list->entry, (size_t)list->n * sizeof(*list->entry));
  TrsHDF5Lock();
  while (ierr == PETSC_SUCCESS && q.shared->next < q.n) {
    ierr = TrsPreflight(folder, read_runs, &q);
    /*
      If a child has read the ids, this call has nothing left to do. If no child could be made, this
      call reads the ids.
    */
    if (ierr == PETSC_SUCCESS) ierr = read_runs(&q);
    if (ierr != TRS_ERR_DATA) continue;
    TrsErrorClear(); /* a file that crashes HDF5 belongs to no run */
    ierr = PETSC_SUCCESS;
    if (q.shared->next < q.n) q.shared->entry[q.shared->next++].run_id[0] = '\0';
  }
  TrsHDF5Unlock();
  memcpy(list->entry, q.shared->entry, (size_t)list->n * sizeof(*list->entry));
  (void)munmap(q.shared, bytes);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode list_with_runs(const char *folder, TrsCheckpointList *list)
{
  PetscFunctionBegin;
  PetscCall(list_steps(folder, list));
  PetscCall(list_runs(folder, list));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointListAgreed(MPI_Comm comm, const char *folder, TrsCheckpointList *list)
{
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  *list = (TrsCheckpointList){.n = 0};
  PetscCall(TrsAgree(comm, rank == 0 ? list_with_runs(folder, list) : PETSC_SUCCESS));
  PetscCallMPI(MPI_Bcast(&list->n, 1, MPI_INT, 0, comm));
  if (rank != 0) PetscCall(PetscMalloc1(list->n, &list->entry));
  if (list->n) PetscCallMPI(MPI_Bcast(list->entry, list->n * (int)sizeof(*list->entry), MPI_BYTE, 0, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointListOneRun(const char *folder, const TrsCheckpointList *list,
                                       char run_id[TRS_RUN_ID_SIZE])
{
  char runs[TRS_RUNS_TEXT] = "";
  int n_runs = 0;

  PetscFunctionBegin;
  run_id[0] = '\0';
  for (int i = 0; i < list->n; i++) {
    const TrsCheckpointEntry *entry = &list->entry[i];
    int first = 0;

    if (!entry->run_id[0]) continue;
    while (strcmp(list->entry[first].run_id, entry->run_id) != 0) first++;
    if (first < i) continue;
    if (n_runs++ == 0) PetscCall(PetscStrncpy(run_id, entry->run_id, TRS_RUN_ID_SIZE));
    snprintf(runs + strlen(runs), sizeof(runs) - strlen(runs), "%srun %s up to step %" PRId64,
             n_runs > 1 ? ", " : "", entry->run_id, entry->step);
  }
  PetscCheck(n_runs <= 1, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "%s holds files of %d runs (%s): move the files of all but one away", folder, n_runs, runs);
  PetscFunctionReturn(PETSC_SUCCESS);
}
