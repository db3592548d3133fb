/* SPDX-License-Identifier: BSD-3-Clause */
/*
  HTTP/1.1 on a TCP port and on a Unix socket, by GNU libmicrohttpd.

  libmicrohttpd parses HTTP. It starts only the threads that it is told to start, and can suspend a
  connection: while a request waits for its prediction, no thread waits with it. Its limits
  (connections, memory of a connection, timeout) bound what clients can use.
*/
#pragma once

#include "serve/batcher.h"

typedef struct {
  const char *name;   /* name of the model */
  const char *host;   /* address of the TCP port */
  int64_t port;       /* 0: any free port */
  const char *socket; /* path of the Unix socket, or NULL */
  int64_t threads;    /* threads for the port, and as many for the Unix socket */
  int64_t connections, header_bytes, request_bytes, body_bytes, request_samples, timeout_s;
} TrsServeHttpSettings;

typedef struct TrsServeHttpImpl *TrsServeHttp;

/*
  Listen and answer. `settings` and the other objects are borrowed. Not collective.
  Errors: OPTION if the address is wrong or in use; MEMORY
*/
PetscErrorCode TrsServeHttpCreate(const TrsServeHttpSettings *settings, TrsServeSlot slot, TrsServePool pool,
                                  TrsServeBatcher batcher, TrsServeMetrics *metrics, TrsServeHttp *http);

/* Return the port on which the server listens. */
int TrsServeHttpPort(TrsServeHttp http);

/*
  Accept no new connections and no new requests. Readiness ends, and the path of the Unix socket is
  free for another server.
*/
void TrsServeHttpDrain(TrsServeHttp http);

/* Return the number of prediction requests that are not yet answered. */
int64_t TrsServeHttpUnanswered(TrsServeHttp http);

/*
  Close connections that take longer than twice the timeout for the headers or the body of a
  request, or for reading an answer.
*/
void TrsServeHttpCloseSlow(TrsServeHttp http);

/*
  Close all connections, and free the server. TrsServeBatcherEnd() must have been called. Accepts
  NULL.
*/
PetscErrorCode TrsServeHttpDestroy(TrsServeHttp *http);
