/* SPDX-License-Identifier: BSD-3-Clause */
/*
  trshard is one SPMD binary over its own library: run/program.c starts MPI and PETSc, reads the
  options, runs the task and ends with a documented exit status on every rank.
*/
#include "api/trshard.h"

int main(int argc, char **argv)
{
  return TrshardMain(argc, argv);
}
