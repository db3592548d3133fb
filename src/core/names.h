/* SPDX-License-Identifier: BSD-3-Clause */
/* Names from outside are shown safely, and misspelt names are matched with known ones. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
  TrsNameEscape - Copy text so that a terminal shows the text and does nothing else.

  Not collective. Control characters, ESC, direction overrides and bytes that are not UTF-8 become
  \xNN. A line feed starts an indented line, so text from a file cannot pose as one of our messages.

  Out:    out  [n], cut at n - 1 bytes, always ended by 0
*/
void TrsNameEscape(const char *text, char *out, size_t n);

/* The ending, "s" or "es", of a word behind the number n; nothing behind 1. Not collective. */
const char *TrsPlural(int64_t n, const char *ending);

/*
  Look at the character of UTF-8 at s, of n bytes. Tell whether a terminal shows it and does nothing
  else. *code is 0 and *n is 1 for a byte that is not UTF-8. Not collective.
*/
int TrsNameCharacter(const char *s, int *n, unsigned *code);

/* Whether all bytes are UTF-8. Not collective. */
int TrsNameIsUtf8(const char *name);

/*
  The width in bytes, for printf's "%-*s", that pads a name of UTF-8 to so many characters. Not
  collective.
*/
int TrsNameWidth(const char *name, int n_characters);

/*
  TrsNameDistance - Count the edits (insert, delete, replace, swap neighbours) that turn a into b.

  Not collective. Case does not count. Names longer than 255 bytes count as 255 long.

  Source: optimal string alignment distance (Damerau 1964, Levenshtein 1966)
*/
int TrsNameDistance(const char *a, const char *b);

/*
  The index of the name closest to `name`, the first one if several are equally close, or -1 if n is
  0. Not collective.
*/
int TrsNameClosest(const char *name, int n, const char *const *names);
