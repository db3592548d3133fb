/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: read a checkpoint file as a resume does. For any bytes, the result must be the
  tensors of a small model, or one error with a documented code. If FUZZ_WRITE=FILE is in the
  environment, the program writes this model's checkpoint, as a seed with checksums, and ends.
*/
#include "core/start.h"
#include "fuzz_file.h"
#include "io/checkpoint/checkpoint.h"

#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 6, COLS = 4 };
static float weight[ROWS * COLS], momentum[ROWS], bias[3];
static int64_t count[ROWS];
static TrsState state;

static PetscErrorCode create_state(void)
{
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(TrsStateAdd(&state, "embedding/a/weight", TRS_FP32, 2, ROWS, COLS, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, COLS, weight, COLS));
  PetscCall(TrsStateAdd(&state, "embedding/a/momentum1", TRS_FP32, 1, ROWS, 1, &tensor));
  tensor->optional = PETSC_TRUE;
  tensor->optimizer = "rowwise_adagrad";
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, 1, momentum, 1));
  PetscCall(TrsStateAdd(&state, "embedding/a/count", TRS_INT64, 1, ROWS, 1, &tensor));
  tensor->optional = PETSC_TRUE;
  PetscCall(TrsStateAddPart(tensor, 0, 0, ROWS, 1, count, 1));
  PetscCall(TrsStateAdd(&state, "dense/over_arch/0/bias", TRS_FP32, 1, 3, 1, &tensor));
  PetscCall(TrsStateAddPart(tensor, 0, 0, 3, 1, bias, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  const TrsCheckpointInfo info = {.step = 3, .options = "-steps 3", .plan = "{}"};
  const char *seed = getenv("FUZZ_WRITE");

  (void)argc;
  if (fuzz_file_create() || TrsStart(1, *argv) || create_state()) return 1;
  if (seed) _exit(TrsCheckpointWrite(PETSC_COMM_SELF, seed, &state, &info) ? 1 : 0);
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
