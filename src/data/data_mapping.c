/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/data_mapping.h"

/* Find the first file with a mapping. Returns n_files if there is none. */
static int first_of(const TrsDatasetInfo *info)
{
  int k = 0;

  while (k < info->n_files && !info->mappings[k]) k++;
  return k;
}

TrsMapping TrsDataMapping(const TrsDatasetInfo *info)
{
  const int k = first_of(info);

  if (k == info->n_files) return (TrsMapping){.path = info->path};
  return (TrsMapping){.path = info->paths[k], .text = info->mappings[k]};
}

/* Check each text once. Equal texts have the same pointer. */
static PetscErrorCode check_files(const TrsDatasetInfo *info)
{
  const TrsMappingUse all = {.n_dense = info->dense_columns};
  const TrsMapping first = TrsDataMapping(info);

  PetscFunctionBegin;
  PetscCall(TrsMappingCheck(&first, info->dense_columns));
  for (int k = first_of(info) + 1; k < info->n_files; k++) {
    const TrsMapping mapping = {.path = info->paths[k], .text = info->mappings[k]};

    if (mapping.text == first.text) continue;
    PetscCall(TrsMappingCheck(&mapping, info->dense_columns));
    PetscCall(TrsMappingCompare(&first, &mapping, &all));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDataMappingCheck(MPI_Comm comm, TrsDataset dataset)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(TrsAgree(comm, check_files(info)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
