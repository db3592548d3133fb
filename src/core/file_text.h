/* SPDX-License-Identifier: BSD-3-Clause */
/* Input files that are read as a whole: option files, YAML and plans. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef enum {
  TRS_FILE_READ,
  TRS_FILE_UNREADABLE, /* missing, or a disk error; `error` has the reason */
  TRS_FILE_FOLDER,
  TRS_FILE_IRREGULAR, /* a FIFO, device or socket, which could block forever or never end */
  TRS_FILE_TOO_LARGE
} TrsFileOutcome;

typedef struct {
  TrsFileOutcome outcome;
  int error;       /* errno if the outcome is TRS_FILE_UNREADABLE */
  int64_t n_bytes; /* size of the text, or of a file that is too large */
  /* [n_bytes + 1] ends with 0; free with PetscFree(). NULL if the outcome is not TRS_FILE_READ */
  char *text;
} TrsFileText;

/*
  TrsFileReadText - Read a regular file of at most max_bytes bytes.

  Not collective. If the file is a FIFO, the function does not wait. On a failure, the outcome has
  the reason, which the caller must report.

  Out:    file  filled in even after a failure
  Errors: MEMORY
*/
PetscErrorCode TrsFileReadText(const char *path, int64_t max_bytes, TrsFileText *file);
