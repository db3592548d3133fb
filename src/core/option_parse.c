/* SPDX-License-Identifier: BSD-3-Clause */
/* The two forms of option files: PETSc's "-name value" lines, and YAML. */
#include "core/option_petsc.h"
#include "core/option_source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_SOURCE = 4352, TRS_MAX_KEY = 512, TRS_MAX_DEPTH = 32 };

/*
  The next word of a line, unquoted in place; NULL at its end or at a comment. Quotes keep blanks together, a doubled quote stands for itself.
*/
static PetscErrorCode next_word(char **line, const char *source, char **word, PetscBool *is_quoted)
{
  char *s = *line + strspn(*line, " \t"), *out;
  char quote = *s;

  PetscFunctionBegin;
  *word = NULL;
  *is_quoted = (PetscBool)(quote == '"' || quote == '\'');
  if (*s == '\0' || *s == '#') PetscFunctionReturn(PETSC_SUCCESS);
  if (*is_quoted) {
    *word = out = ++s;
    while (*s && (*s != quote || s[1] == quote)) {
      if (*s == quote) s++;
      *out++ = *s++;
    }
    PetscCheck(*s == quote, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: a quote is opened but not closed", source);
    s++;
    PetscCheck(*s == '\0' || *s == ' ' || *s == '\t', PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: text follows a closing quote", source);
    *out = '\0';
  } else {
    *word = s;
    s += strcspn(s, " \t");
  }
  if (*s) *s++ = '\0';
  *line = s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode parse_line(char *line, const TrsGivenOption *file, TrsGivenOptions *given)
{
  TrsGivenOption option = *file;
  char *word;
  PetscBool is_quoted;

  PetscFunctionBegin;
  PetscCall(next_word(&line, file->source, &word, &is_quoted));
  while (word) {
    PetscCheck(!is_quoted && TrsIsOptionWord(word), PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: \"%.100s\" belongs to no option (-name value; quote a value with blanks)", file->source,
               word);
    option.name = word;
    option.value = NULL;
    PetscCall(next_word(&line, file->source, &word, &is_quoted));
    if (word && (is_quoted || !TrsIsOptionWord(word))) {
      option.value = word;
      PetscCall(next_word(&line, file->source, &word, &is_quoted));
    }
    PetscCall(TrsGivenOptionsAdd(given, &option));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionTextParse(char *text, const TrsGivenOption *file, TrsGivenOptions *given)
{
  char source[TRS_MAX_SOURCE];
  TrsGivenOption here = *file;

  PetscFunctionBegin;
  here.source = source;
  for (int line = 1; text; line++) {
    char *end = strchr(text, '\n');

    if (end) *end++ = '\0';
    text[strcspn(text, "\r")] = '\0'; /* CRLF */
    snprintf(source, sizeof(source), "%s:%d", file->source, line);
    PetscCall(parse_line(text, &here, given));
    text = end;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* One option of a YAML file; line and text are what yaml_scan() sees, 0 and "" where it is written in a way that it does not see. */
typedef struct {
  char name[TRS_MAX_KEY];
  int line;
  const char *text; /* after the colon, up to the end of the line */
  int length;
} TrsYamlKey;

typedef struct {
  int n, capacity;
  TrsYamlKey *key;
} TrsYamlKeys;

/* Split "  key: value" into indentation, key and value; PETSC_FALSE for other lines. */
static PetscBool split_yaml_line(const char *line, int length, int *indent, TrsYamlKey *key)
{
  int i = 0, start, n, colon;

  while (i < length && line[i] == ' ') i++;
  *indent = start = i;
  if (i == length || line[i] == '#' || (line[i] == '-' && (i + 1 == length || line[i + 1] == ' ')))
    return PETSC_FALSE;
  while (i < length && line[i] != ':') i++;
  colon = i;
  if (colon == length || (colon + 1 < length && line[colon + 1] != ' ')) return PETSC_FALSE;
  n = colon - start;
  if (n >= 2 && (line[start] == '"' || line[start] == '\'') && line[colon - 1] == line[start]) {
    start++;
    n -= 2;
  }
  for (i = colon + 1; i < length && line[i] == ' ';) i++;
  while (length > i && (line[length - 1] == ' ' || line[length - 1] == '\r')) length--;
  snprintf(key->name, sizeof(key->name), "%.*s", n, line + start);
  key->text = line + i;
  key->length = length - i;
  return PETSC_TRUE;
}

/* Keys of block mappings with their full names, by indentation: PETSc's parser keeps neither lines nor repeated keys. */
static PetscErrorCode yaml_scan(const char *text, TrsYamlKeys *keys)
{
  struct {
    int indent;
    char prefix[TRS_MAX_KEY];
  } level[TRS_MAX_DEPTH];
  int depth = 0;

  PetscFunctionBegin;
  for (int line = 1; text; line++) {
    const char *end = strchr(text, '\n');
    TrsYamlKey key = {.line = line};
    int indent, length = end ? (int)(end - text) : (int)strlen(text);

    if (split_yaml_line(text, length, &indent, &key)) {
      char name[2 * TRS_MAX_KEY + 2];

      while (depth > 0 && level[depth - 1].indent >= indent) depth--;
      snprintf(name, sizeof(name), "%s%s", depth ? level[depth - 1].prefix : "", key.name);
      snprintf(key.name, sizeof(key.name), "%.*s", TRS_MAX_KEY - 2, name);
      if (depth < TRS_MAX_DEPTH) {
        level[depth].indent = indent;
        snprintf(level[depth].prefix, sizeof(level[depth].prefix), "%.*s_", TRS_MAX_KEY - 2, name);
        depth++;
      }
      if (keys->n == keys->capacity) {
        keys->capacity = keys->capacity ? 2 * keys->capacity : 64;
        PetscCall(PetscRealloc((size_t)keys->capacity * sizeof(*keys->key), &keys->key));
      }
      keys->key[keys->n++] = key;
    }
    text = end ? end + 1 : NULL;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_keys(const void *a, const void *b)
{
  const TrsYamlKey *x = a, *y = b;
  int order = strcasecmp(x->name, y->name);

  return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Sort by name, and refuse a key that is given twice with different values. */
static PetscErrorCode check_repeated_keys(TrsYamlKeys *keys, const char *file)
{
  PetscFunctionBegin;
  if (keys->n) qsort(keys->key, (size_t)keys->n, sizeof(*keys->key), compare_keys);
  for (int i = 1; i < keys->n; i++) {
    const TrsYamlKey *a = &keys->key[i - 1], *b = &keys->key[i];

    if (strcasecmp(a->name, b->name) != 0) continue;
    PetscCheck(a->length == b->length && strncmp(a->text, b->text, (size_t)a->length) == 0, PETSC_COMM_SELF,
               TRS_ERR_OPTION,
               "-%s is given twice with different values: \"%.*s\" (%s:%d) and \"%.*s\" (%s:%d)", a->name,
               a->length < 100 ? a->length : 100, a->text, file, a->line, b->length < 100 ? b->length : 100,
               b->text, file, b->line);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Line of an option, 0 when the scan has not seen it. */
static int line_of(const TrsYamlKeys *keys, const char *name)
{
  int lo = 0, hi = keys->n;

  while (lo < hi) {
    int middle = (lo + hi) / 2;

    if (strcasecmp(keys->key[middle].name, name) < 0) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  return lo < keys->n && strcasecmp(keys->key[lo].name, name) == 0 ? keys->key[lo].line : 0;
}

/* What PETSc makes of the text: names without '-' and values, unordered. */
static PetscErrorCode add_petsc_yaml(PetscOptions parsed, const TrsYamlKeys *keys, const TrsGivenOption *file,
                                     TrsGivenOptions *given)
{
  PetscInt n;
  char **names, **values;
  char source[TRS_MAX_SOURCE], name[TRS_MAX_KEY + 2];
  TrsGivenOption option = *file;

  PetscFunctionBegin;
  option.source = source;
  option.name = name;
  PetscCall(PetscOptionsLeftGet(parsed, &n, &names, &values));
  for (PetscInt i = 0; i < n; i++) {
    int line = line_of(keys, names[i]);

    PetscCheck(strlen(names[i]) < TRS_MAX_KEY, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: key \"%.60s...\" is too long", file->source, names[i]);
    snprintf(name, sizeof(name), "-%s", names[i]);
    snprintf(source, sizeof(source), line ? "%s:%d" : "%s", file->source, line);
    option.value = values[i];
    PetscCall(TrsGivenOptionsAdd(given, &option));
  }
  PetscCall(PetscOptionsLeftRestore(parsed, &n, &names, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionYamlParse(const char *text, const TrsGivenOption *file, TrsGivenOptions *given)
{
  PetscOptions parsed;
  TrsYamlKeys keys = {0, 0, NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(yaml_scan(text, &keys));
  PetscCall(check_repeated_keys(&keys, file->source));
  PetscCall(PetscOptionsCreate(&parsed));
  ierr = PetscOptionsInsertStringYAML(parsed, text);
  if (ierr) {
    TrsErrorClear(); /* PETSc's own message names neither file nor line */
    SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION, "option file \"%s\" is not valid YAML of the form key: value",
            file->source);
  }
  PetscCall(add_petsc_yaml(parsed, &keys, file, given));
  PetscCall(PetscOptionsDestroy(&parsed));
  PetscCall(PetscFree(keys.key));
  PetscFunctionReturn(PETSC_SUCCESS);
}
