/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/task_configs.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const TrsOptionSpec tasks_options[] = {
    {"-tasks", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "names of the tasks that the model learns, each with a label and a loss (default: one task without a "
     "name, the probability of the label). The program's own task is -task"},
};
const TrsOptionGroup trs_tasks_options = TRS_OPTION_GROUP_OF_MODEL("Learning tasks", NULL, tasks_options,
                                                                   "-tasks", NULL);

static const TrsOptionSpec task_options[] = {
    {"label", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "the dataset's label of the task (default: the label of the task's name, or the only one if it has no "
     "name). NaN is a missing label"},
    {"loss", TRS_OPTION_ENUM, "bce", NULL, TRS_CHOICES(TRS_LOSSES), NULL,
     "loss of the task. bce: binary cross entropy of labels in [0, 1]. mse: squared error. huber: Huber's "
     "loss. softmax: cross entropy of classes, counted from 0"},
    {"arch", TRS_OPTION_INTS, NULL, "[1,1000000]", NULL, NULL,
     "output sizes of the task's own layers. -over_arch_activation, _layer_norm, _dropout and _residual "
     "apply to all except the last, which has size 1, or the number of classes (default: -over_arch with "
     "that last size)"},
    {"classes", TRS_OPTION_INT, NULL, "[2,1000000]", NULL, "classes",
     "loss softmax: the number of classes; must be given"},
    {"weight", TRS_OPTION_REAL, "1", "[0,]", NULL, NULL, "weight of the task's loss in the step's loss"},
    {"pos_weight", TRS_OPTION_REAL, "1", "[0,]", NULL, NULL,
     "loss bce: weight of the positive part, as torch's pos_weight"},
    {"huber_delta", TRS_OPTION_REAL, "1", "(0,]", NULL, NULL,
     "loss huber: the error above which the loss grows linearly"},
};
const TrsOptionGroup trs_task_options = TRS_OPTION_GROUP_OF_MODEL(
    "Each learning task", "task", task_options, "loss,arch,classes", "label,weight,pos_weight,huber_delta");

float TrsTaskParameter(const TrsTaskConfig *task)
{
  return (float)(task->loss == TRS_LOSS_HUBER ? task->huber_delta : task->pos_weight);
}

/* Reject names that a file cannot hold, and names that occur twice. */
static PetscErrorCode check_names(TrsOptions options, int n, const char *const *names)
{
  PetscFunctionBegin;
  if (n > TRS_MOST_TASKS)
    PetscCall(TrsOptionError(options, "-tasks", "%d tasks, expected at most %d", n, TRS_MOST_TASKS));
  for (int t = 0; t < n; t++) {
    if (!names[t][0] || names[t][0] == '.' || strpbrk(names[t], "/ \t") || strlen(names[t]) >= TRS_TASK_NAME)
      PetscCall(TrsOptionError(options, "-tasks",
                               "\"%.100s\" is no name of a task: expected 1 to %d characters, without / and "
                               "blanks, no . in front",
                               names[t], TRS_TASK_NAME - 1));
    for (int k = 0; k < t; k++)
      if (strcasecmp(names[k], names[t]) == 0) /* options ignore the case of names */
        PetscCall(
            TrsOptionError(options, "-tasks", "\"%s\" is listed twice%s", names[t],
                           strcmp(names[k], names[t]) ? ", where small and capital letters are one" : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If -tasks is not given, reject settings for tasks, because they would have no effect. Default
  values are allowed, because a model's option file contains them.
*/
static PetscErrorCode check_unnamed(TrsOptions options)
{
  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(task_options) / sizeof(task_options[0]); i++) {
    const TrsOptionSpec *key = &task_options[i];
    double number = 1;
    char name[32];
    int word = 0;

    snprintf(name, sizeof(name), "-tasks_%s", key->name);
    if (!TrsOptionsIsGiven(options, name)) continue;
    if (key->type == TRS_OPTION_ENUM) PetscCall(TrsOptionsGetEnum(options, name, &word, NULL));
    if (key->type == TRS_OPTION_REAL) PetscCall(TrsOptionsGetReal(options, name, &number, NULL));
    if (!key->fallback || word != TRS_LOSS_BCE || number != 1)
      PetscCall(TrsOptionError(options, name, "there are no tasks: give their names with -tasks"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the full name of a task's key. */
static PetscErrorCode name_of(TrsOptions options, const TrsTaskConfig *task, const char *key,
                              const char **name)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionsObjectName(options, "task", task->name, key, name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the loss and its numbers. If a number is given for a task with another loss, raise an error.
*/
static PetscErrorCode read_loss(TrsOptions options, TrsTaskConfig *task)
{
#define LABELS_OF(KIND, word, labels) TRS_LABEL_##labels,
#define WORD_OF(KIND, word, labels)   #word,
  static const TrsLabelKind labels[] = {TRS_LOSSES(LABELS_OF)};
  static const char *const words[] = {TRS_LOSSES(WORD_OF)};
  static const struct {
    const char *key;
    TrsLossKind loss;
  } owned[] = {{"classes", TRS_LOSS_SOFTMAX}, {"pos_weight", TRS_LOSS_BCE}, {"huber_delta", TRS_LOSS_HUBER}};
  const char *name;
  int64_t classes = 0;
  int loss;

  PetscFunctionBegin;
  PetscCall(name_of(options, task, "loss", &name));
  PetscCall(TrsOptionsGetEnum(options, name, &loss, NULL));
  task->loss = (TrsLossKind)loss;
  task->labels = labels[loss];
  PetscCall(name_of(options, task, "pos_weight", &name));
  PetscCall(TrsOptionsGetReal(options, name, &task->pos_weight, NULL));
  PetscCall(name_of(options, task, "huber_delta", &name));
  PetscCall(TrsOptionsGetReal(options, name, &task->huber_delta, NULL));
  PetscCall(name_of(options, task, "classes", &name));
  PetscCall(TrsOptionsGetInt(options, name, &classes, NULL));
  task->classes = task->loss == TRS_LOSS_SOFTMAX ? (int)classes : 1;
  if (task->classes == 0)
    PetscCall(TrsOptionError(options, name, "task \"%s\" has loss softmax: give the number of its classes",
                             task->name));
  for (int i = 0; i < 3; i++) {
    PetscCall(name_of(options, task, owned[i].key, &name));
    if (strncmp(name, "-tasks_", 7) == 0 || owned[i].loss == task->loss) continue;
    if (TrsOptionsIsGiven(options, name))
      PetscCall(TrsOptionError(options, name, "task \"%s\" has loss %s, which takes no %s", task->name,
                               words[loss], owned[i].key));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_arch(TrsOptions options, int n_over, const int64_t *over_arch, TrsTaskConfig *task)
{
  const int64_t *sizes = over_arch;
  const char *name = NULL;
  PetscBool set = PETSC_FALSE;

  PetscFunctionBegin;
  task->n_arch = n_over;
  if (task->name) {
    PetscCall(name_of(options, task, "arch", &name));
    PetscCall(TrsOptionsGetInts(options, name, &task->n_arch, &sizes, &set));
    if (!task->n_arch) task->n_arch = n_over;
    if (!sizes) sizes = over_arch;
  }
  PetscCall(PetscMalloc1((size_t)task->n_arch, &task->arch));
  PetscCall(PetscArraycpy(task->arch, sizes, (size_t)task->n_arch));
  if (sizes == over_arch) task->arch[task->n_arch - 1] = task->classes;
  if (task->arch[task->n_arch - 1] != task->classes)
    PetscCall(TrsOptionError(options, name,
                             "the last layer of task \"%s\" has size %" PRId64
                             ", it must be %d, the outputs of its loss",
                             task->name, task->arch[task->n_arch - 1], task->classes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskConfigsFromOptions(TrsOptions options, int n_over, const int64_t *over_arch,
                                         TrsTaskConfigs *tasks)
{
  const char *const *names = NULL, *name;
  int n = 0;

  PetscFunctionBegin;
  *tasks = (TrsTaskConfigs){.n = 1};
  PetscCall(TrsOptionsGetStrings(options, "-tasks", &n, &names, NULL));
  tasks->named = (PetscBool)(n > 0);
  if (n) tasks->n = n;
  PetscCall(check_names(options, n, names));
  PetscCall(TrsOptionsCheckObjects(options, "task", n, names));
  if (!n) PetscCall(check_unnamed(options));
  PetscCall(PetscCalloc1((size_t)tasks->n, &tasks->task));
  for (int t = 0; t < tasks->n; t++) {
    TrsTaskConfig *task = &tasks->task[t];

    *task = (TrsTaskConfig){.name = n ? names[t] : NULL, .classes = 1, .weight = 1, .pos_weight = 1};
    if (n) {
      PetscCall(name_of(options, task, "label", &name));
      PetscCall(TrsOptionsGetString(options, name, &task->label, NULL));
      PetscCall(name_of(options, task, "weight", &name));
      PetscCall(TrsOptionsGetReal(options, name, &task->weight, NULL));
      PetscCall(read_loss(options, task));
    }
    PetscCall(read_arch(options, n_over, over_arch, task));
    task->column = tasks->columns;
    tasks->columns += task->classes;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskConfigsFree(TrsTaskConfigs *tasks)
{
  PetscFunctionBegin;
  for (int t = 0; tasks->task && t < tasks->n; t++) PetscCall(PetscFree(tasks->task[t].arch));
  PetscCall(PetscFree(tasks->task));
  *tasks = (TrsTaskConfigs){.n = 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
