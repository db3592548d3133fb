/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A round trip: embeddings are sent from their owners to the samples' ranks, and gradients are sent
  back. The all-to-alls of pooled, variable-batch and sequence embeddings use this code. They differ
  in the number of floats for each rank.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct {
  TrsComm comm;
  /* [size] number and position of the floats that this rank owns, by the rank of their samples */
  int64_t *owner_counts, *owner_displs;
  /* [size] number and position of the floats for this rank's samples, by their owner */
  int64_t *sample_counts, *sample_displs;
  int64_t n_owner, n_sample; /* number of all floats on each side */
  /*
    [size] owner_sent and sample_sent are the counts of the forward exchange. They equal
    owner_counts and sample_counts, except that some entries are 0: with in_place the entry of this
    rank itself, and the entries of skipped ranks. owner_messages and sample_messages are used only
    with in_place. They count the gradients that return in messages. All other gradients are written
    directly to the owner's memory.
  */
  int64_t *owner_sent, *sample_sent, *owner_messages, *sample_messages;
  const PetscBool *skipped; /* [size] set by TrsRoundTripSkip(); NULL: no rank is skipped */
  /* True if the rows that have arrived are still read while the gradients are sent. */
  PetscBool keeps_rows;
  /*
    If true, gradients overwrite rows in the memory in which this rank reads the rows. This is their
    owner's memory, if this rank can write to it. Rows and gradients are not encoded. The owner
    lends its rows from Start to GradWait.
  */
  PetscBool in_place;
  /* [n_owner] rows of this owner, which the gradients overwrite */
  float *rows;
  /* [n_sample] rows that have arrived, later the gradients that are sent */
  float *samples;
  TrsDeviceBuffer recv, grad_send;
  TrsCodedExchange forward, backward;
} TrsRoundTrip;

/*
  Create a round trip. If keeps_rows is set, rows that have arrived stay unchanged until the next
  start, and gradients have memory of their own. If not, the gradients overwrite the rows.
*/
PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, PetscBool keeps_rows,
                                TrsRoundTrip *trip);
PetscErrorCode TrsRoundTripFree(TrsRoundTrip *trip);

/*
  TrsRoundTripStart, TrsRoundTripWait - Send rows to the samples' ranks.

  The caller must set owner_counts and sample_counts. On both sides, blocks lie one after another in
  rank order. `rows` belongs to the exchange until the wait, and again from GradStart to GradWait,
  which writes the gradients to it. The result of Wait is borrowed until GradBuffer; with
  keeps_rows, until the next start. If there is only one rank, its rows are not copied unless they
  are encoded.

  Collective on comm.
*/
PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, float *rows);
PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv);

/*
  Let the next Start send no rows to the ranks q with skipped[q], and receive none from them. They
  must be ranks that share no memory with this rank, and they must skip this rank, too. Between
  Arrive and Release, or Return, the caller must write the rows to the ranks' blocks. Gradients are
  sent as always. Not collective.
*/
void TrsRoundTripSkip(TrsRoundTrip *trip, const PetscBool *skipped);

/*
  Call these two functions instead of Wait. Arrive sets block [size] to the address of each owner's
  block, which may be in the owner's memory. Release must be called after the blocks were read. It
  waits until the other ranks have also called it.
*/
PetscErrorCode TrsRoundTripArrive(TrsRoundTrip *trip, TrsStream stream, const float **block);
PetscErrorCode TrsRoundTripRelease(TrsRoundTrip *trip, TrsStream stream);

/*
  With in_place, call this function instead of Release, GradBuffer and GradStart, when all blocks
  have gradients instead of rows. Then call GradWait. Collective on comm.
*/
PetscErrorCode TrsRoundTripReturn(TrsRoundTrip *trip, TrsStream stream);

/*
  Return the memory for n_sample floats of gradients. The caller must fill this memory; GradStart
  then sends the gradients back.
*/
PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send);

/*
  Return the address to which the gradients of this rank's own rows for its own samples must be
  written, so that they need not be sent. Returns NULL if they must be written among the other
  gradients, because they are encoded. May be called between GradBuffer and GradStart.
*/
float *TrsRoundTripOwnGrad(TrsRoundTrip *trip);

PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream);
PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad);
