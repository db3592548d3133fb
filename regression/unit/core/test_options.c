/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Expected values and messages are written by hand from the documented interface: names, types,
  ranges, priorities, and the names that a message must contain.
*/
#include "core/options/option_list.h"
#include "option_specs.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static const TrsOptionGroup plain_group = TRS_OPTION_GROUP("Plain", plain_specs);
static const TrsOptionGroup table_group = TRS_OPTION_GROUP_OF("Tables", "table", table_specs);
static const TrsOptionGroup *const groups[] = {&plain_group, &table_group};

static PetscErrorCode create(const char *words, TrsOptions *options)
{
  return create_in(groups, words, options);
}

static void write_bytes(const char *name, const char *bytes, size_t n)
{
  if (trs_rank() == 0) {
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void write_file(const char *name, const char *text)
{
  write_bytes(name, text, strlen(text));
}

/* Each run of the program has its own folder, which is the working directory of all ranks. */
static int enter_folder(void **state)
{
  char folder[64] = "/tmp/trs_options_XXXXXX";

  (void)state;
  if (trs_rank() == 0 && !mkdtemp(folder)) return -1;
  MPI_Bcast(folder, sizeof(folder), MPI_CHAR, 0, MPI_COMM_WORLD);
  return chdir(folder);
}

static int leave_folder(void **state)
{
  static const char *const files[] = {"b.opts",   "sub/a.opts", "sub",      "run.opts", "run.yaml",
                                      "big.opts", "again.opts", "nul.opts", "help.txt", "fifo"};
  char folder[4096];

  (void)state;
  if (!getcwd(folder, sizeof(folder))) return -1;
  MPI_Barrier(MPI_COMM_WORLD);
  for (size_t i = 0; trs_rank() == 0 && i < sizeof(files) / sizeof(files[0]); i++) (void)remove(files[i]);
  if (chdir("/")) return -1;
  return trs_rank() == 0 ? remove(folder) : 0;
}

static int64_t get_int(TrsOptions options, const char *name)
{
  int64_t value = -99;

  assert_petsc_ok(TrsOptionsGetInt(options, name, &value, NULL));
  return value;
}

static void test_defaults(void **state)
{
  TrsOptions options;
  PetscBool set = PETSC_TRUE, flag = PETSC_TRUE;
  const char *text = "untouched";
  const int64_t *layers;
  const int *proposers;
  double rate;
  int n, device = 7;

  (void)state;
  assert_petsc_ok(create("", &options));
  assert_int_equal(get_int(options, "-batch_size"), 512);
  assert_true(get_int(options, "-cap") == (int64_t)32 << 30);
  /* the option has no default, so the caller's value stays */
  assert_int_equal(get_int(options, "-steps"), -99);
  assert_petsc_ok(TrsOptionsGetReal(options, "-rate", &rate, &set));
  assert_true(rate == 0.01 && !set);
  assert_petsc_ok(TrsOptionsGetBool(options, "-drop_last", &flag, &set));
  assert_false(flag);
  assert_petsc_ok(TrsOptionsGetEnum(options, "-device", &device, &set));
  assert_int_equal(device, 0);
  assert_petsc_ok(TrsOptionsGetEnums(options, "-proposers", &n, &proposers, &set));
  assert_true(n == 2 && proposers[0] == 0 && proposers[1] == 1);
  assert_petsc_ok(TrsOptionsGetInts(options, "-dense_arch", &n, &layers, &set));
  assert_true(n == 2 && layers[0] == 512 && layers[1] == 256);
  assert_petsc_ok(TrsOptionsGetString(options, "-data_train", &text, &set));
  assert_string_equal(text, "untouched");
  assert_petsc_ok(TrsOptionsGetString(options, "-report", &text, &set));
  assert_string_equal(text, "stdout");
  assert_petsc_ok(TrsOptionsSource(options, "-rate", &text));
  assert_string_equal(text, "default");
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_null(options);
}

static void test_command_line(void **state)
{
  TrsOptions options;
  PetscBool set = PETSC_FALSE, flag = PETSC_FALSE;
  const char *text, *const *names;
  const double *reals;
  const int64_t *sizes;
  double real;
  int n, device;

  (void)state;
  assert_petsc_ok(create(
      "-BATCH_size 10M -small 9 -SMALL -5 -cap 1.5GiB -caps 1KiB,2KB,7 -rate 1e-3 -any_real -0.5 -drop_last "
      "-device CUDA "
      "-tables user,|item -reals .5,2 -title a|b --steps 9223372036854775807 -report out/r.txt",
      &options));
  assert_int_equal(get_int(options, "-batch_size"), 10000000);
  assert_int_equal(get_int(options, "-small"), -5);
  assert_int_equal(get_int(options, "-cap"), 1610612736);
  assert_true(get_int(options, "-steps") == INT64_MAX);
  assert_petsc_ok(TrsOptionsGetInts(options, "-caps", &n, &sizes, &set));
  assert_true(n == 3 && sizes[0] == 1024 && sizes[1] == 2000 && sizes[2] == 7 && set);
  assert_petsc_ok(TrsOptionsGetReal(options, "-rate", &real, NULL));
  assert_true(real == 1e-3);
  assert_petsc_ok(TrsOptionsGetReal(options, "-any_real", &real, NULL));
  assert_true(real == -0.5);
  assert_petsc_ok(TrsOptionsGetBool(options, "-drop_last", &flag, &set));
  assert_true(flag && set);
  assert_petsc_ok(TrsOptionsGetEnum(options, "-device", &device, NULL));
  assert_int_equal(device, 2);
  assert_petsc_ok(TrsOptionsGetStrings(options, "-tables", &n, &names, NULL));
  assert_int_equal(n, 2);
  assert_string_equal(names[0], "user");
  assert_string_equal(names[1], "item");
  assert_petsc_ok(TrsOptionsGetReals(options, "-reals", &n, &reals, NULL));
  assert_true(n == 2 && reals[0] == 0.5 && reals[1] == 2.0);
  assert_petsc_ok(TrsOptionsGetString(options, "-title", &text, NULL));
  assert_string_equal(text, "a b");
  assert_petsc_ok(TrsOptionsGetString(options, "-report", &text, NULL));
  assert_true(text[0] == '/' && strstr(text, "/trs_options_") && strstr(text, "/out/r.txt"));
  assert_petsc_ok(TrsOptionsSource(options, "-rate", &text));
  assert_string_equal(text, "command line");
  assert_petsc_error(TrsOptionsGetInt(options, "-nowhere", &(int64_t){0}, NULL), TRS_ERR_INTERNAL);
  assert_petsc_error(TrsOptionsGetInt(options, "-rate", &(int64_t){0}, NULL), TRS_ERR_INTERNAL);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void test_files(void **state)
{
  TrsOptions options;
  const char *text;
  int64_t value;
  PetscInt in_petsc = 0;
  PetscBool found;

  (void)state;
  if (trs_rank() == 0) mkdir("sub", 0700);
  write_file("sub/a.opts", "\xEF\xBB\xBF# comment\r\n-batch_size 4 -steps 10   # more\r\n\r\n-title \"two "
                           "words\"\r\n-data_train x/t.h5\r\n");
  write_file("b.opts", "-batch_size 8\n-title 'say ''hi'' # no comment'\n-small -1");
  assert_petsc_ok(create("-options_file sub/a.opts -options_file b.opts -steps 3", &options));
  assert_int_equal(get_int(options, "-batch_size"), 8); /* value from the later file */
  /* value from the command line, where the option may be at any position */
  assert_int_equal(get_int(options, "-steps"), 3);
  assert_int_equal(get_int(options, "-small"), -1);
  assert_petsc_ok(TrsOptionsGetString(options, "-title", &text, NULL));
  assert_string_equal(text, "say 'hi' # no comment");
  assert_petsc_ok(TrsOptionsGetString(options, "-data_train", &text, NULL));
  assert_true(text[0] == '/' && strstr(text, "/sub/x/t.h5"));
  assert_petsc_ok(TrsOptionsSource(options, "-data_train", &text));
  assert_string_equal(text, "sub/a.opts:5");
  /* all options are in PETSc's database */
  assert_petsc_ok(PetscOptionsGetInt(NULL, NULL, "-batch_size", &in_petsc, &found));
  assert_true(found && in_petsc == 8);
  value = 100;
  assert_petsc_error(TrsOptionError(options, "-batch_size", "%" PRId64 " is no multiple", value),
                     TRS_ERR_OPTION);
  assert_string_equal(TrsErrorMessage(), "-batch_size \"8\" (b.opts:1): 100 is no multiple");
  assert_petsc_error(TrsOptionError(options, "-rate", "too %s", "high"), TRS_ERR_OPTION);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void test_yaml(void **state)
{
  TrsOptions options;
  const char *text, *const *names;
  const int64_t *layers;
  int n;
  PetscBool flag;
  double real;

  (void)state;
  write_file(
      "run.yaml",
      "# a comment\nbatch:\n  size: 16\ndense_arch: [8, 4]\ntables:\n  - user\n  - item\ndrop_last: yes\n"
      "table:\n  user:\n    embedding_dim: 32\n  item:\n    embedding_dim: 16\nany_real: -1.5\ndata_train: "
      "t.h5\n");
  assert_petsc_ok(create("-options_file run.yaml", &options));
  assert_int_equal(get_int(options, "-batch_size"), 16);
  assert_int_equal(get_int(options, "-table_user_embedding_dim"), 32);
  assert_petsc_ok(TrsOptionsGetInts(options, "-dense_arch", &n, &layers, NULL));
  assert_true(n == 2 && layers[0] == 8 && layers[1] == 4);
  assert_petsc_ok(TrsOptionsGetStrings(options, "-tables", &n, &names, NULL));
  assert_int_equal(n, 2);
  assert_string_equal(names[1], "item");
  assert_petsc_ok(TrsOptionsGetBool(options, "-drop_last", &flag, NULL));
  assert_true(flag);
  assert_petsc_ok(TrsOptionsGetReal(options, "-any_real", &real, NULL));
  assert_true(real == -1.5);
  assert_petsc_ok(TrsOptionsSource(options, "-table_item_embedding_dim", &text));
  assert_string_equal(text, "run.yaml:13");
  assert_petsc_ok(TrsOptionsSource(options, "-batch_size", &text));
  assert_string_equal(text, "run.yaml:3");
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void assert_names(TrsOptions options, int n_expected, const char *const *expected)
{
  const char *const *names;
  int n;

  assert_petsc_ok(TrsOptionsGetStrings(options, "-tables", &n, &names, NULL));
  assert_int_equal(n, n_expected);
  for (int i = 0; i < n; i++) assert_string_equal(names[i], expected[i]);
}

/*
  Names with commas, blanks and quotes, in both forms of option files and on the command line. If
  they are read and joined to a list, the list is the same again.
*/
static void test_quoted_names(void **state)
{
  static const char *const expected[] = {"a, b", "q\"u", "\"x\"", " end ", "z"};
  static const char *const words[] = {
      "-options_file run.opts", "-options_file run.yaml",
      "-tables \"a,|b\",q\"u,\"\"\"x\"\"\",\"|end|\"|,|z -table_a,|b_pooling mean"};
  char *joined, again[256];

  (void)state;
  write_file("run.opts", "-tables \"\"\"a, b\"\",q\"\"u,\"\"\"\"\"\"x\"\"\"\"\"\", \"\" end \"\" ,z\"\n"
                         "\"-table_a, b_pooling\" mean -steps 3\n");
  write_file("run.yaml",
             "tables: ['a, b', 'q\"u', '\"x\"', ' end ', z]\ntable:\n  'a, b': {pooling: mean}\n");
  assert_petsc_ok(TrsOptionListJoin(5, expected, &joined));
  snprintf(again, sizeof(again), "-tables %s", joined);
  for (char *c = again + 8; *c; c++) *c = *c == ' ' ? '|' : *c;
  for (int k = 0; k < 4; k++) {
    TrsOptions options;
    const char *name;
    int pooling;

    assert_petsc_ok(create(k < 3 ? words[k] : again, &options));
    assert_names(options, 5, expected);
    if (k < 3) {
      assert_petsc_ok(TrsOptionsObjectName(options, "table", "a, b", "pooling", &name));
      assert_petsc_ok(TrsOptionsGetEnum(options, name, &pooling, NULL));
      assert_int_equal(pooling, 1);
    }
    assert_petsc_ok(TrsOptionsDestroy(&options));
  }
  assert_petsc_ok(PetscFree(joined));
}

/*
  Read more options than PETSc's database can hold, as with many tables, in both forms of option
  files.
*/
static void test_many(void **state)
{
  char *text = malloc(1 << 20);
  size_t used = 0;

  (void)state;
  assert_non_null(text);
  for (int yaml = 0; yaml < 2; yaml++) {
    TrsOptions options;

    used = (size_t)sprintf(text, yaml ? "table:\n" : "\n");
    for (int t = 0; t < 3000; t++) {
      used += (size_t)sprintf(
          text + used, yaml ? "  t%d:\n    embedding_dim: %d\n" : "-table_t%d_embedding_dim %d\n", t, t + 1);
    }
    write_file(yaml ? "run.yaml" : "run.opts", text);
    assert_petsc_ok(create(yaml ? "-options_file run.yaml" : "-options_file run.opts", &options));
    assert_int_equal(get_int(options, "-table_t2999_embedding_dim"), 3000);
    assert_petsc_ok(TrsOptionsDestroy(&options));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  free(text);
}

static void test_objects(void **state)
{
  static const char *const names[] = {"user", "user_embedding", "a_b"};
  TrsOptions options;
  const char *name;
  int pooling = -1;
  PetscBool set;

  (void)state;
  assert_petsc_ok(create("-tables_embedding_dim 8 -table_user_embedding_dim 4 -table_a_b_pooling mean "
                         "-table_user_embedding_dim 4",
                         &options));
  assert_petsc_ok(TrsOptionsObjectName(options, "table", "user", "embedding_dim", &name));
  assert_string_equal(name, "-table_user_embedding_dim");
  assert_int_equal(get_int(options, name), 4);
  assert_petsc_ok(TrsOptionsObjectName(options, "table", "a_b", "embedding_dim", &name));
  assert_string_equal(name, "-tables_embedding_dim");
  assert_int_equal(get_int(options, name), 8);
  assert_petsc_ok(
      /* neither option is given, so the default is used */
      TrsOptionsObjectName(options, "table", "user", "pooling", &name));
  assert_petsc_ok(TrsOptionsGetEnum(options, name, &pooling, &set));
  assert_true(pooling == 0 && !set);
  assert_petsc_ok(TrsOptionsObjectName(options, "table", "a_b", "pooling", &name));
  assert_petsc_ok(TrsOptionsGetEnum(options, name, &pooling, &set));
  assert_true(pooling == 1 && set);
  assert_petsc_ok(TrsOptionsCheckObjects(options, "table", 3, names));
  assert_petsc_error(TrsOptionsCheckObjects(options, "table", 2, names), TRS_ERR_OPTION);
  assert_string_equal(
      TrsErrorMessage(),
      "-table_a_b_pooling (command line): there is no table \"a_b\"; the closest name is \"user\"");
  assert_petsc_error(TrsOptionsObjectName(options, "table", "user", "size", &name), TRS_ERR_INTERNAL);
  assert_petsc_ok(TrsOptionsDestroy(&options));

  /*
    The option "dim" of a table user_embedding has the same name as the option "embedding_dim" of a
    table user. The table that exists decides.
  */
  assert_petsc_ok(create("-table_user_embedding_dim 4", &options));
  assert_petsc_ok(TrsOptionsObjectName(options, "table", "user_embedding", "dim", &name));
  assert_int_equal(get_int(options, name), 4);
  assert_petsc_ok(TrsOptionsCheckObjects(options, "table", 1, names + 1));
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

/*
  Read keys of thousands of objects that nobody gave. All have the default, and a name is valid
  until the next call with the same key. A value that is stored for such a name belongs to its
  object and key: "-table_user_embedding_dim" may be of the table "user_embedding".
*/
static void test_objects_without_options(void **state)
{
  static const char *const named[] = {"user_embedding"};
  const TrsOptionObjects objects = {"table", 1, named};
  static const TrsOptionGroup kept = TRS_OPTION_GROUP_OF_MODEL("Tables", "table", table_specs, "dim", NULL);
  static const TrsOptionGroup *const with_model[] = {&plain_group, &kept};
  const char *name, *other, *source;
  char instance[64], expected[128], *text;
  TrsOptions options;
  PetscBool set;

  (void)state;
  assert_petsc_ok(create("-table_t7_pooling none -tables_dim 5", &options));
  for (int t = 0; t < 5000; t++) {
    int pooling = -1;

    snprintf(instance, sizeof(instance), "%s%d", t % 1000 == 999 ? "a_table_with_a_much_longer_name_" : "t",
             t);
    assert_petsc_ok(TrsOptionsObjectName(options, "table", instance, "embedding_dim", &name));
    assert_petsc_ok(TrsOptionsObjectName(options, "table", instance, "pooling", &other));
    snprintf(expected, sizeof(expected), "-table_%s_embedding_dim", instance);
    assert_string_equal(name, expected);
    assert_int_equal(get_int(options, name), 64);
    assert_petsc_ok(TrsOptionsGetEnum(options, other, &pooling, &set));
    assert_true(pooling == (t == 7 ? 2 : 0) && set == (t == 7));
    assert_petsc_ok(TrsOptionsSource(options, other, &source));
    assert_string_equal(source, t == 7 ? "command line" : "default");
    assert_petsc_ok(TrsOptionsObjectName(options, "table", instance, "dim", &name));
    assert_string_equal(name, "-tables_dim");
    assert_int_equal(get_int(options, name), 5);
  }
  assert_petsc_error(TrsOptionError(options, other, "wrong"), TRS_ERR_OPTION);
  assert_string_equal(TrsErrorMessage(),
                      "-table_a_table_with_a_much_longer_name_4999_pooling \"sum\" (default): wrong");
  assert_petsc_ok(TrsOptionsDestroy(&options));

  assert_petsc_ok(create_in(with_model, "", &options));
  assert_petsc_ok(TrsOptionsObjectName(options, "table", "user_embedding", "dim", &name));
  assert_petsc_ok(TrsOptionsObjectName(options, "table", "user", "embedding_dim", &other));
  assert_petsc_ok(TrsOptionsSettle(options, name, "3"));
  assert_petsc_ok(TrsOptionsModelText(options, 1, &objects, &text));
  assert_string_equal(text, "-table_user_embedding_dim 3\n");
  assert_petsc_ok(PetscFree(text));
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

/*
  A command line and the error that it gives. file: contents of run.opts or run.yaml, which the
  command line may name.
*/
typedef struct {
  const char *file, *words;
  PetscErrorCode code;
  const char *message;
} TrsBadCase;

#define INT_RANGE "[1, 9223372036854775807]"
#define BANDWIDTH "a bandwidth above 0 (3.35TB/s, 51GiB/s, 400Gbit/s; a plain number is bytes/ms)"
static const TrsBadCase bad_cases[] = {
    {NULL, "-batch_size 5abc", TRS_ERR_OPTION,
     "-batch_size \"5abc\" (command line): expected an integer in " INT_RANGE},
    {"\n\n-batch_size 5abc\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-batch_size \"5abc\" (run.opts:3): expected an integer in " INT_RANGE},
    {NULL, "-batch_size 0", TRS_ERR_OPTION,
     "-batch_size \"0\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size -1", TRS_ERR_OPTION,
     "-batch_size \"-1\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size 9223372036854775808", TRS_ERR_OPTION,
     "-batch_size \"9223372036854775808\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size 99999999999999999999999999999999999999999999", TRS_ERR_OPTION,
     "-batch_size \"99999999999999999999999999999999999999999999\" (command line): expected an integer "
     "in " INT_RANGE},
    {NULL, "-batch_size 10000000T", TRS_ERR_OPTION,
     "-batch_size \"10000000T\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size 1e6", TRS_ERR_OPTION,
     "-batch_size \"1e6\" (command line): expected an integer in " INT_RANGE "; write 1M"},
    {NULL, "-batch_size 25.0", TRS_ERR_OPTION,
     "-batch_size \"25.0\" (command line): expected an integer in " INT_RANGE "; write 25"},
    {NULL, "-batch_size 0x10", TRS_ERR_OPTION,
     "-batch_size \"0x10\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size 1,5", TRS_ERR_OPTION,
     "-batch_size \"1,5\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size 4KiB", TRS_ERR_OPTION,
     "-batch_size \"4KiB\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size decide", TRS_ERR_OPTION,
     "-batch_size \"decide\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-batch_size |5", TRS_ERR_OPTION,
     "-batch_size \" 5\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-small 10", TRS_ERR_OPTION, "-small \"10\" (command line): expected an integer in [-5, 9]"},
    {NULL, "-batch_size", TRS_ERR_OPTION,
     "-batch_size (command line): the value is missing; expected an integer in " INT_RANGE},
    {NULL, "-batch_size -steps 3", TRS_ERR_OPTION,
     "-batch_size (command line): the value is missing; expected an integer in " INT_RANGE},
    {NULL, "-batch_size \"\"", TRS_ERR_OPTION,
     "-batch_size \"\" (command line): the value is empty; expected an integer in " INT_RANGE},
    {"-title ''\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-title \"\" (run.opts:1): the value is empty; expected a text"},
    {NULL, "-cap 1.3KiB", TRS_ERR_OPTION,
     "-cap \"1.3KiB\" (command line): expected a size in bytes (10MB, 80GiB, ...) in [0, "
     "9223372036854775807]"},
    {NULL, "-cap 80GIB", TRS_ERR_OPTION,
     "-cap \"80GIB\" (command line): expected a size in bytes (10MB, 80GiB, ...) in [0, "
     "9223372036854775807]"},
    {NULL, "-caps 1,-2,3", TRS_ERR_OPTION,
     "-caps \"1,-2,3\" (command line): expected a comma-separated list of sizes (10MB, 80GiB, ...) in [0, "
     "9223372036854775807]; "
     "entry 2 is \"-2\""},
    {NULL, "-rate nan", TRS_ERR_OPTION, "-rate \"nan\" (command line): expected a finite number in (0, 1]"},
    {NULL, "-rate inf", TRS_ERR_OPTION, "-rate \"inf\" (command line): expected a finite number in (0, 1]"},
    {NULL, "-rate 0", TRS_ERR_OPTION, "-rate \"0\" (command line): expected a finite number in (0, 1]"},
    {NULL, "-rate 1.0000001", TRS_ERR_OPTION,
     "-rate \"1.0000001\" (command line): expected a finite number in (0, 1]"},
    {NULL, "-rate 0,5", TRS_ERR_OPTION, "-rate \"0,5\" (command line): expected a finite number in (0, 1]"},
    {NULL, "-any_real 1e400", TRS_ERR_OPTION, "-any_real \"1e400\" (command line): expected a finite number"},
    {NULL, "-any_real 0x1p3", TRS_ERR_OPTION, "-any_real \"0x1p3\" (command line): expected a finite number"},
    {NULL, "-reals 1,,2", TRS_ERR_OPTION,
     "-reals \"1,,2\" (command line): expected a comma-separated list of finite numbers in [0, inf); entry 2 "
     "is \"\""},
    {NULL, "-drop_last maybe", TRS_ERR_OPTION,
     "-drop_last \"maybe\" (command line): expected true or false (or 1, 0, yes, no)"},
    {NULL, "-device gpu", TRS_ERR_OPTION, "-device \"gpu\" (command line): expected one of auto, cpu, cuda"},
    {NULL, "-proposers greedy,fast", TRS_ERR_OPTION,
     "-proposers \"greedy,fast\" (command line): expected a comma-separated list of grid_search, greedy, "
     "uniform; entry 2 is \"fast\""},
    {NULL, "-dense_arch 8,x", TRS_ERR_OPTION,
     "-dense_arch \"8,x\" (command line): expected a comma-separated list of integers in " INT_RANGE
     "; entry 2 is \"x\""},
    {NULL, "-tables a,,b", TRS_ERR_OPTION,
     "-tables \"a,,b\" (command line): expected a comma-separated list of names; entry 2 is \"\""},
    {NULL, "-tables a,\"b", TRS_ERR_OPTION,
     "-tables \"a,\"b\" (command line): expected a comma-separated list of names; entry 2 has a quote that "
     "is not closed before a comma"},
    {NULL, "-tables \"a\"b,c", TRS_ERR_OPTION,
     "-tables \"\"a\"b,c\" (command line): expected a comma-separated list of names; entry 1 has a quote "
     "that is not closed before a comma"},
    {NULL, "-batchsize 4", TRS_ERR_OPTION,
     "-batchsize (command line): unknown option; the closest known one is -batch_size"},
    {"-steps 3\n-bacth_size 4\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-bacth_size (run.opts:2): unknown option; the closest known one is -batch_size"},
    {NULL, "-table_user_poolng sum", TRS_ERR_OPTION,
     "-table_user_poolng (command line): unknown option; the closest known one is -table_user_pooling"},
    {NULL, "-tables_poling sum", TRS_ERR_OPTION,
     "-tables_poling (command line): unknown option; the closest known one is -tables_pooling"},
    {NULL, "-table_user_pooling max", TRS_ERR_OPTION,
     "-table_user_pooling \"max\" (command line): expected one of sum, mean, none"},
    {NULL, "-table_a_b_embedding_dim 0", TRS_ERR_OPTION,
     "-table_a_b_embedding_dim \"0\" (command line): expected an integer in " INT_RANGE},
    {NULL, "-log_veiw", TRS_ERR_OPTION,
     "-log_veiw (command line): unknown option; the closest known one is -log_view"},
    {"-batch_size 4\n-steps 1\n-batch_size 8\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-batch_size is given twice with different values: \"4\" (run.opts:1) and \"8\" (run.opts:3)"},
    {"-drop_last\n-drop_last false\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-drop_last is given twice with different values: \"\" (run.opts:1) and \"false\" (run.opts:2)"},
    {"-title \"open\n", "-options_file run.opts", TRS_ERR_OPTION,
     "run.opts:1: a quote is opened but not closed"},
    {"-title \"a\"b\n", "-options_file run.opts", TRS_ERR_OPTION, "run.opts:1: text follows a closing quote"},
    {"batch_size 4\n", "-options_file run.opts", TRS_ERR_OPTION,
     "run.opts:1: \"batch_size\" belongs to no option (-name value; quote a value with blanks)"},
    {"-tables a, b\n", "-options_file run.opts", TRS_ERR_OPTION,
     "run.opts:1: \"b\" belongs to no option (-name value; quote a value with blanks)"},
    {"-steps 3\x01\n", "-options_file run.opts", TRS_ERR_OPTION,
     "run.opts:1: not a text: there is a byte of value 1"},
    {"-steps 3\n-options_file run.opts\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-options_file (run.opts:2): an option file cannot name another one; give both on the command line"},
    {"-malloc_debug\n", "-options_file run.opts", TRS_ERR_OPTION,
     "-malloc_debug (run.opts:1): PETSc reads this option before option files; give it on the command line"},
    {NULL, "-start_in_debugger", TRS_ERR_OPTION,
     "-start_in_debugger (command line): this PETSc option is refused in a batch program"},
    {NULL, "-on_error_attach_debugger gdb", TRS_ERR_OPTION,
     "-on_error_attach_debugger (command line): this PETSc option is refused in a batch program"},
    {NULL, "stray -steps 3", TRS_ERR_OPTION,
     "command line: \"stray\" belongs to no option (-name value; a list has commas and no blanks)"},
    {NULL, "-options_file missing.opts", TRS_ERR_NO_INPUT,
     "option file \"missing.opts\" cannot be opened: No such file or directory"},
    {NULL, "-options_file /", TRS_ERR_NO_INPUT, "option file \"/\" is not a regular file but a directory"},
    {NULL, "-options_file fifo", TRS_ERR_NO_INPUT, "option file \"fifo\" is not a regular file"},
    {NULL, "-options_file /dev/zero", TRS_ERR_NO_INPUT, "option file \"/dev/zero\" is not a regular file"},
    {NULL, "-options_file big.opts", TRS_ERR_OPTION,
     "option file \"big.opts\" has 16777217 bytes; at most 16777216 are read"},
    {NULL, "-options_file nul.opts", TRS_ERR_OPTION, "nul.opts:2: not a text: there is a byte of value 0"},
    {NULL, "-options_file", TRS_ERR_OPTION,
     "-options_file (command line): the value is missing; expected a file name"},
    {NULL, "missing.yaml", TRS_ERR_NO_INPUT,
     "option file \"missing.yaml\" cannot be opened: No such file or directory"},
    {"-steps 3\n", "run.opts run.opts", TRS_ERR_OPTION,
     "command line: \"run.opts\" belongs to no option (-name value; a list has commas and no blanks)"},
    {NULL, "-link_bw 400Gb/s", TRS_ERR_OPTION,
     "-link_bw \"400Gb/s\" (command line): expected " BANDWIDTH
     "; B/s are bytes, bit/s are bits: write one of them"},
    {NULL, "-link_bw 3GB", TRS_ERR_OPTION, "-link_bw \"3GB\" (command line): expected " BANDWIDTH},
    {NULL, "-link_bw 0TB/s", TRS_ERR_OPTION, "-link_bw \"0TB/s\" (command line): expected " BANDWIDTH},
    {NULL, "-link_bw infTB/s", TRS_ERR_OPTION, "-link_bw \"infTB/s\" (command line): expected " BANDWIDTH},
    {NULL, "-embedding_dim 4", TRS_ERR_OPTION,
     "-embedding_dim (command line): unknown option; the closest known one is -tables_embedding_dim, of all "
     "tables; -table_NAME_embedding_dim is that of one"},
    {NULL, "-bs 4", TRS_ERR_OPTION,
     "-bs (command line): unknown option; the closest known one is -batch_size, of each rank"},
    {NULL, "-config x", TRS_ERR_OPTION,
     "-config (command line): unknown option; the closest known one is -options_file, a file of options "
     "(.opts or .yaml)"},
    {"batch_size: 4\nsteps: 2\nbatch_size: 5\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "-batch_size is given twice with different values: \"4\" (run.yaml:1) and \"5\" (run.yaml:3)"},
    {"batch:\n  size: 4\nbatch_size: 5\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "-batch_size is given twice with different values: \"4\" (run.yaml:2) and \"5\" (run.yaml:3)"},
    {"steps: 2\nbatch_size: 5abc\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "-batch_size \"5abc\" (run.yaml:2): expected an integer in " INT_RANGE},
    {"batch_size:\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "-batch_size (run.yaml:1): the value is missing; expected an integer in " INT_RANGE},
    {"dense_arch: [4\nsteps: 2\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "run.yaml:2: not valid YAML: did not find expected ',' or ']'"},
    {"steps: 2\n\tx: 1\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "run.yaml:2: not valid YAML: found a tab character that violates indentation"},
    {"only text\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "run.yaml:1: expected keys and values (key: value)"},
    {"- a\n- b\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "run.yaml:1: expected keys and values (key: value)"},
    {"title: ''\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "-title \"\" (run.yaml:1): the value is empty; expected a text"},
    {"steps: 1\ntables:\n  - a: 1\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "run.yaml:3: an entry of a list must be a plain value"},
    {"a: &x {b: *x}\n", "-options_file run.yaml", TRS_ERR_OPTION, "run.yaml:1: nested more than 32 deep"},
    {"a: &a {}\nb: &b {x: *a, y: *a, z: *a}\nc: &c {x: *b, y: *b, z: *b}\nd: &d {x: *c, y: *c, z: *c}\ne: &e "
     "{x: *d, y: *d, z: *d}\n"
     "f: &f {x: *e, y: *e, z: *e}\ng: &g {x: *f, y: *f, z: *f}\nh: &h {x: *g, y: *g, z: *g}\ni: &i {x: *h, "
     "y: *h, z: *h}\n"
     "j: &j {x: *i, y: *i, z: *i}\nk: &k {x: *j, y: *j, z: *j}\nl: &l {x: *k, y: *k, z: *k}\n",
     "-options_file run.yaml", TRS_ERR_OPTION, "run.yaml:2: more than 131072 options"},
    {"a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "run.yaml: brackets are nested more than 32 deep"},
    {"options_file: x\n", "-options_file run.yaml", TRS_ERR_OPTION,
     "-options_file (run.yaml:1): an option file cannot name another one; give both on the command line"}};

static void test_bad_input(void **state)
{
  char *big = malloc((1 << 24) + 1);
  int n_wrong = 0;

  (void)state;
  assert_non_null(big);
  memset(big, '\n', (1 << 24) + 1);
  write_bytes("big.opts", big, (1 << 24) + 1);
  free(big);
  write_bytes("nul.opts", "-steps 3\n-title a\0b\n", 20);
  if (trs_rank() == 0) mkfifo("fifo", 0600);
  for (size_t i = 0; i < sizeof(bad_cases) / sizeof(bad_cases[0]); i++) {
    const TrsBadCase *bad = &bad_cases[i];
    TrsOptions options = NULL;
    PetscErrorCode code;

    if (bad->file) write_file(strstr(bad->words, ".yaml") ? "run.yaml" : "run.opts", bad->file);
    TrsErrorClear();
    code = create(bad->words, &options);
    if (code != bad->code || strcmp(TrsErrorMessage(), bad->message) != 0) {
      print_error("%s: error %d \"%s\", expected %d \"%s\"\n", bad->words, code, TrsErrorMessage(), bad->code,
                  bad->message);
      n_wrong++;
    }
    MPI_Barrier(MPI_COMM_WORLD); /* wait, because the next case writes the same file */
  }
  TrsErrorClear();
  assert_int_equal(n_wrong, 0);
}

static void test_long_value(void **state)
{
  char words[2048] = "-batch_size ";
  TrsOptions options;

  (void)state;
  memset(words + 12, '9', 1500);
  assert_petsc_error(create(words, &options), TRS_ERR_OPTION);
  assert_true(strlen(TrsErrorMessage()) < 250);
  assert_petsc_error(create("-title %n%s%x -device %s%n", &options), TRS_ERR_OPTION);
  assert_string_equal(TrsErrorMessage(), "-device \"%s%n\" (command line): expected one of auto, cpu, cuda");
}

static void test_allow_unused(void **state)
{
  static const char *const names[] = {"user"};
  TrsOptions options;

  (void)state;
  assert_petsc_ok(create("-batchsize 4 -allow_unused_options -table_usr_pooling sum", &options));
  assert_petsc_ok(TrsOptionsCheckObjects(options, "table", 1, names));
  assert_int_equal(get_int(options, "-batch_size"), 512);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

/* Reading the stored configuration gives the same configuration. */
static void test_text(void **state)
{
  TrsOptions options;
  char *text, *again;
  const char *value;

  (void)state;
  write_file("run.opts", "-title 'a \"b\" # c'\n-data_train t.h5\n-drop_last\n-small -2\n-steps 5\n");
  assert_petsc_ok(create("-options_file run.opts -steps 6", &options));
  assert_petsc_ok(TrsOptionsText(options, &text));
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_non_null(strstr(text, "-steps 6 # command line\n"));
  assert_null(strstr(text, "-steps 5"));
  assert_non_null(strstr(text, "-title \"a \"\"b\"\" # c\" # run.opts:1\n"));
  assert_non_null(strstr(text, "# -batch_size 512\n"));
  assert_non_null(strstr(text, "# -tables_embedding_dim 64\n"));
  write_file("again.opts", text);
  assert_petsc_ok(create("-options_file again.opts", &options));
  assert_int_equal(get_int(options, "-steps"), 6);
  assert_petsc_ok(TrsOptionsGetString(options, "-title", &value, NULL));
  assert_string_equal(value, "a \"b\" # c");
  assert_petsc_ok(TrsOptionsText(options, &again));
  assert_int_equal(strcspn(text, "#"), strcspn(again, "#"));
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_petsc_ok(PetscFree(text));
  assert_petsc_ok(PetscFree(again));
}

/* Bandwidths are exact doubles: powers of two, and decimal units that are divisible by 1000. */
static void test_bandwidth(void **state)
{
  static const struct {
    const char *words;
    double bytes_per_ms;
  } cases[] = {{"-link_bw 1e6", 1e6},
               {"-link_bw 3.35TB/s", 3.35e9},
               {"-link_bw 51|GiB/s", 51 * 1073741824.0 / 1000},
               {"-link_bw 400Gbit/s", 50e6},
               {"-link_bw 2000B/s", 2},
               {"-link_bw 12.5GiB/s", 12.5 * 1073741824.0 / 1000},
               {"-link_bw .5MB/s", 500},
               {"-link_bw 2.039TB/s", 2039000000},
               {"-link_bw 76.8GB/s", 76800000},
               {"-link_bw 1Tbit/s", 125e6}};

  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    TrsOptions options;
    double value = 0;

    assert_petsc_ok(create(cases[i].words, &options));
    assert_petsc_ok(TrsOptionsGetReal(options, "-link_bw", &value, NULL));
    assert_true(value == cases[i].bytes_per_ms);
    assert_petsc_ok(TrsOptionsDestroy(&options));
  }
}

/*
  "trshard run.opts": if the first word is a file, it is the option file. The command line still has
  priority.
*/
static void test_first_word(void **state)
{
  TrsOptions options;
  const char *source;

  (void)state;
  write_file("run.opts", "-steps 3\n-batch_size 7\n");
  write_file("run.yaml", "steps: 5\nlink: {bw: 2 KiB/s}\n");
  assert_petsc_ok(create("run.opts -batch_size 9", &options));
  assert_int_equal(get_int(options, "-steps"), 3);
  assert_int_equal(get_int(options, "-batch_size"), 9);
  assert_petsc_ok(TrsOptionsSource(options, "-steps", &source));
  assert_string_equal(source, "run.opts:1");
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_petsc_ok(create("run.yaml -options_file run.opts", &options));
  assert_int_equal(get_int(options, "-steps"), 3);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

/* Store the text that -help prints for the given words, at most n characters. */
static PetscErrorCode help_for(const char *words, char *text, size_t n)
{
  TrsOptions options;
  PetscErrorCode ierr;
  int saved;

  assert_petsc_ok(create(words, &options));
  fflush(stdout);
  saved = dup(1);
  if (trs_rank() == 0) assert_non_null(freopen("help.txt", "w", stdout));
  ierr = TrsOptionsHelp(options, PETSC_COMM_WORLD, "a program\n");
  fflush(stdout);
  if (trs_rank() == 0) dup2(saved, 1);
  close(saved);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  MPI_Barrier(MPI_COMM_WORLD);
  text[0] = '\0';
  if (!ierr) {
    FILE *file = fopen("help.txt", "r");

    assert_non_null(file);
    text[fread(text, 1, n - 1, file)] = '\0';
    fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return ierr;
}

static void test_help_word(void **state)
{
  char text[4096];

  (void)state;
  assert_petsc_ok(help_for("-help Batch-Size", text, sizeof(text)));
  assert_non_null(strstr(text, "-batch_size <int>"));
  assert_null(strstr(text, "-steps"));
  assert_petsc_ok(help_for("-help layer", text, sizeof(text)));
  assert_non_null(strstr(text, "-dense_arch <int,..>"));
  assert_null(strstr(text, "-batch_size"));
  /* this is a group's title, and not the option -tables */
  assert_petsc_ok(help_for("-help tables", text, sizeof(text)));
  assert_non_null(strstr(text, "-tables_pooling <word>"));
  assert_null(strstr(text, "  -tables <text,..>"));
  TrsErrorClear();
  assert_int_equal(help_for("-help zork", text, sizeof(text)), TRS_ERR_OPTION);
  assert_non_null(strstr(TrsErrorMessage(), "-help \"zork\" (command line): no option and no group has it"));
  TrsErrorClear();
}

static void test_help(void **state)
{
  TrsOptions options;
  PetscBool help, all;
  char line[512];
  int n_lines = 0, saved;
  FILE *file;

  (void)state;
  assert_petsc_ok(create("--help -steps 1", &options));
  assert_petsc_ok(TrsOptionsHelpWanted(options, &help, &all));
  assert_true(help && !all);
  fflush(stdout);
  saved = dup(1);
  if (trs_rank() == 0) assert_non_null(freopen("help.txt", "w", stdout));
  assert_petsc_ok(TrsOptionsHelp(options, PETSC_COMM_WORLD, "a program\n"));
  fflush(stdout);
  if (trs_rank() == 0) dup2(saved, 1);
  close(saved);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  MPI_Barrier(MPI_COMM_WORLD);
  file = fopen("help.txt", "r");
  assert_non_null(file);
  for (; fgets(line, sizeof(line), file); n_lines++) assert_true(strlen(line) <= 120);
  fclose(file);
  assert_true(n_lines > 30);
  assert_petsc_ok(create("-help all", &options));
  assert_petsc_ok(TrsOptionsHelpWanted(options, &help, &all));
  assert_true(help && all);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_petsc_ok(create("", &options));
  assert_petsc_ok(TrsOptionsHelpWanted(options, &help, &all));
  assert_true(!help && !all);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

TRS_TEST_MAIN(cmocka_unit_test_setup(test_defaults, enter_folder), cmocka_unit_test(test_command_line),
              cmocka_unit_test(test_files), cmocka_unit_test(test_yaml), cmocka_unit_test(test_quoted_names),
              cmocka_unit_test(test_objects), cmocka_unit_test(test_objects_without_options),
              cmocka_unit_test(test_many), cmocka_unit_test(test_bad_input),
              cmocka_unit_test(test_long_value), cmocka_unit_test(test_allow_unused),
              cmocka_unit_test(test_text), cmocka_unit_test(test_bandwidth),
              cmocka_unit_test(test_first_word), cmocka_unit_test(test_help_word),
              cmocka_unit_test_teardown(test_help, leave_folder))
