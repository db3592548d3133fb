/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The global batch on every rank, for -reproducible: the dense layers' work on it is the same computation on all ranks, whatever their
  number, so its bits are too, and no sum over ranks is left.

  Cost: each rank computes the dense part of all G samples instead of its own B, and receives their rows of the interaction's input,
  G * (1 + F) * D floats. No gradient of the dense layers travels. Host memory only.
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsWholeBatchImpl *TrsWholeBatch;

/* In: comm  borrowed. Not collective. */
PetscErrorCode TrsWholeBatchCreate(TrsComm comm, TrsWholeBatch *whole);
PetscErrorCode TrsWholeBatchDestroy(TrsWholeBatch *whole);

/* Room for this rank's n rows of `stride` floats, to be filled and gathered. Borrowed until the next call. Not collective. */
PetscErrorCode TrsWholeBatchOwnRows(TrsWholeBatch whole, int64_t n, int64_t stride, float **rows);

typedef struct {
  int64_t n, first; /* G; this rank's first sample */
  const float *dense,
      *labels; /* [G, num_dense], [G]; NULL where the batch has none. Borrowed until the next Gather */
} TrsWholeSamples;

/*
  TrsWholeBatchGather - The samples of all ranks, in rank order: that of the global batch.

  Collective on comm.

  In:     n       this rank's samples
          dense, labels  theirs; labels NULL: there are none, on all ranks
          stride  floats of a row of the interaction's input, filled in by the caller at TrsWholeBatchOwnRows()
  Out:    rows    [G, stride]
*/
PetscErrorCode TrsWholeBatchGather(TrsWholeBatch whole, TrsStream stream, int64_t n, int num_dense,
                                   const float *dense, const float *labels, int64_t stride, float *rows,
                                   TrsWholeSamples *samples);
