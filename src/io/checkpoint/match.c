/* SPDX-License-Identifier: BSD-3-Clause */
/* This file matches the contents of a file with a state if one may have what the other lacks. */
#include "io/checkpoint/read_impl.h"

#include <stdio.h>
#include <string.h>

static const char tables_group[] = "embedding/", dense_group[] = "dense/",
                  states_group[] = "dense_optimizer/";

PetscBool TrsStateIsOfTable(const TrsStateTensor *tensor)
{
  return (PetscBool)(strncmp(tensor->path, tables_group, strlen(tables_group)) == 0);
}

/* Check whether the path begins with base and the first `length` characters of middle. */
static PetscBool begins_with(const char *path, const char *base, const char *middle, int64_t length)
{
  const size_t n = strlen(base);

  return (PetscBool)(strncmp(path, base, n) == 0 && strncmp(path + n, middle, (size_t)length) == 0);
}

/* Length of a path without its last part. */
static int64_t folder_length(const char *path)
{
  const char *end = strrchr(path, '/');

  return end ? end - path : 0;
}

/*
  The weights that a state belongs to: embedding/<table>/weight, or dense/<...> for
  dense_optimizer/<...>/<state>. Returns NULL if the tensor is not a state.
*/
static const TrsStateTensor *weights_of(const TrsState *state, const TrsStateTensor *tensor)
{
  const PetscBool of_table = TrsStateIsOfTable(tensor);
  const char *middle;
  int64_t n;

  if (!tensor->optional) return NULL;
  middle = tensor->path + strlen(of_table ? tables_group : states_group);
  n = folder_length(middle);
  for (int i = 0; i < state->n; i++) {
    const char *path = state->tensor[i].path, *base = of_table ? tables_group : dense_group;

    if (begins_with(path, base, middle, n) && strcmp(path + strlen(base) + n, of_table ? "/weight" : "") == 0)
      return &state->tensor[i];
  }
  return NULL;
}

PetscBool TrsStateIsOf(const TrsStateTensor *tensor, const char *table)
{
  const char *name = tensor->path + strlen(tables_group);

  return (PetscBool)(TrsStateIsOfTable(tensor) && folder_length(name) == (int64_t)strlen(table) &&
                     strncmp(name, table, strlen(table)) == 0);
}

PetscBool TrsCheckpointWants(const TrsCheckpointWanted *wanted, const TrsState *state,
                             const TrsStateTensor *tensor)
{
  const TrsStateTensor *weights = wanted ? weights_of(state, tensor) : NULL;
  int i = 0;

  if (!wanted) return PETSC_TRUE;
  if (weights && !weights->was_read) return PETSC_FALSE;
  while (i < wanted->n_tables && !TrsStateIsOf(tensor, wanted->table[i])) i++;
  return (PetscBool)(wanted->n_tables == 0 || i < wanted->n_tables);
}

/* --- what the state has not --- */

typedef struct {
  const TrsCheckpointWanted *wanted;
  const TrsState *state;
  const char *group; /* the group being visited */
  TrsCheckpointInfo *info;
} TrsVisit;

static PetscBool has_tensor(const TrsState *state, const char *path)
{
  int i = 0;

  while (i < state->n && strcmp(state->tensor[i].path, path) != 0 &&
         (!state->tensor[i].mean_path || strcmp(state->tensor[i].mean_path, path) != 0))
    i++;
  return (PetscBool)(i < state->n);
}

/* Cut `end` off the text if the text ends in it. */
static PetscBool cut(char *text, const char *end)
{
  const size_t n = strlen(text), m = strlen(end);

  if (n <= m || strcmp(text + n - m, end) != 0) return PETSC_FALSE;
  text[n - m] = '\0';
  return PETSC_TRUE;
}

/*
  Note a state that the file has for weights of the model, but that these weights do not have here.
  It belongs to another optimizer. States by columns and by whole rows count as the same.
*/
static PetscErrorCode meet_state(const TrsVisit *v, char *path)
{
  char weights[TRS_CHECKPOINT_MAX_NAME + sizeof(tables_group)];
  const int n = (int)folder_length(path);

  PetscFunctionBegin;
  (void)cut(path, "_columns");
  if (v->info->other_state || has_tensor(v->state, path)) PetscFunctionReturn(PETSC_SUCCESS);
  if (v->group == tables_group)
    snprintf(weights, sizeof(weights), "%.*s/weight", n, path);
  else
    snprintf(weights, sizeof(weights), "%s%.*s", dense_group, n - (int)strlen(states_group),
             path + strlen(states_group));
  if (has_tensor(v->state, weights)) PetscCall(PetscStrallocpy(path, &v->info->other_state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Note a dataset of the group. A table is recognised by its weights, as numbers or quantised rows. A
  dense layer is recognised by each of its tensors.
*/
static PetscErrorCode meet(void *context, const char *name)
{
  const TrsVisit *v = (const TrsVisit *)context;
  char path[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointInfo *info = v->info;
  const PetscBool is_table = (PetscBool)(v->group == tables_group);

  PetscFunctionBegin;
  if (snprintf(path, sizeof(path), "%s%s", v->group, name) >= TRS_CHECKPOINT_MAX_NAME)
    PetscFunctionReturn(PETSC_SUCCESS);
  if (is_table) (void)cut(path, TRS_QUANTISED_SUFFIX);
  if (has_tensor(v->state, path)) PetscFunctionReturn(PETSC_SUCCESS);
  if (v->group == states_group || (is_table && !cut(path, "/weight"))) {
    if (v->wanted->same) PetscCall(meet_state(v, path));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscRealloc(sizeof(*info->unexpected) * (size_t)(info->n_unexpected + 1), &info->unexpected));
  PetscCall(PetscStrallocpy(path, &info->unexpected[info->n_unexpected]));
  info->n_unexpected++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFindUnexpected(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                           const TrsState *state, TrsCheckpointInfo *info)
{
  const char *const groups[] = {tables_group, dense_group, states_group};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
    TrsVisit v = {.wanted = wanted, .state = state, .group = groups[i], .info = info};
    char name[sizeof(states_group)];

    /* The copy drops the final slash. */
    PetscCall(PetscStrncpy(name, groups[i], strlen(groups[i])));
    PetscCall(TrsHDF5EachDataset(file, name, meet, &v));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
