/* SPDX-License-Identifier: BSD-3-Clause */
/* -task eval, and the evaluation of a session, which a training also uses. */
#pragma once

#include "io/results.h"
#include "session/session.h"
#include "train/metrics/metrics.h"
#include "train/pipeline.h"

/*
  Run -task eval: weights from -init_from, forward over -data_eval, metrics and predictions.
  Collective on comm.
*/
PetscErrorCode TrsRunEval(MPI_Comm comm, TrsOptions options);

/*
  Make one pass over the session's evaluation data. If results is not NULL, write the predictions
  there. If observer is not NULL, call it for each batch. If a signal ended the pass early, *stopped
  is true and there are no values. Collective.
*/
PetscErrorCode TrsEvaluateSession(TrsSession *session, TrsResults results, const TrsBatchObserver *observer,
                                  TrsMetricValues *values, PetscBool *stopped);
