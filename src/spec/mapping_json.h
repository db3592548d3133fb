/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a mapping. Internal to spec/. */
#pragma once

#include "spec/mapping.h"

#include <jansson.h>

/*
  Read the text of a mapping. The caller must free *root with json_decref(). Not collective. Errors:
  DATA if the text is not a mapping of this version
*/
PetscErrorCode TrsMappingParse(const TrsMapping *mapping, json_t **root);

/* Find the entry with this name, or NULL. The search begins at `at`, where it usually is. */
const json_t *TrsMappingFind(const json_t *list, size_t at, const char *name);
