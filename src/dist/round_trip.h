/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embeddings go from their owners to the samples' ranks, and gradients the same way back: what the all-to-alls
  of pooled, variable-batch and sequence embeddings share. They differ in how many floats go where.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct {
  TrsComm comm;
  PetscBool gradient_division;
  int64_t *owner_counts,
      *owner_displs; /* [size] floats this rank owns, by the rank whose samples they belong to */
  int64_t *sample_counts, *sample_displs; /* [size] floats of this rank's samples, by their owner */
  int64_t n_owner, n_sample;              /* totals */
  TrsDeviceBuffer recv, grad_send, grad;
  TrsCodedExchange forward, backward;
} TrsRoundTrip;

PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, TrsRoundTrip *trip);
PetscErrorCode TrsRoundTripFree(TrsRoundTrip *trip);

/*
  Start with owner_counts and sample_counts set by the caller; blocks follow one another in rank order on both
  sides. rows belongs to the exchange until the wait; what Wait and GradWait give is borrowed until the next
  start. Collective on comm.
*/
PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, const float *rows);
PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv);

/*
  Room for the gradients of n_sample floats, for the caller to fill; then back, divided when gradient_division
  says so.
*/
PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send);
PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream);
PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad);
