/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/mapping_entries.h"

#include "spec/mapping_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/* An entry that is being read. */
typedef struct {
  const char *path, *list; /* of messages: the file, and "dense" or "sparse" */
  const char *name;
  const json_t *json;
} TrsReading;

int64_t TrsMappingHash(const char *word, size_t n_bytes)
{
  return (int64_t)XXH64(word, n_bytes, 0);
}

/* Refuse the value of a key. `expected` ends the message. */
static PetscErrorCode refuse(const TrsReading *r, const char *key, const char *expected)
{
  const json_t *value = json_object_get(r->json, key);
  char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  char shown[64];

  PetscFunctionBegin;
  snprintf(shown, sizeof(shown), "%s", all ? all : "not given");
  free(all);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_DATA, "%s: %s of \"%.100s\" in the mapping's \"%s\" is %s, expected %s",
          r->path, key, r->name, r->list, shown, expected);
}

/* Get the value of a key. It is NULL if the key is missing or null. */
static const json_t *value_of(const TrsReading *r, const char *key)
{
  const json_t *value = json_object_get(r->json, key);

  return json_is_null(value) ? NULL : value;
}

/* Read a text. *to is NULL if the key is missing or null. */
static PetscErrorCode read_text(const TrsReading *r, const char *key, char **to)
{
  const json_t *value = value_of(r, key);

  PetscFunctionBegin;
  *to = NULL;
  if (!value) PetscFunctionReturn(PETSC_SUCCESS);
  if (!json_is_string(value)) PetscCall(refuse(r, key, "text"));
  PetscCall(PetscStrallocpy(json_string_value(value), to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read an integer of at least `least`. *given is false if the key is missing or null. */
static PetscErrorCode read_integer(const TrsReading *r, const char *key, int64_t least, int64_t *to,
                                   PetscBool *given)
{
  const json_t *value = value_of(r, key);

  PetscFunctionBegin;
  if (given) *given = (PetscBool)(value != NULL);
  if (!value) PetscFunctionReturn(PETSC_SUCCESS);
  if (!json_is_integer(value) || json_integer_value(value) < least)
    PetscCall(refuse(r, key, least == INT64_MIN ? "an integer" : "an integer that is not negative"));
  *to = json_integer_value(value);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_bool(const TrsReading *r, const char *key, PetscBool *to)
{
  const json_t *value = value_of(r, key);

  PetscFunctionBegin;
  if (value && !json_is_boolean(value)) PetscCall(refuse(r, key, "true or false"));
  *to = (PetscBool)json_is_true(value);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the keys that dense and sparse entries have. */
static PetscErrorCode read_column(const TrsReading *r, TrsMappingEntry *entry)
{
  int64_t place = 0, width = 1;

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(r->name, &entry->name));
  PetscCall(read_text(r, "column", &entry->column));
  CHECK_DATA(entry->column, "%s: the mapping does not say how feature \"%.100s\" comes from a column",
             r->path, r->name);
  PetscCall(read_text(r, "unit", &entry->unit));
  PetscCall(read_integer(r, "width", 0, &width, NULL));
  PetscCall(read_integer(r, "place", 0, &place, NULL));
  if (width < 1 || width > INT32_MAX) PetscCall(refuse(r, "width", "a number of values, 1 or more"));
  if (place >= width) PetscCall(refuse(r, "place", "less than the width"));
  entry->place = (int)place;
  entry->width = (int)width;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_dense(const TrsReading *r, TrsMappingEntry *entry)
{
  const json_t *missing = value_of(r, "missing");
  const char *word = json_string_value(missing);

  PetscFunctionBegin;
  PetscCall(read_column(r, entry));
  PetscCall(read_bool(r, "log1p", &entry->log1p));
  if (missing && !json_is_number(missing) && !(word && strcmp(word, "refuse") == 0))
    PetscCall(refuse(r, "missing", "a number or \"refuse\""));
  entry->missing_given = (PetscBool)!word;
  entry->missing = missing ? json_number_value(missing) : 0.0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Hash a word that the mapping has as text, or as an object with its bytes in base 16. */
static PetscErrorCode hash_word(const TrsReading *r, const json_t *value, int64_t *key)
{
  const char *word = json_string_value(value), *hex = json_string_value(json_object_get(value, "hex"));
  const size_t n = hex ? strlen(hex) / 2 : 0;
  PetscBool good = (PetscBool)(hex && strlen(hex) % 2 == 0);
  char *bytes;

  PetscFunctionBegin;
  if (word) {
    *key = TrsMappingHash(word, strlen(word));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscMalloc1(n + 1, &bytes));
  for (size_t i = 0; good && i < n; i++) {
    const int high = TrsHexDigit(hex[2 * i]), low = TrsHexDigit(hex[2 * i + 1]);

    good = (PetscBool)(high >= 0 && low >= 0);
    bytes[i] = (char)(16 * high + low);
  }
  *key = TrsMappingHash(bytes, n);
  PetscCall(PetscFree(bytes));
  CHECK_DATA(good, "%s: the vocabulary of \"%.100s\" has a value that is neither text nor {\"hex\": ...}",
             r->path, r->name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_vocabulary(const TrsReading *r, TrsMappingEntry *entry)
{
  const json_t *list = value_of(r, "vocabulary");

  PetscFunctionBegin;
  if (!list) PetscFunctionReturn(PETSC_SUCCESS);
  CHECK_DATA(json_is_array(list), "%s: the mapping has no words of feature \"%.100s\", only a digest of them",
             r->path, r->name);
  entry->has_vocabulary = PETSC_TRUE;
  entry->n_keys = (int64_t)json_array_size(list);
  PetscCall(PetscMalloc1((size_t)entry->n_keys, &entry->keys));
  for (int64_t i = 0; i < entry->n_keys; i++) {
    const json_t *value = json_array_get(list, (size_t)i);

    if (entry->kind != TRS_COLUMN_INTEGER) {
      PetscCall(hash_word(r, value, &entry->keys[i]));
      continue;
    }
    CHECK_DATA(json_is_integer(value), "%s: the vocabulary of \"%.100s\" has a value that is not an integer",
               r->path, r->name);
    entry->keys[i] = json_integer_value(value);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_kind(const TrsReading *r, TrsMappingEntry *entry)
{
  static const char *const kinds[] = {"integer", "text", "any"}; /* in the order of TrsColumnKind */
  const json_t *value = value_of(r, "kind");
  const char *word = value ? json_string_value(value) : kinds[TRS_COLUMN_INTEGER];
  int kind = 0;

  PetscFunctionBegin;
  while (word && kind < 3 && strcmp(word, kinds[kind]) != 0) kind++;
  if (!word || kind == 3) PetscCall(refuse(r, "kind", "\"text\", \"integer\" or \"any\""));
  entry->kind = (TrsColumnKind)kind;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_sparse(const TrsReading *r, TrsMappingEntry *entry)
{
  const json_t *missing = value_of(r, "missing"), *separator = value_of(r, "separator");
  const char *word = json_string_value(missing),
             *between = separator ? json_string_value(separator) : "|"; /* the default */
  int64_t base = 10;

  PetscFunctionBegin;
  PetscCall(read_column(r, entry));
  PetscCall(read_kind(r, entry));
  PetscCall(read_integer(r, "base", 0, &base, NULL));
  if (base != 10 && base != 16) PetscCall(refuse(r, "base", "10 or 16"));
  entry->base = (int)base;
  PetscCall(read_bool(r, "bag", &entry->bag));
  if (!between || strlen(between) != 1) PetscCall(refuse(r, "separator", "one ASCII character"));
  entry->separator = between[0];
  PetscCall(read_integer(r, "rows", 0, &entry->rows, NULL));
  PetscCall(read_bool(r, "modulo", &entry->modulo));
  PetscCall(read_integer(r, "unknown", INT64_MIN, &entry->unknown, &entry->unknown_given));
  if (missing && !json_is_integer(missing) && !(word && strcmp(word, "empty") == 0))
    PetscCall(refuse(r, "missing", "an id or \"empty\""));
  entry->missing_given = (PetscBool)(missing && !word);
  entry->missing_id = json_integer_value(missing);
  PetscCall(read_text(r, "weights", &entry->weights));
  PetscCall(read_vocabulary(r, entry));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the entries with these names, or all if names is NULL. */
static PetscErrorCode read_list(const char *path, const json_t *root, const char *key, int n,
                                const char *const *names,
                                PetscErrorCode (*read)(const TrsReading *, TrsMappingEntry *), int *n_entries,
                                TrsMappingEntry **entries)
{
  const json_t *list = json_object_get(root, key);

  PetscFunctionBegin;
  if (!names) n = (int)json_array_size(list);
  PetscCall(PetscCalloc1((size_t)n, entries));
  *n_entries = n;
  for (int i = 0; i < n; i++) {
    const json_t *json = names ? TrsMappingFind(list, (size_t)i, names[i]) : json_array_get(list, (size_t)i);
    const TrsReading r = {path, key, json_string_value(json_object_get(json, "name")), json};

    CHECK_DATA(json, "%s: the mapping has no \"%s\" entry of feature \"%.100s\"", path, key, names[i]);
    PetscCall(read(&r, &(*entries)[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_nulls(const char *path, const json_t *root, TrsMappingEntries *entries)
{
  const json_t *list = json_object_get(root, "nulls");
  const int n = (int)json_array_size(list);

  PetscFunctionBegin;
  CHECK_DATA(!list || json_is_array(list), "%s: the mapping's \"nulls\" is not a list", path);
  PetscCall(PetscCalloc1((size_t)n, &entries->nulls));
  for (; entries->n_nulls < n; entries->n_nulls++) {
    const char *word = json_string_value(json_array_get(list, (size_t)entries->n_nulls));

    CHECK_DATA(word, "%s: the mapping's \"nulls\" has a value that is not text", path);
    PetscCall(PetscStrallocpy(word, &entries->nulls[entries->n_nulls]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_absent(const char *path, json_t *root, TrsMappingEntries *entries)
{
  json_t *object = json_object_get(root, "absent"), *value;
  const char *column;

  PetscFunctionBegin;
  CHECK_DATA(!object || json_is_object(object), "%s: the mapping's \"absent\" is not an object", path);
  PetscCall(PetscCalloc1(json_object_size(object), &entries->absent));
  json_object_foreach(object, column, value)
  {
    TrsMappingAbsent *absent = &entries->absent[entries->n_absent++];

    CHECK_DATA(json_is_string(value) || json_is_null(value),
               "%s: the mapping's \"absent\" has a value of \"%.100s\" that is neither text nor null", path,
               column);
    PetscCall(PetscStrallocpy(column, &absent->column));
    PetscCall(PetscStrallocpy(json_string_value(value), &absent->value));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_root(const char *path, json_t *root, int n_dense, const char *const *dense,
                                int n_sparse, const char *const *sparse, TrsMappingEntries *entries)
{
  PetscFunctionBegin;
  PetscCall(read_list(path, root, "dense", n_dense, dense, read_dense, &entries->n_dense, &entries->dense));
  PetscCall(
      read_list(path, root, "sparse", n_sparse, sparse, read_sparse, &entries->n_sparse, &entries->sparse));
  PetscCall(read_nulls(path, root, entries));
  PetscCall(read_absent(path, root, entries));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMappingEntriesRead(const TrsMapping *mapping, int n_dense, const char *const *dense,
                                     int n_sparse, const char *const *sparse, TrsMappingEntries *entries)
{
  PetscErrorCode ierr;
  json_t *root;

  PetscFunctionBegin;
  PetscCall(PetscMemzero(entries, sizeof(*entries)));
  PetscCall(TrsMappingParse(mapping, &root));
  ierr = read_root(mapping->path, root, n_dense, dense, n_sparse, sparse, entries);
  json_decref(root);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_list(int n, TrsMappingEntry **entries)
{
  PetscFunctionBegin;
  for (int i = 0; i < n; i++) {
    TrsMappingEntry *entry = &(*entries)[i];

    PetscCall(PetscFree(entry->name));
    PetscCall(PetscFree(entry->column));
    PetscCall(PetscFree(entry->unit));
    PetscCall(PetscFree(entry->weights));
    PetscCall(PetscFree(entry->keys));
  }
  PetscCall(PetscFree(*entries));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMappingEntriesFree(TrsMappingEntries *entries)
{
  PetscFunctionBegin;
  PetscCall(free_list(entries->n_dense, &entries->dense));
  PetscCall(free_list(entries->n_sparse, &entries->sparse));
  for (int i = 0; i < entries->n_nulls; i++) PetscCall(PetscFree(entries->nulls[i]));
  PetscCall(PetscFree(entries->nulls));
  for (int i = 0; i < entries->n_absent; i++) {
    PetscCall(PetscFree(entries->absent[i].column));
    PetscCall(PetscFree(entries->absent[i].value));
  }
  PetscCall(PetscFree(entries->absent));
  PetscFunctionReturn(PETSC_SUCCESS);
}
