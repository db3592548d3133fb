/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/lookup.h"

#include "core/events.h"
#include "embed/untouched.h"

struct TrsLookupImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsWorkspace workspace, sort; /* sort: for calls ahead of a backward; NULL: none are made */
  int *shard_of_table;          /* [tbe.n_tables] */
  TrsTbeTable *table;
  TrsTbeFeature *feature;
  TrsTbe tbe;
  TrsPlacement placement;
  TrsUntouched untouched;      /* NULL until the first TrsLookupUntouched() */
  TrsPositionWeight *position; /* [tbe.n_features], or NULL */
  TrsDeviceBuffer weights;     /* weights of the ids, found by their positions */
  TrsDeviceBuffer grad_weights;
};

/* Find the kernels' number of a shard; add the shard if it is new. */
static int32_t table_of(TrsLookup lookup, const TrsEmbeddingShards *shards, int shard)
{
  int t = 0;
  while (t < lookup->tbe.n_tables && lookup->shard_of_table[t] != shard) t++;
  if (t == lookup->tbe.n_tables) {
    lookup->shard_of_table[t] = shard;
    lookup->table[t] = shard < 0 ? (TrsTbeTable){.dim = 1, .stride = 1} : shards->shard[shard].tbe;
    lookup->tbe.n_tables++;
  }
  return t;
}

PetscErrorCode TrsLookupCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards, int n,
                               const TrsLookupFeature *feature, TrsLookup *lookup)
{
  TrsLookup l;

  PetscFunctionBegin;
  PetscCall(PetscNew(&l));
  l->device = shards->device;
  l->compute = compute;
  PetscCall(compute->workspace_create(&l->workspace));
  if (compute->tbe_find_occurrences) PetscCall(compute->workspace_create(&l->sort));
  PetscCall(PetscCalloc3((size_t)PetscMax(n, 1), &l->shard_of_table, (size_t)PetscMax(n, 1), &l->table,
                         (size_t)PetscMax(n, 1), &l->feature));
  l->tbe = (TrsTbe){.n_features = n, .table = l->table, .feature = l->feature};
  if (n > 0 && feature[0].position.weight) PetscCall(PetscMalloc1((size_t)n, &l->position));
  for (int f = 0; f < n; f++) {
    l->feature[f] = (TrsTbeFeature){.table = table_of(l, shards, feature[f].shard),
                                    .mean = feature[f].mean ? 1 : 0,
                                    .out_column = feature[f].out_column};
    if (l->position) l->position[f] = feature[f].position;
  }
  PetscCall(TrsPlacementCreate(&(TrsPlacementTables){.device = l->device,
                                                     .compute = compute,
                                                     .shards = shards,
                                                     .n_tables = l->tbe.n_tables,
                                                     .shard = l->shard_of_table,
                                                     .table = l->table},
                               &l->placement));
  *lookup = l;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupDestroy(TrsLookup *lookup)
{
  TrsLookup l = *lookup;

  PetscFunctionBegin;
  if (!l) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlacementDestroy(&l->placement));
  PetscCall(TrsUntouchedDestroy(&l->untouched));
  PetscCall(l->compute->workspace_destroy(&l->workspace));
  PetscCall(l->compute->workspace_destroy(&l->sort));
  PetscCall(TrsDeviceBufferFree(l->device, &l->weights));
  PetscCall(TrsDeviceBufferFree(l->device, &l->grad_weights));
  PetscCall(PetscFree(l->position));
  PetscCall(PetscFree3(l->shard_of_table, l->table, l->feature));
  PetscCall(PetscFree(*lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The batch as kernel input, without weights for positions. */
static TrsTbeInput ids_of(const TrsKjt *kjt)
{
  return (TrsTbeInput){.batch = kjt->batch,
                       .offsets = kjt->jagged.offsets,
                       .values = kjt->jagged.values,
                       .weights = kjt->jagged.weights,
                       .n_values = kjt->jagged.n_values};
}

/* The batch as kernel input, with weights for positions. */
static PetscErrorCode input_of(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsTbeInput *input)
{
  float *weights;

  PetscFunctionBegin;
  *input = ids_of(kjt);
  if (!lookup->position) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserve(lookup->device, &lookup->weights,
                                   kjt->jagged.n_values * (int64_t)sizeof(*weights)));
  weights = (float *)lookup->weights.data;
  for (int f = 0; f < lookup->tbe.n_features; f++)
    PetscCall(lookup->compute->position_weights(stream, kjt->batch, kjt->jagged.offsets + f * kjt->batch,
                                                kjt->jagged.weights, lookup->position[f].length,
                                                lookup->position[f].weight, weights));
  input->weights = weights;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add the gradients of the position weights. They are computed from the rows before the rows'
  update.
*/
static PetscErrorCode add_position_gradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                             const TrsTbeInput *input, TrsMatrix grad)
{
  const TrsComputeOps *compute = lookup->compute;
  float *grad_weights;

  PetscFunctionBegin;
  if (!lookup->position) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(grad.type == TRS_FP32, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "position weights without floats");
  PetscCall(TrsDeviceBufferReserve(lookup->device, &lookup->grad_weights,
                                   input->n_values * (int64_t)sizeof(*grad_weights)));
  grad_weights = (float *)lookup->grad_weights.data;
  PetscCall(compute->tbe_weight_gradients(stream, lookup->workspace, &lookup->tbe, input,
                                          (const float *)grad.data, grad.stride, grad_weights));
  for (int f = 0; f < lookup->tbe.n_features; f++)
    PetscCall(compute->position_gradients(stream, lookup->workspace, kjt->batch,
                                          input->offsets + f * kjt->batch, kjt->jagged.weights, grad_weights,
                                          lookup->position[f].length, lookup->position[f].grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if there is nothing to look up. */
static PetscBool is_empty(TrsLookup lookup, const TrsKjt *kjt)
{
  return (PetscBool)(lookup->tbe.n_features == 0 || kjt->batch == 0);
}

/* The number of additions for -log_view; assumes that all features have the same number of ids. */
static double count_additions(TrsLookup lookup, const TrsTbeInput *input)
{
  double dims = 0;

  for (int f = 0; f < lookup->tbe.n_features; f++)
    dims += lookup->tbe.table[lookup->tbe.feature[f].table].dim;
  return (double)input->n_values * dims / lookup->tbe.n_features;
}

PetscErrorCode TrsLookupForward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsMatrix out)
{
  TrsTbeInput input;

  PetscFunctionBegin;
  if (is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(input_of(lookup, stream, kjt, &input));
  PetscCall(TrsPlacementForward(lookup->placement, stream, &lookup->tbe, &input));
  PetscCall(lookup->compute->tbe_forward(stream, lookup->workspace, &lookup->tbe, &input, out));
  PetscCall(TrsLogFlops(count_additions(lookup, &input)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupForwardFeature(TrsLookup lookup, TrsStream stream, int feature,
                                       const TrsTbeInput *bags, float *out, int64_t stride)
{
  const TrsTbeFeature one = {.table = lookup->feature[feature].table, .mean = lookup->feature[feature].mean};
  const TrsTbe tbe = {
      .n_tables = lookup->tbe.n_tables, .n_features = 1, .table = lookup->table, .feature = &one};

  PetscFunctionBegin;
  PetscCheck(!lookup->position && TrsPlacementIsNone(lookup->placement), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "bags of one feature are looked up without a placement and positions");
  if (bags->batch == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(lookup->compute->tbe_forward(stream, lookup->workspace, &tbe, bags, TrsFloats(out, stride)));
  PetscCall(TrsLogFlops((double)bags->n_values * lookup->table[one.table].dim));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupUntouched(TrsLookup lookup, const TrsKjt *written, const TrsKjt *next, uint8_t *bags)
{
  const TrsTbeInput of_written = ids_of(written), of_next = ids_of(next);

  PetscFunctionBegin;
  PetscCheck(TrsPlacementIsNone(lookup->placement), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "rows of a placement are looked up ahead");
  if (is_empty(lookup, next)) PetscFunctionReturn(PETSC_SUCCESS);
  if (!lookup->untouched) PetscCall(TrsUntouchedCreate(&lookup->tbe, &lookup->untouched));
  PetscCall(TrsUntouchedFind(lookup->untouched, &of_written, &of_next, bags));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupSort(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsTbeUse use,
                             TrsTbeOccurrences *occurrences)
{
  TrsTbeInput input = ids_of(kjt);
  TrsMemoryKind before;

  PetscFunctionBegin;
  if (!lookup->sort || is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  if (lookup->position) { /* later steps change the weights */
    input.weights = NULL;
    input.weights_later = 1;
  }
  before = TrsMemoryFor(TRS_MEMORY_SCRATCH);
  PetscCall(
      lookup->compute->tbe_find_occurrences(stream, lookup->sort, &lookup->tbe, &input, use, occurrences));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupOccurrencesDestroy(const TrsComputeOps *compute, TrsTbeOccurrences *occurrences)
{
  PetscFunctionBegin;
  if (*occurrences) PetscCall(compute->tbe_occurrences_destroy(occurrences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupPositionGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                          TrsMatrix grad)
{
  TrsTbeInput input = ids_of(kjt); /* the weights are not read */

  PetscFunctionBegin;
  if (!lookup->position || is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlacementBackward(lookup->placement, stream, &lookup->tbe, &input));
  PetscCall(add_position_gradients(lookup, stream, kjt, &input, grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupBackward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                 TrsTbeOccurrences occurrences, TrsMatrix grad, float *const *row_squares,
                                 const TrsSparseOptimizerArgs *args)
{
  TrsMemoryKind before;
  TrsTbeInput input;

  PetscFunctionBegin;
  if (is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(input_of(lookup, stream, kjt, &input));
  input.row_squares = row_squares;
  input.occurrences = occurrences;
  PetscCall(TrsPlacementBackward(lookup->placement, stream, &lookup->tbe, &input));
  before = TrsMemoryFor(TRS_MEMORY_SCRATCH); /* for the memory of the sort */
  PetscCall(lookup->compute->tbe_backward(stream, lookup->workspace, &lookup->tbe, &input, grad, args));
  (void)TrsMemoryFor(before);
  PetscCall(TrsLogFlops(count_additions(lookup, &input)));
  PetscCall(TrsPlacementDone(lookup->placement, stream, &lookup->tbe, &input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupForwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                    int64_t stride)
{
  TrsTbeInput input;

  PetscFunctionBegin;
  if (is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(input_of(lookup, stream, kjt, &input));
  PetscCall(TrsPlacementForward(lookup->placement, stream, &lookup->tbe, &input));
  PetscCall(lookup->compute->tbe_forward_rows(stream, lookup->workspace, &lookup->tbe, &input, out, stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupBackwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                     TrsTbeOccurrences occurrences, const float *grad, int64_t stride,
                                     const TrsSparseOptimizerArgs *args)
{
  TrsTbeInput input;

  PetscFunctionBegin;
  if (is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(input_of(lookup, stream, kjt, &input));
  input.occurrences = occurrences;
  PetscCall(TrsPlacementBackward(lookup->placement, stream, &lookup->tbe, &input));
  PetscCall(lookup->compute->tbe_backward_rows(stream, lookup->workspace, &lookup->tbe, &input, grad, stride,
                                               args));
  PetscCall(TrsPlacementDone(lookup->placement, stream, &lookup->tbe, &input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupListRows(TrsLookup lookup, TrsStream stream, TrsWorkspace workspace,
                                 const TrsKjt *kjt, TrsTbeOccurrences occurrences, int64_t *row_begin,
                                 int64_t *rows)
{
  TrsTbeInput input = ids_of(kjt);

  PetscFunctionBegin;
  input.weights = NULL;
  input.occurrences = occurrences;
  PetscCall(lookup->compute->tbe_list_rows(stream, workspace, &lookup->tbe, &input, row_begin, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupRowGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                     TrsTbeOccurrences occurrences, TrsMatrix grad, float *row_grad,
                                     int64_t row_stride)
{
  TrsTbeInput input;

  PetscFunctionBegin;
  PetscCall(input_of(lookup, stream, kjt, &input));
  input.occurrences = occurrences;
  PetscCall(TrsPlacementBackward(lookup->placement, stream, &lookup->tbe, &input));
  PetscCall(add_position_gradients(lookup, stream, kjt, &input, grad));
  PetscCall(lookup->compute->tbe_row_gradients(stream, lookup->workspace, &lookup->tbe, &input, grad, NULL,
                                               NULL, row_grad, row_stride));
  PetscCall(TrsPlacementDone(lookup->placement, stream, &lookup->tbe, &input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsLookupCountIds(TrsLookup lookup, const TrsKjt *kjt, int64_t *n_ids)
{
  const int64_t *offsets = kjt->jagged.offsets;

  for (int t = 0; t < lookup->tbe.n_tables; t++) n_ids[t] = 0;
  for (int f = 0; f < lookup->tbe.n_features && !is_empty(lookup, kjt); f++)
    n_ids[lookup->tbe.feature[f].table] += offsets[(f + 1) * kjt->batch] - offsets[f * kjt->batch];
}

PetscErrorCode TrsLookupRowSquares(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                   int64_t stride, float *const *squares)
{
  TrsTbeInput input;

  PetscFunctionBegin;
  if (is_empty(lookup, kjt)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(input_of(lookup, stream, kjt, &input));
  input.locations = NULL; /* the rows themselves are not read */
  PetscCall(lookup->compute->tbe_row_squares(stream, lookup->workspace, &lookup->tbe, &input, grad, stride,
                                             squares));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupTables(TrsLookup lookup, int *n_tables, const TrsTbeTable **tables)
{
  PetscFunctionBegin;
  *n_tables = lookup->tbe.n_tables;
  *tables = lookup->table;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupTake(TrsLookup lookup, TrsStream stream, int slot, PetscBool training,
                             const TrsPlacementSources *sources, TrsKjt *ids)
{
  TrsPlacementBatch batch = {.slot = slot, .training = training, .ids = ids};

  PetscFunctionBegin;
  if (!lookup) PetscFunctionReturn(PETSC_SUCCESS);
  batch.tbe = &lookup->tbe;
  if (sources) batch.sources = *sources;
  PetscCall(TrsPlacementTake(lookup->placement, stream, &batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupPrefetch(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt)
{
  TrsTbeInput input = ids_of(kjt);

  PetscFunctionBegin;
  if (lookup && !is_empty(lookup, kjt))
    PetscCall(TrsPlacementAhead(lookup->placement, stream, &lookup->tbe, &input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupEvaluated(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt)
{
  TrsTbeInput input = ids_of(kjt);

  PetscFunctionBegin;
  if (lookup && !is_empty(lookup, kjt))
    PetscCall(TrsPlacementDone(lookup->placement, stream, &lookup->tbe, &input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupSettle(TrsLookup lookup, TrsStream stream, PetscBool drop)
{
  PetscFunctionBegin;
  if (lookup) PetscCall(TrsPlacementSettle(lookup->placement, stream, &lookup->tbe, drop));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupDropLines(TrsLookup lookup, TrsStream stream)
{
  PetscFunctionBegin;
  if (lookup)
    PetscCall(TrsPlacementSettle(TrsPlacementFind(lookup->placement, &trs_placement_row_cache), stream,
                                 &lookup->tbe, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsPlacement TrsLookupPlacement(TrsLookup lookup)
{
  return lookup ? lookup->placement : NULL;
}

TrsRowCaches TrsLookupCaches(TrsLookup lookup)
{
  const TrsPlacement level = TrsPlacementFind(TrsLookupPlacement(lookup), &trs_placement_row_cache);

  return level ? (TrsRowCaches)level->data : NULL;
}
