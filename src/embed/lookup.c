/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/lookup.h"

struct TrsLookupImpl {
  const TrsComputeOps *compute;
  TrsWorkspace workspace;
  int *shard_of_table; /* [tbe.n_tables] */
  TrsTbeTable *table;
  TrsTbeFeature *feature;
  TrsTbe tbe;
};

/* The kernel's number of a shard, adding it when it is new. */
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
  l->compute = compute;
  PetscCall(compute->workspace_create(&l->workspace));
  PetscCall(PetscCalloc3((size_t)PetscMax(n, 1), &l->shard_of_table, (size_t)PetscMax(n, 1), &l->table,
                         (size_t)PetscMax(n, 1), &l->feature));
  l->tbe = (TrsTbe){.n_features = n, .table = l->table, .feature = l->feature};
  for (int f = 0; f < n; f++)
    l->feature[f] = (TrsTbeFeature){.table = table_of(l, shards, feature[f].shard),
                                    .mean = feature[f].mean ? 1 : 0,
                                    .out_column = feature[f].out_column};
  *lookup = l;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupDestroy(TrsLookup *lookup)
{
  PetscFunctionBegin;
  if (!*lookup) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*lookup)->compute->workspace_destroy(&(*lookup)->workspace));
  PetscCall(PetscFree3((*lookup)->shard_of_table, (*lookup)->table, (*lookup)->feature));
  PetscCall(PetscFree(*lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsTbeInput input_of(const TrsKjt *kjt)
{
  return (TrsTbeInput){.batch = kjt->batch,
                       .offsets = kjt->jagged.offsets,
                       .values = kjt->jagged.values,
                       .weights = kjt->jagged.weights,
                       .n_values = kjt->jagged.n_values};
}

PetscErrorCode TrsLookupForward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                int64_t stride)
{
  const TrsTbeInput input = input_of(kjt);

  PetscFunctionBegin;
  if (lookup->tbe.n_features == 0 || kjt->batch == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(lookup->compute->tbe_forward(stream, lookup->workspace, &lookup->tbe, &input, out, stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupBackward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                 int64_t stride, const TrsSparseOptimizerArgs *args)
{
  const TrsTbeInput input = input_of(kjt);

  PetscFunctionBegin;
  if (lookup->tbe.n_features == 0 || kjt->batch == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(lookup->compute->tbe_backward(stream, lookup->workspace, &lookup->tbe, &input, grad, stride, 0.0F,
                                          args, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupForwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                    int64_t stride)
{
  const TrsTbeInput input = input_of(kjt);

  PetscFunctionBegin;
  if (lookup->tbe.n_features == 0 || kjt->batch == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(lookup->compute->tbe_forward_rows(stream, lookup->workspace, &lookup->tbe, &input, out, stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupRowGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                     int64_t stride, int64_t *row_begin, int64_t *rows, float *row_grad,
                                     int64_t row_stride)
{
  const TrsTbeInput input = input_of(kjt);

  PetscFunctionBegin;
  PetscCall(lookup->compute->tbe_row_gradients(stream, lookup->workspace, &lookup->tbe, &input, grad, stride,
                                               0.0F, row_begin, rows, row_grad, row_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookupTables(TrsLookup lookup, int *n_tables, const TrsTbeTable **tables)
{
  PetscFunctionBegin;
  *n_tables = lookup->tbe.n_tables;
  *tables = lookup->table;
  PetscFunctionReturn(PETSC_SUCCESS);
}
