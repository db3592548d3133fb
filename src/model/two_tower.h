/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The two towers of -interaction two_tower: each feature of the model is on the query's side or on
  the candidate's, and a sample's score is the product of both towers' outputs.
  Source: TorchRec's retrieval example (TwoTower); src/RULES.md, section 20
*/
#pragma once

#include "core/options/options.h"
#include "spec/table_config.h"

/* -query_features and the other options of the towers */
extern const TrsOptionGroup trs_two_tower_options;

typedef enum { TRS_SIDE_QUERY, TRS_SIDE_CANDIDATE, TRS_N_SIDES } TrsTowerSide;

/*
  TrsTwoTowerSides - Read which side each vector of the model is on.

  Not collective.

  Out:    side  [vectors of all tables, in model order]; all are the query's under another
                interaction
  Errors: OPTION for a name that no table has, one on both sides, features on no side, and a
          sequence's target on another side than the sequence
*/
PetscErrorCode TrsTwoTowerSides(TrsOptions options, const TrsTableConfigs *tables, int *side);
