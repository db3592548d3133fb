/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The predicted time of a training step: the plan's cost of the tables and their copies, and the
  work of the dense layers at the rates that -bench_topology measured.

    dense_forward    B (flops / product_rate + bytes / stream_bw + pairs), for the B samples of a
                     rank
    dense_backward   the same with twice the flops and twice the bytes
    optimizer        the passes over weight, gradient and states / stream_bw
    allreduce        2 (W - 1) / W of the gradient's bytes / the bandwidth between all ranks
    replica_sync     the time to keep the copies of the tables equal (src/plan/RULES.md, 13)

  The dot products of a sample's vectors are small. Their kernel has a rate of its own, and an
  overhead for each dot product: pairs = P (overhead + 2 D) / pair_rate for P dot products of D
  numbers. This includes the time to read the vectors and to write their gradients. If this rate is
  unknown, the dot products count like other matrix multiplications.

  The prediction ignores waits for the reader and for slower ranks, and the overlap of exchanges
  with computation.
*/
#pragma once

#include "model/dlrm.h"
#include "plan/planner.h"

/*
  Rates of dot products, in operations/ms. The overhead is the number of operations that take the
  fixed time of one dot product.
*/
typedef struct {
  double rate, overhead;           /* for the dot products; rate 0: not measured */
  double back_rate, back_overhead; /* for their gradients */
} TrsPairRates;

/*
  X(word) for each part of the predicted time, in ms per step of a rank. The first parts come from
  the plan (TrsPerf).
*/
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

/* The names of the parts, separated by commas: "fwd_compute,fwd_comms, ...". */
extern const char *const trs_predicted_names;

/*
  TrsStepPredict - Predict the time of one step of a rank.

  Not collective.

  In:     perf     the plan's cost of the rank's tables
          work     work of the dense layers per sample
          samples  number of the rank's samples in a step
          world    all ranks, which reduce the layers' gradients together
  Out:    prediction  the dense layers' parts are 0 without -topology_product_rate and
                      -topology_stream_bw
*/
PetscErrorCode TrsStepPredict(TrsOptions options, const TrsPerf *perf, const TrsDlrmWork *work,
                              int64_t samples, const TrsPlannedWorld *world, TrsStepPrediction *prediction);

/* True if the options give the rates that predict dense layers. */
PetscBool TrsStepRatesAreKnown(TrsOptions options);

/* The sum of all parts, in ms. */
double TrsStepPredictedMs(const TrsStepPrediction *prediction);
