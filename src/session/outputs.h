/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Manages the files that a run writes. This module knows the run to which each file belongs. If a
  path has a file of another run, it keeps this file. It also prints the run's last lines, with all
  paths.
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
  TrsOutput file[TRS_N_OUTPUTS]; /* the outputs on rank 0; empty on other ranks */
} TrsOutputs;

/*
  TrsOutputsCheckPaths - Check that no option's output is another option's output or input.

  A link at the end of a path is not followed, because a new file would replace the link. Weights
  may replace -init_from, and a plan may replace -plan_input, because the run reads these inputs
  before it writes.

  Collective on comm. Errors (on all ranks): OPTION, naming both options and the path
*/
PetscErrorCode TrsOutputsCheckPaths(MPI_Comm comm, TrsOptions options);

/*
  TrsOutputsExisting - Get the action that -existing_outputs selects for a file of another run.

  Not collective. `names_run` is false for traces and texts, which do not name their run. Such a
  file may be from the same run. With -resume it is therefore not refused, because otherwise a run
  could not resume.
*/
PetscErrorCode TrsOutputsExisting(TrsOptions options, PetscBool names_run, TrsExisting *existing);

/*
  Limit the number of backups of an output to -existing_outputs_keep. Must be called on rank 0, as
  TrsOutputLimitBackups().
*/
PetscErrorCode TrsOutputsLimitBackups(TrsOptions options, TrsOutput *output);

/*
  TrsOutputsOpen - Look for existing files at the output paths of these kinds.

  Collective on comm. Must be called before readers start, because their threads use HDF5. Free the
  result with TrsOutputsClose().

  In:     kinds  bits 1u << TRS_OUTPUT_...
  Errors (agreed): MEMORY
*/
PetscErrorCode TrsOutputsOpen(MPI_Comm comm, TrsOptions options, unsigned kinds, TrsOutputs *outputs);

/*
  Set the id of the run to which the files belong. It is "" for a run that cannot be resumed.
  Collective. Errors (agreed): those of TrsOutputClaim().
*/
PetscErrorCode TrsOutputsClaim(TrsOutputs *outputs, const char *run_id);

/*
  TrsOutputsReport - Print a run's last lines: each file that the run wrote, and each backup of
    another run's file.

  Logically collective.

  In: trained  true: there are new weights, and a line warns if they were not saved
      folder   checkpoint folder, or NULL if no checkpoint was written
*/
PetscErrorCode TrsOutputsReport(const TrsOutputs *outputs, PetscBool trained, const char *folder);

PetscErrorCode TrsOutputsClose(TrsOutputs *outputs);
