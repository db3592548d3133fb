/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A model of our own on libtrshard's tables: logistic regression on the sum of two pooled embeddings.

    mpicc train.c $(pkg-config --cflags --libs trshard) -lm -o train
    mpirun -n 2 ./train

  The data is synthetic: user u likes item i if u + i is even, so rows must learn their parity. Every
  rank takes its part of each global batch of 256 samples.
*/
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <trshard.h>

enum { USERS = 1000, ITEMS = 500, DIM = 16, GLOBAL_BATCH = 256, STEPS = 400 };

static void check(int status)
{
  if (status == TRSHARD_SUCCESS) return;
  fprintf(stderr, "train: %s\n", TrshardErrorMessage());
  MPI_Abort(MPI_COMM_WORLD, status);
}

/* The ids and labels of this rank's samples of a step: feature after feature, one id a sample. */
static void make_batch(int step, int rank, int n, int64_t *ids, float *labels)
{
  for (int i = 0; i < n; i++) {
    const uint64_t sample = (uint64_t)step * GLOBAL_BATCH + (uint64_t)(rank * n + i);
    const uint64_t random = sample * 0x9e3779b97f4a7c15U ^ (sample * 0xbf58476d1ce4e5b9U >> 29);

    ids[i] = (int64_t)((random >> 20) % USERS);
    ids[n + i] = (int64_t)((random >> 40) % ITEMS);
    labels[i] = (float)((ids[i] + ids[n + i] + 1) % 2);
  }
}

int main(int argc, char **argv)
{
  const TrshardTable tables[2] = {{.name = "user", .num_embeddings = USERS, .embedding_dim = DIM},
                                  {.name = "item", .num_embeddings = ITEMS, .embedding_dim = DIM}};
  TrshardConfig config = {.n_tables = 2, .tables = tables,
                          .options = "-embedding_optimizer adagrad -embedding_learning_rate 0.3 "
                                     "-tables_init_fn normal -tables_init_std 0.3"};
  TrshardCollection collection;
  TrshardBatch batch = {0};
  int provided, rank, size, n;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  config.batch_size = batch.batch = n = GLOBAL_BATCH / size;
  check(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &collection));

  int64_t *ids = malloc(2 * (size_t)n * sizeof(*ids));
  int32_t *lengths = malloc(2 * (size_t)n * sizeof(*lengths));
  float *labels = malloc((size_t)n * sizeof(*labels)), *next = malloc((size_t)n * sizeof(*next));
  float *pooled = malloc(2 * (size_t)n * DIM * sizeof(*pooled));

  for (int i = 0; i < 2 * n; i++) lengths[i] = 1;
  batch.lengths = lengths;
  batch.values = ids;
  batch.n_values = 2 * n;
  make_batch(0, rank, n, ids, labels);
  check(TrshardInputDist(collection, &batch));
  for (int step = 0; step < STEPS; step++) {
    double loss = 0;

    if (step + 1 < STEPS) { /* the next batch's ids are sent while this batch is computed */
      make_batch(step + 1, rank, n, ids, next);
      check(TrshardInputDist(collection, &batch));
    }
    check(TrshardForward(collection, pooled, 2 * DIM));
    for (int i = 0; i < n; i++) { /* logit = user . item; the gradient overwrites the embeddings */
      float *user = pooled + 2 * i * DIM, *item = user + DIM;
      double logit = 0, error;

      for (int d = 0; d < DIM; d++) logit += (double)(user[d] * item[d]);
      loss += log1p(exp(labels[i] > 0.5F ? -logit : logit));
      error = (1 / (1 + exp(-logit)) - (double)labels[i]) / GLOBAL_BATCH;
      for (int d = 0; d < DIM; d++) {
        const float u = user[d];

        user[d] = (float)error * item[d];
        item[d] = (float)error * u;
      }
    }
    check(TrshardBackward(collection, pooled, 2 * DIM));
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && (step + 1) % 100 == 0) printf("step %d loss %.4f\n", step + 1, loss / GLOBAL_BATCH);
    for (int i = 0; i < n; i++) labels[i] = next[i];
  }
  check(TrshardSave(collection, "train.h5", 0, NULL));
  check(TrshardCollectionDestroy(&collection));
  free(ids), free(lengths), free(labels), free(next), free(pooled);
  MPI_Finalize();
  return 0;
}
