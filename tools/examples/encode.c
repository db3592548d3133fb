/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Predict a raw row with a model that trshard trained. The words are read as the text of a table.

    mpicc -O2 encode.c $(pkg-config --cflags --libs trshard) -o encode
    ./encode model.h5 city=Rome age=31 'tags=red|shoe'

  Columns that are not given are missing values.
*/
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trshard.h>

/* Return the text of `column=text` among the words as a value. */
static TrshardValue find_value(const char *column, int n_words, char **words)
{
  const size_t n = strlen(column);

  for (int i = 0; i < n_words; i++)
    if (strncmp(words[i], column, n) == 0 && words[i][n] == '=')
      return (TrshardValue){
          .kind = TRSHARD_TEXT, .n_bytes = (int64_t)strlen(words[i] + n + 1), .as.text = words[i] + n + 1};
  return (TrshardValue){.kind = TRSHARD_MISSING};
}

/* Encode the row, predict it, and print its ids and its predictions. */
static int predict_row(TrshardPredictor predictor, TrshardEncoder encoder, int n_words, char **words)
{
  const TrshardColumnInfo *infos;
  const char *const *features, *const *outputs;
  TrshardEncoded *encoded = NULL;
  int32_t n_columns, n_features, n_outputs, n = 0;
  int status;

  TrshardEncoderColumns(encoder, &n_columns, &infos);
  TrshardPredictorShape(predictor, NULL, &n_features, &features, &n_outputs);
  TrshardPredictorNames(predictor, NULL, &outputs);
  TrshardValue *values = calloc((size_t)n_columns + 1, sizeof(*values));
  TrshardColumn *columns = calloc((size_t)n_columns + 1, sizeof(*columns));
  float *predictions = calloc((size_t)n_outputs, sizeof(*predictions));

  for (int32_t i = 0; i < n_columns; i++) {
    values[i] = find_value(infos[i].name, n_words, words);
    columns[i] = (TrshardColumn){.n_values = 1, .values = &values[i]};
  }
  status = TrshardEncode(encoder, 1, columns, &encoded);
  if (!status) status = TrshardPredict(predictor, &encoded->ids, encoded->dense, predictions);
  for (int32_t f = 0; !status && f < n_features; f++) {
    printf("%s:", features[f]);
    for (int32_t k = 0; k < encoded->ids.lengths[f]; k++) printf(" %" PRId64, encoded->ids.values[n++]);
    printf("\n");
  }
  for (int32_t i = 0; !status && i < n_outputs; i++) printf("%s %.6f\n", outputs[i], (double)predictions[i]);
  TrshardEncodedFree(&encoded);
  free(values), free(columns), free(predictions);
  return status;
}

/* Print how many columns the mapping has, and how many of them the model needs. */
static int count_columns(TrshardPredictor predictor, TrshardEncoder encoder)
{
  TrshardEncoder whole = NULL;
  int32_t n_all = 0, n = 0;
  const char *mapping;
  int status;

  TrshardPredictorCheckpoint(predictor, NULL, &mapping);
  status = TrshardEncoderCreateFrom(mapping, 0, NULL, 0, NULL, &whole);
  if (!status) TrshardEncoderColumns(whole, &n_all, NULL);
  TrshardEncoderColumns(encoder, &n, NULL);
  if (!status) printf("the model needs %" PRId32 " of %" PRId32 " columns\n", n, n_all);
  TrshardEncoderDestroy(&whole);
  return status;
}

int main(int argc, char **argv)
{
  TrshardPredictor predictor = NULL;
  TrshardEncoder encoder = NULL;
  int status = argc < 2 ? 1 : TrshardPredictorOpen(argv[1], NULL, &predictor);

  if (!status) status = TrshardEncoderCreate(predictor, &encoder);
  if (!status) status = count_columns(predictor, encoder);
  if (!status) status = predict_row(predictor, encoder, argc - 2, argv + 2);
  if (status) fprintf(stderr, "encode: %s\n", argc < 2 ? "which checkpoint?" : TrshardErrorMessage());
  TrshardEncoderDestroy(&encoder);
  TrshardPredictorClose(&predictor);
  return status ? 1 : 0;
}
