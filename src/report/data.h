/* SPDX-License-Identifier: BSD-3-Clause */
/* Warnings about ids and numbers of the dataset that a run let pass. */
#pragma once

#include "session/session.h"
#include "train/pipeline.h"

/*
  Print the repairs of the bounds check under mode warning so far, as one warning for each table on
  stderr: the count and the first bad id in the file's order among those that the ranks met first.
  One more has the numbers that -data_check warning let pass. `what` is "train" or another pass.
  Collective.
*/
PetscErrorCode TrsReportBadInput(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader,
                                 const char *what);

/* What a message about numbers that are not finite adds if nobody looked for such in the data. */
PetscErrorCode TrsReportUnchecked(const TrsSession *session, const char **words);

/* Print a warning on stderr if a step let bad ids or numbers of the dataset pass. Rank 0 prints. */
PetscErrorCode TrsReportBadData(const TrsSession *session, const TrsDatasetInfo *info,
                                const TrsStepResult *result);
