/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_zch.h"

#include "spec/table_keys.h"

#include <inttypes.h>
#include <string.h>

static const char *const keys[] = {
#define KEY(word, ...) #word,
    TRS_ZCH_KEYS(KEY)};

/* Refuse keys that were given for this table alone, which has another id_map. */
static PetscErrorCode refuse(TrsOptions options, const TrsTableConfig *table)
{
  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    const char *name, *source;
    PetscBool own;

    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), keys[i], &name));
    PetscCall(TrsOptionsSource(options, name, &source));
    PetscCall(TrsTableKeyIsOwn(options, table, keys[i], &own));
    if (own && strcmp(source, "default") != 0)
      FAIL(keys[i], "table \"%s\" has fixed rows: give id_map zch too, or leave this out", table->name);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_size(TrsOptions options, const TrsTableConfig *table)
{
  const int64_t rows = table->num_embeddings, buckets = table->zch.buckets;

  PetscFunctionBegin;
  if (rows % buckets != 0)
    FAIL("num_embeddings",
         "table \"%s\" has %" PRId64 " rows, which %" PRId64
         " buckets (zch_buckets) do not divide: take %" PRId64 " rows",
         table->name, rows, buckets, rows / buckets * buckets + buckets);
  if (rows / buckets < 2)
    FAIL("zch_buckets",
         "table \"%s\" has one row a bucket, which is for ids without a row: give at least 2 x %" PRId64
         " rows (num_embeddings) or fewer buckets",
         table->name, buckets);
  if (rows / buckets > UINT32_MAX - INT64_C(1))
    FAIL("zch_buckets", "table \"%s\" has %" PRId64 " rows a bucket, at most %" PRId64 ": give more buckets",
         table->name, rows / buckets, UINT32_MAX - INT64_C(1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableZchRead(TrsOptions options, TrsTableConfig *table)
{
  TrsZchRule *rule = &table->zch;
  int policy, filter;
  double exponent;

  PetscFunctionBegin;
  if (table->id_map.kind != TRS_ID_MAP_ZCH) {
    PetscCall(refuse(options, table));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
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
  PetscCall(check_size(options, table));
  if (table->constraints.sharding_types == 1U << TRS_SHARDING_DATA_PARALLEL)
    FAIL("sharding_types",
         "table \"%s\" has id_map zch, whose rows follow the ids of all ranks in one order: data_parallel "
         "replicas do not see them",
         table->name);
  PetscFunctionReturn(PETSC_SUCCESS);
}
