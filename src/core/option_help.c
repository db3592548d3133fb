/* SPDX-License-Identifier: BSD-3-Clause */
/* This file writes options as text: -help, and the configuration of a run. */
#include "core/options_impl.h"
#include "core/version.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TRS_HELP_WIDTH = 100, TRS_HELP_COLUMN = 44, TRS_MAX_LINE = 2048 };

/* A text that grows. */
typedef struct {
  char *data;
  size_t used, capacity;
} TrsGrowingText;

static PetscErrorCode add_text(TrsGrowingText *text, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);
static PetscErrorCode add_text(TrsGrowingText *text, const char *format, ...)
{
  va_list arguments;
  int n;

  PetscFunctionBegin;
  va_start(arguments, format);
  n = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (text->used + (size_t)n + 1 > text->capacity) {
    text->capacity = 2 * (text->used + (size_t)n + 1);
    PetscCall(PetscRealloc(text->capacity, &text->data));
  }
  va_start(arguments, format);
  vsnprintf(text->data + text->used, (size_t)n + 1, format, arguments);
  va_end(arguments);
  text->used += (size_t)n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const char *type_word(TrsOptionType type)
{
  static const char *const words[] = {"<bool>",   "<int>",      "<bytes>",   "<real>",     "<text>",
                                      "<file>",   "<file,..>",  "<word>",    "<word,..>",  "<text,..>",
                                      "<int,..>", "<bytes,..>", "<real,..>", "<bandwidth>"};

  return words[type];
}

/* Write a range in words: "[1,]" becomes ">= 1". */
static void range_words(const char *range, char *text, size_t n)
{
  const char *comma = strchr(range, ',');
  size_t length = strlen(range);
  int n_lo = (int)(comma - range - 1), n_hi = (int)(range + length - 2 - comma);

  if (n_lo > 0 && n_hi > 0) {
    snprintf(text, n, "in %c%.*s, %.*s%c", range[0], n_lo, range + 1, n_hi, comma + 1, range[length - 1]);
  } else if (n_lo > 0) {
    snprintf(text, n, "%s %.*s", range[0] == '(' ? ">" : ">=", n_lo, range + 1);
  } else {
    snprintf(text, n, "%s %.*s", range[length - 1] == ')' ? "<" : "<=", n_hi, comma + 1);
  }
}

/* Add a part to the text in brackets behind an option's help text. */
static void add_part(char text[TRS_MAX_LINE], const char *before, const char *part)
{
  const size_t used = strlen(text);

  snprintf(text + used, TRS_MAX_LINE - used, "%s%s%s", text[0] ? "; " : "", before, part);
}

/*
  The option's help text, then in brackets the values it takes and its default. A help text that
  explains a default of several cases, or another option's, says so itself.
*/
static void option_words(const TrsOptionSpec *spec, char text[TRS_MAX_LINE])
{
  char brackets[TRS_MAX_LINE] = "", words[TRS_MAX_LINE] = "";
  size_t n = 0;

  if (spec->choices && spec->type != TRS_OPTION_FILE) {
    for (const char *c = spec->choices; *c && n + 3 < sizeof(words); c++) {
      words[n++] = *c;
      if (*c == ',') words[n++] = ' ';
    }
    words[n] = '\0';
    add_part(brackets, TrsOptionIsList(spec->type) ? "any of " : "one of ", words);
  }
  if (spec->range) {
    range_words(spec->range, words, sizeof(words));
    add_part(brackets, "", words);
  }
  if (spec->unit) add_part(brackets, "in ", spec->unit);
  if (spec->fallback)
    add_part(brackets, "default ", spec->fallback);
  else if (!strstr(spec->help, "default") && strncmp(spec->help, "as -", 4) != 0)
    add_part(brackets, "no default", "");
  snprintf(text, TRS_MAX_LINE, brackets[0] ? "%s [%s]" : "%s", spec->help, brackets);
}

/* Write words from column TRS_HELP_COLUMN on and break lines before TRS_HELP_WIDTH. */
static PetscErrorCode add_wrapped(TrsGrowingText *text, const char *words)
{
  int column = TRS_HELP_COLUMN;

  PetscFunctionBegin;
  while (*words) {
    int n = (int)strcspn(words, " ");

    if (column > TRS_HELP_COLUMN && column + 1 + n > TRS_HELP_WIDTH) {
      PetscCall(add_text(text, "\n%*s", TRS_HELP_COLUMN, ""));
      column = TRS_HELP_COLUMN;
    } else if (column > TRS_HELP_COLUMN) {
      PetscCall(add_text(text, " "));
      column++;
    }
    PetscCall(add_text(text, "%.*s", n, words));
    column += n;
    words += n + (words[n] == ' ');
  }
  PetscCall(add_text(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_option_help(TrsGrowingText *text, const TrsOptionGroup *group,
                                      const TrsOptionSpec *spec)
{
  char name[256], words[TRS_MAX_LINE];
  int n;

  PetscFunctionBegin;
  if (group->object) {
    n = snprintf(name, sizeof(name), "  -%ss_%s %s", group->object, spec->name, type_word(spec->type));
  } else {
    n = snprintf(name, sizeof(name), "  %s %s", spec->name, type_word(spec->type));
  }
  if (n < TRS_HELP_COLUMN) {
    PetscCall(add_text(text, "%-*s", TRS_HELP_COLUMN, name));
  } else {
    PetscCall(add_text(text, "%s\n%*s", name, TRS_HELP_COLUMN, ""));
  }
  option_words(spec, words);
  PetscCall(add_wrapped(text, words));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A letter as the search compares it: case is free, and the marks between words are one. */
static int folded(char c)
{
  return c == '_' || c == '-' ? ' ' : tolower((unsigned char)c);
}

/* How far the texts agree, as the search compares. */
static size_t common(const char *a, const char *b)
{
  size_t n = 0;

  while (a[n] && b[n] && folded(a[n]) == folded(b[n])) n++;
  return n;
}

static PetscBool has(const char *text, const char *word)
{
  const size_t n = strlen(word);

  for (; text && *text; text++) {
    if (common(text, word) == n) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

static PetscBool is_title(const TrsOptionGroup *group, const char *word)
{
  const size_t n = strlen(word);

  return (PetscBool)(strlen(group->title) == n && common(group->title, word) == n);
}

/* Is the option shown? word NULL: all are. */
static PetscBool is_wanted(const TrsOptionGroup *group, const TrsOptionSpec *spec, const char *word)
{
  char name[256];

  if (!word || has(group->title, word)) return PETSC_TRUE;
  snprintf(name, sizeof(name), group->object ? "-%ss_%s" : "%.0s%s", group->object ? group->object : "",
           spec->name);
  return (PetscBool)(has(name, word) || has(spec->help, word) || has(spec->choices, word));
}

/* The options of a group that are wanted, under its title. Returns how many. */
static PetscErrorCode add_group(TrsGrowingText *text, const TrsOptionGroup *group, const char *word, int *n)
{
  PetscFunctionBegin;
  *n = 0;
  for (int i = 0; i < group->n; i++) {
    if (!is_wanted(group, &group->spec[i], word)) continue;
    if (++*n == 1) {
      PetscCall(add_text(text, "\n%s\n", group->title));
      if (group->object)
        PetscCall(add_text(
            text, "  -%ss_KEY holds for every %s, -%s_NAME_KEY for the %s called NAME and goes first.\n",
            group->object, group->object, group->object, group->object));
    }
    PetscCall(add_option_help(text, group, &group->spec[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Nothing has the word: the closest option, and the titles of the groups. */
static PetscErrorCode refuse_word(TrsOptions options, const char *word)
{
  TrsGrowingText titles = {NULL, 0, 0};
  char closest[512], wanted[256], list[TRS_MAX_LINE];
  const char *source;

  PetscFunctionBegin;
  for (int g = 0; g < options->n_groups; g++)
    PetscCall(add_text(&titles, "%s%s", g ? "; " : "", options->groups[g]->title));
  snprintf(list, sizeof(list), "%s", titles.data);
  PetscCall(PetscFree(titles.data));
  snprintf(wanted, sizeof(wanted), "-%s", word);
  TrsOptionsClosest(options, wanted, closest, sizeof(closest));
  PetscCall(TrsOptionsSource(options, "-help", &source));
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION,
          "-help \"%.100s\" (%s): no option and no group has it; the closest option is %s; groups: %s", word,
          source, closest, list);
}

PetscErrorCode TrsOptionsHelp(TrsOptions options, MPI_Comm comm)
{
  TrsGrowingText text = {NULL, 0, 0};
  const char *word = NULL;
  PetscBool whole = PETSC_FALSE;
  int rank, n_shown = 0, n;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsOptionsGetString(options, "-help", &word, NULL));
  if (word && (strcasecmp(word, "true") == 0 || strcasecmp(word, "all") == 0)) word = NULL;
  if (!word)
    PetscCall(
        add_text(&text,
                 "%s %s: trains and shards recommendation models\n"
                 "  mpirun -n 4 %s -options_file run.opts [-option value ...]\n"
                 "Lists are comma separated. Counts take K, M, G, T (powers of 1000), bytes also KB ... "
                 "TB and KiB ... TiB.\n",
                 TRS_NAME, TRS_VERSION, TRS_NAME));
  for (int g = 0; g < options->n_groups && word; g++)
    whole = (PetscBool)(whole || is_title(options->groups[g], word));
  for (int g = 0; g < options->n_groups; g++) {
    if (whole && !is_title(options->groups[g], word)) continue;
    PetscCall(add_group(&text, options->groups[g], word, &n));
    n_shown += n;
  }
  if (n_shown == 0) PetscCall(refuse_word(options, word));
  if (rank == 0) {
    fwrite(text.data, 1, text.used, stdout);
    fflush(stdout);
  }
  PetscCall(PetscFree(text.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a value as in an option file, with quotes if a bare word would be read differently. */
static PetscErrorCode add_value(TrsGrowingText *text, const char *value)
{
  PetscBool bare = (PetscBool)(value[0] && !strpbrk(value, " \t") && !strchr("\"'#", value[0]) &&
                               !(value[0] == '-' && !strchr("0123456789.", value[1])));

  PetscFunctionBegin;
  if (bare) {
    PetscCall(add_text(text, " %s", value));
  } else {
    PetscCall(add_text(text, " \""));
    for (; *value; value++) PetscCall(add_text(text, *value == '"' ? "\"\"" : "%c", *value));
    PetscCall(add_text(text, "\""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Join entries with commas: "a,b". Free the text with PetscFree(). */
static PetscErrorCode join(int n, char *const *entries, char **text)
{
  size_t bytes = 0, used = 0;

  PetscFunctionBegin;
  for (int i = 0; i < n; i++) bytes += strlen(entries[i]) + 1;
  PetscCall(PetscMalloc(bytes, text));
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(*text + used, bytes - used, "%s%s", i ? "," : "", entries[i]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_given(TrsGrowingText *text, const TrsOptionEntry *entry)
{
  const TrsGivenOption *given = entry->given;

  PetscFunctionBegin;
  PetscCall(add_text(text, "%s", given->name));
  if (entry->spec && (entry->spec->type == TRS_OPTION_FILE || entry->spec->type == TRS_OPTION_FILES)) {
    TrsOptionValue value;
    char *joined;
    PetscBool valid;
    char detail[TRS_OPTION_DETAIL];

    PetscCall(TrsOptionValueParse(entry->spec, given->value, given->folder, &value, &valid, detail));
    PetscCall(join(value.n, value.strings, &joined));
    PetscCall(add_value(text, joined));
    PetscCall(PetscFree(joined));
    PetscCall(TrsOptionValueFree(&value));
  } else if (given->value) {
    PetscCall(add_value(text, given->value));
  }
  PetscCall(add_text(text, " # %s\n", given->source));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsText(TrsOptions options, char **text)
{
  TrsGrowingText all = {NULL, 0, 0};

  PetscFunctionBegin;
  PetscCall(add_text(&all, "# %s %s (%s)\n", TRS_NAME, TRS_VERSION, TrsVersionCommit()));
  for (int i = 0; i < options->given.n; i++) {
    const TrsOptionEntry *entry = TrsOptionsFindEntry(options, options->given.option[i].name);

    if (entry->given == &options->given.option[i] && strcmp(entry->name, "-options_file") != 0)
      PetscCall(add_given(&all, entry));
  }
  PetscCall(add_text(&all, "# defaults\n"));
  for (int g = 1; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];

    for (int i = 0; i < group->n; i++) {
      const TrsOptionSpec *spec = &group->spec[i];
      char name[256];
      const TrsOptionEntry *entry;

      if (!spec->fallback) continue;
      snprintf(name, sizeof(name), group->object ? "-%ss_%s" : "%.0s%s", group->object ? group->object : "",
               spec->name);
      entry = TrsOptionsFindEntry(options, name);
      if (!entry || !entry->given) PetscCall(add_text(&all, "# %s %s\n", name, spec->fallback));
    }
  }
  *text = all.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
