/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/options/option_value.h"

#include "core/options/option_list.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* for exact products: 1.5TiB is 15 * 2^40 / 10 */
__extension__ typedef unsigned __int128 TrsWideUint;

/*
  The bounds of a range, as copies of their texts. A bound's text is empty if the range has no such
  bound.
*/
typedef struct {
  char lo[32], hi[32];
  PetscBool lo_open, hi_open;
} TrsValueRange;

static const struct {
  const char *suffix;
  int64_t factor;
  PetscBool bytes_only;
} suffixes[] = {{"K", 1000, PETSC_FALSE},
                {"k", 1000, PETSC_FALSE},
                {"M", 1000000, PETSC_FALSE},
                {"G", 1000000000, PETSC_FALSE},
                {"T", 1000000000000, PETSC_FALSE},
                {"B", 1, PETSC_TRUE},
                {"KB", 1000, PETSC_TRUE},
                {"kB", 1000, PETSC_TRUE},
                {"MB", 1000000, PETSC_TRUE},
                {"GB", 1000000000, PETSC_TRUE},
                {"TB", 1000000000000, PETSC_TRUE},
                {"KiB", (int64_t)1 << 10, PETSC_TRUE},
                {"MiB", (int64_t)1 << 20, PETSC_TRUE},
                {"GiB", (int64_t)1 << 30, PETSC_TRUE},
                {"TiB", (int64_t)1 << 40, PETSC_TRUE}};
enum { TRS_N_SUFFIXES = sizeof(suffixes) / sizeof(suffixes[0]) };

/*
  Units of bandwidths. For binary units, `binary` has the bytes/s. For decimal units, `decimal` has
  the power of ten in bytes/ms.
*/
static const struct {
  const char *suffix;
  double binary; /* 0 for a decimal unit */
  int decimal;
  PetscBool bits;
} bandwidths[] = {{"B/s", 0, -3, PETSC_FALSE},           {"KB/s", 0, 0, PETSC_FALSE},
                  {"kB/s", 0, 0, PETSC_FALSE},           {"MB/s", 0, 3, PETSC_FALSE},
                  {"GB/s", 0, 6, PETSC_FALSE},           {"TB/s", 0, 9, PETSC_FALSE},
                  {"KiB/s", 1024, 0, PETSC_FALSE},       {"MiB/s", 1048576, 0, PETSC_FALSE},
                  {"GiB/s", 1073741824, 0, PETSC_FALSE}, {"TiB/s", 1099511627776, 0, PETSC_FALSE},
                  {"Mbit/s", 0, 3, PETSC_TRUE},          {"Gbit/s", 0, 6, PETSC_TRUE},
                  {"Tbit/s", 0, 9, PETSC_TRUE}};
enum { TRS_N_BANDWIDTHS = sizeof(bandwidths) / sizeof(bandwidths[0]), TRS_MAX_NUMBER = 64 };

PetscBool TrsOptionIsList(TrsOptionType type)
{
  return (PetscBool)(type == TRS_OPTION_FILES || type == TRS_OPTION_ENUMS || type == TRS_OPTION_STRINGS ||
                     type == TRS_OPTION_INTS || type == TRS_OPTION_BYTES_LIST || type == TRS_OPTION_REALS);
}

/* Return the type of a list's entries. If the type is not a list, return the type itself. */
static TrsOptionType entry_type(TrsOptionType type)
{
  switch (type) {
  case TRS_OPTION_ENUMS: return TRS_OPTION_ENUM;
  case TRS_OPTION_FILES: return TRS_OPTION_FILE;
  case TRS_OPTION_STRINGS: return TRS_OPTION_STRING;
  case TRS_OPTION_INTS: return TRS_OPTION_INT;
  case TRS_OPTION_BYTES_LIST: return TRS_OPTION_BYTES;
  case TRS_OPTION_REALS: return TRS_OPTION_REAL;
  default: return type;
  }
}

int TrsChoiceOf(const char *choices, const char *text, size_t length)
{
  int index = 0;

  while (choices) {
    size_t n = strcspn(choices, ",");

    if (n == length && strncasecmp(choices, text, n) == 0) return index;
    choices = choices[n] ? choices + n + 1 : NULL;
    index++;
  }
  return -1;
}

static TrsValueRange range_of(const TrsOptionSpec *spec)
{
  TrsValueRange range = {"", "", PETSC_FALSE, PETSC_FALSE};

  if (spec->range) {
    const char *comma = strchr(spec->range, ',');
    size_t length = strlen(spec->range);

    if (!comma) return range;
    range.lo_open = (PetscBool)(spec->range[0] == '(');
    range.hi_open = (PetscBool)(spec->range[length - 1] == ')');
    snprintf(range.lo, sizeof(range.lo), "%.*s", (int)(comma - spec->range - 1), spec->range + 1);
    snprintf(range.hi, sizeof(range.hi), "%.*s", (int)(spec->range + length - 2 - comma), comma + 1);
  }
  return range;
}

/*
  Parse a whole number with an optional suffix. A fraction is valid only if the suffix makes the
  value whole.
*/
static PetscBool parse_int(const char *text, PetscBool is_bytes, int64_t *value)
{
  const char *s = text;
  /* this number times 2^40 still fits */
  const TrsWideUint most = (TrsWideUint)10000000000000 * 1000000000000;
  TrsWideUint mantissa = 0, scale = 1, factor = 1;
  int n_digits = 0;
  PetscBool negative = (PetscBool)(*s == '-');

  if (*s == '-' || *s == '+') s++;
  for (; isdigit((unsigned char)*s); s++, n_digits++) {
    mantissa = 10 * mantissa + (unsigned)(*s - '0');
    if (mantissa > most) return PETSC_FALSE;
  }
  if (n_digits && *s == '.') {
    for (s++; isdigit((unsigned char)*s); s++) {
      mantissa = 10 * mantissa + (unsigned)(*s - '0');
      scale *= 10;
      if (mantissa > most || scale > most) return PETSC_FALSE;
    }
    if (scale == 1) return PETSC_FALSE;
  }
  if (n_digits == 0) return PETSC_FALSE;
  if (*s) {
    int i = 0;

    while (i < TRS_N_SUFFIXES &&
           (strcmp(s, suffixes[i].suffix) != 0 || (suffixes[i].bytes_only && !is_bytes)))
      i++;
    if (i == TRS_N_SUFFIXES) return PETSC_FALSE;
    factor = (TrsWideUint)suffixes[i].factor;
  }
  if (factor == 1 && scale > 1) return PETSC_FALSE;
  mantissa *= factor;
  if (mantissa % scale != 0) return PETSC_FALSE;
  mantissa /= scale;
  if (mantissa > (TrsWideUint)INT64_MAX + negative) return PETSC_FALSE;
  *value = negative ? (int64_t)(0 - (uint64_t)mantissa) : (int64_t)mantissa;
  return PETSC_TRUE;
}

/* Parse a finite decimal number. strtod() would also accept nan, inf and hexadecimal numbers. */
static PetscBool parse_real(const char *text, double *value)
{
  char *end;

  if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') return PETSC_FALSE;
  *value = strtod(text, &end);
  return (PetscBool)(*end == '\0' && end != text && isfinite(*value));
}

/*
  Parse a bandwidth to bytes/ms, which is also the unit of a number without suffix. 2.039TB/s
  becomes the double that is nearest to 2039000000, as if the user had written this number. 51GiB/s
  becomes 51 * 2^30 / 1000, as TorchRec computes it.
*/
static PetscBool parse_bandwidth(const char *text, double *value)
{
  const size_t n = strspn(text, "0123456789+-.eE");
  const char *unit = text + n + strspn(text + n, " ");
  char number[TRS_MAX_NUMBER];
  int i = 0;

  if (n == 0 || n + 8 >= sizeof(number)) return PETSC_FALSE;
  memcpy(number, text, n);
  number[n] = '\0';
  if (!parse_real(number, value)) return PETSC_FALSE;
  if (!text[n]) return PETSC_TRUE;
  while (i < TRS_N_BANDWIDTHS && strcmp(unit, bandwidths[i].suffix) != 0) i++;
  if (i == TRS_N_BANDWIDTHS || strpbrk(number, "eE")) return PETSC_FALSE;
  if (bandwidths[i].binary > 0) {
    *value = *value * bandwidths[i].binary / 1000.0;
    return (PetscBool)isfinite(*value);
  }
  snprintf(number + n, sizeof(number) - n, "e%d", bandwidths[i].decimal);
  if (!parse_real(number, value)) return PETSC_FALSE;
  if (bandwidths[i].bits) *value /= 8;
  return PETSC_TRUE;
}

/* Explain that "400Gb/s" is ambiguous: networks are sold in bits, so Gb may mean bits or bytes. */
static void bandwidth_detail(const char *text, char detail[TRS_OPTION_DETAIL])
{
  const char *bits = strstr(text, "b/s");

  if (bits) snprintf(detail, TRS_OPTION_DETAIL, "; B/s are bytes, bit/s are bits: write one of them");
}

static PetscBool parse_bool(const char *text, int64_t *value)
{
  static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};

  for (int i = 0; i < 8; i++) {
    if (strcasecmp(text, words[i]) == 0) {
      *value = i % 2;
      return PETSC_TRUE;
    }
  }
  return PETSC_FALSE;
}

static PetscBool int_in_range(const TrsOptionSpec *spec, int64_t value)
{
  TrsValueRange range = range_of(spec);
  int64_t lo, hi;

  if (parse_int(range.lo, PETSC_TRUE, &lo) && (range.lo_open ? value <= lo : value < lo)) return PETSC_FALSE;
  if (parse_int(range.hi, PETSC_TRUE, &hi) && (range.hi_open ? value >= hi : value > hi)) return PETSC_FALSE;
  return PETSC_TRUE;
}

static PetscBool real_in_range(const TrsOptionSpec *spec, double value)
{
  TrsValueRange range = range_of(spec);
  double lo, hi;

  if (parse_real(range.lo, &lo) && (range.lo_open ? value <= lo : value < lo)) return PETSC_FALSE;
  if (parse_real(range.hi, &hi) && (range.hi_open ? value >= hi : value > hi)) return PETSC_FALSE;
  return PETSC_TRUE;
}

/* Add "; write 1M" for 1e6 and 1000000.0, which are whole numbers but not written as integers. */
static void int_detail(const TrsOptionSpec *spec, const char *text, char detail[TRS_OPTION_DETAIL])
{
  static const char *const names[] = {"T", "G", "M", "K"};
  double number;
  int64_t whole, factor = 1000000000000;

  if (!parse_real(text, &number) || fabs(number) > 9e15 || number != floor(number) || !strpbrk(text, ".eE"))
    return;
  whole = (int64_t)number;
  if (!int_in_range(spec, whole)) return;
  for (int i = 0; i < 4; i++, factor /= 1000) {
    if (whole != 0 && whole % factor == 0) {
      snprintf(detail, TRS_OPTION_DETAIL, "; write %" PRId64 "%s", whole / factor, names[i]);
      return;
    }
  }
  snprintf(detail, TRS_OPTION_DETAIL, "; write %" PRId64, whole);
}

/* True if the text begins like an address, "s3://" or "hdfs://". A path "./s3://x" does not. */
static PetscBool is_address(const char *text)
{
  size_t n = 0;

  while (isalnum((unsigned char)text[n]) || (text[n] && strchr("+-.", text[n]))) n++;
  return (PetscBool)(isalpha((unsigned char)text[0]) && strncmp(text + n, "://", 3) == 0);
}

static PetscErrorCode parse_string(const TrsOptionSpec *spec, const char *text, const char *folder,
                                   char **value)
{
  PetscFunctionBegin;
  if (entry_type(spec->type) == TRS_OPTION_FILE && text[0] != '/' &&
      TrsChoiceOf(spec->choices, text, strlen(text)) < 0) {
    size_t n = strlen(folder) + strlen(text) + 2;

    PetscCall(PetscMalloc1(n, value));
    snprintf(*value, n, "%s/%s", folder, text);
  } else {
    PetscCall(PetscStrallocpy(text, value));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Parse entry i of a value from the entry's text. */
static PetscErrorCode parse_entry(const TrsOptionSpec *spec, const char *text, const char *folder,
                                  TrsOptionValue *value, int i, PetscBool *valid,
                                  char detail[TRS_OPTION_DETAIL])
{
  TrsOptionType type = entry_type(spec->type);

  PetscFunctionBegin;
  switch (type) {
  case TRS_OPTION_BOOL: *valid = parse_bool(text, &value->ints[i]); break;
  case TRS_OPTION_INT:
  case TRS_OPTION_BYTES:
    *valid = (PetscBool)(parse_int(text, (PetscBool)(type == TRS_OPTION_BYTES), &value->ints[i]) &&
                         int_in_range(spec, value->ints[i]));
    if (!*valid) int_detail(spec, text, detail);
    break;
  case TRS_OPTION_REAL:
    *valid = (PetscBool)(parse_real(text, &value->reals[i]) && real_in_range(spec, value->reals[i]));
    break;
  case TRS_OPTION_BANDWIDTH:
    *valid = (PetscBool)(parse_bandwidth(text, &value->reals[i]) && real_in_range(spec, value->reals[i]));
    if (!*valid) bandwidth_detail(text, detail);
    break;
  case TRS_OPTION_ENUM:
    value->indices[i] = TrsChoiceOf(spec->choices, text, strlen(text));
    *valid = (PetscBool)(value->indices[i] >= 0);
    break;
  default: /* strings and files */
    *valid = (PetscBool)(text[0] != '\0' && !(type == TRS_OPTION_FILE && is_address(text)));
    if (!*valid && text[0])
      snprintf(detail, TRS_OPTION_DETAIL,
               "; only local paths are read and written: copy the files here, or mount their storage");
    PetscCall(parse_string(spec, text, folder, &value->strings[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate n entries of the type. */
static PetscErrorCode value_alloc(TrsOptionType type, int n, TrsOptionValue *value)
{
  PetscFunctionBegin;
  memset(value, 0, sizeof(*value));
  value->n = n;
  switch (entry_type(type)) {
  case TRS_OPTION_BOOL:
  case TRS_OPTION_INT:
  case TRS_OPTION_BYTES: PetscCall(PetscCalloc1(n, &value->ints)); break;
  case TRS_OPTION_BANDWIDTH:
  case TRS_OPTION_REAL: PetscCall(PetscCalloc1(n, &value->reals)); break;
  case TRS_OPTION_ENUM: PetscCall(PetscCalloc1(n, &value->indices)); break;
  default: PetscCall(PetscCalloc1(n, &value->strings));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionValueParse(const TrsOptionSpec *spec, const char *text, const char *folder,
                                   TrsOptionValue *value, PetscBool *valid, char detail[TRS_OPTION_DETAIL])
{
  PetscFunctionBegin;
  detail[0] = '\0';
  if (TrsOptionIsList(spec->type)) {
    TrsOptionList list;

    PetscCall(TrsOptionListSplit(text, &list, valid));
    PetscCall(value_alloc(spec->type, list.n, value));
    if (!*valid)
      snprintf(detail, TRS_OPTION_DETAIL, "; entry %d has a quote that is not closed before a comma",
               list.n + 1);
    for (int i = 0; i < list.n && *valid; i++) {
      PetscCall(parse_entry(spec, list.entry[i], folder, value, i, valid, detail));
      if (!*valid && list.n > 1 && detail[0] == '\0')
        snprintf(detail, TRS_OPTION_DETAIL, "; entry %d is \"%.40s\"", i + 1, list.entry[i]);
    }
    PetscCall(TrsOptionListFree(&list));
  } else {
    PetscCall(value_alloc(spec->type, 1, value));
    PetscCall(parse_entry(spec, text, folder, value, 0, valid, detail));
  }
  if (!*valid) PetscCall(TrsOptionValueFree(value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionValueFree(TrsOptionValue *value)
{
  PetscFunctionBegin;
  if (value->strings) {
    for (int i = 0; i < value->n; i++) PetscCall(PetscFree(value->strings[i]));
  }
  PetscCall(PetscFree(value->strings));
  PetscCall(PetscFree(value->ints));
  PetscCall(PetscFree(value->reals));
  PetscCall(PetscFree(value->indices));
  value->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void expected_number(const TrsOptionSpec *spec, PetscBool is_real, char *text, size_t n)
{
  TrsValueRange range = range_of(spec);
  int64_t bound;
  char lo[32], hi[32];

  snprintf(lo, sizeof(lo), "%s", range.lo);
  snprintf(hi, sizeof(hi), "%s", range.hi);
  if (is_real) {
    if (!lo[0]) snprintf(lo, sizeof(lo), "-inf");
    if (!hi[0]) snprintf(hi, sizeof(hi), "inf");
    snprintf(text, n, "in %c%s, %s%c", range.lo_open || !range.lo[0] ? '(' : '[', lo, hi,
             range.hi_open || !range.hi[0] ? ')' : ']');
    return;
  }
  snprintf(lo, sizeof(lo), "%" PRId64,
           parse_int(range.lo, PETSC_TRUE, &bound) ? bound + range.lo_open : INT64_MIN);
  snprintf(hi, sizeof(hi), "%" PRId64,
           parse_int(range.hi, PETSC_TRUE, &bound) ? bound - range.hi_open : INT64_MAX);
  snprintf(text, n, "in [%s, %s]", lo, hi);
}

void TrsChoicesSpread(const char *choices, char *text, size_t n)
{
  size_t used = 0;

  for (; choices && *choices && used + 3 < n; choices++) {
    text[used++] = *choices;
    if (*choices == ',') text[used++] = ' ';
  }
  text[used] = '\0';
}

void TrsOptionExpected(const TrsOptionSpec *spec, char *text, size_t n)
{
  PetscBool is_list = TrsOptionIsList(spec->type);
  char limits[1024];

  switch (entry_type(spec->type)) {
  case TRS_OPTION_BOOL: snprintf(text, n, "true or false (or 1, 0, yes, no)"); break;
  case TRS_OPTION_INT:
    expected_number(spec, PETSC_FALSE, limits, sizeof(limits));
    snprintf(text, n, "%s %s", is_list ? "a comma-separated list of integers" : "an integer", limits);
    break;
  case TRS_OPTION_BYTES:
    expected_number(spec, PETSC_FALSE, limits, sizeof(limits));
    snprintf(text, n, "%s (10MB, 80GiB, ...) %s",
             is_list ? "a comma-separated list of sizes" : "a size in bytes", limits);
    break;
  case TRS_OPTION_REAL:
    expected_number(spec, PETSC_TRUE, limits, sizeof(limits));
    snprintf(text, n, "%s %s", is_list ? "a comma-separated list of finite numbers" : "a finite number",
             spec->range ? limits : "");
    if (!spec->range) text[strlen(text) - 1] = '\0';
    break;
  case TRS_OPTION_BANDWIDTH:
    snprintf(text, n, "a bandwidth above 0 (3.35TB/s, 51GiB/s, 400Gbit/s; a plain number is bytes/ms)");
    break;
  case TRS_OPTION_ENUM:
    TrsChoicesSpread(spec->choices, limits, sizeof(limits));
    snprintf(text, n, "%s %s", is_list ? "a comma-separated list of" : "one of", limits);
    break;
  case TRS_OPTION_FILE: snprintf(text, n, "a file name"); break;
  case TRS_OPTION_FILES: snprintf(text, n, "a comma-separated list of file names"); break;
  default: snprintf(text, n, is_list ? "a comma-separated list of names" : "a text");
  }
}
