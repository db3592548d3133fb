/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of the host that is cut into equal parts, for layers that no other device has. */
#pragma once

#include <stdint.h>

/*
  Call body(context, i) for i in [0, n), on all threads. No two calls may write the same memory, so
  that the number of threads shows nowhere. Not collective.
*/
void TrsForEach(int64_t n, void (*body)(void *context, int64_t i), void *context);
