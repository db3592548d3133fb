/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests a check in a child process: the check raises an error, the child crashes, the child computes
  without end, or a stop request comes during the wait.
*/
#include "core/start.h"
#include "io/preflight.h"
#include "trs_test.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static PetscErrorCode is_good(void *context)
{
  *(int *)context = 7; /* changes memory only in the child */
  return PETSC_SUCCESS;
}

static PetscErrorCode is_bad(void *context)
{
  PetscFunctionBegin;
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "number %d", *(const int *)context);
}

static PetscErrorCode crashes(void *context)
{
  (void)context;
  (void)raise(SIGSEGV);
  return PETSC_SUCCESS;
}

static PetscErrorCode is_killed(void *context)
{
  (void)context;
  (void)raise(SIGKILL);
  return PETSC_SUCCESS;
}

static PetscErrorCode computes_for_ever(void *context)
{
  volatile int *number = context;

  while (*number >= 0) *number = 1;
  return PETSC_SUCCESS;
}

static PetscErrorCode waits_for_ever(void *context)
{
  while (!context) (void)pause();
  return PETSC_SUCCESS;
}

static void test_verdicts(void **state)
{
  int number = 5;

  (void)state;
  assert_petsc_ok(TrsPreflight("file", is_good, &number));
  assert_int_equal(number, 5);
  assert_petsc_error(TrsPreflight("file", is_bad, &number), TRS_ERR_NO_INPUT);
  assert_petsc_error(TrsPreflight("file", crashes, NULL), TRS_ERR_DATA);
  assert_petsc_error(TrsPreflight("file", is_killed, NULL), TRS_ERR_MEMORY);
}

static void test_endless(void **state)
{
  int number = 5;

  (void)state;
  assert_petsc_error(TrsPreflight("file", computes_for_ever, &number), TRS_ERR_DATA);
}

static void ask_to_stop(int signal)
{
  (void)signal;
  trs_stop_requested = 1;
}

/* Install signal handlers after which system calls restart, as session/signals.c does. */
static void test_stop(void **state)
{
  const struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
  const struct itimerval soon = {.it_value = {0, 300000}};

  (void)state;
  assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
  assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
  assert_petsc_error(TrsPreflight("file", waits_for_ever, NULL), TRS_ERR_STOPPED);
  trs_stop_requested = 0;
}

TRS_TEST_MAIN(cmocka_unit_test(test_verdicts), cmocka_unit_test(test_endless), cmocka_unit_test(test_stop))
