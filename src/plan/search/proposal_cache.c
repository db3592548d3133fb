/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/proposal_cache.h"

enum { TRS_FIRST_CAPACITY = 4096 };

PetscErrorCode TrsProposalCacheCreate(TrsProposalCache *cache)
{
  PetscFunctionBegin;
  cache->n = 0;
  cache->capacity = TRS_FIRST_CAPACITY;
  PetscCall(PetscCalloc1(cache->capacity, &cache->entry));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProposalCacheFree(TrsProposalCache *cache)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(cache->entry));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsCacheEntry *probe(const TrsProposalCache *cache, const uint64_t key[2])
{
  uint64_t mask = (uint64_t)cache->capacity - 1, i = key[0] & mask;

  while (cache->entry[i].used && (cache->entry[i].key[0] != key[0] || cache->entry[i].key[1] != key[1]))
    i = (i + 1) & mask;
  return &cache->entry[i];
}

static PetscErrorCode grow(TrsProposalCache *cache)
{
  TrsProposalCache old = *cache;

  PetscFunctionBegin;
  cache->capacity *= 2;
  PetscCall(PetscCalloc1(cache->capacity, &cache->entry));
  for (int64_t i = 0; i < old.capacity; i++) {
    if (old.entry[i].used) *probe(cache, old.entry[i].key) = old.entry[i];
  }
  PetscCall(PetscFree(old.entry));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProposalCacheFind(TrsProposalCache *cache, const uint64_t key[2], TrsCacheEntry **entry)
{
  PetscFunctionBegin;
  if (2 * (cache->n + 1) > cache->capacity) PetscCall(grow(cache));
  *entry = probe(cache, key);
  if (!(*entry)->used) {
    **entry = (TrsCacheEntry){.key = {key[0], key[1]}};
    cache->n++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
