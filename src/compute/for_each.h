/* SPDX-License-Identifier: BSD-3-Clause */
/* A parallel loop on the host, for layers that have no GPU kernel. */
#pragma once

#include <stdint.h>

/*
  Call body(context, i) for all i in [0, n), on all threads. No two calls may write the same memory,
  so that the number of threads cannot change results. Not collective.
*/
void TrsForEach(int64_t n, void (*body)(void *context, int64_t i), void *context);
