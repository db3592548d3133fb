/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's rates, for plans and for the prediction of a step. */
#pragma once

#include "api/machine.h"
#include "plan/topology.h"
#include "report/step_prediction.h"

typedef struct {
  double memory;                 /* bytes/ms at which a rank looks up random rows */
  double intra_host, inter_host; /* bytes/ms that a rank sends; 0: there is no other rank */
  double products;               /* operations/ms of a rank's matrix products */
  double stream;                 /* bytes/ms of a rank's passes over matrices */
  TrsRowRates rows;              /* table rows, without `stream_bw` */
  TrsPairRates pairs;            /* dot products of a sample's vectors */
  /* The largest interquartile range of a measurement, as a part of its median. */
  double spread;
} TrsBenchRates;

/*
  TrsBenchRatesMeasure - Time lookups, exchanges and dense layers on all ranks at once.

  Collective. A measurement is repeated 7 to 35 times, until the middle half of the times is within
  5 % of their median. The rates are those of the slowest rank.

  In: bytes        bytes that a rank sends in an exchange
      table_bytes  size of the table for lookups; below 64 MiB other work is reduced, too
*/
PetscErrorCode TrsBenchRatesMeasure(const TrsMachine *machine, int64_t bytes, int64_t table_bytes,
                                    TrsBenchRates *rates);
