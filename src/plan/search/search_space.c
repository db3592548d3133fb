/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/search_space.h"

#include <inttypes.h>

const char *TrsPartitionByName(TrsPartitionBy by)
{
  static const char *const names[] = {"device", "host", "uniform", "multi_host"};

  return names[by];
}

PetscErrorCode TrsSearchSpaceFree(TrsSearchSpace *space)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(space->option));
  PetscCall(PetscFree(space->table));
  PetscCall(PetscSegBufferDestroy(&space->classes));
  PetscCall(PetscSegBufferDestroy(&space->class_of));
  *space = (TrsSearchSpace){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsOptionNextPlace(const TrsPlanOption *option, int shard, TrsShardPlace *place)
{
  if (shard == 0 || option->type == TRS_SHARDING_DATA_PARALLEL) {
    place->row_offset = place->col_offset = 0;
  } else if (shard % option->row_shards == 0) {
    place->row_offset = 0;
    place->col_offset += place->cols;
  } else {
    place->row_offset += place->rows;
  }
  place->rows = TrsOptionShard(option, shard)->rows;
  place->cols = option->width;
}

static PetscErrorCode write_option(TrsText *text, const TrsPlanOption *option, const char *name)
{
  TrsShardPlace place = {0};

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "{\"name\": "));
  PetscCall(TrsTextJsonString(text, name));
  PetscCall(
      TrsTextPrintf(text,
                    ", \"sharding_type\": \"%s\", \"compute_kernel\": \"%s\", \"partition_by\": \"%s\",\n"
                    "   \"shards\": [",
                    TrsShardingTypeName(option->type), TrsComputeKernelName(option->kernel),
                    TrsPartitionByName(option->partition_by)));
  for (int s = 0; s < option->n_shards; s++) {
    const TrsShardClass *shard = TrsOptionShard(option, s);

    TrsOptionNextPlace(option, s, &place);
    PetscCall(TrsTextPrintf(text,
                            "%s{\"offset\": [%" PRId64 ", %" PRId64 "], \"size\": [%" PRId64 ", %" PRId64
                            "], \"storage\": ",
                            s ? ",\n    " : "", place.row_offset, place.col_offset, place.rows, place.cols));
    PetscCall(TrsTextJsonStorage(text, &shard->storage));
    PetscCall(TrsTextPrintf(text, ", \"perf\": "));
    PetscCall(TrsTextJsonPerf(text, &shard->perf));
    PetscCall(TrsTextPrintf(text, "}"));
  }
  PetscCall(TrsTextPrintf(text, "],\n   \"total_storage\": "));
  PetscCall(TrsTextJsonStorage(text, &option->total_storage));
  PetscCall(TrsTextPrintf(text, ", \"total_perf\": %.17g}", option->total_perf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSearchSpaceToJson(const TrsSearchSpace *space, const TrsTableConfigs *tables, TrsText *text)
{
  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "{\"format\": \"trshard-search-space\", \"version\": 1,\n \"options\": ["));
  for (int i = 0; i < space->n_options; i++) {
    const TrsPlanOption *option = &space->option[i];

    if (i) PetscCall(TrsTextPrintf(text, ",\n  "));
    PetscCall(write_option(text, option, tables->table[option->table].name));
  }
  PetscCall(TrsTextPrintf(text, "]}\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsOptionIsValid(const TrsPlanOption *option)
{
  if (TrsKernelIsCaching(option->kernel) && option->has_load_factor &&
      !(option->load_factor > 0 && option->load_factor < 1))
    return PETSC_FALSE;
  for (int k = 0; k < option->n_classes; k++) {
    if (option->shard_class[k].storage.hbm < 0 || option->shard_class[k].storage.ddr < 0) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}
