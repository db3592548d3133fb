/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Functions that print names from outside safely, and find the known name that is closest to a
  misspelt name.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
  TrsNameEscape - Copy text in a form that a terminal can only display.

  Not collective. Control characters, ESC, direction overrides and bytes that are not UTF-8 become
  \xNN. The line after a line feed is indented, so that text from a file does not look like a
  message of the program.

  Out:    out  [n], cut at n - 1 bytes, always ended by 0
*/
void TrsNameEscape(const char *text, char *out, size_t n);

/*
  Return the plural ending of a word after the number n: `ending` ("s" or "es"), or "" if n is 1.
  Not collective.
*/
const char *TrsPlural(int64_t n, const char *ending);

/*
  Decode the UTF-8 character at s, and set *n to its length. Returns true if a terminal can only
  display the character. For a byte that is not UTF-8, *code becomes 0 and *n becomes 1. Not
  collective.
*/
int TrsNameCharacter(const char *s, int *n, unsigned *code);

/* True if all bytes are valid UTF-8. Not collective. */
int TrsNameIsUtf8(const char *name);

/*
  Return the width in bytes for printf's "%-*s" that pads a UTF-8 name to n_characters. Not
  collective.
*/
int TrsNameWidth(const char *name, int n_characters);

/*
  TrsNameDistance - Count the edits (insert, delete, replace, swap neighbours) that turn a into b.

  Not collective. Case is ignored. Only the first 255 bytes of a name are compared.

  Source: optimal string alignment distance (Damerau 1964, Levenshtein 1966)
*/
int TrsNameDistance(const char *a, const char *b);

/*
  Return the index of the name that is closest to `name`, the first if several are equally close, or
  -1 if n is 0. Not collective.
*/
int TrsNameClosest(const char *name, int n, const char *const *names);
