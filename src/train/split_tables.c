/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/split_tables.h"

/* A table with its columns in this module's matrix and in the model's. */
typedef struct {
  int64_t arrived, model, n; /* first columns, and how many: those of all features */
  int64_t remainder;         /* of a split table: first column of the other part, as it arrives */
  PetscBool product;
} TrsArrivedTable;

struct TrsSplitTablesImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  int64_t *columns; /* [features] in this module's matrix */
  int64_t width;
  int n_split, n_plain;
  TrsArrivedTable *split, *plain; /* [n_split], [n_plain] */
  TrsColumnCopy *copy;            /* [n_plain] scratch */
  TrsDeviceBuffer rows;
};

/* Give every feature its columns, tables side by side in their order, and list the tables. */
static void lay_out(TrsSplitTables s, const TrsTableConfigs *tables, const int64_t *model)
{
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsIdMapKind kind = table->id_map.kind;
    const int64_t dim = TrsTableColumns(table);
    const TrsArrivedTable place = {
        .arrived = s->width, .model = model[f], .n = dim * table->n_features, .product = table->multiplied};

    for (int k = 0; k < table->n_features; k++) s->columns[f + k] = s->width + k * dim;
    s->width += place.n;
    if (kind == TRS_ID_MAP_REMAINDER)
      s->split[s->n_split - 1].remainder = place.arrived;
    else if (kind == TRS_ID_MAP_QUOTIENT)
      s->split[s->n_split++] = place;
    else
      s->plain[s->n_plain++] = place;
  }
}

PetscErrorCode TrsSplitTablesCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                    const TrsTableConfigs *tables, const int64_t *model,
                                    TrsSplitTables *split)
{
  int n_features = 0, n_split = 0;
  TrsSplitTables s;

  PetscFunctionBegin;
  *split = NULL;
  for (int t = 0; t < tables->n; t++) {
    n_features += tables->table[t].n_features;
    n_split += tables->table[t].id_map.kind == TRS_ID_MAP_QUOTIENT;
  }
  if (n_split == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&s));
  s->device = device;
  s->compute = compute;
  PetscCall(PetscCalloc1((size_t)n_features, &s->columns));
  PetscCall(PetscCalloc1((size_t)n_split, &s->split));
  PetscCall(PetscCalloc1((size_t)tables->n, &s->plain));
  PetscCall(PetscCalloc1((size_t)tables->n, &s->copy));
  lay_out(s, tables, model);
  *split = s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSplitTablesDestroy(TrsSplitTables *split)
{
  TrsSplitTables s = *split;

  PetscFunctionBegin;
  if (!s) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(s->device, &s->rows));
  PetscCall(PetscFree(s->columns));
  PetscCall(PetscFree(s->split));
  PetscCall(PetscFree(s->plain));
  PetscCall(PetscFree(s->copy));
  PetscCall(PetscFree(*split));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const int64_t *TrsSplitTablesColumns(TrsSplitTables split)
{
  return split->columns;
}

static TrsPooledMatrix matrix_of(TrsSplitTables split)
{
  return (TrsPooledMatrix){.rows = TrsFloats((const float *)split->rows.data, split->width),
                           .columns = split->columns};
}

PetscErrorCode TrsSplitTablesRows(TrsSplitTables split, int64_t n, TrsPooledMatrix *arrived)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_ACTIVATIONS);

  PetscFunctionBegin;
  PetscCall(
      TrsDeviceBufferReserveShared(split->device, &split->rows, n * split->width * (int64_t)sizeof(float)));
  (void)TrsMemoryFor(before);
  *arrived = matrix_of(split);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the tables that are not split to the model's matrix, or with `back` from it. */
static PetscErrorCode copy_plain(TrsSplitTables split, TrsStream stream, int64_t n,
                                 const TrsPooledMatrix *model, PetscBool back)
{
  const TrsPooledMatrix arrived = matrix_of(split);

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < split->n_plain; i++) {
    const TrsArrivedTable *table = &split->plain[i];
    const TrsMatrix here = TrsMatrixColumns(arrived.rows, table->arrived),
                    there = TrsMatrixColumns(model->rows, table->model);

    split->copy[i] = (TrsColumnCopy){
        .from = back ? there : here, .to = back ? here : there, .cols = table->n};
  }
  PetscCall(split->compute->copy_columns(stream, n, split->n_plain, split->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSplitTablesForward(TrsSplitTables split, TrsStream stream, int64_t n,
                                     const TrsPooledMatrix *model)
{
  const TrsPooledMatrix arrived = matrix_of(split);

  PetscFunctionBegin;
  PetscCall(copy_plain(split, stream, n, model, PETSC_FALSE));
  for (int i = 0; n > 0 && i < split->n_split; i++) {
    const TrsArrivedTable *table = &split->split[i];

    PetscCall(split->compute->join_forward(stream, n, table->n, table->product,
                                           TrsPooledFloats(&arrived, table->arrived), arrived.rows.stride,
                                           TrsPooledFloats(&arrived, table->remainder), arrived.rows.stride,
                                           TrsPooledFloats(model, table->model), model->rows.stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSplitTablesBackward(TrsSplitTables split, TrsStream stream, int64_t n,
                                      const TrsPooledMatrix *model, TrsPooledMatrix *arrived)
{
  PetscFunctionBegin;
  *arrived = matrix_of(split);
  PetscCall(copy_plain(split, stream, n, model, PETSC_TRUE));
  for (int i = 0; n > 0 && i < split->n_split; i++) {
    const TrsArrivedTable *table = &split->split[i];

    PetscCall(split->compute->join_backward(
        stream, n, table->n, table->product, TrsPooledFloats(model, table->model), model->rows.stride,
        TrsPooledFloats(arrived, table->arrived), TrsPooledFloats(arrived, table->remainder),
        arrived->rows.stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
