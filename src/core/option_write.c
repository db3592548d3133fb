/* SPDX-License-Identifier: BSD-3-Clause */
/* This file writes options as the text of an option file: the configuration of a run. */
#include "core/options_impl.h"
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

PetscErrorCode TrsTextAddValue(TrsGrowingText *text, const char *value)
{
  PetscBool bare = (PetscBool)(value[0] && !strpbrk(value, " \t") && !strchr("\"'#", value[0]) &&
                               !(value[0] == '-' && !strchr("0123456789.", value[1])));

  PetscFunctionBegin;
  if (bare) {
    PetscCall(TrsTextAdd(text, " %s", value));
  } else {
    PetscCall(TrsTextAdd(text, " \""));
    for (; *value; value++) PetscCall(TrsTextAdd(text, *value == '"' ? "\"\"" : "%c", *value));
    PetscCall(TrsTextAdd(text, "\""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Join entries with commas: "a,b". Free the text with PetscFree(). */
static PetscErrorCode join(int n, char *const *entries, char **text)
{
  size_t bytes = 0, used = 0;

  PetscFunctionBegin;
  for (int i = 0; i < n; i++) bytes += strlen(entries[i]) + 1;
  PetscCall(PetscMalloc(bytes, text));
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(*text + used, bytes - used, "%s%s", i ? "," : "", entries[i]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_given(TrsGrowingText *text, const TrsOptionEntry *entry)
{
  const TrsGivenOption *given = TrsOptionCounted(entry);

  PetscFunctionBegin;
  PetscCall(TrsTextAdd(text, "%s", given->name));
  if (entry->spec && (entry->spec->type == TRS_OPTION_FILE || entry->spec->type == TRS_OPTION_FILES)) {
    TrsOptionValue value;
    char *joined;
    PetscBool valid;
    char detail[TRS_OPTION_DETAIL];

    PetscCall(TrsOptionValueParse(entry->spec, given->value, given->folder, &value, &valid, detail));
    PetscCall(join(value.n, value.strings, &joined));
    PetscCall(TrsTextAddValue(text, joined));
    PetscCall(PetscFree(joined));
    PetscCall(TrsOptionValueFree(&value));
  } else if (given->value) {
    PetscCall(TrsTextAddValue(text, given->value));
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
      if (!entry || !TrsOptionCounted(entry)) PetscCall(TrsTextAdd(&all, "# %s %s\n", name, spec->fallback));
    }
  }
  *text = all.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
