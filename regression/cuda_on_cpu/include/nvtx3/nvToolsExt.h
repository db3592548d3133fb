/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stand-in for the part of NVTX that gpu/ uses. Ranges are counted (cuda_on_cpu_count). Names and
  meanings are NVTX's (version 3).
*/
#pragma once

#if defined(__cplusplus)
extern "C" {
#endif
int nvtxRangePushA(const char *message); /* returns the range's level, from 0 */
/* returns the ended range's level, or a negative number if there was none */
int nvtxRangePop(void);
#if defined(__cplusplus)
}
#endif
