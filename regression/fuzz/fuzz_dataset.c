/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: open a dataset file. For any bytes, the result must be a dataset whose samples
  can be read, or one error with a documented code.
*/
#include "core/buffer.h"
#include "core/start.h"
#include "fuzz_file.h"
#include "io/dataset.h"

#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SAMPLES = 1 << 12 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc;
  return fuzz_file_create() || TrsStart(1, *argv) ? 1 : 0;
}

static PetscErrorCode read_all(TrsDataset dataset, const TrsDatasetInfo *info, const TrsSampleRows *rows)
{
  TrsRowRun run = {.n = info->num_samples};
  TrsFault fault = {.code = PETSC_SUCCESS};
  void *values;

  PetscFunctionBegin;
  PetscCall(TrsDatasetReadSamples(dataset, 1, &run, rows, &fault));
  run.n = info->num_values;
  if (run.n > MAX_SAMPLES) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(run.n + 1, info->value_bytes, &values));
  (void)TrsDatasetReadValues(dataset, 1, &run, values, NULL, &fault);
  PetscCall(TrsFree(&values));
  PetscCall(TrsFaultRaise(&fault));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_samples(TrsDataset dataset)
{
  const TrsDatasetInfo *info;
  TrsSampleRows rows = {.dense = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  if (info->num_samples > MAX_SAMPLES) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(info->num_samples * info->num_dense + 1, sizeof(float), &rows.dense));
  PetscCall(TrsAlloc(info->num_samples * info->n_features + 1, sizeof(int32_t), &rows.lengths));
  PetscCall(TrsAlloc(info->num_samples + 1, sizeof(int64_t), &rows.offsets));
  ierr = read_all(dataset, info, &rows);
  PetscCall(TrsFree(&rows.dense));
  PetscCall(TrsFree(&rows.lengths));
  PetscCall(TrsFree(&rows.offsets));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const char *name = fuzz_file_write(data, size);
  TrsDataset dataset = NULL;
  PetscErrorCode ierr;

  if (!name) return 0;
  ierr = TrsDatasetOpen(PETSC_COMM_SELF, 1, &name, &dataset);
  if (!ierr) ierr = read_samples(dataset);
  if (ierr && ierr != TRS_ERR_DATA && ierr != TRS_ERR_NO_INPUT && ierr != TRS_ERR_IO) abort();
  (void)TrsDatasetClose(&dataset);
  TrsErrorClear();
  return 0;
}
