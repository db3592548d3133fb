/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader's state and its threads. Internal to reader.c and reader_threads.c. */
#pragma once

#include "data/batch.h"
#include "data/batch_room.h"

#include <pthread.h>

/*
  States of a slot: free, ready, and out, in this order. Between free and ready, a slot may need
  more memory.
*/
typedef enum { TRS_SLOT_FREE, TRS_SLOT_NEEDS_ROOM, TRS_SLOT_READY, TRS_SLOT_OUT } TrsSlotState;

typedef struct {
  /* must be the first field, because the address of a batch is used as the address of its slot */
  TrsBatch batch;
  TrsBatchRoom room;
  TrsBadIds *bad_ids; /* [n] */
  TrsSlotState state;
  int64_t next; /* the step whose batch the slot has or will have */
  TrsFault fault;
  PetscBool kept; /* the slot keeps its batch, which is repeated: -data_repeat_batches */
} TrsSlot;

/* A reader thread. If there are n threads, each reads every n-th batch. */
typedef struct {
  TrsReader reader;
  int64_t first; /* first step of the thread */
  pthread_t thread;
  PetscBool running; /* the thread has been started */
  /* Only the thread uses this memory, except while the main thread enlarges it. */
  TrsBatchScratch scratch;
} TrsReaderThread;

struct TrsReaderImpl {
  MPI_Comm comm;
  TrsDeviceOps memory; /* a device whose alloc() returns host memory for batches */
  TrsBatchOrder schedule;
  int64_t steps, epochs; /* the values of -steps and -epochs, or -1 if not given */
  PetscBool training, weighted, grouped;
  PetscBool keeps; /* true if batches are repeated */
  /* before the reader is set up, n_threads is 0 if it was not given */
  int64_t seed, read_ahead, n_threads;
  /* number of batches that are read once and then repeated; 0 if none */
  int64_t n_repeated;
  TrsBatchSpec spec;
  int64_t start, total, max_batch;

  TrsSlot *slots; /* [n_slots] step s is read into slot s % n_slots */
  int64_t n_slots, next_out;
  TrsBadIds *bad_ids;  /* [n] the repaired ids of each feature so far */
  int64_t bad_numbers; /* number of bad numbers that were accepted so far */

  TrsReaderThread *threads; /* [n_threads] thread s % n_threads reads step s */
  PetscBool maps;           /* true if ids are mapped to rows */
  /*
    The lock protects the states and steps of the slots, the reader's row of the trace, and the
    fields from `stop` to `pause`. For a stream, it also protects `total` and changes of `schedule`.
  */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  PetscBool stop;
  int n_reading;         /* number of threads that use the dataset now */
  PetscBool pause;       /* true: no thread may begin to use the dataset */
  TrsBatchScratch check; /* scratch of TrsReaderCheck(), created at the first use */
};

/*
  Start the threads of reader->threads. The main thread continues to receive all signals. Not
  collective. Errors: MEMORY.
*/
PetscErrorCode TrsReaderThreadsStart(TrsReader reader);

/* End the threads. Not collective. */
PetscErrorCode TrsReaderThreadsStop(TrsReader reader);
