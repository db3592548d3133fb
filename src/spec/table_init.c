/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_init.h"

#include "spec/table_keys.h"

#include <math.h>
#include <string.h>

#define INIT_FN(KIND, ...) TRS_INIT_FN_##KIND,
typedef enum { TRS_INIT_FNS(INIT_FN) } TrsInitFn;

#define NONLINEARITY(KIND, ...) TRS_AFTER_##KIND,
typedef enum { TRS_INIT_NONLINEARITIES(NONLINEARITY) } TrsNonlinearity;

static const char *const fn_names[] = {TRS_INIT_FNS(TRS_WORD_TEXT)};

/* Bit sets of the init functions that use a key. */
enum {
#define BIT(KIND) (1 << TRS_INIT_FN_##KIND)
  TRS_TAKEN_BY_UNIFORM = BIT(UNIFORM),
  TRS_TAKEN_BY_NORMAL = BIT(NORMAL),
  TRS_TAKEN_BY_XAVIER = BIT(XAVIER_UNIFORM) | BIT(XAVIER_NORMAL),
  TRS_TAKEN_BY_KAIMING = BIT(KAIMING_UNIFORM) | BIT(KAIMING_NORMAL),
  TRS_TAKEN_BY_CONSTANT = BIT(CONSTANT),
  TRS_TAKEN_BY_ALL = ~0
};

static const struct {
  const char *key;
  unsigned fns;
} keys[] = {
#define KEY(word, type, fallback, range, choices, functions, help) \
  {#word, (unsigned)TRS_TAKEN_BY_##functions},
    TRS_INIT_KEYS(KEY)};
enum { TRS_N_INIT_KEYS = sizeof(keys) / sizeof(keys[0]) };

/*
  Reject keys that were given for this table but that its init function does not use. Add the keys
  that the function uses to *used.
*/
static PetscErrorCode check_keys(TrsOptions options, const TrsTableConfig *table, TrsInitFn fn,
                                 unsigned *used)
{
  PetscFunctionBegin;
  for (int i = 0; i < TRS_N_INIT_KEYS; i++) {
    const char *name, *source;
    PetscBool own;

    if ((keys[i].fns >> fn) & 1u) {
      *used |= 1u << i;
      continue;
    }
    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), keys[i].key, &name));
    PetscCall(TrsOptionsSource(options, name, &source));
    PetscCall(TrsTableKeyIsOwn(options, table, keys[i].key, &own));
    if (own && strcmp(source, "default") != 0)
      FAIL(keys[i].key, "table \"%s\" has init_fn %s, which takes no %s", table->name, fn_names[fn],
           keys[i].key);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_uniform(TrsOptions options, TrsTableConfig *table)
{
  const double limit = 1.0 / sqrt((double)table->num_embeddings);
  double low = -limit, high = limit;

  PetscFunctionBegin;
  GET(Real, "init_min", &low, NULL);
  GET(Real, "init_max", &high, NULL);
  if (low > high)
    FAIL("init_min", "init_min %g of table \"%s\" exceeds its init_max %g", low, table->name, high);
  table->init = (TrsRandomLaw){.kind = TRS_LAW_UNIFORM, .low = (float)low, .high = (float)high};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A distribution with mean 0 and the given standard deviation. */
static TrsRandomLaw law_of(double std, PetscBool is_normal)
{
  const float bound = (float)(sqrt(3.0) * std);

  return is_normal ? (TrsRandomLaw){.kind = TRS_LAW_NORMAL, .std = (float)std}
                   : (TrsRandomLaw){.kind = TRS_LAW_UNIFORM, .low = -bound, .high = bound};
}

static PetscErrorCode read_xavier(TrsOptions options, TrsTableConfig *table, PetscBool is_normal)
{
  double gain = 1.0;

  PetscFunctionBegin;
  GET(Real, "init_gain", &gain, NULL);
  table->init = law_of(gain * sqrt(2.0 / ((double)table->num_embeddings + table->embedding_dim)), is_normal);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_kaiming(TrsOptions options, TrsTableConfig *table, PetscBool is_normal)
{
#define GAIN(KIND, word, gain) gain,
  static const double gains[] = {TRS_INIT_NONLINEARITIES(GAIN)};
  double a = 0.0, gain;
  int after, fan_out;
  PetscBool has_slope;

  PetscFunctionBegin;
  GET(Real, "init_a", &a, &has_slope);
  GET(Enum, "init_mode", &fan_out, NULL);
  GET(Enum, "init_nonlinearity", &after, NULL);
  gain = after == TRS_AFTER_LEAKY_RELU ? sqrt(2.0 / (1.0 + a * a)) : gains[after];
  if (has_slope && after != TRS_AFTER_LEAKY_RELU)
    FAIL("init_a", "table \"%s\": init_a is the slope of init_nonlinearity leaky_relu", table->name);
  table->init = law_of(gain / sqrt((double)(fan_out ? table->num_embeddings : table->embedding_dim)),
                       is_normal);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableInitRead(TrsOptions options, TrsTableConfig *table, unsigned *used)
{
  double mean = 0.0, std = 1.0, value = 0.0;
  PetscBool set;
  int fn;

  PetscFunctionBegin;
  GET(Enum, "init_fn", &fn, NULL);
  PetscCall(check_keys(options, table, (TrsInitFn)fn, used));
  switch ((TrsInitFn)fn) {
  case TRS_INIT_FN_UNIFORM: PetscCall(read_uniform(options, table)); break;
  case TRS_INIT_FN_NORMAL:
    GET(Real, "init_mean", &mean, NULL);
    GET(Real, "init_std", &std, NULL);
    table->init = (TrsRandomLaw){.kind = TRS_LAW_NORMAL, .mean = (float)mean, .std = (float)std};
    break;
  case TRS_INIT_FN_XAVIER_UNIFORM: PetscCall(read_xavier(options, table, PETSC_FALSE)); break;
  case TRS_INIT_FN_XAVIER_NORMAL: PetscCall(read_xavier(options, table, PETSC_TRUE)); break;
  case TRS_INIT_FN_KAIMING_UNIFORM: PetscCall(read_kaiming(options, table, PETSC_FALSE)); break;
  case TRS_INIT_FN_KAIMING_NORMAL: PetscCall(read_kaiming(options, table, PETSC_TRUE)); break;
  case TRS_INIT_FN_CONSTANT:
    GET(Real, "init_value", &value, &set);
    if (!set) FAIL("init_value", "table \"%s\" has init_fn constant: give the value", table->name);
    table->init = (TrsRandomLaw){.kind = TRS_LAW_UNIFORM, .low = (float)value, .high = (float)value};
    break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableInitCheckUsed(TrsOptions options, unsigned used)
{
  PetscFunctionBegin;
  for (int i = 0; i < TRS_N_INIT_KEYS; i++) {
    const char *source;
    char name[64];

    PetscCall(PetscSNPrintf(name, sizeof(name), "-tables_%s", keys[i].key));
    PetscCall(TrsOptionsSource(options, name, &source));
    if (strcmp(source, "default") != 0 && !((used >> i) & 1u))
      PetscCall(TrsOptionError(options, name, "no table has an init_fn that takes %s (-tables_init_fn)",
                               keys[i].key));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
