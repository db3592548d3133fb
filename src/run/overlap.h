/* SPDX-License-Identifier: BSD-3-Clause */
/*
  How much of what goes on beside the compute is hidden under it: arithmetic on the spans of one rank's trace. Time and memory grow with the spans
  (a sort).
*/
#pragma once

#include "core/trace.h"

typedef struct {
  double
      under_way_s;  /* within recorded steps, of what was asked for; any number of them at once counts once */
  double hidden_s;  /* of that, while the rank computed */
  double steps_s;   /* the recorded steps themselves */
  double compute_s; /* what was computed for them, then or later */
  int64_t n_steps;
} TrsOverlap;

/*
  TrsOverlapFind - Exchanges and copies under compute.

  Not collective.

  In:     n, span  in any order, on one clock; rows beyond TRS_TRACE_EXCHANGE are exchanges, too, negative ones are left out
          kinds    1u << what, or-ed: of exchanges and of the device's streams but the compute one
          row      where the compute is: TRS_TRACE_MAIN, or TRS_TRACE_COMPUTE where a device does it behind the host's back
*/
PetscErrorCode TrsOverlapFind(int64_t n, const TrsTraceSpan *span, unsigned kinds, TrsTraceRow row,
                              TrsOverlap *overlap);
