/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A folder of checkpoints, from which the server takes the newest, and a folder of deltas, from
  which it takes the next one. One thread uses these functions.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>
#include <sys/stat.h>

typedef struct {
  const char *folder;      /* borrowed; NULL if the server follows none */
  struct stat last;        /* the file that was taken last, or that could not be opened */
  PetscBool has_last;      /* false: no file was found so far */
  PetscBool last_failed;   /* `last` could not be opened */
  PetscBool is_unreadable; /* the folder could not be read at the last look */
  int64_t step;            /* of the file that was found last */
  struct timespec changed; /* when the folder changed, as of the last look */
} TrsServeFollow;

/*
  Find the newest checkpoint of the folder, step-<digits>.h5. *path becomes its path, or NULL if
  there is none or if it is the same file as the last time. A file that could not be opened is
  found again when the folder has changed, because it may be an increment whose base came later. A
  change in the last 20 ms counts at the next look, too.
  Free *path with PetscFree(). Not collective.
  Errors: NO_INPUT if the folder cannot be read
*/
PetscErrorCode TrsServeFollowLook(TrsServeFollow *follow, char **path);

/*
  Like TrsServeFollowLook(), for the newest checkpoint before the one that was found last, which
  cannot be opened.
*/
PetscErrorCode TrsServeFollowLookBefore(TrsServeFollow *follow, char **path);

/* Find the newest checkpoint, also if it is the same file as the last time. */
PetscErrorCode TrsServeFollowNewest(TrsServeFollow *follow, char **path);

/* A delta that removes ids, which is tried until it is applied or refused. */
typedef struct {
  struct stat file;
  int64_t step; /* of the model that it was tried with last */
  PetscBool is_done;
} TrsServeForget;

/* The state of a delta that was found. */
typedef enum {
  TRS_SERVE_DELTA_NEW,     /* it was not tried */
  TRS_SERVE_DELTA_FAILED,  /* it could not be read, and is tried again at each look */
  TRS_SERVE_DELTA_REFUSED, /* it is damaged or does not fit, and is not tried again */
} TrsServeDeltaState;

typedef struct {
  const char *folder;       /* borrowed; NULL if the server takes no deltas */
  struct stat found;        /* the file that was found last */
  struct stat tried;        /* the last file that was not applied */
  TrsServeDeltaState state; /* of `tried` */
  PetscBool is_unreadable;  /* the folder cannot be read */
  int n_forgets;
  TrsServeForget *forget; /* [n_forgets] free with PetscFree() */
} TrsServeDeltas;

/*
  Find the first delta after `step`, step-<digits>.h5, and the state that TrsServeDeltasNote() set
  for this same file. *path becomes NULL if there is none, or if it was refused. Free *path with
  PetscFree(). Not collective. Errors: NO_INPUT if the folder cannot be read
*/
PetscErrorCode TrsServeDeltasNext(TrsServeDeltas *deltas, int64_t step, char **path,
                                  TrsServeDeltaState *state);

/* Note the state of the file that TrsServeDeltasNext() found last. */
void TrsServeDeltasNote(TrsServeDeltas *deltas, TrsServeDeltaState state);

/*
  Find a delta that removes ids, forget*.h5, and that was not tried with a model of this step. *path
  becomes NULL if there is none. Set forget->is_done if the file is never to be tried again. *forget
  is borrowed until the next call.
*/
PetscErrorCode TrsServeDeltasForget(TrsServeDeltas *deltas, int64_t step, char **path,
                                    TrsServeForget **forget);

/* Try all files again, because another checkpoint is the model. */
void TrsServeDeltasRestart(TrsServeDeltas *deltas);
