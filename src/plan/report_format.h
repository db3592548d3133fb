/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers and lists in the format of TorchRec's report. */
#pragma once

#include "plan/search_space.h"

/* Round to `places` places and drop trailing zeros except one: "0.745", "0.0". */
void TrsRoundedText(double x, int places, char *text, size_t n);

/* Write one significant digit below 1, else a rounded integer: "0.5", "1e-07", "12". */
void TrsOneDigitText(double x, char *text, size_t n);

/*
  Write "2.001 (0.001,0,0.5,2,0)": the total and forward compute, forward comms, backward compute,
  backward comms, prefetch.
*/
void TrsPerfText(const TrsPerf *perf, char *text, size_t n);

/*
  Write a number of 2^30 bytes with three digits, from 1000 on with all whole digits: "0.0012",
  "27.2", "1536".
*/
void TrsGibText(double bytes, char *text, size_t n);

/* A bandwidth as an option takes it: "3.35TB/s", or "897GiB/s" where that is shorter. */
void TrsBandwidthText(double bytes_per_ms, char *text, size_t n);

/* The largest of some numbers, in descending order. Equal ones keep the order they came in. */
enum { TRS_N_LARGEST = 4 };
typedef struct {
  int n, index[TRS_N_LARGEST];
  double value[TRS_N_LARGEST];
} TrsLargest;
void TrsLargestAdd(TrsLargest *largest, int index, double value);

/* Write "0-2" for a run of consecutive ranks, else "0,2,5". Not collective. */
PetscErrorCode TrsRanksText(int n, const int *ranks, TrsText *text);

/* Write runs of equal numbers: "1 * 2, 2, 3*3". Not collective. */
PetscErrorCode TrsReduceIntsText(int n, const int64_t *numbers, TrsText *text);

/*
  Measures of how unevenly n shares (of sum 1) are spread. Each measure is 0 for even shares and at
  most 1; total_distance is at most 2.
*/
typedef struct {
  double total_variation, total_distance, chi, kl;
} TrsImbalance;
void TrsMeasureImbalance(int n, const double *share, TrsImbalance *imbalance);
