/* SPDX-License-Identifier: BSD-3-Clause */
/*
  trshard is one SPMD program on top of its own library. run/program.c starts MPI and PETSc, reads
  the options, runs the task, and ends with a documented exit status on every rank.
*/
#include "api/trshard.h"

#include <signal.h>
#include <stddef.h>

static struct sigaction hangup; /* the SIGHUP action when the program was started */

static void look_at_hangup(void)
{
  (void)sigaction(SIGHUP, NULL, &hangup);
}

/*
  Note the SIGHUP action before libraries are loaded, so that main() can restore it. UCX installs a
  SIGHUP handler for its debugger when it is loaded. If Open MPI links UCX, this happens before
  main(). Without the restored action, a run under nohup would stop when its terminal closes.
*/
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = look_at_hangup;

int main(int argc, char **argv)
{
  if (hangup.sa_handler == SIG_IGN) (void)sigaction(SIGHUP, &hangup, NULL);
  return TrshardMain(argc, argv);
}
