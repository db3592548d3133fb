/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Threads predict at the same time with tables whose rows are given to ids. They share the tables'
  directories, and each thread gets the bits that it gets alone. sanitize/unit_threads runs this
  test with ThreadSanitizer.
*/
#include "api/api_test.h"
#include "io/make_dataset.h"

#include <pthread.h>

enum { THREADS = 4, CALLS = 25, SAMPLES = 300, IDS = 3 };

static char data[4096], model[4096];

/* The samples of a thread. Every third id is unknown to the model. */
typedef struct {
  TrshardPredictor predictor;
  int32_t lengths[MADE_FEATURES * SAMPLES];
  int64_t values[MADE_FEATURES * SAMPLES * IDS];
  float dense[SAMPLES * MADE_DENSE], alone[SAMPLES], together[SAMPLES];
  TrshardBatch batch;
  int status, n_different;
} work;

static void make_work(int t, TrshardPredictor predictor, work *w)
{
  int64_t n = 0;

  w->predictor = predictor;
  for (int bag = 0; bag < MADE_FEATURES * SAMPLES; bag++) {
    w->lengths[bag] = (int32_t)(mix((uint64_t)(bag + 7 * t)) % (IDS + 1));
    for (int i = 0; i < w->lengths[bag]; i++, n++) {
      const uint64_t random = mix((uint64_t)(n + 1000 * t));

      w->values[n] = n % 3 ? (int64_t)(random % 50) : (int64_t)random;
    }
  }
  for (int i = 0; i < SAMPLES * MADE_DENSE; i++) w->dense[i] = (float)(i % 7) / 8;
  w->batch = (TrshardBatch){.batch = SAMPLES, .lengths = w->lengths, .n_values = n, .values = w->values};
}

static void *predict(void *context)
{
  work *w = context;

  for (int i = 0; i < CALLS && w->status == TRSHARD_SUCCESS; i++) {
    w->status = TrshardPredict(w->predictor, &w->batch, w->dense, w->together);
    for (int s = 0; s < SAMPLES; s++) w->n_different += w->together[s] != w->alone[s];
  }
  return NULL;
}

static void check(const char *table, const char *options)
{
  static work works[THREADS];
  TrshardPredictor predictor;
  pthread_t thread[THREADS];
  char words[9000];

  snprintf(words, sizeof(words),
           "-device cpu -cpu_bind none -data_train %s -tables_embedding_dim 16 -dense_arch 16 "
           "-over_arch 8,1 -batch_size 12 -steps 9 -report_interval 1e9 -existing_outputs replace "
           "-checkpoint_final %s %s",
           data, model, table);
  assert_ok(TrshardRun(MPI_COMM_WORLD, words));
  assert_ok(TrshardPredictorOpen(model, options, &predictor));
  for (int t = 0; t < THREADS; t++) {
    make_work(t, predictor, &works[t]);
    assert_ok(TrshardPredict(predictor, &works[t].batch, works[t].dense, works[t].alone));
  }
  for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_create(&thread[t], NULL, predict, &works[t]), 0);
  for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_join(thread[t], NULL), 0);
  for (int t = 0; t < THREADS; t++) {
    assert_int_equal(works[t].status, TRSHARD_SUCCESS);
    assert_int_equal(works[t].n_different, 0);
  }
  assert_ok(TrshardPredictorClose(&predictor));
}

static void test_threads(void **state)
{
  static const char *const tables[] = {
      "-tables_id_map zch -tables_num_embeddings 24 -tables_zch_interval 2 -table_item_zch_buckets 3",
      "-tables_id_map dynamic -tables_dynamic_cap 40 -tables_dynamic_ttl 3 -table_item_dynamic_buckets 4 "
      "-table_user_dynamic_admit_after 2 -table_hist_unknown_row zero"};
  static const char *const options[] = {"", "-tables_data_type int8", "-tables_data_type int4"};

  (void)state;
  made_choose_path("predictor_threads_data", data);
  made_choose_path("predictor_threads_model", model);
  made_dataset(data, MADE_PLAIN);
  for (int i = 0; i < 2; i++)
    for (int o = 0; o < 3; o++) check(tables[i], options[o]);
  made_remove(data);
  made_remove(model);
}

TRS_TEST_MAIN(cmocka_unit_test(test_threads))
