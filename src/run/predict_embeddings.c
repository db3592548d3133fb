/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/predict_embeddings.h"

#include "core/names.h"
#include "train/pair_loss.h"

#include <stdio.h>
#include <string.h>

static const char option[] = "-predict_embeddings";

static const TrsOptionSpec specs[] = {
    {"-predict_embeddings", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "features whose pooled embeddings -task predict writes for every sample: /embeddings/<feature> in "
     "-output, in the dataset's order. Not for sequence tables (pooling none)"},
    {"-predict_towers", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "towers of -interaction two_tower whose outputs -task predict writes for every sample, query and "
     "candidate: /towers/<tower> in -output, in the dataset's order"},
};
const TrsOptionGroup trs_predict_options = TRS_OPTION_GROUP("Prediction", specs);

static const char *const sides[] = {"query", "candidate"};

/* Read -predict_towers. */
static PetscErrorCode read_towers(TrsOptions options, const char *output, PetscBool *tower)
{
  const char *const *names = NULL;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, "-predict_towers", &n, &names, NULL));
  if (n && !output)
    PetscCall(TrsOptionError(options, "-predict_towers", "needs -output, the file to write them to"));
  for (int i = 0; i < n; i++) {
    int s = 0;

    while (s < TRS_N_SIDES && strcmp(sides[s], names[i]) != 0) s++;
    if (s == TRS_N_SIDES)
      PetscCall(TrsOptionError(options, "-predict_towers",
                               "there is no tower \"%.100s\", expected query or candidate", names[i]));
    tower[s] = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find a feature's table, and the feature's index among all features. NULL if no table has the
  feature.
*/
static const TrsTableConfig *find_table(const TrsTableConfigs *tables, const char *feature, int *place)
{
  *place = 0;
  for (int t = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features; k++, ++*place)
      if (strcmp(tables->table[t].features[k], feature) == 0) return &tables->table[t];
  return NULL;
}

/*
  Raise an error for an unknown feature. The message names the model's feature with the closest
  name.
*/
static PetscErrorCode refuse_feature(const TrsSession *s, const char *wanted)
{
  const char **names;
  int n = 0;

  PetscFunctionBegin;
  for (int t = 0; t < s->tables.n; t++) n += s->tables.table[t].n_features;
  PetscCall(PetscMalloc1((size_t)n, &names));
  for (int t = 0, f = 0; t < s->tables.n; t++)
    for (int k = 0; k < s->tables.table[t].n_features; k++) names[f++] = s->tables.table[t].features[k];
  PetscCall(TrsOptionError(s->options, option,
                           "the model has no feature \"%.100s\"; the closest is \"%.100s\"", wanted,
                           names[TrsNameClosest(wanted, n, names)]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The path of a feature's array in the results. Free with PetscFree(). */
static PetscErrorCode name_array(const char *feature, char **path)
{
  const size_t size = strlen(feature) + sizeof("embeddings/");

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(size, path));
  PetscCall(PetscSNPrintf(*path, size, "embeddings/%s", feature));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictEmbeddingsOpen(const TrsSession *session, TrsPredictEmbeddings *e)
{
  const char *output = NULL;

  PetscFunctionBegin;
  *e = (TrsPredictEmbeddings){.candidate = -1};
  PetscCall(TrsOptionsGetStrings(session->options, option, &e->n, &e->feature, NULL));
  PetscCall(TrsOptionsGetString(session->options, "-output", &output, NULL));
  if (e->n && !output)
    PetscCall(TrsOptionError(session->options, option, "needs -output, the file to write them to"));
  PetscCall(read_towers(session->options, output, e->tower));
  PetscCall(PetscCalloc3((size_t)e->n, &e->place, (size_t)e->n, &e->width, (size_t)e->n, &e->path));
  for (int i = 0; i < e->n; i++) {
    const TrsTableConfig *table = find_table(&session->tables, e->feature[i], &e->place[i]);
    int first = 0;

    if (!table) {
      PetscCall(refuse_feature(session, e->feature[i]));
      continue; /* never executed, but a static checker cannot know this */
    }
    while (strcmp(e->feature[first], e->feature[i]) != 0) first++;
    if (first < i)
      PetscCall(
          TrsOptionError(session->options, option, "names the feature \"%.100s\" twice", e->feature[i]));
    if (table->pooling == TRS_POOLING_NONE)
      PetscCall(TrsOptionError(session->options, option,
                               "feature \"%.100s\" is of the sequence table \"%.100s\" (pooling none), which "
                               "has a row for each id and no pooled embedding",
                               e->feature[i], table->name));
    e->width[i] = table->embedding_dim;
    PetscCall(name_array(e->feature[i], &e->path[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictEmbeddingsKeep(TrsPredictEmbeddings *e, const TrsSession *session)
{
  const char *name;

  PetscFunctionBegin;
  if (e->n) PetscCall(TrsModelParallelKeepPooled(session->model));
  if (!e->tower[TRS_SIDE_QUERY] && !e->tower[TRS_SIDE_CANDIDATE]) PetscFunctionReturn(PETSC_SUCCESS);
  if (!TrsModelParallelPairWidth(session->model))
    PetscCall(TrsOptionError(session->options, "-predict_towers", "only -interaction two_tower has towers"));
  PetscCall(TrsModelParallelKeepPairs(session->model));
  if (!e->tower[TRS_SIDE_CANDIDATE]) PetscFunctionReturn(PETSC_SUCCESS);
  /* a model whose feature -candidate_id has id_map qr has no ids of candidates */
  if (TrsPairCandidate(session->options, &session->tables, &e->candidate, &name)) {
    TrsErrorClear();
    e->candidate = -1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictEmbeddingsFree(TrsPredictEmbeddings *e)
{
  PetscFunctionBegin;
  for (int i = 0; e->path && i < e->n; i++) PetscCall(PetscFree(e->path[i]));
  PetscCall(PetscFree3(e->place, e->width, e->path));
  PetscCall(TrsBufferFree(&e->rows));
  e->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add one tower's outputs for a batch to the results. */
static PetscErrorCode add_tower(TrsPredictEmbeddings *e, TrsModelParallel model, const TrsBatch *batch, int s,
                                int64_t n_total, TrsResults results)
{
  const int64_t D = TrsModelParallelPairWidth(model), bytes = D * (int64_t)sizeof(float);
  const float *pairs;
  char path[32];

  PetscFunctionBegin;
  PetscCall(TrsModelParallelPairs(model, batch, &pairs));
  PetscCall(TrsBufferReserve(&e->rows, batch->batch * bytes, PETSC_FALSE));
  for (int64_t b = 0; b < batch->batch; b++)
    memcpy((char *)e->rows.data + b * bytes, pairs + (2 * b + s) * D, (size_t)bytes);
  snprintf(path, sizeof(path), "towers/%s", sides[s]);
  PetscCall(TrsResultsAddRows(results, path, n_total, batch->first, batch->batch, (int)D, e->rows.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the candidates' ids of a batch to the results; -1 for a sample without a candidate. */
static PetscErrorCode add_ids(TrsPredictEmbeddings *e, const TrsBatch *batch, int64_t n_total,
                              TrsResults results)
{
  int64_t *ids;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&e->rows, batch->batch * (int64_t)sizeof(*ids), PETSC_FALSE));
  ids = (int64_t *)e->rows.data;
  for (int64_t b = 0; b < batch->batch; b++) ids[b] = TrsBatchFirstId(batch, e->candidate, b);
  PetscCall(
      TrsResultsAddSampleInts(results, "towers/candidate_id", n_total, batch->first, batch->batch, ids));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictEmbeddingsAdd(TrsPredictEmbeddings *e, TrsModelParallel model, const TrsBatch *batch,
                                       int64_t n_total, TrsResults results)
{
  PetscErrorCode failed = PETSC_SUCCESS;

  PetscFunctionBegin;
  for (int i = 0; i < e->n; i++) {
    const size_t bytes = (size_t)e->width[i] * sizeof(float);
    const float *rows;
    PetscErrorCode ierr;
    int64_t stride;

    PetscCall(TrsModelParallelPooled(model, batch, e->place[i], &rows, &stride));
    PetscCall(TrsBufferReserve(&e->rows, batch->batch * (int64_t)bytes, PETSC_FALSE));
    for (int64_t b = 0; b < batch->batch; b++)
      memcpy((char *)e->rows.data + (size_t)b * bytes, rows + b * stride, bytes);
    ierr = TrsResultsAddRows(results, e->path[i], n_total, batch->first, batch->batch, e->width[i],
                             e->rows.data);
    if (!failed) failed = ierr; /* go on with the next feature, because the other ranks do so */
  }
  for (int s = 0; s < TRS_N_SIDES; s++) {
    const PetscErrorCode ierr = e->tower[s] ? add_tower(e, model, batch, s, n_total, results) : PETSC_SUCCESS;

    if (!failed) failed = ierr;
  }
  if (e->candidate >= 0) {
    const PetscErrorCode ierr = add_ids(e, batch, n_total, results);

    if (!failed) failed = ierr;
  }
  PetscCall(failed);
  PetscFunctionReturn(PETSC_SUCCESS);
}
