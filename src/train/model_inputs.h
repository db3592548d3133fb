/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A model's inputs from the tables: its vectors, their towers, position weights and sequences.

  Source: src/RULES.md, rule A2
*/
#pragma once

#include "model/dlrm.h"
#include "shard/sharded_ebc.h"

/*
  TrsModelInputs - Declare a model's inputs from the tables, before its set-up.

  Not collective. Must be called after TrsDlrmSetFromOptions().

  In:     tables  borrowed until TrsDlrmDestroy()
  Out:    n       pooled vectors per sample
          dims    [n] their widths, to be freed with PetscFree()
  Errors: OPTION for a feature on no tower's side
*/
PetscErrorCode TrsModelInputs(TrsDlrm dlrm, TrsOptions options, const TrsTableConfigs *tables, int *n,
                              int **dims);

/*
  TrsModelFeatures - Find the places of the features' vectors and their position weights, after
  set-up.

  Not collective.

  Out:    columns   [features] first columns in the matrix of TrsDlrmEmbeddings()
          position  [features] the weights and gradients belong to the model
*/
PetscErrorCode TrsModelFeatures(TrsDlrm dlrm, const TrsTableConfigs *tables, int64_t *columns,
                                TrsPositionWeight *position);
