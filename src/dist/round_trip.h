/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embeddings go from their owners to the samples' ranks, and gradients go the same way back. The
  all-to-alls of pooled, variable-batch and sequence embeddings share this code. They differ in the
  number of floats for each rank.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct {
  TrsComm comm;
  /* [size] floats that this rank owns, by the rank whose samples they belong to */
  int64_t *owner_counts, *owner_displs;
  int64_t *sample_counts, *sample_displs; /* [size] floats of this rank's samples, by their owner */
  int64_t n_owner, n_sample;              /* totals */
  /* [size] in place: what of both goes to other ranks, and what comes back as messages */
  int64_t *owner_sent, *sample_sent, *owner_messages, *sample_messages;
  /* arrived rows are still read when the gradients travel */
  PetscBool keeps_rows;
  /*
    Gradients take the place of rows wherever these lie: in their owner's memory, too, if this rank
    can write there. Neither is encoded. The rows' owner lends them from Start to GradWait.
  */
  PetscBool in_place;
  /* [n_owner] owned rows; their gradients come back in their place */
  float *rows;
  /* [n_sample] arrived rows, then the gradients that are sent */
  float *samples;
  TrsDeviceBuffer recv, grad_send;
  TrsCodedExchange forward, backward;
} TrsRoundTrip;

/*
  keeps_rows: arrived rows stay unchanged until the next start, and their gradients have memory of
  their own. Without keeps_rows the gradients take the place of the rows.
*/
PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, PetscBool keeps_rows,
                                TrsRoundTrip *trip);
PetscErrorCode TrsRoundTripFree(TrsRoundTrip *trip);

/*
  TrsRoundTripStart, TrsRoundTripWait - Send rows to the samples' ranks.

  The caller sets owner_counts and sample_counts. Blocks follow one another in rank order on both
  sides. rows belongs to the exchange until the wait, and again from GradStart to GradWait, which
  puts the gradients there. The result of Wait is borrowed until GradBuffer (keeps_rows: until the
  next start). The rows of a single rank stay in their place unless they are encoded.

  Collective on comm.
*/
PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, float *rows);
PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv);

/*
  Use these two instead of Wait. Arrive sets block [size] to where each owner's block lies, which
  may be the owner's memory. Release gives the blocks back after they were read, and waits for the
  other ranks to do so.
*/
PetscErrorCode TrsRoundTripArrive(TrsRoundTrip *trip, TrsStream stream, const float **block);
PetscErrorCode TrsRoundTripRelease(TrsRoundTrip *trip, TrsStream stream);

/*
  In place: use it instead of Release, GradBuffer and GradStart, when the gradients have taken the
  place of the rows in all blocks. GradWait follows. Collective on comm.
*/
PetscErrorCode TrsRoundTripReturn(TrsRoundTrip *trip, TrsStream stream);

/*
  The memory for the gradients of n_sample floats. The caller fills it, and GradStart sends them
  back.
*/
PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send);

/*
  Call it between GradBuffer and GradStart. The result says where to write the gradients of the rows
  that this rank owns for its own samples, so that they need not travel. NULL: these gradients go
  among the others, because they are encoded on the way.
*/
float *TrsRoundTripOwnGrad(TrsRoundTrip *trip);

PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream);
PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad);
