/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/row_index.h"

#include "core/buffer.h"

#include <string.h>

enum {
  TRS_ROW_INDEX_SEGMENTS = 64,   /* of a large index */
  TRS_ROW_INDEX_SMALL = 1 << 14, /* rows of the largest index with one segment */
  TRS_ROW_INDEX_CELLS = 16       /* of a new segment */
};

static inline int64_t id_of(const TrsRowIndex *index, int64_t row)
{
  int64_t id;

  memcpy(&id, index->ids + row * index->stride, sizeof(id));
  return id;
}

static inline TrsRowSegment *segment_of(const TrsRowIndex *index, uint64_t hash)
{
  return &index->segment[(hash >> 32) * (uint64_t)index->n_segments >> 32];
}

static inline uint32_t tag_of(const TrsRowIndex *index, uint64_t hash)
{
  return (uint32_t)(hash >> 26) & ~index->row_mask;
}

static inline int64_t row_in(const TrsRowIndex *index, uint32_t cell)
{
  return (int64_t)(cell & index->row_mask) - 1;
}

PetscErrorCode TrsRowIndexCreate(int64_t rows, const void *ids, int64_t stride, TrsRowIndex *index)
{
  PetscFunctionBegin;
  *index = (TrsRowIndex){.ids = (const char *)ids, .stride = stride};
  while (index->row_mask < rows) index->row_mask = 2 * index->row_mask + 1;
  index->n_segments = rows > TRS_ROW_INDEX_SMALL ? TRS_ROW_INDEX_SEGMENTS : 1;
  PetscCall(PetscCalloc1((size_t)index->n_segments, &index->segment));
  for (int64_t s = 0; s < index->n_segments; s++) {
    index->segment[s].n = TRS_ROW_INDEX_CELLS;
    PetscCall(TrsAlloc(index->segment[s].n, sizeof(uint32_t), &index->segment[s].cell));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowIndexDestroy(TrsRowIndex *index)
{
  PetscFunctionBegin;
  for (int64_t s = 0; index->segment && s < index->n_segments; s++)
    PetscCall(TrsFree(&index->segment[s].cell));
  PetscCall(PetscFree(index->segment));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsRowIndexClear(TrsRowIndex *index)
{
  for (int64_t s = 0; s < index->n_segments; s++) {
    memset(index->segment[s].cell, 0, (size_t)index->segment[s].n * sizeof(uint32_t));
    index->segment[s].held = 0;
  }
}

static void insert_into(const TrsRowIndex *index, const TrsRowSegment *s, int64_t row)
{
  const uint64_t hash = TrsRowIndexHash(id_of(index, row));
  int64_t cell = TrsRowIndexHome(hash, s->n);

  while (s->cell[cell]) cell = TrsRowIndexNext(cell, s->n);
  s->cell[cell] = (uint32_t)(row + 1) | tag_of(index, hash);
}

/* Make room for one more row. Segment s grows when 64 to 76 of 100 cells are taken. */
static PetscErrorCode grow(const TrsRowIndex *index, TrsRowSegment *s)
{
  const double limit = 0.64 + 0.12 * (double)(s - index->segment) / TRS_ROW_INDEX_SEGMENTS;
  TrsRowSegment larger = {.n = s->n + s->n / 4, .held = s->held};

  PetscFunctionBegin;
  if ((double)(s->held + 1) < limit * (double)s->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(larger.n, sizeof(*larger.cell), &larger.cell));
  for (int64_t i = 0; i < s->n; i++)
    if (s->cell[i]) insert_into(index, &larger, row_in(index, s->cell[i]));
  PetscCall(TrsFree(&s->cell));
  *s = larger;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowIndexInsert(TrsRowIndex *index, int64_t row)
{
  TrsRowSegment *s = segment_of(index, TrsRowIndexHash(id_of(index, row)));

  PetscFunctionBegin;
  PetscCall(grow(index, s));
  insert_into(index, s, row);
  s->held++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsRowIndexErase(TrsRowIndex *index, int64_t row)
{
  const uint64_t hash = TrsRowIndexHash(id_of(index, row));
  TrsRowSegment *s = segment_of(index, hash);
  int64_t hole = TrsRowIndexHome(hash, s->n), cell;

  while (row_in(index, s->cell[hole]) != row) hole = TrsRowIndexNext(hole, s->n);
  for (cell = TrsRowIndexNext(hole, s->n); s->cell[cell]; cell = TrsRowIndexNext(cell, s->n)) {
    const uint64_t other = TrsRowIndexHash(id_of(index, row_in(index, s->cell[cell])));

    if (TrsRowIndexStays(hole, TrsRowIndexHome(other, s->n), cell)) continue;
    s->cell[hole] = s->cell[cell];
    hole = cell;
  }
  s->cell[hole] = 0;
  s->held--;
}

/* Find the first cell from `cell` on that is free or has the tag. */
static inline int64_t find_tag(const TrsRowIndex *index, const TrsRowSegment *s, int64_t cell, uint32_t tag)
{
  while (s->cell[cell] && (s->cell[cell] & ~index->row_mask) != tag) cell = TrsRowIndexNext(cell, s->n);
  return cell;
}

void TrsRowIndexFind(const TrsRowIndex *index, int64_t n, const int64_t *ids, int64_t *rows)
{
  const TrsRowSegment *segment[TRS_ROW_INDEX_AHEAD];
  int64_t cell[TRS_ROW_INDEX_AHEAD];
  uint32_t tag[TRS_ROW_INDEX_AHEAD];

  for (int64_t i = 0; i < n; i++) {
    const uint64_t hash = TrsRowIndexHash(ids[i]);

    segment[i] = segment_of(index, hash);
    tag[i] = tag_of(index, hash);
    cell[i] = TrsRowIndexHome(hash, segment[i]->n);
    __builtin_prefetch(&segment[i]->cell[cell[i]]);
  }
  for (int64_t i = 0; i < n; i++) {
    cell[i] = find_tag(index, segment[i], cell[i], tag[i]);
    if (segment[i]->cell[cell[i]])
      __builtin_prefetch(index->ids + row_in(index, segment[i]->cell[cell[i]]) * index->stride);
  }
  for (int64_t i = 0; i < n; i++) {
    const TrsRowSegment *s = segment[i];
    int64_t c = cell[i];

    while (s->cell[c] && id_of(index, row_in(index, s->cell[c])) != ids[i])
      c = find_tag(index, s, TrsRowIndexNext(c, s->n), tag[i]);
    rows[i] = s->cell[c] ? row_in(index, s->cell[c]) : -1;
  }
}

void TrsRowIndexFetch(const TrsRowIndex *index, int64_t id)
{
  const uint64_t hash = TrsRowIndexHash(id);
  const TrsRowSegment *s = segment_of(index, hash);

  __builtin_prefetch(&s->cell[TrsRowIndexHome(hash, s->n)], 1);
}

int64_t TrsRowIndexBytes(const TrsRowIndex *index)
{
  int64_t bytes = 0;

  for (int64_t s = 0; s < index->n_segments; s++) bytes += index->segment[s].n * (int64_t)sizeof(uint32_t);
  return bytes;
}
