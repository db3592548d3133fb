/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/text.h"

#include "core/names.h"
#include "core/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PetscErrorCode reserve(TrsText *text, size_t n_more)
{
  size_t capacity = text->capacity ? text->capacity : 256;
  char *data;

  PetscFunctionBegin;
  if (text->n + n_more + 1 <= text->capacity) PetscFunctionReturn(PETSC_SUCCESS);
  while (capacity < text->n + n_more + 1) capacity *= 2;
  PetscCall(PetscMalloc1(capacity, &data));
  if (text->n) memcpy(data, text->data, text->n);
  data[text->n] = '\0';
  PetscCall(PetscFree(text->data));
  text->data = data;
  text->capacity = capacity;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTextAppend(TrsText *text, const char *bytes, size_t n)
{
  PetscFunctionBegin;
  PetscCall(reserve(text, n));
  memcpy(text->data + text->n, bytes, n);
  text->n += n;
  text->data[text->n] = '\0';
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode append(void *text, const char *bytes, size_t n)
{
  return TrsTextAppend((TrsText *)text, bytes, n);
}

PetscErrorCode TrsTextPrintf(TrsText *text, const char *format, ...)
{
  va_list args, again;
  int n;

  PetscFunctionBegin;
  PetscCall(reserve(text, 64));
  va_start(args, format);
  if (TrsPrintHasText(format)) {
    PetscErrorCode ierr = TrsPrintFormat(append, text, PETSC_FALSE, format, args);

    va_end(args);
    PetscFunctionReturn(ierr);
  }
  va_copy(again, args);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right above */
  n = vsnprintf(text->data + text->n, text->capacity - text->n, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n >= text->capacity - text->n) {
    PetscErrorCode ierr = reserve(text, (size_t)n);

    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_copy is above */
    if (!ierr) vsnprintf(text->data + text->n, text->capacity - text->n, format, again);
    va_end(again);
    PetscCall(ierr);
  } else {
    va_end(again);
  }
  PetscCheck(n >= 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "cannot format \"%s\"", format);
  text->n += (size_t)n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTextJsonString(TrsText *text, const char *string)
{
  int n;

  PetscFunctionBegin;
  PetscCall(TrsTextAppend(text, "\"", 1));
  for (const char *c = string; *c; c += n) {
    unsigned code;
    const PetscBool safe = (PetscBool)TrsNameCharacter(c, &n, &code);

    if (*c == '"' || *c == '\\')
      PetscCall(TrsTextPrintf(text, "\\%c", *c));
    else if (safe || code == 0)
      PetscCall(TrsTextAppend(text, c, (size_t)n));
    else
      PetscCall(TrsTextPrintf(text, "\\u%04x", code));
  }
  PetscCall(TrsTextAppend(text, "\"", 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTextFree(TrsText *text)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(text->data));
  text->n = text->capacity = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsBytesText(double bytes, char *text, size_t size)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int u = 0;

  while (bytes >= 1024.0 && u < 5) {
    bytes /= 1024.0;
    u++;
  }
  snprintf(text, size, u == 0 ? "%.0f %s" : "%.2f %s", bytes, units[u]);
  return text;
}
