/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/http.h"

#include "core/clock.h"
#include "serve/protocol.h"
#include "serve/sockets.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection. Its entry is in the server's list from its start to its end. */
typedef struct TrsServeConnection {
  struct TrsServeConnection *next, **from;
  int fd;
  double since; /* time when the part began that is being read or written */
  int waits;    /* true if its request waits for the batcher */
} TrsServeConnection;

struct TrsServeHttpImpl {
  TrsServeHttpSettings settings;
  TrsServeSlot slot;
  TrsServePool pool;
  TrsServeBatcher batcher;
  TrsServeMetrics *metrics;
  struct MHD_Daemon *daemon[2]; /* of the TCP port and of the Unix socket */
  struct stat file;             /* of the Unix socket */
  int quiet[2];                 /* sockets that no daemon listens on any more; -1 if none */
  _Atomic int drains;
  _Atomic int64_t n_unanswered;
  pthread_mutex_t lock; /* guards the list of connections */
  TrsServeConnection *connections;
};

/* A request of a client, from its headers to the end of its answer. */
typedef struct {
  TrsServeHttp http;
  struct MHD_Connection *connection;
  TrsServeConnection *entry;
  const TrsServeProtocol *protocol;
  TrsServeAction action;
  TrsServeOutcome outcome;
  TrsServeText body, answer;
  TrsServeRequest *request; /* NULL before it is taken from the pool */
  TrsServeForm form;
  double begin_s;
  int predicted; /* true if the batcher has done with the request */
} TrsServeCall;

/* --- answers --- */

static const char json_length_header[] = "Inference-Header-Content-Length";

/* Send a call's answer. json_bytes: length of the JSON before binary tensors; 0 without them. */
static enum MHD_Result send_answer(TrsServeCall *c, int64_t json_bytes)
{
  const int status = c->answer.failed ? 503 : c->outcome.status;
  struct MHD_Response *response = MHD_create_response_from_buffer(
      c->answer.failed ? 0 : (size_t)c->answer.n, c->answer.buffer.data, MHD_RESPMEM_PERSISTENT);
  const char *type = c->action == TRS_SERVE_METRICS ? "text/plain; version=0.0.4"
                     : json_bytes > 0               ? "application/octet-stream"
                                                    : "application/json";
  enum MHD_Result result;
  char length[32];

  if (!response) return MHD_NO;
  (void)MHD_add_response_header(response, "Content-Type", type);
  if (json_bytes > 0) {
    snprintf(length, sizeof(length), "%lld", (long long)json_bytes);
    (void)MHD_add_response_header(response, json_length_header, length);
  }
  if (status == 405)
    (void)MHD_add_response_header(response, "Allow", c->action == TRS_SERVE_PREDICT ? "POST" : "GET, HEAD");
  if (status == 503) (void)MHD_add_response_header(response, "Retry-After", "1");
  if (atomic_load(&c->http->drains)) (void)MHD_add_response_header(response, "Connection", "close");
  result = MHD_queue_response(c->connection, (unsigned)status, response);
  MHD_destroy_response(response);
  if (c->action == TRS_SERVE_PREDICT) TrsServeMetricsAdd(c->http->metrics, status, TrsClock() - c->begin_s);
  return result;
}

static enum MHD_Result refuse(TrsServeCall *c)
{
  const TrsServeProtocol *protocol = c->protocol ? c->protocol : trs_serve_protocols[0];

  c->answer.n = 0;
  protocol->refuse(&c->outcome, &c->answer);
  return send_answer(c, 0);
}

static TrsServeFacts facts_of(TrsServeHttp http)
{
  return (TrsServeFacts){http->settings.name, TrsServeSlotStep(http->slot), TrsServeSlotShape(http->slot)};
}

static enum MHD_Result answer_metrics(TrsServeCall *c)
{
  const TrsServeShape *shape = TrsServeSlotShape(c->http->slot);
  int64_t *counts = calloc(2 * (size_t)shape->n_features + 1, sizeof(*counts));
  const TrsServeGauges gauges = {.queue = TrsServePoolUsed(c->http->pool),
                                 .ready = !atomic_load(&c->http->drains),
                                 .n_features = counts ? shape->n_features : 0,
                                 .feature = shape->feature,
                                 .ids = counts,
                                 .unknown = counts ? counts + shape->n_features : NULL};

  if (counts) TrsServeSlotCounts(c->http->slot, counts, counts + shape->n_features);
  TrsServeMetricsText(c->http->metrics, &gauges, &c->answer);
  free(counts);
  return send_answer(c, 0);
}

/* Answer a call that needs no prediction. */
static enum MHD_Result answer_now(TrsServeCall *c)
{
  const TrsServeFacts facts = facts_of(c->http);
  const int ready = !atomic_load(&c->http->drains);

  if (c->action == TRS_SERVE_METRICS) return answer_metrics(c);
  if (c->action == TRS_SERVE_SERVER || c->action == TRS_SERVE_MODEL)
    c->protocol->describe(&facts, c->action, &c->answer);
  else if (c->action == TRS_SERVE_LIVE)
    TrsServeTextPrint(&c->answer, "{\"live\":true}");
  else
    TrsServeTextPrint(&c->answer, "{\"ready\":%s}", ready ? "true" : "false");
  if (!ready && (c->action == TRS_SERVE_READY || c->action == TRS_SERVE_MODEL_READY)) c->outcome.status = 503;
  return send_answer(c, 0);
}

static enum MHD_Result answer_prediction(TrsServeCall *c)
{
  const TrsServeFacts facts = facts_of(c->http);
  int64_t json_bytes = 0;

  c->outcome = c->request->outcome;
  if (c->outcome.status != 200) return refuse(c);
  c->protocol->answer(&facts, c->request, &c->form, &c->answer, &json_bytes);
  return send_answer(c, json_bytes < c->answer.n ? json_bytes : 0);
}

/* --- requests --- */

/* Called by the batcher when it has done with a request. */
static void resume(void *context)
{
  TrsServeCall *c = context;

  c->predicted = 1;
  MHD_resume_connection(c->connection);
}

/* Note that a connection waits for the batcher, or that it reads or writes from now on. */
static void note_progress(TrsServeHttp http, TrsServeConnection *entry, int waits)
{
  (void)pthread_mutex_lock(&http->lock);
  entry->since = TrsClock();
  entry->waits = waits;
  (void)pthread_mutex_unlock(&http->lock);
}

/* Return a header's number, `fallback` if the header is missing, or -1 if it is no number. */
static int64_t header_number(struct MHD_Connection *connection, const char *name, int64_t fallback)
{
  const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);

  if (!text) return fallback;
  if (!*text || strlen(text) > 18 || strspn(text, "0123456789") != strlen(text)) return -1;
  return strtoll(text, NULL, 10);
}

/* Parse the body, and submit the request. */
static enum MHD_Result predict(TrsServeCall *c)
{
  const TrsServeHttpSettings *settings = &c->http->settings;
  const TrsServeBody body = {.bytes = c->body.n ? c->body.buffer.data : "",
                             .n = c->body.n,
                             .json_bytes = header_number(c->connection, json_length_header, c->body.n),
                             .most_samples = settings->request_samples};

  c->request = TrsServePoolTake(c->http->pool);
  if (!c->request)
    (void)TrsServeRefuse(&c->outcome, 503, "the server is busy: it has as many requests as %s allows",
                         "-serve_requests");
  else
    (void)c->protocol->parse(TrsServeSlotShape(c->http->slot), &body, c->request, &c->form, &c->outcome);
  if (c->outcome.status != 200) return refuse(c);
  c->request->begin_s = c->begin_s;
  c->request->done = resume;
  c->request->context = c;
  note_progress(c->http, c->entry, 1);
  MHD_suspend_connection(c->connection);
  TrsServeSubmit(c->http->batcher, c->request);
  return MHD_YES;
}

/* Keep a part of the body. If it is too large, the rest is read and dropped. */
static void take_body(TrsServeCall *c, const char *bytes, size_t n)
{
  const TrsServeHttpSettings *settings = &c->http->settings;
  TrsServeMetrics *metrics = c->http->metrics;

  if (c->outcome.status != 200 || c->action != TRS_SERVE_PREDICT) return;
  if (c->body.n + (int64_t)n > settings->request_bytes) {
    (void)TrsServeRefuse(&c->outcome, 413, "the request has more than %lld bytes (-serve_request_bytes)",
                         (long long)settings->request_bytes);
    return;
  }
  if (atomic_fetch_add(&metrics->body_bytes, (int64_t)n) + (int64_t)n > settings->body_bytes) {
    atomic_fetch_sub(&metrics->body_bytes, (int64_t)n);
    (void)TrsServeRefuse(&c->outcome, 503,
                         "the server is busy: the bodies of its requests have %lld bytes (-serve_body_bytes)",
                         (long long)settings->body_bytes);
    return;
  }
  TrsServeTextAdd(&c->body, bytes, n);
  if (!c->body.failed) return;
  atomic_fetch_sub(&metrics->body_bytes, (int64_t)n);
  (void)TrsServeRefuseMemory(&c->outcome);
}

/* Find out what a request asks for, and refuse it as early as possible. */
static void look_at(TrsServeCall *c, const char *url, const char *method)
{
  const TrsServeFacts facts = facts_of(c->http);
  const int64_t most = c->http->settings.request_bytes;
  int reads;

  for (int p = 0; trs_serve_protocols[p] && !c->action && c->outcome.status == 200; p++) {
    c->protocol = trs_serve_protocols[p];
    c->action = c->protocol->find(&facts, url, &c->outcome);
  }
  if (c->outcome.status != 200) return;
  reads = !strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD);
  if (!c->action)
    (void)TrsServeRefuse(&c->outcome, 404, "there is nothing at this URL");
  else if (c->action == TRS_SERVE_PREDICT ? strcmp(method, MHD_HTTP_METHOD_POST) != 0 : !reads)
    (void)TrsServeRefuse(&c->outcome, 405, "the method must be %s",
                         c->action == TRS_SERVE_PREDICT ? "POST" : "GET");
  else if (header_number(c->connection, MHD_HTTP_HEADER_CONTENT_LENGTH, 0) > most)
    (void)TrsServeRefuse(&c->outcome, 413, "the request has more than %lld bytes (-serve_request_bytes)",
                         (long long)most);
  else if (c->action == TRS_SERVE_PREDICT && atomic_load(&c->http->drains))
    (void)TrsServeRefuse(&c->outcome, 503, "the server is stopping");
}

static TrsServeCall *begin(TrsServeHttp http, struct MHD_Connection *connection)
{
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
                                                                 MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  TrsServeCall *c = calloc(1, sizeof(*c));

  if (!c || !info || !info->socket_context) {
    free(c);
    return NULL;
  }
  c->http = http;
  c->connection = connection;
  c->entry = info->socket_context;
  c->outcome.status = 200;
  c->begin_s = TrsClock();
  note_progress(http, c->entry, 0);
  atomic_fetch_add(&http->n_unanswered, 1);
  return c;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes, size_t *n,
                                  void **state)
{
  TrsServeCall *c = *state;

  (void)version;
  if (!c) {
    *state = c = begin(context, connection);
    if (!c) return MHD_NO;
    look_at(c, url, method);
    return c->outcome.status == 200 ? MHD_YES : refuse(c);
  }
  if (*n > 0) {
    take_body(c, bytes, *n);
    *n = 0;
    return MHD_YES;
  }
  if (c->predicted) {
    note_progress(c->http, c->entry, 0);
    return answer_prediction(c);
  }
  if (c->outcome.status != 200) return refuse(c);
  return c->action == TRS_SERVE_PREDICT ? predict(c) : answer_now(c);
}

/* Called when an answer was sent, or when its connection was lost. */
static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
  TrsServeHttp http = context;
  TrsServeCall *c = *state;

  (void)connection;
  (void)code;
  if (!c) return;
  *state = NULL;
  note_progress(http, c->entry, 0);
  if (c->request) TrsServePoolReturn(http->pool, c->request);
  atomic_fetch_sub(&http->metrics->body_bytes, c->body.n);
  (void)TrsBufferFree(&c->body.buffer);
  (void)TrsBufferFree(&c->answer.buffer);
  TrsServeFormFree(&c->form);
  free(c);
  atomic_fetch_sub(&http->n_unanswered, 1);
}

/* --- connections --- */

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
  TrsServeHttp http = context;
  TrsServeConnection *entry = *socket_context;

  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
                                                                   MHD_CONNECTION_INFO_CONNECTION_FD);

    entry = calloc(1, sizeof(*entry));
    *socket_context = entry;
    if (!entry) return;
    entry->fd = info ? info->connect_fd : -1;
    entry->since = TrsClock();
    (void)pthread_mutex_lock(&http->lock);
    entry->next = http->connections;
    entry->from = &http->connections;
    if (entry->next) entry->next->from = &entry->next;
    http->connections = entry;
    (void)pthread_mutex_unlock(&http->lock);
    atomic_fetch_add(&http->metrics->connections, 1);
  } else if (entry) {
    (void)pthread_mutex_lock(&http->lock);
    *entry->from = entry->next;
    if (entry->next) entry->next->from = entry->from;
    (void)pthread_mutex_unlock(&http->lock);
    free(entry);
    *socket_context = NULL;
    atomic_fetch_sub(&http->metrics->connections, 1);
  }
}

void TrsServeHttpCloseSlow(TrsServeHttp http)
{
  const double oldest = TrsClock() - 2.0 * (double)http->settings.timeout_s;

  (void)pthread_mutex_lock(&http->lock);
  for (TrsServeConnection *entry = http->connections; entry; entry = entry->next)
    if (!entry->waits && entry->since < oldest && entry->fd >= 0) (void)shutdown(entry->fd, SHUT_RDWR);
  (void)pthread_mutex_unlock(&http->lock);
}

/* --- the server --- */

static void ignore_log(void *context, const char *format, va_list values)
{
  (void)context;
  (void)format;
  (void)values;
}

/* Start libmicrohttpd's threads for a socket, which then belongs to *daemon. */
static PetscErrorCode start(TrsServeHttp http, int fd, struct MHD_Daemon **daemon)
{
  const TrsServeHttpSettings *s = &http->settings;
  const unsigned flags = (unsigned)MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                         MHD_USE_ERROR_LOG;
  const struct MHD_OptionItem pool[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)s->threads, NULL},
                                        {MHD_OPTION_END, 0, NULL}};

  PetscFunctionBegin;
  *daemon = MHD_start_daemon(
      flags, 0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, ignore_log, NULL,
      MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)PetscMax(s->connections, s->threads), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      (size_t)s->header_bytes, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->timeout_s,
      MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
      MHD_OPTION_ARRAY, s->threads > 1 ? pool : pool + 1, MHD_OPTION_END);
  if (!*daemon) (void)close(fd);
  PetscCheck(*daemon, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "libmicrohttpd cannot start: too few threads or file descriptors");
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeHttpCreate(const TrsServeHttpSettings *settings, TrsServeSlot slot, TrsServePool pool,
                                  TrsServeBatcher batcher, TrsServeMetrics *metrics, TrsServeHttp *http)
{
  TrsServeHttp h;
  int fd;

  PetscFunctionBegin;
  PetscCall(PetscNew(&h));
  *http = h;
  h->settings = *settings;
  h->slot = slot;
  h->pool = pool;
  h->batcher = batcher;
  h->metrics = metrics;
  h->quiet[0] = h->quiet[1] = -1;
  PetscCheck(pthread_mutex_init(&h->lock, NULL) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(TrsServeListen(settings->host, &h->settings.port, &fd));
  PetscCall(start(h, fd, &h->daemon[0]));
  if (!settings->socket) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsServeListenUnix(settings->socket, &fd, &h->file));
  PetscCall(start(h, fd, &h->daemon[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsServeHttpPort(TrsServeHttp http)
{
  return (int)http->settings.port;
}

void TrsServeHttpDrain(TrsServeHttp http)
{
  atomic_store(&http->drains, 1);
  if (http->daemon[1]) TrsServeRemoveUnix(http->settings.socket, &http->file);
  for (int d = 0; d < 2; d++)
    if (http->daemon[d] && http->quiet[d] < 0) http->quiet[d] = MHD_quiesce_daemon(http->daemon[d]);
}

int64_t TrsServeHttpUnanswered(TrsServeHttp http)
{
  return atomic_load(&http->n_unanswered);
}

PetscErrorCode TrsServeHttpDestroy(TrsServeHttp *http)
{
  TrsServeHttp h = *http;

  PetscFunctionBegin;
  if (!h) PetscFunctionReturn(PETSC_SUCCESS);
  for (int d = 0; d < 2; d++) {
    if (h->daemon[d]) MHD_stop_daemon(h->daemon[d]);
    if (h->quiet[d] >= 0) (void)close(h->quiet[d]);
  }
  (void)pthread_mutex_destroy(&h->lock);
  PetscCall(PetscFree(*http));
  PetscFunctionReturn(PETSC_SUCCESS);
}
