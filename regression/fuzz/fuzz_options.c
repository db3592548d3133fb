/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: read options, with option files (YAML if FUZZ_YAML is defined) and tables. For
  any text, the result must be tables, or one error with a documented code.
*/
#include "core/start.h"
#include "plan/planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Options of other modules, which the code that reads tables uses. */
static const TrsOptionSpec outer_specs[] = {
    {"-embedding_stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL, ""}};
static const TrsOptionGroup outer_group = TRS_OPTION_GROUP("Outer", outer_specs);

#if defined(FUZZ_YAML)
static char path[] = "/tmp/fuzz_options_XXXXXX.yaml";
#else
static char path[] = "/tmp/fuzz_options_XXXXXX.opts";
#endif

static void remove_file(void)
{
  unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  int file = mkstemps(path, 5);

  (void)argc;
  if (file < 0) return 1;
  close(file);
  atexit(remove_file);
  return TrsStart(1, *argv) ? 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const TrsOptionGroup *const groups[] = {&outer_group, &trs_tables_options, &trs_table_options,
                                                 &trs_planner_options, &trs_topology_options};
  static char program[] = "fuzz", flag[] = "-options_file";
  char *words[] = {program, flag, path};
  FILE *file = fopen(path, "w");
  TrsOptions options = NULL;
  TrsTableConfigs tables = {0};
  PetscErrorCode ierr;

  if (!file) return 0;
  fwrite(data, 1, size, file);
  fclose(file);
  ierr = TrsOptionsCreate(PETSC_COMM_SELF, 3, words, groups, (int)(sizeof(groups) / sizeof(groups[0])),
                          &options);
  if (!ierr) ierr = TrsTableConfigsFromOptions(options, NULL, &tables);
  if (ierr && ierr != TRS_ERR_OPTION && ierr != TRS_ERR_NO_INPUT) abort();
  (void)TrsTableConfigsFree(&tables);
  (void)TrsOptionsDestroy(&options);
  TrsErrorClear();
  return 0;
}
