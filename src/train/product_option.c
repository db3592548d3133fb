/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/product_option.h"

#include "core/file_text.h"
#include "core/print.h"

#include <string.h>

static const int64_t max_bytes = (int64_t)1 << 20;

/* Get rank 0's text on all ranks. Free it with PetscFree(). */
static PetscErrorCode share_text(MPI_Comm comm, int rank, const char *path, char **text)
{
  int bytes = 0;

  PetscFunctionBegin;
  PetscCall(TrsAgree(comm, rank == 0 ? TrsFileReadOption("-dense_product_table", path, "a table of products",
                                                         max_bytes, text)
                                     : PETSC_SUCCESS));
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
