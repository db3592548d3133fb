/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The files that a run leaves: whose they are, what was there before them, and the last lines that
  say where everything is.
*/
#pragma once

#include "core/options.h"
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
  TrsOutput file[TRS_N_OUTPUTS]; /* rank 0's; elsewhere they are empty */
} TrsOutputs;

/*
  TrsOutputsOpen - Look at what stands at the paths of these kinds' options.

  Collective on comm; before readers start, whose threads use HDF5. In: kinds  bits 1u <<
  TRS_OUTPUT_...
  Errors (agreed): MEMORY. Free with TrsOutputsClose().
*/
PetscErrorCode TrsOutputsOpen(MPI_Comm comm, TrsOptions options, unsigned kinds, TrsOutputs *outputs);

/* Say which run they are of; "": of none that could be taken up again. Collective. Errors (agreed):
   TrsOutputClaim()'s */
PetscErrorCode TrsOutputsClaim(TrsOutputs *outputs, const char *run_id);

/*
  TrsOutputsReport - The last lines of a run: each file that was put in place, and each of another
  run that was kept.

  Logically collective. In: trained  are there new weights, for which it is said if they were not
  kept?
                            folder   of checkpoints, NULL: none was written there
*/
PetscErrorCode TrsOutputsReport(const TrsOutputs *outputs, PetscBool trained, const char *folder);

PetscErrorCode TrsOutputsClose(TrsOutputs *outputs);
