/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The mapping of a dataset: the JSON text in which a converter describes how it made dense features
  and ids from the columns of a table (input/FORMAT.md, "Mapping"). The program carries the text
  unchanged into checkpoints and results. It reads only the parts in which two mappings must agree,
  and the names.
*/
#pragma once

#include "core/error.h"
#include "spec/table_config.h"

#include <stdint.h>

/* The largest text that is read, in bytes. */
#define TRS_MAPPING_MOST_BYTES ((int64_t)64 << 20)

enum { TRS_MAPPING_TEXT = 320 }; /* bytes of the text that describes a difference */

/* The parts of two mappings that a model uses, and that must agree. The pointers are borrowed. */
typedef struct {
  int n_dense; /* number of dense features; none if it is 0 */
  /*
    [n_dense] places of the features in both mappings; NULL means the first n_dense in their order
  */
  const int *dense;
  const TrsTableConfigs *tables; /* their sparse features; NULL means all that both mappings have */
} TrsMappingUse;

/* The path of a file, and the file's mapping. The pointers are borrowed. */
typedef struct {
  const char *path;
  const char *text; /* NULL if the file has no mapping */
} TrsMapping;

/*
  TrsMappingCheck - Check that a text is a mapping of this version.

  Not collective. Accepts a mapping without a text. Errors: DATA with the path

  In:     num_dense  number of dense features that the mapping must have, or -1 for any number
*/
PetscErrorCode TrsMappingCheck(const TrsMapping *mapping, int num_dense);

/*
  TrsMappingDifference - Find out if two mappings give different ids or values to the same rows.

  The mappings must agree on the dense features in `use`, on each sparse feature in `use` that both
  have, and on the kind and the unit of group and time. They may differ in the names of columns, in
  words for missing values and in separators. If one mapping has no text, nothing is compared. Not
  collective.

  Out:    text     the first difference; "" if there is none
  Errors: DATA if a text is not a mapping
*/
PetscErrorCode TrsMappingDifference(const TrsMapping *a, const TrsMapping *b, const TrsMappingUse *use,
                                    char text[TRS_MAPPING_TEXT]);

/*
  Refuse two mappings that differ. Not collective. Errors: DATA with both paths and the difference
*/
PetscErrorCode TrsMappingCompare(const TrsMapping *a, const TrsMapping *b, const TrsMappingUse *use);

/*
  TrsMappingDenseNames - Get the names of the chosen dense features.

  Out:    names  [n] pointers and texts in one block of memory; free with PetscFree(). NULL if the
                 mapping has no text
  Errors: DATA if the mapping lacks one of the features
*/
PetscErrorCode TrsMappingDenseNames(const TrsMapping *mapping, int n, const int *dense, char ***names);
