/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/mapping.h"

#include "spec/mapping_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char format[] = "trshard-mapping";
enum { TRS_MAPPING_VERSION = 1, TRS_SHOWN = 64 };

#define CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/*
  The keys of an entry that affect values or ids. Only `kind`, `rows` and `vocabulary` need special
  rules (entries_differ()).
*/
static const char *const dense_keys[] = {"name", "unit", "log1p", "missing", NULL};
static const char *const sparse_keys[] = {"kind",    "unit", "modulo",     "unknown",
                                          "missing", "rows", "vocabulary", NULL};
static const char *const single_keys[] = {"kind", "unit", NULL};

/* --- reading --- */

/* Check that the entries of a list have different names. `seen` collects the names. */
static PetscErrorCode check_names(const char *path, const char *key, const json_t *list, json_t *seen)
{
  PetscFunctionBegin;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_object_get(json_array_get(list, i), "name"));

    CHECK_DATA(name, "%s: entry %zu of the mapping's \"%s\" has no name", path, i, key);
    CHECK_DATA(!json_object_get(seen, name), "%s: the mapping's \"%s\" has \"%.100s\" twice", path, key,
               name);
    (void)json_object_set_new(seen, name, json_true());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that root[key] is a list of entries. The key may be missing. */
static PetscErrorCode check_entries(const char *path, const json_t *root, const char *key)
{
  const json_t *list = json_object_get(root, key);
  PetscErrorCode ierr;
  json_t *seen;

  PetscFunctionBegin;
  CHECK_DATA(!list || json_is_array(list), "%s: the mapping's \"%s\" is not a list", path, key);
  seen = json_object();
  ierr = check_names(path, key, list, seen);
  json_decref(seen);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_root(const char *path, const json_t *root)
{
  const char *found = json_string_value(json_object_get(root, "format"));
  const json_t *version = json_object_get(root, "version");

  PetscFunctionBegin;
  CHECK_DATA(found && strcmp(found, format) == 0, "%s: the attribute mapping has no format \"%s\"", path,
             format);
  CHECK_DATA(json_is_integer(version), "%s: the mapping has no version", path);
  CHECK_DATA(json_integer_value(version) == TRS_MAPPING_VERSION,
             "%s: the mapping has version %lld, this program reads version %d", path,
             (long long)json_integer_value(version), TRS_MAPPING_VERSION);
  PetscCall(check_entries(path, root, "dense"));
  PetscCall(check_entries(path, root, "sparse"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMappingParse(const TrsMapping *mapping, json_t **root)
{
  PetscErrorCode ierr;
  json_error_t error;

  PetscFunctionBegin;
  CHECK_DATA(strlen(mapping->text) <= (size_t)TRS_MAPPING_MOST_BYTES,
             "%s: the attribute mapping has more than %" PRId64 " bytes", mapping->path,
             TRS_MAPPING_MOST_BYTES);
  *root = json_loads(mapping->text, 0, &error);
  CHECK_DATA(*root, "%s: the attribute mapping is not JSON: %s (line %d, column %d)", mapping->path,
             error.text, error.line, error.column);
  ierr = check_root(mapping->path, *root);
  if (ierr) {
    json_decref(*root);
    *root = NULL;
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMappingCheck(const TrsMapping *mapping, int num_dense)
{
  size_t n;
  json_t *root;

  PetscFunctionBegin;
  if (!mapping->text) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMappingParse(mapping, &root));
  n = json_array_size(json_object_get(root, "dense"));
  json_decref(root);
  CHECK_DATA(num_dense < 0 || n == (size_t)num_dense,
             "%s: the mapping has %zu dense features, /dense has %d columns", mapping->path, n, num_dense);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- comparing --- */

/* The text of the first difference, and the place in the mappings that is compared now. */
typedef struct {
  char where[TRS_SHOWN + 32];
  char *text; /* [TRS_MAPPING_TEXT] */
} TrsComparison;

/* Write a value as JSON into text [n], cut to its size. */
static void show(const json_t *value, char *text, size_t n)
{
  char *all = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

  snprintf(text, n, "%s", all ? all : "not given");
  free(all);
}

/* Write the difference. Returns true, as do the functions below if they find a difference. */
static PetscBool tell(const TrsComparison *c, const char *what, const json_t *x, const json_t *y)
{
  char a[TRS_SHOWN], b[TRS_SHOWN];

  show(x, a, sizeof(a));
  show(y, b, sizeof(b));
  snprintf(c->text, TRS_MAPPING_TEXT, "%s%s is %s and %s", c->where, what, a, b);
  return PETSC_TRUE;
}

/* A missing key means the same as null and as false. 0 and 0.0 are the same number. */
static int equal(const json_t *x, const json_t *y)
{
  const int no_x = !x || json_is_null(x) || json_is_false(x),
            no_y = !y || json_is_null(y) || json_is_false(y);

  if (no_x || no_y) return no_x && no_y;
  if (json_is_number(x) && json_is_number(y)) return json_number_value(x) == json_number_value(y);
  return json_equal(x, y);
}

/* True if ids depend on the number of rows. If not, the number is only the upper bound of ids. */
static int needs_rows(const json_t *entry)
{
  return json_is_true(json_object_get(entry, "modulo")) || json_is_integer(json_object_get(entry, "unknown"));
}

/* Find the first word that differs in two vocabularies. */
static PetscBool words_differ(const TrsComparison *c, const json_t *x, const json_t *y)
{
  const size_t n = PetscMin(json_array_size(x), json_array_size(y));
  size_t i = 0;
  char what[64];

  if (!json_is_array(x) || !json_is_array(y)) return tell(c, "vocabulary", x, y);
  while (i < n && json_equal(json_array_get(x, i), json_array_get(y, i))) i++;
  snprintf(what, sizeof(what), "word %zu of the vocabulary", i);
  return tell(c, what, json_array_get(x, i), json_array_get(y, i));
}

/* True if this is the kind of a column that had no value, which fits text and integers. */
static PetscBool is_any(const json_t *kind)
{
  return (PetscBool)(json_is_string(kind) && strcmp(json_string_value(kind), "any") == 0);
}

static PetscBool entries_differ(const TrsComparison *c, const char *const *keys, const json_t *x,
                                const json_t *y)
{
  for (; *keys; keys++) {
    const json_t *p = json_object_get(x, *keys), *q = json_object_get(y, *keys);

    if (equal(p, q)) continue;
    if (strcmp(*keys, "rows") == 0 && !needs_rows(x) && !needs_rows(y)) continue;
    if (strcmp(*keys, "kind") == 0 && (is_any(p) || is_any(q))) continue;
    return strcmp(*keys, "vocabulary") == 0 ? words_differ(c, p, q) : tell(c, *keys, p, q);
  }
  return PETSC_FALSE;
}

static PetscBool dense_differ(TrsComparison *c, const json_t *x, const json_t *y, const TrsMappingUse *use)
{
  for (int d = 0; d < use->n_dense; d++) {
    const size_t at = (size_t)(use->dense ? use->dense[d] : d);

    snprintf(c->where, sizeof(c->where), "dense feature %zu: ", at);
    if (entries_differ(c, dense_keys, json_array_get(x, at), json_array_get(y, at))) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

const json_t *TrsMappingFind(const json_t *list, size_t at, const char *name)
{
  const size_t n = json_array_size(list);

  for (size_t i = 0; i < n; i++) {
    const json_t *entry = json_array_get(list, (at + i) % n);

    if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0) return entry;
  }
  return NULL;
}

static PetscBool is_used(const TrsMappingUse *use, const char *name)
{
  for (int t = 0; use->tables && t < use->tables->n; t++)
    for (int f = 0; f < use->tables->table[t].n_features; f++)
      if (strcmp(use->tables->table[t].features[f], name) == 0) return PETSC_TRUE;
  return (PetscBool)!use->tables;
}

static PetscBool sparse_differ(TrsComparison *c, const json_t *x, const json_t *y, const TrsMappingUse *use)
{
  for (size_t f = 0; f < json_array_size(x); f++) {
    const json_t *entry = json_array_get(x, f);
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *other = is_used(use, name) ? TrsMappingFind(y, f, name) : NULL;

    snprintf(c->where, sizeof(c->where), "feature \"%.64s\": ", name);
    if (other && entries_differ(c, sparse_keys, entry, other)) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

static PetscBool singles_differ(TrsComparison *c, const json_t *x, const json_t *y)
{
  static const char *const single[] = {"group", "time"};

  for (int i = 0; i < 2; i++) {
    const json_t *p = json_object_get(x, single[i]), *q = json_object_get(y, single[i]);

    snprintf(c->where, sizeof(c->where), "%s: ", single[i]);
    if (p && q && entries_differ(c, single_keys, p, q)) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

PetscErrorCode TrsMappingDifference(const TrsMapping *a, const TrsMapping *b, const TrsMappingUse *use,
                                    char text[TRS_MAPPING_TEXT])
{
  TrsComparison c = {.text = text};
  json_t *x, *y = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  text[0] = '\0';
  if (!a->text || !b->text || strcmp(a->text, b->text) == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMappingParse(a, &x));
  ierr = TrsMappingParse(b, &y);
  if (ierr == PETSC_SUCCESS &&
      !dense_differ(&c, json_object_get(x, "dense"), json_object_get(y, "dense"), use) &&
      !sparse_differ(&c, json_object_get(x, "sparse"), json_object_get(y, "sparse"), use))
    (void)singles_differ(&c, x, y);
  json_decref(y);
  json_decref(x);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMappingCompare(const TrsMapping *a, const TrsMapping *b, const TrsMappingUse *use)
{
  char text[TRS_MAPPING_TEXT];

  PetscFunctionBegin;
  PetscCall(TrsMappingDifference(a, b, use, text));
  CHECK_DATA(
      !text[0],
      "%s and %s were converted in different ways, so the same id or value has different meanings: %s. "
      "Convert both in the same way (if a vocabulary differs, with --vocabulary-from)",
      a->path, b->path, text);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- names --- */

static PetscErrorCode copy_names(const char *path, const json_t *list, int n, const int *dense, char ***names)
{
  size_t bytes = 0;
  char *to;

  PetscFunctionBegin;
  for (int d = 0; d < n; d++) {
    const size_t at = (size_t)(dense ? dense[d] : d);

    CHECK_DATA(at < json_array_size(list), "%s: the mapping has no dense feature %zu", path, at);
    bytes += strlen(json_string_value(json_object_get(json_array_get(list, at), "name"))) + 1;
  }
  PetscCall(PetscMalloc((size_t)n * sizeof(char *) + bytes + 1, names));
  to = (char *)(*names + n);
  for (int d = 0; d < n; d++) {
    const size_t at = (size_t)(dense ? dense[d] : d);
    const char *name = json_string_value(json_object_get(json_array_get(list, at), "name"));

    (*names)[d] = to;
    memcpy(to, name, strlen(name) + 1);
    to += strlen(name) + 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMappingDenseNames(const TrsMapping *mapping, int n, const int *dense, char ***names)
{
  PetscErrorCode ierr;
  json_t *root;

  PetscFunctionBegin;
  *names = NULL;
  if (!mapping->text) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMappingParse(mapping, &root));
  ierr = copy_names(mapping->path, json_object_get(root, "dense"), n, dense, names);
  json_decref(root);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
