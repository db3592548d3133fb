/* SPDX-License-Identifier: BSD-3-Clause */
/* Warnings about bad ids and bad numbers in the dataset that a run accepted. */
#pragma once

#include "session/session.h"
#include "train/pipeline.h"

/*
  Print one warning on stderr for each table whose ids the bounds check has repaired so far (mode
  warning). The warning has the number of repairs. It also names one bad id: each rank knows its
  first one, and of these the warning takes the earliest in the file. Another warning covers the
  numbers that -data_check warning accepted. `what` is "train" or another pass. Collective.
*/
PetscErrorCode TrsReportBadInput(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader,
                                 const char *what);

/*
  Get the text that a message about non-finite numbers appends if the data was not checked for such
  numbers.
*/
PetscErrorCode TrsReportUnchecked(const TrsSession *session, const char **words);

/*
  If a step accepted bad ids or numbers from the dataset, print a warning on stderr. Rank 0 prints.
*/
PetscErrorCode TrsReportBadData(const TrsSession *session, const TrsDatasetInfo *info,
                                const TrsStepResult *result);
