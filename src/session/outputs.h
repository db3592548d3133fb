/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The files that a run writes. This module knows the run that owns each file, keeps another run's
  file that was in its place, and prints the run's last lines with all paths.
*/
#pragma once

#include "core/options/options.h"
#include "io/output.h"

typedef enum {
  TRS_OUTPUT_RESULTS, /* -output */
  TRS_OUTPUT_FINAL,   /* -checkpoint_final */
  TRS_OUTPUT_BEST,    /* -checkpoint_best */
  TRS_OUTPUT_QUANTISED,
  TRS_OUTPUT_TRACE,
  TRS_N_OUTPUTS
} TrsOutputKind;

typedef struct {
  MPI_Comm comm;
  int rank;
  TrsOutput file[TRS_N_OUTPUTS]; /* on rank 0; empty on other ranks */
} TrsOutputs;

/*
  TrsOutputsCheckPaths - Check that no option's output is another option's output or input.

  Paths are compared without following a link at their end, because a new file would replace the
  link. Weights may replace -init_from, and a plan may replace -plan_input: the run reads these
  inputs before it writes.

  Collective on comm. Errors (on all ranks): OPTION with both options and the path
*/
PetscErrorCode TrsOutputsCheckPaths(MPI_Comm comm, TrsOptions options);

/*
  TrsOutputsExisting - Get the treatment that -existing_outputs selects for another run's file.

  Not collective. If a file names no run, as traces and texts do, it may be the run's own. With
  -resume it is therefore not refused, because a run could otherwise not resume.
*/
PetscErrorCode TrsOutputsExisting(TrsOptions options, PetscBool names_run, TrsExisting *existing);

/*
  Let as many backups of an output stay as -existing_outputs_keep says. On rank 0, as
  TrsOutputLimitBackups().
*/
PetscErrorCode TrsOutputsLimitBackups(TrsOptions options, TrsOutput *output);

/*
  TrsOutputsOpen - Look for existing files at the output paths of these kinds.

  Collective on comm. Call this before readers start, because their threads use HDF5. Free with
  TrsOutputsClose().

  In:     kinds  bits 1u << TRS_OUTPUT_...
  Errors (agreed): MEMORY
*/
PetscErrorCode TrsOutputsOpen(MPI_Comm comm, TrsOptions options, unsigned kinds, TrsOutputs *outputs);

/*
  Set the run that the files belong to, or "" for a run that cannot be resumed. Collective. Errors
  (agreed): those of TrsOutputClaim().
*/
PetscErrorCode TrsOutputsClaim(TrsOutputs *outputs, const char *run_id);

/*
  TrsOutputsReport - Print a run's last lines: each file that the run wrote, and each backup of
    another run's file.

  Logically collective.

  In: trained  there are new weights; a line warns if they were not saved
      folder   checkpoint folder, or NULL if no checkpoint was written
*/
PetscErrorCode TrsOutputsReport(const TrsOutputs *outputs, PetscBool trained, const char *folder);

PetscErrorCode TrsOutputsClose(TrsOutputs *outputs);
