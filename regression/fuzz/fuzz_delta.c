/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: read a delta as a predictor does. For any bytes, the result must be the changed
  rows of a small model, or one error with a documented code. Rows and ids must be in range. If
  FUZZ_WRITE=FILE is in the environment, the program writes a delta, as a seed with checksums, and
  ends.
*/
#include "core/start.h"
#include "fuzz_file.h"
#include "io/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 8, BUCKETS = 2, COLS = 4, CHANGED = 3 };
static float bias[3];
static TrsState state;  /* what is read */
static int64_t n_taken; /* rows that keep_rows() got */

/* --- the seed --- */

typedef struct {
  const char *path;
  TrsDType dtype;
  int ndim;
  int64_t cols, rows;
  const void *data;
} list;

static const int32_t changed[CHANGED] = {1, 4, 7};
static const int64_t ids[CHANGED] = {10, 21, 0}, used[BUCKETS] = {3, 4};
static const uint8_t held[CHANGED] = {1, 1, 0};
static const float weight[CHANGED * COLS] = {1, 2, 3};
static list lists[] = {{"embedding/a/delta/rows", TRS_INT32, 1, 1, CHANGED, changed},
                       {"embedding/a/delta/ids", TRS_INT64, 1, 1, CHANGED, ids},
                       {"embedding/a/delta/held", TRS_UINT8, 1, 1, CHANGED, held},
                       {"embedding/a/delta/used", TRS_INT64, 1, 1, BUCKETS, used},
                       {"embedding/a/weight", TRS_FP32, 2, COLS, CHANGED, weight}};

static PetscErrorCode count_rows(void *context, int64_t *rows)
{
  rows[0] = ((const list *)context)->rows;
  return PETSC_SUCCESS;
}

static PetscErrorCode give_rows(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const list *l = context;
  const int64_t bytes = l->cols * TrsDTypeBytes(l->dtype);

  (void)part;
  memcpy(rows, (const char *)l->data + first * bytes, (size_t)(n * bytes));
  return PETSC_SUCCESS;
}

static PetscErrorCode write_seed(const char *path)
{
  TrsCheckpointInfo info = {.step = 5, .options = "-steps 5", .plan = "{}", .is_delta = PETSC_TRUE};
  TrsStateTensor *tensor;
  TrsState delta = {0};

  PetscFunctionBegin;
  info.place = (TrsDeltaPlace){
      .base = "0123456789abcdef", .id = "0123456789abcdef", .base_step = 3, .step = 3};
  PetscCall(TrsStateAdd(&delta, "dense/over_arch/0/bias", TRS_FP32, 1, 3, 1, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, 3, 1, bias, 1));
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    list *l = &lists[i];

    PetscCall(TrsStateAdd(&delta, l->path, l->dtype, l->ndim, 0, l->cols, &tensor));
    PetscCall(TrsStateAddPart(tensor, 0, 0, 0, l->cols, NULL, l->cols));
    tensor->count = count_rows;
    tensor->give = give_rows;
    tensor->give_context = tensor->list_context = l;
    tensor->n_units = 1;
    if (i > 0) continue;
    tensor->attribute[tensor->n_attributes++] = (TrsStateAttribute){.name = "num_embeddings", .number = ROWS};
    tensor->attribute[tensor->n_attributes++] = (TrsStateAttribute){.name = "buckets", .number = BUCKETS};
  }
  PetscCall(TrsCheckpointWrite(PETSC_COMM_SELF, path, &delta, &info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- reading --- */

static PetscErrorCode keep_rows(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  volatile char last = ((const char *)rows)[n * COLS * TrsDTypeBytes(dtype) - 1];

  (void)context;
  (void)last;
  if (part != 0 || first < 0 || n < 1 || first + n > ROWS) abort();
  n_taken += n;
  return PETSC_SUCCESS;
}

static PetscErrorCode create_state(void)
{
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(TrsStateAdd(&state, "dense/over_arch/0/bias", TRS_FP32, 1, 3, 1, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, 3, 1, bias, 1));
  PetscCall(TrsStateAdd(&state, "embedding/a/weight", TRS_FP32, 2, ROWS, COLS, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, COLS, NULL, COLS));
  tensor->rows_of = "a";
  tensor->take = keep_rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  const char *seed = getenv("FUZZ_WRITE");

  (void)argc;
  if (fuzz_file_create() || TrsStart(1, *argv) || create_state()) return 1;
  if (seed) exit(write_seed(seed) ? 1 : 0);
  return 0;
}

/* An error must have a documented code. */
static void check(PetscErrorCode ierr)
{
  if (ierr && ierr != TRS_ERR_DATA && ierr != TRS_ERR_NO_INPUT && ierr != TRS_ERR_IO) abort();
  TrsErrorClear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  TrsDeltaTable table = {
      .table = "a", .rows = ROWS, .buckets = size % 4 ? BUCKETS : 0, .grows = (PetscBool)(size % 2)};
  TrsDeltaPlace place = {.base = "0123456789abcdef", .id = "0123456789abcdef"};
  const char *name = fuzz_file_write(data, size);
  PetscErrorCode ierr;
  TrsDeltaInfo info;
  TrsDeltaFit fit;

  if (!name) return 0;
  ierr = TrsDeltaReadInfo(name, &info);
  if (!ierr) check(TrsDeltaFollow(name, &info, "0123456789abcdef", 3, &place, &fit));
  check(ierr);
  n_taken = 0;
  ierr = TrsDeltaRead(name, &state, 1, &table);
  if (!ierr && n_taken != table.n) abort();
  for (int64_t i = 0; !ierr && i < table.n; i++)
    if (table.row[i] < 0 || table.row[i] >= ROWS || (table.buckets && !(table.held && table.id))) abort();
  check(ierr);
  check(TrsDeltaTableFree(&table));
  return 0;
}
