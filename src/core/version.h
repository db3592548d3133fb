/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's name and version, for the banner, -version and result files. */
#pragma once

#include <stddef.h>

#define TRS_NAME    "trshard"
#define TRS_VERSION "1.0.0"

/* The commit that the program was built from, or "unknown" if it was built outside of git. */
const char *TrsVersionCommit(void);

/*
  The versions of core's libraries at run time: "Open MPI 4.1.4, PETSc 3.18.5". Not collective.
  text: [n], always ended by 0.
*/
void TrsVersionLibraries(char *text, size_t n);
