/* SPDX-License-Identifier: BSD-3-Clause */
/* -task eval, and the evaluation of a session, which -task train also uses. */
#pragma once

#include "io/results.h"
#include "session/session.h"
#include "train/metrics/metrics.h"
#include "train/pipeline.h"

/*
  Run -task eval: load the weights of -init_from, run the forward over -data_eval, and report
  metrics and predictions. Collective on comm.
*/
PetscErrorCode TrsRunEval(MPI_Comm comm, TrsOptions options);

/*
  Make one pass over the session's evaluation data. If `results` is not NULL, write the predictions
  to it. If `observer` is not NULL, call it for each batch. If a signal ends the pass early,
  *stopped is set to true and there are no values. Collective.
*/
PetscErrorCode TrsEvaluateSession(TrsSession *session, TrsResults results, const TrsBatchObserver *observer,
                                  TrsMetricValues *values, PetscBool *stopped);
