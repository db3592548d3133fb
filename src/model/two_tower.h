/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The two towers of -interaction two_tower: each of the model's features is on the query's side or
  on the candidate's, and a sample's score is the product of both towers' outputs.
  Source: TorchRec's retrieval example (TwoTower); src/RULES.md, section 20
*/
#pragma once

#include "core/options/options.h"
#include "spec/table_config.h"

/* -query_features and the other options of the towers */
extern const TrsOptionGroup trs_two_tower_options;

typedef enum { TRS_SIDE_QUERY, TRS_SIDE_CANDIDATE, TRS_N_SIDES } TrsTowerSide;

/*
  TrsTwoTowerSides - Read the side of each of the model's vectors.

  Not collective.

  Out:    side  [vectors of all tables, in model order]; with another interaction all are the
                query's
  Errors: OPTION for a name that no table has, a name on both sides, features on no side, and a
          sequence's target that is not on the sequence's side
*/
PetscErrorCode TrsTwoTowerSides(TrsOptions options, const TrsTableConfigs *tables, int *side);
