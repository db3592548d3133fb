/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/trace.h"

#include "core/trace.h"
#include "io/atomic_file.h"
#include "run/trace_file.h"

#include <inttypes.h>

static const TrsOptionSpec trace_specs[] = {
    {"-trace", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file for a picture of some steps of a training, all ranks in one (Perfetto, chrome://tracing); the "
     "report then has the share of exchanges' time, from their start until they are seen to be done, in "
     "which the rank computed"},
    {"-trace_first_step", TRS_OPTION_INT, "10", "[0,]", NULL, "steps",
     "steps of this run before the first one in the picture"},
    {"-trace_steps", TRS_OPTION_INT, "10", "[1,1000000000]", NULL, "steps", "steps in the picture"},
};
const TrsOptionGroup trs_trace_options = TRS_OPTION_GROUP("Trace", trace_specs);

PetscErrorCode TrsTraceStart(MPI_Comm comm, TrsOptions options, int64_t run_step, PetscBool host_exchanges,
                             TrsTrace *trace)
{
  int64_t first, n;
  int rank;

  PetscFunctionBegin;
  *trace = (TrsTrace){.comm = comm, .host_exchanges = host_exchanges};
  PetscCall(TrsOptionsGetString(options, "-trace", &trace->path, NULL));
  PetscCall(TrsOptionsGetInt(options, "-trace_first_step", &first, NULL));
  PetscCall(TrsOptionsGetInt(options, "-trace_steps", &n, NULL));
  if (!trace->path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsAgree(comm, rank == 0 ? TrsAtomicTry(trace->path) : PETSC_SUCCESS));
  first = PetscMin(first, INT64_MAX / 4); /* no run gets there; sums stay in range */
  trace->first_step = run_step + first;
  trace->end_step = trace->first_step + n;
  PetscCall(TrsClockMeasure(comm, &trace->start));
  PetscCall(TrsTraceOpen(TRS_TRACE_ROOM, trace->first_step, trace->end_step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_compute(int what)
{
  return (PetscBool)(what == TRS_STAGE_LOOKUP || what == TRS_STAGE_DENSE_FORWARD ||
                     what == TRS_STAGE_DENSE_BACKWARD || what == TRS_STAGE_EMBEDDING_BACKWARD ||
                     what == TRS_STAGE_OPTIMIZER);
}

/* Of the time from start_s to end_s: hidden_s under compute stages, all_s in recorded steps. */
static void add_overlap(int64_t n, const TrsTraceSpan *span, double start_s, double end_s, double *hidden_s,
                        double *all_s)
{
  for (int64_t i = 0; i < n && span[i].row == TRS_TRACE_MAIN && span[i].start_s < end_s; i++) {
    const double time_s = PetscMin(end_s, span[i].end_s) - PetscMax(start_s, span[i].start_s);

    if (time_s <= 0) continue;
    if (span[i].what == TRS_TRACE_STEP) *all_s += time_s;
    if (is_compute(span[i].what)) *hidden_s += time_s;
  }
}

/*
  Time in which exchanges of a kind were under way (any number of them counts once), and how much of it was under compute.
  span [n] sorted by row, then start. From each exchange on, the main row is looked at from `near`, where nothing has ended yet.
*/
static void find_overlap(int64_t n, const TrsTraceSpan *span, int what, double *hidden_s, double *all_s)
{
  double start_s = 0, end_s = 0;
  int64_t near = 0;

  *hidden_s = *all_s = 0;
  for (int64_t i = 0; i < n; i++) {
    if (span[i].row < TRS_TRACE_EXCHANGE || span[i].what != what) continue;
    start_s = PetscMax(span[i].start_s, end_s); /* what came before is counted */
    if (span[i].end_s <= start_s) continue;
    end_s = span[i].end_s;
    while (near < n && span[near].row == TRS_TRACE_MAIN && span[near].end_s <= start_s) near++;
    add_overlap(n - near, span + near, start_s, end_s, hidden_s, all_s);
  }
}

/* Lines of the report. Collective. */
static PetscErrorCode print_overlap(const TrsTrace *trace, int64_t n, const TrsTraceSpan *span)
{
  static const int kinds[] = {TRS_TRACE_INPUT_DIST, TRS_TRACE_OUTPUT_DIST};
  static const TrsStage names[] = {TRS_STAGE_INPUT_DIST, TRS_STAGE_OUTPUT_DIST};
  double n_steps = 0, time_s[3];

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++) n_steps += span[i].what == TRS_TRACE_STEP;
  for (int k = 0; k < 2 && trace->host_exchanges; k++) {
    find_overlap(n, span, kinds[k], &time_s[0], &time_s[1]);
    time_s[2] = n_steps;
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, time_s, 3, MPI_DOUBLE, MPI_SUM, trace->comm));
    if (time_s[1] <= 0 || time_s[2] <= 0) continue;
    PetscCall(PetscPrintf(
        trace->comm, "%-10s %s: %.0f%% of %.3f ms a step under way were hidden under compute\n", "overlap",
        TrsStageName(names[k]), 100 * time_s[0] / time_s[1], 1e3 * time_s[1] / time_s[2]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTraceFinish(TrsTrace *trace)
{
  TrsClockOffset end;
  TrsTraceSpan *span;
  int64_t n, n_lost, n_all;
  double zero_s;

  PetscFunctionBegin;
  if (!trace->path) PetscFunctionReturn(PETSC_SUCCESS);
  zero_s = trace->start.at_s; /* rank 0's is everyone's */
  PetscCallMPI(MPI_Bcast(&zero_s, 1, MPI_DOUBLE, 0, trace->comm));
  PetscCall(TrsClockMeasure(trace->comm, &end));
  PetscCall(TrsTraceSpans(&n, &span, &n_lost));
  for (int64_t i = 0; i < n; i++) {
    span[i].start_s = TrsClockToRank0(&trace->start, &end, span[i].start_s);
    span[i].end_s = TrsClockToRank0(&trace->start, &end, span[i].end_s);
  }
  n_lost += TrsTraceLanes(n, span);
  PetscCall(TrsTraceFileWrite(trace->comm, trace->path, n, span, zero_s, n_lost, &n_all));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &n_lost, 1, MPI_INT64_T, MPI_SUM, trace->comm));
  PetscCall(PetscPrintf(trace->comm, "%-10s %s: %" PRId64 " spans of steps %" PRId64 " to %" PRId64 "%s\n",
                        "trace", trace->path, n_all, trace->first_step, trace->end_step - 1,
                        n_all == 0 ? ", which this run did not reach (-trace_first_step)" : ""));
  if (n_lost)
    PetscCall(PetscFPrintf(trace->comm, PETSC_STDERR,
                           "trshard: warning: the trace forgot %" PRId64 " spans: take fewer -trace_steps\n",
                           n_lost));
  PetscCall(print_overlap(trace, n, span));
  PetscCall(PetscFree(span));
  PetscFunctionReturn(PETSC_SUCCESS);
}
