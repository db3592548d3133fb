/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/impl.h"
#include "comm/qcomm.h"
#include "core/options/option_list.h"
#include "core/options/option_petsc.h"
#include "optim/schedule.h"
#include "plan/planner.h"
#include "spec/text.h"
#include "train/model_parallel.h"

#include <inttypes.h>
#include <string.h>

/*
  Options that the rest of the library reads. The program has the same options, in groups of its
  own.
*/
static const TrsOptionSpec specs[] = {
    {"-batch_size", TRS_OPTION_INT, "512", "[1,1000000000]", NULL, "samples",
     "samples of a rank's largest batch, which config.batch_size gives"},
    {"-accumulate_steps", TRS_OPTION_INT, "1", "[1,1]", NULL, "batches",
     "batches of a step: a caller of the library puts them together itself"},
    {"-seed", TRS_OPTION_INT, "0", "[0,]", NULL, NULL,
     "seed of all random numbers: initial weights, stochastic rounding"},
    {"-task", TRS_OPTION_ENUM, "train", NULL, "train", NULL, "a collection is made to be trained"},
    {"-num_dense", TRS_OPTION_INT, "0", "[0,1000000]", NULL, "features",
     "dense features of the caller's model, for the planner"},
    {"-cpu_bind", TRS_OPTION_ENUM, "none", NULL, "auto,none", NULL,
     "whether this process' threads may be bound, as trshard's own: a caller's threads are its own"},
};
static const TrsOptionGroup api_group = TRS_OPTION_GROUP("Library", specs);

static const TrsOptionGroup *const groups[] = {&api_group,
                                               &trs_machine_options,
                                               &trs_tables_options,
                                               &trs_table_options,
                                               &trs_shard_options,
                                               &trs_sparse_optimizer_options,
                                               &trs_schedule_options,
                                               &trs_model_parallel_options,
                                               &trs_comm_options,
                                               &trs_qcomm_options,
                                               &trs_planner_options,
                                               &trs_topology_options};

PetscErrorCode TrsApiAddWord(TrsText *words, const char *word)
{
  PetscFunctionBegin;
  PetscCall(TrsTextAppend(words, word, strlen(word) + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append a part of a word to the words, unchanged. */
static PetscErrorCode add_part(TrsText *words, const char *part)
{
  return TrsTextAppend(words, part, strlen(part));
}

/* Append the word -table_<name>_<key>. */
static PetscErrorCode add_key_name(TrsText *words, const char *table, const char *key)
{
  PetscFunctionBegin;
  PetscCall(add_part(words, "-table_"));
  PetscCall(add_part(words, table));
  PetscCall(add_part(words, "_"));
  PetscCall(TrsApiAddWord(words, key));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append the words -table_<name>_<key> and value. */
static PetscErrorCode add_key(TrsText *words, const char *table, const char *key, const char *value)
{
  PetscFunctionBegin;
  PetscCall(add_key_name(words, table, key));
  PetscCall(TrsApiAddWord(words, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Append a name to a word that is a list "a,b,c". An error if the list would begin like an option.
*/
static PetscErrorCode add_name(TrsText *words, const char *of, int32_t i, const char *name)
{
  char *entry;

  PetscFunctionBegin;
  PetscCheck(name && name[0], PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: name %" PRId32 " is empty", of, i);
  PetscCheck(i > 0 || !TrsIsOptionWord(name), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: the first name is \"%s\", expected one that does not begin with \"-\"", of, name);
  PetscCall(TrsOptionListJoin(1, &name, &entry));
  if (i) PetscCall(add_part(words, ","));
  PetscCall(add_part(words, entry));
  PetscCall(PetscFree(entry));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_table(TrsText *words, const TrshardTable *table)
{
  static const char *const poolings[] = {"sum", "mean", "none"};
  char number[32];

  PetscFunctionBegin;
  PetscCheck(table->pooling <= TRSHARD_POOLING_NONE, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "table \"%s\": pooling is %d, expected TRSHARD_POOLING_SUM, _MEAN or _NONE", table->name,
             (int)table->pooling);
  PetscCheck(table->features ? table->n_features > 0 : table->n_features == 0 || table->n_features == 1,
             PETSC_COMM_SELF, TRS_ERR_OPTION,
             "table \"%s\": n_features is %" PRId32 " and features is %s, expected %s", table->name,
             table->n_features, table->features ? "given" : "NULL",
             table->features ? "1 or more" : "0 or 1 for the table's own name");
  snprintf(number, sizeof(number), "%" PRId64, table->num_embeddings);
  PetscCall(add_key(words, table->name, "num_embeddings", number));
  snprintf(number, sizeof(number), "%" PRId32, table->embedding_dim);
  PetscCall(add_key(words, table->name, "embedding_dim", number));
  PetscCall(add_key(words, table->name, "pooling", poolings[table->pooling]));
  if (table->pooling == TRSHARD_POOLING_NONE) {
    PetscCall(add_key(words, table->name, "sequence_pooling", "concat"));
    PetscCall(add_key(words, table->name, "sequence_length", "1")); /* a bag has one id (rows.c) */
  }
  if (table->weighted) PetscCall(add_key(words, table->name, "is_weighted", "true"));
  if (!table->features) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(add_key_name(words, table->name, "features"));
  for (int32_t k = 0; k < table->n_features; k++)
    PetscCall(add_name(words, table->name, k, table->features[k]));
  PetscCall(TrsTextAppend(words, "", 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiAddText(TrsText *words, const char *what, const char *text)
{
  const char *c = text ? text : "";

  PetscFunctionBegin;
  for (;;) {
    PetscBool quoted = PETSC_FALSE;

    c += strspn(c, " \t\r\n");
    if (!*c) break;
    for (; *c && (quoted || !strchr(" \t\r\n", *c)); c++) {
      if (*c == '"')
        quoted = (PetscBool)!quoted;
      else
        PetscCall(TrsTextAppend(words, c, 1));
    }
    PetscCheck(!quoted, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: a double quote is not closed: %s", what, text);
    PetscCall(TrsTextAppend(words, "", 1));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Collect the names and values of the options that replace the fields of the caller's structs. */
static PetscErrorCode collect_structs(const TrshardConfig *config, TrsText *words)
{
  char number[32];

  PetscFunctionBegin;
  PetscCheck(config->n_tables > 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "config.n_tables is %" PRId32 ", expected 1 or more", config->n_tables);
  PetscCheck(config->tables, PETSC_COMM_SELF, TRS_ERR_OPTION, "config.tables is NULL");
  PetscCheck(config->batch_size > 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "config.batch_size is %" PRId64 ", expected 1 or more", config->batch_size);
  PetscCall(TrsApiAddWord(words, "-batch_size"));
  snprintf(number, sizeof(number), "%" PRId64, config->batch_size);
  PetscCall(TrsApiAddWord(words, number));
  PetscCall(TrsApiAddWord(words, "-tables"));
  for (int32_t t = 0; t < config->n_tables; t++)
    PetscCall(add_name(words, "config.tables", t, config->tables[t].name));
  PetscCall(TrsTextAppend(words, "", 1));
  for (int32_t t = 0; t < config->n_tables; t++) PetscCall(add_table(words, &config->tables[t]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiOptionsOfWords(MPI_Comm comm, PetscErrorCode ierr, const TrsText *words,
                                    const TrsOptionGroup *const *of, int n_groups, TrsOptions *options)
{
  int argc = 0;
  char **argv = NULL;

  PetscFunctionBegin;
  PetscCall(TrsAgree(comm, ierr));
  for (size_t i = 0; i < words->n; i++) argc += words->data[i] == '\0';
  PetscCall(PetscMalloc1(argc + 1, &argv));
  argv[0] = words->data;
  for (int i = 1; i < argc; i++) argv[i] = argv[i - 1] + strlen(argv[i - 1]) + 1;
  argv[argc] = NULL;
  ierr = TrsOptionsCreate(comm, argc, argv, of, n_groups, options);
  PetscCall(PetscFree(argv));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse options that the caller must not give: options in `structs`, which the fields of the
  caller's structs already set, and options that only the program has.
*/
static PetscErrorCode check_options(TrsOptions options, const TrsText *structs)
{
  static const char *const of_program[] = {"-help", "-version", "-log_view"};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(of_program) / sizeof(of_program[0]); i++)
    if (TrsOptionsIsGiven(options, of_program[i]))
      PetscCall(TrsOptionError(options, of_program[i], "is for the program, not for a collection"));
  for (const char *name = structs->data, *value; name < structs->data + structs->n;
       name = value + strlen(value) + 1) {
    value = name + strlen(name) + 1;
    if (TrsOptionsIsGiven(options, name))
      PetscCall(TrsOptionError(options, name, "not for a collection: its config says %s", value));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiOptions(MPI_Comm comm, const TrshardConfig *config, TrsOptions *options)
{
  const int n = (int)(sizeof(groups) / sizeof(groups[0]));
  TrsText words = {.data = NULL}, structs = {.data = NULL};
  PetscErrorCode ierr = collect_structs(config, &structs);

  PetscFunctionBegin;
  if (!ierr) ierr = TrsApiAddWord(&words, "libtrshard");
  if (!ierr) ierr = TrsApiAddText(&words, "config.options", config->options);
  /* First read only the caller's words, to find options that the structs already set and that
     the caller must not give. */
  ierr = TrsApiOptionsOfWords(comm, ierr, &words, groups, n, options);
  if (!ierr) ierr = check_options(*options, &structs);
  if (!ierr) ierr = TrsOptionsDestroy(options);
  if (!ierr) ierr = TrsTextAppend(&words, structs.data, structs.n);
  if (!ierr) ierr = TrsApiOptionsOfWords(comm, ierr, &words, groups, n, options);
  PetscCall(TrsTextFree(&words));
  PetscCall(TrsTextFree(&structs));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse options that the arguments of the library's functions decide. All other options of a
  training's reader are accepted.
*/
static PetscErrorCode check_reader_options(TrsOptions options)
{
  static const struct {
    const char *name, *why;
  } settled[] = {{"-batch_size", "a reader has the batch_size of its collection"},
                 {"-accumulate_steps", "a caller of the library puts batches together itself"},
                 {"-data_train", "a reader's files are its paths"},
                 {"-data_eval", "a reader's files are its paths"},
                 {"-data_label", "a reader gives all labels of its files"}};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(settled) / sizeof(settled[0]); i++)
    if (TrsOptionsIsGiven(options, settled[i].name))
      PetscCall(
          TrsOptionError(options, settled[i].name, "not for a reader of a collection: %s", settled[i].why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiReaderOptions(MPI_Comm comm, int64_t batch_size, const char *options,
                                   TrsOptions *reader_options)
{
  static const TrsOptionGroup *const group[] = {&trs_reader_options};
  TrsText words = {.data = NULL};
  char number[32];
  PetscErrorCode ierr = TrsApiAddWord(&words, "libtrshard");

  PetscFunctionBegin;
  if (!ierr) ierr = TrsApiAddText(&words, "options", options);
  ierr = TrsApiOptionsOfWords(comm, ierr, &words, group, 1, reader_options);
  if (!ierr) ierr = check_reader_options(*reader_options);
  if (!ierr) ierr = TrsOptionsDestroy(reader_options);
  /* The caller's words were first read without this one, to find a -batch_size among them. */
  snprintf(number, sizeof(number), "%" PRId64, batch_size);
  if (!ierr) ierr = TrsApiAddWord(&words, "-batch_size");
  if (!ierr) ierr = TrsApiAddWord(&words, number);
  if (!ierr) ierr = TrsApiOptionsOfWords(comm, ierr, &words, group, 1, reader_options);
  PetscCall(TrsTextFree(&words));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
