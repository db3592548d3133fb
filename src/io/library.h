/* SPDX-License-Identifier: BSD-3-Clause */
/* The version of the HDF5 library, for banners and result files. */
#pragma once

#include <stddef.h>

/* Write a text such as "HDF5 1.10.8". Not collective. */
void TrsIoLibrary(char *text, size_t size);
