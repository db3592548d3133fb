/* SPDX-License-Identifier: BSD-3-Clause */
/* Which matrix product library runs under the CPU's dense layers. */
#pragma once

/* "OpenBLAS 0.3.21 SkylakeX, 1 thread": for the banner and result files. Borrowed. Not collective. */
const char *TrsGemmLibrary(void);
