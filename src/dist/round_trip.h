/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embeddings go from their owners to the samples' ranks, and gradients the same way back: what the all-to-alls
  of pooled, variable-batch and sequence embeddings share. They differ in how many floats go where.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct {
  TrsComm comm;
  int64_t *owner_counts,
      *owner_displs; /* [size] floats this rank owns, by the rank whose samples they belong to */
  int64_t *sample_counts, *sample_displs; /* [size] floats of this rank's samples, by their owner */
  int64_t n_owner, n_sample;              /* totals */
  PetscBool keeps_rows;                   /* what came is still read when the gradients go */
  float *rows;                            /* n_owner, the owner's: gradients come back in their place */
  float *samples;                         /* n_sample: what came, then the gradients that go */
  TrsDeviceBuffer recv, grad_send;
  TrsCodedExchange forward, backward;
} TrsRoundTrip;

/*
  keeps_rows: rows that have come stay as they are until the next start, and their gradients have memory of their
  own; else the gradients take their place.
*/
PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, PetscBool keeps_rows,
                                TrsRoundTrip *trip);
PetscErrorCode TrsRoundTripFree(TrsRoundTrip *trip);

/*
  Start with owner_counts and sample_counts set by the caller; blocks follow one another in rank order on both
  sides. rows belongs to the exchange until the wait, and again from GradStart to GradWait, which puts the
  gradients there; what Wait gives is borrowed until GradBuffer (keeps_rows: until the next start). One rank's rows
  that are not encoded stay where they are. Collective on comm.
*/
PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, float *rows);
PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv);

/*
  Instead of Wait: block [size] becomes where each owner's block lies, maybe in the owner's memory; after reading them Release gives them back, and
  waits for the others to do so.
*/
PetscErrorCode TrsRoundTripArrive(TrsRoundTrip *trip, TrsStream stream, const float **block);
PetscErrorCode TrsRoundTripRelease(TrsRoundTrip *trip, TrsStream stream);

/* Room for the gradients of n_sample floats, which the caller fills; then they go back. */
PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send);

/*
  Asked between GradBuffer and GradStart: where the gradients of the rows that this rank owns for its own samples are to be written then, so that
  they need not travel. NULL where they do, because they are encoded on the way: among the others.
*/
float *TrsRoundTripOwnGrad(TrsRoundTrip *trip);

PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream);
PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad);
