/* SPDX-License-Identifier: BSD-3-Clause */
/* Who we are: for the banner, -version and result files. */
#pragma once

#include <stddef.h>

#define TRS_NAME    "trshard"
#define TRS_VERSION "1.0.0"

/* Commit the program was built from, "unknown" when built outside of git. */
const char *TrsVersionCommit(void);

/* "Open MPI 4.1.4, PETSc 3.18.5": libraries of core as they run. Not collective. text: [n], always ended by 0. */
void TrsVersionLibraries(char *text, size_t n);
