/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Choices of a table that options can set and plans can contain: its cache, the memory of its
  states, its rounding, and its treatment of invalid ids.

  Source: TorchRec ParameterConstraints, and a plan's ParameterSharding
*/
#pragma once

#include "spec/sharding_plan.h"

/* The form of a choice's value: a word, true or false, or a number of bytes. */
typedef enum { TRS_FORM_WORD, TRS_FORM_FLAG, TRS_FORM_BYTES } TrsChoiceForm;

/* The choice's name in options and plans. TrsTableChoiceForm(): the form of its value. */
const char *TrsTableChoiceName(TrsTableChoiceKind kind);
TrsChoiceForm TrsTableChoiceForm(TrsTableChoiceKind kind);

/* The word for a value of a choice with form WORD. Returns NULL after the last value. Borrowed. */
const char *TrsTableChoiceWord(TrsTableChoiceKind kind, int value);

/* Write a value in the form that options use. A size of 24 is enough. */
void TrsTableChoiceText(TrsTableChoiceKind kind, int64_t value, char *text, size_t size);

/* True if the choice belongs to the cache of a caching kernel. */
PetscBool TrsTableChoiceIsOfCache(TrsTableChoiceKind kind);

/*
  TrsTableChoicesRead - Read the choices that -table_<name>_<key> or -tables_<key> set for a table
    into table->constraints.choice.

  Not collective; the result is the same on all ranks.
*/
PetscErrorCode TrsTableChoicesRead(TrsOptions options, TrsTableConfig *table);

/*
  Get the choices that a plan contains for a table with the given compute kernel. Choices about
  caches are included only if the kernel is a caching kernel. choice is [TRS_N_TABLE_CHOICES]. Not
  collective.
*/
void TrsTableChoicesForPlan(const TrsTableConfig *table, TrsComputeKernel kernel, TrsTableChoice *choice);

/*
  TrsTableChoicesFromPlan - Set the tables' choices from the plan.

  Not collective; the result is the same on all ranks.

  In:     source  the plan's file, for messages
  Errors: OPTION if an option of a table contradicts the plan
*/
PetscErrorCode TrsTableChoicesFromPlan(TrsOptions options, const TrsShardingPlan *plan, const char *source,
                                       TrsTableConfigs *tables);
