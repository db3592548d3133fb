/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/encode_value.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A text that is being read. It may have any bytes, and does not end with 0. */
typedef struct {
  const char *at, *end;
} TrsBytes;

/* Doubles hold every integer below this bound. */
static const double exact_bound = 0x1p53;

/* Text with more bytes than this is copied to be read as a number. */
enum { TRS_SHORT_NUMBER = 64, TRS_SHOWN_VALUE = 200 };

/* --- messages --- */

/* Write a text with quotes, and its unusual bytes as \x escapes. Long texts are cut. */
static void show_text(const TrshardValue *value, char shown[TRS_SHOWN_VALUE])
{
  size_t n = 0;

  shown[n++] = '\'';
  for (int64_t i = 0; i < value->n_bytes && n < TRS_SHOWN_VALUE - 12; i++) {
    const unsigned char byte = (unsigned char)value->as.text[i];

    if (byte >= ' ' && byte < 127 && byte != '\'' && byte != '\\')
      shown[n++] = (char)byte;
    else
      n += (size_t)snprintf(shown + n, 5, "\\x%02x", byte);
  }
  snprintf(shown + n, TRS_SHOWN_VALUE - n, "%s", n < TRS_SHOWN_VALUE - 12 ? "'" : "...'");
}

static void show(const TrshardValue *value, char shown[TRS_SHOWN_VALUE])
{
  switch (value->kind) {
  case TRSHARD_MISSING: snprintf(shown, TRS_SHOWN_VALUE, "a missing value"); return;
  case TRSHARD_INTEGER: snprintf(shown, TRS_SHOWN_VALUE, "%" PRId64, value->as.integer); return;
  case TRSHARD_UNSIGNED: snprintf(shown, TRS_SHOWN_VALUE, "%" PRIu64, value->as.natural); return;
  case TRSHARD_DOUBLE: snprintf(shown, TRS_SHOWN_VALUE, "%.17g", value->as.number); return;
  case TRSHARD_TEXT: show_text(value, shown); return;
  }
  snprintf(shown, TRS_SHOWN_VALUE, "a value of kind %d", (int)value->kind);
}

PetscErrorCode TrsEncodeRefuse(const TrsEncodePlace *at, const TrshardValue *value, const char *what)
{
  char shown[TRS_SHOWN_VALUE];

  PetscFunctionBegin;
  show(value, shown);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_DATA, "row %" PRId64 ", column %.100s: %s %s", at->row, at->column, shown,
          what);
}

/* --- missing values --- */

PetscBool TrsEncodeIsMissing(const TrsMappingEntries *entries, const TrshardValue *value)
{
  const size_t n = (size_t)value->n_bytes;

  if (value->kind == TRSHARD_DOUBLE) return (PetscBool)isnan(value->as.number);
  if (value->kind != TRSHARD_TEXT) return (PetscBool)(value->kind == TRSHARD_MISSING);
  if (n == 0) return PETSC_TRUE;
  for (int i = 0; i < entries->n_nulls; i++)
    if (strlen(entries->nulls[i]) == n && memcmp(entries->nulls[i], value->as.text, n) == 0)
      return PETSC_TRUE;
  return PETSC_FALSE;
}

/* --- numbers --- */

static PetscBool is_digit(char byte)
{
  return (PetscBool)(byte >= '0' && byte <= '9');
}

static PetscBool is_space(char byte)
{
  return (PetscBool)(byte == ' ' || (byte >= '\t' && byte <= '\r'));
}

static void skip_digits(TrsBytes *b)
{
  while (b->at < b->end && is_digit(*b->at)) b->at++;
}

static void skip_sign(TrsBytes *b)
{
  if (b->at < b->end && (*b->at == '-' || *b->at == '+')) b->at++;
}

static PetscBool is_word(const TrsBytes *b, const char *word)
{
  return (PetscBool)((size_t)(b->end - b->at) == strlen(word) && strncasecmp(b->at, word, strlen(word)) == 0);
}

/*
  True if a text is a number of Python's float(): a decimal number, inf or nan. strtod() also reads
  numbers of base 16.
*/
static PetscBool is_float(TrsBytes b)
{
  const char *begin, *point;

  skip_sign(&b);
  if (is_word(&b, "inf") || is_word(&b, "infinity") || is_word(&b, "nan")) return PETSC_TRUE;
  begin = b.at;
  skip_digits(&b);
  point = b.at;
  if (b.at < b.end && *b.at == '.') b.at++;
  skip_digits(&b);
  if (b.at == begin || (point == begin && b.at == begin + 1 && *begin == '.')) return PETSC_FALSE;
  if (b.at < b.end && (*b.at == 'e' || *b.at == 'E')) {
    b.at++;
    skip_sign(&b);
    if (b.at == b.end || !is_digit(*b.at)) return PETSC_FALSE;
    skip_digits(&b);
  }
  return (PetscBool)(b.at == b.end);
}

/* Read a text as a number. Returns false if it is none. */
static PetscErrorCode read_number(const TrshardValue *value, PetscBool *good, double *number)
{
  TrsBytes b = {value->as.text, value->as.text + value->n_bytes};
  char some[TRS_SHORT_NUMBER + 1], *text = some;

  PetscFunctionBegin;
  while (b.end > b.at && b.end[-1] == '\0') b.end--; /* numpy's texts lose 0 bytes at their end */
  *good = PETSC_TRUE;
  *number = is_word(&b, "true") ? 1.0 : 0.0;
  if (is_word(&b, "true") || is_word(&b, "false")) PetscFunctionReturn(PETSC_SUCCESS);
  while (b.at < b.end && is_space(*b.at)) b.at++;
  while (b.at < b.end && is_space(b.end[-1])) b.end--;
  *good = is_float(b);
  if (!*good) PetscFunctionReturn(PETSC_SUCCESS);
  if (b.end - b.at > TRS_SHORT_NUMBER) {
    text = malloc((size_t)(b.end - b.at) + 1);
    PetscCheck(text, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory");
  }
  memcpy(text, b.at, (size_t)(b.end - b.at));
  text[b.end - b.at] = '\0';
  *number = strtod(text, NULL);
  if (text != some) free(text);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEncodeNumber(const TrsEncodePlace *at, const TrshardValue *value, double *number)
{
  PetscBool good = PETSC_TRUE;

  PetscFunctionBegin;
  switch (value->kind) {
  case TRSHARD_INTEGER: *number = (double)value->as.integer; break;
  case TRSHARD_UNSIGNED: *number = (double)value->as.natural; break;
  case TRSHARD_DOUBLE: *number = value->as.number; break;
  case TRSHARD_TEXT: PetscCall(read_number(value, &good, number)); break;
  case TRSHARD_MISSING:
  default: good = PETSC_FALSE;
  }
  if (!good) PetscCall(TrsEncodeRefuse(at, value, "is not a number"));
  if (fabs(*number) > (double)FLT_MAX) PetscCall(TrsEncodeRefuse(at, value, "is not finite as float32"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- ids --- */

/*
  Read digits of this base after an optional "-". Returns false if they are no integer of 64 bits,
  signed or not. A number of base 16 has no sign and at most 16 digits.
*/
static PetscBool read_digits(TrsBytes b, int base, TrsRawId *id)
{
  const PetscBool negative = (PetscBool)(base == 10 && b.end - b.at > 1 && *b.at == '-');
  const uint64_t most = negative ? (uint64_t)1 << 63 : UINT64_MAX;
  uint64_t number = 0;

  /* the converter refuses longer texts, even if they begin with zeros */
  if (b.at == b.end || b.end - b.at > (base == 16 ? 16 : 20)) return PETSC_FALSE;
  for (b.at += negative; b.at < b.end; b.at++) {
    const int digit = base == 16 || is_digit(*b.at) ? TrsHexDigit(*b.at) : -1;

    if (digit < 0 || number > (most - (uint64_t)digit) / (uint64_t)base) return PETSC_FALSE;
    number = number * (uint64_t)base + (uint64_t)digit;
  }
  id->bits = (int64_t)(negative ? 0 - number : number);
  id->is_large = (PetscBool)(!negative && number > (uint64_t)INT64_MAX);
  return PETSC_TRUE;
}

/* Read a text as an integer; 7.0 is read as 7. */
static PetscErrorCode read_integer(const TrsEncodePlace *at, int base, const TrshardValue *value,
                                   TrsRawId *id)
{
  TrsBytes b = {value->as.text, value->as.text + value->n_bytes};

  PetscFunctionBegin;
  if (base == 10 && b.end - b.at > 2 && b.end[-2] == '.' && b.end[-1] == '0') b.end -= 2;
  if (!read_digits(b, base, id))
    PetscCall(TrsEncodeRefuse(
        at, value, base == 16 ? "is not an integer of 64 bits in base 16" : "is not an integer of 64 bits"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEncodeRawId(const TrsEncodePlace *at, const TrsMappingEntry *entry,
                              const TrshardValue *value, TrsRawId *id)
{
  const double number = value->as.number;

  PetscFunctionBegin;
  *id = (TrsRawId){0};
  if (value->kind == TRSHARD_TEXT) {
    if (entry->kind == TRS_COLUMN_INTEGER) PetscCall(read_integer(at, entry->base, value, id));
    id->is_hash = (PetscBool)(entry->kind != TRS_COLUMN_INTEGER);
    if (id->is_hash) id->bits = TrsMappingHash(value->as.text, (size_t)value->n_bytes);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (entry->kind == TRS_COLUMN_TEXT) PetscCall(TrsEncodeRefuse(at, value, "is not text"));
  switch (value->kind) {
  case TRSHARD_INTEGER: id->bits = value->as.integer; break;
  case TRSHARD_UNSIGNED:
    id->bits = (int64_t)value->as.natural;
    id->is_large = (PetscBool)(id->bits < 0);
    break;
  case TRSHARD_DOUBLE:
    if (!(fabs(number) < exact_bound) || number != floor(number))
      PetscCall(TrsEncodeRefuse(at, value, "is not an integer below 2^53; larger ids must not be doubles"));
    id->bits = (int64_t)number;
    break;
  case TRSHARD_TEXT:
  case TRSHARD_MISSING:
  default: PetscCall(TrsEncodeRefuse(at, value, "is not an id"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
