/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Load trshard-serve with requests in binary form, and compare times with the predictor alone.

    bench_serve MODEL.h5 PORT SAMPLES CONNECTIONS SECONDS [REQUESTS_PER_SECOND [IDS [OPTIONS]]]

  MODEL.h5 must be the checkpoint that the server on this host serves under the name "model". Each
  connection is a thread that sends its next request when the answer to the last one has come, or
  with REQUESTS_PER_SECOND at the times of a random (Poisson) process; a request that waits for its
  connection then counts as waiting. Each sample has one id below IDS (default 1000) per feature.
  The program opens the predictor with OPTIONS, and checks each answer against the predictor's own
  numbers. With OPTIONS "-", another program serves another model of this shape, and its numbers are
  not compared.
*/
#define _GNU_SOURCE /* needed for strcasestr(). NOLINT(bugprone-reserved-identifier) */
#include "api/trshard.h"

#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DISTINCT = 64, MOST_CALLS = 1 << 20 };

typedef struct {
  int32_t num_dense, n_features, n_outputs;
  const char *const *features;
  int64_t samples, ids;
  int is_other;         /* the served model is another one */
  double seconds, rate; /* rate: requests a second of one connection; 0: as fast as answers come */
  int port;
  TrshardPredictor predictor;
  /* [DISTINCT] requests, their lengths, and the predictor's numbers for them */
  char *request[DISTINCT];
  size_t bytes[DISTINCT];
  float *wanted[DISTINCT], *dense[DISTINCT];
  int64_t *values[DISTINCT];
  int32_t *lengths;
} bench;

typedef struct {
  const bench *b;
  unsigned seed;
  double *latency; /* [calls] in seconds */
  int64_t calls, n_failed, n_other_bits, n_wrong;
} client;

static double now(void)
{
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *get(size_t bytes)
{
  void *memory = malloc(bytes + 1);

  if (!memory) abort();
  return memory;
}

static void check(int status)
{
  if (status == TRSHARD_SUCCESS) return;
  fprintf(stderr, "bench_serve: %s\n", TrshardErrorMessage());
  exit(status);
}

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

/* Print percentiles of n latencies, which are sorted, and the rate of samples. */
static void report(const char *what, double *latency, int64_t n, int64_t samples, double seconds)
{
  qsort(latency, (size_t)n, sizeof(*latency), ascending);
  printf("%-10s %" PRId64 " requests of %" PRId64
         ": p50 %.0f us, p99 %.0f us, p99.9 %.0f us, worst %.0f us; %.0f samples/s\n",
         what, n, samples, 1e6 * latency[n / 2], 1e6 * latency[n * 99 / 100], 1e6 * latency[n * 999 / 1000],
         1e6 * latency[n - 1], (double)(n * samples) / seconds);
}

/* --- requests --- */

static void make_inputs(bench *b, int r, unsigned *seed)
{
  b->dense[r] = get((size_t)(b->samples * b->num_dense) * sizeof(float));
  b->values[r] = get((size_t)(b->samples * b->n_features) * sizeof(int64_t));
  b->wanted[r] = get((size_t)(b->samples * b->n_outputs) * sizeof(float));
  for (int64_t i = 0; i < b->samples * b->num_dense; i++)
    b->dense[r][i] = (float)(rand_r(seed) % 1000) / 1000;
  for (int64_t i = 0; i < b->samples * b->n_features; i++) b->values[r][i] = rand_r(seed) % b->ids;
}

static int predict(const bench *b, int r, float *to)
{
  const TrshardBatch ids = {.batch = b->samples,
                            .lengths = b->lengths,
                            .n_values = b->samples * b->n_features,
                            .values = b->values[r]};

  return TrshardPredict(b->predictor, &ids, b->dense[r], to);
}

/* Write a request: its headers, its JSON part, and its tensors. */
static void make_request(bench *b, int r)
{
  const size_t n_dense = (size_t)(b->samples * b->num_dense) * sizeof(float);
  const size_t n_ids = (size_t)b->samples * sizeof(int64_t);
  const size_t room = 512 + 300 * (size_t)(b->n_features + 1);
  char *json = get(room), *to = get(room + 512 + n_dense + (size_t)b->n_features * n_ids);
  size_t n = 0, n_json;

  n += (size_t)snprintf(json, room,
                        "{\"inputs\":[{\"name\":\"dense\",\"datatype\":\"FP32\",\"shape\":[%" PRId64
                        ",%d],\"parameters\":{\"binary_data_size\":%zu}}",
                        b->samples, b->num_dense, n_dense);
  if (!b->num_dense) n = (size_t)snprintf(json, room, "{\"inputs\":[");
  for (int32_t f = 0; f < b->n_features; f++)
    n += (size_t)snprintf(json + n, room - n,
                          "%s{\"name\":\"%.150s.ids\",\"datatype\":\"INT64\",\"shape\":[%" PRId64
                          "],\"parameters\":{\"binary_data_size\":%zu}}",
                          f || b->num_dense ? "," : "", b->features[f], b->samples, n_ids);
  n_json = n + (size_t)snprintf(json + n, room - n, "],\"parameters\":{\"binary_data_output\":true}}");
  n = (size_t)sprintf(to,
                      "POST /v2/models/model/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                      "%zu\r\nInference-Header-Content-Length: %zu\r\n\r\n",
                      n_json + n_dense + (size_t)b->n_features * n_ids, n_json);
  memcpy(to + n, json, n_json);
  n += n_json;
  memcpy(to + n, b->dense[r], n_dense);
  n += n_dense;
  memcpy(to + n, b->values[r], (size_t)b->n_features * n_ids);
  b->bytes[r] = n + (size_t)b->n_features * n_ids;
  b->request[r] = to;
  free(json);
}

/* --- the predictor alone --- */

/*
  Print the latencies of a queue without a network: requests come at random times, and each takes as
  long as one of the predictor's n calls. The rest of a served request is the cost of the server.
*/
static void measure_queue(const bench *b, double rate, const double *call, int64_t n)
{
  double *latency = get(MOST_CALLS * sizeof(*latency));
  double free_at = 0.0, due = 0.0;
  unsigned seed = 3;

  for (int64_t i = 0; i < MOST_CALLS; i++) {
    due += -log(1.0 - (double)rand_r(&seed) / ((double)RAND_MAX + 1.0)) / rate;
    free_at = fmax(free_at, due) + call[rand_r(&seed) % n];
    latency[i] = free_at - due;
  }
  report("queue", latency, MOST_CALLS, b->samples, due);
  free(latency);
}

static void measure_predictor(const bench *b, double rate)
{
  double *latency = get(MOST_CALLS * sizeof(*latency));
  float *to = get((size_t)(b->samples * b->n_outputs) * sizeof(float));
  const double begin = now();
  int64_t n = 0;

  for (double last = begin; last < begin + b->seconds / 2 && n < MOST_CALLS; n++) {
    const double start = now();

    check(predict(b, (int)(n % DISTINCT), to));
    last = now();
    latency[n] = last - start;
  }
  report("predictor", latency, n, b->samples, now() - begin);
  if (rate > 0.0) measure_queue(b, rate, latency, n);
  free(latency);
  free(to);
}

/* --- clients --- */

static int connect_to(int port)
{
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

  if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
    perror("bench_serve: no server listens on the port");
    exit(TRSHARD_ERROR_UNAVAILABLE);
  }
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  return fd;
}

static int send_all(int fd, const char *bytes, size_t n)
{
  while (n > 0) {
    const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

    if (sent <= 0) return 0;
    bytes += sent;
    n -= (size_t)sent;
  }
  return 1;
}

/* Read an answer, and return its last n bytes, or NULL if it is not one with status 200. */
static const char *read_answer(int fd, char *buffer, size_t room, size_t n)
{
  static const char length_name[] = "\r\nContent-Length: "; /* in any case */
  size_t used = 0, whole = 0;

  while (!whole || used < whole) {
    const ssize_t got = used + 1 < room ? recv(fd, buffer + used, room - used - 1, 0) : 0;
    const char *end, *length;

    if (got <= 0) return NULL;
    used += (size_t)got;
    buffer[used] = '\0';
    end = strstr(buffer, "\r\n\r\n");
    length = strcasestr(buffer, length_name);
    if (end && length)
      whole = (size_t)(end - buffer) + 4 + (size_t)strtoll(length + strlen(length_name), NULL, 10);
  }
  return !strncmp(buffer, "HTTP/1.1 200", 12) && whole >= n ? buffer + whole - n : NULL;
}

static void compare(client *c, int r, const char *answer)
{
  const bench *b = c->b;
  const int64_t n = b->samples;
  int other = 0, wrong = 0;

  for (int32_t o = 0; o < b->n_outputs; o++)
    for (int64_t i = 0; i < n; i++) {
      const float wanted = b->wanted[r][i * b->n_outputs + o];
      float found;

      memcpy(&found, answer + (o * n + i) * (int64_t)sizeof(found), sizeof(found));
      other |= memcmp(&found, &wanted, sizeof(found)) != 0;
      wrong |= !(fabsf(found - wanted) <= 2e-6F);
    }
  c->n_other_bits += other;
  c->n_wrong += wrong;
}

static void wait_until(double when)
{
  const double rest = when - now();
  const struct timespec time = {.tv_sec = (time_t)rest, .tv_nsec = (long)(1e9 * (rest - floor(rest)))};

  if (rest > 0.0) (void)nanosleep(&time, NULL);
}

static void *run_client(void *context)
{
  client *c = context;
  const bench *b = c->b;
  const size_t n = (size_t)(b->samples * b->n_outputs) * sizeof(float),
               room = 4096 + 300 * (size_t)b->n_outputs + n;
  const int fd = connect_to(b->port);
  char *buffer = get(room);
  const double end = now() + b->seconds;
  double due = now();

  while (now() < end && c->calls < MOST_CALLS && !c->n_failed) {
    const int r = (int)(rand_r(&c->seed) % DISTINCT);
    const char *answer;

    if (b->rate > 0.0) {
      due += -log(1.0 - (double)rand_r(&c->seed) / ((double)RAND_MAX + 1.0)) / b->rate;
      wait_until(due);
    } else {
      due = now();
    }
    answer = send_all(fd, b->request[r], b->bytes[r]) ? read_answer(fd, buffer, room, n) : NULL;
    c->latency[c->calls++] = now() - due;
    if (!answer)
      c->n_failed++;
    else if (!b->is_other)
      compare(c, r, answer);
  }
  (void)close(fd);
  free(buffer);
  return NULL;
}

/* Run the clients. Returns the number of answers that are missing or wrong. */
static int64_t measure_server(const bench *b, int n_clients)
{
  client *clients = get((size_t)n_clients * sizeof(*clients));
  pthread_t *threads = get((size_t)n_clients * sizeof(*threads));
  double *latency = get(MOST_CALLS * sizeof(*latency));
  int64_t n = 0, failed = 0, other = 0, wrong = 0;
  const double begin = now();

  for (int i = 0; i < n_clients; i++) {
    clients[i] = (client){.b = b, .seed = (unsigned)i + 1, .latency = get(MOST_CALLS * sizeof(double))};
    if (pthread_create(&threads[i], NULL, run_client, &clients[i]) != 0) abort();
  }
  for (int i = 0; i < n_clients; i++) {
    const client *c = &clients[i];

    (void)pthread_join(threads[i], NULL);
    failed += c->n_failed;
    other += c->n_other_bits;
    wrong += c->n_wrong;
    for (int64_t k = 0; k < c->calls && n < MOST_CALLS; k++) latency[n++] = c->latency[k];
    free(c->latency);
  }
  report("served", latency, n, b->samples, now() - begin);
  printf("%-10s %" PRId64 " failed, %" PRId64 " wrong, %" PRId64 " with other last bits\n", "answers", failed,
         wrong, other);
  free(latency);
  free(threads);
  free(clients);
  return failed + wrong;
}

int main(int argc, char **argv)
{
  bench b = {.ids = 1000};
  unsigned seed = 7;
  int64_t bad;

  if (argc < 6) {
    fprintf(stderr,
            "bench_serve MODEL.h5 PORT SAMPLES CONNECTIONS SECONDS [REQUESTS_PER_SECOND [IDS [OPTIONS]]]\n");
    return TRSHARD_ERROR_OPTION;
  }
  const int n_clients = atoi(argv[4]);
  b.port = atoi(argv[2]);
  b.samples = strtoll(argv[3], NULL, 10);
  b.seconds = strtod(argv[5], NULL);
  if (argc > 6) b.rate = strtod(argv[6], NULL) / n_clients;
  if (argc > 7) b.ids = strtoll(argv[7], NULL, 10);
  b.is_other = argc > 8 && !strcmp(argv[8], "-");
  check(TrshardPredictorOpen(argv[1], argc > 8 && !b.is_other ? argv[8] : NULL, &b.predictor));
  check(TrshardPredictorShape(b.predictor, &b.num_dense, &b.n_features, &b.features, &b.n_outputs));
  b.lengths = get((size_t)(b.samples * b.n_features) * sizeof(int32_t));
  for (int64_t i = 0; i < b.samples * b.n_features; i++) b.lengths[i] = 1;
  for (int r = 0; r < DISTINCT; r++) {
    make_inputs(&b, r, &seed);
    make_request(&b, r);
    check(predict(&b, r, b.wanted[r]));
  }
  measure_predictor(&b, argc > 6 ? strtod(argv[6], NULL) : 0.0);
  bad = measure_server(&b, n_clients);
  for (int r = 0; r < DISTINCT; r++) {
    free(b.request[r]);
    free(b.wanted[r]);
    free(b.dense[r]);
    free(b.values[r]);
  }
  free(b.lengths);
  check(TrshardPredictorClose(&b.predictor));
  return bad ? TRSHARD_ERROR_DATA : 0;
}
