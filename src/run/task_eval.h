/* SPDX-License-Identifier: BSD-3-Clause */
/* -task eval, and the evaluation of a session that a training uses, too. */
#pragma once

#include "io/results.h"
#include "run/session.h"
#include "train/metrics.h"

/* -task eval: weights from -init_from, forward over -data_eval, metrics and predictions. Collective on comm. */
PetscErrorCode TrsRunEval(MPI_Comm comm, TrsOptions options);

/* One pass over the session's evaluation data; predictions go to results when it is not NULL. stopped: ended early by a signal, without values. Collective. */
PetscErrorCode TrsEvaluateSession(TrsSession *session, TrsResults results, TrsMetricValues *values,
                                  PetscBool *stopped);
