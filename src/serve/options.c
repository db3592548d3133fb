/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/options.h"

#include "spec/vocabulary.h"

#include <stdio.h>
#include <string.h>

static const TrsOptionSpec model_specs[] = {
    {"-model", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "checkpoint to serve; without it the newest checkpoint of -serve_follow"},
    {"-serve_follow", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "folder of checkpoints, such as a training's -checkpoint_dir. A newer checkpoint replaces the model "
     "between two batches"},
    {"-serve_deltas", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "folder of deltas, a training's -delta_dir. Each delta that continues the model's chain changes the "
     "weights between two batches. Files forget*.h5 there are deltas of apply_delta.py --forget_delta"},
    {"-serve_follow_seconds", TRS_OPTION_REAL, "1", "[0.01,3600]", NULL, "seconds",
     "time between two checks of -serve_follow and -serve_deltas"},
    {"-serve_name", TRS_OPTION_STRING, "model", NULL, NULL, NULL, "name of the model in URLs and answers"},
    {"-tables_data_type", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_DATA_TYPES), NULL,
     "type of the tables; without it, the checkpoint's type. Tables in the checkpoint's type are mapped from "
     "the file"},
    {"-ema_decay", TRS_OPTION_REAL, NULL, "[0,0]", NULL, NULL,
     "0 ignores the averaged weights of a training with -ema_decay. Without it, averages are used if the "
     "checkpoint has them"},
    {"-check_weights", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "check a checkpoint's checksums and all its numbers before it is served, which reads the whole file. "
     "false is for files that are known to be undamaged: a large model is then ready at once"},
};
static const TrsOptionSpec http_specs[] = {
    {"-serve_host", TRS_OPTION_STRING, "127.0.0.1", NULL, NULL, NULL,
     "address on which the server listens; 0.0.0.0: on all addresses. There is no authentication"},
    {"-serve_port", TRS_OPTION_INT, "8000", "[0,65535]", NULL, NULL, "TCP port; 0: any free port"},
    {"-serve_socket", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "path of a Unix socket on which the server also listens"},
    {"-serve_http_threads", TRS_OPTION_INT, "1", "[1,256]", NULL, NULL,
     "threads that read requests and write answers. The Unix socket has the same number of its own threads"},
    {"-serve_connections", TRS_OPTION_INT, "1024", "[1,1000000]", NULL, NULL,
     "largest number of connections to the port, and to the Unix socket; others wait until one is closed"},
    {"-serve_timeout_seconds", TRS_OPTION_INT, "30", "[1,3600]", NULL, "seconds",
     "a connection is closed if no byte is received or sent for this time, or if the headers, the body or "
     "the answer of a request take twice this time"},
    {"-serve_header_bytes", TRS_OPTION_BYTES, "32KiB", "[4096,16777216]", NULL, NULL,
     "memory of a connection for its headers; a request with larger headers is refused"},
    {"-serve_request_bytes", TRS_OPTION_BYTES, "16MiB", "[1024,2147483647]", NULL, NULL,
     "largest body of a request"},
    {"-serve_body_bytes", TRS_OPTION_BYTES, "256MiB", "[1024,]", NULL, NULL,
     "largest sum of the bodies of all requests in memory; further requests get status 503"},
    {"-serve_request_samples", TRS_OPTION_INT, "16384", "[1,16777216]", NULL, "samples",
     "largest number of samples of a request"},
};
static const TrsOptionSpec batch_specs[] = {
    {"-serve_threads", TRS_OPTION_INT, "1", "[1,1024]", NULL, NULL, "threads that predict"},
    {"-serve_batch", TRS_OPTION_INT, "256", "[1,1000000]", NULL, "samples",
     "requests that wait at the same time are predicted together, up to this number of samples"},
    {"-serve_batch_microseconds", TRS_OPTION_INT, "0", "[0,10000000]", NULL, NULL,
     "a batch that is not full waits for further requests until its first request is this old. 0: a free "
     "thread takes the requests that are there"},
    {"-serve_requests", TRS_OPTION_INT, "256", "[1,1000000]", NULL, NULL,
     "largest number of requests that wait or are predicted; further requests get status 503"},
    {"-serve_drain_seconds", TRS_OPTION_REAL, "10", "[0,3600]", NULL, "seconds",
     "after SIGTERM or SIGINT, the server takes no new requests. For at most this time, it still answers "
     "requests that have arrived"},
};
static const TrsOptionGroup groups[] = {TRS_OPTION_GROUP("Model", model_specs),
                                        TRS_OPTION_GROUP("Connections", http_specs),
                                        TRS_OPTION_GROUP("Batches", batch_specs)};
const TrsOptionGroup *const trs_serve_options[] = {&groups[0], &groups[1], &groups[2]};
const int trs_n_serve_options = 3;

/* Make the options of the predictor. */
static PetscErrorCode predictor_options(TrsOptions options, char *text, size_t n)
{
  static const char *const types[] = {TRS_DATA_TYPES(TRS_WORD_TEXT)};
  PetscBool check, has_type, has_decay;
  int data_type = 0;
  double decay;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-tables_data_type", &data_type, &has_type));
  PetscCall(TrsOptionsGetReal(options, "-ema_decay", &decay, &has_decay));
  PetscCall(TrsOptionsGetBool(options, "-check_weights", &check, NULL));
  snprintf(text, n, "-check_weights %s%s%s%s", check ? "true" : "false",
           has_type ? " -tables_data_type " : "", has_type ? types[data_type] : "",
           has_decay ? " -ema_decay 0" : "");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that a name can be a part of a URL. */
static PetscErrorCode check_name(TrsOptions options, const char *name)
{
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const size_t n = strlen(name);

  PetscFunctionBegin;
  /* clients resolve "." and ".." in a URL */
  if (n == 0 || n > 200 || strspn(name, allowed) != n || !strcmp(name, ".") || !strcmp(name, ".."))
    PetscCall(
        TrsOptionError(options, "-serve_name",
                       "expected 1 to 200 letters, digits, \".\", \"_\" and \"-\", and not \".\" or \"..\""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeSettingsFromOptions(TrsOptions options, TrsServeSettings *s)
{
  TrsServeHttpSettings *http = &s->http;
  int64_t microseconds;

  PetscFunctionBegin;
  *s = (TrsServeSettings){.model = NULL};
  PetscCall(TrsOptionsGetString(options, "-model", &s->model, NULL));
  PetscCall(TrsOptionsGetString(options, "-serve_follow", &s->follow, NULL));
  PetscCall(TrsOptionsGetString(options, "-serve_deltas", &s->deltas, NULL));
  PetscCheck(s->model || s->follow, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-model is missing: a checkpoint to serve, or -serve_follow, a folder of checkpoints");
  PetscCall(TrsOptionsGetReal(options, "-serve_follow_seconds", &s->follow_s, NULL));
  PetscCall(TrsOptionsGetReal(options, "-serve_drain_seconds", &s->drain_s, NULL));
  PetscCall(predictor_options(options, s->predictor, sizeof(s->predictor)));
  PetscCall(TrsOptionsGetInt(options, "-serve_requests", &s->requests, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_threads", &s->batching.threads, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_batch", &s->batching.batch, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_batch_microseconds", &microseconds, NULL));
  s->batching.wait_s = 1e-6 * (double)microseconds;
  PetscCall(TrsOptionsGetString(options, "-serve_name", &http->name, NULL));
  PetscCall(check_name(options, http->name));
  PetscCall(TrsOptionsGetString(options, "-serve_host", &http->host, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_port", &http->port, NULL));
  PetscCall(TrsOptionsGetString(options, "-serve_socket", &http->socket, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_http_threads", &http->threads, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_connections", &http->connections, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_timeout_seconds", &http->timeout_s, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_header_bytes", &http->header_bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_request_bytes", &http->request_bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_body_bytes", &http->body_bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-serve_request_samples", &http->request_samples, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
