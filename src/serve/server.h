/* SPDX-License-Identifier: BSD-3-Clause */
/* The program trshard-serve. */
#pragma once

/*
  The main() of trshard-serve: read the options, serve until SIGTERM or SIGINT comes, and then
  answer the requests that have come. MPI is not started. Returns the exit status, as trshard does.
*/
int TrsServeMain(int argc, char **argv);
