/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the labels with which a run trains, from a dataset's labels. */
#pragma once

#include "io/dataset.h"

/*
  TrsLabelFind - Find a dataset's label by its name.

  Not collective: the result is the same on all ranks.

  In:     info   the dataset
          name   the label's name; NULL if the training data has a single label without a name
          option for messages: the option with which the user gave the name; NULL if no option gave
          it
  Out:    label  its index; 0 if the dataset has no /labels
  Errors: OPTION, or DATA if no option gave the name; the message lists the dataset's names
*/
PetscErrorCode TrsLabelFind(const TrsDatasetInfo *info, const char *name, const char *option, int *label);

/* Write the names of a dataset's labels, as "click, buy, like". The text is cut to `size` bytes. */
void TrsLabelNames(const TrsDatasetInfo *info, char *text, size_t size);
