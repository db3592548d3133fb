/* SPDX-License-Identifier: BSD-3-Clause */
/* Option groups for tests, and options created from a command line. */
#pragma once

#include "core/options/options.h"
#include "trs_test.h"

#include <string.h>

enum { TRS_MAX_ARGUMENTS = 32 };

static const TrsOptionSpec plain_specs[] = {
    {"-batch_size", TRS_OPTION_INT, "512", "[1,]", NULL, "samples", "samples of a step on each rank"},
    {"-steps", TRS_OPTION_INT, NULL, "[0,]", NULL, NULL, "length of training; without it: one epoch"},
    {"-small", TRS_OPTION_INT, "3", "[-5,10)", NULL, NULL, "a number with both bounds"},
    {"-cap", TRS_OPTION_BYTES, "32GiB", "[0,]", NULL, "bytes", "memory of a device"},
    {"-caps", TRS_OPTION_BYTES_LIST, NULL, "[0,]", NULL, "bytes", "memory of each device"},
    {"-rate", TRS_OPTION_REAL, "0.01", "(0,1]", NULL, NULL, "learning rate"},
    {"-any_real", TRS_OPTION_REAL, NULL, NULL, NULL, NULL, "any number"},
    {"-reals", TRS_OPTION_REALS, NULL, "[0,]", NULL, NULL, "numbers"},
    {"-drop_last", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, "leave a short last batch out"},
    {"-device", TRS_OPTION_ENUM, "auto", NULL, "auto,cpu,cuda", NULL, "where to run"},
    {"-proposers", TRS_OPTION_ENUMS, "grid_search,greedy", NULL, "grid_search,greedy,uniform", NULL,
     "in this order"},
    {"-dense_arch", TRS_OPTION_INTS, "512,256", "[1,]", NULL, NULL, "layer sizes"},
    {"-tables", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL, "names of the tables"},
    {"-data_train", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "dataset"},
    {"-report", TRS_OPTION_FILE, "stdout", NULL, "stdout", NULL, "file or stdout"},
    {"-title", TRS_OPTION_STRING, NULL, NULL, NULL, NULL, "any text"},
    {"-link_bw", TRS_OPTION_BANDWIDTH, NULL, "(0,)", NULL, "bytes/ms", "of a link (default: none)"}};
static const TrsOptionSpec table_specs[] = {
    {"embedding_dim", TRS_OPTION_INT, "64", "[1,]", NULL, NULL, "columns"},
    {"dim", TRS_OPTION_INT, NULL, "[1,]", NULL, NULL, "a key that ends another key"},
    {"pooling", TRS_OPTION_ENUM, "sum", NULL, "sum,mean,none", NULL, "how rows become one"},
    {"init_min", TRS_OPTION_REAL, NULL, NULL, NULL, NULL, "smallest initial weight"}};

/*
  Create options from a command line whose words are separated by single blanks. "|" means a blank
  within a word.
*/
static PetscErrorCode create_in(const TrsOptionGroup *const *from, const char *words, TrsOptions *options)
{
  static char text[4096]; /* static, because the options keep pointers into this text */
  char *argv[TRS_MAX_ARGUMENTS + 1];
  char program[] = "trshard";
  int argc = 0;

  argv[argc++] = program;
  snprintf(text, sizeof(text), "%s", words);
  for (char *word = strtok(text, " "); word && argc < TRS_MAX_ARGUMENTS; word = strtok(NULL, " ")) {
    for (char *c = word; *c; c++) {
      if (*c == '|') *c = ' ';
    }
    argv[argc++] = strcmp(word, "\"\"") == 0 ? word + 2 : word;
  }
  argv[argc] = NULL;
  return TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, from, 2, options);
}
