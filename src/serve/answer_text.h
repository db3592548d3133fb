/* SPDX-License-Identifier: BSD-3-Clause */
/* A text or a binary message that grows. */
#pragma once

#include "core/buffer.h"

typedef struct {
  TrsBuffer buffer;
  int64_t n;  /* number of bytes */
  int failed; /* true if memory ran out: then the text is incomplete */
} TrsServeText;

/* Append bytes, or a formatted text. If memory runs out, only text->failed is set. */
void TrsServeTextAdd(TrsServeText *text, const void *bytes, size_t n);
void TrsServeTextPrint(TrsServeText *text, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/* Append a string as JSON, with quotes. Bytes that are not UTF-8 become question marks. */
void TrsServeTextString(TrsServeText *text, const char *string);
