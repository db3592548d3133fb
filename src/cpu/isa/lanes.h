/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums in double that add term i to lane i % TRS_LANES. So the compiler can vectorise them, and
  their bits depend only on the terms. Internal to cpu/.
*/
#pragma once

enum { TRS_LANES = 8 };

static inline double TrsLanesSum(const double lane[TRS_LANES])
{
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}
