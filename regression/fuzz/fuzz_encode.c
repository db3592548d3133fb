/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: read the entries of a mapping, and encode rows with them. The input is a mapping
  and, after a 0 byte, the values of the rows. For any input, each call must succeed or give one
  DATA error, and encoded rows must be consistent. Encoding the same rows twice gives the same ids.
*/
#include "api/encode.h"
#include "fuzz_start.h"

#include <string.h>

enum { ROWS = 3, MOST_VALUES = 64 };

/* The bytes from which values are made. */
typedef struct {
  const uint8_t *at, *end;
} Bytes;

static uint8_t take_byte(Bytes *bytes)
{
  return bytes->at < bytes->end ? *bytes->at++ : 0;
}

/* Make a value. Its text points into memory of exactly its size, so reading further is found. */
static TrshardValue take_value(Bytes *bytes)
{
  TrshardValue value = {.kind = (TrshardValueKind)(take_byte(bytes) % 6)}; /* 5 is no kind */
  const size_t left = (size_t)(bytes->end - bytes->at);
  size_t n = sizeof(value.as.integer);

  if (value.kind == TRSHARD_TEXT) {
    char *text;

    n = take_byte(bytes) % 80; /* take_byte() in PetscMin() would be called twice */
    n = PetscMin(n, left ? left - 1 : 0);
    text = malloc(n ? n : 1);
    if (!text) abort();
    memcpy(text, bytes->at, n);
    value.n_bytes = (int64_t)n;
    value.as.text = text;
  } else if (left >= n) {
    memcpy(&value.as.integer, bytes->at, n);
  }
  bytes->at += PetscMin(n, (size_t)(bytes->end - bytes->at));
  return value;
}

/* Make a column: absent, one value for each row, or lists. */
static TrshardColumn take_column(Bytes *bytes, TrshardValue *values, int32_t *lengths)
{
  const uint8_t form = take_byte(bytes) % 4;
  int64_t n = form ? ROWS : 0;

  for (int row = 0; form == 3 && row < ROWS; row++) {
    lengths[row] = take_byte(bytes) % 5;
    n += lengths[row] - 1;
  }
  for (int64_t i = 0; i < n; i++) values[i] = take_value(bytes);
  return (TrshardColumn){
      .n_values = n, .values = form ? values : NULL, .lengths = form == 3 ? lengths : NULL};
}

static void check_rows(const TrsEncodeRules *rules, const TrshardEncoded *encoded)
{
  int64_t sum = 0;

  if (encoded->ids.batch != ROWS || encoded->num_dense != rules->entries.n_dense) abort();
  for (int i = 0; i < ROWS * rules->entries.n_sparse; i++) {
    if (encoded->ids.lengths[i] < 0) abort();
    sum += encoded->ids.lengths[i];
  }
  if (sum != encoded->ids.n_values || !encoded->ids.weights != !rules->weighted) abort();
}

static void encode(const TrsEncodeRules *rules, Bytes bytes)
{
  TrshardColumn *columns = calloc((size_t)rules->n_columns + 1, sizeof(*columns));
  TrshardValue *values = calloc((size_t)(rules->n_columns + 1) * MOST_VALUES, sizeof(*values));
  int32_t *lengths = calloc((size_t)(rules->n_columns + 1) * ROWS, sizeof(*lengths));
  TrshardEncoded *once = NULL, *again = NULL;

  if (!columns || !values || !lengths) abort();
  for (int i = 0; i < rules->n_columns; i++)
    columns[i] = take_column(&bytes, values + (size_t)i * MOST_VALUES, lengths + (size_t)i * ROWS);
  if (!data_or_success(TrsEncode(rules, ROWS, columns, &once))) {
    check_rows(rules, once);
    if (TrsEncode(rules, ROWS, columns, &again)) abort();
    if (once->ids.n_values != again->ids.n_values) abort();
    for (int64_t i = 0; i < once->ids.n_values; i++)
      if (once->ids.values[i] != again->ids.values[i]) abort();
  }
  TrsEncodedFree(&once);
  TrsEncodedFree(&again);
  for (int i = 0; i < rules->n_columns * MOST_VALUES; i++)
    if (values[i].kind == TRSHARD_TEXT) free((char *)(uintptr_t)values[i].as.text);
  free(columns);
  free(values);
  free(lengths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
  const size_t n = zero ? (size_t)(zero - data) : size;
  TrsEncodeRules rules = {.n_columns = 0};
  char *text = malloc(n + 1);

  if (!text) return 0;
  memcpy(text, data, n);
  text[n] = '\0';
  if (!data_or_success(
          TrsMappingEntriesRead(&(TrsMapping){"text", text}, 0, NULL, 0, NULL, &rules.entries)) &&
      !data_or_success(TrsEncodeRulesPrepare(&rules)))
    encode(&rules, (Bytes){data + n + (zero != NULL), data + size});
  if (TrsEncodeRulesFree(&rules)) abort();
  TrsErrorClear();
  free(text);
  return 0;
}
