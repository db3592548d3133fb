/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations as one more function that fault_injector.h can let fail: "malloc". */
#pragma once

/* Count allocations from now on. Call once, before threads start. */
void fault_memory_watch(void);
