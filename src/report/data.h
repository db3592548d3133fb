/* SPDX-License-Identifier: BSD-3-Clause */
/* Warnings about bad ids and numbers in the dataset that a run accepted. */
#pragma once

#include "session/session.h"
#include "train/pipeline.h"

/*
  Print the bounds check's repairs so far (mode warning), as one warning per table on stderr: their
  count, and the earliest in the file among the ranks' first bad ids. Another warning covers the
  numbers that -data_check warning accepted. `what` is "train" or another pass. Collective.
*/
PetscErrorCode TrsReportBadInput(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader,
                                 const char *what);

/* Text to append to a message about non-finite numbers if the data was not checked for them. */
PetscErrorCode TrsReportUnchecked(const TrsSession *session, const char **words);

/*
  Print a warning on stderr if a step accepted bad ids or numbers from the dataset. Rank 0 prints.
*/
PetscErrorCode TrsReportBadData(const TrsSession *session, const TrsDatasetInfo *info,
                                const TrsStepResult *result);
