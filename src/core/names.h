/* SPDX-License-Identifier: BSD-3-Clause */
/* Names that came from outside: shown safely, and matched when they are misspelt. */
#pragma once

#include <stddef.h>

/*
  TrsNameEscape - Copy text so that a terminal shows it and does nothing else.

  Control characters, ESC, direction overrides and bytes that are not UTF-8 become \xNN; a line feed starts an indented line, so text from
  a file cannot pose as a message of ours. Not collective.

  Out:    out  [n], cut at n - 1 bytes, always ended by 0
*/
void TrsNameEscape(const char *text, char *out, size_t n);

/*
  TrsNameDistance - Edits (insert, delete, replace, swap neighbours; case is free) that turn a into b.

  Not collective. Names longer than 255 bytes count as 255 long.
  Source: optimal string alignment distance (Damerau 1964, Levenshtein 1966)
*/
int TrsNameDistance(const char *a, const char *b);

/* Index of the name closest to `name` (the first of equals), -1 when n is 0. Not collective. */
int TrsNameClosest(const char *name, int n, const char *const *names);
