/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Protocols: what clients send and receive. A protocol finds what a URL asks for, makes a request
  from a body, and writes answers. It knows neither sockets nor threads, so a fuzzer can call it.
  Any thread may call these functions.
*/
#pragma once

#include "serve/answer_text.h"
#include "serve/request.h"

enum { TRS_SERVE_ID = 256 }; /* size of a request's id */

/* The answers that a URL can ask for. */
typedef enum {
  TRS_SERVE_NOTHING, /* the URL is unknown */
  TRS_SERVE_LIVE,
  TRS_SERVE_READY,
  TRS_SERVE_SERVER, /* the server's name and version */
  TRS_SERVE_MODEL,  /* the model's inputs and outputs */
  TRS_SERVE_MODEL_READY,
  TRS_SERVE_PREDICT,
  TRS_SERVE_METRICS
} TrsServeAction;

/* The model for clients. */
typedef struct {
  const char *name;
  int64_t step; /* number of updates; clients see it as the model's version */
  const TrsServeShape *shape;
} TrsServeFacts;

/* A request's body. Its first json_bytes are JSON, and tensors in binary form follow. */
typedef struct {
  const char *bytes;
  int64_t n, json_bytes;
  int64_t most_samples; /* largest number of samples of a request */
} TrsServeBody;

/* The form in which a client wants its answer. Free with TrsServeFormFree(). */
typedef struct {
  char id[TRS_SERVE_ID]; /* "" if the request has no id */
  int32_t n;             /* number of outputs in the answer */
  struct {
    int32_t output;   /* index of the output */
    PetscBool binary; /* true: in binary form, else as JSON */
  } * wanted;         /* [n] in the order of the request */
} TrsServeForm;

void TrsServeFormFree(TrsServeForm *form);

typedef struct {
  /*
    Find what a URL asks for. If it asks for an unknown model, *outcome gets a status other than
    200.
  */
  TrsServeAction (*find)(const TrsServeFacts *facts, const char *url, TrsServeOutcome *outcome);
  /* Fill a request and the form of its answer from a body. Returns outcome->status. */
  int (*parse)(const TrsServeShape *shape, const TrsServeBody *body, TrsServeRequest *request,
               TrsServeForm *form, TrsServeOutcome *outcome);
  /* Write the answer to a request. *json_bytes becomes the length of its JSON part. */
  void (*answer)(const TrsServeFacts *facts, const TrsServeRequest *request, const TrsServeForm *form,
                 TrsServeText *text, int64_t *json_bytes);
  /* Write the answer to MODEL or SERVER. */
  void (*describe)(const TrsServeFacts *facts, TrsServeAction action, TrsServeText *text);
  /* Write the answer to a request that was refused. */
  void (*refuse)(const TrsServeOutcome *outcome, TrsServeText *text);
} TrsServeProtocol;

/* The protocols, ended by NULL. The first protocol that knows a URL answers it. */
extern const TrsServeProtocol *const trs_serve_protocols[];

/* The request parser of the Open Inference Protocol (kserve_request.c). */
int TrsServeKserveParse(const TrsServeShape *shape, const TrsServeBody *body, TrsServeRequest *request,
                        TrsServeForm *form, TrsServeOutcome *outcome);
