/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/outputs.h"

#include "io/atomic_file.h"
#include "session/log_view.h"

#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
  const char *option, *what;
} kinds_of[TRS_N_OUTPUTS] = {
    [TRS_OUTPUT_RESULTS] = {"-output", "results"},
    [TRS_OUTPUT_FINAL] = {"-checkpoint_final", "weights"},
    [TRS_OUTPUT_BEST] = {"-checkpoint_best", "best weights"},
    [TRS_OUTPUT_QUANTISED] = {"-quant_checkpoint", "quantised weights"},
    [TRS_OUTPUT_TRACE] = {"-trace", "trace"},
};

/* --- paths --- */

static const char log_view[] = "-log_view"; /* an option of PETSc */
static const struct {
  const char *option;
  PetscBool is_output, is_list;
  const char *replaces; /* the input option whose file this output may replace, or NULL */
} paths_of[] = {
    {"-output", PETSC_TRUE, PETSC_FALSE, NULL},
    {"-checkpoint_final", PETSC_TRUE, PETSC_FALSE, "-init_from"},
    {"-checkpoint_best", PETSC_TRUE, PETSC_FALSE, "-init_from"},
    {"-quant_checkpoint", PETSC_TRUE, PETSC_FALSE, NULL},
    {"-trace", PETSC_TRUE, PETSC_FALSE, NULL},
    {"-plan_output", PETSC_TRUE, PETSC_FALSE, "-plan_input"},
    {"-plan_search_space", PETSC_TRUE, PETSC_FALSE, NULL},
    {"-plan_report", PETSC_TRUE, PETSC_FALSE, NULL},
    {"-bench_topology", PETSC_TRUE, PETSC_FALSE, NULL},
    {log_view, PETSC_TRUE, PETSC_FALSE, NULL},
    {"-init_from", PETSC_FALSE, PETSC_FALSE, NULL},
    {"-plan_input", PETSC_FALSE, PETSC_FALSE, NULL},
    {"-options_file", PETSC_FALSE, PETSC_FALSE, NULL},
    {"-data_train", PETSC_FALSE, PETSC_TRUE, NULL},
    {"-data_eval", PETSC_FALSE, PETSC_TRUE, NULL},
    {"-predict_candidates", PETSC_FALSE, PETSC_FALSE, NULL},
};
enum { TRS_N_PATHS = sizeof(paths_of) / sizeof(paths_of[0]) };

static PetscBool is_one(const struct stat *a, const struct stat *b)
{
  return (PetscBool)(a->st_dev == b->st_dev && a->st_ino == b->st_ino);
}

/* True if two paths that do not exist yet name the same file in the same folder. */
static PetscBool is_same_place(const char *a, const char *b)
{
  const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
  const char *name_a = slash_a ? slash_a + 1 : a, *name_b = slash_b ? slash_b + 1 : b;
  char folder_a[PATH_MAX], folder_b[PATH_MAX];
  struct stat x, y;

  if (strcmp(a, b) == 0) return PETSC_TRUE;
  if (strcmp(name_a, name_b) != 0) return PETSC_FALSE;
  snprintf(folder_a, sizeof(folder_a), "%.*s.", (int)(name_a - a), a);
  snprintf(folder_b, sizeof(folder_b), "%.*s.", (int)(name_b - b), b);
  return (PetscBool)(stat(folder_a, &x) == 0 && stat(folder_b, &y) == 0 && is_one(&x, &y));
}

/*
  Find out if an output at `output` would replace the file of another option at `path`. Links at
  both paths are followed. A device such as standard output is not a file.
*/
static PetscErrorCode replaces(const char *output, const char *path, PetscBool *found)
{
  struct stat there, other;
  char *a, *b;

  PetscFunctionBegin;
  if (stat(output, &there) == 0) {
    *found = (PetscBool)(S_ISREG(there.st_mode) && stat(path, &other) == 0 && is_one(&there, &other));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsAtomicTarget(output, &a));
  PetscCall(TrsAtomicTarget(path, &b));
  *found = is_same_place(a, b);
  PetscCall(PetscFree(a));
  PetscCall(PetscFree(b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find out if a list of files or patterns contains the file that an output would replace. */
static PetscErrorCode find_in_list(TrsOptions options, const char *list, const char *output, PetscBool *found)
{
  const char *const *names = NULL;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, list, &n, &names, NULL));
  for (int i = 0; i < n && !*found; i++) {
    glob_t files = {0};

    if (glob(names[i], GLOB_NOSORT | GLOB_NOCHECK, NULL, &files) == 0)
      for (size_t k = 0; k < files.gl_pathc && !*found; k++)
        PetscCall(replaces(output, files.gl_pathv[k], found));
    globfree(&files);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the path of an option. It is NULL if there is none or if it is standard output. */
static PetscErrorCode get_path(TrsOptions options, int k, const char **path)
{
  PetscFunctionBegin;
  *path = NULL;
  if (paths_of[k].option == log_view)
    PetscCall(TrsLogViewPath(options, path));
  else
    PetscCall(TrsOptionsGetString(options, paths_of[k].option, path, NULL));
  if (*path && strcmp(*path, "stdout") == 0) *path = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find an option whose file would be replaced by output k. If there is one, set `pair` to both
  options.
*/
static PetscErrorCode find_pair(TrsOptions options, int k, int pair[2])
{
  const char *output, *path;

  PetscFunctionBegin;
  PetscCall(get_path(options, k, &output));
  for (int i = 0; output && i < TRS_N_PATHS; i++) {
    PetscBool found = PETSC_FALSE;

    if (i == k || (i < k && paths_of[i].is_output)) continue;
    if (paths_of[k].replaces && strcmp(paths_of[k].replaces, paths_of[i].option) == 0) continue;
    path = NULL;
    if (paths_of[i].is_list)
      PetscCall(find_in_list(options, paths_of[i].option, output, &found));
    else
      PetscCall(get_path(options, i, &path));
    if (path) PetscCall(replaces(output, path, &found));
    if (!found) continue;
    pair[0] = k;
    pair[1] = i;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputsCheckPaths(MPI_Comm comm, TrsOptions options)
{
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank, pair[2] = {-1, -1};
  const char *path;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  for (int k = 0; rank == 0 && k < TRS_N_PATHS && ierr == PETSC_SUCCESS; k++)
    if (paths_of[k].is_output) ierr = find_pair(options, k, pair);
  PetscCall(TrsAgree(comm, ierr));
  PetscCallMPI(MPI_Bcast(pair, 2, MPI_INT, 0, comm));
  if (pair[0] < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(get_path(options, pair[0], &path));
  PetscCall(TrsOptionError(options, paths_of[pair[0]].option,
                           "would write over the file of %s, %s: give it a path of its own",
                           paths_of[pair[1]].option, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- files --- */

PetscErrorCode TrsOutputsExisting(TrsOptions options, PetscBool names_run, TrsExisting *existing)
{
  PetscBool resume;
  int choice;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-existing_outputs", &choice, NULL));
  PetscCall(TrsOptionsGetBool(options, "-resume", &resume, NULL));
  *existing = resume && !names_run && choice == TRS_EXISTING_REFUSE ? TRS_EXISTING_BACKUP
                                                                    : (TrsExisting)choice;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputsLimitBackups(TrsOptions options, TrsOutput *output)
{
  int64_t most;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-existing_outputs_keep", &most, NULL));
  PetscCall(TrsOutputLimitBackups(output, (int)most));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputsOpen(MPI_Comm comm, TrsOptions options, unsigned kinds, TrsOutputs *outputs)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  *outputs = (TrsOutputs){.comm = comm};
  PetscCallMPI(MPI_Comm_rank(comm, &outputs->rank));
  for (int k = 0; k < TRS_N_OUTPUTS; k++) {
    const char *path = NULL;
    TrsExisting existing;

    if (!(kinds >> k & 1u)) continue;
    PetscCall(TrsOptionsGetString(options, kinds_of[k].option, &path, NULL));
    PetscCall(TrsOutputsExisting(options, (PetscBool)(k != TRS_OUTPUT_TRACE), &existing));
    if (outputs->rank != 0 || ierr != PETSC_SUCCESS) continue;
    ierr = TrsOutputOpen(path, existing, &outputs->file[k]);
    if (ierr == PETSC_SUCCESS) ierr = TrsOutputsLimitBackups(options, &outputs->file[k]);
  }
  PetscCall(TrsAgree(comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputsClaim(TrsOutputs *outputs, const char *run_id)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  for (int k = 0; k < TRS_N_OUTPUTS && ierr == PETSC_SUCCESS; k++)
    ierr = TrsOutputClaim(&outputs->file[k], run_id);
  PetscCall(TrsAgree(outputs->comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputsReport(const TrsOutputs *outputs, PetscBool trained, const char *folder)
{
  const TrsOutput *file = outputs->file;
  PetscBool has_weights = (PetscBool)(folder != NULL);

  PetscFunctionBegin;
  if (outputs->rank != 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < TRS_N_OUTPUTS; k++) {
    if (!file[k].own.is_there) continue;
    if (k == TRS_OUTPUT_FINAL || k == TRS_OUTPUT_BEST) has_weights = PETSC_TRUE;
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s %s: %s\n", "kept", kinds_of[k].what, file[k].path));
  }
  if (folder) PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s checkpoints: %s\n", "kept", folder));
  for (int k = 0; k < TRS_N_OUTPUTS; k++)
    if (file[k].backup)
      PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s what was %s before: %s\n", "kept", file[k].path,
                            file[k].backup));
  for (int k = 0; k < TRS_N_OUTPUTS; k++)
    if (file[k].removed)
      PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s the oldest backup: %s (-existing_outputs_keep %d)\n",
                            "removed", file[k].removed, file[k].most));
  if (trained && !has_weights)
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "weights not kept: no -checkpoint_final or -checkpoint_dir\n"));
  if (!file[TRS_OUTPUT_RESULTS].own.is_there)
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "results not kept: no -output\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOutputsClose(TrsOutputs *outputs)
{
  PetscFunctionBegin;
  for (int k = 0; k < TRS_N_OUTPUTS; k++) PetscCall(TrsOutputClose(&outputs->file[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}
