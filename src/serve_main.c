/* SPDX-License-Identifier: BSD-3-Clause */
/* trshard-serve is one process on top of the library's predictor. serve/server.c does its work. */
#include "serve/server.h"

int main(int argc, char **argv)
{
  return TrsServeMain(argc, argv);
}
