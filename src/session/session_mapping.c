/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/session_mapping.h"

#include "data/data_mapping.h"

PetscErrorCode TrsSessionCheckMappings(const TrsSession *s)
{
  const TrsDatasetInfo *train, *eval;
  TrsMappingUse use;
  TrsMapping a, b;

  PetscFunctionBegin;
  if (s->train) PetscCall(TrsDataMappingCheck(s->comm, s->train));
  if (s->eval) PetscCall(TrsDataMappingCheck(s->comm, s->eval));
  if (!s->train || !s->eval) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetGetInfo(s->train, &train));
  PetscCall(TrsDatasetGetInfo(s->eval, &eval));
  a = TrsDataMapping(train);
  b = TrsDataMapping(eval);
  /* Another check refuses data with another number of dense features. */
  use = (TrsMappingUse){.n_dense = PetscMin(train->num_dense, eval->num_dense),
                        .dense = train->dense_column,
                        .tables = &s->tables};
  PetscCall(TrsAgree(s->comm, TrsMappingCompare(&a, &b, &use)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compare two mappings on rank 0. If `refuses` is false, only print a warning for a difference. */
static PetscErrorCode compare_used(const TrsMapping *checkpoint, const TrsMapping *data,
                                   const TrsMappingUse *use, PetscBool refuses)
{
  char text[TRS_MAPPING_TEXT];

  PetscFunctionBegin;
  if (refuses) {
    PetscCall(TrsMappingCompare(checkpoint, data, use));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsMappingDifference(checkpoint, data, use, text));
  if (text[0])
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s %s and %s were converted in different ways: %s\n",
                          "warning", checkpoint->path, data->path, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On rank 0, compare a checkpoint's mapping with that of a dataset. Accepts dataset NULL. */
static PetscErrorCode compare(const TrsSession *s, TrsDataset dataset, const TrsMapping *checkpoint,
                              PetscBool refuses)
{
  /*
    If the user chose dense columns for this data, the checkpoint's data may have the same features
    in other places. Dense features are then not compared.
  */
  const PetscBool chosen = (PetscBool)(TrsOptionsIsGiven(s->options, "-data_dense") &&
                                       !TrsOptionsModelOf(s->options, "-data_dense"));
  const TrsDatasetInfo *info;
  TrsMappingUse use;
  TrsMapping data;

  PetscFunctionBegin;
  if (!dataset) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  data = TrsDataMapping(info);
  use = (TrsMappingUse){
      .n_dense = chosen ? 0 : info->num_dense, .dense = info->dense_column, .tables = &s->tables};
  PetscCall(compare_used(checkpoint, &data, &use, refuses));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take(TrsSession *s, const TrsMapping *checkpoint, PetscBool refuses)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(TrsMappingCheck(checkpoint, -1));
  PetscCall(compare(s, s->train, checkpoint, refuses));
  PetscCall(compare(s, s->eval, checkpoint, refuses));
  if (s->train) {
    PetscCall(TrsDatasetGetInfo(s->train, &info));
    s->mapping = TrsDataMapping(info).text;
  }
  if (!s->mapping && refuses) s->mapping = checkpoint->text;
  if (!s->mapping && !s->train && s->eval) {
    PetscCall(TrsDatasetGetInfo(s->eval, &info));
    s->mapping = TrsDataMapping(info).text;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionTakeMapping(TrsSession *s, const char *path, const char *text, PetscBool refuses,
                                     TrsResults results)
{
  const TrsMapping checkpoint = {.path = path, .text = text};

  PetscFunctionBegin;
  PetscCall(TrsAgree(s->comm, s->rank == 0 ? take(s, &checkpoint, refuses) : PETSC_SUCCESS));
  if (s->mapping) PetscCall(TrsResultsSetText(results, TRS_MAPPING_ATTRIBUTE, s->mapping));
  PetscFunctionReturn(PETSC_SUCCESS);
}
