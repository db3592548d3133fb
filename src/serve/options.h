/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of trshard-serve. */
#pragma once

#include "core/options/options.h"
#include "serve/batcher.h"
#include "serve/http.h"

typedef struct {
  const char *model, *follow, *deltas; /* paths, or NULL */
  double follow_s, drain_s;            /* time between looks into folders; wait at the end */
  char predictor[256];                 /* options for TrshardPredictorOpen() */
  int64_t requests;                    /* size of the pool */
  TrsServeBatching batching;
  TrsServeHttpSettings http;
} TrsServeSettings;

extern const TrsOptionGroup *const trs_serve_options[];
extern const int trs_n_serve_options;

/* Read the settings, which borrow strings from the options. Errors: OPTION */
PetscErrorCode TrsServeSettingsFromOptions(TrsOptions options, TrsServeSettings *settings);
