/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/options/options.h"

#include "core/options/impl.h"
#include "core/options/option_petsc.h"
#include "core/ranks.h"
#include "core/start.h"
#include "core/trust.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_MESSAGE = 1800, TRS_MAX_SHOWN = 100, TRS_PETSC_ROOM = 480, TRS_PETSC_NAME = 480 };

static const TrsOptionSpec core_specs[] = {
    {"-options_file", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "option file, .yaml or .opts; may be repeated. Later files win over earlier ones, and the command line "
     "over files. An option given twice on the command line takes the last value"},
    {"-help", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "show all options and stop; all: also PETSc's own. A word, such as -help cache, shows the options "
     "and groups that contain it; a group's title shows that group"},
    {"-version", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, "show the version and stop"},
    {"-allow_unused_options", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "unknown options cause a warning instead of an error"},
    {"-trust_other_users", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "take option files, checkpoints and plans that belong to another user, also from places that all "
     "users may write to. For option files, this option must be on the command line"},
    {"-error_traceback", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "an error also shows the functions of the program that it passed through"}};
static const TrsOptionGroup core_group = TRS_OPTION_GROUP("General", core_specs);

/*
  Describe an option that was given: `-batch_size "5abc" (run.opts:3)` or `-batch_size (command
  line)`.
*/
static void describe(const char *name, const char *value, const char *source, char *text, size_t n)
{
  if (value) {
    snprintf(text, n, "%.*s \"%.*s%s\" (%s)", TRS_MAX_SHOWN, name, TRS_MAX_SHOWN, value,
             strlen(value) > TRS_MAX_SHOWN ? "..." : "", source);
  } else {
    snprintf(text, n, "%.*s (%s)", TRS_MAX_SHOWN, name, source);
  }
}

PetscErrorCode TrsOptionParse(const TrsOptionSpec *spec, const TrsGivenOption *given, TrsOptionValue *value)
{
  PetscBool valid = PETSC_FALSE;
  char detail[TRS_OPTION_DETAIL], expected[1024], what[TRS_MAX_MESSAGE];
  const char *text = given->value;
  const int code = given->origin == TRS_OPTION_ORIGIN_MODEL ? TRS_ERR_DATA : TRS_ERR_OPTION;

  PetscFunctionBegin;
  if (!text && spec->type == TRS_OPTION_BOOL) text = "true";
  if (!text && strcmp(spec->name, "-help") == 0) text = "true";
  if (text && text[0]) PetscCall(TrsOptionValueParse(spec, text, given->folder, value, &valid, detail));
  if (valid) PetscFunctionReturn(PETSC_SUCCESS);
  TrsOptionExpected(spec, expected, sizeof(expected));
  describe(given->name, given->value, given->source, what, sizeof(what));
  PetscCheck(text, PETSC_COMM_SELF, code, "%s: the value is missing; expected %s", what, expected);
  PetscCheck(text[0], PETSC_COMM_SELF, code, "%s: the value is empty; expected %s", what, expected);
  SETERRQ(PETSC_COMM_SELF, code, "%s: expected %s%s", what, expected, detail);
}

/*
  Let `given` be the option in effect for its name. If the command line has an option twice, the
  last one is in effect, so that a user can append words to a script's options. If a file has it
  twice with different values, this is an error.
*/
static PetscErrorCode register_given(TrsOptions options, const TrsGivenOption *given, TrsOptionEntry **entry)
{
  const PetscBool on_line = (PetscBool)(given->origin == options->given.n_files);
  const TrsGivenOption *last;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEntry(options, given->name, NULL, entry));
  last = (*entry)->given;
  (*entry)->given = given;
  if (!last || last->origin != given->origin || on_line || (*entry)->spec == &core_specs[0])
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck((!last->value && !given->value) ||
                 (last->value && given->value && strcmp(last->value, given->value) == 0),
             PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%.*s is given twice with different values: \"%.*s\" (%s) and \"%.*s\" (%s)", TRS_MAX_SHOWN,
             given->name, TRS_MAX_SHOWN, last->value ? last->value : "", last->source, TRS_MAX_SHOWN,
             given->value ? given->value : "", given->source);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Put an option into PETSc's database, unless PETSc belongs to a program that calls the library. The
  option is marked as used, because the options' own check reports options without effect.
*/
static PetscErrorCode set_in_petsc(const TrsGivenOption *given)
{
  PetscBool found;

  PetscFunctionBegin;
  if (!TrsStartIsProgram()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscOptionsSetValue(NULL, given->name, given->value));
  PetscCall(PetscOptionsHasName(NULL, NULL, given->name, &found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Put options of single tables and tasks into PETSc's database, too, because -options_view and
  -log_view show the options from there. PETSc 3.18's database holds at most 512 options, with names
  of less than 512 bytes. Options that do not fit are only counted.
*/
static PetscErrorCode show_in_petsc(TrsOptions options)
{
  char text[32], name[] = "-options_not_shown";
  TrsGivenOption rest = {.name = name, .value = text};
  int n = 0, hidden = 0;

  PetscFunctionBegin;
  for (int i = 0; i < options->given.n; i++) {
    const TrsOptionEntry *entry = TrsOptionsFindEntry(options, options->given.option[i].name);

    n += !entry->spec || entry->spec->name[0] == '-';
  }
  for (int i = 0; i < options->given.n; i++) {
    const TrsGivenOption *given = &options->given.option[i];
    const TrsOptionEntry *entry = TrsOptionsFindEntry(options, given->name);

    if (!entry->spec || entry->spec->name[0] == '-' || entry->given != given) continue;
    if (n < TRS_PETSC_ROOM && strlen(given->name) < TRS_PETSC_NAME) {
      PetscCall(set_in_petsc(given));
      n++;
    } else {
      hidden++;
    }
  }
  snprintf(text, sizeof(text), "%d", hidden);
  if (hidden) PetscCall(set_in_petsc(&rest));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_petsc_option(TrsOptions options, const TrsGivenOption *given)
{
  TrsOptionPetscKind kind = TrsOptionPetscKindOf(given->name);
  char closest[512], what[TRS_MAX_MESSAGE];
  const char *file;
  int length;

  PetscFunctionBegin;
  PetscCheck(kind != TRS_OPTION_PETSC_REFUSED, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s (%s): this PETSc option is refused in a batch program", given->name, given->source);
  PetscCheck(kind != TRS_OPTION_PETSC_EARLY || given->origin == options->given.n_files, PETSC_COMM_SELF,
             TRS_ERR_OPTION,
             "%s (%s): PETSc reads this option before option files; give it on the command line", given->name,
             given->source);
  if (kind == TRS_OPTION_NOT_PETSC) {
    TrsOptionsClosest(options, given->name, closest, sizeof(closest));
    snprintf(what, sizeof(what), "unknown option; the closest known one is %s", closest);
    PetscCall(TrsOptionsRefuse(options, given, what));
  } else {
    PetscCheck(strcasecmp(given->name, "-log_view") != 0 || !given->value ||
                   TrsOptionLogView(given->value, &file, &length),
               PETSC_COMM_SELF, TRS_ERR_OPTION,
               "-log_view \"%s\" (%s): expected nothing, or :FILE, or :FILE:FORMAT with FORMAT one of "
               "ascii_info, ascii_info_detail, ascii_xml, ascii_flamegraph, ascii_csv",
               given->value, given->source);
    PetscCall(set_in_petsc(given));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_given(TrsOptions options)
{
  TrsOptionEntry *entry;

  PetscFunctionBegin;
  for (int i = 0; i < options->given.n; i++) {
    const TrsGivenOption *given = &options->given.option[i];
    TrsOptionValue value;
    PetscBool is_plain;

    PetscCall(register_given(options, given, &entry));
    if (!entry->spec) continue;
    PetscCall(TrsOptionParse(entry->spec, given, &value));
    PetscCall(TrsOptionValueFree(&value));
    is_plain = (PetscBool)(entry->spec->name[0] == '-');
    if (is_plain && entry->spec != &core_specs[0] && entry->spec != &core_specs[1])
      PetscCall(set_in_petsc(given));
  }
  PetscCall(TrsOptionsGetBool(options, "-allow_unused_options", &options->allow_unused, NULL));
  for (int i = 0; i < options->given.n; i++) {
    entry = TrsOptionsFindEntry(options, options->given.option[i].name);
    if (!entry->spec) PetscCall(check_petsc_option(options, &options->given.option[i]));
  }
  PetscCall(show_in_petsc(options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Start -log_view and -info if an option file has them, because PETSc did not read the file when it
  started.
*/
static PetscErrorCode start_petsc_logging(TrsOptions options)
{
  const TrsOptionEntry *entry = TrsOptionsFindEntry(options, "-log_view");

  PetscFunctionBegin;
  if (entry && entry->given && entry->given->origin < options->given.n_files && TrsStartIsProgram())
    PetscCall(PetscLogDefaultBegin());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Look for -trust_other_users on the command line. The option must be known before files are read.
*/
static PetscBool trusts_on_line(int argc, char **argv)
{
  PetscBool trusts = PETSC_FALSE;

  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc && !TrsIsOptionWord(argv[i + 1]) ? argv[i + 1] : "true";

    if (strcasecmp(argv[i], "-trust_other_users") == 0)
      trusts = (PetscBool)(!strcasecmp(value, "true") || !strcasecmp(value, "yes") || !strcmp(value, "1"));
  }
  return trusts;
}

PetscErrorCode TrsOptionsCreate(MPI_Comm comm, int argc, char **argv, const TrsOptionGroup *const *groups,
                                int n_groups, TrsOptions *options)
{
  PetscBool trusts = PETSC_FALSE;
  TrsOptions o;

  PetscFunctionBegin;
  PetscCall(PetscNew(&o));
  PetscCall(PetscMalloc1(n_groups + 1, &o->groups));
  o->groups[0] = &core_group;
  for (int g = 0; g < n_groups; g++) o->groups[g + 1] = groups[g];
  o->n_groups = n_groups + 1;
  PetscCall(TrsOptionIndexCreate(o->n_groups, o->groups, &o->index));
  PetscCall(TrsRankOf(comm, &o->rank, NULL));
  *options = o;
  TrsFileTrustOthers(trusts_on_line(argc, argv));
  PetscCall(TrsGivenOptionsCollect(comm, argc, argv, &o->given));
  PetscCall(check_given(o));
  PetscCall(TrsOptionsGetBool(o, "-trust_other_users", &trusts, NULL));
  TrsFileTrustOthers(trusts);
  PetscCall(start_petsc_logging(o));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Free the contents of an entry. */
static PetscErrorCode clear_entry(TrsOptionEntry *entry)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionValueFree(&entry->value));
  PetscCall(PetscFree(entry->name));
  PetscCall(PetscFree(entry->settled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsDestroy(TrsOptions *options)
{
  TrsOptions o = *options;

  PetscFunctionBegin;
  if (!o) PetscFunctionReturn(PETSC_SUCCESS);
  for (int b = 0; b < o->n_buckets; b++) {
    for (TrsOptionEntry *entry = o->bucket[b], *next; entry; entry = next) {
      next = entry->next;
      PetscCall(clear_entry(entry));
      PetscCall(PetscFree(entry));
    }
  }
  PetscCall(PetscFree(o->bucket));
  for (int i = 0; i < o->index.capacity; i++)
    if (o->index.slot[i].blank) PetscCall(clear_entry(o->index.slot[i].blank));
  PetscCall(TrsOptionIndexFree(&o->index));
  PetscCall(TrsGivenOptionsFree(&o->given));
  PetscCall(TrsGivenOptionsFree(&o->model));
  PetscCall(PetscFree(o->checkpoint));
  PetscCall(PetscFree(o->groups));
  PetscCall(PetscFree(*options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsOptionsForgetReads(TrsOptions options)
{
  for (int b = 0; b < options->n_buckets; b++)
    for (TrsOptionEntry *entry = options->bucket[b]; entry; entry = entry->next)
      entry->was_read = PETSC_FALSE;
}

PetscErrorCode TrsOptionsTellUnread(TrsOptions options, const char *by)
{
  PetscFunctionBegin;
  for (int i = 0; options->rank == 0 && i < options->given.n; i++) {
    const TrsGivenOption *given = &options->given.option[i];
    const TrsOptionEntry *entry = TrsOptionsFindEntry(options, given->name);
    const PetscBool is_core = (PetscBool)(entry->spec >= core_specs &&
                                          entry->spec < core_specs + core_group.n);

    if (entry->given == given && given->origin == options->given.n_files && entry->spec && !is_core &&
        !entry->was_read)
      PetscCall(PetscFPrintf(PETSC_COMM_SELF, PETSC_STDERR,
                             "trshard: warning: %s (%s) had no effect: %s did not read it\n", given->name,
                             given->source, by));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Return the parsed value of an option, which is also stored for later calls. *value becomes NULL if
  there is neither a given value nor a default.
*/
static PetscErrorCode get_value(TrsOptions options, const char *name, unsigned types,
                                const TrsOptionValue **value, PetscBool *set)
{
  TrsOptionEntry *entry;
  const TrsGivenOption *counted;
  char folder[] = ".", source[] = "default";

  PetscFunctionBegin;
  entry = TrsOptionsFindEntry(options, name);
  if (!entry) PetscCall(TrsOptionsGetEntry(options, name, NULL, &entry));
  PetscCheck(entry->spec, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "option %s is in no table", name);
  PetscCheck(types & 1u << entry->spec->type, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "option %s is read as another type than it has", name);
  entry->was_read = PETSC_TRUE;
  counted = TrsOptionCounted(entry);
  if (set) *set = (PetscBool)(counted != NULL);
  *value = NULL;
  if (!entry->parsed && counted) {
    PetscCall(TrsOptionParse(entry->spec, counted, &entry->value));
    entry->parsed = PETSC_TRUE;
  } else if (!entry->parsed && entry->spec->fallback) {
    TrsGivenOption standard = {.name = entry->name, .source = source, .folder = folder};

    PetscCall(PetscStrallocpy(entry->spec->fallback, &standard.value));
    PetscCall(TrsOptionParse(entry->spec, &standard, &entry->value));
    PetscCall(PetscFree(standard.value));
    entry->parsed = PETSC_TRUE;
  }
  if (entry->parsed) *value = &entry->value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetBool(TrsOptions options, const char *name, PetscBool *value, PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_BOOL, &v, set));
  if (v) *value = (PetscBool)v->ints[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetInt(TrsOptions options, const char *name, int64_t *value, PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_INT | 1u << TRS_OPTION_BYTES, &v, set));
  if (v) *value = v->ints[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetReal(TrsOptions options, const char *name, double *value, PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_REAL | 1u << TRS_OPTION_BANDWIDTH, &v, set));
  if (v) *value = v->reals[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetString(TrsOptions options, const char *name, const char **value, PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_STRING | 1u << TRS_OPTION_FILE, &v, set));
  if (v) *value = v->strings[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetEnum(TrsOptions options, const char *name, int *index, PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_ENUM, &v, set));
  if (v) *index = v->indices[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetStrings(TrsOptions options, const char *name, int *n, const char *const **value,
                                    PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_STRINGS | 1u << TRS_OPTION_FILES, &v, set));
  if (v) {
    *n = v->n;
    *value = (const char *const *)v->strings;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetEnums(TrsOptions options, const char *name, int *n, const int **index,
                                  PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_ENUMS, &v, set));
  if (v) {
    *n = v->n;
    *index = v->indices;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetInts(TrsOptions options, const char *name, int *n, const int64_t **value,
                                 PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_INTS | 1u << TRS_OPTION_BYTES_LIST, &v, set));
  if (v) {
    *n = v->n;
    *value = v->ints;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetReals(TrsOptions options, const char *name, int *n, const double **value,
                                  PetscBool *set)
{
  const TrsOptionValue *v = NULL;

  PetscFunctionBegin;
  PetscCall(get_value(options, name, 1u << TRS_OPTION_REALS, &v, set));
  if (v) {
    *n = v->n;
    *value = v->reals;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsHelpWanted(TrsOptions options, PetscBool *help, PetscBool *all)
{
  const char *word = "";

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-help", &word, help));
  *all = (PetscBool)(*help && strcasecmp(word, "all") == 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsSource(TrsOptions options, const char *name, const char **source)
{
  const TrsOptionEntry *entry = TrsOptionsFindEntry(options, name);

  PetscFunctionBegin;
  *source = entry && TrsOptionCounted(entry) ? TrsOptionCounted(entry)->source : "default";
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsRaise(TrsOptions options, const char *name, const char *function, const char *file,
                               int line, const char *format, ...)
{
  const TrsOptionEntry *entry = TrsOptionsFindEntry(options, name);
  const TrsGivenOption *counted = entry ? TrsOptionCounted(entry) : NULL;
  const PetscBool lacks_model = (PetscBool)(options->checkpoint && options->model.n == 0);
  const int code = counted && counted->origin == TRS_OPTION_ORIGIN_MODEL ? TRS_ERR_DATA : TRS_ERR_OPTION;
  char where[TRS_MAX_MESSAGE], what[TRS_MAX_MESSAGE];
  va_list arguments;

  if (counted) {
    describe(counted->name, counted->value, counted->source, where, sizeof(where));
  } else {
    describe(name, entry && entry->spec ? entry->spec->fallback : NULL, "default", where, sizeof(where));
  }
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  if (lacks_model && !counted && entry && entry->spec && TrsOptionIsOfModel(options, entry->spec))
    snprintf(what + strlen(what), sizeof(what) - strlen(what),
             ". %.300s does not say: an earlier version or another program wrote it, and it needs all "
             "options of its model",
             options->checkpoint);
  return PetscError(PETSC_COMM_SELF, line, function, file, code, PETSC_ERROR_INITIAL, "%s: %s", where, what);
}
