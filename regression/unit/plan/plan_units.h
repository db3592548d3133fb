/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Code that the planner's unit tests share: results of single functions of TorchRec (units.json),
  and options of modules above the planner.
*/
#pragma once

#include "plan/planner.h"
#include "plan/search/search_space.h"
#include "trs_test.h"

#include <jansson.h>
#include <string.h>

/* Get a section of golden/planner/units.json. The caller must free the root with json_decref(). */
static inline json_t *units_section(json_t **root, const char *name)
{
  json_error_t error;
  json_t *section;

  *root = json_load_file(trs_golden_in("planner", "units.json"), 0, &error);
  if (!*root) print_error("%s: %s\n", trs_golden_in("planner", "units.json"), error.text);
  assert_non_null(*root);
  section = json_object_get(*root, name);
  assert_true(json_array_size(section) > 0 || json_object_size(section) > 0);
  return section;
}

static inline double unit_real(const json_t *object, const char *key)
{
  const json_t *value = json_object_get(object, key);

  return json_is_number(value) ? json_number_value(value) : 0;
}

static inline int64_t unit_int(const json_t *object, const char *key)
{
  return (int64_t)json_integer_value(json_object_get(object, key));
}

static inline PetscBool unit_bool(const json_t *object, const char *key)
{
  return (PetscBool)json_is_true(json_object_get(object, key));
}

static inline const char *unit_string(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

static inline double unit_at(const json_t *array, size_t i)
{
  return json_number_value(json_array_get(array, i));
}

static inline TrsShardingType unit_type(const char *name)
{
  int type = 0;

  while (type < TRS_N_SHARDINGS && strcmp(TrsShardingTypeName((TrsShardingType)type), name)) type++;
  assert_true(type < TRS_N_SHARDINGS);
  return (TrsShardingType)type;
}

static inline TrsComputeKernel unit_kernel(const char *name)
{
  int kernel = 0;

  while (kernel < TRS_N_KERNELS && strcmp(TrsComputeKernelName((TrsComputeKernel)kernel), name)) kernel++;
  assert_true(kernel < TRS_N_KERNELS);
  return (TrsComputeKernel)kernel;
}

static inline TrsPlanPipeline unit_pipeline(const char *name)
{
  static const char *const names[] = {"none", "train_base", "train_sparse_dist",
                                      "train_prefetch_sparse_dist"};
  int pipeline = 0;

  while (strcmp(names[pipeline], name)) pipeline++;
  return (TrsPlanPipeline)pipeline;
}

/* Options that modules above the planner declare in the program. */
static const TrsOptionSpec units_outer_specs[] = {
    {"-task", TRS_OPTION_ENUM, "train", NULL, TRS_CHOICES(TRS_TASKS), NULL, ""},
    {"-device", TRS_OPTION_ENUM, "auto", NULL, TRS_CHOICES(TRS_DEVICE_CHOICES), NULL, ""},
    {"-batch_size", TRS_OPTION_INT, "512", "[1,]", NULL, NULL, ""},
    {"-accumulate_steps", TRS_OPTION_INT, "1", "[1,]", NULL, NULL, ""},
    {"-num_dense", TRS_OPTION_INT, NULL, "[0,]", NULL, NULL, ""},
    {"-embedding_optimizer", TRS_OPTION_ENUM, "rowwise_adagrad", NULL, TRS_CHOICES(TRS_EMBEDDING_OPTIMIZERS),
     NULL, ""},
    {"-embedding_stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL, ""},
    {"-qcomm_forward_precision", TRS_OPTION_ENUM, "fp32", NULL, TRS_CHOICES(TRS_CODECS), NULL, ""},
    {"-qcomm_backward_precision", TRS_OPTION_ENUM, "fp32", NULL, TRS_CHOICES(TRS_CODECS), NULL, ""},
    {"-qcomm_all_to_all_forward_precision", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_CODECS), NULL, ""},
    {"-qcomm_all_to_all_backward_precision", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_CODECS), NULL, ""},
    {"-qcomm_reduce_scatter_forward_precision", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_CODECS), NULL,
     ""},
    {"-qcomm_reduce_scatter_backward_precision", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_CODECS), NULL,
     ""},
    {"-qcomm_sequence_forward_precision", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_CODECS), NULL, ""},
    {"-qcomm_sequence_backward_precision", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_CODECS), NULL, ""},
};
static const TrsOptionGroup units_outer_group = TRS_OPTION_GROUP("Outer", units_outer_specs);

/* Create options from words such as "-tables", "a,b". */
static inline PetscErrorCode units_options(int n, char **words, TrsOptions *options)
{
  static const TrsOptionGroup *const groups[] = {&units_outer_group, &trs_tables_options, &trs_table_options,
                                                 &trs_planner_options, &trs_topology_options};

  return TrsOptionsCreate(PETSC_COMM_SELF, n, words, groups, (int)(sizeof(groups) / sizeof(groups[0])),
                          options);
}
