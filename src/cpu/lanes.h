/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums in double whose terms are added in lanes, i to lane i % TRS_LANES, so that the compiler makes
  vectors of them and their bits depend on nothing but the terms. Internal to compute/.
*/
#pragma once

enum { TRS_LANES = 8 };

static inline double TrsLanesSum(const double lane[TRS_LANES])
{
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}
