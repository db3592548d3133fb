/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/trace.h"

#include "core/trace.h"
#include "device/timeline.h"
#include "report/overlap.h"
#include "report/trace_file.h"

#include <inttypes.h>

static const TrsOptionSpec trace_specs[] = {
    {"-trace", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file for a picture of some steps of a training, with all ranks (Perfetto, chrome://tracing). The "
     "report then shows how much of the exchanges' time was hidden under computation, as with -log_view"},
    {"-trace_first_step", TRS_OPTION_INT, "10", "[0,]", NULL, "steps",
     "steps of this run before the first step in the picture"},
    {"-trace_steps", TRS_OPTION_INT, "10", "[1,1000000000]", NULL, "steps", "steps in the picture"},
};
const TrsOptionGroup trs_trace_options = TRS_OPTION_GROUP("Trace", trace_specs);

PetscErrorCode TrsTraceStart(MPI_Comm comm, TrsOptions options, int64_t run_step, const TrsDeviceOps *device,
                             TrsOutput *output, TrsTrace *trace)
{
  PetscBool log_view;
  int64_t first, n;
  int rank;

  PetscFunctionBegin;
  *trace = (TrsTrace){.comm = comm, .device = device, .output = output};
  PetscCall(TrsOptionsGetString(options, "-trace", &trace->path, NULL));
  PetscCall(TrsOptionsGetInt(options, "-trace_first_step", &first, NULL));
  PetscCall(TrsOptionsGetInt(options, "-trace_steps", &n, NULL));
  PetscCall(PetscLogIsActive(&log_view));
  trace->wanted = (PetscBool)(trace->path || log_view || TrsTimelineHas(device));
  if (!trace->wanted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  if (trace->path) PetscCall(TrsAgree(comm, rank == 0 ? TrsAtomicTry(trace->path) : PETSC_SUCCESS));
  /* larger than any step of a run, but so small that sums do not overflow */
  first = PetscMin(first, INT64_MAX / 4);
  trace->first_step = run_step + first;
  trace->end_step = trace->first_step + n;
  PetscCall(TrsClockMeasure(comm, &trace->start));
  PetscCall(TrsTraceOpen(TRS_TRACE_ROOM, trace->first_step, trace->end_step, TrsTimelineHas(device)));
  PetscCall(TrsTimelineOpen(device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the overlap over all ranks. Collective. */
static PetscErrorCode find_overlap(const TrsTrace *trace, int64_t n, const TrsTraceSpan *span, unsigned kinds,
                                   TrsOverlap *all)
{
  const TrsTraceRow row = TrsTimelineHas(trace->device) ? TRS_TRACE_COMPUTE : TRS_TRACE_MAIN;
  double sums[5];

  PetscFunctionBegin;
  PetscCall(TrsOverlapFind(n, span, kinds, row, all));
  sums[0] = all->under_way_s;
  sums[1] = all->hidden_s;
  sums[2] = all->steps_s;
  sums[3] = all->compute_s;
  sums[4] = (double)all->n_steps;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, sums, 5, MPI_DOUBLE, MPI_SUM, trace->comm));
  *all = (TrsOverlap){.under_way_s = sums[0],
                      .hidden_s = sums[1],
                      .steps_s = sums[2],
                      .compute_s = sums[3],
                      .n_steps = (int64_t)sums[4]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print the time in which the device computes nothing, and what the hosts do then, as means of all
  ranks. Collective.
*/
static PetscErrorCode print_idle(const TrsTrace *trace, int64_t n, const TrsTraceSpan *span)
{
  TrsIdle idle;
  double sums[TRS_N_STAGES + 3];
  const char *before = "; meanwhile on the host: ";

  PetscFunctionBegin;
  PetscCall(TrsOverlapIdle(n, span, &idle));
  for (int i = 0; i < TRS_N_STAGES; i++) sums[i] = idle.stage_s[i];
  sums[TRS_N_STAGES] = idle.between_s;
  sums[TRS_N_STAGES + 1] = idle.idle_s;
  sums[TRS_N_STAGES + 2] = (double)idle.n_steps;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, sums, TRS_N_STAGES + 3, MPI_DOUBLE, MPI_SUM, trace->comm));
  if (sums[TRS_N_STAGES + 2] <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(trace->comm, "%-10s %.3f ms a step in no stage of the compute stream", "idle",
                        1e3 * sums[TRS_N_STAGES + 1] / sums[TRS_N_STAGES + 2]));
  for (int i = 0; i <= TRS_N_STAGES; i++) {
    const double ms = 1e3 * sums[i] / sums[TRS_N_STAGES + 2];

    if (ms < 0.0005) continue;
    PetscCall(PetscPrintf(trace->comm, "%s%s %.3f", before,
                          i == TRS_N_STAGES     ? "between steps"
                          : i == TRS_STAGE_NONE ? "no stage"
                                                : TrsStageName((TrsStage)i),
                          ms));
    before = ", ";
  }
  PetscCall(PetscPrintf(trace->comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print the report's lines about overlap. Collective. */
static PetscErrorCode print_overlap(const TrsTrace *trace, int64_t n, const TrsTraceSpan *span)
{
  static const struct {
    const char *name;
    unsigned kinds;
  } lines[] = {{"H2D copy", 1U << TRS_TRACE_COPY},
               {"input_dist", 1U << TRS_TRACE_INPUT_DIST | 1U << TRS_STAGE_INPUT_DIST},
               {"output_dist", 1U << TRS_TRACE_OUTPUT_DIST | 1U << TRS_TRACE_AHEAD}};
  TrsOverlap overlap;

  PetscFunctionBegin;
  for (int k = 0; k < 3; k++) {
    PetscCall(find_overlap(trace, n, span, lines[k].kinds, &overlap));
    if (overlap.under_way_s <= 0 || overlap.n_steps == 0) continue;
    PetscCall(PetscPrintf(trace->comm,
                          "%-10s %s: %.0f%% of %.3f ms a step under way were hidden under compute\n",
                          "overlap", lines[k].name, 100 * overlap.hidden_s / overlap.under_way_s,
                          1e3 * overlap.under_way_s / (double)overlap.n_steps));
  }
  if (!TrsTimelineHas(trace->device)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_overlap(trace, n, span,
                         1U << TRS_TRACE_INPUT_DIST | 1U << TRS_TRACE_OUTPUT_DIST | 1U << TRS_TRACE_DENSE,
                         &overlap));
  if (overlap.under_way_s > 0 && overlap.steps_s > 0)
    PetscCall(PetscPrintf(trace->comm,
                          "%-10s %.1f%% of a step: under way on the device while it computed nothing\n",
                          "exposed", 100 * (overlap.under_way_s - overlap.hidden_s) / overlap.steps_s));
  /* The gaps between the kernels of a stage are counted as kernel time. Only a profiler can
     separate them. */
  if (overlap.compute_s > 0 && overlap.n_steps > 0)
    PetscCall(
        PetscPrintf(trace->comm,
                    "%-10s %.3f ms a step in stages of the compute stream, a step took %.3f ms: %.2f times\n",
                    "device", 1e3 * overlap.compute_s / (double)overlap.n_steps,
                    1e3 * overlap.steps_s / (double)overlap.n_steps, overlap.steps_s / overlap.compute_s));
  PetscCall(print_idle(trace, n, span));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Get the recorded spans, with times converted to rank 0's clock. Free `span` with PetscFree().
  Collective.
*/
static PetscErrorCode take_spans(const TrsTrace *trace, int64_t *n, TrsTraceSpan **span, int64_t *n_lost)
{
  TrsClockOffset end;
  int64_t n_left_out;

  PetscFunctionBegin;
  PetscCall(TrsTimelineFinish(&n_left_out));
  PetscCall(TrsClockMeasure(trace->comm, &end));
  PetscCall(TrsTraceSpans(n, span, n_lost));
  for (int64_t i = 0; i < *n; i++) {
    (*span)[i].start_s = TrsClockToRank0(&trace->start, &end, (*span)[i].start_s);
    (*span)[i].end_s = TrsClockToRank0(&trace->start, &end, (*span)[i].end_s);
    (*span)[i].needed_s = TrsClockToRank0(&trace->start, &end, (*span)[i].needed_s);
  }
  *n_lost += n_left_out;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the file. A span that overlaps with too many others cannot be drawn. It is left out and
  counted in n_lost.
*/
static PetscErrorCode write_file(const TrsTrace *trace, int64_t n, TrsTraceSpan *span, int64_t *n_lost)
{
  double zero_s = trace->start.at_s; /* all ranks use rank 0's value */
  int64_t n_all;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Bcast(&zero_s, 1, MPI_DOUBLE, 0, trace->comm));
  *n_lost += TrsTraceLanes(n, span);
  PetscCall(TrsTraceFileWrite(trace->comm, trace->output, n, span, zero_s, *n_lost, &n_all));
  PetscCall(PetscPrintf(trace->comm, "%-10s %s: %" PRId64 " spans of steps %" PRId64 " to %" PRId64 "%s\n",
                        "trace", trace->path, n_all, trace->first_step, trace->end_step - 1,
                        n_all == 0 ? ", which this run did not reach (-trace_first_step)" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTraceFinish(TrsTrace *trace)
{
  TrsTraceSpan *span;
  int64_t n, n_lost;

  PetscFunctionBegin;
  if (!trace->wanted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(take_spans(trace, &n, &span, &n_lost));
  if (trace->path) PetscCall(write_file(trace, n, span, &n_lost));
  PetscCall(print_overlap(trace, n, span));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &n_lost, 1, MPI_INT64_T, MPI_SUM, trace->comm));
  if (n_lost)
    PetscCall(PetscFPrintf(trace->comm, PETSC_STDERR,
                           "trshard: warning: the trace forgot %" PRId64 " spans: take fewer -trace_steps\n",
                           n_lost));
  PetscCall(PetscFree(span));
  PetscCall(TrsTimelineClose());
  PetscFunctionReturn(PETSC_SUCCESS);
}
