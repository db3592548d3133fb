/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The cache of proposals that were already evaluated. Its key is the 128-bit sum of the options'
  hashes, so an entry has 32 bytes for any number of tables.
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
  int64_t n, capacity; /* number of entries; capacity: a power of two */
  TrsCacheEntry *entry;
} TrsProposalCache;

PetscErrorCode TrsProposalCacheCreate(TrsProposalCache *cache);
PetscErrorCode TrsProposalCacheFree(TrsProposalCache *cache);

/*
  Find the entry of a key, or add it. A new entry has used = 0. The caller must then fill it and set
  used = 1. The entry is valid until the next call. Not collective.
*/
PetscErrorCode TrsProposalCacheFind(TrsProposalCache *cache, const uint64_t key[2], TrsCacheEntry **entry);
