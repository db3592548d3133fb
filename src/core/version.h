/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's name and version, for the banner, -version and result files. */
#pragma once

#include <stddef.h>

#define TRS_NAME    "trshard"
#define TRS_VERSION "1.0.0"

/*
  Return the commit from which the program was built, or "unknown" if it was built outside of git.
*/
const char *TrsVersionCommit(void);

/*
  Write the versions of core's libraries at run time, such as "Open MPI 4.1.4, PETSc 3.18.5", to
  text [n], which always ends with 0. Not collective.
*/
void TrsVersionLibraries(char *text, size_t n);
