/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Look up names of options in the tables. Names that are given or queried get an entry. Names that
  contain an object's name are split. For a misspelt name, the closest known name is found.
*/
#include "core/names.h"
#include "core/options/impl.h"
#include "core/options/option_petsc.h"
#include "core/print.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_MESSAGE = 1800, TRS_MAX_NAME = 512, TRS_MAX_SHOWN = 100 };

static unsigned bucket_of(const char *name)
{
  unsigned hash = 2166136261u; /* FNV-1a of the name in lower case */

  for (; *name; name++) hash = (hash ^ (unsigned)tolower((unsigned char)*name)) * 16777619u;
  return hash % TRS_OPTION_BUCKETS;
}

TrsOptionEntry *TrsOptionsFindEntry(TrsOptions options, const char *name)
{
  TrsOptionEntry *entry = options->bucket[bucket_of(name)];

  while (entry && strcasecmp(entry->name, name) != 0) entry = entry->next;
  return entry;
}

/*
  Find the longest key of a per-object group with which `tail` ends: "user_embedding_dim" gives
  embedding_dim. If `whole` is set, the key must be equal to `tail`. Returns NULL if there is none.
*/
static const TrsOptionSpec *key_in(const TrsOptionGroup *group, const char *tail, PetscBool whole)
{
  const TrsOptionSpec *best = NULL;
  size_t n_tail = strlen(tail), n_best = 0;

  for (int i = 0; i < group->n; i++) {
    const char *key = group->spec[i].name;
    size_t n = strlen(key);
    PetscBool fits = whole ? (PetscBool)(strcasecmp(tail, key) == 0)
                           : (PetscBool)(n_tail > n + 1 && tail[n_tail - n - 1] == '_' &&
                                         strcasecmp(tail + n_tail - n, key) == 0);

    if (fits && n > n_best) {
      best = &group->spec[i];
      n_best = n;
    }
  }
  return best;
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
  for (int g = 0; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];

    for (int i = 0; !group->object && i < group->n; i++) {
      if (strcasecmp(group->spec[i].name, name) == 0) return &group->spec[i];
    }
  }
  for (int g = 0; g < options->n_groups; g++) {
    const TrsOptionGroup *group = options->groups[g];
    PetscBool all = PETSC_FALSE;
    const char *tail = group->object ? object_tail(group->object, name, &all) : NULL;
    const TrsOptionSpec *spec = tail ? key_in(group, tail, all) : NULL;

    if (spec) return spec;
  }
  return NULL;
}

PetscErrorCode TrsOptionsGetEntry(TrsOptions options, const char *name, const TrsOptionSpec *spec,
                                  TrsOptionEntry **entry)
{
  unsigned bucket = bucket_of(name);

  PetscFunctionBegin;
  *entry = TrsOptionsFindEntry(options, name);
  if (!*entry) {
    PetscCall(PetscNew(entry));
    PetscCall(PetscStrallocpy(name, &(*entry)->name));
    (*entry)->spec = spec ? spec : find_spec(options, name);
    (*entry)->next = options->bucket[bucket];
    options->bucket[bucket] = *entry;
  }
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

PetscErrorCode TrsOptionsObjectName(TrsOptions options, const char *object, const char *instance,
                                    const char *key, const char **name)
{
  const TrsOptionGroup *group = object_group(options, object);
  const TrsOptionSpec *spec = group ? key_in(group, key, PETSC_TRUE) : NULL;
  TrsOptionEntry *own, *all;
  char *text;
  size_t n = strlen(object) + strlen(instance) + strlen(key) + 5;

  PetscFunctionBegin;
  PetscCheck(spec, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s option %s is in no table", object, key);
  PetscCall(PetscMalloc1(n, &text));
  snprintf(text, n, "-%s_%s_%s", object, instance, key);
  PetscCall(TrsOptionsGetEntry(options, text, spec, &own));
  /* without the tables' names, the name was split differently: into a shorter table name and a
     longer key */
  if (own->spec != spec) {
    own->spec = spec;
    if (own->parsed) PetscCall(TrsOptionValueFree(&own->value));
    own->parsed = PETSC_FALSE;
  }
  snprintf(text, n, "-%ss_%s", object, key);
  all = TrsOptionsFindEntry(options, text);
  *name = !own->given && all && (all->given || (all->model && !own->model)) ? all->name : own->name;
  PetscCall(PetscFree(text));
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
static PetscBool names_object(const TrsOptionGroup *group, const char *tail, int n, const char *const *sorted)
{
  size_t n_tail = strlen(tail);

  for (int i = 0; i < group->n; i++) {
    const char *key = group->spec[i].name;
    size_t n_key = strlen(key);
    TrsPiece name = {tail, n_tail - n_key - 1};

    if (n_tail <= n_key || tail[name.n] != '_' || strcasecmp(tail + name.n + 1, key) != 0) continue;
    if (bsearch(&name, sorted, (size_t)n, sizeof(*sorted), compare_with_name)) return PETSC_TRUE;
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
    const TrsOptionSpec *key = tail && !all ? key_in(group, tail, PETSC_FALSE) : NULL;
    char instance[TRS_MAX_NAME], what[TRS_MAX_MESSAGE];
    int closest;

    if (!key || names_object(group, tail, n, sorted)) continue;
    snprintf(instance, sizeof(instance), "%.*s", (int)(strlen(tail) - strlen(key->name) - 1), tail);
    closest = TrsNameClosest(instance, n, names);
    snprintf(what, sizeof(what), "there is no %s \"%.*s\"; the closest name is \"%.*s\"", object,
             TRS_MAX_SHOWN, instance, TRS_MAX_SHOWN, closest < 0 ? "" : names[closest]);
    PetscCall(TrsOptionsRefuse(options, given, what));
  }
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}
