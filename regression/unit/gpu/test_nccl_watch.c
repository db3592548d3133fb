/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  The thread that watches calls to NCCL. It aborts a call that takes too long, or during which a
  communicator fails, and no call that ends in time. A clock of the day that is set back does not
  stop it. A set-up that takes too long ends the process.
*/
#include "core/clock.h"
#include "gpu/comm/nccl_watch.h"
#include "trs_test.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/*
  The program's clock of the day is an hour ahead of the system's, as a clock that is set back by an
  hour after it was read.
*/
int clock_gettime(clockid_t clock, struct timespec *now)
{
  static int (*system_clock)(clockid_t, struct timespec *);
  int status;

  if (!system_clock) *(void **)(void *)&system_clock = dlsym(RTLD_NEXT, "clock_gettime");
  status = system_clock(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += 3600;
  return status;
}

static _Atomic int n_aborts, failed;

static PetscBool has_failed(void)
{
  return (PetscBool)(failed != 0);
}

static void abort_all(void)
{
  n_aborts++;
}

/* Wait until the call is aborted, or for at most `limit_s`. Returns the number of aborts. */
static int wait_for_abort(double limit_s)
{
  const double start_s = TrsClock();

  while (n_aborts == 0 && TrsClock() - start_s < limit_s) (void)usleep(1000);
  return n_aborts;
}

static void test_late(void **state)
{
  (void)state;
  assert_petsc_ok(TrsNcclWatchStart(has_failed, abort_all));
  for (int turn = 0; turn < 2; turn++) {
    n_aborts = 0;
    TrsNcclEnter("a call", 0.2, PETSC_TRUE);
    assert_int_equal(wait_for_abort(10), 1);
    (void)usleep(300000); /* it is aborted once */
    assert_int_equal(n_aborts, 1);
    assert_int_equal(TrsNcclLeave(), TRS_NCCL_LATE);
  }
  n_aborts = 0;
  TrsNcclEnter("a call", 60, PETSC_TRUE);
  assert_int_equal(wait_for_abort(0.3), 0);
  assert_int_equal(TrsNcclLeave(), TRS_NCCL_IN_TIME);
  (void)usleep(300000); /* between calls nothing is watched */
  assert_int_equal(n_aborts, 0);
  TrsNcclWatchStop();
}

static void test_failed(void **state)
{
  (void)state;
  assert_petsc_ok(TrsNcclWatchStart(has_failed, abort_all));
  n_aborts = 0;
  failed = 1;
  TrsNcclEnter("a call", 60, PETSC_TRUE);
  assert_int_equal(wait_for_abort(10), 1);
  assert_int_equal(TrsNcclLeave(), TRS_NCCL_FAILED);
  failed = 0;
  TrsNcclWatchStop();
}

static void test_set_up(void **state)
{
  const double start_s = TrsClock();
  int status;
  pid_t child;

  (void)state;
  n_aborts = 0;
  child = fork();
  if (child == 0) {
    (void)TrsNcclWatchStart(has_failed, abort_all);
    TrsNcclEnter("a set-up", 0.2, PETSC_FALSE);
    (void)wait_for_abort(60);
    _exit(1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 69);
  assert_true(TrsClock() - start_s < 15); /* nothing waits for the end of an abort */
}

TRS_TEST_MAIN(cmocka_unit_test(test_late), cmocka_unit_test(test_failed), cmocka_unit_test(test_set_up))
