/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/checkpoint_model.h"

#include <inttypes.h>
#include <stdio.h>

PetscErrorCode TrsCheckpointModelTake(MPI_Comm comm, TrsOptions options, const char *path)
{
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointModel(comm, path, &text));
  PetscCall(TrsOptionsTakeModel(options, path, text));
  if (!text)
    PetscCall(PetscPrintf(comm,
                          "%-10s %s does not hold its model, as files of earlier versions or other programs: "
                          "the options must give it\n",
                          "model", path));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointModelCheckData(const TrsSession *session)
{
  const char *path = TrsOptionsModelOf(session->options, "-num_dense");
  const TrsDatasetInfo *info;
  int64_t num_dense;

  PetscFunctionBegin;
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetInt(session->options, "-num_dense", &num_dense, NULL));
  PetscCall(TrsDatasetGetInfo(session->eval, &info));
  PetscCheck(info->num_dense == num_dense, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: %d dense features, the model of %s takes %" PRId64 " (-data_dense chooses them)",
             info->path, info->num_dense, path, num_dense);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointModelText(const TrsSession *session, char **text)
{
  const TrsTableConfigs *tables = &session->tables;
  const TrsDatasetInfo *info;
  const TrsTaskConfigs *tasks = &session->tasks;
  TrsOptionObjects objects[2] = {{.object = "table"}, {.object = "task", .n = tasks->named ? tasks->n : 0}};
  const char **names, **task_names;
  char num_dense[32];

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->train ? session->train : session->eval, &info));
  snprintf(num_dense, sizeof(num_dense), "%d", info->num_dense);
  PetscCall(TrsOptionsSettle(session->options, "-num_dense", num_dense));
  if (session->label && !tasks->named)
    PetscCall(TrsOptionsSettle(session->options, "-data_label", session->label));
  PetscCall(PetscMalloc2((size_t)tables->n, &names, (size_t)tasks->n, &task_names));
  for (int t = 0; t < tables->n; t++) /* a remainder table has the options of its quotient table */
    if (tables->table[t].id_map.kind != TRS_ID_MAP_REMAINDER)
      names[objects[0].n++] = TrsTableOptionName(&tables->table[t]);
  for (int t = 0; t < tasks->n; t++) task_names[t] = tasks->task[t].name;
  objects[0].names = names;
  objects[1].names = task_names;
  PetscCall(TrsOptionsModelText(session->options, 2, objects, text));
  PetscCall(PetscFree2(names, task_names));
  PetscFunctionReturn(PETSC_SUCCESS);
}
