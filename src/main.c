/* SPDX-License-Identifier: BSD-3-Clause */
/*
  trshard is one SPMD program on top of its own library: run/program.c starts MPI and PETSc, reads
  the options, runs the task and ends with a documented exit status on every rank.
*/
#include "api/trshard.h"

#include <signal.h>
#include <stddef.h>

static struct sigaction hangup; /* the signal's handling when the program was started */

static void look_at_hangup(void)
{
  (void)sigaction(SIGHUP, NULL, &hangup);
}

/*
  UCX installs a SIGHUP handler for its debugger when it is loaded, which happens before main() if
  Open MPI links it. This function runs earlier still. Otherwise a run under nohup would stop with
  its terminal.
*/
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = look_at_hangup;

int main(int argc, char **argv)
{
  if (hangup.sa_handler == SIG_IGN) (void)sigaction(SIGHUP, &hangup, NULL);
  return TrshardMain(argc, argv);
}
