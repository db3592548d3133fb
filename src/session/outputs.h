/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The files that a run leaves: the run that owns each, the file that stood there before, and the
  last lines that say where everything is.
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
  TrsOutput file[TRS_N_OUTPUTS]; /* rank 0's; empty on other ranks */
} TrsOutputs;

/*
  TrsOutputsCheckPaths - Check that no option's output is another option's output or input.

  Paths are compared without following a link at their end, which a new file would replace. Weights
  may take the place of -init_from, and a plan that of -plan_input: these have been read by then.

  Collective on comm. Errors (on all ranks): OPTION with both options and the path
*/
PetscErrorCode TrsOutputsCheckPaths(MPI_Comm comm, TrsOptions options);

/*
  TrsOutputsExisting - What -existing_outputs says of another file at the path of an output.

  Not collective. A file that names no run, as a trace or a text, cannot be told from the run's own:
  with -resume it is not refused, which would keep a run from its own resume.
*/
PetscErrorCode TrsOutputsExisting(TrsOptions options, PetscBool names_run, TrsExisting *existing);

/*
  TrsOutputsOpen - Look at the files at the paths that these kinds' options give.

  Collective on comm; call this before readers start, whose threads use HDF5. Free with
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
  TrsOutputsReport - Print a run's last lines: each file that was put in place, and each file of
    another run that was kept.

  Logically collective.

  In: trained  there are new weights, so a line says so if they were not kept
      folder   of checkpoints, or NULL if none was written there
*/
PetscErrorCode TrsOutputsReport(const TrsOutputs *outputs, PetscBool trained, const char *folder);

PetscErrorCode TrsOutputsClose(TrsOutputs *outputs);
