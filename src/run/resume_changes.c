/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/resume_changes.h"

#include "core/names.h"
#include "spec/vocabulary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TRS_MAX_LINES = 20, TRS_VALUE_TEXT = 400 };

/* Options that decide what is learned, by how their names begin; not those that only decide
   where and how fast. */
static const char *const learned[] = {"-data_train",
                                      "-data_label",
                                      "-data_dense",
                                      "-data_weights",
                                      "-data_shuffle",
                                      "-data_repeat_batches",
                                      "-drop_last",
                                      "-accumulate_steps",
                                      "-seed",
                                      "-table",
                                      "-num_dense",
                                      "-dense_",
                                      "-over_arch",
                                      "-task_",
                                      "-tasks",
                                      "-heads_",
                                      "-interaction",
                                      "-embedding_",
                                      "-schedule_",
                                      "-bounds_check",
                                      "-reproducible",
#define NUMBER_OPTION(word, ...) "-" #word,
                                      TRS_INTERACTION_NUMBERS(NUMBER_OPTION)};
static const char *const placed[] = {
    "_sharding_types",    "_compute_kernels", "_min_partition", "_pooling_factors",       "_num_poolings",
    "_batch_sizes",       "_enforce_hbm",     "_device_group",  "_cache_load_factor",     "_cache_algorithm",
    "_prefetch_pipeline", "_num_passes",      "_cacheability",  "_cache_reserved_memory", "_cache_precision",
    "_expected_lookups",  "_mrc_hist",        "_bucket_bytes"};

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
  PetscBool is = PETSC_FALSE;

  for (size_t i = 0; i < sizeof(learned) / sizeof(learned[0]); i++)
    if (strncasecmp(option->name, learned[i], strlen(learned[i])) == 0) is = PETSC_TRUE;
  for (size_t i = 0; i < sizeof(placed) / sizeof(placed[0]); i++) {
    const int n = (int)strlen(placed[i]);

    if (option->n_name >= n && strncasecmp(option->name + option->n_name - n, placed[i], (size_t)n) == 0)
      is = PETSC_FALSE;
  }
  return is;
}

static void value_text(const TrsOptionLine *option, char text[TRS_VALUE_TEXT])
{
  char raw[TRS_VALUE_TEXT / 4];

  snprintf(raw, sizeof(raw), "%.*s", option ? option->n_value : 9, option ? option->value : "not given");
  TrsNameEscape(raw, text, TRS_VALUE_TEXT);
}

/* Print one difference. `was` or `is` is NULL if the option was not given then or now. */
static PetscErrorCode tell(const TrsSession *s, const TrsOptionLine *was, const TrsOptionLine *is,
                           int *n_lines)
{
  const TrsOptionLine *named = is ? is : was;
  char before[TRS_VALUE_TEXT], now[TRS_VALUE_TEXT];

  PetscFunctionBegin;
  if (++*n_lines > TRS_MAX_LINES) PetscFunctionReturn(PETSC_SUCCESS);
  value_text(was, before);
  value_text(is, now);
  PetscCall(PetscPrintf(s->comm, "%-10s %.*s was %s, is %s\n", "resume", PetscMin(named->n_name, 200),
                        named->name, before, now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode tell_options(const TrsSession *s, const char *then, const char *now)
{
  TrsOptionLine was, is;
  const char *text = now;
  int n_lines = 0;

  PetscFunctionBegin;
  while (next_line(&text, &is)) {
    const PetscBool known = find(then, &is, &was);

    /* The option may be newer than the file. */
    if (!is_learned(&is) || (!known && is.is_default)) continue;
    if (known && was.n_value == is.n_value && strncmp(was.value, is.value, (size_t)is.n_value) == 0) continue;
    PetscCall(tell(s, known ? &was : NULL, &is, &n_lines));
  }
  text = then;
  while (next_line(&text, &was))
    if (is_learned(&was) && !was.is_default && !find(now, &was, &is))
      PetscCall(tell(s, &was, NULL, &n_lines));
  if (n_lines > TRS_MAX_LINES)
    PetscCall(PetscPrintf(s->comm, "%-10s %d more options differ\n", "resume", n_lines - TRS_MAX_LINES));
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
