/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of a predictor's inputs and outputs, and the mapping of its checkpoint. */
#pragma once

#include "core/options/options.h"
#include "spec/task_configs.h"

#include <stdint.h>

typedef struct {
  char *mapping;       /* the checkpoint's mapping, or NULL */
  char **dense;        /* [num_dense] names of the dense features; NULL without a mapping */
  const char **output; /* [n_outputs] names of the outputs, in one block of memory */
} TrsPredictorNames;

/*
  TrsPredictorNamesTake - Check the mapping, and make the names. Free with TrsPredictorNamesFree().

  Not collective. An output has the name of its task. If a task has several classes, the number of
  the class follows: "kind_0". The output of a model without -tasks has the name of its label, or
  "prediction" if the label has no name.

  In:     options    with -data_dense, -data_label and -num_dense of the model
          tasks      the model's tasks
          path       the checkpoint, for messages
  InOut:  names      the caller must have set mapping; the other fields are set here
  Errors: DATA
*/
PetscErrorCode TrsPredictorNamesTake(TrsOptions options, const TrsTaskConfigs *tasks, const char *path,
                                     TrsPredictorNames *names);
PetscErrorCode TrsPredictorNamesFree(TrsPredictorNames *names);
