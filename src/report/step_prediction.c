/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/step_prediction.h"

#include "optim/dense_optimizer.h"

#define NAME_OF(word) "," #word
static const char names[] = TRS_PREDICTED(NAME_OF);
const char *const trs_predicted_names = names + 1; /* skip the first comma */

double TrsStepPredictedMs(const TrsStepPrediction *prediction)
{
  double sum = 0.0;

#define ADD(word) sum += prediction->word;
  TRS_PREDICTED(ADD)
#undef ADD
  return sum;
}

PetscBool TrsStepRatesAreKnown(TrsOptions options)
{
  double products = 0.0, stream = 0.0;

  (void)TrsOptionsGetReal(options, "-topology_product_rate", &products, NULL);
  (void)TrsOptionsGetReal(options, "-topology_stream_bw", &stream, NULL);
  return (PetscBool)(products > 0.0 && stream > 0.0);
}

/*
  The count of numbers that an update reads or writes per parameter: the weight twice, the gradient
  once, and each state twice.
*/
static int n_passes(int optimizer)
{
  static const int states[] = {
#define STATES_OF(KIND, word, name0, name1, eps, decay) (sizeof(name0) > 1) + (sizeof(name1) > 1),
      TRS_DENSE_OPTIMIZERS(STATES_OF)};

  return 3 + 2 * states[optimizer];
}

/* Predict the times of the dense layers' forward and backward for `samples` samples. */
static PetscErrorCode predict_layers(TrsOptions options, const TrsDlrmWork *work, double samples,
                                     double products, double stream, TrsStepPrediction *prediction)
{
  TrsPairRates pairs;
  PetscBool apart;
  double flops = work->flops, bytes = work->bytes, forward = 0.0, backward = 0.0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(options, "-topology_pair_rate", &pairs.rate, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_pair_overhead", &pairs.overhead, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_pair_back_rate", &pairs.back_rate, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_pair_back_overhead", &pairs.back_overhead, NULL));
  apart = (PetscBool)(pairs.rate > 0.0 && pairs.back_rate > 0.0);
  if (apart) {
    flops -= work->pair_flops;
    bytes -= work->pair_bytes;
    forward = (work->pairs * pairs.overhead + work->pair_flops) / pairs.rate;
    backward = (work->pairs * pairs.back_overhead + 2.0 * work->pair_flops) / pairs.back_rate;
  }
  prediction->dense_forward = samples * (flops / products + bytes / stream + forward);
  prediction->dense_backward = samples * (2.0 * (flops / products + bytes / stream) + backward);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStepPredict(TrsOptions options, const TrsPerf *perf, const TrsDlrmWork *work,
                              int64_t samples, const TrsPlannedWorld *world, TrsStepPrediction *prediction)
{
  const double W = world->ranks;
  double products, stream;
  int optimizer = 0;

  PetscFunctionBegin;
  *prediction = (TrsStepPrediction){.fwd_compute = perf->fwd_compute,
                                    .fwd_comms = perf->fwd_comms,
                                    .bwd_compute = perf->bwd_compute,
                                    .bwd_comms = perf->bwd_comms,
                                    .prefetch_compute = perf->prefetch_compute,
                                    .replica_sync = world->sync_ms};
  PetscCall(TrsOptionsGetReal(options, "-topology_product_rate", &products, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_stream_bw", &stream, NULL));
  if (!TrsStepRatesAreKnown(options)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetEnum(options, "-dense_optimizer", &optimizer, NULL));
  PetscCall(predict_layers(options, work, (double)samples, products, stream, prediction));
  prediction->optimizer = n_passes(optimizer) * work->parameter_bytes / stream;
  prediction->allreduce = 2.0 * (W - 1.0) / W * work->parameter_bytes / world->between_bw;
  PetscFunctionReturn(PETSC_SUCCESS);
}
