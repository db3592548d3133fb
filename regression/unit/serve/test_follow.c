/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that a server takes from the folders that it follows. */
#include "scratch_folder.h"
#include "serve/follow.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Write a file of the folder, with n bytes. */
static void put(const char *name, int n)
{
  FILE *file;

  snprintf(path, sizeof(path), "%s/%s", folder, name);
  file = fopen(path, "w");
  assert_non_null(file);
  for (int i = 0; i < n; i++) assert_int_equal(fputc('x', file), 'x');
  assert_int_equal(fclose(file), 0);
}

static void discard(const char *name)
{
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  assert_int_equal(unlink(path), 0);
}

/* Check the file that a look for a checkpoint finds; NULL: none. */
static void check_look(TrsServeFollow *follow, const char *name)
{
  char *found = NULL;

  assert_petsc_ok(TrsServeFollowLook(follow, &found));
  if (!name) assert_null(found);
  if (name) assert_non_null(found);
  if (name) assert_string_equal(found + strlen(folder) + 1, name);
  assert_petsc_ok(PetscFree(found));
}

/*
  A checkpoint that could not be opened is found again when the folder changes, after any number of
  looks.
*/
static void test_failed_checkpoint(void **state)
{
  /* above the resolution of a file's times */
  static const struct timespec tick = {.tv_nsec = 50000000};
  TrsServeFollow follow = {.folder = folder};

  (void)state;
  check_look(&follow, NULL);
  put("step-000000006.h5", 6);
  nanosleep(&tick, NULL);
  check_look(&follow, "step-000000006.h5");
  follow.last_failed = PETSC_TRUE;
  for (int i = 0; i < 3; i++) check_look(&follow, NULL);
  nanosleep(&tick, NULL);
  put("step-000000004.h5", 4);
  check_look(&follow, "step-000000006.h5");
  follow.last_failed = PETSC_FALSE;
  nanosleep(&tick, NULL);
  put("step-000000005.h5", 5);
  check_look(&follow, NULL);
  discard("step-000000004.h5");
  discard("step-000000005.h5");
  discard("step-000000006.h5");
}

static double now(void)
{
  struct timespec t;

  assert_int_equal(clock_gettime(CLOCK_REALTIME, &t), 0);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
  A file that comes just after a look may leave the folder's time as it is, because this time has a
  resolution. A checkpoint that could not be opened is then found again, too, and after a while no
  longer. On a busy machine the look may come too late for this, so there are several tries.
*/
static void test_failed_in_one_tick(void **state)
{
  static const struct timespec tick = {.tv_nsec = 50000000};
  const double end_s = now() + 60;
  PetscBool in_time;

  (void)state;
  do {
    TrsServeFollow follow = {.folder = folder};
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    struct stat before;
    double begin_s;
    char *again;

    nanosleep(&tick, NULL);
    begin_s = now();
    put("step-000000006.h5", 6);
    check_look(&follow, "step-000000006.h5");
    follow.last_failed = PETSC_TRUE;
    in_time = (PetscBool)(now() - begin_s < 0.01);
    assert_int_equal(stat(folder, &before), 0);
    times[1] = before.st_mtim;
    put("step-000000004.h5", 4);
    assert_int_equal(utimensat(AT_FDCWD, folder, times, 0), 0);
    if (in_time) check_look(&follow, "step-000000006.h5");
    nanosleep(&tick, NULL);
    /* the look before may have been early, too */
    assert_petsc_ok(TrsServeFollowLook(&follow, &again));
    assert_petsc_ok(PetscFree(again));
    for (int i = 0; i < 3; i++) check_look(&follow, NULL);
    discard("step-000000004.h5");
    discard("step-000000006.h5");
  } while (!in_time && now() < end_s);
  assert_true(in_time);
}

/* Check the delta that is found after a step, and its state; NULL: none. */
static void check_next(TrsServeDeltas *deltas, int64_t step, const char *name, TrsServeDeltaState wanted)
{
  TrsServeDeltaState state;
  char *found = NULL;

  assert_petsc_ok(TrsServeDeltasNext(deltas, step, &found, &state));
  if (!name) assert_null(found);
  if (name) assert_string_equal(found + strlen(folder) + 1, name);
  assert_int_equal(state, wanted);
  assert_petsc_ok(PetscFree(found));
}

/* A delta that failed is found again, and one that was refused only if it is another file. */
static void test_states_of_deltas(void **state)
{
  static const char name[] = "step-000000003.h5";
  TrsServeDeltas deltas = {.folder = folder};

  (void)state;
  check_next(&deltas, 2, NULL, TRS_SERVE_DELTA_NEW);
  put(name, 3);
  check_next(&deltas, 3, NULL, TRS_SERVE_DELTA_NEW);
  check_next(&deltas, 2, name, TRS_SERVE_DELTA_NEW);
  TrsServeDeltasNote(&deltas, TRS_SERVE_DELTA_FAILED);
  check_next(&deltas, 2, name, TRS_SERVE_DELTA_FAILED);
  TrsServeDeltasNote(&deltas, TRS_SERVE_DELTA_REFUSED);
  check_next(&deltas, 2, NULL, TRS_SERVE_DELTA_REFUSED);
  /* a file that replaces another one while this one is tried is not refused with it */
  put(name, 4);
  check_next(&deltas, 2, name, TRS_SERVE_DELTA_NEW);
  put(name, 5);
  TrsServeDeltasNote(&deltas, TRS_SERVE_DELTA_REFUSED);
  check_next(&deltas, 2, name, TRS_SERVE_DELTA_NEW);
  TrsServeDeltasNote(&deltas, TRS_SERVE_DELTA_REFUSED);
  check_next(&deltas, 2, NULL, TRS_SERVE_DELTA_REFUSED);
  TrsServeDeltasRestart(&deltas);
  check_next(&deltas, 2, name, TRS_SERVE_DELTA_NEW);
  discard(name);
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_failed_checkpoint), cmocka_unit_test(test_failed_in_one_tick),
                        cmocka_unit_test(test_states_of_deltas))
