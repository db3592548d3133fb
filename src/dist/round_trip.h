/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embeddings travel from their owners to the samples' ranks, and gradients travel back. The
  all-to-alls of pooled, variable-batch and sequence embeddings share this code; they differ in the
  number of floats for each rank.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct {
  TrsComm comm;
  /* [size] floats that this rank owns, by the rank of their samples */
  int64_t *owner_counts, *owner_displs;
  /* [size] floats for this rank's samples, by their owner */
  int64_t *sample_counts, *sample_displs;
  int64_t n_owner, n_sample; /* totals */
  /*
    [size] in place: the part of both counts that goes to other ranks, and the part that comes back
    as messages
  */
  int64_t *owner_sent, *sample_sent, *owner_messages, *sample_messages;
  /* arrived rows are still read while the gradients travel */
  PetscBool keeps_rows;
  /*
    Gradients overwrite rows where the rows lie: in their owner's memory if this rank can write
    there. Neither is encoded. The owner lends its rows from Start to GradWait.
  */
  PetscBool in_place;
  /* [n_owner] owned rows; the gradients overwrite them */
  float *rows;
  /* [n_sample] arrived rows, later the gradients that are sent */
  float *samples;
  TrsDeviceBuffer recv, grad_send;
  TrsCodedExchange forward, backward;
} TrsRoundTrip;

/*
  keeps_rows: arrived rows stay unchanged until the next start, and gradients have their own memory.
  Without keeps_rows the gradients overwrite the rows.
*/
PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, PetscBool keeps_rows,
                                TrsRoundTrip *trip);
PetscErrorCode TrsRoundTripFree(TrsRoundTrip *trip);

/*
  TrsRoundTripStart, TrsRoundTripWait - Send rows to the samples' ranks.

  The caller must set owner_counts and sample_counts. Blocks are consecutive, in rank order, on both
  sides. rows belongs to the exchange until the wait, and again from GradStart to GradWait, which
  writes the gradients there. Wait's result is borrowed until GradBuffer (keeps_rows: until the next
  start). A single rank's rows are not copied unless they are encoded.

  Collective on comm.
*/
PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, float *rows);
PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv);

/*
  Use these two instead of Wait. Arrive sets block [size] to each owner's block, which may be in the
  owner's memory. Release must be called when the blocks have been read; it waits until the other
  ranks have also released.
*/
PetscErrorCode TrsRoundTripArrive(TrsRoundTrip *trip, TrsStream stream, const float **block);
PetscErrorCode TrsRoundTripRelease(TrsRoundTrip *trip, TrsStream stream);

/*
  In place: call it instead of Release, GradBuffer and GradStart, once all blocks hold gradients
  instead of rows. GradWait follows. Collective on comm.
*/
PetscErrorCode TrsRoundTripReturn(TrsRoundTrip *trip, TrsStream stream);

/*
  Get the memory for n_sample floats of gradients. The caller must fill it; GradStart then sends
  them back.
*/
PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send);

/*
  Call it between GradBuffer and GradStart. Returns the address to which the gradients of this
  rank's own rows for its own samples must be written so that they need not travel. NULL: write them
  among the others, because they are encoded.
*/
float *TrsRoundTripOwnGrad(TrsRoundTrip *trip);

PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream);
PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad);
