/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Choices of a table that options give and plans carry: how its cache works, where its states are,
  how it rounds, and what it does with bad ids.

  Source: TorchRec ParameterConstraints, and ParameterSharding of a plan
*/
#pragma once

#include "spec/sharding_plan.h"

/* How a choice is written. */
typedef enum { TRS_FORM_WORD, TRS_FORM_FLAG, TRS_FORM_BYTES } TrsChoiceForm;

/* The choice's name in options and plans, and its form. */
const char *TrsTableChoiceName(TrsTableChoiceKind kind);
TrsChoiceForm TrsTableChoiceForm(TrsTableChoiceKind kind);

/* The word of a value of a WORD, borrowed; NULL after the last one. */
const char *TrsTableChoiceWord(TrsTableChoiceKind kind, int value);

/* Write a value as options have it. size: 24 is enough. */
void TrsTableChoiceText(TrsTableChoiceKind kind, int64_t value, char *text, size_t size);

/* Is the choice about the cache of a caching kernel? */
PetscBool TrsTableChoiceIsOfCache(TrsTableChoiceKind kind);

/*
  TrsTableChoicesRead - Read the choices of a table into table->constraints.choice: those that
  -table_<name>_<key> or -tables_<key> gave.

  Not collective; the result is the same on all ranks.
*/
PetscErrorCode TrsTableChoicesRead(TrsOptions options, TrsTableConfig *table);

/*
  The choices that a plan writes of a table under a compute kernel: those of caches only for kernels
  with one. choice is [TRS_N_TABLE_CHOICES]. Not collective.
*/
void TrsTableChoicesForPlan(const TrsTableConfig *table, TrsComputeKernel kernel, TrsTableChoice *choice);

/*
  TrsTableChoicesFromPlan - Give tables the choices that the plan carries.

  Not collective; the result is the same on all ranks.

  In:     source  the plan's file, for messages
  Errors: OPTION if an option of the table says something else than the plan
*/
PetscErrorCode TrsTableChoicesFromPlan(TrsOptions options, const TrsShardingPlan *plan, const char *source,
                                       TrsTableConfigs *tables);
