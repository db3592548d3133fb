/* SPDX-License-Identifier: BSD-3-Clause */
/*
  libFuzzer target: the server's protocols. The first byte says where the JSON part of the body ends
  and which form it has. A body becomes a request that TrshardPredict() can take, or one refusal
  with a message; an answer can be written to each request. Any URL is found or not.
*/
#include "fuzz_start.h"
#include "serve/protocol.h"

#include <math.h>
#include <string.h>

enum { FUZZ_SAMPLES = 64 };

/* Check the conditions that TrshardPredict() needs. */
static void check_request(const TrsServeShape *shape, const TrsServeRequest *r)
{
  const int32_t *lengths = r->lengths.data;
  int64_t sum = 0;

  if (r->n < 0 || r->n > FUZZ_SAMPLES || r->n_values < 0) abort();
  for (int64_t i = 0; i < shape->n_features * r->n; i++) {
    if (lengths[i] < 0) abort();
    sum += lengths[i];
  }
  if (sum != r->n_values) abort();
  for (int64_t i = 0; i < r->n * shape->num_dense; i++)
    if (!isfinite(((const float *)r->dense.data)[i])) abort();
  for (int64_t i = 0; i < r->n_values; i++) {
    if (!isfinite(((const float *)r->weights.data)[i])) abort();
    sum += (int64_t)(((const uint64_t *)r->values.data)[i] & 1); /* the memory can be read */
  }
}

/* Check the columns that TrshardEncode() gets. */
static void check_columns(const TrsServeShape *shape, const TrsServeRequest *r)
{
  const TrshardColumn *column = r->columns.data;
  int64_t n_bytes = 0;

  for (int32_t c = 0; c < shape->n_columns; c++) {
    int64_t sum = column[c].lengths ? 0 : r->n;

    if (!column[c].values && column[c].n_values) abort();
    for (int64_t i = 0; column[c].lengths && i < r->n; i++) sum += column[c].lengths[i];
    if (column[c].values && sum != column[c].n_values) abort();
    for (int64_t i = 0; i < column[c].n_values; i++) {
      const TrshardValue *value = &column[c].values[i];

      for (int64_t b = 0; value->kind == TRSHARD_TEXT && b < value->n_bytes; b++)
        n_bytes += value->as.text[b] != 0; /* the memory can be read */
    }
  }
  if (n_bytes < 0) abort();
}

static void check_answer(const TrsServeProtocol *protocol, const TrsServeShape *shape, TrsServeRequest *r,
                         const TrsServeForm *form)
{
  const TrsServeFacts facts = {"model", 7, shape};
  TrsServeText text = {.n = 0};
  int64_t json_bytes = -1;

  if (TrsBufferReserve(&r->predictions, (r->n + 1) * shape->n_outputs * (int64_t)sizeof(float), PETSC_FALSE))
    abort();
  memset(r->predictions.data, 0, (size_t)((r->n + 1) * shape->n_outputs) * sizeof(float));
  protocol->answer(&facts, r, form, &text, &json_bytes);
  if (text.failed || json_bytes < 2 || json_bytes > text.n) abort();
  (void)TrsBufferFree(&text.buffer);
}

static void try_url(const TrsServeProtocol *protocol, const TrsServeShape *shape, const char *bytes, size_t n)
{
  const TrsServeFacts facts = {"model", 7, shape};
  TrsServeOutcome outcome = {.status = 200};
  char *url = strndup(bytes, n);

  if (url) (void)protocol->find(&facts, url, &outcome);
  free(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static char user[] = "user", item[] = "item", click[] = "click", buy[] = "buy", city[] = "city",
              age[] = "age";
  static char *features[] = {user, item}, *outputs[] = {click, buy}, *names[] = {city, age, user};
  static TrsServePool pool;
  static TrshardColumnInfo columns[] = {{.name = city, .wants = TRSHARD_WANTS_TEXT},
                                        {.name = age, .wants = TRSHARD_WANTS_NUMBERS},
                                        {.name = user, .wants = TRSHARD_WANTS_ANY, .is_bag = 1}};
  const TrsServeShape shape = {.n_columns = 3,
                               .column = columns,
                               .column_name = names,
                               .num_dense = 2,
                               .n_features = 2,
                               .n_outputs = 2,
                               .feature = features,
                               .output = outputs};
  const TrsServeProtocol *protocol = trs_serve_protocols[0];
  TrsServeForm form = {.n = 0};
  TrsServeOutcome outcome = {.status = 200};
  TrsServeRequest *r;
  char *bytes;

  if (size < 2) return 0;
  if (!pool && TrsServePoolCreate(1, &pool)) abort();
  r = TrsServePoolTake(pool);
  bytes = malloc(size - 2 + 1); /* a copy of exact size, so that no byte behind it is read */
  if (!r || !bytes) abort();
  memcpy(bytes, data + 2, size - 2);
  const int64_t n = (int64_t)size - 2, behind = data[0] + 256 * (data[1] & 15);
  const TrsServeBody body = {bytes, n, data[1] & 16 ? n - behind : n, FUZZ_SAMPLES};

  if (protocol->parse(&shape, &body, r, &form, &outcome) != outcome.status) abort();
  if (outcome.status == 200) {
    if (r->is_raw)
      check_columns(&shape, r);
    else
      check_request(&shape, r);
    check_answer(protocol, &shape, r, &form);
  } else {
    TrsServeText text = {.n = 0};

    if (!outcome.message[0]) abort();
    protocol->refuse(&outcome, &text);
    if (text.failed) abort();
    (void)TrsBufferFree(&text.buffer);
  }
  try_url(protocol, &shape, bytes, (size_t)n);
  TrsServeFormFree(&form);
  TrsServePoolReturn(pool, r);
  free(bytes);
  return 0;
}
