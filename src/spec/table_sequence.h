/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads how the model uses the rows of a sequence table: sequence_pooling and its keys. */
#pragma once

#include "spec/table_config.h"

/*
  TrsTableSequenceRead - Read sequence_pooling and its keys into the table.

  The table's pooling and width must be set. Not collective; the result is the same on all ranks.

  Errors: OPTION for a key of the table that its pooling does not use, for concat without a length,
          for an output that is too wide, or for a pooling that needs parameters or columns that a
          checkpoint's model does not have
  Source: src/RULES.md, rule A26
*/
PetscErrorCode TrsTableSequenceRead(TrsOptions options, TrsTableConfig *table);

/*
  Find the targets of all tables that need a target. Not collective. Errors: OPTION if a target is
  not given, does not exist, is not a pooled embedding, or has another width.
*/
PetscErrorCode TrsTableSequenceTargets(TrsOptions options, TrsTableConfigs *tables);
