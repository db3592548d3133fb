/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/resume_changes.h"

#include "core/names.h"
#include "core/options/option_source.h"
#include "session/checkpoint_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_LINES = 20, TRS_VALUE_TEXT = 400 };

/*
  Options that do not change what a run learns. They only set where, how fast and with which outputs
  it learns. A name that ends in "_" stands for all names with this beginning. A changed -batch_size
  is reported elsewhere.
*/
static const char *const placed[] = {"-task",
                                     "-output",
                                     "-output_every",
                                     "-existing_outputs",
                                     "-existing_outputs_keep",
                                     "-report_interval",
                                     "-watchdog_seconds",
                                     "-error_traceback",
                                     "-allow_unused_options",
                                     "-trust_other_users",
                                     "-device",
                                     "-cpu_",
                                     "-gpu_",
                                     "-data_eval",
                                     "-data_follow_",
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
                                     "-dense_product_table",
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
    {/* endings of names of table options */
     "_sharding_types",    "_compute_kernels", "_min_partition", "_pooling_factors",       "_num_poolings",
     "_batch_sizes",       "_enforce_hbm",     "_device_group",  "_cache_load_factor",     "_cache_algorithm",
     "_prefetch_pipeline", "_num_passes",      "_cacheability",  "_cache_reserved_memory", "_cache_precision",
     "_expected_lookups",  "_mrc_hist"};

static const char *const objects[] = {"table", "task"};
enum { TRS_N_OBJECTS = sizeof(objects) / sizeof(objects[0]) };

/*
  The options in a text. It has lines "-name value # source". A default is a line "# -name value"
  and gets origin 1.
*/
typedef struct {
  TrsGivenOptions options;
  int next;                           /* index after the option that was found last */
  TrsOptionList names[TRS_N_OBJECTS]; /* entries of -tables and of -tasks */
} TrsOptionLines;

/*
  Find an option. The search starts after the option that was found last, because models may have
  thousands of lines, and two texts have most of them in the same order.
*/
static const TrsGivenOption *find(TrsOptionLines *in, const char *name)
{
  for (int i = 0; i < in->options.n; i++) {
    const int k = (in->next + i) % in->options.n;

    if (strcasecmp(in->options.option[k].name, name) != 0) continue;
    in->next = k + 1;
    return &in->options.option[k];
  }
  return NULL;
}

/*
  Read the lines of a text. Lines of an earlier version that are not options are skipped. Free the
  result with free_lines().
*/
static PetscErrorCode read_lines(const char *text, TrsOptionLines *lines)
{
  char *copy, source[] = "text";

  PetscFunctionBegin;
  *lines = (TrsOptionLines){.options = {0}};
  PetscCall(PetscStrallocpy(text, &copy));
  for (char *line = copy, *next; line; line = next) {
    const PetscBool is_default = (PetscBool)(strncmp(line, "# -", 3) == 0);
    const TrsGivenOption file = {.source = source, .origin = is_default ? 1 : 0};
    PetscErrorCode ierr;

    next = strchr(line, '\n');
    if (next) *next++ = '\0';
    ierr = TrsOptionTextParse(is_default ? line + 2 : line, &file, &lines->options);
    if (ierr == TRS_ERR_OPTION) TrsErrorClear();
    if (ierr != TRS_ERR_OPTION) PetscCall(ierr);
  }
  PetscCall(PetscFree(copy));
  for (int k = 0; k < TRS_N_OBJECTS; k++) {
    char name[16];
    const TrsGivenOption *list;
    PetscBool valid;

    snprintf(name, sizeof(name), "-%ss", objects[k]);
    list = find(lines, name);
    if (list && list->value) PetscCall(TrsOptionListSplit(list->value, &lines->names[k], &valid));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_lines(TrsOptionLines *lines)
{
  PetscFunctionBegin;
  PetscCall(TrsGivenOptionsFree(&lines->options));
  for (int k = 0; k < TRS_N_OBJECTS; k++) PetscCall(TrsOptionListFree(&lines->names[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find an option. For an option of one object (-table_a_key), also search for -tables_key. */
static const TrsGivenOption *find_effective(TrsOptionLines *in, const char *name)
{
  const TrsGivenOption *found = find(in, name);
  char own[TRS_VALUE_TEXT], all[TRS_VALUE_TEXT];

  for (int k = 0; k < TRS_N_OBJECTS; k++) {
    for (int i = 0; i < in->names[k].n && !found; i++) {
      const int n = snprintf(own, sizeof(own), "-%s_%s_", objects[k], in->names[k].entry[i]);

      if (strncasecmp(name, own, (size_t)n) != 0) continue;
      snprintf(all, sizeof(all), "-%ss_%s", objects[k], name + n);
      found = find(in, all);
    }
  }
  return found;
}

static PetscBool is_learned(const char *name)
{
  const int length = (int)strlen(name);

  if (strcasecmp(name, "-plan_replicas") == 0) return PETSC_TRUE;
  for (size_t i = 0; i < sizeof(placed) / sizeof(placed[0]); i++) {
    const int n = (int)strlen(placed[i]);
    const PetscBool fits = placed[i][n - 1] == '_' ? length > n : length == n;

    if (fits && strncasecmp(name, placed[i], (size_t)n) == 0) return PETSC_FALSE;
  }
  for (size_t i = 0; i < sizeof(placed_keys) / sizeof(placed_keys[0]); i++) {
    const int n = (int)strlen(placed_keys[i]);

    if (strncasecmp(name, "-table", 6) == 0 && length > n &&
        strcasecmp(name + length - n, placed_keys[i]) == 0)
      return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

static const char *value_of(const TrsGivenOption *option)
{
  return !option ? "not given" : option->value ? option->value : "true";
}

/*
  Print one difference. `was` is NULL if the option was not given then, and `is` is NULL if it is
  not given now.
*/
static PetscErrorCode tell(const TrsSession *s, const char *word, const TrsGivenOption *was,
                           const TrsGivenOption *is, int *n_lines)
{
  const TrsGivenOption *named = !is || (was && strlen(was->name) > strlen(is->name)) ? was : is;

  PetscFunctionBegin;
  if (++*n_lines > TRS_MAX_LINES) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(s->comm, "%-10s %.200s was %.*s, is %.*s\n", word, named->name, TRS_VALUE_TEXT,
                        value_of(was), TRS_VALUE_TEXT, value_of(is)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode tell_more(const TrsSession *s, const char *word, int n_lines)
{
  PetscFunctionBegin;
  if (n_lines > TRS_MAX_LINES)
    PetscCall(PetscPrintf(s->comm, "%-10s %d more option%s differ\n", word, n_lines - TRS_MAX_LINES,
                          TrsPlural(n_lines - TRS_MAX_LINES, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool same_value(const TrsGivenOption *a, const TrsGivenOption *b)
{
  return (PetscBool)(strcmp(value_of(a), value_of(b)) == 0);
}

static PetscErrorCode tell_options(const TrsSession *s, TrsOptionLines *then, TrsOptionLines *now)
{
  int n_lines = 0;

  PetscFunctionBegin;
  for (int i = 0; i < now->options.n; i++) {
    const TrsGivenOption *is = &now->options.option[i], *was = find(then, is->name);

    /* Skip options that are newer than the file, or that come from the file's model. */
    if (!is_learned(is->name) || (!was && is->origin) || TrsOptionsModelOf(s->options, is->name)) continue;
    if (!was || !same_value(was, is)) PetscCall(tell(s, "resume", was, is, &n_lines));
  }
  for (int i = 0; i < then->options.n; i++) {
    const TrsGivenOption *was = &then->options.option[i];

    if (is_learned(was->name) && !was->origin && !find(now, was->name))
      PetscCall(tell(s, "resume", was, NULL, &n_lines));
  }
  PetscCall(tell_more(s, "resume", n_lines));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start)
{
  const TrsDatasetInfo *data;
  TrsOptionLines was, is;
  char *now;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->train, &data));
  if (start->follows)
    PetscCall(PetscPrintf(session->comm, "%-10s after sample %" PRId64 " of the stream, %" PRId64 " of %s\n",
                          "resume", start->follow_place.position, start->follow_place.taken,
                          start->follow_place.file[0] ? start->follow_place.file : "-data_train"));
  else if (start->data_samples && start->data_samples != data->num_samples)
    PetscCall(PetscPrintf(session->comm,
                          "%-10s the training data had %" PRId64 " sample%s and has %" PRId64
                          ": the samples already seen still count as seen\n",
                          "resume", start->data_samples, TrsPlural(start->data_samples, "s"),
                          data->num_samples));
  else if (start->data_hash && start->data_hash != data->sample_hash)
    PetscCall(PetscPrintf(session->comm,
                          "%-10s the training data has as many samples as it had, but others: the place "
                          "in it stays the same\n",
                          "resume"));
  if (!start->options_read) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsText(session->options, &now));
  PetscCall(read_lines(start->options_read, &was));
  PetscCall(read_lines(now, &is));
  PetscCall(tell_options(session, &was, &is));
  PetscCall(free_lines(&was));
  PetscCall(free_lines(&is));
  PetscCall(PetscFree(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelTables(const char *model, char **text, TrsOptionList *list)
{
  TrsOptionLines lines;
  const TrsGivenOption *tables;

  PetscFunctionBegin;
  PetscCall(read_lines(model, &lines));
  tables = find(&lines, "-tables");
  PetscCall(PetscStrallocpy(tables ? tables->value : "", text));
  *list = lines.names[0];
  lines.names[0] = (TrsOptionList){0};
  PetscCall(free_lines(&lines));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelTell(const TrsSession *session, const char *model)
{
  TrsOptionLines then, now;
  int n_lines = 0;
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointModelText(session, &text));
  PetscCall(read_lines(model, &then));
  PetscCall(read_lines(text, &now));
  for (int i = 0; i < then.options.n; i++) {
    const TrsGivenOption *was = &then.options.option[i], *is = find_effective(&now, was->name);

    if (!is || !same_value(was, is)) PetscCall(tell(session, "weights", was, is, &n_lines));
  }
  for (int i = 0; i < now.options.n; i++) {
    const TrsGivenOption *is = &now.options.option[i], *was = find_effective(&then, is->name);

    if (was && !find(&then, is->name) && !same_value(was, is))
      PetscCall(tell(session, "weights", was, is, &n_lines));
  }
  PetscCall(tell_more(session, "weights", n_lines));
  PetscCall(free_lines(&then));
  PetscCall(free_lines(&now));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}
