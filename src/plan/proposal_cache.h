/* SPDX-License-Identifier: BSD-3-Clause */
/* Proposals that were seen, by the 128-bit sum of their options' hashes: 32 bytes each, whatever the number of tables. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  uint64_t key[2];
  double rating;
  int8_t used, placed;
} TrsCacheEntry;

typedef struct {
  int64_t n, capacity; /* a power of two */
  TrsCacheEntry *entry;
} TrsProposalCache;

PetscErrorCode TrsProposalCacheCreate(TrsProposalCache *cache);
PetscErrorCode TrsProposalCacheFree(TrsProposalCache *cache);

/* The entry of a key; a new one has used 0 and is the caller's to fill (used = 1). Valid until the next call. Not collective. */
PetscErrorCode TrsProposalCacheFind(TrsProposalCache *cache, const uint64_t key[2], TrsCacheEntry **entry);
