/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Measure the share of exchanges and copies that is hidden under compute. The functions use the
  spans of one rank's trace. Time and memory grow with the number of spans (a sort).
*/
#pragma once

#include "core/trace.h"

typedef struct {
  /* Time within recorded steps during which at least one selected span was under way. */
  double under_way_s;
  double hidden_s;  /* part of under_way_s during which the rank computed */
  double steps_s;   /* time of the recorded steps */
  double compute_s; /* time of computing for these steps, then or later */
  int64_t n_steps;
} TrsOverlap;

/*
  TrsOverlapFind - Measure the exchanges and copies that run under compute.

  Not collective.

  In:     n, span  in any order, on one clock. Rows beyond TRS_TRACE_EXCHANGE are also exchanges;
                   spans with negative rows are left out
          kinds    1u << what, or-ed: kinds of exchanges, and of device streams other than compute
          row      the compute row: TRS_TRACE_MAIN, or TRS_TRACE_COMPUTE if a device computes
                   independently of the host
*/
PetscErrorCode TrsOverlapFind(int64_t n, const TrsTraceSpan *span, unsigned kinds, TrsTraceRow row,
                              TrsOverlap *overlap);
