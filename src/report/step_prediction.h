/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a step of a training is predicted to take: the plan's cost of the tables and of their copies,
  and the work of the dense layers at the rates that -bench_topology measured.

    dense_forward    B (flops / product_rate + bytes / stream_bw + pairs), of a rank's B samples
    dense_backward   the same of two products for each one, and of twice the bytes
    optimizer        the passes over weight, gradient and states / stream_bw
    allreduce        2 (W - 1) / W of the gradient's bytes / the bandwidth between all ranks
    replica_sync     the time to keep the copies of the tables equal (src/plan/RULES.md, 13)

  The dot products of a sample's vectors are small. Their kernel has a rate of its own, with an
  overhead for each product: pairs = P (overhead + 2 D) / pair_rate for P products of D numbers. It
  reads the vectors, and the gradients' kernel writes theirs. Without this rate the dot products are
  products like others.

  Nothing is predicted of what the reader and uneven ranks make others wait for, or of what
  exchanges hide behind computation.
*/
#pragma once

#include "model/dlrm.h"
#include "plan/planner.h"

/* Dot products: operations/ms, and operations for each. */
typedef struct {
  double rate, overhead;           /* of the products; rate 0: not measured */
  double back_rate, back_overhead; /* of their gradients */
} TrsPairRates;

/* X(word) of the parts, ms of a rank's step. The first ones are the plan's (TrsPerf). */
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
          work     of the layers
          samples  of the rank's step
          world    of all ranks, which share the gradients of the layers
  Out:    prediction  the parts of dense layers are 0 without -topology_product_rate and
                      -topology_stream_bw
*/
PetscErrorCode TrsStepPredict(TrsOptions options, const TrsPerf *perf, const TrsDlrmWork *work,
                              int64_t samples, const TrsPlannedWorld *world, TrsStepPrediction *prediction);

/* Do the options give the rates of dense layers? */
PetscBool TrsStepRatesAreKnown(TrsOptions options);

/* The sum of all parts, ms. */
double TrsStepPredictedMs(const TrsStepPrediction *prediction);
