/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Measures the share of exchanges and copies that run while the rank computes, and the time in which
  a device computes nothing. The functions use the spans of one rank's trace. They sort the spans,
  so time and memory grow with the number of spans.
*/
#pragma once

#include "core/trace.h"

typedef struct {
  /* Time within the recorded steps during which at least one selected span ran. */
  double under_way_s;
  double hidden_s;  /* part of under_way_s during which the rank also computed */
  double steps_s;   /* total time of the recorded steps */
  double compute_s; /* time of computing for these steps, also if it was after the steps */
  int64_t n_steps;
} TrsOverlap;

/*
  TrsOverlapFind - Measure the exchanges and copies that run while the rank computes.

  Not collective.

  In:     n, span  spans in any order, timed by one clock. Rows after TRS_TRACE_EXCHANGE are also
                   exchanges; spans with negative rows are left out
          kinds    bits 1u << what: the kinds of exchanges, and of device streams other than compute
          row      the row with the compute spans: TRS_TRACE_MAIN, or TRS_TRACE_COMPUTE if a device
                   computes independently of the host
*/
PetscErrorCode TrsOverlapFind(int64_t n, const TrsTraceSpan *span, unsigned kinds, TrsTraceRow row,
                              TrsOverlap *overlap);

/* The time in which a device's compute stream was in no stage, by what the main thread did then. */
typedef struct {
  int64_t n_steps; /* number of steps that are counted */
  double idle_s;   /* sum of all following times */
  /* TRS_STAGE_NONE: within a step, but in no stage */
  double stage_s[TRS_N_STAGES];
  double between_s; /* between two steps */
} TrsIdle;

/*
  TrsOverlapIdle - Measure the time in which a device's compute stream is in no stage.

  The time from the beginning of the second recorded step to the end of the last one counts. The
  first step does not, because the stream may still compute for a step that is not recorded. With
  fewer than two steps, all results are 0. The arguments are those of TrsOverlapFind(). Not
  collective.
*/
PetscErrorCode TrsOverlapIdle(int64_t n, const TrsTraceSpan *span, TrsIdle *idle);
