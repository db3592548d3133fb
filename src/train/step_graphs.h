/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Graphs of the dense layers' launches, for -dense_graphs.

  A step on a GPU has about 40 launches of dense layers. Each costs the host a few microseconds, and
  with small batches the GPU finishes before the host. A graph combines them in one launch.

  The dense work of a step has five parts that contain no wait, event or exchange. A part is
  captured when it runs for the third time in a row with the same arguments in the same slot. By
  then scratch memory has its final size, and the algorithms of matrix multiplications are chosen.
  From then on the graph is launched. If the arguments differ, as in a smaller last batch, the part
  runs without a graph. If memory has been released, it is captured again, because a graph keeps
  addresses. Dense gradients are sent between graphs: with several ranks the backward has a graph
  for each bucket of gradients.

  A graph keeps its kernels' arguments. The kernels therefore read values that change from step to
  step from memory. The numbers of a slot are in pinned memory, and two parts begin with the copy of
  these numbers to the device.

  A part has the same kernels in the same order with and without graphs, so its results are equal
  bit for bit.
*/
#pragma once

#include "shard/sharding.h"
#include "train/dense_allreduce.h"

typedef struct TrsStepGraphsImpl *TrsStepGraphs;

typedef enum {
  TRS_PART_FORWARD_DENSE, /* begins by copying the batch's numbers to the device */
  TRS_PART_FORWARD_OVER,
  TRS_PART_BACKWARD_OVER,
  TRS_PART_BACKWARD_DENSE,
  TRS_PART_OPTIMIZER, /* begins by copying the update's numbers to the device */
  TRS_N_STEP_PARTS
} TrsStepPart;

/*
  The values that determine a part's launches, and that may differ between the batches of a slot.
*/
typedef struct {
  int64_t n; /* number of samples */
  const float *dense, *labels, *weights;
  PetscBool predicts;
} TrsStepArguments;

/* The numbers of a slot's batch and of its update. */
typedef struct {
  TrsBatchNumbers batch;
  TrsUpdateNumbers update;
} TrsStepNumbers;

/* Create graphs for a stream of a device that supports them. Both are borrowed. Not collective. */
PetscErrorCode TrsStepGraphsCreate(const TrsDeviceOps *device, TrsStream stream, TrsStepGraphs *graphs);

/*
  Set the exchange of the dense gradients, borrowed. Must be called before the first step of a
  training.
*/
void TrsStepGraphsSetAllreduce(TrsStepGraphs graphs, TrsDenseAllreduce allreduce);

/*
  Get the numbers of a slot on the host. The caller must set them before it runs the parts that copy
  them. The device must have finished the slot's last step. NULL without graphs.
*/
TrsStepNumbers *TrsStepGraphsNumbers(TrsStepGraphs graphs, int slot);

/* Get the numbers of the current step on the device. NULL without graphs. */
const TrsStepNumbers *TrsStepGraphsCurrent(TrsStepGraphs graphs);

/*
  TrsStepGraphsRun - Run a part of a slot's step. The call launches the part's graph, or calls
    `work`, or calls `work` while it captures a graph.

  `work` must only start operations on the stream. It must not return results, because a graph
  replaces it. Logically collective, because exchanges of gradients start in between.

  In: graphs     NULL: call work
      arguments  all values that differ between the slot's batches, except the numbers
*/
PetscErrorCode TrsStepGraphsRun(TrsStepGraphs graphs, int slot, TrsStepPart which,
                                const TrsStepArguments *arguments, PetscErrorCode (*work)(void *context),
                                void *context);

/*
  A callback like TrsDenseAllreduceReady(), for a model whose backward may be captured. If the
  exchange of a bucket starts, the current capture ends and another capture begins. ctx: a
  TrsStepGraphs.
*/
PetscErrorCode TrsStepGraphsReady(void *ctx, int64_t begin, int64_t end);

PetscErrorCode TrsStepGraphsDestroy(TrsStepGraphs *graphs);
