/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for NVTX, the part that gpu/ uses: ranges are counted (cuda_on_cpu_count). Names and meanings are NVTX's (version 3). */
#pragma once

#if defined(__cplusplus)
extern "C" {
#endif
int nvtxRangePushA(const char *message); /* level of the range, from 0 */
int nvtxRangePop(void);                  /* level of the range that ends; negative: there was none */
#if defined(__cplusplus)
}
#endif
