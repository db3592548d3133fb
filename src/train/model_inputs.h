/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a model takes from the tables: its vectors, their towers, position weights and sequences.

  Source: src/RULES.md, rule A2
*/
#pragma once

#include "model/dlrm.h"
#include "shard/sharded_ebc.h"

/*
  TrsModelInputs - Tell a model what it takes from the tables, before its set-up.

  Not collective. Call it after TrsDlrmSetFromOptions().

  In:     tables  borrowed until TrsDlrmDestroy()
  Out:    n       pooled vectors of a sample
          dims    [n] their widths, to be freed with PetscFree()
  Errors: OPTION for a feature of no tower
*/
PetscErrorCode TrsModelInputs(TrsDlrm dlrm, TrsOptions options, const TrsTableConfigs *tables, int *n,
                              int **dims);

/*
  TrsModelFeatures - Find where the features' vectors go, and their position weights, after set-up.

  Not collective.

  Out:    columns   [features] first columns in the matrix of TrsDlrmEmbeddings()
          position  [features] weights and gradients are the model's
*/
PetscErrorCode TrsModelFeatures(TrsDlrm dlrm, const TrsTableConfigs *tables, int64_t *columns,
                                TrsPositionWeight *position);
