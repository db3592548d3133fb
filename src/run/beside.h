/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Full checkpoints that are written beside the training (-checkpoint_async). A snapshot
  (embed/snapshot.h) keeps the rows of one step, and on each rank a thread writes the rank's parts.
  The ranks go on from stage to stage of the file (io/checkpoint/checkpoint.h) between two steps,
  when all of their threads have ended.
*/
#pragma once

#include "session/session.h"

#include <pthread.h>

/* the options -checkpoint_async and -checkpoint_async_bytes */
extern const TrsOptionGroup trs_beside_options;

enum { TRS_BESIDE_TEXT = 2048 };

typedef struct {
  PetscBool wanted;
  int busy;                   /* not 0 while the thread works; it is read and written atomically */
  TrsCheckpointWriter writer; /* NULL: no file is being written */
  TrsSnapshot snapshot;
  TrsCheckpointInfo info; /* of the file: only its numbers, and its id */
  pthread_t thread;
  PetscBool has_thread;
  PetscErrorCode error; /* of the thread, with its message */
  char message[TRS_BESIDE_TEXT];
  double start_s; /* when the snapshot was taken */
  double pause_s; /* time that steps have been paused for this file */
  int64_t n_files;
  double most_pause_s, all_pause_s, writing_s; /* of all files */
  /* time of waiting for the end of a file, when the next one was due or the training had ended */
  double waited_s;
  TrsSnapshotCounts most; /* of all files: the largest numbers */
  int64_t n_waits;
  PetscClassId class_id;
  PetscLogEvent begin_event, wait_event; /* rows of -log_view for begun files and waits */
} TrsBeside;

/* Read the options. Not collective. Errors: OPTION */
PetscErrorCode TrsBesideFromOptions(TrsOptions options, TrsBeside *beside);

/* Check that this session's model can take snapshots. Not collective. Errors: OPTION */
PetscErrorCode TrsBesideCheck(TrsBeside *beside, const TrsSession *session);

/*
  TrsBesideBegin - Take a snapshot and begin to write it into the folder.

  Collective. No other file may be being written.

  In:     info  as for TrsCheckpointFolderWrite(). info->id is borrowed until the file is written
  Errors (agreed): those of TrsCheckpointBegin()
*/
PetscErrorCode TrsBesideBegin(TrsBeside *beside, TrsSession *session, TrsCheckpointFolder folder,
                              const TrsCheckpointInfo *info);

/*
  TrsBesideAdvance - Go on with the file, when no rank's thread is busy.

  Collective.

  Out:    written  the file is in place, and belongs to the folder's files
  Errors (agreed): those of TrsCheckpointDoStage(); the file is then given up
*/
PetscErrorCode TrsBesideAdvance(TrsBeside *beside, MPI_Comm comm, TrsCheckpointFolder folder,
                                PetscBool *written);

/*
  Find out between steps whether any rank's thread is busy. Needed only if no step reports this
  (TrsStepResult.busy). Collective.
*/
PetscErrorCode TrsBesideIsBusy(TrsBeside *beside, MPI_Comm comm, PetscBool *busy);

/* Wait until the file is in place. Collective. Errors: as for TrsBesideAdvance() */
PetscErrorCode TrsBesideWait(TrsBeside *beside, MPI_Comm comm, TrsCheckpointFolder folder);

/* Print and record the pauses and the memory of all files. Collective. */
PetscErrorCode TrsBesideReport(TrsBeside *beside, MPI_Comm comm, TrsResults results);

/* Give up a file that is not in place, and remove it. Not collective. */
PetscErrorCode TrsBesideEnd(TrsBeside *beside);
