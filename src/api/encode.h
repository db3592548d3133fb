/* SPDX-License-Identifier: BSD-3-Clause */
/* Raw rows become the inputs of a model, as the entries of a mapping say. Internal to api/. */
#pragma once

#include "api/trshard.h"
#include "embed/row_index.h"
#include "spec/mapping_entries.h"

/* The columns of an entry, as places in the caller's list of columns. */
typedef struct {
  int values;
  int weights; /* -1 if the entry has none */
} TrsEncodeColumns;

/* Several threads may encode with the same rules. */
typedef struct {
  TrsMappingEntries entries;
  PetscBool weighted; /* true if an entry has weights */
  TrsRowIndex *index; /* [n_sparse] index of the keys of each vocabulary */
  int n_columns;
  TrshardColumnInfo *column;        /* [n_columns] texts are borrowed from the entries */
  TrshardValue *absent;             /* [n_columns] the value if the rows lack the column */
  TrsEncodeColumns *dense, *sparse; /* [n_dense], [n_sparse] */
} TrsEncodeRules;

/*
  Prepare the rules. The caller must have read `entries`; the other fields must be zero. Not
  collective. Free with TrsEncodeRulesFree(), also after an error. Errors: MEMORY
*/
PetscErrorCode TrsEncodeRulesPrepare(TrsEncodeRules *rules);
PetscErrorCode TrsEncodeRulesFree(TrsEncodeRules *rules);

/*
  TrsEncode - Encode rows. See TrshardEncode().

  Not collective. Any thread may call it, also when PETSc is not initialised. The thread must have
  the C locale.
*/
PetscErrorCode TrsEncode(const TrsEncodeRules *rules, int64_t rows, const TrshardColumn *columns,
                         TrshardEncoded **encoded);
void TrsEncodedFree(TrshardEncoded **encoded);
