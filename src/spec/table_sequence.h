/* SPDX-License-Identifier: BSD-3-Clause */
/* What the model takes of a sequence table's rows: sequence_pooling and the keys of its words. */
#pragma once

#include "spec/table_config.h"

/*
  TrsTableSequenceRead - Read sequence_pooling, and the keys that it takes, into the table. Its
    pooling and its width are known.

  Not collective; the result is the same on all ranks.

  Errors: OPTION for a key of the table that its pooling does not take, concat without a length, an
          output that is too wide, a pooling for which a checkpoint's model lacks parameters or
          columns
  Source: src/RULES.md, rule A26
*/
PetscErrorCode TrsTableSequenceRead(TrsOptions options, TrsTableConfig *table);

/*
  Find the targets of all tables that have one. Not collective. Errors: OPTION for a target that is
  missing, not there, not a pooled embedding, or of another width.
*/
PetscErrorCode TrsTableSequenceTargets(TrsOptions options, TrsTableConfigs *tables);
