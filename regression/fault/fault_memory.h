/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations as one more function, "malloc", that fault_injector.h can make fail. */
#pragma once

/* Count allocations from now on. Must be called once, before threads start. */
void fault_memory_watch(void);
