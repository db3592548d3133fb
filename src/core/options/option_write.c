/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration of a run: options as the text of an option file. */
#include "core/options/impl.h"
#include "core/options/option_list.h"
#include "core/version.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PetscErrorCode TrsTextAdd(TrsGrowingText *text, const char *format, ...)
{
  va_list arguments;
  int n;

  PetscFunctionBegin;
  va_start(arguments, format);
  n = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (text->used + (size_t)n + 1 > text->capacity) {
    text->capacity = 2 * (text->used + (size_t)n + 1);
    PetscCall(PetscRealloc(text->capacity, &text->data));
  }
  va_start(arguments, format);
  vsnprintf(text->data + text->used, (size_t)n + 1, format, arguments);
  va_end(arguments);
  text->used += (size_t)n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_word(TrsGrowingText *text, const char *word, PetscBool bare)
{
  PetscFunctionBegin;
  if (bare && !strpbrk(word, " \t")) {
    PetscCall(TrsTextAdd(text, "%s", word));
  } else {
    PetscCall(TrsTextAdd(text, "\""));
    for (; *word; word++) PetscCall(TrsTextAdd(text, *word == '"' ? "\"\"" : "%c", *word));
    PetscCall(TrsTextAdd(text, "\""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTextAddOption(TrsGrowingText *text, const char *name, const char *value)
{
  PetscFunctionBegin;
  PetscCall(add_word(text, name, PETSC_TRUE));
  if (value) {
    const PetscBool is_number = (PetscBool)(value[0] == '-' && strchr("0123456789.", value[1]));

    PetscCall(TrsTextAdd(text, " "));
    PetscCall(add_word(text, value, (PetscBool)(is_number || (value[0] && !strchr("-\"'#", value[0])))));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_given(TrsGrowingText *text, const TrsOptionEntry *entry)
{
  const TrsGivenOption *given = TrsOptionCounted(entry);

  PetscFunctionBegin;
  if (entry->spec && (entry->spec->type == TRS_OPTION_FILE || entry->spec->type == TRS_OPTION_FILES)) {
    TrsOptionValue value;
    char *joined;
    PetscBool valid;
    char detail[TRS_OPTION_DETAIL];

    PetscCall(TrsOptionValueParse(entry->spec, given->value, given->folder, &value, &valid, detail));
    if (entry->spec->type == TRS_OPTION_FILES)
      PetscCall(TrsOptionListJoin(value.n, (const char *const *)value.strings, &joined));
    else
      PetscCall(PetscStrallocpy(value.strings[0], &joined));
    PetscCall(TrsTextAddOption(text, given->name, joined));
    PetscCall(PetscFree(joined));
    PetscCall(TrsOptionValueFree(&value));
  } else {
    PetscCall(TrsTextAddOption(text, given->name, given->value));
  }
  PetscCall(TrsTextAdd(text, " # %s\n", given->source));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsText(TrsOptions options, char **text)
{
  TrsGrowingText all = {NULL, 0, 0};

  PetscFunctionBegin;
  PetscCall(TrsTextAdd(&all, "# %s %s (%s)\n", TRS_NAME, TRS_VERSION, TrsVersionCommit()));
  for (int i = 0; i < options->model.n; i++) {
    const TrsOptionEntry *entry = TrsOptionsFindEntry(options, options->model.option[i].name);

    if (entry->model == &options->model.option[i] && TrsOptionModelCounts(options, entry))
      PetscCall(add_given(&all, entry));
  }
  for (int i = 0; i < options->given.n; i++) {
    const TrsOptionEntry *entry = TrsOptionsFindEntry(options, options->given.option[i].name);

    if (entry->given == &options->given.option[i] && strcmp(entry->name, "-options_file") != 0)
      PetscCall(add_given(&all, entry));
  }
  PetscCall(TrsTextAdd(&all, "# defaults\n"));
  for (int g = 1; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];

    for (int i = 0; i < group->n; i++) {
      const TrsOptionSpec *spec = &group->spec[i];
      char name[256];
      const TrsOptionEntry *entry;

      if (!spec->fallback) continue;
      TrsOptionNameForAll(group, spec, name, sizeof(name));
      entry = TrsOptionsFindEntry(options, name);
      if (entry && TrsOptionCounted(entry)) continue;
      PetscCall(TrsTextAdd(&all, "# "));
      PetscCall(TrsTextAddOption(&all, name, spec->fallback));
      PetscCall(TrsTextAdd(&all, "\n"));
    }
  }
  *text = all.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
