/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The model that the server answers with. A newer model replaces it between two batches: a batch is
  predicted by the model that it took, and this model is closed when its last batch has ended.
  Deltas change the weights of a model between two batches.

  One thread, the owner, opens and replaces models. Any thread may take a model and give it back.
*/
#pragma once

#include "api/trshard.h"
#include "serve/request.h"

typedef struct {
  TrshardPredictor predictor;
  TrshardEncoder encoder; /* of the model's mapping; NULL if it has none that makes all inputs */
  int64_t n_users;        /* number of takers that have not given the model back */
} TrsServeModel;

typedef struct TrsServeSlotImpl *TrsServeSlot;

/*
  Open a checkpoint as the first model.

  In:     options  for TrshardPredictorOpen()
  Errors: of TrshardPredictorOpen()
*/
PetscErrorCode TrsServeSlotCreate(const char *path, const char *options, TrsServeSlot *slot);

/* Close the model, when its last user has given it back. Accepts NULL. */
PetscErrorCode TrsServeSlotDestroy(TrsServeSlot *slot);

/*
  Open a checkpoint beside the current model. Give the model to TrsServeSlotReplace() or to
  TrsServeModelClose().

  Errors: of TrshardPredictorOpen(); DATA if the checkpoint's model has other inputs or outputs
*/
PetscErrorCode TrsServeSlotOpen(TrsServeSlot slot, const char *path, TrsServeModel **model);

/* Replace the current model. Returns when the old model is closed. *model becomes NULL. */
PetscErrorCode TrsServeSlotReplace(TrsServeSlot slot, TrsServeModel **model);
PetscErrorCode TrsServeModelClose(TrsServeModel **model); /* accepts a pointer to NULL */

/*
  Apply a delta to a model, which may be the current one. Only the owner may call this.

  Out:    fit  how the delta fits to the model
  Errors: of TrshardPredictorApplyDelta()
*/
PetscErrorCode TrsServeModelApply(TrsServeModel *model, const char *path, TrshardDeltaFit *fit);

/* Return the number of updates of a model. */
int64_t TrsServeModelStep(const TrsServeModel *model);

/*
  Return the current model. Only the owner may call this, and the model is borrowed until the owner
  replaces it.
*/
TrsServeModel *TrsServeSlotModel(TrsServeSlot slot);

const TrsServeShape *TrsServeSlotShape(TrsServeSlot slot);

/* Take the current model, which stays open until it is given back. */
TrsServeModel *TrsServeSlotTake(TrsServeSlot slot);
void TrsServeSlotGiveBack(TrsServeSlot slot, TrsServeModel *model);

/* Return the number of updates of the current model. */
int64_t TrsServeSlotStep(TrsServeSlot slot);

/*
  Count the ids that all models have predicted, and those of them without a row, [n_features] each.
*/
void TrsServeSlotCounts(TrsServeSlot slot, int64_t *ids, int64_t *unknown);
