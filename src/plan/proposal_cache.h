/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The cache of proposals that were seen. The key is the 128-bit sum of the options' hashes, so an
  entry has 32 bytes, whatever the number of tables.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  uint64_t key[2];
  double rating;
  int8_t used, placed;
} TrsCacheEntry;

typedef struct {
  int64_t n, capacity; /* capacity: a power of two */
  TrsCacheEntry *entry;
} TrsProposalCache;

PetscErrorCode TrsProposalCacheCreate(TrsProposalCache *cache);
PetscErrorCode TrsProposalCacheFree(TrsProposalCache *cache);

/*
  The entry of a key. A new entry has used 0, and the caller must fill it (used = 1). Valid until
  the next call. Not collective.
*/
PetscErrorCode TrsProposalCacheFind(TrsProposalCache *cache, const uint64_t key[2], TrsCacheEntry **entry);
