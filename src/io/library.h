/* SPDX-License-Identifier: BSD-3-Clause */
/* The version of HDF5 that runs under io/, for banners and result files. */
#pragma once

#include <stddef.h>

/* Write a text such as "HDF5 1.10.8". Not collective. */
void TrsIoLibrary(char *text, size_t size);
