/* SPDX-License-Identifier: BSD-3-Clause */
/* Which HDF5 runs under io/: for banners and result files. */
#pragma once

#include <stddef.h>

/* "HDF5 1.10.8". Not collective. */
void TrsIoLibrary(char *text, size_t size);
