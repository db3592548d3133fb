/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Whole runs of trshard inside a program, and handles for callers without mpi.h.

    mpicc runs.c $(pkg-config --cflags --libs trshard) -o runs
    mpirun -n 2 ./runs "-data_train train.h5 -dense_arch 16,8 -over_arch 16,1 -tables_embedding_dim 8"
    ./runs -version               other arguments: it is the program trshard

  The first run makes 20 steps. The second run continues from its checkpoint, and is asked to stop
  before its first step, as Ctrl-C would do. The library starts MPI, which ends with the process.
*/
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <trshard.h>

static int fail(int status)
{
  fprintf(stderr, "runs: %s\n", TrshardErrorMessage());
  return status;
}

static void stop(int number)
{
  (void)number;
  TrshardRequestStop(); /* a signal handler may call it */
}

int main(int argc, char **argv)
{
  const TrshardTable table = {.name = "user", .num_embeddings = 100, .embedding_dim = 4};
  const TrshardConfig config = {.n_tables = 1, .tables = &table, .batch_size = 8};
  TrshardCollection collection;
  char words[4096];
  int world, status;

  if (argc != 2 || argv[1][0] != '-' || !strchr(argv[1], ' ')) return TrshardMain(argc, argv);
  if (TrshardWorld(&world)) return fail(1); /* starts MPI, and returns its world's Fortran handle */

  snprintf(words, sizeof(words), "%s -steps 20 -checkpoint_dir runs_checkpoints", argv[1]);
  if ((status = TrshardRunFortran(world, words))) return fail(status);

  signal(SIGINT, stop);
  raise(SIGINT);
  snprintf(words, sizeof(words), "%s -steps 40 -checkpoint_dir runs_checkpoints -resume", argv[1]);
  status = TrshardRun(MPI_COMM_WORLD, words);
  if (status != TRSHARD_STOPPED) return status ? fail(status) : 1;
  printf("stopped on request\n");

  if ((status = TrshardCollectionCreateFortran(world, &config, &collection))) return fail(status);
  return TrshardCollectionDestroy(&collection);
}
