/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_ids.h"

#include "spec/table_keys.h"

#include <inttypes.h>
#include <string.h>

static const char *const keys[] = {
#define KEY(word, ...) #word,
    TRS_ID_KEYS(KEY)};

/*
  Does the table's id_map use the key? Keys begin with the word of their id_map, or are for both.
*/
static PetscBool uses(const TrsTableConfig *table, const char *key)
{
  const PetscBool of_zch = (PetscBool)(strncmp(key, "zch_", 4) == 0),
                  of_dynamic = (PetscBool)(strncmp(key, "dynamic_", 8) == 0);

  if (!TrsTableKeepsIds(table)) return PETSC_FALSE;
  return (PetscBool)(table->id_map.kind == TRS_ID_MAP_ZCH ? !of_dynamic : !of_zch);
}

/* Refuse keys that were given for this table in particular, which has another id_map. */
static PetscErrorCode refuse(TrsOptions options, const TrsTableConfig *table)
{
  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    const char *name, *source;
    PetscBool own;

    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), keys[i], &name));
    PetscCall(TrsOptionsSource(options, name, &source));
    PetscCall(TrsTableKeyIsOwn(options, table, keys[i], &own));
    if (!own || strcmp(source, "default") == 0 || uses(table, keys[i])) continue;
    if (TrsTableKeepsIds(table))
      FAIL(keys[i], "table \"%s\" has id_map %s: leave this out", table->name,
           TrsIdMapName(table->id_map.kind));
    FAIL(keys[i], "table \"%s\" has fixed rows: give id_map %s too, or leave this out", table->name,
         strncmp(keys[i], "dynamic_", 8) == 0 ? "dynamic" : "zch");
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsTableIdsSizeKey(const TrsTableConfig *table)
{
  return table->dynamic.size_key ? table->dynamic.size_key : "num_embeddings";
}

static PetscErrorCode check_size(TrsOptions options, const TrsTableConfig *table)
{
  const int64_t rows = table->num_embeddings, buckets = TrsTableBuckets(table);
  const PetscBool dynamic = (PetscBool)(table->id_map.kind == TRS_ID_MAP_DYNAMIC);
  const char *key = dynamic ? "dynamic_buckets" : "zch_buckets", *size = TrsTableIdsSizeKey(table);

  PetscFunctionBegin;
  if (rows % buckets != 0)
    FAIL(size,
         "table \"%s\" has %" PRId64 " rows, which %" PRId64 " buckets (%s) do not divide: take %" PRId64
         " rows",
         table->name, rows, buckets, key, rows / buckets * buckets + buckets);
  if (rows / buckets < 2)
    FAIL(key,
         "table \"%s\" has one row a bucket, which is for ids without a row: give at least 2 x %" PRId64
         " rows (%s) or fewer buckets",
         table->name, buckets, size);
  if (rows / buckets > UINT32_MAX - INT64_C(1))
    FAIL(key, "table \"%s\" has %" PRId64 " rows a bucket, at most %" PRId64 ": give more buckets",
         table->name, rows / buckets, UINT32_MAX - INT64_C(1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_zch(TrsOptions options, TrsTableConfig *table)
{
  TrsZchRule *rule = &table->zch;
  int policy, filter;
  double exponent;

  PetscFunctionBegin;
  GET(Enum, "zch_policy", &policy, NULL);
  GET(Int, "zch_interval", &rule->interval, NULL);
  GET(Real, "zch_decay_exponent", &exponent, NULL);
  GET(Enum, "zch_filter", &filter, NULL);
  GET(Real, "zch_filter_multiplier", &rule->multiplier, NULL);
  GET(Int, "zch_buckets", &rule->buckets, NULL);
  GET(Int, "zch_input_hash_size", &rule->range, NULL);
  GET(Bool, "zch_torchrec", &rule->torchrec, NULL);
  rule->policy = (TrsZchPolicy)policy;
  rule->filter = (TrsZchFilter)filter;
  rule->exponent = (float)exponent;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_dynamic(TrsOptions options, TrsTableConfig *table)
{
  TrsDynamicRule *rule = &table->dynamic;
  int64_t candidates;
  int policy;

  PetscFunctionBegin;
  GET(Enum, "dynamic_policy", &policy, NULL);
  GET(Int, "dynamic_ttl", &rule->ttl, NULL);
  GET(Int, "dynamic_admit_after", &rule->admit_after, NULL);
  GET(Real, "dynamic_admit_probability", &rule->admit_probability, NULL);
  GET(Int, "dynamic_candidates", &candidates, NULL);
  rule->policy = (TrsDynamicPolicy)policy;
  if (candidates == 0) candidates = table->num_embeddings;
  rule->candidates = (candidates + rule->buckets - 1) / rule->buckets;
  if (rule->policy == TRS_DYNAMIC_TTL && rule->ttl == 0)
    FAIL("dynamic_policy", "table \"%s\": ttl needs dynamic_ttl, the batches after which an id loses its row",
         table->name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableIdsSize(TrsOptions options, TrsTableConfig *table, int64_t *rows)
{
  int64_t cap = 0, bytes = 0, row_bytes;
  int data_type;

  PetscFunctionBegin;
  if (table->id_map.kind != TRS_ID_MAP_DYNAMIC) PetscFunctionReturn(PETSC_SUCCESS);
  GET(Enum, "data_type", &data_type, NULL);
  GET(Int, "dynamic_cap", &cap, NULL);
  GET(Int, "dynamic_cap_bytes", &bytes, NULL);
  GET(Int, "dynamic_buckets", &table->dynamic.buckets, NULL);
  row_bytes = table->embedding_dim * TrsDTypeBytes((TrsDType)data_type);
  if (cap && bytes)
    FAIL("dynamic_cap_bytes",
         "table \"%s\" has dynamic_cap %" PRId64 " too: give one of them, and 0 for the other", table->name,
         cap);
  if (bytes) cap = bytes / row_bytes / table->dynamic.buckets * table->dynamic.buckets;
  if (bytes && cap == 0)
    FAIL("dynamic_cap_bytes",
         "table \"%s\": %" PRId64 " bytes have no room for a row of %" PRId64 " bytes in each of %" PRId64
         " buckets",
         table->name, bytes, row_bytes, table->dynamic.buckets);
  table->dynamic.size_key = bytes ? "dynamic_cap_bytes" : cap ? "dynamic_cap" : NULL;
  if (cap) *rows = cap;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableIdsRead(TrsOptions options, TrsTableConfig *table)
{
  int unknown;

  PetscFunctionBegin;
  if (table->id_map.kind == TRS_ID_MAP_ZCH) PetscCall(read_zch(options, table));
  if (table->id_map.kind == TRS_ID_MAP_DYNAMIC) PetscCall(read_dynamic(options, table));
  PetscCall(refuse(options, table));
  if (!TrsTableKeepsIds(table)) PetscFunctionReturn(PETSC_SUCCESS);
  GET(Enum, "unknown_row", &unknown, NULL);
  table->unknown = (TrsUnknownRow)unknown;
  PetscCall(check_size(options, table));
  if (table->constraints.sharding_types == 1U << TRS_SHARDING_DATA_PARALLEL)
    FAIL("sharding_types",
         "table \"%s\" has id_map %s, whose rows follow the ids of all ranks in one order: data_parallel "
         "replicas do not see them",
         table->name, TrsIdMapName(table->id_map.kind));
  PetscFunctionReturn(PETSC_SUCCESS);
}
