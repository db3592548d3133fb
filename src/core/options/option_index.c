/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/options/option_index.h"

#include "core/options/impl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

unsigned TrsOptionHash(const char *name)
{
  unsigned hash = 2166136261u; /* FNV-1a of the name in lower case */

  for (; *name; name++) hash = (hash ^ (unsigned)tolower((unsigned char)*name)) * 16777619u;
  return hash;
}

/* The slot of an option, or the free slot where it belongs. */
static TrsIndexedOption *probe(const TrsOptionIndex *index, const TrsOptionGroup *group, const char *name,
                               unsigned hash)
{
  const unsigned mask = (unsigned)index->capacity - 1;

  for (unsigned i = hash & mask;; i = (i + 1) & mask) {
    TrsIndexedOption *slot = &index->slot[i];

    if (!slot->spec ||
        (slot->hash == hash && slot->group == group && strcasecmp(slot->spec->name, name) == 0))
      return slot;
  }
}

static PetscErrorCode add(TrsOptionIndex *index, const TrsOptionGroup *group, const TrsOptionSpec *spec)
{
  const TrsOptionGroup *objects = group->object ? group : NULL;
  const unsigned hash = TrsOptionHash(spec->name);
  TrsIndexedOption *slot = probe(index, objects, spec->name, hash);
  size_t n;

  PetscFunctionBegin;
  if (slot->spec) PetscFunctionReturn(PETSC_SUCCESS);
  *slot = (TrsIndexedOption){.spec = spec, .group = objects, .hash = hash};
  if (!objects) PetscFunctionReturn(PETSC_SUCCESS);
  n = strlen(objects->object) + strlen(spec->name) + 4;
  PetscCall(PetscMalloc1(n, &slot->name_for_all));
  TrsOptionNameForAll(group, spec, slot->name_for_all, n);
  slot->hash_for_all = TrsOptionHash(slot->name_for_all);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionIndexCreate(int n_groups, const TrsOptionGroup *const *groups, TrsOptionIndex *index)
{
  int n = 0;

  PetscFunctionBegin;
  for (int g = 0; g < n_groups; g++) n += groups[g]->n;
  index->capacity = 1;
  while (index->capacity < 2 * n + 1) index->capacity *= 2;
  PetscCall(PetscCalloc1(index->capacity, &index->slot));
  for (int g = 0; g < n_groups; g++)
    for (int i = 0; i < groups[g]->n; i++) PetscCall(add(index, groups[g], &groups[g]->spec[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionIndexFree(TrsOptionIndex *index)
{
  PetscFunctionBegin;
  for (int i = 0; i < index->capacity; i++) {
    PetscCall(PetscFree(index->slot[i].name_for_all));
    PetscCall(PetscFree(index->slot[i].blank));
  }
  PetscCall(PetscFree(index->slot));
  index->capacity = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsIndexedOption *TrsOptionIndexFind(const TrsOptionIndex *index, const TrsOptionGroup *group,
                                     const char *name)
{
  TrsIndexedOption *slot = probe(index, group, name, TrsOptionHash(name));

  return slot->spec ? slot : NULL;
}
