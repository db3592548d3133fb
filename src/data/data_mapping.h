/* SPDX-License-Identifier: BSD-3-Clause */
/* The mapping that the files of a dataset have (spec/mapping.h). */
#pragma once

#include "io/dataset.h"
#include "spec/mapping.h"

/*
  On rank 0, get the first mapping of a dataset's files. The text is NULL on other ranks, and if no
  file has a mapping. The result is borrowed from the dataset. Not collective.
*/
TrsMapping TrsDataMapping(const TrsDatasetInfo *info);

/*
  TrsDataMappingCheck - Check the mappings of a dataset's files. Refuse files whose mappings differ
    in a feature (TrsMappingCompare()).

  Collective on comm. Errors (agreed): DATA
*/
PetscErrorCode TrsDataMappingCheck(MPI_Comm comm, TrsDataset dataset);
