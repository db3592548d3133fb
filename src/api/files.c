/* SPDX-License-Identifier: BSD-3-Clause */
/* A collection's tables and the caller's tensors in checkpoints. */
#include "api/impl.h"
#include "io/checkpoint/checkpoint.h"
#include "spec/table_names.h"

#include <inttypes.h>
#include <string.h>

enum { TRS_MAX_PATH = 512 };

/*
  Check that the names of the tensors differ, and that their paths in the file fit into TRS_MAX_PATH
  bytes.
*/
static PetscErrorCode check_names(int32_t n, const TrshardTensor *tensors)
{
  const char **names, *twice;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n, &names));
  for (int32_t i = 0; i < n; i++) names[i] = tensors[i].name ? tensors[i].name : "";
  PetscCall(TrsNamesFindTwice(n, names, &twice));
  PetscCall(PetscFree(names));
  PetscCheck(!twice, PETSC_COMM_SELF, TRS_ERR_OPTION, "tensors: \"%s\" is there twice", twice);
  for (int32_t i = 0; i < n; i++)
    PetscCheck(!tensors[i].name || strlen(tensors[i].name) < TRS_MAX_PATH - sizeof("dense/"), PETSC_COMM_SELF,
               TRS_ERR_OPTION, "tensors[%" PRId32 "]: a name of %zu bytes, expected fewer than %d", i,
               strlen(tensors[i].name), TRS_MAX_PATH - (int)sizeof("dense/"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append the caller's tensors to the list that already has the tables' tensors. */
static PetscErrorCode add_tensors(TrsState *state, int32_t n, const TrshardTensor *tensors)
{
  char path[TRS_MAX_PATH];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(check_names(n, tensors));
  for (int32_t i = 0; i < n; i++) {
    const TrshardTensor *from = &tensors[i];

    PetscCheck(from->name && from->name[0] && from->data &&
                   (from->ndim == 2 || (from->ndim == 1 && from->cols == 1)) && from->rows > 0 &&
                   from->cols > 0,
               PETSC_COMM_SELF, TRS_ERR_OPTION,
               "tensors[%" PRId32 "], \"%s\": %" PRId32 " dimensions, %" PRId64 " x %" PRId64
               ", expected a name, data, and 1 (cols 1) or 2 dimensions",
               i, from->name ? from->name : "", from->ndim, from->rows, from->cols);
    PetscCall(PetscSNPrintf(path, sizeof(path), "dense/%s", from->name));
    PetscCall(TrsStateAdd(state, path, TRS_FP32, from->ndim, from->rows, from->cols, &tensor));
    tensor->replicated = PETSC_TRUE;
    PetscCall(TrsStateAddPart(tensor, 0, 0, from->rows, from->cols, from->data, from->cols));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  List the tensors of a checkpoint: the tables' and the caller's. An error if a batch is under way.
*/
static PetscErrorCode list(TrshardCollection c, int32_t n, const TrshardTensor *tensors, TrsState *state)
{
  PetscFunctionBegin;
  PetscCheck(n == 0 || (n > 0 && tensors), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "tensors is NULL, or n_tensors %" PRId32 " is below 0", n);
  PetscCheck(c->n_started == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%d batches are under way, expected their TrshardBackward before files", c->n_started);
  PetscCall(TrsShardedEbcAddState(c->ebc, c->stream, NULL, state));
  PetscCall(TrsAgree(c->comm, add_tensors(state, n, tensors)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode save(TrshardCollection c, const char *path, const TrsState *state)
{
  TrsCheckpointInfo info = {.step = c->step, .run_step = c->step};
  char *options, *plan;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsOptionsText(c->options, &options));
  PetscCall(TrsShardingPlanToJson(&c->plan, &plan));
  info.options = options;
  info.plan = plan;
  info.mapping = c->of_data.text ? c->of_data.text : c->of_file.text;
  ierr = TrsCheckpointWrite(c->comm, path, state, &info);
  PetscCall(PetscFree(options));
  PetscCall(PetscFree(plan));
  PetscFunctionReturn(ierr);
}

/* Refuse a file without the states of the tables' optimizers, unless the file is of step 0. */
static PetscErrorCode check_states(const char *path, int64_t step, const TrsState *state)
{
  PetscFunctionBegin;
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *tensor = &state->tensor[i];

    if (tensor->was_read || !tensor->optimizer) continue;
    PetscCheck(!tensor->other_optimizer[0], PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /%s is of optimizer %s, the collection's table has %s, expected the same", path,
               tensor->path, tensor->other_optimizer, tensor->optimizer);
    PetscCheck(step == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s lacks /%s, a state of optimizer %s, at step %" PRId64
               ": expected the optimizer that the table had in the file",
               path, tensor->path, tensor->optimizer, step);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode load(TrshardCollection c, const char *path, const TrsState *state)
{
  TrsCheckpointInfo info;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointRead(c->comm, path, state, &info));
  c->step = info.step;
  ierr = check_states(path, info.step, state);
  if (ierr == PETSC_SUCCESS)
    ierr = TrsApiKeepMapping(c, &(TrsMapping){.path = path, .text = info.mapping_read}, &c->of_file);
  PetscCall(TrsCheckpointInfoFree(&info));
  PetscFunctionReturn(ierr);
}

/* List the tensors, save or load them, and free the list even after an error. */
static PetscErrorCode with_list(TrshardCollection c, const char *path, int32_t n,
                                const TrshardTensor *tensors,
                                PetscErrorCode (*body)(TrshardCollection, const char *, const TrsState *))
{
  TrsState state = {.n = 0};
  PetscErrorCode ierr = TrsApiGiven(path, "TrshardSave or TrshardLoad", "path");

  if (ierr == PETSC_SUCCESS) ierr = list(c, n, tensors, &state);
  if (ierr == PETSC_SUCCESS) ierr = body(c, path, &state);
  (void)TrsStateFree(&state);
  return ierr;
}

int TrshardSave(TrshardCollection c, const char *path, int32_t n_tensors, const TrshardTensor *tensors)
{
  return TRS_API_CALL_OF(c, with_list(c, path, n_tensors, tensors, save));
}

int TrshardLoad(TrshardCollection c, const char *path, int32_t n_tensors, const TrshardTensor *tensors)
{
  return TRS_API_CALL_OF(c, with_list(c, path, n_tensors, tensors, load));
}
