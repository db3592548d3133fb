/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/options/option_list.h"

#include <string.h>

/* End the entry [entry, end) after its last non-blank character. */
static void cut_blanks(const char *entry, char *end)
{
  while (end > entry && (end[-1] == ' ' || end[-1] == '\t')) end--;
  *end = '\0';
}

/*
  Unquote, in place, the entry that begins with the quote at s. Returns the text after the entry, or
  NULL if the quote is not closed.
*/
static char *unquote(char *s, char **entry)
{
  char *out = ++s;

  *entry = out;
  while (*s && (*s != '"' || s[1] == '"')) {
    s += *s == '"';
    *out++ = *s++;
  }
  if (*s != '"') return NULL;
  s++;
  s += strspn(s, " \t");
  if (*s && *s != ',') return NULL;
  *out = '\0';
  return s;
}

PetscErrorCode TrsOptionListSplit(const char *text, TrsOptionList *list, PetscBool *valid)
{
  size_t most = 1;
  char *at, *next;

  PetscFunctionBegin;
  for (const char *s = text; *s; s++) most += *s == ',';
  list->n = 0;
  PetscCall(PetscStrallocpy(text, &list->text));
  PetscCall(PetscMalloc1(most, &list->entry));
  for (at = list->text; at; at = next) {
    char *end;

    at += strspn(at, " \t");
    list->entry[list->n] = at;
    end = *at == '"' ? unquote(at, &list->entry[list->n]) : at + strcspn(at, ",");
    *valid = (PetscBool)(end != NULL);
    if (!end) break;
    next = *end ? end + 1 : NULL;
    if (*at != '"') cut_blanks(at, end);
    list->n++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionListFree(TrsOptionList *list)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(list->entry));
  PetscCall(PetscFree(list->text));
  list->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool needs_quotes(const char *entry)
{
  const size_t n = strlen(entry);

  return (PetscBool)(n > 0 &&
                     (strchr(" \t\"", entry[0]) || strchr(" \t", entry[n - 1]) || strchr(entry, ',')));
}

size_t TrsOptionListEntry(const char *entry, char *text)
{
  const PetscBool quoted = needs_quotes(entry);
  size_t n = 0;

  if (quoted) text[n++] = '"';
  for (; *entry; entry++) {
    if (quoted && *entry == '"') text[n++] = '"';
    text[n++] = *entry;
  }
  if (quoted) text[n++] = '"';
  text[n] = '\0';
  return n;
}

PetscErrorCode TrsOptionListJoin(int n, const char *const *entries, char **text)
{
  size_t bytes = 1, used = 0;

  PetscFunctionBegin;
  for (int i = 0; i < n; i++) bytes += 2 * strlen(entries[i]) + 3;
  PetscCall(PetscCalloc(bytes, text));
  for (int i = 0; i < n; i++) {
    if (i) (*text)[used++] = ',';
    used += TrsOptionListEntry(entries[i], *text + used);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
