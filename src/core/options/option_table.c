/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Look up names of options in the tables. Names that are given or queried get an entry. Names that
  contain an object's name are split. For a misspelt name, the closest known name is found.
*/
#include "core/names.h"
#include "core/options/impl.h"
#include "core/options/option_petsc.h"
#include "core/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_MESSAGE = 1800, TRS_MAX_NAME = 512, TRS_MAX_SHOWN = 100 };

enum { TRS_FIRST_BUCKETS = 1 << 10 };

static TrsOptionEntry *find_hashed(TrsOptions options, const char *name, unsigned hash)
{
  TrsOptionEntry *entry = options->n_buckets ? options->bucket[hash & (unsigned)(options->n_buckets - 1)]
                                             : NULL;

  while (entry && (entry->hash != hash || strcasecmp(entry->name, name) != 0)) entry = entry->next;
  return entry;
}

/*
  Find the blank that has this name. The names' addresses are compared, because only the caller of
  TrsOptionsObjectName() can know which key the name was made of. In most calls it is the latest
  blank.
*/
static TrsOptionEntry *find_blank(TrsOptions options, const char *name)
{
  if (options->blank && options->blank->name == name) return options->blank;
  for (int i = 0; options->blank && i < options->index.capacity; i++) {
    TrsOptionEntry *blank = options->index.slot[i].blank;

    if (blank && blank->name == name) return blank;
  }
  return NULL;
}

TrsOptionEntry *TrsOptionsFindEntry(TrsOptions options, const char *name)
{
  TrsOptionEntry *entry;

  if (options->blank && options->blank->name == name) return options->blank;
  entry = find_hashed(options, name, TrsOptionHash(name));
  return entry ? entry : find_blank(options, name);
}

static const TrsOptionSpec *spec_in(TrsOptions options, const TrsOptionGroup *group, const char *name)
{
  const TrsIndexedOption *found = TrsOptionIndexFind(&options->index, group, name);

  return found ? found->spec : NULL;
}

/*
  Find the longest key of a per-object group with which `tail` ends: "user_embedding_dim" gives
  embedding_dim. If `whole` is set, the key must be equal to `tail`. Returns NULL if there is none.
*/
static const TrsOptionSpec *key_in(TrsOptions options, const TrsOptionGroup *group, const char *tail,
                                   PetscBool whole)
{
  const TrsOptionSpec *spec = NULL;

  if (whole) return spec_in(options, group, tail);
  /* an object's name is not empty, so the key begins behind a later '_' */
  for (const char *cut = tail[0] ? strchr(tail + 1, '_') : NULL; cut && !spec; cut = strchr(cut + 1, '_'))
    spec = spec_in(options, group, cut + 1);
  return spec;
}

/*
  Return the part of `name` after "-table_" (and set *all to false) or after "-tables_" (and set
  *all to true). Returns NULL if the name begins differently.
*/
static const char *object_tail(const char *object, const char *name, PetscBool *all)
{
  size_t n = strlen(object);

  if (strncasecmp(name + 1, object, n) != 0) return NULL;
  name += n + 1;
  *all = (PetscBool)(*name == 's' || *name == 'S');
  if (*all) name++;
  return *name == '_' ? name + 1 : NULL;
}

/*
  Find the table row for an option name, which may contain an object's name. Returns NULL if the
  name is unknown.
*/
static const TrsOptionSpec *find_spec(TrsOptions options, const char *name)
{
  const TrsOptionSpec *spec = spec_in(options, NULL, name);

  for (int g = 0; g < options->n_groups && !spec; g++) {
    const TrsOptionGroup *group = options->groups[g];
    PetscBool all = PETSC_FALSE;
    const char *tail = group->object ? object_tail(group->object, name, &all) : NULL;

    spec = tail ? key_in(options, group, tail, all) : NULL;
  }
  return spec;
}

/* Make more buckets, so that there are at least as many as entries. */
static PetscErrorCode add_buckets(TrsOptions options)
{
  const int n = options->n_buckets ? 4 * options->n_buckets : TRS_FIRST_BUCKETS;
  TrsOptionEntry **bucket;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(n, &bucket));
  for (int b = 0; b < options->n_buckets; b++) {
    for (TrsOptionEntry *entry = options->bucket[b], *next; entry; entry = next) {
      TrsOptionEntry **first = &bucket[entry->hash & (unsigned)(n - 1)];

      next = entry->next;
      entry->next = *first;
      *first = entry;
    }
  }
  PetscCall(PetscFree(options->bucket));
  options->bucket = bucket;
  options->n_buckets = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsGetEntry(TrsOptions options, const char *name, const TrsOptionSpec *spec,
                                  TrsOptionEntry **entry)
{
  const unsigned hash = TrsOptionHash(name);
  const TrsOptionEntry *blank;
  TrsOptionEntry **bucket;

  PetscFunctionBegin;
  *entry = find_hashed(options, name, hash);
  if (*entry) PetscFunctionReturn(PETSC_SUCCESS);
  if (options->n_entries == options->n_buckets) PetscCall(add_buckets(options));
  blank = find_blank(options, name);
  if (!spec) spec = blank ? blank->spec : find_spec(options, name);
  bucket = &options->bucket[hash & (unsigned)(options->n_buckets - 1)];
  PetscCall(PetscNew(entry));
  PetscCall(PetscStrallocpy(name, &(*entry)->name));
  (*entry)->spec = spec;
  (*entry)->hash = hash;
  (*entry)->next = *bucket;
  *bucket = *entry;
  options->n_entries++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  char name[TRS_MAX_NAME];
  int distance; /* -1 before the first candidate */
} TrsClosestName;

static void consider(TrsClosestName *best, const char *wanted, const char *name)
{
  int distance = TrsNameDistance(wanted, name);

  if (best->distance >= 0 && distance >= best->distance) return;
  best->distance = distance;
  snprintf(best->name, sizeof(best->name), "%s", name);
}

/*
  Check whether [name, name + n) is one of the objects that -<object>s lists. If the option lists
  none, returns PETSC_TRUE, because then only the dataset lists the objects.
*/
static PetscBool may_be_object(TrsOptions options, const char *object, const char *name, int n)
{
  char list[64];
  const TrsOptionEntry *entry;
  const char *at, *end;

  snprintf(list, sizeof(list), "-%ss", object);
  entry = TrsOptionsFindEntry(options, list);
  if (!entry || !TrsOptionCounted(entry) || !TrsOptionCounted(entry)->value) return PETSC_TRUE;
  for (at = TrsOptionCounted(entry)->value; *at; at = end + (*end == ',')) {
    end = at + strcspn(at, ",");
    if (end - at == n && strncasecmp(at, name, (size_t)n) == 0) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/*
  Consider the keys that a name such as "-table_user_poling" may mean. The object's name may end at
  any '_'. The name contains an object only if the rest is a slightly misspelt key:
  "-table_init_scale" does not show that there is a table "init".
*/
static void consider_object(TrsOptions options, const TrsOptionGroup *group, const char *wanted,
                            const char *tail, const char *key, TrsClosestName *best)
{
  char name[TRS_MAX_NAME];

  for (const char *cut = strchr(tail, '_'); cut; cut = strchr(cut + 1, '_')) {
    const int n = (int)PetscMin(cut + 1 - wanted, 256);

    if (TrsNameDistance(cut + 1, key) > PetscMax(1, (int)strlen(key) / 3) ||
        !may_be_object(options, group->object, tail, (int)(cut - tail)))
      continue;
    snprintf(name, sizeof(name), "%.*s%s", n, wanted, key);
    consider(best, wanted, name);
  }
}

void TrsOptionsClosest(TrsOptions options, const char *wanted, char *text, size_t n)
{
  const TrsOptionGuess *guess = TrsOptionGuessOf(wanted);
  TrsClosestName best = {"", -1};
  char name[TRS_MAX_NAME];

  if (guess && (find_spec(options, guess->option) || TrsOptionPetscKindOf(guess->option))) {
    snprintf(text, n, "%s%s%s", guess->option, guess->more[0] && guess->more[0] != ';' ? ", " : "",
             guess->more);
    return;
  }

  for (int g = 0; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];
    PetscBool all = PETSC_FALSE;
    const char *tail = group->object ? object_tail(group->object, wanted, &all) : NULL;

    for (int i = 0; i < group->n; i++) {
      if (!group->object) consider(&best, wanted, group->spec[i].name);
      if (!group->object) continue;
      snprintf(name, sizeof(name), "-%ss_%s", group->object, group->spec[i].name);
      consider(&best, wanted, name);
      if (tail && !all) consider_object(options, group, wanted, tail, group->spec[i].name, &best);
    }
  }
  for (int i = 0; TrsOptionPetscName(i); i++) consider(&best, wanted, TrsOptionPetscName(i));
  snprintf(text, n, "%s", best.name);
}

PetscErrorCode TrsOptionsRefuse(TrsOptions options, const TrsGivenOption *given, const char *what)
{
  PetscFunctionBegin;
  PetscCheck(options->allow_unused, PETSC_COMM_SELF, TRS_ERR_OPTION, "%.*s (%s): %s", TRS_MAX_SHOWN,
             given->name, given->source, what);
  if (options->rank == 0)
    TrsPrint(stderr, "trshard: warning: %.*s (%s): %s\n", TRS_MAX_SHOWN, given->name, given->source, what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsOptionGroup *object_group(TrsOptions options, const char *object)
{
  for (int g = 0; g < options->n_groups; g++) {
    if (options->groups[g]->object && strcmp(options->groups[g]->object, object) == 0)
      return options->groups[g];
  }
  return NULL;
}

/* Append a word to a text, without its final 0. Returns the end. */
static char *append(char *end, const char *word, size_t n)
{
  memcpy(end, word, n);
  return end + n;
}

/* Give a key's blank the name of an object's option. Creates the blank if it does not exist yet. */
static PetscErrorCode name_blank(TrsIndexedOption *found, const char *instance)
{
  const char *object = found->group->object, *key = found->spec->name;
  const size_t n_object = strlen(object), n_instance = strlen(instance), n_key = strlen(key),
               n = n_object + n_instance + n_key + 4;
  char *end;

  PetscFunctionBegin;
  if (!found->blank) {
    PetscCall(PetscNew(&found->blank));
    found->blank->spec = found->spec;
  }
  if (found->blank_room < n) {
    PetscCall(PetscFree(found->blank->name));
    PetscCall(PetscMalloc1(2 * n, &found->blank->name));
    found->blank_room = 2 * n;
  }
  end = append(found->blank->name, "-", 1);
  end = append(end, object, n_object);
  end = append(end, "_", 1);
  end = append(end, instance, n_instance);
  end = append(end, "_", 1);
  end = append(end, key, n_key);
  *end = '\0';
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsObjectName(TrsOptions options, const char *object, const char *instance,
                                    const char *key, const char **name)
{
  const TrsOptionGroup *group = object_group(options, object);
  TrsIndexedOption *found = group ? TrsOptionIndexFind(&options->index, group, key) : NULL;
  TrsOptionEntry *own;
  const TrsOptionEntry *all;

  PetscFunctionBegin;
  PetscCheck(found, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s option %s is in no table", object, key);
  PetscCall(name_blank(found, instance));
  own = find_hashed(options, found->blank->name, TrsOptionHash(found->blank->name));
  /* without the tables' names, the name was split differently: into a shorter table name and a
     longer key */
  if (own && own->spec != found->spec) {
    own->spec = found->spec;
    if (own->parsed) PetscCall(TrsOptionValueFree(&own->value));
    own->parsed = PETSC_FALSE;
  }
  if (!own) own = options->blank = found->blank;
  all = find_hashed(options, found->name_for_all, found->hash_for_all);
  *name = !own->given && all && (all->given || (all->model && !own->model)) ? all->name : own->name;
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  const char *text;
  size_t n;
} TrsPiece;

static int compare_names(const void *a, const void *b)
{
  return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_with_name(const void *key, const void *name)
{
  const TrsPiece *piece = key;
  const char *other = *(const char *const *)name;
  int order = strncasecmp(piece->text, other, piece->n);

  return order ? order : (other[piece->n] ? -1 : 0);
}

/* Check whether `tail` consists of the name of an object, '_' and a key. */
static PetscBool names_object(TrsOptions options, const TrsOptionGroup *group, const char *tail, int n,
                              const char *const *sorted)
{
  for (const char *cut = strchr(tail, '_'); cut; cut = strchr(cut + 1, '_')) {
    const TrsPiece name = {tail, (size_t)(cut - tail)};

    if (spec_in(options, group, cut + 1) &&
        bsearch(&name, sorted, (size_t)n, sizeof(*sorted), compare_with_name))
      return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

PetscErrorCode TrsOptionsCheckObjects(TrsOptions options, const char *object, int n, const char *const *names)
{
  const TrsOptionGroup *group = object_group(options, object);
  const char **sorted;

  PetscFunctionBegin;
  PetscCheck(group, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "there are no options for each %s", object);
  /* never empty, because it is sorted and searched even if n is 0 */
  PetscCall(PetscMalloc1(n + 1, &sorted));
  for (int i = 0; i < n; i++) sorted[i] = names[i];
  qsort(sorted, (size_t)n, sizeof(*sorted), compare_names);
  for (int i = 0; i < options->given.n; i++) {
    const TrsGivenOption *given = &options->given.option[i];
    PetscBool all = PETSC_FALSE;
    const char *tail = object_tail(object, given->name, &all);
    const TrsOptionSpec *key = tail && !all ? key_in(options, group, tail, PETSC_FALSE) : NULL;
    char instance[TRS_MAX_NAME], what[TRS_MAX_MESSAGE];
    int closest;

    if (!key || names_object(options, group, tail, n, sorted)) continue;
    snprintf(instance, sizeof(instance), "%.*s", (int)(strlen(tail) - strlen(key->name) - 1), tail);
    closest = TrsNameClosest(instance, n, names);
    snprintf(what, sizeof(what), "there is no %s \"%.*s\"; the closest name is \"%.*s\"", object,
             TRS_MAX_SHOWN, instance, TRS_MAX_SHOWN, closest < 0 ? "" : names[closest]);
    PetscCall(TrsOptionsRefuse(options, given, what));
  }
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}
