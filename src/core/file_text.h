/* SPDX-License-Identifier: BSD-3-Clause */
/* Input files that are read as a whole: option files, YAML, plans. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef enum {
  TRS_FILE_READ,
  TRS_FILE_UNREADABLE, /* missing, or an error of its disk: `error` says which */
  TRS_FILE_FOLDER,
  TRS_FILE_IRREGULAR, /* a FIFO, device or socket: it could block for ever, or never end */
  TRS_FILE_TOO_LARGE
} TrsFileOutcome;

typedef struct {
  TrsFileOutcome outcome;
  int error;       /* errno of TRS_FILE_UNREADABLE */
  int64_t n_bytes; /* of the text, or of a file that is too large */
  char *text;      /* [n_bytes + 1] ends in 0; free with PetscFree(). NULL unless TRS_FILE_READ */
} TrsFileText;

/*
  TrsFileReadText - Read a regular file of at most max_bytes. The outcome tells what stood in the way; the caller says so in its own words.

  Not collective. Never waits for a FIFO.

  Out:    file  also after a failure
  Errors: MEMORY
*/
PetscErrorCode TrsFileReadText(const char *path, int64_t max_bytes, TrsFileText *file);
