/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stand-in for the part of NVTX that gpu/ uses. Ranges are counted (cuda_on_cpu_count). Names and
  meanings are the same as in NVTX 3.
*/
#pragma once

#if defined(__cplusplus)
extern "C" {
#endif
int nvtxRangePushA(const char *message); /* returns the level of the range, from 0 */
/* returns the level of the range that ends, or a negative number if there was no range */
int nvtxRangePop(void);
#if defined(__cplusplus)
}
#endif
