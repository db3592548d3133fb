/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Apply the deltas of a training to a model that predicts.

    mpicc -O2 deltas.c $(pkg-config --cflags --libs trshard) -o deltas
    ./deltas model.h5 deltas/step-*.h5

  The program predicts one sample, with id 1 for each feature, before the first delta and after each
  delta. Deltas that the model already has are left out.
*/
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <trshard.h>

static TrshardPredictor predictor;

static int fail(const char *what)
{
  fprintf(stderr, "deltas: %s\n", what);
  return 1;
}

static int predict(void)
{
  int32_t num_dense, features, outputs;
  int64_t step;

  TrshardPredictorShape(predictor, &num_dense, &features, NULL, &outputs);
  int32_t *lengths = malloc((size_t)features * sizeof(*lengths));
  int64_t *values = malloc((size_t)features * sizeof(*values));
  float *numbers = calloc((size_t)(num_dense + features + outputs), sizeof(*numbers));

  for (int f = 0; f < features; f++) lengths[f] = 1, values[f] = 1, numbers[num_dense + f] = 1;
  const TrshardBatch ids = {
      .batch = 1, .lengths = lengths, .n_values = features, .values = values, .weights = numbers + num_dense};
  float *prediction = numbers + num_dense + features;
  const int status = TrshardPredictStep(predictor, &ids, numbers, prediction, &step);

  if (!status) printf("step %" PRId64 ": prediction %.6f\n", step, (double)prediction[0]);
  free(lengths), free(values), free(numbers);
  return status;
}

int main(int argc, char **argv)
{
  int64_t *ids, *unknown;
  const char *const *names;
  int32_t features;

  if (argc < 2) return fail("which checkpoint?");
  if (TrshardPredictorOpen(argv[1], NULL, &predictor) || predict()) return fail(TrshardErrorMessage());
  for (int i = 2; i < argc; i++) {
    TrshardDeltaFit fit;

    if (TrshardPredictorApplyDelta(predictor, argv[i], &fit) && fit != TRSHARD_DELTA_LATE)
      return fail(TrshardErrorMessage());
    if (fit == TRSHARD_DELTA_FITS && predict()) return fail(TrshardErrorMessage());
  }
  TrshardPredictorShape(predictor, NULL, &features, &names, NULL);
  ids = calloc((size_t)features, sizeof(*ids));
  unknown = calloc((size_t)features, sizeof(*unknown));
  TrshardPredictorIdCounts(predictor, ids, unknown);
  for (int f = 0; f < features; f++)
    printf("%s: %" PRId64 " ids, %" PRId64 " of them unknown\n", names[f], ids[f], unknown[f]);
  free(ids), free(unknown);
  return TrshardPredictorClose(&predictor);
}
