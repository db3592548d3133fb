/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures the machine's rates, for plans and for the prediction of a step. */
#pragma once

#include "api/machine.h"
#include "plan/cost/topology.h"
#include "report/step_prediction.h"

typedef struct {
  double memory;                 /* bytes/ms of a rank that looks up random rows */
  double intra_host, inter_host; /* bytes/ms that a rank sends; 0: there is no other rank */
  double products;               /* operations/ms of a rank's matrix multiplications */
  double stream;                 /* bytes/ms of a rank's passes over matrices */
  TrsRowRates rows;              /* rates for rows of tables, without `stream_bw` */
  TrsPairRates pairs;            /* rates for dot products of a sample's vectors */
  /* The largest interquartile range of a measurement, divided by its median. */
  double spread;
} TrsBenchRates;

/*
  TrsBenchRatesMeasure - Time lookups, exchanges and dense layers on all ranks at once.

  Collective. A measurement is repeated 7 to 35 times, until the interquartile range of the times is
  below 5 % of their median. The rates are those of the slowest rank.

  In: bytes        number of bytes that a rank sends in an exchange
      table_bytes  size of the table for lookups; if it is below 64 MiB, other work is reduced in
                   proportion
*/
PetscErrorCode TrsBenchRatesMeasure(const TrsMachine *machine, int64_t bytes, int64_t table_bytes,
                                    TrsBenchRates *rates);
