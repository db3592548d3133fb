/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/start_state.h"

#include "core/names.h"
#include "session/checkpoint_model.h"
#include "session/resume_changes.h"
#include "session/session_mapping.h"

#include <inttypes.h>
#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-init_from_missing", TRS_OPTION_ENUM, "fatal", NULL, "fatal,initial", NULL,
     "what to do if -init_from lacks tables or dense layers of the model, or has dense layers in another "
     "shape. fatal: stop with an error. initial: keep their initial values and name each in the log"},
    {"-init_from_tables", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "take only these tables of -init_from, with their optimizers' states; the rest of the model keeps its "
     "initial values"},
    {"-init_from_rows", TRS_OPTION_ENUM, "fatal", NULL, "fatal,grow", NULL,
     "what to do if tables have more rows than in -init_from. fatal: stop with an error. grow: the "
     "file's rows become the first ones, and the other rows keep their initial values and zero states"},
};
const TrsOptionGroup trs_start_options = TRS_OPTION_GROUP("Start from another model's weights", specs);

#define OTHER_OPTIMIZER \
  "its weights had another optimizer; go on with that one, or take the weights alone with -init_from"
#define OTHER_AVERAGES \
  "-ema_decay was %s, and a run that goes on keeps that; take the weights alone with -init_from"

/* --- options --- */

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

/* True if tensors may keep their initial values. */
static PetscBool is_partial(const TrsCheckpointWanted *wanted)
{
  return (PetscBool)(wanted->initial || wanted->grow || wanted->n_tables > 0);
}

static PetscErrorCode read_options(const TrsSession *s, TrsCheckpointWanted *wanted)
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
  if (!TrsOptionsIsGiven(s->options, "-init_from"))
    PetscCall(TrsOptionError(s->options, name, "needs -init_from, the checkpoint to take weights from"));
  PetscCall(check_tables(s, wanted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- differences between file and model --- */

/*
  Parts of the state that the file lacks or has in another form: the first missing optimizer state,
  the first state of another optimizer, a missing average, a missing part of a table's ids, and the
  number of tables with another data type. Also the numbers of optimizer states by kind: all of
  them, those that were read, and those that are missing.
*/
typedef struct {
  const TrsStateTensor *state, *other, *average, *keys;
  int n[TRS_STATES_KINDS], n_read[TRS_STATES_KINDS], n_missing[TRS_STATES_KINDS], n_converted;
} TrsDifferences;

/* Does the file have the ids of the tensor's table, but not this tensor, such as their ages? */
static PetscBool lacks_keys(const TrsState *state, const TrsStateTensor *tensor)
{
  const size_t folder = (size_t)(strrchr(tensor->path, '/') - tensor->path);
  int first = 0;

  while (strncmp(state->tensor[first].path, tensor->path, folder + 1) != 0) first++;
  return (PetscBool)(!tensor->was_read && !tensor->unwanted && state->tensor[first].was_read);
}

static TrsDifferences differences_of(const TrsState *state)
{
  TrsDifferences all = {.n_converted = 0};

  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *tensor = &state->tensor[i];
    const int kind = TrsStateIsOfTable(tensor) ? TRS_STATES_TABLES : TRS_STATES_DENSE;

    all.n_converted += tensor->converted && tensor->was_read ? 1 : 0;
    if (TrsStateIsOfKeys(tensor)) {
      if (!all.keys && lacks_keys(state, tensor)) all.keys = tensor;
      continue;
    }
    if (!tensor->optional || TrsChangesIsTensor(tensor)) continue;
    if (TrsDenseIsAverage(tensor->path)) {
      if (!tensor->was_read && !tensor->unwanted) all.average = tensor;
      continue;
    }
    all.n[kind]++;
    if (tensor->was_read) all.n_read[kind]++;
    if (tensor->was_read || tensor->unwanted) continue;
    if (!all.state) all.state = tensor;
    if (!all.other && tensor->other_optimizer[0]) all.other = tensor;
    all.n_missing[kind]++;
  }
  return all;
}

/* Refuse to resume if optimizer states are missing. */
static PetscErrorCode refuse_fewer(const TrsSession *s, const char *path, const TrsDifferences *all)
{
  PetscFunctionBegin;
  if (all->other)
    PetscCall(
        TrsOptionError(s->options, "-resume",
                       "%s: /%s is of optimizer %s, now it is %s: go on with that one, or take the weights "
                       "alone with -init_from",
                       path, all->other->path, all->other->other_optimizer, all->other->optimizer));
  if (all->state)
    PetscCall(
        TrsOptionError(s->options, "-resume", "%s lacks /%s: " OTHER_OPTIMIZER, path, all->state->path));
  if (all->keys)
    PetscCall(TrsOptionError(s->options, "-resume",
                             "%s lacks /%s, and a run that goes on needs all of the ids' state; take the "
                             "rest with -init_from",
                             path, all->keys->path));
  if (all->average)
    PetscCall(TrsOptionError(s->options, "-resume", "%s lacks /%s: " OTHER_AVERAGES, path, all->average->path,
                             "not given"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print a line about optimizer states that start with zeros. */
static PetscErrorCode tell_zero_states(const TrsSession *s, const TrsDifferences *all,
                                       const TrsCheckpointInfo *info)
{
  const int n = all->n_missing[TRS_STATES_TABLES] + all->n_missing[TRS_STATES_DENSE];
  PetscBool some = PETSC_FALSE;

  PetscFunctionBegin;
  for (int kind = 0; kind < TRS_STATES_KINDS; kind++)
    if (all->n_missing[kind] && all->n_read[kind]) some = PETSC_TRUE;
  if (all->other)
    PetscCall(PetscPrintf(s->comm, "%-10s /%s is of optimizer %s, not %s: %d state%s start%s at zero\n",
                          "warning", all->other->path, all->other->other_optimizer, all->other->optimizer, n,
                          TrsPlural(n, "s"), n == 1 ? "s" : ""));
  else if (n && info->step > 0)
    PetscCall(PetscPrintf(s->comm,
                          "%-10s the checkpoint lacks %d optimizer state%s, /%s first: they start at zero\n",
                          "warning", n, TrsPlural(n, "s"), all->state->path));
  if (n && info->step > 0)
    PetscCall(PetscPrintf(
        s->comm, "%-10s updates are counted on from %" PRId64 ": a warm-up that ends before is over%s\n",
        "warning", info->step,
        some ? ", and where some states are new, adam and its like begin with steps that are "
               "up to 3 times as long as those of a new run"
             : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Report the differences. Optimizer states that are missing or belong to another optimizer start
  with zeros. If this is true for all states of a kind, the updates of this kind are counted from
  here.
*/
static PetscErrorCode tell_differences(const TrsSession *s, const TrsStartPoint *from,
                                       TrsCheckpointInfo *info)
{
  const TrsDifferences all = differences_of(&s->state);

  PetscFunctionBegin;
  if (from->resumed && (all.other || info->step > 0)) PetscCall(refuse_fewer(s, from->path, &all));
  if (all.n_converted)
    PetscCall(PetscPrintf(s->comm, "%-10s %d table%s of another data type converted, rounded to nearest\n",
                          "weights", all.n_converted, TrsPlural(all.n_converted, "s")));
  if (all.keys)
    PetscCall(PetscPrintf(s->comm, "%-10s the checkpoint lacks /%s: it begins as in a new run\n", "warning",
                          all.keys->path));
  if (all.average)
    PetscCall(PetscPrintf(s->comm, "%-10s the averages of -ema_decay begin as the weights\n", "weights"));
  for (int kind = 0; kind < TRS_STATES_KINDS; kind++)
    if (all.n[kind] && !all.n_read[kind]) info->states_from[kind] = info->step;
  TrsModelParallelStatesFrom(s->model, info->states_from);
  PetscCall(tell_zero_states(s, &all, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  On rank 0, refuse a file that has more than the model needs. It belongs to another model or
  optimizer.
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
  if (start->other_state && TrsDenseIsAverage(start->other_state))
    PetscCall(TrsOptionError(s->options, "-resume", "%s holds /%s: " OTHER_AVERAGES, path, start->other_state,
                             "given"));
  if (start->other_state)
    PetscCall(
        TrsOptionError(s->options, "-resume", "%s holds /%s: " OTHER_OPTIMIZER, path, start->other_state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse a table that grew and maps its ids, because the row of an id depends on the number of rows.
*/
static PetscErrorCode check_grown(const TrsSession *s, const TrsStateTensor *tensor)
{
  PetscFunctionBegin;
  for (int t = 0; t < s->tables.n; t++) {
    const TrsTableConfig *table = &s->tables.table[t];

    if (table->id_map.kind != TRS_ID_MAP_NONE && TrsStateIsOf(tensor, table->name))
      PetscCall(
          TrsOptionError(s->options, "-init_from_rows",
                         "table \"%s\" maps its ids to its number of rows (-tables_id_map): with %" PRId64
                         " rows, which were %" PRId64 ", an id has another row",
                         table->name, tensor->rows, tensor->rows_read));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print a line for a weight tensor that is missing in the file, or of which the file has only a
  part.
*/
static PetscErrorCode tell_initial(const TrsSession *s, const TrsStateTensor *tensor, int *n_initial,
                                   int *n_grown)
{
  PetscFunctionBegin;
  /* Report only weights, not their optimizer states and the ids that have their rows. */
  if (tensor->optional || TrsStateIsOfKeys(tensor)) PetscFunctionReturn(PETSC_SUCCESS);
  if (tensor->was_read && !tensor->count && tensor->rows_read < tensor->rows) {
    ++*n_grown;
    PetscCall(check_grown(s, tensor));
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
    PetscCall(PetscPrintf(
        s->comm, "%-10s %d table%s alone taken (-init_from_tables); %d tensor%s stay initial\n", "weights",
        wanted->n_tables, TrsPlural(wanted->n_tables, "s"), n_initial, TrsPlural(n_initial, "s")));
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

/* --- the checkpoint's model --- */

static int place_in(const TrsOptionList *list, const char *name)
{
  for (int place = 0; place < list->n; place++)
    if (strcmp(list->entry[place], name) == 0) return place;
  return -1;
}

/*
  Refuse the default order of the tables if the checkpoint's model has another order. Tables that
  only one of the two models has do not count.
*/
static PetscErrorCode check_order(const TrsSession *s, const TrsStartPoint *from)
{
  TrsOptionList list;
  char *text;
  int last = -1;

  PetscFunctionBegin;
  if (TrsOptionsIsGiven(s->options, "-tables")) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsModelTables(from->model, &text, &list));
  for (int t = 0; t < s->tables.n; t++) {
    const int place = place_in(&list, s->tables.table[t].name);

    if (place >= 0 && place < last)
      PetscCall(
          TrsOptionError(s->options, "-tables",
                         "the training data has its features in another order than the model of %s, "
                         "whose dense layers read them in its own; give the tables in that order: %.400s",
                         from->path, text));
    last = PetscMax(place, last);
  }
  PetscCall(TrsOptionListFree(&list));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStartFind(MPI_Comm comm, TrsOptions options, const char *checkpoint_dir,
                            TrsStartPoint *start)
{
  const char *init_from = NULL;
  PetscBool resume;

  PetscFunctionBegin;
  *start = (TrsStartPoint){.path = NULL};
  PetscCall(TrsOptionsGetBool(options, "-resume", &resume, NULL));
  PetscCall(TrsOptionsGetString(options, "-init_from", &init_from, NULL));
  if (resume && !checkpoint_dir)
    PetscCall(TrsOptionError(options, "-resume", "needs -checkpoint_dir, the folder to resume from"));
  if (resume) {
    PetscCall(TrsCheckpointFolderFindNewest(comm, checkpoint_dir, NULL, &start->path));
    start->resumed = (PetscBool)(start->path != NULL);
    if (!start->path)
      PetscCall(PetscPrintf(comm, "%-10s no checkpoint in %s yet: starting from the beginning\n", "resume",
                            checkpoint_dir));
  }
  if (start->resumed) PetscCall(TrsCheckpointModelTake(comm, options, start->path));
  if (start->resumed || !init_from) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrallocpy(init_from, &start->path));
  PetscCall(TrsCheckpointModel(comm, init_from, &start->model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStartFree(TrsStartPoint *start)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(start->path));
  PetscCall(PetscFree(start->model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStartStateLoad(TrsSession *s, const TrsStartPoint *from, TrsResults results,
                                 TrsCheckpointInfo *info)
{
  TrsCheckpointWanted wanted;
  PetscBool is_whole;

  PetscFunctionBegin;
  PetscCall(read_options(s, &wanted));
  is_whole = (PetscBool)!is_partial(&wanted);
  if (from->model && wanted.n_tables == 0) PetscCall(check_order(s, from));
  if (!from->path || (!from->resumed && is_partial(&wanted))) PetscCall(TrsModelParallelFillTables(s->model));
  if (!from->path) {
    PetscCall(TrsSessionTakeMapping(s, NULL, NULL, PETSC_FALSE, results));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (from->resumed) wanted = (TrsCheckpointWanted){.same = PETSC_TRUE};
  PetscCall(TrsCheckpointReadWanted(s->comm, from->path, &s->state, &wanted, info));
  TrsModelParallelStateWasRead(s->model, &s->state);
  PetscCall(TrsSessionTakeMapping(s, from->path, from->resumed || is_whole ? info->mapping_read : NULL,
                                  from->resumed, results));
  PetscCall(PetscPrintf(s->comm, "%-10s %s, after %" PRId64 " update%s\n",
                        from->resumed ? "resume" : "weights", from->path, info->step,
                        TrsPlural(info->step, "s")));
  if (from->resumed && info->weights_only)
    PetscCall(
        TrsOptionError(s->options, "-resume",
                       "%s has weights only, because tools/apply_delta.py made it: a training cannot go "
                       "on from it. Start a new training from its weights with -init_from",
                       from->path));
  if (from->resumed) PetscCall(TrsResumeTell(s, info));
  if (from->model && wanted.n_tables == 0) PetscCall(TrsModelTell(s, from->model));
  if (!from->resumed) PetscCall(tell_parts(s, &wanted, info, results));
  PetscCall(tell_differences(s, from, info));
  if (from->resumed)
    PetscCall(TrsAgree(s->comm, s->rank == 0 ? refuse_more(s, from->path, info) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}
