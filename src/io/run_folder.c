/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/run_folder.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

PetscErrorCode TrsRunIdMake(MPI_Comm comm, char id[TRS_RUN_ID_SIZE])
{
  uint64_t bits = 0;

  PetscFunctionBegin;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != (ssize_t)sizeof(bits))
    bits = ((uint64_t)time(NULL) << 32) ^ ((uint64_t)getpid() << 8) ^ (uint64_t)clock();
  PetscCallMPI(MPI_Bcast(&bits, 1, MPI_UINT64_T, 0, comm));
  snprintf(id, TRS_RUN_ID_SIZE, "%016" PRIx64, bits);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsRunIdIsValid(const char *text)
{
  return (PetscBool)(strlen(text) == TRS_RUN_ID_SIZE - 1 &&
                     strspn(text, "0123456789abcdef") == TRS_RUN_ID_SIZE - 1);
}
