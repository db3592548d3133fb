/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of a dataset's labels a run takes. */
#pragma once

#include "io/dataset.h"

/*
  TrsLabelFind - Find the label that a run takes among those of a dataset.

  Not collective: the result is the same on all ranks.

  In:     info   the dataset
          name   name of the label, or NULL for the only one of other data, which has no name
          option the option by which the user gave the name, for messages, or NULL
  Out:    label  its place; 0 without /labels
  Errors: OPTION, or DATA if the name was not given, with the names that there are
*/
PetscErrorCode TrsLabelFind(const TrsDatasetInfo *info, const char *name, const char *option, int *label);

/* Write the names of a dataset's labels, "click, buy, like", cut to the text's size. */
void TrsLabelNames(const TrsDatasetInfo *info, char *text, size_t size);
