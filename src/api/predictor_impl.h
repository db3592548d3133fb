/* SPDX-License-Identifier: BSD-3-Clause */
/* The definition of TrshardPredictor, and what its files share. Internal to api/. */
#pragma once

#include "api/impl.h"
#include "api/predictor_names.h"
#include "embed/embedding_shards.h"
#include "io/checkpoint/checkpoint.h"
#include "model/dlrm.h"
#include "shard/local_tables.h"
#include "train/ragged_rows.h"
#include "train/split_tables.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { TRS_PREDICT_SAMPLES = 256 }; /* samples that are predicted at a time */

/* The memory that one call uses. */
typedef struct TrsPredictWorkspace {
  struct TrsPredictWorkspace *next; /* next in the list of unused workspaces */
  TrsDlrm dlrm;
  /* [n_features] first column of each of the tables' features in the model's matrix */
  int64_t *columns;
  TrsPositionWeight *position; /* [n_features] */
  TrsSplitTables split;        /* NULL if no table is split */
  TrsRaggedRows ragged;        /* NULL if no layer uses sequences */
  TrsLocalTables local;
  TrsKjt kjt; /* the ids of the samples that are being predicted, as rows of the tables */
  /* [n_names] for each of the caller's features: the caller's array `values` has the first id of
     these samples at this index */
  int64_t *first;
} TrsPredictWorkspace;

/*
  A copy of the weights. A predictor has a second one if deltas are applied to it: a delta is
  written to the copy that calls do not use, then calls use this copy, and then the delta is written
  to the other one.
*/
typedef struct {
  TrsEmbeddingShards shards;
  /* the workspace with the layers' weights, which other workspaces copy */
  TrsPredictWorkspace *model;
  TrsPredictWorkspace *idle; /* unused workspaces */
  int n;                     /* number of workspaces */
  int64_t n_users;           /* number of calls that use this copy */
  int64_t step;              /* updates that the weights have seen */
} TrsPredictSide;

/* A feature of a table. If id_map is qr, two tables look up the same feature of the caller. */
typedef struct {
  const TrsTableConfig *table;
  TrsIdMap map;
  int from; /* index of the feature among the caller's features */
  /* largest length of a bag, for a table with position weights; 0 if lengths have no limit */
  int64_t max_length;
} TrsPredictFeature;

struct TrshardPredictorImpl {
  TrsOptions options;
  /* the CPU; its memory is private, and several threads may let it grow at the same time */
  TrsDeviceOps device;
  const TrsComputeOps *compute;
  TrsTableConfigs tables;
  TrsShardingPlan plan; /* the plan: every table is whole, on one rank */
  TrsStoredTable *stored;
  PetscBool weighted; /* true if any table is weighted */
  int64_t num_dense;
  int n_outputs;
  /* number of the caller's features, and number of the tables' features */
  int n_names, n_features;
  const char **names; /* [n_names] names of the caller's features */
  TrsPredictorNames described;
  TrsPredictFeature *feature; /* [n_features] the tables' features */
  pthread_mutex_t lock;       /* guards `current`, the steps, and the sides' idle, n and n_users */
  pthread_cond_t unused;      /* a side has no users any more */
  TrsPredictSide side[2];
  int current;      /* number of the side that calls use */
  pid_t process;    /* that opened the predictor */
  PetscBool checks; /* -check_weights */
  double decay;     /* of averages of the layers' weights; 0: there are none */
  /* for deltas: the model's place in its chain, and its file's id if no delta was applied */
  TrsDeltaPlace place;
  char own_id[TRS_FILE_ID_SIZE];
  PetscBool is_broken; /* a delta was not applied completely to the side that is not in use */
  /* [n_names] of predictions since the opening: ids of each feature, and those without a row */
  _Atomic int64_t *n_ids, *n_unknown;
  /* file descriptor of the model's file if tables are mapped; -1 if none is mapped */
  int file;
  int64_t file_bytes; /* size of the model's file */
};

/* Create the layers of a workspace, without their weights. Errors: MEMORY */
PetscErrorCode TrsPredictorCreateLayers(TrshardPredictor predictor, TrsPredictWorkspace **workspace);

/* Create a workspace of a side, and copy the layers' weights from side->model. Errors: MEMORY */
PetscErrorCode TrsPredictorCreateWorkspace(TrshardPredictor predictor, TrsPredictSide *side,
                                           TrsPredictWorkspace **workspace);
/* Accepts NULL. */
PetscErrorCode TrsPredictorDestroyWorkspace(TrshardPredictor predictor, TrsPredictWorkspace *workspace);

/*
  Create the parts of a workspace that look up the vectors of a side's tables for its model. The
  tables must exist.
*/
PetscErrorCode TrsPredictorCreateVectors(TrshardPredictor predictor, const TrsPredictSide *side,
                                         TrsPredictWorkspace *workspace);

/* Free a side, also after an error of its creation. No call may be using it. */
PetscErrorCode TrsPredictorDestroySide(TrshardPredictor predictor, TrsPredictSide *side);

/*
  Check that the file still has all pages of the mapped tables: reading a page beyond the file's end
  would raise SIGBUS. Returns a status of the library, and sets this thread's message.
*/
int TrsPredictorCheckFile(TrshardPredictor predictor);

/* Predict with a handle that is alive. *step may be NULL. */
int TrsPredictorPredict(TrshardPredictor predictor, const TrshardBatch *ids, const float *dense,
                        float *predictions, int64_t *step);
