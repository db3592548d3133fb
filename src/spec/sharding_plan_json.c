/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Reads and writes the plan file. jansson reads it. Our own code writes it, because a plan can have
  millions of shards.
*/
#include "spec/sharding_plan.h"
#include "spec/table_choices.h"
#include "spec/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PetscErrorCode TrsTextJsonStorage(TrsText *text, const TrsStorage *storage)
{
  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "{\"hbm\": %" PRId64 ", \"ddr\": %" PRId64 "}", storage->hbm, storage->ddr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTextJsonPerf(TrsText *text, const TrsPerf *perf)
{
  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text,
                          "{\"fwd_compute\": %.17g, \"fwd_comms\": %.17g, \"bwd_compute\": %.17g, "
                          "\"bwd_comms\": %.17g, \"prefetch_compute\": %.17g}",
                          perf->fwd_compute, perf->fwd_comms, perf->bwd_compute, perf->bwd_comms,
                          perf->prefetch_compute));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool same_costs(const TrsShard *a, const TrsShard *b)
{
  return (PetscBool)(a->storage.hbm == b->storage.hbm && a->storage.ddr == b->storage.ddr &&
                     a->perf.fwd_compute == b->perf.fwd_compute && a->perf.fwd_comms == b->perf.fwd_comms &&
                     a->perf.bwd_compute == b->perf.bwd_compute && a->perf.bwd_comms == b->perf.bwd_comms &&
                     a->perf.prefetch_compute == b->perf.prefetch_compute);
}

/*
  Write the end of a shard: ", \"storage\": ..., \"perf\": ...}". Most shards have the same costs as
  the previous shard. For them the previous text is copied.
*/
static PetscErrorCode write_costs(TrsText *text, const TrsShard *shard, const TrsShard *before, size_t *at,
                                  size_t *n)
{
  PetscFunctionBegin;
  if (before && same_costs(shard, before)) {
    size_t from = *at;

    *at = text->n;
    /* The text may move in memory while it grows, so it is copied through a small buffer. */
    for (size_t i = 0; i < *n; i += 64) {
      char piece[64];
      size_t n_piece = PetscMin(sizeof(piece), *n - i);

      memcpy(piece, text->data + from + i, n_piece);
      PetscCall(TrsTextAppend(text, piece, n_piece));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *at = text->n;
  PetscCall(TrsTextPrintf(text, ", \"storage\": "));
  PetscCall(TrsTextJsonStorage(text, &shard->storage));
  PetscCall(TrsTextPrintf(text, ", \"perf\": "));
  PetscCall(TrsTextJsonPerf(text, &shard->perf));
  PetscCall(TrsTextPrintf(text, "}"));
  *n = text->n - *at;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_choices(TrsText *text, const TrsTablePlan *table)
{
  PetscFunctionBegin;
  for (int k = 0; k < TRS_N_TABLE_CHOICES; k++) {
    const TrsTableChoiceKind kind = (TrsTableChoiceKind)k;
    const char *quote = TrsTableChoiceForm(kind) == TRS_FORM_WORD ? "\"" : "";
    char value[32];

    if (!table->choice[k].set) continue;
    TrsTableChoiceText(kind, table->choice[k].value, value, sizeof(value));
    PetscCall(TrsTextPrintf(text, ", \"%s\": %s%s%s", TrsTableChoiceName(kind), quote, value, quote));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_table(TrsText *text, const TrsTablePlan *table, PetscBool has_costs)
{
  size_t at = 0, n = 0;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "{\"name\": "));
  PetscCall(TrsTextJsonString(text, table->name));
  PetscCall(TrsTextPrintf(text,
                          ", \"module\": \"%s\", \"sharding_type\": \"%s\", \"compute_kernel\": "
                          "\"%s\",\n   \"ranks\": [",
                          TrsModuleName(table->module), TrsShardingTypeName(table->sharding_type),
                          TrsComputeKernelName(table->compute_kernel)));
  for (int i = 0; i < table->n_shards; i++)
    PetscCall(TrsTextPrintf(text, "%s%d", i ? ", " : "", table->shard[i].rank));
  PetscCall(TrsTextPrintf(text, "]"));
  if (table->has_cache_load_factor)
    PetscCall(TrsTextPrintf(text, ", \"cache_load_factor\": %.17g", table->cache_load_factor));
  PetscCall(write_choices(text, table));
  PetscCall(TrsTextPrintf(text, ",\n   \"shards\": ["));
  for (int i = 0; i < table->n_shards; i++) {
    const TrsShard *shard = &table->shard[i];

    PetscCall(TrsTextPrintf(
        text, "%s{\"rank\": %d, \"offset\": [%" PRId64 ", %" PRId64 "], \"size\": [%" PRId64 ", %" PRId64 "]",
        i ? ",\n    " : "", shard->rank, shard->row_offset, shard->col_offset, shard->rows, shard->cols));
    if (has_costs)
      PetscCall(write_costs(text, shard, i ? shard - 1 : NULL, &at, &n));
    else
      PetscCall(TrsTextPrintf(text, "}"));
  }
  PetscCall(TrsTextPrintf(text, "]}"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_device(TrsText *text, const TrsShardingPlan *plan, int d)
{
  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "{\"rank\": %d, \"storage\": ", d));
  PetscCall(TrsTextJsonStorage(text, &plan->device_storage[d]));
  PetscCall(TrsTextPrintf(text, ", \"perf\": "));
  PetscCall(TrsTextJsonPerf(text, &plan->device_perf[d]));
  if (plan->device_capacity) {
    PetscCall(TrsTextPrintf(text, ",\n   \"capacity\": "));
    PetscCall(TrsTextJsonStorage(text, &plan->device_capacity[d]));
    PetscCall(TrsTextPrintf(text, ", \"available\": "));
    PetscCall(TrsTextJsonStorage(text, &plan->device_available[d]));
  }
  PetscCall(TrsTextPrintf(text, "}"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingPlanToJson(const TrsShardingPlan *plan, char **json)
{
  TrsText text = {0};

  PetscFunctionBegin;
  /* A plan written by hand may not have the sizes of its world. */
  PetscCall(TrsTextPrintf(&text, "{\"format\": \"trshard-plan\", \"version\": 1, "));
  if (plan->world_size) PetscCall(TrsTextPrintf(&text, "\"world_size\": %d, ", plan->world_size));
  if (plan->local_world_size)
    PetscCall(TrsTextPrintf(&text, "\"local_world_size\": %d, ", plan->local_world_size));
  PetscCall(TrsTextPrintf(&text, "\"pod_size\": %d,\n \"tables\": [", PetscMax(1, plan->pod_size)));
  for (int t = 0; t < plan->n_tables; t++) {
    if (t) PetscCall(TrsTextPrintf(&text, ",\n  "));
    PetscCall(write_table(&text, &plan->table[t], plan->has_costs));
  }
  if (!plan->has_costs) {
    PetscCall(TrsTextPrintf(&text, "]}\n"));
    *json = text.data;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsTextPrintf(&text, "],\n \"devices\": ["));
  for (int d = 0; d < plan->n_devices; d++) {
    if (d) PetscCall(TrsTextPrintf(&text, ",\n  "));
    PetscCall(write_device(&text, plan, d));
  }
  PetscCall(TrsTextPrintf(&text,
                          "],\n \"critical_path\": %.17g, \"proposals\": %" PRId64 ", \"feasible\": %" PRId64
                          ", \"partitioned\": %" PRId64 "}\n",
                          plan->critical_path, plan->proposals, plan->feasible, plan->partitioned));
  *json = text.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Limit for a shard's bytes, rows and columns. It ensures that sums of them do not overflow at once.
*/
static const int64_t most_bytes = (int64_t)1 << 60;

/* The current position in the file, for messages, such as "FILE: tables[3].shards[0]". */
typedef struct {
  const char *source;
  char path[256];
} TrsPlace;

static void at(TrsPlace *place, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);
static void at(TrsPlace *place, const char *format, ...)
{
  va_list args;

  va_start(args, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right above */
  vsnprintf(place->path, sizeof(place->path), format, args);
  va_end(args);
}

static PetscErrorCode get(const json_t *object, const char *key, json_type type, const TrsPlace *place,
                          json_t **value)
{
  static const char *const names[] = {"an object", "an array", "a string", "an integer", "a number"};

  PetscFunctionBegin;
  *value = json_object_get(object, key);
  PetscCheck(*value, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s has no field \"%s\"", place->source, place->path,
             key);
  PetscCheck(json_typeof(*value) == type || (type == JSON_REAL && json_is_integer(*value)), PETSC_COMM_SELF,
             TRS_ERR_DATA, "%s: %s.%s is not %s", place->source, place->path, key, names[type]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode get_int(const json_t *object, const char *key, int64_t low, int64_t high,
                              const TrsPlace *place, int64_t *value)
{
  json_t *field;

  PetscFunctionBegin;
  PetscCall(get(object, key, JSON_INTEGER, place, &field));
  *value = (int64_t)json_integer_value(field);
  PetscCheck(*value >= low && *value <= high, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: %s.%s is %" PRId64 ", not in [%" PRId64 ", %" PRId64 "]", place->source, place->path, key,
             *value, low, high);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a non-negative number. JSON has no NaN, and jansson rejects numbers that overflow. */
static PetscErrorCode get_real(const json_t *object, const char *key, const TrsPlace *place, double *value)
{
  json_t *field;

  PetscFunctionBegin;
  PetscCall(get(object, key, JSON_REAL, place, &field));
  *value = json_number_value(field);
  PetscCheck(*value >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s.%s is %g, which is negative", place->source,
             place->path, key, *value);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a pair [row, col]. */
static PetscErrorCode get_pair(const json_t *object, const char *key, const TrsPlace *place, int64_t *row,
                               int64_t *col)
{
  json_t *field, *entry[2];

  PetscFunctionBegin;
  PetscCall(get(object, key, JSON_ARRAY, place, &field));
  for (size_t i = 0; i < 2; i++) {
    entry[i] = json_array_get(field, i);
    PetscCheck(json_array_size(field) == 2 && json_is_integer(entry[i]) && json_integer_value(entry[i]) >= 0,
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s.%s is not [row, column]", place->source, place->path,
               key);
    PetscCheck(json_integer_value(entry[i]) < most_bytes, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: %s.%s has %lld, expected less than 2^60", place->source, place->path, key,
               (long long)json_integer_value(entry[i]));
  }
  *row = (int64_t)json_integer_value(entry[0]);
  *col = (int64_t)json_integer_value(entry[1]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read bytes in [least, most]. The memory that a reservation leaves can be negative. */
static PetscErrorCode get_storage(const json_t *object, const char *key, int64_t least, int64_t most,
                                  const TrsPlace *place, TrsStorage *storage)
{
  json_t *field;

  PetscFunctionBegin;
  PetscCall(get(object, key, JSON_OBJECT, place, &field));
  PetscCall(get_int(field, "hbm", least, most, place, &storage->hbm));
  PetscCall(get_int(field, "ddr", least, most, place, &storage->ddr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode get_costs(const json_t *object, const TrsPlace *place, TrsStorage *storage,
                                TrsPerf *perf)
{
  json_t *field;

  PetscFunctionBegin;
  PetscCall(get_storage(object, "storage", 0, most_bytes, place, storage));
  PetscCall(get(object, "perf", JSON_OBJECT, place, &field));
  PetscCall(get_real(field, "fwd_compute", place, &perf->fwd_compute));
  PetscCall(get_real(field, "fwd_comms", place, &perf->fwd_comms));
  PetscCall(get_real(field, "bwd_compute", place, &perf->bwd_compute));
  PetscCall(get_real(field, "bwd_comms", place, &perf->bwd_comms));
  PetscCall(get_real(field, "prefetch_compute", place, &perf->prefetch_compute));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a word and find its index. `name_of` gives the words of the n values of an enum. */
static PetscErrorCode get_choice(const json_t *object, const char *key, int n, const char *(*name_of)(int),
                                 const TrsPlace *place, int *choice)
{
  json_t *field;

  PetscFunctionBegin;
  PetscCall(get(object, key, JSON_STRING, place, &field));
  for (*choice = 0; *choice < n; ++*choice) {
    if (!strcmp(name_of(*choice), json_string_value(field))) PetscFunctionReturn(PETSC_SUCCESS);
  }
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s.%s \"%.60s\" is not known", place->source, place->path, key,
          json_string_value(field));
}

static const char *sharding_name(int i)
{
  return TrsShardingTypeName((TrsShardingType)i);
}

static const char *module_name(int i)
{
  return TrsModuleName((TrsModule)i);
}

static const char *kernel_name(int i)
{
  return TrsComputeKernelName((TrsComputeKernel)i);
}

/* Read one of the table's choices if the file has it. */
static PetscErrorCode read_choice(const json_t *object, TrsTableChoiceKind kind, const TrsPlace *place,
                                  TrsTableChoice *choice)
{
  const char *key = TrsTableChoiceName(kind), *word;
  json_t *field = json_object_get(object, key);
  int value = 0;

  PetscFunctionBegin;
  choice->set = PETSC_TRUE;
  switch (TrsTableChoiceForm(kind)) {
  case TRS_FORM_BYTES: PetscCall(get_int(object, key, 0, most_bytes, place, &choice->value)); break;
  case TRS_FORM_FLAG:
    PetscCheck(json_is_boolean(field), PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s.%s is not true or false",
               place->source, place->path, key);
    choice->value = json_is_true(field);
    break;
  case TRS_FORM_WORD:
    PetscCall(get(object, key, JSON_STRING, place, &field));
    while ((word = TrsTableChoiceWord(kind, value)) != NULL && strcmp(word, json_string_value(field)) != 0)
      value++;
    PetscCheck(word, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s.%s \"%.60s\" is not known", place->source,
               place->path, key, json_string_value(field));
    choice->value = value;
    break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the ranks of a table without shards. TrsShardingPlanComplete() adds the rectangles later. */
static PetscErrorCode read_ranks(const json_t *ranks, const TrsPlace *place, TrsTablePlan *table)
{
  PetscFunctionBegin;
  PetscCheck(json_array_size(ranks) > 0 && json_array_size(ranks) < INT_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: %s.ranks is empty", place->source, place->path);
  table->only_ranks = PETSC_TRUE;
  table->n_shards = (int)json_array_size(ranks);
  PetscCall(PetscCalloc1(table->n_shards, &table->shard));
  for (int i = 0; i < table->n_shards; i++) {
    const json_t *rank = json_array_get(ranks, (size_t)i);

    PetscCheck(json_is_integer(rank) && json_integer_value(rank) >= 0 && json_integer_value(rank) < INT_MAX,
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s.ranks[%d] is not a rank", place->source, place->path,
               i);
    table->shard[i].rank = (int)json_integer_value(rank);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_shard(const json_t *object, const json_t *rank, PetscBool has_costs,
                                 const TrsPlace *place, TrsShard *shard)
{
  int64_t value;

  PetscFunctionBegin;
  PetscCheck(json_is_object(object), PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s is not an object", place->source,
             place->path);
  PetscCall(get_int(object, "rank", 0, INT_MAX, place, &value));
  shard->rank = (int)value;
  PetscCheck(json_is_integer(rank) && json_integer_value(rank) == value, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: %s.rank %" PRId64 " disagrees with the table's list of ranks", place->source, place->path,
             value);
  PetscCall(get_pair(object, "offset", place, &shard->row_offset, &shard->col_offset));
  PetscCall(get_pair(object, "size", place, &shard->rows, &shard->cols));
  if (has_costs) PetscCall(get_costs(object, place, &shard->storage, &shard->perf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_table(const json_t *object, int index, PetscBool has_costs, TrsPlace *place,
                                 TrsTablePlan *table)
{
  json_t *field, *ranks;
  int choice = 0;

  PetscFunctionBegin;
  at(place, "tables[%d]", index);
  PetscCheck(json_is_object(object), PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s is not an object", place->source,
             place->path);
  PetscCall(get(object, "name", JSON_STRING, place, &field));
  PetscCall(PetscStrallocpy(json_string_value(field), &table->name));
  if (json_object_get(object, "module")) /* plans of older versions have no module */
    PetscCall(get_choice(object, "module", TRS_N_MODULES, module_name, place, &choice));
  table->module = (TrsModule)choice;
  PetscCall(get_choice(object, "sharding_type", TRS_N_SHARDINGS, sharding_name, place, &choice));
  table->sharding_type = (TrsShardingType)choice;
  PetscCall(get_choice(object, "compute_kernel", TRS_N_KERNELS, kernel_name, place, &choice));
  table->compute_kernel = (TrsComputeKernel)choice;
  table->has_cache_load_factor = (PetscBool)(json_object_get(object, "cache_load_factor") != NULL);
  if (table->has_cache_load_factor)
    PetscCall(get_real(object, "cache_load_factor", place, &table->cache_load_factor));
  for (int k = 0; k < TRS_N_TABLE_CHOICES; k++)
    if (json_object_get(object, TrsTableChoiceName((TrsTableChoiceKind)k)))
      PetscCall(read_choice(object, (TrsTableChoiceKind)k, place, &table->choice[k]));
  PetscCall(get(object, "ranks", JSON_ARRAY, place, &ranks));
  if (!json_object_get(object, "shards")) {
    PetscCall(read_ranks(ranks, place, table));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(get(object, "shards", JSON_ARRAY, place, &field));
  PetscCheck(json_array_size(field) == json_array_size(ranks) && json_array_size(field) < INT_MAX,
             PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s has %zu shards but %zu ranks", place->source, place->path,
             json_array_size(field), json_array_size(ranks));
  table->n_shards = (int)json_array_size(field);
  PetscCall(PetscCalloc1(table->n_shards, &table->shard));
  for (int i = 0; i < table->n_shards; i++) {
    at(place, "tables[%d].shards[%d]", index, i);
    PetscCall(read_shard(json_array_get(field, (size_t)i), json_array_get(ranks, (size_t)i), has_costs, place,
                         &table->shard[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_devices(const json_t *devices, TrsPlace *place, TrsShardingPlan *plan)
{
  /* Plans of older versions have no capacity. */
  const PetscBool has_capacity = (PetscBool)(json_object_get(json_array_get(devices, 0), "capacity") != NULL);

  PetscFunctionBegin;
  PetscCheck((size_t)plan->world_size == json_array_size(devices), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: world_size is %d, but there are %zu devices", place->source, plan->world_size,
             json_array_size(devices));
  plan->n_devices = plan->world_size;
  PetscCall(PetscCalloc1(plan->n_devices, &plan->device_storage));
  PetscCall(PetscCalloc1(plan->n_devices, &plan->device_perf));
  if (has_capacity) PetscCall(PetscCalloc1(plan->n_devices, &plan->device_capacity));
  if (has_capacity) PetscCall(PetscCalloc1(plan->n_devices, &plan->device_available));
  for (int d = 0; d < plan->n_devices; d++) {
    const json_t *device = json_array_get(devices, (size_t)d);

    at(place, "devices[%d]", d);
    PetscCall(get_costs(device, place, &plan->device_storage[d], &plan->device_perf[d]));
    if (!has_capacity) continue;
    PetscCall(get_storage(device, "capacity", 0, INT64_MAX, place, &plan->device_capacity[d]));
    PetscCall(get_storage(device, "available", INT64_MIN, INT64_MAX, place, &plan->device_available[d]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read a plan's sizes. If the file has "devices", read also the costs. Missing sizes become 0. */
static PetscErrorCode read_head(const json_t *root, TrsPlace *place, TrsShardingPlan *plan)
{
  int *const size[] = {&plan->world_size, &plan->local_world_size, &plan->pod_size};
  static const char *const key[] = {"world_size", "local_world_size", "pod_size"};
  json_t *field;
  int64_t value;

  PetscFunctionBegin;
  for (int i = 0; i < 3; i++) {
    value = 0;
    if (json_object_get(root, key[i])) PetscCall(get_int(root, key[i], 1, INT_MAX, place, &value));
    *size[i] = (int)value;
  }
  plan->has_costs = (PetscBool)(json_object_get(root, "devices") != NULL);
  if (!plan->has_costs) {
    if (plan->world_size) PetscCall(TrsShardingPlanNoCosts(plan));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(get_real(root, "critical_path", place, &plan->critical_path));
  PetscCall(get_int(root, "proposals", 0, TRS_MOST_COUNT, place, &plan->proposals));
  PetscCall(get_int(root, "feasible", 0, TRS_MOST_COUNT, place, &plan->feasible));
  PetscCall(get_int(root, "partitioned", 0, TRS_MOST_COUNT, place, &plan->partitioned));
  PetscCall(get(root, "devices", JSON_ARRAY, place, &field));
  PetscCall(read_devices(field, place, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_plan(const json_t *root, TrsPlace *place, TrsShardingPlan *plan)
{
  json_t *field;
  int64_t value;

  PetscFunctionBegin;
  at(place, "the plan");
  PetscCheck(json_is_object(root), PETSC_COMM_SELF, TRS_ERR_DATA, "%s: not a plan: expected a JSON object",
             place->source);
  PetscCall(get(root, "format", JSON_STRING, place, &field));
  PetscCheck(!strcmp(json_string_value(field), "trshard-plan"), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: format is \"%.60s\", not \"trshard-plan\"", place->source, json_string_value(field));
  PetscCall(get_int(root, "version", 1, 1, place, &value));
  PetscCall(read_head(root, place, plan));
  at(place, "the plan");
  PetscCall(get(root, "tables", JSON_ARRAY, place, &field));
  PetscCheck(json_array_size(field) < INT_MAX, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: too many tables",
             place->source);
  plan->n_tables = (int)json_array_size(field);
  PetscCall(PetscCalloc1(plan->n_tables, &plan->table));
  for (int t = 0; t < plan->n_tables; t++)
    PetscCall(read_table(json_array_get(field, (size_t)t), t, plan->has_costs, place, &plan->table[t]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingPlanFromJson(const char *json, const char *source, TrsShardingPlan *plan)
{
  json_error_t error;
  json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
  TrsPlace place = {.source = source};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *plan = (TrsShardingPlan){0};
  PetscCheck(root, PETSC_COMM_SELF, TRS_ERR_DATA, "%s:%d:%d: not JSON: %s", source, error.line, error.column,
             error.text);
  ierr = read_plan(root, &place, plan);
  json_decref(root);
  if (ierr) PetscCall(TrsShardingPlanFree(plan));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
