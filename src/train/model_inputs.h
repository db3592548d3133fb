/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declares a model's inputs from the tables: its vectors, their towers, position weights and
  sequences.

  Source: src/RULES.md, rule A2
*/
#pragma once

#include "model/dlrm.h"
#include "shard/sharded_ebc.h"

/*
  TrsModelInputs - Declare a model's inputs from the tables, before its set-up.

  Not collective. Must be called after TrsDlrmSetFromOptions().

  In:     tables  borrowed until TrsDlrmDestroy()
  Out:    n       number of pooled vectors per sample
          dims    [n] widths of the vectors; free with PetscFree()
  Errors: OPTION for a feature that belongs to no tower
*/
PetscErrorCode TrsModelInputs(TrsDlrm dlrm, TrsOptions options, const TrsTableConfigs *tables, int *n,
                              int **dims);

/*
  TrsModelFeatures - Get the columns of the features' vectors, and the features' position weights.
    Must be called after set-up.

  Not collective.

  Out:    columns   [features] index of each feature's first column in the matrix of
                    TrsDlrmEmbeddings()
          position  [features] the weights and gradients belong to the model
*/
PetscErrorCode TrsModelFeatures(TrsDlrm dlrm, const TrsTableConfigs *tables, int64_t *columns,
                                TrsPositionWeight *position);
