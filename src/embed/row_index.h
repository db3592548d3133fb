/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An index from ids to rows by open addressing, for the buckets of directories (directory.h). The
  ids themselves are in the owner's memory, in the order of rows.

  The index consists of segments that grow at different loads, so that no call builds all of a large
  index anew. A cell of a segment is 0, or holds a row and a tag: a part of the id's hash. Tags tell
  most other ids apart without a look at the owner's memory.

  Not collective. Several threads may search at the same time, while no thread inserts or erases.
*/
#pragma once

#include "compute/id_map.h"
#include "core/error.h"

#include <stdint.h>

/* Number of ids that are searched together, so that their cells are fetched at the same time. */
enum { TRS_ROW_INDEX_AHEAD = 64 };

typedef struct {
  uint32_t *cell; /* [n] row + 1 and tag; 0 means free */
  int64_t n, held;
} TrsRowSegment;

typedef struct {
  const char *ids;    /* the id of row r is the int64 at ids + r * stride; borrowed */
  int64_t stride;     /* in bytes */
  uint32_t row_mask;  /* the bits of a cell that hold row + 1 */
  int64_t n_segments; /* a small index has one */
  TrsRowSegment *segment;
} TrsRowIndex;

/* Create an empty index for at most `rows` rows, below 2^32 - 1. Errors: MEMORY. */
PetscErrorCode TrsRowIndexCreate(int64_t rows, const void *ids, int64_t stride, TrsRowIndex *index);
PetscErrorCode TrsRowIndexDestroy(TrsRowIndex *index);

/* Add the row, whose id the index must not have. Errors: MEMORY. */
PetscErrorCode TrsRowIndexInsert(TrsRowIndex *index, int64_t row);

/* Remove the row, which must be there with its present id. */
void TrsRowIndexErase(TrsRowIndex *index, int64_t row);

/* Remove all rows. */
void TrsRowIndexClear(TrsRowIndex *index);

/* Find the rows of at most TRS_ROW_INDEX_AHEAD ids. A row is -1 if the index lacks the id. */
void TrsRowIndexFind(const TrsRowIndex *index, int64_t n, const int64_t *ids, int64_t *rows);

/* Fetch the cell where the search for an id begins, for a call that follows soon. */
void TrsRowIndexFetch(const TrsRowIndex *index, int64_t id);

/* Bytes of memory that the index has now. */
int64_t TrsRowIndexBytes(const TrsRowIndex *index);

/* --- open addressing, also for other tables of ids --- */

static inline uint64_t TrsRowIndexHash(int64_t id)
{
  return TrsMix((uint64_t)id);
}

/* The cell, of n, where the search for a hash begins. It depends on the hash's low 32 bits. */
static inline int64_t TrsRowIndexHome(uint64_t hash, int64_t n)
{
  return (int64_t)((hash & UINT32_MAX) * (uint64_t)n >> 32);
}

static inline int64_t TrsRowIndexNext(int64_t cell, int64_t n)
{
  return cell + 1 == n ? 0 : cell + 1;
}

/*
  After `hole` was freed: may the contents of a later `cell`, whose search begins at `home`, stay
  there? Otherwise they must move to the hole, because their search would end at it.
*/
static inline PetscBool TrsRowIndexStays(int64_t hole, int64_t home, int64_t cell)
{
  return hole < cell ? (PetscBool)(hole < home && home <= cell) : (PetscBool)(hole < home || home <= cell);
}
