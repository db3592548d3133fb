/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A prediction request between a protocol and the batcher, and the fixed pool of requests.

  A protocol takes an entry from the pool, fills it, and submits it to the batcher. If the pool is
  empty, the server is busy, and the client gets an error. So the queue cannot grow.
*/
#pragma once

#include "api/trshard.h"
#include "core/buffer.h"

#include <pthread.h>
#include <stdint.h>

enum { TRS_SERVE_MESSAGE = 512 };

/* The model's inputs and outputs, which stay the same while the server runs. */
typedef struct {
  int32_t num_dense, n_features, n_outputs;
  char **feature; /* [n_features] names of the sparse features, in the order of TrshardBatch */
  char **output;  /* [n_outputs] names of the outputs */
  /* the raw columns that the model's mapping needs; 0 if the checkpoint has no mapping that makes
     all inputs */
  int32_t n_columns;
  TrshardColumnInfo *column; /* [n_columns] without units */
  char **column_name;        /* [n_columns] the owned names of the columns */
} TrsServeShape;

/* An answer to a client that is not a prediction: an HTTP status, and a message for errors. */
typedef struct {
  int status; /* 200 if there is no error */
  char message[TRS_SERVE_MESSAGE];
} TrsServeOutcome;

typedef struct TrsServeRequest {
  struct TrsServeRequest *next; /* next in the queue, or in the pool's list */
  int64_t n, n_values;          /* number of samples, and of ids */
  /* int32 [features, n], int64 [n_values], float [n_values], float [n, num_dense]: as for
     TrshardPredict() */
  TrsBuffer lengths, values, weights, dense;
  /*
    A request with raw columns: the batcher makes the arrays above from them, by the mapping of the
    model that predicts. TrshardColumn [n_columns], TrshardValue [values of all columns], int32
    [n_columns, n], and the bytes of texts
  */
  PetscBool is_raw;
  TrsBuffer columns, cells, cell_lengths, texts;
  TrsBuffer predictions; /* float [n, n_outputs] */
  int64_t step;          /* number of updates of the model that predicted */
  double begin_s;        /* TrsClock() at the start of the request */
  TrsServeOutcome outcome;
  /* called on a thread of the batcher when the request is done */
  void (*done)(void *context);
  void *context;
} TrsServeRequest;

typedef struct TrsServePoolImpl *TrsServePool;

/* Create a pool of `n` requests. Not collective. Errors: MEMORY */
PetscErrorCode TrsServePoolCreate(int64_t n, TrsServePool *pool);
PetscErrorCode TrsServePoolDestroy(TrsServePool *pool); /* accepts NULL */

/* Take a request out of the pool, or return NULL if all are in use. Any thread may call this. */
TrsServeRequest *TrsServePoolTake(TrsServePool pool);

/* Return a request to the pool. Large buffers are freed. Any thread may call this. */
void TrsServePoolReturn(TrsServePool pool, TrsServeRequest *request);

/* Return the number of requests that are in use. */
int64_t TrsServePoolUsed(TrsServePool pool);

/* Set the outcome of a request that was refused. Returns the status. */
int TrsServeRefuse(TrsServeOutcome *outcome, int status, const char *format, ...)
    PETSC_ATTRIBUTE_FORMAT(3, 4);

/* Refuse a request because memory ran out, and clear the library's error. Returns the status. */
int TrsServeRefuseMemory(TrsServeOutcome *outcome);

/* Make room for n elements, whose values are lost. Returns false if memory ran out. */
PetscBool TrsServeReserve(TrsBuffer *buffer, int64_t n, size_t size);

/*
  Make room for lengths, values, weights, dense features and predictions of request->n samples.
  Their contents are lost. Returns false if memory ran out.
*/
PetscBool TrsServeReserveSamples(const TrsServeShape *shape, int64_t n_values, TrsServeRequest *request);

/* Free the buffers of a request that have more than kept_bytes bytes; -1: all buffers. */
void TrsServeFreeBuffers(TrsServeRequest *request, int64_t kept_bytes);
