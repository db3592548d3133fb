/* SPDX-License-Identifier: BSD-3-Clause */
/* The options that define a model: a checkpoint stores them, and a run reads them from it. */
#include "core/options/impl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
  Sizes of buffers for the name of an option. The name of an object's own option may be as long as a
  checkpoint can store.
*/
enum { TRS_MAX_NAME = 512, TRS_MAX_OWN_NAME = 2048, TRS_MAX_SHOWN = 100 };

/* True if the word is in a list "a,b,c". */
static PetscBool has_word(const char *list, const char *word)
{
  const size_t n = strlen(word);

  for (const char *at = list; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n])) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

static const TrsOptionGroup *group_of(TrsOptions options, const TrsOptionSpec *spec)
{
  for (int g = 0; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];

    for (int i = 0; i < group->n; i++)
      if (&group->spec[i] == spec) return group;
  }
  return NULL;
}

static PetscBool is_of_model(const TrsOptionGroup *group, const TrsOptionSpec *spec)
{
  return (PetscBool)(has_word(group->fixed, spec->name) || has_word(group->kept, spec->name));
}

PetscBool TrsOptionIsOfModel(TrsOptions options, const TrsOptionSpec *spec)
{
  const TrsOptionGroup *group = group_of(options, spec);

  return (PetscBool)(group && is_of_model(group, spec));
}

void TrsOptionNameForAll(const TrsOptionGroup *group, const TrsOptionSpec *spec, char *name, size_t n)
{
  snprintf(name, n, group->object ? "-%ss_%s" : "%.0s%s", group->object ? group->object : "", spec->name);
}

/* Find the entry of an option for one object, or NULL. */
static TrsOptionEntry *find_own(TrsOptions options, const char *object, const char *instance,
                                const TrsOptionSpec *spec)
{
  char name[TRS_MAX_OWN_NAME];

  snprintf(name, sizeof(name), "-%s_%s_%s", object, instance, spec->name);
  return TrsOptionsFindEntry(options, name);
}

static TrsOptionEntry *find_for_all(TrsOptions options, const TrsOptionGroup *group,
                                    const TrsOptionSpec *spec)
{
  char name[TRS_MAX_NAME];

  TrsOptionNameForAll(group, spec, name, sizeof(name));
  return TrsOptionsFindEntry(options, name);
}

PetscBool TrsOptionModelCounts(TrsOptions options, const TrsOptionEntry *entry)
{
  const TrsOptionEntry *all;

  if (!entry->model || entry->given) return PETSC_FALSE;
  all = find_for_all(options, group_of(options, entry->spec), entry->spec);
  return (PetscBool)(!all || !all->given);
}

PetscBool TrsOptionsIsGiven(TrsOptions options, const char *name)
{
  const TrsOptionEntry *entry = TrsOptionsFindEntry(options, name);

  return (PetscBool)(entry && entry->given);
}

const char *TrsOptionsModelOf(TrsOptions options, const char *name)
{
  const TrsOptionEntry *entry = TrsOptionsFindEntry(options, name);

  return entry && TrsOptionModelCounts(options, entry) ? options->checkpoint : NULL;
}

const char *TrsOptionsModelValue(TrsOptions options, const char *object, const char *instance,
                                 const char *key)
{
  const TrsOptionEntry *entry;
  char name[TRS_MAX_OWN_NAME];

  snprintf(name, sizeof(name), "-%s_%s_%s", object, instance, key);
  entry = TrsOptionsFindEntry(options, name);
  if (entry && entry->model) return entry->model->value;
  snprintf(name, sizeof(name), "-%ss_%s", object, key);
  entry = TrsOptionsFindEntry(options, name);
  return entry && entry->model ? entry->model->value : NULL;
}

/* --- reading a checkpoint's options --- */

static PetscBool same_value(const TrsOptionValue *a, const TrsOptionValue *b)
{
  const size_t n = (size_t)a->n;

  if (a->n != b->n) return PETSC_FALSE;
  if (a->ints && memcmp(a->ints, b->ints, n * sizeof(*a->ints)) != 0) return PETSC_FALSE;
  if (a->reals && memcmp(a->reals, b->reals, n * sizeof(*a->reals)) != 0) return PETSC_FALSE;
  if (a->indices && memcmp(a->indices, b->indices, n * sizeof(*a->indices)) != 0) return PETSC_FALSE;
  for (size_t i = 0; a->strings && i < n; i++)
    if (strcmp(a->strings[i], b->strings[i]) != 0) return PETSC_FALSE;
  return PETSC_TRUE;
}

/*
  Refuse a value that the user gave for a fixed option if it differs from the model's value. If
  either value is missing, they agree.
*/
static PetscErrorCode check_agreement(TrsOptions options, const TrsOptionSpec *spec,
                                      const TrsOptionEntry *given, const TrsOptionEntry *model)
{
  TrsOptionValue a, b;
  PetscBool same;

  PetscFunctionBegin;
  if (!given || !model) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionParse(spec, given->given, &a));
  PetscCall(TrsOptionParse(spec, model->model, &b));
  same = same_value(&a, &b);
  PetscCall(TrsOptionValueFree(&a));
  PetscCall(TrsOptionValueFree(&b));
  if (!same)
    PetscCall(TrsOptionError(options, given->name, "the model of %.400s has %.*s %.*s; leave the option out",
                             options->checkpoint, TRS_MAX_SHOWN, model->name, TRS_MAX_SHOWN,
                             model->model->value ? model->model->value : "true"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the first of two entries that has a value from the user, or NULL. */
static const TrsOptionEntry *first_given(const TrsOptionEntry *own, const TrsOptionEntry *all)
{
  return own && own->given ? own : all && all->given ? all : NULL;
}

static const TrsOptionEntry *first_of_model(const TrsOptionEntry *own, const TrsOptionEntry *all)
{
  return own && own->model ? own : all && all->model ? all : NULL;
}

/*
  Check that the user's values of the fixed keys agree with the model's, for one object of the
  model.
*/
static PetscErrorCode check_object(TrsOptions options, const TrsOptionGroup *group, const char *instance)
{
  PetscFunctionBegin;
  for (int i = 0; i < group->n; i++) {
    const TrsOptionSpec *spec = &group->spec[i];
    const TrsOptionEntry *own, *all;

    if (!has_word(group->fixed, spec->name)) continue;
    own = find_own(options, group->object, instance, spec);
    all = find_for_all(options, group, spec);
    PetscCall(check_agreement(options, spec, first_given(own, all), first_of_model(own, all)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check all objects that the model's option -<object>s lists. */
static PetscErrorCode check_objects(TrsOptions options, const TrsOptionGroup *group)
{
  const TrsOptionEntry *list;
  TrsOptionValue names;
  char name[TRS_MAX_NAME];

  PetscFunctionBegin;
  snprintf(name, sizeof(name), "-%ss", group->object);
  list = TrsOptionsFindEntry(options, name);
  if (!list || !list->model) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionParse(list->spec, list->model, &names));
  for (int i = 0; i < names.n; i++) PetscCall(check_object(options, group, names.strings[i]));
  PetscCall(TrsOptionValueFree(&names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_fixed(TrsOptions options)
{
  PetscFunctionBegin;
  for (int g = 0; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];

    if (!group->fixed || group->object) continue;
    for (int i = 0; i < group->n; i++) {
      const TrsOptionEntry *entry = TrsOptionsFindEntry(options, group->spec[i].name);

      if (has_word(group->fixed, group->spec[i].name))
        PetscCall(
            check_agreement(options, &group->spec[i], first_given(entry, NULL), first_of_model(entry, NULL)));
    }
  }
  for (int g = 0; g < options->n_groups; g++)
    if (options->groups[g]->fixed && options->groups[g]->object)
      PetscCall(check_objects(options, options->groups[g]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add an option from a checkpoint's text. The user's options have priority. */
static PetscErrorCode take_option(TrsOptions options, const TrsGivenOption *option)
{
  TrsOptionEntry *entry;
  TrsOptionValue value;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEntry(options, option->name, NULL, &entry));
  PetscCheck(entry->spec && TrsOptionIsOfModel(options, entry->spec), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute model has %.*s, which is no option of a model in this version",
             options->checkpoint, TRS_MAX_SHOWN, option->name);
  PetscCall(TrsOptionParse(entry->spec, option, &value));
  PetscCall(TrsOptionValueFree(&value));
  entry->model = option;
  if (!entry->given && entry->parsed) {
    PetscCall(TrsOptionValueFree(&entry->value));
    entry->parsed = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsTakeModel(TrsOptions options, const char *path, char *text)
{
  TrsGivenOption file = {.folder = NULL, .origin = TRS_OPTION_ORIGIN_MODEL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(path, &options->checkpoint));
  if (!text) PetscFunctionReturn(PETSC_SUCCESS);
  file.source = file.folder = options->checkpoint;
  ierr = TrsOptionTextParse(text, &file, &options->model);
  /* the message names a line of an option file, which does not exist here */
  if (ierr == TRS_ERR_OPTION) TrsErrorClear();
  PetscCheck(ierr != TRS_ERR_OPTION && options->model.n > 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute model is no text of options: it is damaged", path);
  PetscCall(ierr);
  for (int i = 0; i < options->model.n; i++) {
    /* the source is the checkpoint without a line, because a user cannot look up a line of an
       attribute */
    PetscCall(PetscFree(options->model.option[i].source));
    PetscCall(PetscStrallocpy(path, &options->model.option[i].source));
  }
  for (int i = 0; i < options->model.n; i++) PetscCall(take_option(options, &options->model.option[i]));
  PetscCall(check_fixed(options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- writing a model's options --- */

PetscErrorCode TrsOptionsSettle(TrsOptions options, const char *name, const char *value)
{
  TrsOptionEntry *entry;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEntry(options, name, NULL, &entry));
  PetscCheck(entry->spec, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "option %s is in no table", name);
  PetscCall(PetscFree(entry->settled));
  PetscCall(PetscStrallocpy(value, &entry->settled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the value of an entry as text, or NULL for the default. */
static const char *value_of(const TrsOptionEntry *entry)
{
  const TrsGivenOption *counted = entry ? TrsOptionCounted(entry) : NULL;

  if (entry && entry->settled) return entry->settled;
  if (!counted) return NULL;
  return counted->value ? counted->value : "true";
}

static PetscErrorCode add_line(TrsGrowingText *text, const char *name, const char *value)
{
  PetscFunctionBegin;
  /* leave out a name with a line end: it comes from the dataset, where a later run finds it
     again */
  if (!value || strpbrk(name, "\r\n") || strpbrk(value, "\r\n")) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsTextAddOption(text, name, value));
  PetscCall(TrsTextAdd(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append the values of an option for single objects, one line for each. */
static PetscErrorCode add_own(TrsOptions options, const TrsOptionSpec *spec, const TrsOptionObjects *objects,
                              TrsGrowingText *text)
{
  PetscFunctionBegin;
  for (int t = 0; t < objects->n; t++) {
    const TrsOptionEntry *own = find_own(options, objects->object, objects->names[t], spec);

    if (own && own->spec == spec && (own->given || own->settled || TrsOptionModelCounts(options, own)))
      PetscCall(add_line(text, own->name, value_of(own)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsModelText(TrsOptions options, int n, const TrsOptionObjects *objects, char **text)
{
  TrsGrowingText all = {NULL, 0, 0};

  PetscFunctionBegin;
  for (int g = 0; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];

    for (int i = 0; i < group->n; i++) {
      const TrsOptionSpec *spec = &group->spec[i];
      const TrsOptionEntry *for_all;
      char name[TRS_MAX_NAME];

      if (!is_of_model(group, spec)) continue;
      TrsOptionNameForAll(group, spec, name, sizeof(name));
      for_all = TrsOptionsFindEntry(options, name);
      PetscCall(add_line(&all, name, value_of(for_all) ? value_of(for_all) : spec->fallback));
      for (int k = 0; group->object && k < n; k++)
        if (strcmp(group->object, objects[k].object) == 0)
          PetscCall(add_own(options, spec, &objects[k], &all));
    }
  }
  *text = all.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
