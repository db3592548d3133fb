/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Tests the places of files in a chain of deltas: their attributes, the ids of files, and the
  removal of deltas whose steps are made again.
*/
#include "io/checkpoint/checkpoint.h"
#include "scratch_folder.h"

#include <string.h>
#include <unistd.h>

static const char run_id[] = "00000000000000ab", base_id[] = "0123456789abcdef";
static const TrsRunWait no_wait = {.seconds = 0};

/* A state of one tensor that all ranks have. */
static void make_state(float value, TrsState *state)
{
  static float data[4];
  TrsStateTensor *tensor;

  for (int i = 0; i < 4; i++) data[i] = value + (float)i;
  *state = (TrsState){.n = 0};
  assert_petsc_ok(TrsStateAdd(state, "dense/over_arch/0/bias", TRS_FP32, 1, 4, 1, &tensor));
  tensor->replicated = PETSC_TRUE;
  assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 4, 1, data, 1));
}

static TrsCheckpointInfo info_of(int64_t step, PetscBool is_delta)
{
  TrsCheckpointInfo info = {.step = step, .is_delta = is_delta};

  info.place = (TrsDeltaPlace){.base_step = 3, .number = 5, .step = 40};
  strcpy(info.run_id, run_id);
  strcpy(info.place.base, base_id);
  strcpy(info.place.id, "00000000000000cd");
  return info;
}

/* A checkpoint keeps its place. A file without a place is in no chain. */
static void test_place(void **unused)
{
  TrsCheckpointInfo info = info_of(44, PETSC_FALSE), found;
  TrsState state;

  (void)unused;
  make_state(1.0F, &state);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &state, &found));
  assert_string_equal(found.place.base, base_id);
  assert_string_equal(found.place.id, "00000000000000cd");
  assert_int_equal(found.place.base_step, 3);
  assert_int_equal(found.place.number, 5);
  assert_int_equal(found.place.step, 40);
  assert_petsc_ok(TrsCheckpointInfoFree(&found));
  info.place = (TrsDeltaPlace){.number = 0};
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &state, &found));
  assert_string_equal(found.place.base, "");
  assert_petsc_ok(TrsCheckpointInfoFree(&found));
  assert_petsc_ok(TrsStateFree(&state));
}

/* A delta is never read as a checkpoint. */
static void test_delta_is_no_checkpoint(void **unused)
{
  const TrsCheckpointInfo info = info_of(50, PETSC_TRUE);
  TrsCheckpointInfo found;
  TrsState state;

  (void)unused;
  make_state(1.0F, &state);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, path, &state, &found), TRS_ERR_DATA);
  assert_non_null(strstr(TrsErrorMessage(), "is a delta"));
  TrsErrorClear();
  assert_petsc_ok(TrsStateFree(&state));
}

/* The id depends on the tensors' numbers alone, and all ranks get it. */
static void test_id(void **unused)
{
  char id[4][TRS_FILE_ID_SIZE], all[TRS_FILE_ID_SIZE];

  (void)unused;
  for (int i = 0; i < 4; i++) {
    TrsCheckpointInfo info = info_of(i, (PetscBool)(i % 2));
    char written[TRS_FILE_ID_SIZE] = "";
    TrsState state;

    info.id = written;
    make_state(i < 2 ? 1.0F : 2.0F, &state);
    assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
    assert_petsc_ok(TrsCheckpointId(MPI_COMM_WORLD, path, id[i]));
    assert_petsc_ok(TrsStateFree(&state));
    assert_string_equal(written, id[i]);
    memcpy(all, id[i], sizeof(all));
    MPI_Bcast(all, TRS_FILE_ID_SIZE, MPI_CHAR, 0, MPI_COMM_WORLD);
    assert_string_equal(all, id[i]);
  }
  assert_string_equal(id[0], id[1]);
  assert_string_equal(id[2], id[3]);
  assert_string_not_equal(id[0], id[2]);
}

/* A list without rows is not in the file. */
static PetscErrorCode count_none(void *context, int64_t *rows)
{
  PetscFunctionBegin;
  (void)context;
  rows[0] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_empty_list(void **unused)
{
  const TrsCheckpointInfo info = info_of(50, PETSC_FALSE);
  TrsCheckpointInfo found;
  TrsStateTensor *tensor;
  TrsState state;

  (void)unused;
  make_state(1.0F, &state);
  assert_petsc_ok(TrsStateAdd(&state, "embedding/t/delta/rows", TRS_INT32, 1, 0, 1, &tensor));
  tensor->count = count_none;
  tensor->n_units = 1;
  tensor->optional = PETSC_TRUE;
  assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 0, 1, NULL, 1));
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &state, &found));
  assert_true(state.tensor[0].was_read);
  assert_false(state.tensor[1].was_read);
  assert_petsc_ok(TrsCheckpointInfoFree(&found));
  assert_petsc_ok(TrsStateFree(&state));
}

static PetscBool has_step(const char *where, int step)
{
  char file[400];

  MPI_Barrier(MPI_COMM_WORLD);
  snprintf(file, sizeof(file), "%s/step-%09d.h5", where, step);
  return (PetscBool)(access(file, F_OK) == 0);
}

/* The run's deltas after a step are removed, others stay. A new run does not take the folder. */
static void test_cut(void **unused)
{
  TrsCheckpointFolder f;
  char where[300];
  TrsState state;

  (void)unused;
  snprintf(where, sizeof(where), "%s/deltas", folder);
  make_state(1.0F, &state);
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_deltas, 100, &no_wait, &f));
  for (int step = 10; step <= 50; step += 10) {
    const TrsCheckpointInfo info = info_of(step, PETSC_TRUE);

    assert_petsc_ok(TrsCheckpointFolderWrite(f, &state, &info));
  }
  assert_petsc_ok(TrsCheckpointFolderClose(&f));
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_deltas, 100, &no_wait, &f));
  assert_petsc_error(TrsCheckpointFolderClaim(f, PETSC_FALSE, NULL), TRS_ERR_CANT_CREATE);
  assert_non_null(strstr(TrsErrorMessage(), "take another -delta_dir"));
  TrsErrorClear();
  assert_petsc_ok(TrsCheckpointFolderClaim(f, PETSC_TRUE, NULL));
  assert_string_equal(TrsCheckpointFolderRun(f), run_id);
  assert_petsc_ok(TrsCheckpointFolderCut(f, "00000000000000ff", 0));
  assert_true(has_step(where, 50));
  MPI_Barrier(MPI_COMM_WORLD);
  assert_petsc_ok(TrsCheckpointFolderCut(f, run_id, 30));
  assert_true(has_step(where, 30));
  assert_false(has_step(where, 40) || has_step(where, 50));
  assert_petsc_ok(TrsCheckpointFolderClose(&f));
  assert_petsc_ok(TrsStateFree(&state));
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_place), cmocka_unit_test(test_delta_is_no_checkpoint),
                        cmocka_unit_test(test_id), cmocka_unit_test(test_empty_list),
                        cmocka_unit_test(test_cut))
