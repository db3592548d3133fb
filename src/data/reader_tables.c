/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection of the features that tables look up, from a dataset that may have more features. */
#include "data/reader.h"

#include <string.h>

/* Find the index of a feature's key in the dataset. */
static PetscErrorCode find_key(const TrsDatasetInfo *info, const char *feature, int *key)
{
  PetscFunctionBegin;
  for (*key = 0; *key < info->n_features && strcmp(info->features[*key], feature) != 0; ++*key) continue;
  PetscCheck(*key < info->n_features, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /sparse has no feature '%s', which the model needs", info->path, feature);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderSetTables(TrsReader reader, const TrsDatasetInfo *info, const TrsTableConfigs *tables,
                                  PetscBool map_ids)
{
  PetscBool weighted = PETSC_FALSE;
  TrsBoundsCheckMode *mode;
  TrsIdMapRule *map;
  int64_t *rows;
  int n = 0, *keys, *max_length;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) n += tables->table[t].n_features;
  PetscCall(PetscMalloc5(n, &keys, n, &rows, n, &mode, n, &map, n, &max_length));
  for (int t = 0, f = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const PetscBool raw = (PetscBool)(!map_ids && table->id_map.kind != TRS_ID_MAP_NONE);

    PetscCheck(!raw || table->id_map.kind != TRS_ID_MAP_MODULO || table->id_map.is_unsigned ||
                   !info->has_unsigned_ids,
               PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /sparse/values is uint64, but table \"%.100s\" takes ids as int64: give its collection "
               "-tables_id_unsigned",
               info->path, table->name);
    if (table->is_weighted) weighted = PETSC_TRUE;
    for (int k = 0; k < table->n_features; k++, f++) {
      PetscCall(find_key(info, table->features[k], &keys[f]));
      rows[f] = table->num_embeddings;
      map[f] = table->id_map;
      if (raw) map[f].kind = TRS_ID_MAP_NONE;
      mode[f] = raw ? TRS_BOUNDS_NONE : table->bounds_check_mode;
      max_length[f] = table->max_feature_lengths ? table->max_feature_lengths[k] : 0;
    }
  }
  PetscCall(TrsReaderSetFeatures(reader, n, keys, rows, mode, weighted));
  PetscCall(TrsReaderSetIdMaps(reader, map));
  PetscCall(TrsReaderSetMaxLengths(reader, max_length));
  PetscCall(PetscFree5(keys, rows, mode, map, max_length));
  PetscFunctionReturn(PETSC_SUCCESS);
}
