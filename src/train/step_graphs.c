/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/step_graphs.h"

#include "core/events.h"
#include "device/kernel_times.h"

/* a part is captured when it runs this many times in a row with the same arguments */
enum { TRS_MEETINGS = 3 };

/*
  A section: the operations of a part up to the start of a gradient bucket, or up to the part's end.
*/
typedef struct {
  TrsGraph graph;
  int64_t ready; /* gradients [0, ready) are complete after this section; 0: no more than before */
} TrsGraphSection;

typedef struct {
  TrsStepArguments last; /* arguments of the last calls */
  int n_met;             /* number of calls in a row with these arguments */
  TrsStepArguments captured;
  int64_t releases; /* the device's count of released memory at the time of the capture */
  double flops;     /* number of operations to log (TrsLogFlops) for each replay of the part */
  int n_sections;   /* 0: nothing has been captured */
  TrsGraphSection *section;
} TrsPartGraphs;

struct TrsStepGraphsImpl {
  const TrsDeviceOps *device;
  TrsStream stream;
  TrsDenseAllreduce allreduce; /* NULL outside of a training */
  TrsPinnedBuffer host;        /* TrsStepNumbers [TRS_SHARD_SLOTS] on the host */
  TrsDeviceBuffer current;     /* TrsStepNumbers on the device */
  TrsPartGraphs part[TRS_SHARD_SLOTS][TRS_N_STEP_PARTS];
  TrsPartGraphs *capturing; /* the part that is captured now, or NULL */
  /* Gradients [0, n_complete) are complete. Gradients [0, n_told) were reported to the exchange. */
  int64_t n_complete, n_told;
};

PetscErrorCode TrsStepGraphsCreate(const TrsDeviceOps *device, TrsStream stream, TrsStepGraphs *graphs)
{
  TrsStepGraphs g;

  PetscFunctionBegin;
  PetscCall(PetscNew(&g));
  g->device = device;
  g->stream = stream;
  PetscCall(TrsPinnedBufferReserve(device, &g->host, TRS_SHARD_SLOTS * (int64_t)sizeof(TrsStepNumbers)));
  PetscCall(TrsDeviceBufferReserve(device, &g->current, (int64_t)sizeof(TrsStepNumbers)));
  *graphs = g;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsStepGraphsSetAllreduce(TrsStepGraphs graphs, TrsDenseAllreduce allreduce)
{
  if (graphs) graphs->allreduce = allreduce;
}

TrsStepNumbers *TrsStepGraphsNumbers(TrsStepGraphs graphs, int slot)
{
  return graphs ? (TrsStepNumbers *)graphs->host.data + slot : NULL;
}

const TrsStepNumbers *TrsStepGraphsCurrent(TrsStepGraphs graphs)
{
  return graphs ? (const TrsStepNumbers *)graphs->current.data : NULL;
}

static PetscBool same_arguments(const TrsStepArguments *a, const TrsStepArguments *b)
{
  return (PetscBool)(a->n == b->n && a->dense == b->dense && a->labels == b->labels &&
                     a->weights == b->weights && a->predicts == b->predicts);
}

static PetscErrorCode forget(TrsStepGraphs g, TrsPartGraphs *part)
{
  PetscFunctionBegin;
  for (int i = 0; i < part->n_sections; i++) PetscCall(g->device->graph_destroy(&part->section[i].graph));
  part->n_sections = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- gradients that are complete --- */

/*
  Report to the exchange that gradients [0, end) are complete. It then starts the complete buckets.
*/
static PetscErrorCode tell(TrsStepGraphs g, int64_t end)
{
  const int64_t begin = g->n_told;

  PetscFunctionBegin;
  if (end <= begin) PetscFunctionReturn(PETSC_SUCCESS);
  g->n_complete = g->n_told = end;
  PetscCall(TrsDenseAllreduceReady(g->allreduce, begin, end));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* End the capture of a section and launch it. */
static PetscErrorCode end_section(TrsStepGraphs g)
{
  TrsPartGraphs *part = g->capturing;
  TrsGraphSection *section;

  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(part->n_sections + 1) * sizeof(*part->section), &part->section));
  section = &part->section[part->n_sections++];
  section->ready = g->n_complete > g->n_told ? g->n_complete : 0;
  PetscCall(g->device->capture_end(g->stream, &section->graph));
  PetscCall(g->device->graph_launch(section->graph, g->stream));
  PetscCall(tell(g, section->ready));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Keep the count of complete gradients in this module. The model's own count restarts in each step,
  but a graph does not update it.
*/
PetscErrorCode TrsStepGraphsReady(void *ctx, int64_t begin, int64_t end)
{
  TrsStepGraphs g = (TrsStepGraphs)ctx;

  PetscFunctionBegin;
  (void)begin;
  g->n_complete = end;
  if (!g->capturing) {
    PetscCall(tell(g, end));
  } else if (TrsDenseAllreduceStarts(g->allreduce, end)) {
    PetscCall(end_section(g));
    PetscCall(g->device->capture_start(g->stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a part --- */

static PetscErrorCode run_work(TrsStepGraphs g, int slot, TrsStepPart which,
                               PetscErrorCode (*work)(void *context), void *context)
{
  const TrsStepNumbers *host = TrsStepGraphsNumbers(g, slot);
  TrsStepNumbers *current = (TrsStepNumbers *)g->current.data;

  PetscFunctionBegin;
  if (which == TRS_PART_FORWARD_DENSE)
    PetscCall(g->device->copy(&current->batch, &host->batch, (int64_t)sizeof(host->batch), g->stream));
  if (which == TRS_PART_OPTIMIZER)
    PetscCall(g->device->copy(&current->update, &host->update, (int64_t)sizeof(host->update), g->stream));
  PetscCall(work(context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Drop a part whose capture has failed, so that later waits do not fail in a stream that captures.
*/
static PetscErrorCode drop(TrsStepGraphs g, TrsPartGraphs *part)
{
  PetscFunctionBegin;
  g->capturing = NULL;
  PetscCall(g->device->capture_end(g->stream, NULL));
  PetscCall(forget(g, part));
  part->n_met = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode capture_work(TrsStepGraphs g, int slot, TrsStepPart which,
                                   PetscErrorCode (*work)(void *context), void *context)
{
  PetscFunctionBegin;
  PetscCall(g->device->capture_start(g->stream));
  PetscCall(run_work(g, slot, which, work, context));
  PetscCall(end_section(g));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode capture(TrsStepGraphs g, int slot, TrsStepPart which, TrsPartGraphs *part,
                              PetscErrorCode (*work)(void *context), void *context)
{
  PetscLogDouble before, after;
  PetscErrorCode error;

  PetscFunctionBegin;
  PetscCall(forget(g, part));
  part->captured = part->last;
  part->releases = g->device->releases();
  PetscCall(PetscGetFlops(&before));
  g->capturing = part;
  TrsKernelTimesPause(PETSC_TRUE);
  error = capture_work(g, slot, which, work, context);
  TrsKernelTimesPause(PETSC_FALSE);
  if (error) (void)drop(g, part);
  PetscCall(error);
  g->capturing = NULL;
  PetscCall(PetscGetFlops(&after));
  part->flops = after - before;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode replay(TrsStepGraphs g, const TrsPartGraphs *part)
{
  PetscFunctionBegin;
  for (int i = 0; i < part->n_sections; i++) {
    PetscCall(g->device->graph_launch(part->section[i].graph, g->stream));
    PetscCall(tell(g, part->section[i].ready));
  }
  PetscCall(TrsLogFlops(part->flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStepGraphsRun(TrsStepGraphs graphs, int slot, TrsStepPart which,
                                const TrsStepArguments *arguments, PetscErrorCode (*work)(void *context),
                                void *context)
{
  TrsPartGraphs *part = graphs ? &graphs->part[slot][which] : NULL;

  PetscFunctionBegin;
  if (!graphs) {
    PetscCall(work(context));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* the first gradients of a step come next */
  if (which == TRS_PART_BACKWARD_OVER) graphs->n_complete = graphs->n_told = 0;
  if (part->n_sections > 0 && part->releases == graphs->device->releases() &&
      same_arguments(&part->captured, arguments)) {
    PetscCall(replay(graphs, part));
    part->last = *arguments; /* calls with other arguments restart the count */
    part->n_met = TRS_MEETINGS;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  part->n_met = same_arguments(&part->last, arguments) ? PetscMin(part->n_met + 1, (int)TRS_MEETINGS) : 1;
  part->last = *arguments;
  if (part->n_met < (int)TRS_MEETINGS)
    PetscCall(run_work(graphs, slot, which, work, context));
  else
    PetscCall(capture(graphs, slot, which, part, work, context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStepGraphsDestroy(TrsStepGraphs *graphs)
{
  TrsStepGraphs g = *graphs;

  PetscFunctionBegin;
  if (!g) PetscFunctionReturn(PETSC_SUCCESS);
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    for (int p = 0; p < TRS_N_STEP_PARTS; p++) {
      PetscCall(forget(g, &g->part[s][p]));
      PetscCall(PetscFree(g->part[s][p].section));
    }
  }
  PetscCall(TrsPinnedBufferFree(g->device, &g->host));
  PetscCall(TrsDeviceBufferFree(g->device, &g->current));
  PetscCall(PetscFree(*graphs));
  PetscFunctionReturn(PETSC_SUCCESS);
}
