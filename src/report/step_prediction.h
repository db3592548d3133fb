/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The predicted time of a training step: the plan's cost of the tables and their copies, and the
  work of the dense layers at the rates that -bench_topology measured.

    dense_forward    B (flops / product_rate + bytes / stream_bw + pairs), for a rank's B samples
    dense_backward   the same with two products for each product, and twice the bytes
    optimizer        the passes over weight, gradient and states / stream_bw
    allreduce        2 (W - 1) / W of the gradient's bytes / the bandwidth between all ranks
    replica_sync     the time to keep the copies of the tables equal (src/plan/RULES.md, 13)

  The dot products of a sample's vectors are small. Their kernel has its own rate, with an overhead
  for each product: pairs = P (overhead + 2 D) / pair_rate for P products of D numbers. This
  includes reading the vectors, and writing their gradients. If this rate is unknown, the dot
  products count as ordinary products.

  The prediction does not include waits for the reader and for uneven ranks, nor the overlap of
  exchanges with computation.
*/
#pragma once

#include "model/dlrm.h"
#include "plan/planner.h"

/* Rates of dot products: operations/ms, and an overhead in operations for each product. */
typedef struct {
  double rate, overhead;           /* of the products; rate 0: not measured */
  double back_rate, back_overhead; /* of their gradients */
} TrsPairRates;

/* X(word) for each part, in ms of a rank's step. The first parts are the plan's (TrsPerf). */
#define TRS_PREDICTED(X) \
  X(fwd_compute) \
  X(fwd_comms) \
  X(bwd_compute) \
  X(bwd_comms) \
  X(prefetch_compute) \
  X(dense_forward) \
  X(dense_backward) \
  X(optimizer) \
  X(allreduce) \
  X(replica_sync)

typedef struct {
#define TRS_PREDICTED_FIELD(word) double word;
  TRS_PREDICTED(TRS_PREDICTED_FIELD)
} TrsStepPrediction;

enum { TRS_N_PREDICTED = sizeof(TrsStepPrediction) / sizeof(double) };

/* The names of the parts, "fwd_compute,fwd_comms, ...". */
extern const char *const trs_predicted_names;

/*
  TrsStepPredict - Predict a rank's step.

  Not collective.

  In:     perf     the plan's cost of the rank's tables
          work     work of the layers
          samples  samples of the rank's step
          world    all ranks, which reduce the layers' gradients together
  Out:    prediction  the dense layers' parts are 0 without -topology_product_rate and
                      -topology_stream_bw
*/
PetscErrorCode TrsStepPredict(TrsOptions options, const TrsPerf *perf, const TrsDlrmWork *work,
                              int64_t samples, const TrsPlannedWorld *world, TrsStepPrediction *prediction);

/* True if the options give the rates of dense layers. */
PetscBool TrsStepRatesAreKnown(TrsOptions options);

/* The sum of all parts, in ms. */
double TrsStepPredictedMs(const TrsStepPrediction *prediction);
