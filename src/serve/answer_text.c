/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/answer_text.h"

#include "core/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void TrsServeTextAdd(TrsServeText *text, const void *bytes, size_t n)
{
  if (n == 0 || text->failed) return;
  if (TrsBufferReserve(&text->buffer, text->n + (int64_t)n, PETSC_TRUE)) {
    TrsErrorClear();
    text->failed = 1;
    return;
  }
  memcpy((char *)text->buffer.data + text->n, bytes, n);
  text->n += (int64_t)n;
}

void TrsServeTextPrint(TrsServeText *text, const char *format, ...)
{
  char line[1024];
  va_list values;
  int n;

  va_start(values, format);
  n = vsnprintf(line, sizeof(line), format, values);
  va_end(values);
  if (n < 0 || (size_t)n >= sizeof(line)) text->failed = 1;
  if (!text->failed) TrsServeTextAdd(text, line, (size_t)n);
}

void TrsServeTextString(TrsServeText *text, const char *string)
{
  TrsServeTextAdd(text, "\"", 1);
  for (int n; *string; string += n) {
    unsigned code;

    (void)TrsNameCharacter(string, &n, &code);
    if (*string == '"' || *string == '\\')
      TrsServeTextPrint(text, "\\%c", *string);
    else if ((unsigned char)*string < 0x20)
      TrsServeTextPrint(text, "\\u%04x", (unsigned)*string);
    else if (code == 0)
      TrsServeTextAdd(text, "?", 1);
    else
      TrsServeTextAdd(text, string, (size_t)n);
  }
  TrsServeTextAdd(text, "\"", 1);
}
