/* SPDX-License-Identifier: BSD-3-Clause */
/* Read datasets for the caller's own training loop. */
#include "api/impl.h"
#include "data/data_mapping.h"
#include "io/dataset.h"

struct TrshardReaderImpl {
  TrshardCollection collection;
  TrsOptions options;
  TrsDataset dataset;
  const TrsDatasetInfo *info;
  TrsReader reader;
  TrsBatch *batch;    /* the batch whose memory the caller reads */
  TrshardReader next; /* next open reader of the collection */
};

/*
  Ask the reader for all labels of the samples. If a sample has a single label, it must be a
  probability (-data_check).
*/
static PetscErrorCode set_labels(TrshardReader r)
{
  TrsReaderLabel *labels;

  PetscFunctionBegin;
  if (!r->info->has_labels) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(r->info->n_labels, &labels));
  for (int i = 0; i < r->info->n_labels; i++)
    labels[i] = (TrsReaderLabel){.place = i,
                                 .kind = r->info->n_labels > 1 ? TRS_LABEL_NUMBER : TRS_LABEL_PROBABILITY};
  PetscCall(TrsReaderSetLabels(r->reader, r->info->n_labels, labels));
  PetscCall(PetscFree(labels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_reader(TrshardCollection c, int32_t n_paths, const char *const *paths,
                                  const char *options, int64_t step, TrshardReader *reader)
{
  TrsMapping mapping;
  TrshardReader r;

  PetscFunctionBegin;
  PetscCheck(n_paths > 0 && paths && step >= 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TrshardReaderOpen: n_paths is %d and step %lld, expected one path or more, and 0 or more",
             (int)n_paths, (long long)step);
  for (int32_t i = 0; i < n_paths; i++)
    PetscCheck(paths[i], PETSC_COMM_SELF, TRS_ERR_OPTION, "TrshardReaderOpen: paths[%d] is NULL", (int)i);
  PetscCall(TrsApiHandleCreate(sizeof(*r), &r));
  *reader = r; /* set also after an error: the caller frees it with Close */
  r->collection = c;
  r->next = c->readers;
  c->readers = r;
  PetscCall(TrsApiReaderOptions(c->comm, c->batch_size, options, &r->options));
  PetscCall(TrsDatasetOpen(c->comm, n_paths, paths, &r->dataset));
  PetscCall(TrsReaderChooseDense(r->options, r->dataset));
  PetscCall(TrsDataMappingCheck(c->comm, r->dataset));
  PetscCall(TrsDatasetGetInfo(r->dataset, &r->info));
  mapping = TrsDataMapping(r->info);
  PetscCall(TrsApiKeepMapping(c, &mapping, &c->of_data));
  PetscCall(TrsReaderCreate(c->comm, &r->reader));
  PetscCall(TrsReaderSetFromOptions(r->reader, r->options, PETSC_TRUE));
  PetscCall(TrsReaderSetDataset(r->reader, r->dataset));
  PetscCall(TrsReaderSetTables(r->reader, r->info, &c->tables, PETSC_FALSE));
  PetscCall(set_labels(r));
  PetscCall(TrsReaderSetStart(r->reader, step));
  PetscCall(TrsReaderSetUp(r->reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode next(TrshardReader r, TrshardSamples *samples, int32_t *more)
{
  PetscFunctionBegin;
  PetscCall(TrsApiGiven(samples, "TrshardReaderNext", "samples"));
  PetscCall(TrsApiGiven(more, "TrshardReaderNext", "more"));
  if (r->batch) PetscCall(TrsReaderReturn(r->reader, &r->batch));
  PetscCall(TrsAgree(r->collection->comm, TrsReaderNext(r->reader, &r->batch)));
  *more = r->batch != NULL;
  if (!r->batch) PetscFunctionReturn(PETSC_SUCCESS);
  *samples = (TrshardSamples){.ids = {.batch = r->batch->batch,
                                      .lengths = r->batch->kjt.jagged.lengths,
                                      .n_values = r->batch->kjt.jagged.n_values,
                                      .values = r->batch->kjt.jagged.values,
                                      .weights = r->batch->kjt.jagged.weights},
                              .num_dense = r->info->num_dense,
                              .n_labels = r->batch->n_labels,
                              .dense = r->info->num_dense ? r->batch->dense : NULL,
                              .labels = r->batch->labels,
                              .weights = r->batch->weights,
                              .step = r->batch->step,
                              .epoch = r->batch->epoch,
                              .global_batch = r->batch->global_batch};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_reader(TrshardReader r)
{
  TrshardReader *at = &r->collection->readers;

  PetscFunctionBegin;
  if (!TrsApiHandleTake(r)) PetscFunctionReturn(PETSC_SUCCESS);
  while (*at != r) at = &(*at)->next;
  *at = r->next;
  if (r->batch) PetscCall(TrsReaderReturn(r->reader, &r->batch));
  if (r->reader) PetscCall(TrsReaderDestroy(&r->reader));
  if (r->dataset) PetscCall(TrsDatasetClose(&r->dataset));
  PetscCall(TrsOptionsDestroy(&r->options));
  TrsApiHandleFree(r);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiReadersClose(TrshardCollection c)
{
  PetscFunctionBegin;
  while (c->readers) PetscCall(close_reader(c->readers));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardReaderOpen(TrshardCollection c, int32_t n_paths, const char *const *paths, const char *options,
                      int64_t step, TrshardReader *reader)
{
  int status;

  if (!reader) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "reader"));
  *reader = NULL;
  status = TRS_API_CALL_OF(c, open_reader(c, n_paths, paths, options, step, reader));
  if (status == TRSHARD_SUCCESS) return status;
  if (*reader) TRS_API_CLEAR(close_reader(*reader));
  *reader = NULL;
  return status;
}

int TrshardReaderNext(TrshardReader reader, TrshardSamples *samples, int32_t *more)
{
  return TRS_API_CALL_WITH(reader, "reader", next(reader, samples, more));
}

int TrshardReaderClose(TrshardReader *reader)
{
  const TrshardReader r = reader ? *reader : NULL;

  if (reader) *reader = NULL;
  return r ? TRS_API_CALL_WITH(r, "reader", close_reader(r)) : TRSHARD_SUCCESS;
}
