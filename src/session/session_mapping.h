/* SPDX-License-Identifier: BSD-3-Clause */
/* The mapping of a run. The run's data and checkpoint must agree on it, and its files carry it. */
#pragma once

#include "io/results.h"
#include "session/session.h"

/*
  TrsSessionCheckMappings - Check the mappings of the session's datasets. Refuse training and
    evaluation data whose mappings differ in a feature that the model uses.

  Collective. The session must have its tables. Errors (agreed): DATA
*/
PetscErrorCode TrsSessionCheckMappings(const TrsSession *session);

/*
  TrsSessionTakeMapping - Compare the checkpoint's mapping with the data, and choose the mapping
    that the run's files carry. This is the mapping of the training data, else that of the
    checkpoint, else, if the run does not train, that of the evaluation data.

  Collective. Sets session->mapping, which is borrowed from the datasets or from `text`, and the
  results' attribute.

  In:     path     the checkpoint; NULL if the run starts without one
          text     on rank 0 the checkpoint's mapping, or NULL
          refuses  true: data with another mapping is an error. false: data with another mapping
                   causes a printed warning, and the run's files do not carry the checkpoint's
                   mapping
  Errors (agreed): DATA
*/
PetscErrorCode TrsSessionTakeMapping(TrsSession *session, const char *path, const char *text,
                                     PetscBool refuses, TrsResults results);
