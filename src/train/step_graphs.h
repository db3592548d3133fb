/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Graphs of the dense layers' launches, for -dense_graphs.

  A step on a GPU has about 40 launches of dense layers. Each costs the host a few microseconds, and
  with small batches the GPU finishes before the host. A graph combines them in one launch.

  The dense work of a step has five parts that contain no wait, event or exchange. A part is
  captured when it runs for the third time in a row with the same arguments in the same slot. By
  then scratch memory has its size and products have their algorithms. From then on the graph is
  launched, until the arguments differ, as in a smaller last batch, or until memory has been
  released, because a graph keeps addresses. The part then runs without a graph, or is captured
  again. Dense gradients are sent in between: with several ranks the backward has a graph for each
  bucket that begins to travel.

  A graph keeps its kernels' arguments. Values that change from step to step are therefore read from
  memory: a slot's numbers are in pinned memory, and two parts begin with their copy to the device.

  A part has the same kernels in the same order with and without graphs, and so the same bits.
*/
#pragma once

#include "shard/sharding.h"
#include "train/dense_allreduce.h"

typedef struct TrsStepGraphsImpl *TrsStepGraphs;

typedef enum {
  TRS_PART_FORWARD_DENSE, /* begins with the copy of the batch's numbers */
  TRS_PART_FORWARD_OVER,
  TRS_PART_BACKWARD_OVER,
  TRS_PART_BACKWARD_DENSE,
  TRS_PART_OPTIMIZER, /* begins with the copy of the update's numbers */
  TRS_N_STEP_PARTS
} TrsStepPart;

/* The values that determine a part's launches and may differ between the batches of a slot. */
typedef struct {
  int64_t n; /* samples */
  const float *dense, *labels, *weights;
  PetscBool predicts;
} TrsStepArguments;

/* The numbers of a slot's batch and update. */
typedef struct {
  TrsBatchNumbers batch;
  TrsUpdateNumbers update;
} TrsStepNumbers;

/* Create graphs for a stream of a device that supports them. Both are borrowed. Not collective. */
PetscErrorCode TrsStepGraphsCreate(const TrsDeviceOps *device, TrsStream stream, TrsStepGraphs *graphs);

/*
  Set the exchange of the dense gradients, borrowed. Must be called before a training's first step.
*/
void TrsStepGraphsSetAllreduce(TrsStepGraphs graphs, TrsDenseAllreduce allreduce);

/*
  Get a slot's numbers on the host, which must be set before the parts that copy them. The slot's
  last step must be over on the device. NULL without graphs.
*/
TrsStepNumbers *TrsStepGraphsNumbers(TrsStepGraphs graphs, int slot);

/* Get the current step's numbers on the device. NULL without graphs. */
const TrsStepNumbers *TrsStepGraphsCurrent(TrsStepGraphs graphs);

/*
  TrsStepGraphsRun - Run a part of a slot's step: launch its graph, call `work`, or call `work`
  while capturing.

  `work` must only start operations on the stream. It must not return any results, since a graph
  replaces it. Logically collective, because buckets of gradients start in between.

  In: graphs     NULL: call work
      arguments  all values that differ between the slot's batches, except the numbers
*/
PetscErrorCode TrsStepGraphsRun(TrsStepGraphs graphs, int slot, TrsStepPart which,
                                const TrsStepArguments *arguments, PetscErrorCode (*work)(void *context),
                                void *context);

/*
  TrsDenseAllreduceReady() for a model whose backward may be captured. A capture ends where a bucket
  starts to travel, and another capture begins. ctx: a TrsStepGraphs.
*/
PetscErrorCode TrsStepGraphsReady(void *ctx, int64_t begin, int64_t end);

PetscErrorCode TrsStepGraphsDestroy(TrsStepGraphs *graphs);
