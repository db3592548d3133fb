/* SPDX-License-Identifier: BSD-3-Clause */
/*
  trshard is one SPMD binary over its own library: run/program.c starts MPI and PETSc, reads the
  options, runs the task and ends with a documented exit status on every rank.
*/
#include "api/trshard.h"

#include <signal.h>
#include <stddef.h>

static struct sigaction hangup; /* what the program was started with */

static void look_at_hangup(void)
{
  (void)sigaction(SIGHUP, NULL, &hangup);
}

/*
  UCX takes SIGHUP for its debugger when it is loaded, which is before main() where Open MPI links
  it. This function runs before that. Otherwise a run under nohup would stop with its terminal.
*/
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = look_at_hangup;

int main(int argc, char **argv)
{
  if (hangup.sa_handler == SIG_IGN) (void)sigaction(SIGHUP, &hangup, NULL);
  return TrshardMain(argc, argv);
}
