/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Predict with a model that trshard trained, and measure the time.

    mpicc -O2 predict.c $(pkg-config --cflags --libs trshard) -lpthread -o predict
    ./predict model.h5 [BATCH [THREADS [OPTIONS]]]

  For two seconds, each thread predicts batches of synthetic samples with one id per feature.
*/
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <trshard.h>

enum { MOST_CALLS = 1 << 20, MOST_THREADS = 64 };
static const double seconds = 2.0;

typedef struct {
  TrshardPredictor predictor;
  int64_t batch;
  double *latency; /* [calls] */
  int calls, status;
  char message[256];
} Work;

static double now(void)
{
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

static void *predict(void *context)
{
  Work *w = context;
  int32_t num_dense, features, outputs;
  const double begin = now();

  TrshardPredictorShape(w->predictor, &num_dense, &features, NULL, &outputs);
  const size_t n = (size_t)(features * w->batch), dense = (size_t)(num_dense * w->batch);
  int32_t *lengths = malloc((n + 1) * sizeof(*lengths));
  int64_t *values = malloc((n + 1) * sizeof(*values));
  float *x = malloc((n + dense + 1) * sizeof(*x)),
        *out = malloc((size_t)(outputs * w->batch + 1) * sizeof(*out));

  for (size_t i = 0; i < n + dense; i++) x[i] = (float)(i % 10) / 10;
  for (size_t i = 0; i < n; i++) lengths[i] = 1;
  for (; now() < begin + seconds && w->calls < MOST_CALLS && !w->status; w->calls++) {
    for (size_t i = 0; i < n; i++) values[i] = rand() % 1000;
    const TrshardBatch ids = {.batch = w->batch,
                              .lengths = lengths,
                              .n_values = (int64_t)n,
                              .values = values,
                              .weights = x + dense};
    const double start = now();
    w->status = TrshardPredict(w->predictor, &ids, x, out);
    w->latency[w->calls] = now() - start;
  }
  if (w->status) snprintf(w->message, sizeof(w->message), "%s", TrshardErrorMessage());
  free(lengths), free(values), free(x), free(out);
  return NULL;
}

int main(int argc, char **argv)
{
  const int threads = argc > 3 && atoi(argv[3]) > 0 && atoi(argv[3]) <= MOST_THREADS ? atoi(argv[3]) : 1;
  const int64_t batch = argc > 2 && atoi(argv[2]) > 0 ? atoi(argv[2]) : 1;
  TrshardPredictor predictor;
  pthread_t thread[MOST_THREADS];
  Work work[MOST_THREADS] = {{0}};
  const double begin = now();
  const char *const *outputs, *mapping;
  double rate = 0;
  int64_t step;

  if (argc < 2 ||
      TrshardPredictorOpen(argv[1], argc > 4 ? argv[4] : "-bounds_check_mode ignore", &predictor)) {
    fprintf(stderr, "predict: %s\n", argc < 2 ? "which checkpoint?" : TrshardErrorMessage());
    return 1;
  }
  printf("opened in %.1f ms\n", 1e3 * (now() - begin));
  TrshardPredictorNames(predictor, NULL, &outputs);
  TrshardPredictorCheckpoint(predictor, &step, &mapping);
  printf("predicts %s with the weights of step %" PRId64 ", %s a mapping of raw columns\n", outputs[0], step,
         mapping ? "with" : "without");
  for (int t = 0; t < threads; t++) {
    work[t] = (Work){.predictor = predictor, .batch = batch, .latency = malloc(MOST_CALLS * sizeof(double))};
    pthread_create(&thread[t], NULL, predict, &work[t]);
  }
  for (int t = 0; t < threads; t++) {
    Work *w = &work[t];
    pthread_join(thread[t], NULL);
    if (w->status || w->calls == 0) {
      fprintf(stderr, "predict: %s\n", w->message);
      return 1;
    }
    rate += (double)w->calls * (double)batch / seconds;
    qsort(w->latency, (size_t)w->calls, sizeof(double), by_size);
    printf("thread %d: %d calls, median %.1f us, 99 of 100 below %.1f us\n", t, w->calls,
           1e6 * w->latency[w->calls / 2], 1e6 * w->latency[w->calls * 99 / 100]);
    free(w->latency);
  }
  printf("%.0f samples a second\n", rate);
  return TrshardPredictorClose(&predictor);
}
