/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/product_table.h"

#include "core/file_text.h"
#include "core/print.h"
#include "core/trust.h"

#include <inttypes.h>
#include <string.h>

static const int64_t max_bytes = (int64_t)1 << 20;

/* Read the text on rank 0. Free it with PetscFree(). */
static PetscErrorCode read_text(const char *path, char **text)
{
  TrsFileText file;

  PetscFunctionBegin;
  PetscCall(TrsFileTrust(path));
  PetscCall(TrsFileReadText(path, max_bytes, &file));
  PetscCheck(file.outcome != TRS_FILE_UNREADABLE, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "-dense_product_table %s can't be read: %s", path, strerror(file.error));
  PetscCheck(file.outcome != TRS_FILE_FOLDER, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "-dense_product_table %s can't be read: it is a directory", path);
  PetscCheck(file.outcome != TRS_FILE_IRREGULAR, PETSC_COMM_SELF, TRS_ERR_DATA,
             "-dense_product_table %s is not a regular file", path);
  PetscCheck(file.outcome != TRS_FILE_TOO_LARGE, PETSC_COMM_SELF, TRS_ERR_DATA,
             "-dense_product_table %s has %" PRId64 " bytes; at most %" PRId64 " are read", path,
             file.n_bytes, max_bytes);
  *text = file.text;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get rank 0's text on all ranks. Free it with PetscFree(). */
static PetscErrorCode share_text(MPI_Comm comm, int rank, const char *path, char **text)
{
  int bytes = 0;

  PetscFunctionBegin;
  PetscCall(TrsAgree(comm, rank == 0 ? read_text(path, text) : PETSC_SUCCESS));
  if (rank == 0) bytes = (int)strlen(*text) + 1;
  PetscCallMPI(MPI_Bcast(&bytes, 1, MPI_INT, 0, comm));
  if (rank != 0) PetscCall(PetscMalloc1((size_t)bytes, text));
  PetscCallMPI(MPI_Bcast(*text, bytes, MPI_CHAR, 0, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductTableFromOptions(TrsOptions options, MPI_Comm comm, const TrsComputeOps *compute,
                                          PetscBool reproducible)
{
  TrsProductTable table = {.n = 0};
  const char *path = NULL, *wrong = NULL, *missing;
  char *text = NULL;
  int rank = 0, line;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-dense_product_table", &path, NULL));
  if (path) {
    if (reproducible)
      PetscCall(TrsOptionError(options, "-dense_product_table",
                               "-reproducible needs the algorithm that a shape names"));
    PetscCallMPI(MPI_Comm_rank(comm, &rank));
    PetscCall(share_text(comm, rank, path, &text));
    PetscCall(TrsProductTableParse(text, &table, &line, &wrong));
    PetscCall(PetscFree(text));
    if (wrong)
      PetscCall(TrsOptionError(options, "-dense_product_table", "%s, line %d: %s", path, line, wrong));
  }
  PetscCall(compute->product_table(&table, &missing));
  if (missing && rank == 0)
    TrsPrint(stderr, "trshard: info: -dense_product_table %s has no algorithms for [%s]\n", path, missing);
  PetscFunctionReturn(PETSC_SUCCESS);
}
