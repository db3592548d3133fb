/* SPDX-License-Identifier: BSD-3-Clause */
/* Parallel loop on the host, for layers that exist only on the CPU. */
#pragma once

#include <stdint.h>

/*
  Call body(context, i) for i in [0, n), on all threads. No two calls may write the same memory, so
  the number of threads cannot change results. Not collective.
*/
void TrsForEach(int64_t n, void (*body)(void *context, int64_t i), void *context);
