/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/outputs.h"

static const struct {
  const char *option, *what;
} kinds_of[TRS_N_OUTPUTS] = {
    [TRS_OUTPUT_RESULTS] = {"-output", "results"},
    [TRS_OUTPUT_FINAL] = {"-checkpoint_final", "weights"},
    [TRS_OUTPUT_BEST] = {"-checkpoint_best", "best weights"},
    [TRS_OUTPUT_QUANTISED] = {"-quant_checkpoint", "quantised weights"},
    [TRS_OUTPUT_TRACE] = {"-trace", "trace"},
};

PetscErrorCode TrsOutputsOpen(MPI_Comm comm, TrsOptions options, unsigned kinds, TrsOutputs *outputs)
{
  PetscErrorCode ierr = PETSC_SUCCESS;
  PetscBool resume;
  int existing;

  PetscFunctionBegin;
  *outputs = (TrsOutputs){.comm = comm};
  PetscCallMPI(MPI_Comm_rank(comm, &outputs->rank));
  PetscCall(TrsOptionsGetEnum(options, "-existing_outputs", &existing, NULL));
  PetscCall(TrsOptionsGetBool(options, "-resume", &resume, NULL));
  for (int k = 0; k < TRS_N_OUTPUTS; k++) {
    const char *path = NULL;

    if (!(kinds >> k & 1u)) continue;
    PetscCall(TrsOptionsGetString(options, kinds_of[k].option, &path, NULL));
    if (outputs->rank == 0 && ierr == PETSC_SUCCESS)
      ierr = TrsOutputOpen(path, (TrsExisting)existing, &outputs->file[k]);
    /* A trace names no run. If it were refused, it would keep a run from its own resume. */
    if (k == TRS_OUTPUT_TRACE && resume && existing == TRS_EXISTING_REFUSE)
      outputs->file[k].existing = TRS_EXISTING_BACKUP;
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
