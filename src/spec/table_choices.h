/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A table's choices that options set and plans carry: its cache, the place of its states, its
  rounding, and its handling of bad ids.

  Source: TorchRec ParameterConstraints, and a plan's ParameterSharding
*/
#pragma once

#include "spec/sharding_plan.h"

/* The form of a choice's value. */
typedef enum { TRS_FORM_WORD, TRS_FORM_FLAG, TRS_FORM_BYTES } TrsChoiceForm;

/* The choice's name in options and plans, and its form. */
const char *TrsTableChoiceName(TrsTableChoiceKind kind);
TrsChoiceForm TrsTableChoiceForm(TrsTableChoiceKind kind);

/* The word for a value of a WORD choice, borrowed; NULL after the last value. */
const char *TrsTableChoiceWord(TrsTableChoiceKind kind, int value);

/* Write a value in the options' form. A size of 24 is enough. */
void TrsTableChoiceText(TrsTableChoiceKind kind, int64_t value, char *text, size_t size);

/* True if the choice is about a caching kernel's cache. */
PetscBool TrsTableChoiceIsOfCache(TrsTableChoiceKind kind);

/*
  TrsTableChoicesRead - Read the choices that -table_<name>_<key> or -tables_<key> set for a table
    into table->constraints.choice.

  Not collective; the result is the same on all ranks.
*/
PetscErrorCode TrsTableChoicesRead(TrsOptions options, TrsTableConfig *table);

/*
  Get the choices that a plan writes for a table with a compute kernel. Choices about caches are
  included only for caching kernels. choice is [TRS_N_TABLE_CHOICES]. Not collective.
*/
void TrsTableChoicesForPlan(const TrsTableConfig *table, TrsComputeKernel kernel, TrsTableChoice *choice);

/*
  TrsTableChoicesFromPlan - Set the tables' choices from the plan.

  Not collective; the result is the same on all ranks.

  In:     source  the plan's file, for messages
  Errors: OPTION if a table's option contradicts the plan
*/
PetscErrorCode TrsTableChoicesFromPlan(TrsOptions options, const TrsShardingPlan *plan, const char *source,
                                       TrsTableConfigs *tables);
