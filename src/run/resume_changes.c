/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/resume_changes.h"

#include "core/names.h"
#include "run/checkpoint_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_LINES = 20, TRS_VALUE_TEXT = 400 };

/*
  Options that decide where, how fast and with which outputs a run learns, but not what. A name that
  ends in "_" stands for all that begin so. Another -batch_size is told of elsewhere.
*/
static const char *const placed[] = {"-task",
                                     "-output",
                                     "-output_every",
                                     "-existing_outputs",
                                     "-report_interval",
                                     "-watchdog_seconds",
                                     "-error_traceback",
                                     "-allow_unused_options",
                                     "-device",
                                     "-cpu_",
                                     "-gpu_",
                                     "-data_eval",
                                     "-data_check",
                                     "-data_read_ahead",
                                     "-reader_threads",
                                     "-batch_size",
                                     "-steps",
                                     "-epochs",
                                     "-pipeline",
                                     "-dense_bucket_bytes",
                                     "-dense_graphs",
                                     "-dense_product_algorithms",
                                     "-ec_index_dedup",
                                     "-ebc_",
                                     "-metrics_",
                                     "-trace",
                                     "-trace_",
                                     "-eval_",
                                     "-early_stopping_",
                                     "-init_from",
                                     "-init_from_",
                                     "-resume",
                                     "-checkpoint_",
                                     "-quant_",
                                     "-predict_",
                                     "-comm_",
                                     "-plan_",
                                     "-topology_",
                                     "-bench_"};
static const char *const placed_keys[] =
    {/* of a table: how a name ends */
     "_sharding_types",    "_compute_kernels", "_min_partition", "_pooling_factors",       "_num_poolings",
     "_batch_sizes",       "_enforce_hbm",     "_device_group",  "_cache_load_factor",     "_cache_algorithm",
     "_prefetch_pipeline", "_num_passes",      "_cacheability",  "_cache_reserved_memory", "_cache_precision",
     "_expected_lookups",  "_mrc_hist"};

/* An option in a configuration's text: "-name value # source", or "# -name value" for a default. */
typedef struct {
  const char *name, *value;
  int n_name, n_value;
  PetscBool is_default;
} TrsOptionLine;

/* Parse the option of a line. Returns false if the line has none. */
static PetscBool parse_line(const char *line, TrsOptionLine *option)
{
  const char *end = line + strcspn(line, "\n");

  option->is_default = (PetscBool)(strncmp(line, "# -", 3) == 0);
  if (option->is_default) line += 2;
  if (*line != '-') return PETSC_FALSE;
  option->name = line;
  option->n_name = (int)strcspn(line, " \n");
  option->value = line + option->n_name;
  for (const char *p = option->value; !option->is_default && p + 3 <= end; p++) {
    if (strncmp(p, " # ", 3) != 0) continue;
    /* The first " # " ends the value:
       values with blanks are quoted, and a file's name may hold anything. */
    end = p;
  }
  if (option->value < end) option->value++;
  option->n_value = (int)(end - option->value);
  if (option->n_value == 0) { /* a flag without a value */
    option->value = "true";
    option->n_value = 4;
  }
  return PETSC_TRUE;
}

static PetscBool next_line(const char **text, TrsOptionLine *option)
{
  while (**text) {
    const char *line = *text, *end = line + strcspn(line, "\n");

    *text = *end ? end + 1 : end;
    if (parse_line(line, option)) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

static PetscBool find(const char *text, const TrsOptionLine *wanted, TrsOptionLine *option)
{
  while (next_line(&text, option))
    if (option->n_name == wanted->n_name &&
        strncasecmp(option->name, wanted->name, (size_t)wanted->n_name) == 0)
      return PETSC_TRUE;
  return PETSC_FALSE;
}

static PetscBool is_learned(const TrsOptionLine *option)
{
  if (option->n_name == 14 && strncasecmp(option->name, "-plan_replicas", 14) == 0) return PETSC_TRUE;
  for (size_t i = 0; i < sizeof(placed) / sizeof(placed[0]); i++) {
    const int n = (int)strlen(placed[i]);
    const PetscBool fits = placed[i][n - 1] == '_' ? option->n_name > n : option->n_name == n;

    if (fits && strncasecmp(option->name, placed[i], (size_t)n) == 0) return PETSC_FALSE;
  }
  for (size_t i = 0; i < sizeof(placed_keys) / sizeof(placed_keys[0]); i++) {
    const int n = (int)strlen(placed_keys[i]);

    if (strncasecmp(option->name, "-table", 6) == 0 && option->n_name > n &&
        strncasecmp(option->name + option->n_name - n, placed_keys[i], (size_t)n) == 0)
      return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

static void value_text(const TrsOptionLine *option, char text[TRS_VALUE_TEXT])
{
  char raw[TRS_VALUE_TEXT / 4];

  snprintf(raw, sizeof(raw), "%.*s", option ? option->n_value : 9, option ? option->value : "not given");
  TrsNameEscape(raw, text, TRS_VALUE_TEXT);
}

/* Print one difference. `was` or `is` is NULL if the option was not given then or now. */
static PetscErrorCode tell(const TrsSession *s, const char *word, const TrsOptionLine *was,
                           const TrsOptionLine *is, int *n_lines)
{
  const TrsOptionLine *named = !is || (was && was->n_name > is->n_name) ? was : is;
  char before[TRS_VALUE_TEXT], now[TRS_VALUE_TEXT];

  PetscFunctionBegin;
  if (++*n_lines > TRS_MAX_LINES) PetscFunctionReturn(PETSC_SUCCESS);
  value_text(was, before);
  value_text(is, now);
  PetscCall(PetscPrintf(s->comm, "%-10s %.*s was %s, is %s\n", word, PetscMin(named->n_name, 200),
                        named->name, before, now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode tell_more(const TrsSession *s, const char *word, int n_lines)
{
  PetscFunctionBegin;
  if (n_lines > TRS_MAX_LINES)
    PetscCall(PetscPrintf(s->comm, "%-10s %d more options differ\n", word, n_lines - TRS_MAX_LINES));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool same_value(const TrsOptionLine *a, const TrsOptionLine *b)
{
  return (PetscBool)(a->n_value == b->n_value && strncmp(a->value, b->value, (size_t)a->n_value) == 0);
}

/* Does the option count as the checkpoint's model has it? */
static PetscBool is_of_model(const TrsSession *s, const TrsOptionLine *option)
{
  char name[TRS_VALUE_TEXT];

  snprintf(name, sizeof(name), "%.*s", option->n_name, option->name);
  return (PetscBool)(TrsOptionsModelOf(s->options, name) != NULL);
}

static PetscErrorCode tell_options(const TrsSession *s, const char *then, const char *now)
{
  TrsOptionLine was, is;
  const char *text = now;
  int n_lines = 0;

  PetscFunctionBegin;
  while (next_line(&text, &is)) {
    const PetscBool known = find(then, &is, &was);

    /* The option may be newer than the file, or come from the file's model. */
    if (!is_learned(&is) || (!known && is.is_default) || is_of_model(s, &is)) continue;
    if (!known || !same_value(&was, &is)) PetscCall(tell(s, "resume", known ? &was : NULL, &is, &n_lines));
  }
  text = then;
  while (next_line(&text, &was))
    if (is_learned(&was) && !was.is_default && !find(now, &was, &is))
      PetscCall(tell(s, "resume", &was, NULL, &n_lines));
  PetscCall(tell_more(s, "resume", n_lines));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start)
{
  const TrsDatasetInfo *data;
  char *now;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->train, &data));
  if (start->data_samples && start->data_samples != data->num_samples)
    PetscCall(PetscPrintf(session->comm,
                          "%-10s the training data had %" PRId64 " samples and has %" PRId64
                          ": its steps are counted on from where they were\n",
                          "resume", start->data_samples, data->num_samples));
  if (!start->options_read) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsText(session->options, &now));
  PetscCall(tell_options(session, start->options_read, now));
  PetscCall(PetscFree(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find an option, or for that of one object, -table_a_key, the one for all, -tables_key. */
static PetscBool find_effective(const char *text, const TrsOptionLine *wanted, TrsOptionLine *option)
{
  TrsOptionLine all;
  int longest = 0; /* sequence_pooling, and not pooling */

  if (find(text, wanted, option)) return PETSC_TRUE;
  while (next_line(&text, &all)) {
    const char *key = memchr(all.name, '_', (size_t)all.n_name);
    const int n_object = key ? (int)(key - all.name) - 1 : 0; /* "-table" of "-tables_key" */
    const int n_key = all.n_name - n_object - 1;

    if (n_key > longest && n_object > 0 && all.name[n_object] == 's' && wanted->n_name > n_object + n_key &&
        strncmp(wanted->name, all.name, (size_t)n_object) == 0 && wanted->name[n_object] == '_' &&
        strncmp(wanted->name + wanted->n_name - n_key, key, (size_t)n_key) == 0) {
      *option = all;
      longest = n_key;
    }
  }
  return (PetscBool)(longest > 0);
}

PetscErrorCode TrsModelTell(const TrsSession *session, const char *model)
{
  TrsOptionLine was, is, same;
  const char *text = model;
  int n_lines = 0;
  char *now;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointModelText(session, &now));
  while (next_line(&text, &was)) {
    const PetscBool known = find_effective(now, &was, &is);

    if (!known || !same_value(&was, &is))
      PetscCall(tell(session, "weights", &was, known ? &is : NULL, &n_lines));
  }
  text = now;
  while (next_line(&text, &is))
    if (!find(model, &is, &same) && find_effective(model, &is, &was) && !same_value(&was, &is))
      PetscCall(tell(session, "weights", &was, &is, &n_lines));
  PetscCall(tell_more(session, "weights", n_lines));
  PetscCall(PetscFree(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}
