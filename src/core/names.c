/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/names.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TRS_MAX_NAME = 255 };

/*
  Decode the UTF-8 character at s into *code. Returns its length in bytes, or 0 if it is not valid
  UTF-8.
*/
static int utf8_length(const unsigned char *s, uint32_t *code)
{
  static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
  int n = s[0] < 0x80 ? 1 : s[0] >> 5 == 0x6 ? 2 : s[0] >> 4 == 0xE ? 3 : s[0] >> 3 == 0x1E ? 4 : 0;

  if (n == 0) return 0;
  *code = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
  for (int i = 1; i < n; i++) {
    if (s[i] >> 6 != 2) return 0;
    *code = *code << 6 | (s[i] & 0x3Fu);
  }
  if (*code < smallest[n] || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF)) return 0;
  return n;
}

const char *TrsPlural(int64_t n, const char *ending)
{
  return n == 1 ? "" : ending;
}

int TrsNameIsUtf8(const char *name)
{
  const unsigned char *s = (const unsigned char *)name;
  uint32_t code;

  for (int length; *s; s += length) {
    length = utf8_length(s, &code);
    if (!length) return 0;
  }
  return 1;
}

/* True for control characters, and for characters that reorder or break the line. */
static int is_unsafe(uint32_t c)
{
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || (c >= 0x200E && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

int TrsNameCharacter(const char *s, int *n, unsigned *code)
{
  uint32_t c = 0;
  const int length = utf8_length((const unsigned char *)s, &c);

  *n = length ? length : 1;
  *code = length ? c : 0;
  return length > 0 && !is_unsafe(c);
}

void TrsNameEscape(const char *text, char *out, size_t n)
{
  const unsigned char *s = (const unsigned char *)text;
  size_t used = 0;

  if (n == 0) return;
  while (*s) {
    char piece[20];
    uint32_t code = 0;
    int length = utf8_length(s, &code);
    size_t n_piece;

    if (*s == '\n') {
      n_piece = (size_t)snprintf(piece, sizeof(piece), "\n  ");
      length = 1;
    } else if (length == 0 || is_unsafe(code)) {
      length = length ? length : 1;
      for (int i = 0; i < length; i++) snprintf(piece + (ptrdiff_t)(4 * i), 5, "\\x%02x", (unsigned)s[i]);
      n_piece = 4 * (size_t)length;
    } else {
      memcpy(piece, s, (size_t)length);
      n_piece = (size_t)length;
    }
    if (used + n_piece >= n) break;
    memcpy(out + used, piece, n_piece);
    used += n_piece;
    s += length;
  }
  out[used] = '\0';
}

static int smaller(int a, int b)
{
  return a < b ? a : b;
}

int TrsNameWidth(const char *name, int n_characters)
{
  int width = n_characters;

  /* add the bytes of each character after its first byte */
  for (; *name; name++) width += ((unsigned char)*name & 0xc0) == 0x80;
  return width;
}

int TrsNameDistance(const char *a, const char *b)
{
  int row[3][TRS_MAX_NAME + 1];
  int n_a = (int)strnlen(a, TRS_MAX_NAME), n_b = (int)strnlen(b, TRS_MAX_NAME);

  for (int j = 0; j <= n_b; j++) row[0][j] = j;
  for (int i = 1; i <= n_a; i++) {
    int *now = row[i % 3];
    const int *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

    now[0] = i;
    for (int j = 1; j <= n_b; j++) {
      int c_a = tolower((unsigned char)a[i - 1]), c_b = tolower((unsigned char)b[j - 1]);

      now[j] = smaller(last[j - 1] + (c_a != c_b), smaller(last[j], now[j - 1]) + 1);
      if (i > 1 && j > 1 && c_a == tolower((unsigned char)b[j - 2]) &&
          tolower((unsigned char)a[i - 2]) == c_b) {
        now[j] = smaller(now[j], before[j - 2] + 1);
      }
    }
  }
  return row[n_a % 3][n_b];
}

int TrsNameClosest(const char *name, int n, const char *const *names)
{
  int best = -1, best_distance = 0;

  for (int i = 0; i < n; i++) {
    int distance = TrsNameDistance(name, names[i]);

    if (best < 0 || distance < best_distance) {
      best = i;
      best_distance = distance;
    }
  }
  return best;
}
