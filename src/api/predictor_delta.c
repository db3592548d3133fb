/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Deltas change the weights of a predictor while other threads predict.

  A delta is read and checked completely before any weight changes. Then it is written to the side
  that no call uses, calls use this side from then on, and when the last call on the other side has
  ended, the delta is written there, too. So each call uses the weights before or after the delta.
  The first delta creates the second side. Mapped rows are mapped a second time, and only the pages
  that a delta changes become memory of the process.
*/
#include "api/predictor_impl.h"
#include "core/buffer.h"
#include "embed/directory.h"
#include "io/preflight.h"
#include "quant/quantised_tables.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A delta that was read. */
typedef struct {
  const char *path;
  TrsDeltaInfo info;
  TrsPredictWorkspace *layers; /* with the delta's weights of the layers; NULL if it has none */
  TrsQuantReader reader;       /* with the changed rows */
  TrsDeltaTable *table;        /* [tables.n] */
} TrsPredictDelta;

/* --- reading --- */

/* Check that deltas can be applied to the tables. */
static PetscErrorCode check_tables(const struct TrshardPredictorImpl *p, const char *path)
{
  const TrsEmbeddingShards *shards = &p->side[p->current].shards;

  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    const TrsDirectory *d = TrsDirectoryOf(shards, i);
    const int t = shards->shard[i].table;

    PetscCheck(!p->stored[t].is_quantised, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s cannot be applied: table \"%s\" is quantised in the model's file. Open the training's "
               "checkpoint, with -tables_data_type",
               path, p->tables.table[t].name);
    PetscCheck(
        !d || !d->moved, PETSC_COMM_SELF, TRS_ERR_DATA,
        "%s cannot be applied: the ids of table \"%s\" have other rows than in the model's file, because "
        "an option changes its buckets",
        path, p->tables.table[t].name);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that the changed rows and their ids belong to the buckets of a table. */
static PetscErrorCode check_ids(const TrsDirectory *d, const TrsDeltaTable *t, const char *path)
{
  PetscFunctionBegin;
  for (int64_t b = 0; t->used && b < d->n; b++)
    PetscCheck(t->used[b] >= d->ops->in_use(d->bucket[b]), PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /embedding/%s/delta/used: bucket %" PRId64 " has %" PRId64
               " rows, and the model has %" PRId64,
               path, t->table, b, t->used[b], d->ops->in_use(d->bucket[b]));
  for (int64_t i = 0; i < t->n; i++) {
    const int64_t b = t->row[i] / d->rule.rows, r = t->row[i] % d->rule.rows;
    const int64_t in_use = t->used ? t->used[b] : d->ops->in_use(d->bucket[b]);

    PetscCheck(r < in_use, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /embedding/%s/delta/rows: row %" PRId64 " is row %" PRId64
               " of a bucket that has %" PRId64,
               path, t->table, t->row[i], r, in_use);
    PetscCheck(
        !t->held[i] || (r != d->ops->unknown_row(d->rule.rows) && TrsIdBucket(&d->rule, t->id[i]) == b),
        PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /embedding/%s/delta/ids: id %" PRId64 " cannot have row %" PRId64,
        path, t->table, t->id[i], t->row[i]);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void describe_tables(const struct TrshardPredictorImpl *p, TrsDeltaTable *table)
{
  for (int t = 0; t < p->tables.n; t++) {
    const TrsTableConfig *config = &p->tables.table[t];

    table[t] = (TrsDeltaTable){.table = config->name,
                               .rows = config->num_embeddings,
                               .buckets = TrsTableKeepsIds(config) ? TrsTableBuckets(config) : 0,
                               .grows = (PetscBool)(config->id_map.kind == TRS_ID_MAP_DYNAMIC)};
  }
}

/* Read and check a delta. The caller frees it, also after an error. */
static PetscErrorCode read_delta(TrshardPredictor p, TrsPredictDelta *delta)
{
  const TrsEmbeddingShards *shards = &p->side[p->current].shards;
  TrsState state = {.unverified = (PetscBool)!p->checks};
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)p->tables.n, &delta->table));
  describe_tables(p, delta->table);
  if (!delta->info.forgets) { /* a delta that removes ids has no layers */
    PetscCall(TrsPredictorCreateLayers(p, &delta->layers));
    ierr = TrsDlrmAddState(delta->layers->dlrm, (PetscBool)(p->decay > 0.0), &state);
  }
  if (!ierr) ierr = TrsQuantReaderCreate(delta->path, shards, p->stored, &delta->reader);
  if (!ierr) ierr = TrsQuantReaderAddDelta(delta->reader, &state);
  if (!ierr) ierr = TrsDeltaRead(delta->path, &state, p->tables.n, delta->table);
  PetscCall(TrsStateFree(&state));
  PetscCall(ierr);
  for (int i = 0; i < shards->n; i++)
    if (TrsDirectoryOf(shards, i))
      PetscCall(check_ids(TrsDirectoryOf(shards, i), &delta->table[shards->shard[i].table], delta->path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_delta(TrshardPredictor p, TrsPredictDelta *delta)
{
  PetscFunctionBegin;
  PetscCall(TrsPredictorDestroyWorkspace(p, delta->layers));
  PetscCall(TrsQuantReaderDestroy(&delta->reader));
  for (int t = 0; delta->table && t < p->tables.n; t++) PetscCall(TrsDeltaTableFree(&delta->table[t]));
  PetscCall(PetscFree(delta->table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- applying --- */

/* Create the second side, as a copy of the first one with as many workspaces. */
static PetscErrorCode create_side(TrshardPredictor p, TrsPredictSide *from, TrsPredictSide *side)
{
  float *values, *of_model;
  int64_t n_values;
  int n;

  PetscFunctionBegin;
  (void)pthread_mutex_lock(&p->lock);
  n = from->n; /* calls may create more meanwhile, and then also for this side */
  (void)pthread_mutex_unlock(&p->lock);
  PetscCall(TrsEmbeddingShardsCreateQuantised(&p->device, &p->tables, &p->plan, 0, &side->shards));
  PetscCall(TrsEmbeddingShardsCopy(&from->shards, p->file, &side->shards));
  PetscCall(TrsPredictorCreateLayers(p, &side->model));
  PetscCall(TrsDlrmParameters(from->model->dlrm, NULL, NULL, &of_model, NULL, NULL));
  PetscCall(TrsDlrmParameters(side->model->dlrm, NULL, NULL, &values, NULL, &n_values));
  PetscCall(PetscArraycpy(values, of_model, (size_t)n_values));
  PetscCall(TrsPredictorCreateVectors(p, side, side->model));
  side->idle = side->model;
  side->n = 1;
  side->step = from->step;
  while (side->n < n) {
    TrsPredictWorkspace *w = NULL;

    PetscCall(TrsPredictorCreateWorkspace(p, side, &w));
    w->next = side->idle;
    side->idle = w;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Wait until no call uses a side that is not the current one. */
static void wait_unused(TrshardPredictor p, const TrsPredictSide *side)
{
  (void)pthread_mutex_lock(&p->lock);
  while (side->n_users > 0) (void)pthread_cond_wait(&p->unused, &p->lock);
  (void)pthread_mutex_unlock(&p->lock);
}

/* Write a delta to a side that no call uses. */
static PetscErrorCode write_side(const TrsPredictDelta *delta, int64_t step, TrsPredictSide *side)
{
  float *values, *of_delta;
  int64_t n_values;

  PetscFunctionBegin;
  PetscCall(TrsEmbeddingShardsUnseal(&side->shards));
  TrsQuantReaderWrite(delta->reader, &side->shards);
  for (int i = 0; i < side->shards.n; i++) {
    const TrsDeltaTable *t = &delta->table[side->shards.shard[i].table];
    const TrsDirectoryChange change = {
        .n = t->n, .row = t->row, .id = t->id, .held = t->held, .batches = PetscMax(step - side->step, 0)};

    if (t->buckets) PetscCall(TrsDirectoryChangeRows(TrsDirectoryOf(&side->shards, i), &change, t->used));
  }
  for (TrsPredictWorkspace *w = delta->layers ? side->idle : NULL; w; w = w->next) {
    PetscCall(TrsDlrmParameters(delta->layers->dlrm, NULL, NULL, &of_delta, NULL, NULL));
    PetscCall(TrsDlrmParameters(w->dlrm, NULL, NULL, &values, NULL, &n_values));
    PetscCall(PetscArraycpy(values, of_delta, (size_t)n_values));
  }
  side->step = step;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a delta to both sides. The side that calls use stays whole if this fails. */
static PetscErrorCode write_sides(TrshardPredictor p, const TrsPredictDelta *delta,
                                  const TrsDeltaPlace *place)
{
  TrsPredictSide *used = &p->side[p->current], *other = &p->side[1 - p->current];
  const int64_t step = delta->info.forgets ? used->step : delta->info.step;
  PetscErrorCode ierr = other->model ? PETSC_SUCCESS : create_side(p, used, other);

  PetscFunctionBegin;
  if (ierr) PetscCall(TrsPredictorDestroySide(p, other));
  PetscCall(ierr);
  PetscCheck(TrsPredictorCheckFile(p) == TRSHARD_SUCCESS, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s cannot be applied: the model's file has become shorter since it was opened", delta->path);
  p->is_broken = PETSC_TRUE;
  wait_unused(p, other);
  PetscCall(write_side(delta, step, other));
  (void)pthread_mutex_lock(&p->lock);
  p->current = 1 - p->current;
  (void)pthread_mutex_unlock(&p->lock);
  p->place = *place;
  p->own_id[0] = '\0';
  wait_unused(p, used);
  PetscCall(write_side(delta, step, used));
  p->is_broken = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that the path still leads to the file that `hold` keeps open. Then every open of the path
  since the hold began was of this file.
*/
static PetscErrorCode check_same_file(const char *path, int hold)
{
  struct stat now, held;

  PetscFunctionBegin;
  PetscCheck(hold >= 0 && fstat(hold, &held) == 0 && stat(path, &now) == 0 && now.st_dev == held.st_dev &&
                 now.st_ino == held.st_ino,
             PETSC_COMM_SELF, TRS_ERR_DATA, "%s was replaced while it was read", path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply(TrshardPredictor p, const char *path, int hold, TrsDeltaFit *fit)
{
  TrsPredictDelta delta = {.path = path};
  TrsDeltaPlace place = p->place;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsApiGiven(path, "TrshardPredictorApplyDelta", "delta"));
  PetscCheck(p->process == getpid(), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TrshardPredictorApplyDelta: the predictor was opened in another process, before a fork");
  TrsPreflightSkip((PetscBool)!p->checks);
  PetscCall(TrsDeltaReadInfo(path, &delta.info));
  PetscCall(TrsDeltaFollow(path, &delta.info, p->own_id, p->side[p->current].step, &place, fit));
  PetscCheck(
      !p->is_broken, PETSC_COMM_SELF, TRS_ERR_MEMORY,
      "%s cannot be applied: there was too little memory for the delta before it. Open a newer checkpoint",
      path);
  PetscCall(check_tables(p, path));
  ierr = read_delta(p, &delta);
  if (!ierr) ierr = check_same_file(path, hold);
  if (!ierr) ierr = write_sides(p, &delta, &place);
  PetscCall(free_delta(p, &delta));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardPredictorApplyDelta(TrshardPredictor p, const char *delta, TrshardDeltaFit *fit)
{
  TrsDeltaFit found = TRS_DELTA_FITS;
  int status, hold;

  hold = delta ? TrsCheckpointHold(delta) : -1;
  status = TRS_API_CALL(TrsApiAlive(p, __func__, "predictor") ? TRS_ERR_OPTION
                                                              : apply(p, delta, hold, &found));
  TrsCheckpointRelease(&hold);
  TrsPreflightSkip(PETSC_FALSE);
  if (fit) *fit = (TrshardDeltaFit)found;
  return status;
}

_Static_assert((int)TRSHARD_DELTA_FITS == (int)TRS_DELTA_FITS &&
                   (int)TRSHARD_DELTA_EARLY == (int)TRS_DELTA_EARLY &&
                   (int)TRSHARD_DELTA_LATE == (int)TRS_DELTA_LATE &&
                   (int)TRSHARD_DELTA_FOREIGN == (int)TRS_DELTA_FOREIGN,
               "the library's kinds of fit are those of the checkpoints");
