/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A model of our own on a dataset: logistic regression on the pooled embeddings of all features.

    mpicc dataset.c $(pkg-config --cflags --libs trshard) -lm -o dataset
    mpirun -n 2 ./dataset train.h5 eval.h5 FEATURE ROWS [FEATURE ROWS ...]

  It shows readers, the columns of the features, our own weights beside the tables, a falling learning
  rate, an evaluation, and a checkpoint that is written and read again.
*/
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <trshard.h>

enum { DIM = 8, GLOBAL_BATCH = 240, MOST_FEATURES = 32, EPOCHS = 4 };

typedef struct {
  TrshardCollection tables;
  int64_t width;                     /* columns of a row of pooled embeddings */
  float *pooled;                     /* [batch, width] */
  float weight[MOST_FEATURES * DIM]; /* weights of the columns, the same on all ranks */
} Model;

static void check(int status)
{
  if (status == TRSHARD_SUCCESS) return;
  fprintf(stderr, "dataset: %s\n", TrshardErrorMessage());
  MPI_Abort(MPI_COMM_WORLD, status);
}

/* Sum the losses of a batch. With `learn`, overwrite the embeddings with their gradients. */
static double batch_loss(Model *m, const TrshardSamples *s, double *gradient, int learn)
{
  double loss = 0;

  for (int64_t i = 0; i < s->ids.batch; i++) {
    float *x = m->pooled + i * m->width;
    double logit = 0;

    for (int64_t c = 0; c < m->width; c++) logit += (double)(x[c] * m->weight[c]);
    loss += log1p(exp(s->labels[i] > 0.5F ? -logit : logit));
    if (!learn) continue;
    const double error = (1 / (1 + exp(-logit)) - (double)s->labels[i]) / (double)s->global_batch;
    for (int64_t c = 0; c < m->width; c++) {
      gradient[c] += error * (double)x[c];
      x[c] = (float)error * m->weight[c];
    }
  }
  return loss;
}

/* The mean loss of a dataset in one pass, with or without updates. */
static double pass(Model *m, const char *path, int learn)
{
  TrshardReader reader;
  TrshardSamples samples;
  double sums[2] = {0}; /* sums of losses and of samples */
  int32_t more;

  check(TrshardReaderOpen(m->tables, 1, &path, learn ? "-data_shuffle -seed 1" : NULL, 0, &reader));
  for (check(TrshardReaderNext(reader, &samples, &more)); more;
       check(TrshardReaderNext(reader, &samples, &more))) {
    double gradient[MOST_FEATURES * DIM] = {0};

    if (learn) {
      check(TrshardInputDist(m->tables, &samples.ids));
      check(TrshardForward(m->tables, m->pooled, m->width));
    } else {
      check(TrshardEvaluate(m->tables, &samples.ids, m->pooled, m->width));
    }
    sums[0] += batch_loss(m, &samples, gradient, learn);
    sums[1] += (double)samples.ids.batch;
    if (!learn) continue;
    check(TrshardBackward(m->tables, m->pooled, m->width));
    MPI_Allreduce(MPI_IN_PLACE, gradient, (int)m->width, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int64_t c = 0; c < m->width; c++) m->weight[c] -= 0.1F * (float)gradient[c];
  }
  check(TrshardReaderClose(&reader));
  MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sums[0] / sums[1];
}

int main(int argc, char **argv)
{
  TrshardTable tables[MOST_FEATURES] = {{0}};
  TrshardConfig config = {.tables = tables, .options = "-embedding_learning_rate 0.1 -seed 1"};
  const int64_t *columns;
  const char *plan;
  Model m = {0};
  int rank, size, provided, api;
  int32_t n;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int f = 0; 2 * f + 4 < argc && f < MOST_FEATURES; f++, config.n_tables++)
    tables[f] = (TrshardTable){.name = argv[2 * f + 3],
                               .num_embeddings = atoll(argv[2 * f + 4]),
                               .embedding_dim = DIM,
                               .pooling = TRSHARD_POOLING_MEAN};
  config.batch_size = GLOBAL_BATCH / size;
  check(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &m.tables));
  check(TrshardCollectionColumns(m.tables, &n, &columns, &m.width));
  check(TrshardCollectionPlan(m.tables, &plan));
  if (rank == 0)
    printf("libtrshard %s: %d features, the last from column %d on; plan %.24s...\n", TrshardVersion(&api),
           (int)n, (int)columns[n - 1], plan);
  /* On a GPU, our own stream would order the work. Tables on a CPU refuse it. */
  if (TrshardSetStream(m.tables, NULL) && rank == 0) printf("no stream: %s\n", TrshardErrorMessage());

  m.pooled = malloc((size_t)(config.batch_size * m.width) * sizeof(*m.pooled));
  for (int64_t c = 0; c < m.width; c++) m.weight[c] = 1;
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    check(TrshardSetLearningRateFactor(m.tables, 1.0 / (1 + epoch)));
    const double loss = pass(&m, argv[1], 1);
    if (rank == 0) printf("epoch %d loss %.5f\n", epoch + 1, loss);
  }

  TrshardTensor weight = {.name = "weight", .ndim = 1, .rows = m.width, .cols = 1, .data = m.weight};
  double loss = pass(&m, argv[2], 0);
  if (rank == 0) printf("evaluation loss %.5f\n", loss);
  check(TrshardSave(m.tables, "dataset_model.h5", 1, &weight));
  for (int64_t c = 0; c < m.width; c++) m.weight[c] = 0;
  pass(&m, argv[1], 1); /* the tables change, too */
  check(TrshardLoad(m.tables, "dataset_model.h5", 1, &weight));
  loss = pass(&m, argv[2], 0);
  if (rank == 0) printf("evaluation loss %.5f, from the checkpoint\n", loss);

  /* the first row of the first table, and the same row with the opposite sign */
  float row[DIM], other[DIM];
  check(TrshardTableRead(m.tables, tables[0].name, 0, 1, row));
  for (int d = 0; d < DIM; d++) other[d] = -row[d];
  check(TrshardTableWrite(m.tables, tables[0].name, 0, 1, other));
  check(TrshardTableRead(m.tables, tables[0].name, 0, 1, other));
  if (rank == 0)
    printf("row 0 of %s begins with %.5f, then with %.5f\n", tables[0].name, (double)row[0],
           (double)other[0]);
  check(TrshardCollectionDestroy(&m.tables));
  free(m.pooled);
  MPI_Finalize();
  return 0;
}
