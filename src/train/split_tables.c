/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/split_tables.h"

/*
  Adjacent columns of a table, both in this module's matrix and in the model's matrix. With
  two_tower a table may have features in both towers. The columns are then those of some of its
  features.
*/
typedef struct {
  int64_t arrived, model, n; /* first columns in both matrices, and number of columns */
  /* split table: first column, in this module's matrix, of the other part */
  int64_t remainder;
  PetscBool product;
} TrsArrivedColumns;

struct TrsSplitTablesImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  int64_t *columns; /* [features] first columns in this module's matrix */
  int64_t width;
  int n_split, n_plain;
  TrsArrivedColumns *split, *plain; /* [n_split] and [n_plain] */
  TrsColumnCopy *copy;              /* [n_plain] scratch */
  TrsDeviceBuffer rows;
};

/*
  Add a feature's columns to a list. If they are adjacent to the list's last entry, extend this
  entry. Otherwise add an entry. first: the table's first entry.
*/
static void add_columns(TrsArrivedColumns *list, int first, int *n, TrsArrivedColumns columns)
{
  TrsArrivedColumns *last = *n > first ? &list[*n - 1] : NULL;

  if (last && last->model + last->n == columns.model)
    last->n += columns.n;
  else
    list[(*n)++] = columns;
}

/* Assign columns to every feature, and list them. The columns are in the order of tables. */
static void lay_out(TrsSplitTables s, const TrsTableConfigs *tables, const int64_t *model)
{
  int first = 0; /* first entry of the last split table */

  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsIdMapKind kind = table->id_map.kind;
    const int64_t dim = TrsTableColumns(table), begin = s->width;
    const int plain = s->n_plain;

    if (kind == TRS_ID_MAP_QUOTIENT) first = s->n_split;
    for (int k = 0; k < table->n_features; k++, s->width += dim) {
      const TrsArrivedColumns columns = {
          .arrived = s->width, .model = model[f + k], .n = dim, .product = table->multiplied};

      s->columns[f + k] = s->width;
      if (kind == TRS_ID_MAP_QUOTIENT)
        add_columns(s->split, first, &s->n_split, columns);
      else if (kind != TRS_ID_MAP_REMAINDER)
        add_columns(s->plain, plain, &s->n_plain, columns);
    }
    /* Both parts of a split table have their features in the same order. */
    for (int i = first; kind == TRS_ID_MAP_REMAINDER && i < s->n_split; i++)
      s->split[i].remainder = begin + s->split[i].arrived - s->split[first].arrived;
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
  PetscCall(PetscCalloc3((size_t)n_features, &s->split, (size_t)n_features, &s->plain, (size_t)n_features,
                         &s->copy));
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
  PetscCall(PetscFree3(s->split, s->plain, s->copy));
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

/*
  Copy the columns of tables that are not split to the model's matrix. With `back`, copy them from
  this matrix.
*/
static PetscErrorCode copy_plain(TrsSplitTables split, TrsStream stream, int64_t n,
                                 const TrsPooledMatrix *model, PetscBool back)
{
  const TrsPooledMatrix arrived = matrix_of(split);

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < split->n_plain; i++) {
    const TrsArrivedColumns *columns = &split->plain[i];
    const TrsMatrix here = TrsMatrixColumns(arrived.rows, columns->arrived),
                    there = TrsMatrixColumns(model->rows, columns->model);

    split->copy[i] = (TrsColumnCopy){
        .from = back ? there : here, .to = back ? here : there, .cols = columns->n};
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
    const TrsArrivedColumns *columns = &split->split[i];

    PetscCall(split->compute->join_forward(
        stream, n, columns->n, columns->product,
        TrsFloats(TrsPooledFloats(&arrived, columns->arrived), arrived.rows.stride),
        TrsFloats(TrsPooledFloats(&arrived, columns->remainder), arrived.rows.stride),
        TrsFloats(TrsPooledFloats(model, columns->model), model->rows.stride)));
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
    const TrsArrivedColumns *columns = &split->split[i];

    PetscCall(split->compute->join_backward(
        stream, n, columns->n, columns->product, TrsPooledFloats(model, columns->model), model->rows.stride,
        TrsPooledFloats(arrived, columns->arrived), TrsPooledFloats(arrived, columns->remainder),
        arrived->rows.stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
