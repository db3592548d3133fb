/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_choices.h"

#include "spec/table_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *name;
  TrsChoiceForm form;
  const char *const *words; /* NULL-terminated */
} kinds[] = {
#define KIND_OF(KIND, word, form, WORDS) \
  {#word, TRS_FORM_##form, (const char *const[]){WORDS(TRS_WORD_TEXT) NULL}},
    TRS_TABLE_CHOICES(KIND_OF)};

const char *TrsTableChoiceName(TrsTableChoiceKind kind)
{
  return kinds[kind].name;
}

TrsChoiceForm TrsTableChoiceForm(TrsTableChoiceKind kind)
{
  return kinds[kind].form;
}

const char *TrsTableChoiceWord(TrsTableChoiceKind kind, int value)
{
  int n = 0;

  while (kinds[kind].words[n]) n++;
  return value < n ? kinds[kind].words[value] : NULL;
}

PetscErrorCode TrsTableChoicesRead(TrsOptions options, TrsTableConfig *table)
{
  PetscFunctionBegin;
  for (int k = 0; k < TRS_N_TABLE_CHOICES; k++) {
    TrsTableChoice *choice = &table->constraints.choice[k];
    PetscBool flag = PETSC_FALSE;
    int word = 0;

    *choice = (TrsTableChoice){.set = PETSC_FALSE};
    switch (kinds[k].form) {
    case TRS_FORM_WORD:
      GET(Enum, kinds[k].name, &word, &choice->set);
      choice->value = word;
      break;
    case TRS_FORM_FLAG:
      GET(Bool, kinds[k].name, &flag, &choice->set);
      choice->value = flag;
      break;
    case TRS_FORM_BYTES: GET(Int, kinds[k].name, &choice->value, &choice->set); break;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsTableChoicesForPlan(const TrsTableConfig *table, TrsComputeKernel kernel, TrsTableChoice *choice)
{
  for (int k = 0; k < TRS_N_TABLE_CHOICES; k++) {
    choice[k] = table->constraints.choice[k];
    if (TrsTableChoiceIsOfCache((TrsTableChoiceKind)k) && !TrsKernelIsCaching(kernel))
      choice[k] = (TrsTableChoice){.set = PETSC_FALSE};
  }
}

PetscBool TrsTableChoiceIsOfCache(TrsTableChoiceKind kind)
{
  return (PetscBool)(kind == TRS_CHOICE_CACHE_ALGORITHM || kind == TRS_CHOICE_CACHE_RESERVED_MEMORY ||
                     kind == TRS_CHOICE_CACHE_PRECISION);
}

static void apply(TrsTableChoiceKind kind, int64_t value, TrsTableConfig *table)
{
  TrsTableConstraints *constraints = &table->constraints;

  constraints->choice[kind] = (TrsTableChoice){.set = PETSC_TRUE, .value = value};
  switch (kind) {
  case TRS_CHOICE_CACHE_ALGORITHM: constraints->cache_lfu = (PetscBool)(value == 1); break;
  case TRS_CHOICE_CACHE_RESERVED_MEMORY:
  case TRS_CHOICE_CACHE_PRECISION: break; /* its value is read directly from constraints->choice */
  case TRS_CHOICE_ENFORCE_HBM:
    constraints->has_enforce_hbm = PETSC_TRUE;
    constraints->enforce_hbm = (PetscBool)value;
    break;
  case TRS_CHOICE_STOCHASTIC_ROUNDING: table->stochastic_rounding = (PetscBool)value; break;
  case TRS_CHOICE_BOUNDS_CHECK_MODE: table->bounds_check_mode = (TrsBoundsCheckMode)value; break;
  case TRS_CHOICE_OUTPUT_DTYPE:
    constraints->has_output_dtype = PETSC_TRUE;
    constraints->output_dtype = (TrsDType)value;
    break;
  }
}

void TrsTableChoiceText(TrsTableChoiceKind kind, int64_t value, char *text, size_t size)
{
  switch (kinds[kind].form) {
  case TRS_FORM_WORD: snprintf(text, size, "%s", TrsTableChoiceWord(kind, (int)value)); break;
  case TRS_FORM_FLAG: snprintf(text, size, "%s", value ? "true" : "false"); break;
  case TRS_FORM_BYTES: snprintf(text, size, "%" PRId64, value); break;
  }
}

PetscErrorCode TrsTableChoicesFromPlan(TrsOptions options, const TrsShardingPlan *plan, const char *source,
                                       TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  for (int i = 0; i < TRS_N_TABLE_CHOICES * tables->n; i++) {
    const TrsTableChoiceKind kind = (TrsTableChoiceKind)(i % TRS_N_TABLE_CHOICES);
    TrsTableConfig *table = &tables->table[i / TRS_N_TABLE_CHOICES];
    const TrsTablePlan *table_plan = TrsShardingPlanFind(plan, table->name);
    const TrsTableChoice *given = &table->constraints.choice[kind];

    if (!table_plan || !table_plan->choice[kind].set) continue;
    if (given->set && given->value != table_plan->choice[kind].value) {
      char mine[32], plans[32];

      TrsTableChoiceText(kind, given->value, mine, sizeof(mine));
      TrsTableChoiceText(kind, table_plan->choice[kind].value, plans, sizeof(plans));
      FAIL(kinds[kind].name, "table \"%s\" has %s here and %s in %s: leave this out, or change the plan",
           table->name, mine, plans, source);
    }
    apply(kind, table_plan->choice[kind].value, table);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
