/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Graphs of the dense layers' launches, for -dense_graphs.

  A step on a GPU has some 40 launches of dense layers. Each costs the host a few microseconds, and
  with small batches the GPU is done before the host is. A graph has them all in one launch.

  The dense work of a step has five parts without a wait, an event or an exchange. A part is
  captured when it comes for the third time in a row with the same arguments in the same slot, so
  that scratch has its size and products have their algorithms. From then on the graph is launched,
  until the arguments differ, as in a last smaller batch, or until memory has been released, because
  a graph keeps addresses. Such a part runs plainly, or is captured again. Dense gradients are sent
  in between: the backward of several ranks has a graph for each bucket that begins to travel.

  A graph keeps the arguments of its kernels. What differs from step to step is therefore read from
  memory: a slot's numbers lie in pinned memory, and two parts begin with their copy to the device.

  A part has the same kernels, in the same order, with and without graphs, and so the same bits.
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

/* What a part's launches depend on and what may differ between the batches of a slot. */
typedef struct {
  int64_t n; /* samples */
  const float *dense, *labels, *weights;
  PetscBool predicts;
} TrsStepArguments;

/* The numbers of a slot's batch and of its update. */
typedef struct {
  TrsBatchNumbers batch;
  TrsUpdateNumbers update;
} TrsStepNumbers;

/* Make graphs for the stream of a device that has them. Both are borrowed. Not collective. */
PetscErrorCode TrsStepGraphsCreate(const TrsDeviceOps *device, TrsStream stream, TrsStepGraphs *graphs);

/* The exchange of the dense gradients, borrowed. Call this before the first step of a training. */
void TrsStepGraphsSetAllreduce(TrsStepGraphs graphs, TrsDenseAllreduce allreduce);

/*
  The numbers of a slot, on the host, to be set before the parts that copy them. The slot's last
  step must be over on the device. NULL without graphs.
*/
TrsStepNumbers *TrsStepGraphsNumbers(TrsStepGraphs graphs, int slot);

/* The numbers of the step that runs, on the device. NULL without graphs. */
const TrsStepNumbers *TrsStepGraphsCurrent(TrsStepGraphs graphs);

/*
  TrsStepGraphsRun - Run a part of a slot's step: by its graph, or by `work`, or by `work` under a
    capture.

  `work` starts operations on the stream alone. It may not return anything, since a graph stands for
  it. Logically collective, because buckets of gradients start in between.

  In: graphs     NULL: call work
      arguments  all that differs between the slot's batches, but the numbers
*/
PetscErrorCode TrsStepGraphsRun(TrsStepGraphs graphs, int slot, TrsStepPart which,
                                const TrsStepArguments *arguments, PetscErrorCode (*work)(void *context),
                                void *context);

/*
  TrsDenseAllreduceReady() for a model whose backward may be under a capture. A capture ends where a
  bucket starts to travel, and another one begins. ctx is a TrsStepGraphs.
*/
PetscErrorCode TrsStepGraphsReady(void *ctx, int64_t begin, int64_t end);

PetscErrorCode TrsStepGraphsDestroy(TrsStepGraphs *graphs);
