/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Option files in PETSc's form: any number of "-name value" pairs on each line. A name with blanks,
  such as a table's name, must be in quotes.
*/
#include "core/options/option_petsc.h"
#include "core/options/option_source.h"

#include <stdio.h>
#include <string.h>

enum { TRS_MAX_SOURCE = 4352 };

/*
  Return the next word of a line, unquoted in place. At the end of the line or at a comment, the
  word is NULL. A quoted word may contain blanks, and a doubled quote in it represents one quote.
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
    PetscCheck(TrsIsOptionWord(word), PETSC_COMM_SELF, TRS_ERR_OPTION,
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
    text[strcspn(text, "\r")] = '\0'; /* remove the CR of a CRLF line end */
    snprintf(source, sizeof(source), "%s:%d", file->source, line);
    PetscCall(parse_line(text, &here, given));
    text = end;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
