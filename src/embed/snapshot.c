/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/snapshot.h"

#include "compute/changed_rows.h"
#include "core/buffer.h"
#include "core/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

enum {
  TRS_SNAPSHOT_ROWS = 1 + TRS_OPTIMIZER_STATES, /* the weights and the states of a shard */
  TRS_CELL_BYTES = 128,
  TRS_LOCKED_BYTES = 256 << 10 /* the writer copies so many bytes of rows at a time */
};

/*
  A piece of a saved row. A row needs one or more cells of the buffer. The fields after `next` are
  of the row's first cell.
*/
typedef struct {
  int32_t next;     /* the row's next cell, or the next free cell; -1: none */
  int32_t next_row; /* the next row with the same hash; -1: none */
  int32_t shard;
  uint32_t saved; /* a bit for each of the weights and states that the cells have */
  int64_t row;
  char data[TRS_CELL_BYTES - 24];
} TrsSnapshotCell;
_Static_assert(sizeof(TrsSnapshotCell) == TRS_CELL_BYTES, "a cell has no gaps");
enum { TRS_CELL_DATA = sizeof(((TrsSnapshotCell *)NULL)->data) };

/* Rows [begin, end) of a shard, which this rank writes to the file. */
typedef struct {
  int64_t begin, end;
} TrsSnapshotRange;

/* The weights of a shard, or a state. */
typedef struct {
  const char *base;
  int64_t stride, bytes; /* bytes from row to row, and of a row */
  int64_t n_ranges, capacity;
  TrsSnapshotRange *range; /* [n_ranges] ascending */
  int64_t next;            /* the writer has all rows before this one */
} TrsSnapshotRows;

typedef struct {
  TrsRowsToSave to_save; /* must be the first field: save_rows() finds the shard by it */
  TrsSnapshot snapshot;
  int shard;
  uint64_t *bits; /* memory of to_save.bits */
  TrsSnapshotRows rows[TRS_SNAPSHOT_ROWS];
} TrsSnapshotShard;

/* Rows of a part that were copied to the snapshot's memory, at this offset. */
typedef struct {
  int part;
  int64_t first, n, at;
} TrsSnapshotCopy;

/* A tensor of the state: the rows of shards, or a copied tensor. */
typedef struct {
  TrsSnapshot snapshot;
  TrsStateTensor from; /* its parts belong to the snapshot's state */
  TrsStateGive give;   /* of the original tensor; NULL: the parts have memory */
  int rows;            /* index in TrsSnapshotShard.rows; -1: the tensor is copied */
  int *shard;          /* [n_parts] the shard of each part */
  int64_t *first;      /* [n_parts] the shard's row that is the part's first one */
  int64_t n_copies, capacity, next;
  TrsSnapshotCopy *copy; /* [n_copies] in the order in which the writer takes them */
} TrsSnapshotTensor;

struct TrsSnapshotImpl {
  TrsEmbeddingShards *shards;
  TrsSnapshotShard *shard; /* [shards->n] */
  pthread_mutex_t lock;
  pthread_cond_t room; /* cells were freed, or rows were written */
  int64_t n_cells, n_made, n_used;
  TrsSnapshotCell *cell; /* [n_cells]; the first n_made were used at some time */
  int32_t free;          /* the first cell of the list of free ones; -1: none */
  int64_t n_heads;
  int32_t *head; /* [n_heads] the first row with each hash; -1: none */
  int n_waiting;
  PetscBool abandoned;
  TrsSnapshotCounts counts;
  TrsState state;
  int n_tensors;
  TrsSnapshotTensor *tensor; /* [n_tensors] */
  TrsBuffer copies;
  int64_t copied_bytes;
};

static void save_rows(TrsRowsToSave *to_save, int64_t n, const int64_t *row);

/* --- life --- */

/* Cells that a row of a shard needs at most. */
static int64_t cells_of(int64_t bytes)
{
  return (bytes + TRS_CELL_DATA - 1) / TRS_CELL_DATA;
}

static PetscErrorCode create_shard(TrsSnapshot c, int i, int64_t *most_cells)
{
  TrsEmbeddingShard *shard = &c->shards->shard[i];
  const TrsEmbeddingStates states = TrsEmbeddingShardsStates(c->shards, shard->table);
  const TrsTbeTable *tbe = &shard->tbe;
  const int64_t element_bytes = TrsDTypeBytes(tbe->dtype);
  TrsSnapshotShard *s = &c->shard[i];
  int64_t bytes = 0;

  PetscFunctionBegin;
  s->to_save.save = save_rows;
  s->snapshot = c;
  s->shard = i;
  PetscCall(TrsAlloc(TrsChangedWords(tbe->rows), sizeof(*s->bits), &s->bits));
  s->rows[0] = (TrsSnapshotRows){.base = (const char *)tbe->weight,
                                 .stride = tbe->stride * element_bytes,
                                 .bytes = tbe->dim * element_bytes};
  for (int k = 0; k < states.n; k++) {
    const int64_t width = (states.rowwise[k] ? 1 : tbe->dim) * (int64_t)sizeof(float);

    s->rows[1 + k] = (TrsSnapshotRows){.base = (const char *)tbe->state[k], .stride = width, .bytes = width};
  }
  for (int k = 0; k < TRS_SNAPSHOT_ROWS; k++) bytes += s->rows[k].bytes;
  *most_cells = PetscMax(*most_cells, cells_of(bytes));
  shard->tbe.to_save = &s->to_save;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSnapshotCreate(TrsEmbeddingShards *shards, int64_t buffer_bytes, TrsSnapshot *snapshot)
{
  TrsMemoryKind before;
  int64_t most_cells = 1;
  TrsSnapshot c;

  PetscFunctionBegin;
  PetscCall(PetscNew(&c));
  c->shards = shards;
  PetscCheck(pthread_mutex_init(&c->lock, NULL) == 0 && pthread_cond_init(&c->room, NULL) == 0,
             PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: no lock for snapshots");
  before = TrsMemoryFor(TRS_MEMORY_TABLES);
  PetscCall(PetscCalloc1((size_t)PetscMax(shards->n, 1), &c->shard));
  for (int i = 0; i < shards->n; i++) PetscCall(create_shard(c, i, &most_cells));
  (void)TrsMemoryFor(TRS_MEMORY_SCRATCH);
  c->n_cells = PetscMin(PetscMax(buffer_bytes / TRS_CELL_BYTES, most_cells), INT32_MAX);
  for (c->n_heads = 64; c->n_heads < c->n_cells / 2;) c->n_heads *= 2;
  PetscCall(TrsAlloc(c->n_cells, sizeof(*c->cell), &c->cell));
  PetscCall(TrsAlloc(c->n_heads, sizeof(*c->head), &c->head));
  (void)TrsMemoryFor(before);
  *snapshot = c;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSnapshotDestroy(TrsSnapshot *snapshot)
{
  TrsSnapshot c = *snapshot;

  PetscFunctionBegin;
  if (!c) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSnapshotRelease(c, NULL));
  for (int i = 0; i < c->shards->n; i++) {
    for (int k = 0; k < TRS_SNAPSHOT_ROWS; k++) PetscCall(PetscFree(c->shard[i].rows[k].range));
    PetscCall(TrsFree(&c->shard[i].bits));
    c->shards->shard[i].tbe.to_save = NULL;
  }
  PetscCall(PetscFree(c->shard));
  PetscCall(TrsFree(&c->cell));
  PetscCall(TrsFree(&c->head));
  PetscCall(TrsBufferFree(&c->copies));
  (void)pthread_cond_destroy(&c->room);
  (void)pthread_mutex_destroy(&c->lock);
  PetscCall(PetscFree(*snapshot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the buffer of saved rows; the caller must hold the lock --- */

static int32_t *head_of(const struct TrsSnapshotImpl *c, int shard, int64_t row)
{
  const uint64_t key = ((uint64_t)row + ((uint64_t)shard << 48)) * UINT64_C(0x9E3779B97F4A7C15);

  return &c->head[(key ^ key >> 32) & (uint64_t)(c->n_heads - 1)];
}

/*
  Find the place that has the number of a saved row's first cell. The number is -1 if the row was
  not saved.
*/
static int32_t *find_row(const struct TrsSnapshotImpl *c, int shard, int64_t row)
{
  int32_t *at = head_of(c, shard, row);

  while (*at >= 0 && (c->cell[*at].row != row || c->cell[*at].shard != shard)) at = &c->cell[*at].next_row;
  return at;
}

static int32_t take_cell(TrsSnapshot c)
{
  const int32_t i = c->free;

  c->n_used++;
  if (i < 0) return (int32_t)c->n_made++;
  c->free = c->cell[i].next;
  return i;
}

/* Free the cells of the row whose first cell has its number at this place. */
static void free_row(TrsSnapshot c, int32_t *at)
{
  int32_t i = *at, next;

  *at = c->cell[i].next_row;
  for (; i >= 0; i = next) {
    next = c->cell[i].next;
    c->cell[i].next = c->free;
    c->free = i;
    c->n_used--;
  }
}

/* Copy bytes of a row to its cells or back, after `skip` bytes of the row. */
static void copy_cells(const struct TrsSnapshotImpl *c, int32_t i, int64_t skip, int64_t bytes, char *out,
                       const char *in)
{
  for (; skip >= TRS_CELL_DATA; skip -= TRS_CELL_DATA) i = c->cell[i].next;
  for (int64_t done = 0; done < bytes; i = c->cell[i].next, skip = 0) {
    const int64_t n = PetscMin(TRS_CELL_DATA - skip, bytes - done);

    if (in)
      memcpy(c->cell[i].data + skip, in + done, (size_t)n);
    else
      memcpy(out + done, c->cell[i].data + skip, (size_t)n);
    done += n;
    if (done == bytes) break;
  }
}

/* --- which rows the file still needs; the caller must hold the lock --- */

/* True if the file still needs this row of the weights or a state. */
static PetscBool is_needed(const TrsSnapshotRows *rows, int64_t row)
{
  int64_t low = 0, high = rows->n_ranges;

  if (row < rows->next) return PETSC_FALSE;
  while (low < high) { /* the first range that ends after the row */
    const int64_t middle = (low + high) / 2;

    if (rows->range[middle].end <= row)
      low = middle + 1;
    else
      high = middle;
  }
  return (PetscBool)(low < rows->n_ranges && rows->range[low].begin <= row);
}

/* Return a bit for each of the weights and states of which the file still needs this row. */
static uint32_t what_is_needed(const TrsSnapshotShard *s, int64_t row, int64_t *bytes)
{
  uint32_t needed = 0;

  *bytes = 0;
  for (int k = 0; k < TRS_SNAPSHOT_ROWS; k++) {
    if (!is_needed(&s->rows[k], row)) continue;
    needed |= 1u << k;
    *bytes += s->rows[k].bytes;
  }
  return needed;
}

static PetscBool is_written(const TrsSnapshotShard *s)
{
  for (int k = 0; k < TRS_SNAPSHOT_ROWS; k++)
    if (s->rows[k].n_ranges && s->rows[k].next < s->rows[k].range[s->rows[k].n_ranges - 1].end)
      return PETSC_FALSE;
  return PETSC_TRUE;
}

/* From now on, rows of the shard need not be saved. */
static void stop_saving(TrsSnapshotShard *s)
{
  __atomic_store_n(&s->to_save.bits, NULL, __ATOMIC_RELEASE);
}

/* --- saving rows, before they change --- */

/* Wait for the writer. */
static void wait_for_room(TrsSnapshot c)
{
  const double start_s = TrsClock();

  c->counts.n_waits++;
  c->n_waiting++;
  (void)pthread_cond_wait(&c->room, &c->lock);
  c->n_waiting--;
  c->counts.wait_s += TrsClock() - start_s;
}

/* Save what the file still needs of a row. */
static void save_row(TrsSnapshotShard *s, int64_t row)
{
  TrsSnapshot c = s->snapshot;
  int64_t bytes, skip = 0;
  uint32_t needed = what_is_needed(s, row, &bytes);
  int32_t *head, first, last;

  while (needed && cells_of(bytes) > c->n_cells - c->n_used && !c->abandoned) {
    wait_for_room(c);
    needed = what_is_needed(s, row, &bytes);
  }
  if (!needed || c->abandoned) return;
  first = last = take_cell(c);
  for (int64_t n = cells_of(bytes); n > 1; n--) last = c->cell[last].next = take_cell(c);
  c->cell[last].next = -1;
  head = head_of(c, s->shard, row);
  c->cell[first].next_row = *head;
  c->cell[first].shard = s->shard;
  c->cell[first].row = row;
  c->cell[first].saved = needed;
  *head = first;
  for (int k = 0; k < TRS_SNAPSHOT_ROWS; k++) {
    const TrsSnapshotRows *rows = &s->rows[k];

    if (!(needed >> k & 1)) continue;
    copy_cells(c, first, skip, rows->bytes, NULL, rows->base + row * rows->stride);
    skip += rows->bytes;
  }
  c->counts.saved_rows++;
  c->counts.saved_bytes += bytes;
  c->counts.most_bytes = PetscMax(c->counts.most_bytes, c->n_used * TRS_CELL_BYTES);
}

/* TrsRowsToSave.save */
static void save_rows(TrsRowsToSave *to_save, int64_t n, const int64_t *row)
{
  TrsSnapshotShard *s = (TrsSnapshotShard *)(void *)to_save;
  TrsSnapshot c = s->snapshot;

  (void)pthread_mutex_lock(&c->lock);
  for (int64_t i = 0; i < n; i++) {
    uint64_t *word = &s->bits[row[i] / TRS_CHANGED_BITS];
    const uint64_t bit = UINT64_C(1) << row[i] % TRS_CHANGED_BITS;

    if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) continue;
    save_row(s, row[i]);
    (void)__atomic_fetch_and(word, ~bit, __ATOMIC_RELEASE);
  }
  (void)pthread_mutex_unlock(&c->lock);
}

/* --- the tensors of the state --- */

/* Copy a row that was saved to `to`, and free its cells if the file then has all of it. */
static PetscErrorCode give_saved(TrsSnapshotShard *s, int k, int64_t row, char *to)
{
  TrsSnapshot c = s->snapshot;
  int32_t *at = find_row(c, s->shard, row);
  int64_t skip = 0;

  PetscFunctionBegin;
  PetscCheck(*at >= 0 && c->cell[*at].saved >> k & 1, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "row %" PRId64 " of shard %d has changed and was not saved", row, s->shard);
  /* The cells begin with the weights or states that were saved before this one. */
  for (int j = 0; j < k; j++)
    if (c->cell[*at].saved >> j & 1) skip += s->rows[j].bytes;
  copy_cells(c, *at, skip, s->rows[k].bytes, to, NULL);
  if (!(c->cell[*at].saved >> (k + 1))) free_row(c, at);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy rows [row, end) of a shard to `to`. The caller must hold the lock. */
static PetscErrorCode give_locked(TrsSnapshotShard *s, int k, int64_t row, int64_t end, char *to)
{
  TrsSnapshotRows *rows = &s->rows[k];

  PetscFunctionBegin;
  for (; row < end; row++, to += rows->bytes) {
    if (TrsRowMustBeSaved(s->bits, row))
      memcpy(to, rows->base + row * rows->stride, (size_t)rows->bytes);
    else
      PetscCall(give_saved(s, k, row, to));
  }
  rows->next = end;
  if (is_written(s)) stop_saving(s);
  if (s->snapshot->n_waiting) (void)pthread_cond_broadcast(&s->snapshot->room);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateGive for the rows of shards. */
static PetscErrorCode give_rows(void *context, int part, int64_t first, int64_t n, void *to)
{
  const TrsSnapshotTensor *tensor = (const TrsSnapshotTensor *)context;
  TrsSnapshot c = tensor->snapshot;
  TrsSnapshotShard *s = &c->shard[tensor->shard[part]];
  const TrsSnapshotRows *rows = &s->rows[tensor->rows];
  const int64_t at_once = PetscMax(TRS_LOCKED_BYTES / rows->bytes, 1);

  PetscFunctionBegin;
  for (int64_t r = 0; r < n; r += at_once) {
    const int64_t row = tensor->first[part] + first + r;
    PetscErrorCode ierr;

    (void)pthread_mutex_lock(&c->lock);
    ierr = give_locked(s, tensor->rows, row, row + PetscMin(at_once, n - r), (char *)to + r * rows->bytes);
    (void)pthread_mutex_unlock(&c->lock);
    PetscCall(ierr);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateExpect for the rows of shards: from now on, they must be saved before they change. */
static PetscErrorCode expect_rows(void *context, int part, int64_t first, int64_t n)
{
  const TrsSnapshotTensor *tensor = (const TrsSnapshotTensor *)context;
  TrsSnapshotShard *s = &tensor->snapshot->shard[tensor->shard[part]];
  TrsSnapshotRows *rows = &s->rows[tensor->rows];
  const int64_t begin = tensor->first[part] + first, end = begin + n;
  TrsSnapshotRange *last = rows->n_ranges ? &rows->range[rows->n_ranges - 1] : NULL;

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!last || last->end <= begin, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%s: row %" PRId64 " of a shard is not after row %" PRId64, tensor->from.path, begin, last->end);
  if (last && last->end == begin) {
    last->end = end;
  } else {
    if (rows->n_ranges == rows->capacity) {
      rows->capacity = rows->capacity ? 2 * rows->capacity : 4;
      PetscCall(PetscRealloc((size_t)rows->capacity * sizeof(*rows->range), &rows->range));
    }
    rows->range[rows->n_ranges++] = (TrsSnapshotRange){begin, end};
  }
  for (int64_t r = begin; r < end;) {
    const int64_t bit = r % TRS_CHANGED_BITS, k = PetscMin(TRS_CHANGED_BITS - bit, end - r);

    s->bits[r / TRS_CHANGED_BITS] |= (k == TRS_CHANGED_BITS ? ~UINT64_C(0) : (UINT64_C(1) << k) - 1) << bit;
    r += k;
  }
  __atomic_store_n(&s->to_save.bits, s->bits, __ATOMIC_RELEASE);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateExpect for all other tensors: copy the rows. */
static PetscErrorCode expect_copy(void *context, int part, int64_t first, int64_t n)
{
  TrsSnapshotTensor *tensor = (TrsSnapshotTensor *)context;
  TrsSnapshot c = tensor->snapshot;
  const TrsStatePart *from = &tensor->from.part[part];
  const int64_t element_bytes = TrsDTypeBytes(tensor->from.dtype), row_bytes = from->cols * element_bytes;
  char *to;

  PetscFunctionBegin;
  if (tensor->n_copies == tensor->capacity) {
    tensor->capacity = tensor->capacity ? 2 * tensor->capacity : 4;
    PetscCall(PetscRealloc((size_t)tensor->capacity * sizeof(*tensor->copy), &tensor->copy));
  }
  tensor->copy[tensor->n_copies++] = (TrsSnapshotCopy){part, first, n, c->copied_bytes};
  PetscCall(TrsBufferReserve(&c->copies, c->copied_bytes + n * row_bytes, PETSC_TRUE));
  to = (char *)c->copies.data + c->copied_bytes;
  c->copied_bytes += n * row_bytes;
  if (tensor->give) {
    PetscCall(tensor->give(tensor->from.give_context, part, first, n, to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int64_t r = 0; r < n; r++)
    memcpy(to + r * row_bytes, (const char *)from->data + (first + r) * from->stride * element_bytes,
           (size_t)row_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateGive for copied tensors. */
static PetscErrorCode give_copy(void *context, int part, int64_t first, int64_t n, void *to)
{
  TrsSnapshotTensor *tensor = (TrsSnapshotTensor *)context;
  const int64_t row_bytes = tensor->from.part[part].cols * TrsDTypeBytes(tensor->from.dtype);
  const TrsSnapshotCopy *copy;

  PetscFunctionBegin;
  while (tensor->next < tensor->n_copies &&
         (tensor->copy[tensor->next].part != part ||
          first >= tensor->copy[tensor->next].first + tensor->copy[tensor->next].n))
    tensor->next++;
  copy = &tensor->copy[tensor->next];
  PetscCheck(tensor->next < tensor->n_copies && first >= copy->first && first + n <= copy->first + copy->n,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s: rows from %" PRId64 " of part %d were not copied",
             tensor->from.path, first, part);
  memcpy(to, (const char *)tensor->snapshot->copies.data + copy->at + (first - copy->first) * row_bytes,
         (size_t)(n * row_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the shard, and its weights or state, whose memory a part has. *k is -1 if there is none. */
static void find_memory(const struct TrsSnapshotImpl *c, const TrsStatePart *part, int *i, int *k,
                        int64_t *row)
{
  const char *data = (const char *)part->data;

  for (*i = 0; *i < c->shards->n; ++*i)
    for (*k = 0; *k < TRS_SNAPSHOT_ROWS; ++*k) {
      const TrsSnapshotRows *rows = &c->shard[*i].rows[*k];

      if (!rows->base || data < rows->base) continue;
      *row = (data - rows->base) / rows->stride;
      if (*row < c->shards->shard[*i].tbe.rows) return;
    }
  *k = -1;
}

/* Find the memory of a tensor's parts, if they are rows of shards. Otherwise tensor->rows is -1. */
static PetscErrorCode find_parts(TrsSnapshot c, TrsSnapshotTensor *tensor)
{
  const TrsStateTensor *from = &tensor->from;

  PetscFunctionBegin;
  tensor->rows = -1;
  if (!from->rows_of || from->give) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscCalloc2((size_t)from->n_parts, &tensor->shard, (size_t)from->n_parts, &tensor->first));
  for (int p = 0; p < from->n_parts; p++) {
    int k = -1;

    if (from->part[p].rows == 0 || from->part[p].copy) continue;
    find_memory(c, &from->part[p], &tensor->shard[p], &k, &tensor->first[p]);
    PetscCheck(k >= 0 && (tensor->rows < 0 || tensor->rows == k), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "%s: part %d is in no shard's memory", from->path, p);
    tensor->rows = k;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSnapshotTake(TrsSnapshot snapshot, const TrsState *from, const TrsState **state)
{
  PetscFunctionBegin;
  snapshot->n_made = snapshot->n_used = snapshot->copied_bytes = 0;
  snapshot->free = -1;
  snapshot->abandoned = PETSC_FALSE;
  snapshot->counts = (TrsSnapshotCounts){0};
  memset(snapshot->head, 0xff, (size_t)snapshot->n_heads * sizeof(*snapshot->head));
  for (int i = 0; i < snapshot->shards->n; i++) {
    const int64_t words = TrsChangedWords(snapshot->shards->shard[i].tbe.rows);

    if (words) memset(snapshot->shard[i].bits, 0, (size_t)words * sizeof(*snapshot->shard[i].bits));
    for (int k = 0; k < TRS_SNAPSHOT_ROWS; k++)
      snapshot->shard[i].rows[k].n_ranges = snapshot->shard[i].rows[k].next = 0;
  }
  PetscCall(PetscCalloc1((size_t)PetscMax(from->n, 1), &snapshot->tensor));
  for (int i = 0; i < from->n; i++) {
    TrsSnapshotTensor *own = &snapshot->tensor[snapshot->n_tensors];
    TrsStateTensor *tensor;

    if (from->tensor[i].count && from->tensor[i].rows == 0) continue; /* it is not written */
    PetscCall(TrsStateCopy(&from->tensor[i], &snapshot->state, &tensor));
    *own = (TrsSnapshotTensor){.snapshot = snapshot, .from = from->tensor[i], .give = from->tensor[i].give};
    own->from.path = tensor->path;
    own->from.part = tensor->part;
    PetscCall(find_parts(snapshot, own));
    tensor->count = NULL; /* its rows have their places */
    tensor->give = own->rows >= 0 ? give_rows : give_copy;
    tensor->expect = own->rows >= 0 ? expect_rows : expect_copy;
    tensor->give_context = own;
    snapshot->n_tensors++;
  }
  *state = &snapshot->state;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsSnapshotAbandon(TrsSnapshot snapshot)
{
  if (!snapshot) return;
  (void)pthread_mutex_lock(&snapshot->lock);
  snapshot->abandoned = PETSC_TRUE;
  for (int i = 0; i < snapshot->shards->n; i++) stop_saving(&snapshot->shard[i]);
  (void)pthread_cond_broadcast(&snapshot->room);
  (void)pthread_mutex_unlock(&snapshot->lock);
}

PetscErrorCode TrsSnapshotRelease(TrsSnapshot snapshot, TrsSnapshotCounts *counts)
{
  PetscFunctionBegin;
  TrsSnapshotAbandon(snapshot);
  snapshot->counts.copied_bytes = snapshot->copied_bytes;
  if (counts) *counts = snapshot->counts;
  for (int t = 0; t < snapshot->n_tensors; t++) {
    PetscCall(PetscFree2(snapshot->tensor[t].shard, snapshot->tensor[t].first));
    PetscCall(PetscFree(snapshot->tensor[t].copy));
  }
  snapshot->n_tensors = 0;
  PetscCall(PetscFree(snapshot->tensor));
  PetscCall(TrsStateFree(&snapshot->state));
  snapshot->state = (TrsState){.n = 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
