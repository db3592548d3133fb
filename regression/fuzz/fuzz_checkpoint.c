/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: read a checkpoint file as a resume does. For any bytes, the result must be the
  tensors of a small model, or one error with a documented code. The file may be an increment of a
  full checkpoint in its folder. If FUZZ_WRITE=FILE is in the environment, the program writes this
  model's checkpoint and an increment (FILE_increment), as seeds with checksums, and ends.
*/
#include "core/start.h"
#include "fuzz_file.h"
#include "io/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 6, COLS = 4, CHANGED = 2 };
static float weight[ROWS * COLS], momentum[ROWS], bias[3];
static int64_t count[ROWS];
static TrsState state, increment;

static PetscErrorCode count_changed(void *context, int64_t *rows)
{
  (void)context;
  rows[0] = CHANGED;
  return PETSC_SUCCESS;
}

/* Give the first rows of the tensor `context`; without a tensor, their numbers. */
static PetscErrorCode give_changed(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const TrsStateTensor *from = context;
  const int64_t bytes = from ? from->cols * TrsDTypeBytes(from->dtype) : 0;

  (void)part;
  if (from) memcpy(rows, (const char *)from->part->data + first * bytes, (size_t)(n * bytes));
  for (int64_t i = 0; !from && i < n; i++) ((int32_t *)rows)[i] = (int32_t)(first + i);
  return PETSC_SUCCESS;
}

static PetscErrorCode add_list(TrsStateTensor *from, const char *path, TrsDType dtype, int ndim, int64_t cols)
{
  TrsStateTensor *list;

  PetscFunctionBegin;
  PetscCall(TrsStateAdd(&increment, path, dtype, ndim, 0, cols, &list));
  PetscCall(TrsStateAddPart(list, 0, 0, 0, cols, NULL, cols));
  list->count = count_changed;
  list->give = give_changed;
  list->give_context = from;
  list->n_units = 1;
  if (!from)
    list->attribute[list->n_attributes++] = (TrsStateAttribute){.name = "num_embeddings", .number = ROWS};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_increment(void)
{
  PetscFunctionBegin;
  PetscCall(add_list(NULL, "embedding/a/delta/rows", TRS_INT32, 1, 1));
  for (int i = 0; i < state.n; i++) {
    TrsStateTensor *from = &state.tensor[i], *copy;

    if (from->rows_of)
      PetscCall(add_list(from, from->path, from->dtype, from->ndim, from->cols));
    else
      PetscCall(TrsStateCopy(from, &increment, &copy));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the full checkpoint, and an increment of it if `seed` is the seeds' path. */
static PetscErrorCode write_files(const char *seed)
{
  char id[TRS_FILE_ID_SIZE], path[4096];
  TrsCheckpointInfo info = {.step = 1, .options = "-steps 3", .plan = "{}", .id = id};

  PetscFunctionBegin;
  PetscCall(TrsCheckpointWrite(PETSC_COMM_SELF, fuzz_earlier, &state, &info));
  if (!seed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCheckpointWrite(PETSC_COMM_SELF, seed, &state, &info));
  info.chain = (TrsDeltaPlace){.base_step = 1, .step = 1};
  PetscCall(PetscStrncpy(info.chain.base, id, sizeof(info.chain.base)));
  PetscCall(PetscStrncpy(info.chain.id, id, sizeof(info.chain.id)));
  info.step = 3;
  info.is_increment = PETSC_TRUE;
  snprintf(path, sizeof(path), "%s_increment", seed);
  PetscCall(create_increment());
  PetscCall(TrsCheckpointWrite(PETSC_COMM_SELF, path, &increment, &info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_state(void)
{
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(TrsStateAdd(&state, "embedding/a/weight", TRS_FP32, 2, ROWS, COLS, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, COLS, weight, COLS));
  tensor->rows_of = "a";
  PetscCall(TrsStateAdd(&state, "embedding/a/momentum1", TRS_FP32, 1, ROWS, 1, &tensor));
  tensor->optional = PETSC_TRUE;
  tensor->optimizer = "rowwise_adagrad";
  tensor->rows_of = "a";
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, 1, momentum, 1));
  PetscCall(TrsStateAdd(&state, "embedding/a/count", TRS_INT64, 1, ROWS, 1, &tensor));
  tensor->optional = PETSC_TRUE;
  tensor->rows_of = "a";
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, 1, count, 1));
  PetscCall(TrsStateAdd(&state, "dense/over_arch/0/bias", TRS_FP32, 1, 3, 1, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, 3, 1, bias, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  const char *seed = getenv("FUZZ_WRITE");

  (void)argc;
  if (fuzz_file_create() || TrsStart(1, *argv) || create_state() || write_files(seed)) return 1;
  if (seed) exit(0);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const TrsCheckpointWanted wanted[] = {{.initial = PETSC_FALSE},
                                        {.initial = PETSC_TRUE, .grow = PETSC_TRUE}};
  const char *name = fuzz_file_write(data, size);
  TrsCheckpointInfo info = {.step = 0};
  PetscErrorCode ierr;

  if (!name) return 0;
  ierr = TrsCheckpointReadWanted(PETSC_COMM_SELF, name, &state, &wanted[size % 2], &info);
  if (ierr && ierr != TRS_ERR_DATA && ierr != TRS_ERR_NO_INPUT && ierr != TRS_ERR_IO) abort();
  if (!ierr) (void)TrsCheckpointInfoFree(&info);
  TrsErrorClear();
  return 0;
}
