/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/pair_loss.h"

#include "core/random/philox.h"
#include "core/random/random.h"
#include "data/batch_order.h"
#include "train/sample_blocks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRS_TILE = TRS_BLOCK_SAMPLES /* rows of scores in a tile */ };

struct TrsPairLossImpl {
  TrsComm comm;
  int64_t D;
  TrsPairLossKind kind;
  double temperature;
  int64_t n_negatives; /* number of negatives drawn per step; 0: all candidates are negatives */
  uint64_t key;        /* key of the random numbers */
  double rate;         /* rate of the running averages of the ids' frequencies; 0: no correction */
  int64_t n_ids;       /* number of rows in the candidates' table */
  /* [n_ids] the frequency of each id in the batches so far; NULL without correction */
  float *frequency;
  TrsBuffer draws; /* [G] */
  /* index, among the features of all tables, of the feature with the candidate's id */
  int feature;
  const char *feature_name; /* borrowed from the options or tables */
  int64_t *counts;          /* [W] number of rows on each rank */
  /* [W + 1] index of each rank's first row, if ranks keep their samples */
  int64_t *first;
  TrsDeviceBuffer own, rows, pairs, log_sums, own_log_sums, scores, row_loss, sum;
  TrsPinnedBuffer host_pairs; /* used only if the host cannot read the device's memory */
};

static const TrsOptionSpec specs[] = {
    {"-loss", TRS_OPTION_ENUM, "bce", NULL, TRS_CHOICES(TRS_PAIR_LOSSES), NULL,
     "-interaction two_tower: loss of the scores. With a softmax, the weight of a sample's query is the "
     "sample's label times its weight. bce: binary cross entropy of each pair's score. in_batch_softmax: "
     "the softmax of a query's candidate among the candidates of the global batch. sampled_softmax: the "
     "softmax among candidates that each step draws from the global batch"},
    {"-softmax_negatives", TRS_OPTION_INT, "1000", "[1,]", NULL, "candidates",
     "-loss sampled_softmax: candidates that a step draws from the global batch's, for all queries"},
    {"-softmax_logq", TRS_OPTION_ENUM, "none", NULL, "none,streaming", NULL,
     "correction of a training's softmaxes for candidates that are frequent in batches. streaming: "
     "subtract the log of a candidate's frequency, a running mean over the steps so far, from its score"},
    {"-softmax_logq_rate", TRS_OPTION_REAL, "0.01", "(0,1]", NULL, NULL,
     "-softmax_logq streaming: weight of a step in the running mean"},
    {"-softmax_temperature", TRS_OPTION_REAL, "1", "(0,]", NULL, NULL,
     "softmaxes of two towers: scores are divided by this number"},
    {"-candidate_id", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "feature whose first id names a sample's candidate: the same candidate elsewhere in the batch is not "
     "a negative (default: the first of -candidate_features)"},
};
const TrsOptionGroup trs_pair_loss_options = TRS_OPTION_GROUP_OF_MODEL(
    "Losses of two towers", NULL, specs, NULL,
    "-loss,-softmax_temperature,-softmax_negatives,-softmax_logq,-softmax_logq_rate,-candidate_id");

/* Get the name of the feature that identifies candidates. */
static PetscErrorCode candidate_name(TrsOptions options, const TrsTableConfigs *tables, const char **name)
{
  const char *const *queries = NULL, *const *candidates = NULL;
  int n_queries = 0, n_candidates = 0;

  PetscFunctionBegin;
  *name = NULL;
  PetscCall(TrsOptionsGetString(options, "-candidate_id", name, NULL));
  if (*name) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetStrings(options, "-candidate_features", &n_candidates, &candidates, NULL));
  PetscCall(TrsOptionsGetStrings(options, "-query_features", &n_queries, &queries, NULL));
  if (n_candidates) *name = candidates[0];
  for (int t = 0; t < tables->n; t++) {
    for (int k = 0; !*name && k < tables->table[t].n_features; k++) {
      PetscBool is_query = PETSC_FALSE;

      for (int i = 0; i < n_queries; i++)
        if (strcmp(queries[i], tables->table[t].features[k]) == 0) is_query = PETSC_TRUE;
      if (!is_query) *name = tables->table[t].features[k];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairCandidate(TrsOptions options, const TrsTableConfigs *tables, int *feature,
                                const char **name)
{
  PetscFunctionBegin;
  PetscCall(candidate_name(options, tables, name));
  if (!*name) {
    PetscCall(TrsOptionError(options, "-candidate_features", "the candidate_tower has no features"));
    PetscFunctionReturn(PETSC_SUCCESS); /* never executed, but a checker cannot know this */
  }
  for (int t = 0, f = 0; t < tables->n; t++) {
    for (int k = 0; k < tables->table[t].n_features; k++, f++) {
      if (strcmp(tables->table[t].features[k], *name) != 0) continue;
      if (tables->table[t].id_map.kind == TRS_ID_MAP_QUOTIENT)
        PetscCall(TrsOptionError(options, "-candidate_id",
                                 "feature \"%.100s\" has id_map qr, whose rows are of several ids", *name));
      *feature = f;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  PetscCall(TrsOptionError(options, "-candidate_id", "no table has a feature \"%.100s\"", *name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the options that draw and correct negatives. */
static PetscErrorCode read_negatives(TrsPairLoss loss, TrsOptions options, const TrsTableConfigs *tables)
{
  int logq;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(options, "-softmax_temperature", &loss->temperature, NULL));
  if (loss->kind == TRS_PAIR_LOSS_SAMPLED_SOFTMAX)
    PetscCall(TrsOptionsGetInt(options, "-softmax_negatives", &loss->n_negatives, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-softmax_logq", &logq, NULL));
  if (!logq) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetReal(options, "-softmax_logq_rate", &loss->rate, NULL));
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features)
    if (loss->feature >= f && loss->feature < f + tables->table[t].n_features)
      loss->n_ids = tables->table[t].num_embeddings;
  PetscCall(PetscCalloc1((size_t)loss->n_ids, &loss->frequency));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossAddState(TrsPairLoss loss, TrsState *state)
{
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  if (!loss || !loss->frequency) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsStateAdd(state, "dense_optimizer/candidates/frequency", TRS_FP32, 1, loss->n_ids, 1, &tensor));
  tensor->replicated = tensor->optional = PETSC_TRUE;
  tensor->optimizer = "streaming";
  PetscCall(TrsStateAddPart(tensor, 0, 0, loss->n_ids, 1, loss->frequency, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossCreate(TrsComm comm, TrsOptions options, TrsDlrm dlrm,
                                 const TrsTableConfigs *tables, uint64_t seed, TrsPairLoss *loss)
{
  TrsPairLoss l;
  int kind;

  PetscFunctionBegin;
  *loss = NULL;
  PetscCall(TrsOptionsGetEnum(options, "-loss", &kind, NULL));
  if (kind == TRS_PAIR_LOSS_BCE) PetscFunctionReturn(PETSC_SUCCESS);
  if (!TrsDlrmPairs(dlrm).width)
    PetscCall(TrsOptionError(options, "-loss", "only -interaction two_tower has other losses than bce"));
  PetscCall(PetscNew(&l));
  l->comm = comm;
  l->D = TrsDlrmPairs(dlrm).width;
  l->kind = (TrsPairLossKind)kind;
  l->key = TrsPhiloxKey(seed, TRS_RANDOM_NEGATIVES);
  PetscCall(TrsPairCandidate(options, tables, &l->feature, &l->feature_name));
  PetscCall(read_negatives(l, options, tables));
  PetscCall(PetscMalloc2((size_t)comm->size, &l->counts, (size_t)comm->size + 1, &l->first));
  TrsDlrmSetPairLoss(dlrm);
  *loss = l;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossDestroy(TrsPairLoss *loss)
{
  TrsPairLoss l = *loss;

  PetscFunctionBegin;
  if (!l) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->own));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->rows));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->pairs));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->log_sums));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->own_log_sums));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->scores));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->row_loss));
  PetscCall(TrsDeviceBufferFree(l->comm->device, &l->sum));
  PetscCall(TrsPinnedBufferFree(l->comm->device, &l->host_pairs));
  PetscCall(TrsBufferFree(&l->draws));
  PetscCall(PetscFree(l->frequency));
  PetscCall(PetscFree2(l->counts, l->first));
  PetscCall(PetscFree(*loss));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossPairs(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch,
                                const TrsPair **pairs)
{
  const TrsJagged *ids = &batch->kjt.jagged;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(loss->comm->device, &loss->own, batch->batch * (int64_t)sizeof(TrsPair)));
  *pairs = (const TrsPair *)loss->own.data;
  PetscCall(loss->comm->compute->pair_list(stream, batch->batch, ids->offsets + loss->feature * batch->batch,
                                           ids->values, batch->labels, batch->weights,
                                           (TrsPair *)loss->own.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gather one element per row from all ranks. */
static PetscErrorCode gather(TrsPairLoss loss, TrsStream stream, const int64_t *first, const void *own,
                             int64_t bytes, TrsDeviceBuffer *all)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(loss->comm->device, all, first[loss->comm->size] * bytes));
  PetscCall(TrsCommAllgatherv(loss->comm, stream, own, all->data, loss->counts, first, bytes, &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute the dot products of n own rows on one side with all rows on the other side. After
  `softmax` has replaced the dot products with their gradients, compute the gradients of the n rows.
*/
static PetscErrorCode scores_of(TrsPairLoss loss, TrsStream stream, const TrsPairTile *tile, const float *own,
                                const float *others)
{
  const TrsMatrixProduct product = {.trans_b = PETSC_TRUE,
                                    .m = tile->n,
                                    .n = tile->m,
                                    .k = loss->D,
                                    .alpha = (float)(1.0 / loss->temperature),
                                    .a = TrsFloats(own, 2 * loss->D),
                                    .b = TrsFloats(others, 2 * loss->D),
                                    .c = TrsFloats(tile->z, tile->m)};

  PetscFunctionBegin;
  PetscCall(loss->comm->compute->multiply(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode gradients_of(TrsPairLoss loss, TrsStream stream, const TrsPairTile *tile,
                                   const float *others, float *to)
{
  const TrsMatrixProduct product = {.m = tile->n,
                                    .n = loss->D,
                                    .k = tile->m,
                                    .alpha = (float)(1.0 / loss->temperature),
                                    .a = TrsFloats(tile->z, tile->m),
                                    .b = TrsFloats(others, 2 * loss->D),
                                    .c = TrsFloats(to, 2 * loss->D)};

  PetscFunctionBegin;
  PetscCall(loss->comm->compute->multiply(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The random number of a candidate. The candidates with the smallest numbers become negatives. */
typedef struct {
  uint32_t number[2];
  int64_t place;
} TrsDraw;

static int by_number(const void *a, const void *b)
{
  const TrsDraw *x = (const TrsDraw *)a, *y = (const TrsDraw *)b;

  for (int i = 0; i < 2; i++)
    if (x->number[i] != y->number[i]) return x->number[i] < y->number[i] ? -1 : 1;
  return x->place < y->place ? -1 : x->place > y->place;
}

/* Draw the negatives of a step among the G candidates. All ranks draw the same negatives. */
static PetscErrorCode draw_negatives(TrsPairLoss loss, int64_t step, int64_t G, TrsPair *pair)
{
  TrsDraw *draw;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&loss->draws, G * (int64_t)sizeof(TrsDraw), PETSC_FALSE));
  draw = (TrsDraw *)loss->draws.data;
  for (int64_t i = 0; i < G; i++) {
    uint32_t bits[4];

    TrsPhilox(loss->key, (uint64_t)step, (uint64_t)i, bits);
    draw[i] = (TrsDraw){{bits[0], bits[1]}, i};
  }
  qsort(draw, (size_t)G, sizeof(*draw), by_number);
  for (int64_t i = loss->n_negatives; i < G; i++) pair[draw[i].place].negative = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add the step's candidates to the running averages of frequencies, and set the corrections from
  these averages. A candidate without an id counts like an id that occurs for the first time.
*/
static void correct(TrsPairLoss loss, int64_t G, TrsPair *pair)
{
  const float kept = (float)(1.0 - loss->rate), once = (float)(loss->rate / (double)PetscMax(G, 1));

  for (int64_t id = 0; id < loss->n_ids; id++) loss->frequency[id] *= kept;
  for (int64_t i = 0; i < G; i++)
    if (pair[i].id >= 0 && pair[i].id < loss->n_ids) loss->frequency[pair[i].id] += once;
  for (int64_t i = 0; i < G; i++)
    pair[i].log_q = logf(pair[i].id >= 0 && pair[i].id < loss->n_ids ? loss->frequency[pair[i].id] : once);
}

/*
  Make the G pairs of a training step. This is done on the host, because there are few ids and
  random numbers.
*/
static PetscErrorCode prepare_pairs(TrsPairLoss loss, TrsStream stream, int64_t step, int64_t G)
{
  const TrsDeviceOps *device = loss->comm->device;
  const int64_t bytes = G * (int64_t)sizeof(TrsPair);
  TrsPair *pair = (TrsPair *)loss->pairs.data;

  PetscFunctionBegin;
  if (!loss->frequency && !loss->n_negatives) PetscFunctionReturn(PETSC_SUCCESS);
  if (!device->host_memory) {
    PetscCall(TrsPinnedBufferReserve(device, &loss->host_pairs, bytes));
    pair = (TrsPair *)loss->host_pairs.data;
    PetscCall(device->copy(pair, loss->pairs.data, bytes, stream));
    PetscCall(device->stream_synchronize(stream));
  }
  if (loss->frequency) correct(loss, G, pair);
  if (loss->n_negatives) PetscCall(draw_negatives(loss, step, G, pair));
  if (!device->host_memory) PetscCall(device->copy(loss->pairs.data, pair, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make the tile of this rank's rows that starts at row `begin`. */
static TrsPairTile tile_of(TrsPairLoss loss, const TrsPairRows *rows, int64_t begin)
{
  const int W = loss->comm->size, rank = loss->comm->rank;
  const int64_t n = rows->first[rank + 1] - rows->first[rank];

  return (TrsPairTile){.first = rows->first[rank] + begin,
                       .n = PetscMin(TRS_TILE, n - begin),
                       .m = rows->first[W],
                       .pair = (const TrsPair *)loss->pairs.data,
                       .z = (float *)loss->scores.data,
                       .row_loss = (double *)loss->row_loss.data,
                       .scale = rows->scale};
}

/* For this rank's queries, compute the losses, the logs of the sums, and the gradients. */
static PetscErrorCode run_queries(TrsPairLoss loss, TrsStream stream, const TrsPairRows *rows, double *losses,
                                  int stride_of_losses, float *dout)
{
  const int64_t n = loss->counts[loss->comm->rank], stride = 2 * loss->D;
  const float *candidates = (const float *)loss->rows.data + loss->D;

  PetscFunctionBegin;
  for (int64_t begin = 0; begin < n; begin += TRS_TILE) {
    TrsPairTile tile = tile_of(loss, rows, begin);

    tile.log_sum = (double *)loss->own_log_sums.data + begin;
    PetscCall(scores_of(loss, stream, &tile, rows->out + begin * stride, candidates));
    PetscCall(loss->comm->compute->pair_queries(stream, &tile, losses + begin / TRS_TILE * stride_of_losses));
    if (rows->backward) PetscCall(gradients_of(loss, stream, &tile, candidates, dout + begin * stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the gradients of this rank's candidates. */
static PetscErrorCode run_candidates(TrsPairLoss loss, TrsStream stream, const TrsPairRows *rows, float *dout)
{
  const int64_t n = loss->counts[loss->comm->rank], stride = 2 * loss->D, D = loss->D;
  const float *queries = (const float *)loss->rows.data;

  PetscFunctionBegin;
  for (int64_t begin = 0; begin < n; begin += TRS_TILE) {
    TrsPairTile tile = tile_of(loss, rows, begin);

    tile.log_sum = (double *)loss->log_sums.data;
    PetscCall(scores_of(loss, stream, &tile, rows->out + begin * stride + D, queries));
    PetscCall(loss->comm->compute->pair_candidates(stream, &tile));
    PetscCall(gradients_of(loss, stream, &tile, queries, dout + begin * stride + D));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossRun(TrsPairLoss loss, TrsStream stream, const TrsPairRows *rows, double *losses,
                              int stride, float *dout)
{
  const TrsDeviceOps *device = loss->comm->device;
  const int W = loss->comm->size, rank = loss->comm->rank;
  const int64_t G = rows->first[W];

  PetscFunctionBegin;
  for (int q = 0; q < W; q++) loss->counts[q] = rows->first[q + 1] - rows->first[q];
  PetscCall(gather(loss, stream, rows->first, rows->out, 2 * loss->D * (int64_t)sizeof(float), &loss->rows));
  PetscCall(gather(loss, stream, rows->first, rows->pair, (int64_t)sizeof(TrsPair), &loss->pairs));
  if (rows->backward) PetscCall(prepare_pairs(loss, stream, rows->step, G));
  PetscCall(TrsDeviceBufferReserve(device, &loss->scores, TRS_TILE * G * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(device, &loss->row_loss, TRS_TILE * (int64_t)sizeof(double)));
  PetscCall(
      TrsDeviceBufferReserve(device, &loss->own_log_sums, loss->counts[rank] * (int64_t)sizeof(double)));
  PetscCall(run_queries(loss, stream, rows, losses, stride, dout));
  PetscCall(
      PetscLogFlops((rows->backward ? 4.0 : 2.0) * (double)loss->counts[rank] * (double)G * (double)loss->D));
  if (!rows->backward) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      gather(loss, stream, rows->first, loss->own_log_sums.data, (int64_t)sizeof(double), &loss->log_sums));
  PetscCall(run_candidates(loss, stream, rows, dout));
  PetscCall(PetscLogFlops(4.0 * (double)loss->counts[rank] * (double)G * (double)loss->D));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossByRanks(TrsPairLoss loss, TrsStream stream, const TrsBatch *batch, const float *out,
                                  float scale, double *sum, float *dout)
{
  TrsPairRows rows = {.first = loss->first,
                      .out = out,
                      .scale = scale,
                      .step = batch->step,
                      .backward = (PetscBool)(dout != NULL)};
  const TrsDeviceOps *device = loss->comm->device;

  PetscFunctionBegin;
  for (int q = 0; q <= loss->comm->size; q++)
    loss->first[q] = TrsBatchOrderShare(batch->global_batch, loss->comm->size, q);
  PetscCall(TrsPairLossPairs(loss, stream, batch, &rows.pair));
  PetscCall(TrsDeviceBufferReserve(device, &loss->sum, (int64_t)sizeof(*sum)));
  PetscCall(device->zero(loss->sum.data, (int64_t)sizeof(*sum), stream));
  PetscCall(TrsPairLossRun(loss, stream, &rows, (double *)loss->sum.data, 0, dout));
  PetscCall(device->copy(sum, loss->sum.data, (int64_t)sizeof(*sum), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairLossView(TrsPairLoss loss, int64_t global_batch, MPI_Comm comm)
{
  static const char *const words[] = {TRS_PAIR_LOSSES(TRS_WORD_TEXT)};
  const double G = (double)global_batch;
  double D;

  PetscFunctionBegin;
  if (!loss) PetscFunctionReturn(PETSC_SUCCESS);
  D = (double)loss->D;
  PetscCall(PetscPrintf(
      comm,
      "  loss         %s among %" PRId64
      " candidates, temperature %g, ids of %s: %.4g kflop and %.4g kB per sample\n",
      words[loss->kind], loss->n_negatives ? PetscMin(loss->n_negatives, global_batch) : global_batch,
      loss->temperature, loss->feature_name, 2.0 * G * D / 1e3, (double)sizeof(float) * (G + 2.0 * D) / 1e3));
  PetscFunctionReturn(PETSC_SUCCESS);
}
