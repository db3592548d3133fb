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

/*
  TrsFileReadOption - Read the file that an option names. It must be trusted (core/trust.h).

  Not collective.

  In:     option    name of the option, for messages
          expected  the kind of file that the option takes, for a message
  Out:    text      ends with 0; free with PetscFree()
  Errors: NO_INPUT if it is missing, unreadable or a directory; DATA if it is another kind of file
          or has more than max_bytes bytes; OPTION if it is not trusted; MEMORY
*/
PetscErrorCode TrsFileReadOption(const char *option, const char *path, const char *expected,
                                 int64_t max_bytes, char **text);
