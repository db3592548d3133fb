/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/sequence_layer.h"

#include "core/events.h"
#include "core/function_table.h"

#include <inttypes.h>
#include <string.h>

static const TrsSequenceLayerOps *const kinds[] = {
#define TABLE_OF(KIND, word) [TRS_SEQUENCE_POOLING_##KIND] = &trs_sequence_##word,
    TRS_SEQUENCE_LAYERS(TABLE_OF)};

PetscBool TrsSequenceReadsOffsets(TrsSequencePoolingKind pooling)
{
  return kinds[pooling]->reads_offsets;
}

static PetscErrorCode check_table(const TrsSequenceLayerOps *ops)
{
  const TrsTableEntry entries[] = {TRS_TABLE_ENTRY(ops, word),    TRS_TABLE_ENTRY(ops, declare),
                                   TRS_TABLE_ENTRY(ops, flops),   TRS_TABLE_ENTRY(ops, bytes),
                                   TRS_TABLE_ENTRY(ops, forward), TRS_TABLE_ENTRY(ops, backward)};

  PetscFunctionBegin;
  PetscCall(TrsFunctionTableCheck("sequence_pooling", ops->word, entries,
                                  (int)(sizeof(entries) / sizeof(entries[0]))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceLayersAdd(TrsSequenceLayers *layers, const TrsLayerContext *context,
                                    const TrsTableConfig *table, int k, int vector, int target)
{
  static const char prefix[] = "sequence/";
  const size_t size = strlen(table->features[k]) + sizeof(prefix);
  const double *mean_ids = table->constraints.pooling_factors;
  TrsSequenceLayer *layer;

  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(layers->n + 1) * sizeof(*layer), &layers->layer));
  layer = &layers->layer[layers->n++];
  *layer = (TrsSequenceLayer){.ops = kinds[table->sequence_pooling],
                              .context = context,
                              .table = table,
                              .dim = table->embedding_dim,
                              .width = TrsTableVectorDim(table),
                              .vector = vector,
                              .target = target,
                              .mean_ids = mean_ids && k < table->constraints.n_pooling_factors ? mean_ids[k]
                                                                                               : 1.0};
  PetscCall(check_table(layer->ops));
  PetscCall(PetscMalloc1(size, &layer->module));
  PetscCall(PetscSNPrintf(layer->module, size, "%s%s", prefix, table->features[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceLayersDeclare(TrsSequenceLayers *layers, const int64_t *columns)
{
  PetscFunctionBegin;
  for (int i = 0; i < layers->n; i++) {
    TrsSequenceLayer *layer = &layers->layer[i];

    layer->column = columns[layer->vector];
    layer->target_column = layer->target >= 0 ? columns[layer->target] : -1;
    layer->first_param = layer->context->params->n;
    PetscCall(layer->ops->declare(layer));
    layer->last_param = layer->context->params->n - 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceLayerParameter(TrsSequenceLayer *layer, const char *part, int64_t rows,
                                         int64_t cols, TrsParameterInit init, double scale, int *index)
{
  const size_t size = strlen(layer->module) + strlen(part) + sizeof("/");
  char *name;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(size, &name));
  PetscCall(PetscSNPrintf(name, size, "%s/%s", layer->module, part));
  PetscCall(TrsParametersAddNamed(layer->context->params, name, rows, cols, init, (float)scale, index));
  PetscCall(PetscFree(name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Count the operations of a forward on bags [n]. They need not be proportional to the number of ids,
  so each bag is counted by its length. If the host cannot read the lengths, every bag counts with
  the average length.
*/
static double count_flops(const TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags)
{
  double flops = 0.0;

  if (!layer->context->device->host_memory)
    return n > 0 ? (double)n * layer->ops->flops(layer, (double)bags->n_rows / (double)n) : 0.0;
  for (int64_t b = 0; b < n; b++)
    flops += layer->ops->flops(layer, (double)(bags->offsets[b + 1] - bags->offsets[b]));
  return flops;
}

PetscErrorCode TrsSequenceLayersForward(const TrsSequenceLayers *layers, TrsStream stream, int64_t n,
                                        TrsSequenceMatrix x)
{
  PetscFunctionBegin;
  for (int i = 0; i < layers->n; i++) {
    TrsSequenceLayer *layer = &layers->layer[i];

    PetscCall(layer->ops->forward(layer, stream, n, &layers->bags[i], x));
    PetscCall(TrsLogFlops(count_flops(layer, n, &layers->bags[i])));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceLayersBackward(const TrsSequenceLayers *layers, TrsStream stream, int64_t n,
                                         TrsSequenceMatrix x, TrsSequenceMatrix dx)
{
  PetscFunctionBegin;
  for (int i = 0; i < layers->n; i++) {
    TrsSequenceLayer *layer = &layers->layer[i];

    PetscCall(layer->ops->backward(layer, stream, n, &layers->bags[i], x, dx));
    PetscCall(TrsLogFlops(2.0 * count_flops(layer, n, &layers->bags[i])));
    PetscCall(TrsParametersReady(layer->context->params, layer->last_param));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsSequenceLayersWork(const TrsSequenceLayers *layers, double *flops, double *bytes)
{
  for (int i = 0; i < layers->n; i++) {
    const TrsSequenceLayer *layer = &layers->layer[i];

    *flops += layer->ops->flops(layer, layer->mean_ids);
    *bytes += layer->ops->bytes(layer, layer->mean_ids);
  }
}

PetscErrorCode TrsSequenceLayersView(const TrsSequenceLayers *layers, MPI_Comm comm)
{
  PetscFunctionBegin;
  for (int i = 0; i < layers->n; i++) {
    const TrsSequenceLayer *layer = &layers->layer[i];
    const TrsDenseParameter *param = layer->context->params->param;
    int64_t n = 0;

    for (int p = layer->first_param; p <= layer->last_param; p++) n += param[p].rows * param[p].cols;
    PetscCall(PetscPrintf(comm,
                          "  %-12s %s of %.4g rows a sample in the mean, %" PRId64 " -> %" PRId64 ", %" PRId64
                          " parameters, %.4g kflop\n",
                          layer->module, layer->ops->word, layer->mean_ids, layer->dim, layer->width, n,
                          layer->ops->flops(layer, layer->mean_ids) / 1e3));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceLayersFree(TrsSequenceLayers *layers)
{
  PetscFunctionBegin;
  for (int i = 0; i < layers->n; i++) {
    TrsSequenceLayer *layer = &layers->layer[i];

    if (layer->ops->free) PetscCall(layer->ops->free(layer));
    PetscCall(TrsDeviceBufferFree(layer->context->device, &layer->memory));
    PetscCall(PetscFree(layer->module));
  }
  PetscCall(PetscFree(layers->layer));
  *layers = (TrsSequenceLayers){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
