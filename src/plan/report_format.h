/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers and lists in the format of TorchRec's report. */
#pragma once

#include "plan/search/search_space.h"

/* Round to `places` decimal places and drop trailing zeros except the first: "0.745", "0.0". */
void TrsRoundedText(double x, int places, char *text, size_t n);

/*
  Write a number with one significant digit if it is below 1, otherwise as an integer: "0.5",
  "1e-07", "12".
*/
void TrsOneDigitText(double x, char *text, size_t n);

/*
  Write "2.001 (0.001,0,0.5,2,0)": the total time, then forward compute, forward communication,
  backward compute, backward communication and prefetch.
*/
void TrsPerfText(const TrsPerf *perf, char *text, size_t n);

/*
  Write bytes in units of 2^30 with three significant digits. From 1000 units on, write all integer
  digits: "0.0012", "27.2", "1536".
*/
void TrsGibText(double bytes, char *text, size_t n);

/* Write a bandwidth as an option accepts it: "3.35TB/s", or "897GiB/s" if that is shorter. */
void TrsBandwidthText(double bytes_per_ms, char *text, size_t n);

/*
  A list of the largest numbers, in descending order. Equal numbers stay in the order in which they
  were added.
*/
enum { TRS_N_LARGEST = 4 };
typedef struct {
  int n, index[TRS_N_LARGEST];
  double value[TRS_N_LARGEST];
} TrsLargest;
void TrsLargestAdd(TrsLargest *largest, int index, double value);

/* Write "0-2" for consecutive ranks, otherwise "0,2,5". Not collective. */
PetscErrorCode TrsRanksText(int n, const int *ranks, TrsText *text);

/* Write sequences of equal numbers as counts: "1 * 2, 2, 3*3". Not collective. */
PetscErrorCode TrsReduceIntsText(int n, const int64_t *numbers, TrsText *text);

/*
  Write a line about each of n tables that keeps ids: the bytes of its directory, and whether its
  rows are a cap. Writes nothing for other tables. Not collective.
*/
PetscErrorCode TrsKeysWrite(int n, const TrsTableConfig *const *table, TrsText *text);

/*
  Measures of the imbalance of n shares whose sum is 1. Each measure is 0 for even shares and at
  most 1; total_distance is at most 2.
*/
typedef struct {
  double total_variation, total_distance, chi, kl;
} TrsImbalance;
void TrsMeasureImbalance(int n, const double *share, TrsImbalance *imbalance);
