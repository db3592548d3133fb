/* SPDX-License-Identifier: BSD-3-Clause */
/* Show names from outside safely, and match misspelt names with known names. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
  TrsNameEscape - Copy text so that a terminal only shows it.

  Not collective. Control characters, ESC, direction overrides and bytes that are not UTF-8 become
  \xNN. A line feed starts an indented line, so text from a file cannot pose as a message of the
  program.

  Out:    out  [n], cut at n - 1 bytes, always ended by 0
*/
void TrsNameEscape(const char *text, char *out, size_t n);

/* The plural ending, "s" or "es", of a word after the number n; "" if n is 1. Not collective. */
const char *TrsPlural(int64_t n, const char *ending);

/*
  Decode the UTF-8 character at s, and set *n to its length. Returns true if a terminal only shows
  the character. *code is 0 and *n is 1 for a byte that is not UTF-8. Not collective.
*/
int TrsNameCharacter(const char *s, int *n, unsigned *code);

/* True if all bytes are valid UTF-8. Not collective. */
int TrsNameIsUtf8(const char *name);

/*
  The width in bytes with which printf's "%-*s" pads a UTF-8 name to n_characters. Not collective.
*/
int TrsNameWidth(const char *name, int n_characters);

/*
  TrsNameDistance - Count the edits (insert, delete, replace, swap neighbours) that turn a into b.

  Not collective. Case is ignored. Names longer than 255 bytes count as 255 bytes long.

  Source: optimal string alignment distance (Damerau 1964, Levenshtein 1966)
*/
int TrsNameDistance(const char *a, const char *b);

/*
  The index of the name closest to `name`, the first one if several are equally close, or -1 if n is
  0. Not collective.
*/
int TrsNameClosest(const char *name, int n, const char *const *names);
