/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the use of a sequence table's rows in the model: sequence_pooling and its keys. */
#pragma once

#include "spec/table_config.h"

/*
  TrsTableSequenceRead - Read sequence_pooling and its keys into the table.

  The table's pooling and width must be set. Not collective; the result is the same on all ranks.

  Errors: OPTION for a key of the table that its pooling does not use, concat without a length, an
          output that is too wide, a pooling for which a checkpoint's model lacks parameters or
          columns
  Source: src/RULES.md, rule A26
*/
PetscErrorCode TrsTableSequenceRead(TrsOptions options, TrsTableConfig *table);

/*
  Find the targets of all tables that need one. Not collective. Errors: OPTION for a target that is
  not given, does not exist, is not a pooled embedding, or has another width.
*/
PetscErrorCode TrsTableSequenceTargets(TrsOptions options, TrsTableConfigs *tables);
