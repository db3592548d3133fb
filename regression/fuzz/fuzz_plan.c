/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: parse and check a plan file. For any text, the result must be a plan or one DATA
  error. A plan that is written and read again must stay the same.
*/
#include "fuzz_start.h"
#include "spec/sharding_plan.h"

#include <string.h>

static void round_trip(TrsShardingPlan *plan)
{
  static char a[] = "a", b[] = "b";
  TrsTableConfig table[2] = {{.name = a, .num_embeddings = 10, .embedding_dim = 8},
                             {.name = b, .num_embeddings = 7, .embedding_dim = 4}};
  TrsTableConfigs tables = {2, table};
  TrsShardingPlan again;
  char *json;

  (void)TrsShardingPlanCheck(plan, &tables, 2, "fuzz");
  if (TrsShardingPlanToJson(plan, &json) || TrsShardingPlanFromJson(json, "again", &again)) abort();
  if (again.n_tables != plan->n_tables) abort();
  (void)TrsShardingPlanFree(&again);
  (void)PetscFree(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1);
  TrsShardingPlan plan;

  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  if (!data_or_success(TrsShardingPlanFromJson(text, "fuzz", &plan))) round_trip(&plan);
  (void)TrsShardingPlanFree(&plan);
  TrsErrorClear();
  free(text);
  return 0;
}
