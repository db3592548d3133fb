/* SPDX-License-Identifier: BSD-3-Clause */
/* Text of -help. */
#include "core/options/impl.h"
#include "core/ranks.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TRS_HELP_WIDTH = 100, TRS_HELP_COLUMN = 44, TRS_MAX_LINE = 2048 };

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

/*
  Append a part to the text in brackets that follows an option's help text. `before` precedes the
  first part.
*/
static void add_part(char text[TRS_MAX_LINE], const char *before, const char *part)
{
  const size_t used = strlen(text);

  snprintf(text + used, TRS_MAX_LINE - used, "%s%s%s", text[0] ? "; " : "", before, part);
}

/*
  Write the option's help text, followed by its values and its default in brackets. If the default
  depends on the case or on another option, the help text itself explains it.
*/
static void option_words(const TrsOptionSpec *spec, char text[TRS_MAX_LINE])
{
  char brackets[TRS_MAX_LINE] = "", words[TRS_MAX_LINE] = "";

  if (spec->choices && spec->type != TRS_OPTION_FILE) {
    TrsChoicesSpread(spec->choices, words, sizeof(words));
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

/* True if `text` begins with choices and their explanation: "cat, none: ...". */
static PetscBool explains_choices(const TrsOptionSpec *spec, const char *text)
{
  const char *choices = spec->type == TRS_OPTION_BOOL ? "true,false" : spec->choices;

  for (size_t n; choices; text += n + 2) {
    n = strcspn(text, " ,:");
    if (TrsChoiceOf(choices, text, n) < 0) return PETSC_FALSE;
    if (text[n] == ':') return PETSC_TRUE;
    if (strncmp(text + n, ", ", 2) != 0) return PETSC_FALSE;
  }
  return PETSC_FALSE;
}

/*
  Append words from column TRS_HELP_COLUMN on, with line breaks before TRS_HELP_WIDTH. A new line
  also begins at each choice that is explained, and after the last choice at the brackets.
*/
static PetscErrorCode add_wrapped(TrsGrowingText *text, const TrsOptionSpec *spec, const char *words)
{
  /* whether a choice was already explained; whether the last word ended a sentence or a part of
     it */
  PetscBool listed = PETSC_FALSE, sentence = PETSC_FALSE;
  int column = TRS_HELP_COLUMN;

  PetscFunctionBegin;
  while (*words) {
    const int n = (int)strcspn(words, " ");
    const PetscBool explains = (PetscBool)(sentence && explains_choices(spec, words));

    listed = (PetscBool)(listed || explains);
    if (explains || (listed && *words == '[') ||
        (column > TRS_HELP_COLUMN && column + 1 + n > TRS_HELP_WIDTH)) {
      PetscCall(TrsTextAdd(text, "\n%*s", TRS_HELP_COLUMN, ""));
      column = TRS_HELP_COLUMN;
    } else if (column > TRS_HELP_COLUMN) {
      PetscCall(TrsTextAdd(text, " "));
      column++;
    }
    PetscCall(TrsTextAdd(text, "%.*s", n, words));
    column += n;
    sentence = (PetscBool)(n > 0 && (words[n - 1] == '.' || words[n - 1] == ';'));
    words += n + (words[n] == ' ');
  }
  PetscCall(TrsTextAdd(text, "\n"));
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
    PetscCall(TrsTextAdd(text, "%-*s", TRS_HELP_COLUMN, name));
  } else {
    PetscCall(TrsTextAdd(text, "%s\n%*s", name, TRS_HELP_COLUMN, ""));
  }
  option_words(spec, words);
  PetscCall(add_wrapped(text, spec, words));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Convert a character for the search: letters become lower case, and all separators of words become
  the same character.
*/
static int folded(char c)
{
  return c == '_' || c == '-' ? ' ' : tolower((unsigned char)c);
}

/*
  Return the length of the common beginning of two texts. Characters are compared as in the search.
*/
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

/* True if -help shows the option. If `word` is NULL, it shows all options. */
static PetscBool is_wanted(const TrsOptionGroup *group, const TrsOptionSpec *spec, const char *word)
{
  char name[256];

  if (!word || has(group->title, word)) return PETSC_TRUE;
  TrsOptionNameForAll(group, spec, name, sizeof(name));
  return (PetscBool)(has(name, word) || has(spec->help, word) || has(spec->choices, word));
}

/*
  Append a group's title and the options that -help shows. *n becomes the number of these options.
*/
static PetscErrorCode add_group(TrsGrowingText *text, const TrsOptionGroup *group, const char *word, int *n)
{
  PetscFunctionBegin;
  *n = 0;
  for (int i = 0; i < group->n; i++) {
    if (!is_wanted(group, &group->spec[i], word)) continue;
    if (++*n == 1) {
      PetscCall(TrsTextAdd(text, "\n%s\n", group->title));
      if (group->object)
        PetscCall(TrsTextAdd(
            text,
            "  -%ss_KEY applies to every %s. -%s_NAME_KEY applies to the %s NAME, and has precedence.\n",
            group->object, group->object, group->object, group->object));
    }
    PetscCall(add_option_help(text, group, &group->spec[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Raise an error because no option matches the word, and name the closest option and the groups'
  titles.
*/
static PetscErrorCode refuse_word(TrsOptions options, const char *word)
{
  TrsGrowingText titles = {NULL, 0, 0};
  char closest[512], wanted[256], list[TRS_MAX_LINE];
  const char *source;

  PetscFunctionBegin;
  for (int g = 0; g < options->n_groups; g++)
    PetscCall(TrsTextAdd(&titles, "%s%s", g ? "; " : "", options->groups[g]->title));
  snprintf(list, sizeof(list), "%s", titles.data);
  PetscCall(PetscFree(titles.data));
  snprintf(wanted, sizeof(wanted), "-%s", word);
  TrsOptionsClosest(options, wanted, closest, sizeof(closest));
  PetscCall(TrsOptionsSource(options, "-help", &source));
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION,
          "-help \"%.100s\" (%s): no option and no group has it; the closest option is %s; groups: %s", word,
          source, closest, list);
}

PetscErrorCode TrsOptionsHelp(TrsOptions options, MPI_Comm comm, const char *about)
{
  TrsGrowingText text = {NULL, 0, 0};
  const char *word = NULL;
  PetscBool whole = PETSC_FALSE;
  int rank, n_shown = 0, n;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  PetscCall(TrsOptionsGetString(options, "-help", &word, NULL));
  if (word && (strcasecmp(word, "true") == 0 || strcasecmp(word, "all") == 0)) word = NULL;
  if (!word)
    PetscCall(
        TrsTextAdd(&text,
                   "%sLists are comma separated. Counts take K, M, G, T (powers of 1000), bytes also KB ... "
                   "TB and KiB ... TiB.\n",
                   about));
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
