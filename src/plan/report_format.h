/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers and lists as TorchRec's report prints them. */
#pragma once

#include "plan/search_space.h"

/* Rounded to `places`, without trailing zeros but one: "0.745", "0.0". */
void TrsRoundedText(double x, int places, char *text, size_t n);

/* Below 1 one significant digit, else a rounded integer: "0.5", "1e-07", "12". */
void TrsOneDigitText(double x, char *text, size_t n);

/* "2.001 (0.001,0,0.5,2,0)": the total and forward compute, forward comms, backward compute, backward comms, prefetch. */
void TrsPerfText(const TrsPerf *perf, char *text, size_t n);

/* "0-2" for a run of consecutive ranks, else "0,2,5". Not collective. */
PetscErrorCode TrsRanksText(int n, const int *ranks, TrsText *text);

/* "1 * 2, 2, 3*3": runs of equal numbers. Not collective. */
PetscErrorCode TrsReduceIntsText(int n, const int64_t *numbers, TrsText *text);

/* How unevenly n shares (of sum 1) are spread; each measure is 0 for even and at most 1, total_distance 2. */
typedef struct {
  double total_variation, total_distance, chi, kl;
} TrsImbalance;
void TrsMeasureImbalance(int n, const double *share, TrsImbalance *imbalance);
