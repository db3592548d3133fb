/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The two towers of -interaction two_tower. Each of the model's features belongs to the query's
  tower or to the candidate's. A sample's score is the dot product of both towers' outputs.
  Source: TorchRec's retrieval example (TwoTower); src/RULES.md, section 20
*/
#pragma once

#include "core/options/options.h"
#include "spec/table_config.h"

/* -query_features and the other options of the towers */
extern const TrsOptionGroup trs_two_tower_options;

typedef enum { TRS_SIDE_QUERY, TRS_SIDE_CANDIDATE, TRS_N_SIDES } TrsTowerSide;

/*
  TrsTwoTowerSides - Read the tower to which each of the model's vectors belongs.

  Not collective.

  Out:    side  [vectors of all tables, in model order] the towers; with another interaction all
                vectors belong to the query
  Errors: OPTION for a name that no table has, a name in both towers, features in no tower, and a
          sequence's target in the other tower than the sequence
*/
PetscErrorCode TrsTwoTowerSides(TrsOptions options, const TrsTableConfigs *tables, int *side);
