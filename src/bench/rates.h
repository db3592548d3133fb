/* SPDX-License-Identifier: BSD-3-Clause */
/* The rates of a machine that a plan and the prediction of a step need. */
#pragma once

#include "api/machine.h"
#include "plan/topology.h"
#include "report/step_prediction.h"

typedef struct {
  double memory;                 /* bytes/ms of a rank's lookups of random rows */
  double intra_host, inter_host; /* bytes/ms that a rank sends; 0: it has nobody to send to */
  double products;               /* operations/ms of a rank's matrix products */
  double stream;                 /* bytes/ms of a rank's passes over matrices */
  TrsRowRates rows;              /* rows of tables, without `stream_bw` */
  TrsPairRates pairs;            /* dot products of a sample's vectors */
  /* The largest distance of a measurement's quarters, as a part of its median. */
  double spread;
} TrsBenchRates;

/*
  TrsBenchRatesMeasure - Time lookups, exchanges and dense layers on all ranks at once.

  Collective. A measurement is repeated 7 to 35 times, until the middle half of the times is within
  5 % of their median. The slowest rank counts.

  In: bytes        that a rank sends in an exchange
      table_bytes  size of the table that is looked up; below 64 MiB other work is less, too
*/
PetscErrorCode TrsBenchRatesMeasure(const TrsMachine *machine, int64_t bytes, int64_t table_bytes,
                                    TrsBenchRates *rates);
