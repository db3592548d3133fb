/* SPDX-License-Identifier: BSD-3-Clause */
/* The mapping of a collection's data. The collection's checkpoints carry it. */
#include "api/impl.h"

static PetscErrorCode free_mapping(TrsKeptMapping *mapping)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(mapping->path));
  PetscCall(PetscFree(mapping->text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode keep(TrshardCollection c, const TrsMapping *mapping, TrsKeptMapping *kept)
{
  const TrsKeptMapping *of_other = kept == &c->of_data ? &c->of_file : &c->of_data;
  const TrsMapping other = {.path = of_other->path, .text = of_other->text};
  char *path, *text;

  PetscFunctionBegin;
  PetscCall(TrsMappingCheck(mapping, -1));
  PetscCall(TrsMappingCompare(&other, mapping, &(TrsMappingUse){.tables = &c->tables}));
  PetscCall(PetscStrallocpy(mapping->path, &path));
  PetscCall(PetscStrallocpy(mapping->text, &text));
  PetscCall(free_mapping(kept));
  *kept = (TrsKeptMapping){.path = path, .text = text};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiKeepMapping(TrshardCollection c, const TrsMapping *mapping, TrsKeptMapping *kept)
{
  PetscFunctionBegin;
  PetscCall(TrsAgree(c->comm, mapping->text ? keep(c, mapping, kept) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiFreeMappings(TrshardCollection c)
{
  PetscFunctionBegin;
  PetscCall(free_mapping(&c->of_data));
  PetscCall(free_mapping(&c->of_file));
  PetscFunctionReturn(PETSC_SUCCESS);
}
