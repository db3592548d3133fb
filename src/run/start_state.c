/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/start_state.h"

#include "core/names.h"
#include "run/resume_changes.h"

#include <inttypes.h>
#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-init_from_missing", TRS_OPTION_ENUM, "fatal", NULL, "fatal,initial", NULL,
     "what to do if -init_from lacks tables or dense layers of the model, or has dense layers in another "
     "shape. fatal: stop with an error; initial: keep their initial values and name each in the log"},
    {"-init_from_tables", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "take only these tables of -init_from, with their optimizers' states; the rest of the model keeps its "
     "initial values"},
    {"-init_from_rows", TRS_OPTION_ENUM, "fatal", NULL, "fatal,grow", NULL,
     "what to do if tables have more rows than in -init_from. fatal: stop with an error; grow: the file's "
     "rows become the first ones, and the other rows keep their initial values and zero states"},
};
const TrsOptionGroup trs_start_options = TRS_OPTION_GROUP("Start from another model's weights", specs);

#define OTHER_OPTIMIZER \
  "its weights had another optimizer; go on with that one, or take the weights alone with -init_from"

/* --- what is asked for --- */

static PetscErrorCode check_tables(const TrsSession *s, const TrsCheckpointWanted *wanted)
{
  const char **names;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)s->tables.n, &names));
  for (int t = 0; t < s->tables.n; t++) names[t] = s->tables.table[t].name;
  for (int i = 0; i < wanted->n_tables; i++) {
    int t = 0, first = 0;

    while (t < s->tables.n && strcmp(names[t], wanted->table[i]) != 0) t++;
    if (t == s->tables.n)
      PetscCall(TrsOptionError(s->options, "-init_from_tables",
                               "the model has no table \"%s\"; the closest is \"%s\"", wanted->table[i],
                               names[TrsNameClosest(wanted->table[i], s->tables.n, names)]));
    while (strcmp(wanted->table[first], wanted->table[i]) != 0) first++;
    if (first < i)
      PetscCall(
          TrsOptionError(s->options, "-init_from_tables", "names the table \"%s\" twice", wanted->table[i]));
  }
  PetscCall(PetscFree(names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Tell whether tensors may keep their initial values. */
static PetscBool is_partial(const TrsCheckpointWanted *wanted)
{
  return (PetscBool)(wanted->initial || wanted->grow || wanted->n_tables > 0);
}

static PetscErrorCode read_options(const TrsSession *s, const char *init_from, TrsCheckpointWanted *wanted)
{
  const char *name;
  int missing, rows;

  PetscFunctionBegin;
  *wanted = (TrsCheckpointWanted){.n_tables = 0};
  PetscCall(TrsOptionsGetEnum(s->options, "-init_from_missing", &missing, NULL));
  PetscCall(TrsOptionsGetEnum(s->options, "-init_from_rows", &rows, NULL));
  PetscCall(TrsOptionsGetStrings(s->options, "-init_from_tables", &wanted->n_tables, &wanted->table, NULL));
  wanted->initial = (PetscBool)(missing == 1);
  wanted->grow = (PetscBool)(rows == 1);
  if (!is_partial(wanted)) PetscFunctionReturn(PETSC_SUCCESS);
  name = wanted->initial ? "-init_from_missing" : wanted->grow ? "-init_from_rows" : "-init_from_tables";
  if (!init_from)
    PetscCall(TrsOptionError(s->options, name, "needs -init_from, the checkpoint to take weights from"));
  PetscCall(check_tables(s, wanted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- what came of it --- */

/*
  Report the parts of the state that the file does not have as they are here. Optimizer states that
  are missing or belong to another optimizer begin at zero, which a resumed training must not do
  unasked. Tables of another type were converted.
*/
static PetscErrorCode tell_differences(const TrsSession *s, const char *path, PetscBool resume, int64_t step)
{
  const TrsState *state = &s->state;
  const TrsStateTensor *missing = NULL, *other = NULL;
  int n_missing = 0, n_converted = 0;

  PetscFunctionBegin;
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *tensor = &state->tensor[i];

    n_converted += tensor->converted && tensor->was_read ? 1 : 0;
    if (tensor->was_read || tensor->unwanted || !tensor->optional) continue;
    if (!missing) missing = tensor;
    if (!other && tensor->other_optimizer[0]) other = tensor;
    n_missing++;
  }
  if (other && resume)
    PetscCall(
        TrsOptionError(s->options, "-resume",
                       "%s: /%s is of optimizer %s, now it is %s: go on with that one, or take the weights "
                       "alone with -init_from",
                       path, other->path, other->other_optimizer, other->optimizer));
  if (missing && resume && step > 0)
    PetscCall(TrsOptionError(s->options, "-resume", "%s lacks /%s: " OTHER_OPTIMIZER, path, missing->path));
  if (n_converted)
    PetscCall(PetscPrintf(s->comm, "%-10s %d table%s of another data type converted, rounded to nearest\n",
                          "weights", n_converted, n_converted == 1 ? "" : "s"));
  if (other)
    PetscCall(PetscPrintf(s->comm, "%-10s /%s is of optimizer %s, not %s: %d states start at zero\n",
                          "warning", other->path, other->other_optimizer, other->optimizer, n_missing));
  else if (n_missing && step > 0)
    PetscCall(PetscPrintf(s->comm,
                          "%-10s the checkpoint lacks %d optimizer state%s, /%s first: they start at zero\n",
                          "warning", n_missing, n_missing == 1 ? "" : "s", missing->path));
  if (n_missing && step > 0)
    PetscCall(
        PetscPrintf(s->comm,
                    "%-10s updates are counted on from %" PRId64
                    ": a warm-up that ends before is over, and the first steps of adam and its like are "
                    "up to 3 times as long as those of a new run\n",
                    "warning", step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse a file that holds more than the model, on rank 0.
  It belongs to another model or another optimizer.
*/
static PetscErrorCode refuse_more(const TrsSession *s, const char *path, const TrsCheckpointInfo *start)
{
  PetscFunctionBegin;
  if (start->n_unexpected > 0)
    PetscCall(
        TrsOptionError(s->options, "-resume",
                       "%s holds /%s, which the model lacks: go on with the same model, or take what fits "
                       "with -init_from",
                       path, start->unexpected[0]));
  if (start->other_state)
    PetscCall(
        TrsOptionError(s->options, "-resume", "%s holds /%s: " OTHER_OPTIMIZER, path, start->other_state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print a line for a tensor of the model's weights that the file lacks, or does not have completely.
*/
static PetscErrorCode tell_initial(const TrsSession *s, const TrsStateTensor *tensor, int *n_initial,
                                   int *n_grown)
{
  PetscFunctionBegin;
  /* The weights of a state report for it. */
  if (tensor->optional) PetscFunctionReturn(PETSC_SUCCESS);
  if (tensor->was_read && tensor->rows_read < tensor->rows) {
    ++*n_grown;
    PetscCall(PetscPrintf(s->comm, "%-10s /%s from row %" PRId64 " on: the file has no more\n", "initial",
                          tensor->path, tensor->rows_read));
  }
  if (tensor->was_read) PetscFunctionReturn(PETSC_SUCCESS);
  ++*n_initial;
  if (tensor->unwanted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(s->comm, "%-10s /%s: the file has %s%s\n", "initial", tensor->path,
                        tensor->other_shape[0] ? tensor->other_shape : "none",
                        tensor->other_shape[0] ? ", another shape" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode tell_parts(const TrsSession *s, const TrsCheckpointWanted *wanted,
                                 const TrsCheckpointInfo *start, TrsResults results)
{
  int n_initial = 0, n_grown = 0;

  PetscFunctionBegin;
  for (int i = 0; i < s->state.n; i++) PetscCall(tell_initial(s, &s->state.tensor[i], &n_initial, &n_grown));
  if (wanted->n_tables)
    PetscCall(PetscPrintf(s->comm,
                          "%-10s %d table%s alone taken (-init_from_tables); %d tensors are initial\n",
                          "weights", wanted->n_tables, wanted->n_tables == 1 ? "" : "s", n_initial));
  for (int i = 0; i < start->n_unexpected && wanted->n_tables == 0; i++)
    PetscCall(PetscPrintf(s->comm, "%-10s /%s of the file: the model has no such %s\n", "ignored",
                          start->unexpected[i],
                          strncmp(start->unexpected[i], "embedding/", 10) == 0 ? "table" : "tensor"));
  if (!is_partial(wanted)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsResultsSetInt(results, "init_from_tensors_initial", n_initial));
  PetscCall(TrsResultsSetInt(results, "init_from_tables_grown", n_grown));
  PetscCall(TrsResultsSetInt(results, "init_from_ignored", start->n_unexpected));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStartStateLoad(TrsSession *s, const char *checkpoint_dir, TrsResults results,
                                 TrsCheckpointInfo *start, char **resumed)
{
  const char *init_from = NULL, *path;
  TrsCheckpointWanted wanted;
  PetscBool resume;

  PetscFunctionBegin;
  *resumed = NULL;
  PetscCall(TrsOptionsGetBool(s->options, "-resume", &resume, NULL));
  PetscCall(TrsOptionsGetString(s->options, "-init_from", &init_from, NULL));
  PetscCall(read_options(s, init_from, &wanted));
  if (resume) {
    if (!checkpoint_dir)
      PetscCall(TrsOptionError(s->options, "-resume", "needs -checkpoint_dir, the folder to resume from"));
    PetscCall(TrsCheckpointFolderFindNewest(s->comm, checkpoint_dir, resumed));
    if (!*resumed)
      PetscCall(PetscPrintf(s->comm, "%-10s no checkpoint in %s yet: starting from the beginning\n", "resume",
                            checkpoint_dir));
  }
  path = *resumed ? *resumed : init_from;
  if (!path || (!*resumed && is_partial(&wanted))) PetscCall(TrsModelParallelFillTables(s->model));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  if (*resumed) wanted = (TrsCheckpointWanted){.same = PETSC_TRUE};
  PetscCall(TrsCheckpointReadWanted(s->comm, path, &s->state, &wanted, start));
  TrsModelParallelStateWasRead(s->model, &s->state);
  PetscCall(PetscPrintf(s->comm, "%-10s %s, after %" PRId64 " updates\n", *resumed ? "resume" : "weights",
                        path, start->step));
  if (*resumed) PetscCall(TrsResumeTell(s, start));
  if (!*resumed) PetscCall(tell_parts(s, &wanted, start, results));
  PetscCall(tell_differences(s, path, (PetscBool)(*resumed != NULL), start->step));
  if (*resumed) PetscCall(TrsAgree(s->comm, s->rank == 0 ? refuse_more(s, path, start) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}
