/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/summary.h"

#include "core/buffer.h"
#include "core/clock.h"
#include "core/names.h"
#include "core/shared_memory.h"
#include "report/caches.h"
#include "report/step_prediction.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { TRS_TEXT = 512 };

/* Record n numbers of every rank in the results, as [size, n] on rank 0. Collective. */
static PetscErrorCode record_by_rank(const TrsSession *session, TrsResults results, const char *path, int n,
                                     const double *mine)
{
  double *all;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)session->size * (size_t)n, &all));
  PetscCallMPI(MPI_Gather(mine, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, session->comm));
  PetscCall(TrsResultsSetArray(results, path, session->size, n, all));
  PetscCall(PetscFree(all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The kinds of memory that this rank holds, and the other parts of its peak memory. */
enum {
  /* Memory of other ranks that this rank has read. It is also counted for the ranks that own it. */
  TRS_HELD_BY_OTHERS = TRS_N_MEMORY_KINDS,
  TRS_HELD_REST, /* code and data of libraries, MPI's pools */
  TRS_N_HELD
};

static const char *held_name(int kind)
{
  if (kind == TRS_HELD_BY_OTHERS) return "others_pages";
  return kind == TRS_HELD_REST ? "libraries_and_rest" : TrsMemoryKindName((TrsMemoryKind)kind);
}

/*
  The name of a kind of memory in printed lines. The names in the results file are those of
  held_name().
*/
static const char *held_words(int kind)
{
  if (kind == TRS_HELD_BY_OTHERS) return "memory of other ranks";
  if (kind == TRS_HELD_REST) return "libraries and MPI";
  return kind == TRS_MEMORY_STATES ? "optimizer states" : TrsMemoryKindName((TrsMemoryKind)kind);
}

static void hold_by_kind(int64_t peak_bytes, double held[TRS_N_HELD])
{
  int64_t bytes[TRS_N_MEMORY_KINDS];

  TrsMemoryHeld(bytes);
  for (int k = 0; k < TRS_N_MEMORY_KINDS; k++) held[k] = (double)bytes[k];
  held[TRS_HELD_BY_OTHERS] = (double)TrsSharedPeersResident();
  held[TRS_HELD_REST] = (double)peak_bytes;
  for (int k = 0; k < TRS_HELD_REST; k++) held[TRS_HELD_REST] -= held[k];
}

/*
  Print the memory of the rank that uses the most, by purpose, and record the memory of all ranks.
*/
static PetscErrorCode report_memory(const TrsSession *session, TrsResults results, int64_t peak_bytes)
{
  double held[TRS_N_HELD];
  char names[TRS_TEXT] = "", text[32];
  int n_shown = 0;
  struct {
    double bytes;
    int rank;
  } mine = {(double)peak_bytes, session->rank}, largest;

  PetscFunctionBegin;
  hold_by_kind(peak_bytes, held);
  PetscCall(record_by_rank(session, results, "memory/held_bytes", TRS_N_HELD, held));
  PetscCallMPI(MPI_Allreduce(&mine, &largest, 1, MPI_DOUBLE_INT, MPI_MAXLOC, session->comm));
  PetscCallMPI(MPI_Bcast(held, TRS_N_HELD, MPI_DOUBLE, largest.rank, session->comm));
  PetscCall(PetscPrintf(session->comm, "%-10s", "memory"));
  for (int k = 0; k < TRS_N_HELD; k++) {
    snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", k ? "," : "", held_name(k));
    if (held[k] > 0) {
      PetscCall(PetscPrintf(session->comm, "%s %s %s", n_shown++ ? "," : "", held_words(k),
                            TrsBytesText(held[k], text, sizeof(text))));
    }
  }
  PetscCall(PetscPrintf(session->comm, " (rank %d)\n", largest.rank));
  PetscCall(TrsResultsSetText(results, "held_names", names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print a step's predicted and measured time, each for the slowest rank. One part is the tables,
  including all exchanges but without waits. The other part is the dense layers. If the rates of
  dense layers are unknown, nothing is printed. Collective.
*/
static PetscErrorCode print_prediction(const TrsSession *session, const TrsStepPrediction *predicted,
                                       const double *measured_ms)
{
  enum { TRS_TABLES_MS, TRS_DENSE_MS, TRS_STEP_MS, TRS_N_MS };
  double ms[2][TRS_N_MS] = {{0}};

  PetscFunctionBegin;
  ms[0][TRS_DENSE_MS] = predicted->dense_forward + predicted->dense_backward + predicted->optimizer;
  ms[0][TRS_STEP_MS] = TrsStepPredictedMs(predicted);
  ms[0][TRS_TABLES_MS] = ms[0][TRS_STEP_MS] - ms[0][TRS_DENSE_MS];
  for (int i = 0; i < TRS_STAGE_NONE; i++) ms[1][TRS_STEP_MS] += i == TRS_STAGE_PLAN ? 0.0 : measured_ms[i];
  ms[1][TRS_DENSE_MS] = measured_ms[TRS_STAGE_DENSE_FORWARD] + measured_ms[TRS_STAGE_DENSE_BACKWARD] +
                        measured_ms[TRS_STAGE_OPTIMIZER];
  ms[1][TRS_TABLES_MS] = ms[1][TRS_STEP_MS] - ms[1][TRS_DENSE_MS] - measured_ms[TRS_STAGE_IO] -
                         measured_ms[TRS_STAGE_WAIT];
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, ms, 2 * TRS_N_MS, MPI_DOUBLE, MPI_MAX, session->comm));
  if (ms[0][TRS_DENSE_MS] > 0.0)
    PetscCall(PetscPrintf(
        session->comm,
        "%-10s %.2f ms a step, measured %.2f: tables and exchanges %.2f (%.2f), dense layers %.2f (%.2f)\n",
        "predicted", ms[0][TRS_STEP_MS], ms[1][TRS_STEP_MS], ms[0][TRS_TABLES_MS], ms[1][TRS_TABLES_MS],
        ms[0][TRS_DENSE_MS], ms[1][TRS_DENSE_MS]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the ms per step in each stage. If there are steps after the warm-up, only these count. */
static void warm_step_ms(const TrsProgress *progress, const double *stage_s, double *ms)
{
  const PetscBool warm = (PetscBool)(progress->steps > TRS_WARM_UP_STEPS);
  const int64_t steps = progress->steps - (warm ? TRS_WARM_UP_STEPS : 0);

  for (int i = 0; i < TRS_STAGE_NONE; i++)
    ms[i] = 1e3 * (stage_s[i] - (warm ? progress->warm_up_s[i] : 0.0)) / (double)PetscMax(steps, 1);
}

/* Record the predicted and the measured step time and memory of each rank. */
static PetscErrorCode record_prediction(const TrsSession *session, TrsResults results,
                                        const TrsProgress *progress, const double *stage_s,
                                        int64_t peak_bytes)
{
  const TrsPerf *perf = &session->plan.device_perf[session->machine.shard_rank];
  const TrsStorage *storage = &session->plan.device_storage[session->machine.shard_rank];
  const TrsDlrmWork work = TrsModelParallelWork(session->model);
  TrsStepPrediction predicted;
  double measured_ms[TRS_STAGE_NONE], bytes[2], held[4];
  char names[TRS_TEXT];
  int64_t tables, states, dense;

  PetscFunctionBegin;
  warm_step_ms(progress, stage_s, measured_ms);
  PetscCall(TrsModelParallelBytes(session->model, &tables, &states, &dense));
  bytes[0] = (double)storage->hbm;
  bytes[1] = (double)storage->ddr;
  held[0] = (double)tables;
  held[1] = (double)states;
  held[2] = (double)dense;
  held[3] = (double)peak_bytes;
  PetscCall(TrsStepPredict(session->options, perf, &work, session->step_batch, &session->machine.planned,
                           &predicted));
  PetscCall(
      record_by_rank(session, results, "stages/predicted_ms", TRS_N_PREDICTED, (const double *)&predicted));
  PetscCall(print_prediction(session, &predicted, measured_ms));
  PetscCall(record_by_rank(session, results, "memory/predicted_bytes", 2, bytes));
  PetscCall(record_by_rank(session, results, "stages/measured_ms", TRS_STAGE_NONE, measured_ms));
  PetscCall(record_by_rank(session, results, "memory/measured_bytes", 4, held));
  snprintf(names, sizeof(names), "%s; hbm,ddr", trs_predicted_names);
  PetscCall(TrsResultsSetText(results, "predicted_names", names));
  PetscCall(TrsResultsSetText(results, "memory_names", "tables,optimizer_states,dense,peak_resident"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print the share of a step in which exchanges were not hidden by computation. It has two parts. If
  waiting is large, ranks are uneven. If moving data is large, there are many bytes.
*/
static PetscErrorCode print_exposed(const TrsSession *session, const double *mean_s, double total_s)
{
  const double waiting = 100 * mean_s[TRS_STAGE_WAIT] / PetscMax(total_s, 1e-12);
  const double moving = 100 * mean_s[TRS_STAGE_EXCHANGE] / PetscMax(total_s, 1e-12);
  const TrsComm world = session->machine.groups.world;

  PetscFunctionBegin;
  if (session->size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(session->comm,
                        "%-10s %.1f%% of a step: %.1f%% waiting for other ranks%s, %.1f%% moving data\n",
                        "exchanges", waiting + moving, waiting,
                        world->n_shared == world->size ? "" : " and their messages", moving));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Record the choices that rank 0 made by timing products, and print them if -log_view is set. */
static PetscErrorCode record_products(const TrsSession *session, TrsResults results)
{
  const char *choices = session->machine.compute->product_choices();
  PetscBool log_view;

  PetscFunctionBegin;
  if (!choices[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsResultsSetText(results, "products", choices));
  PetscCall(PetscLogIsActive(&log_view));
  for (const char *line = choices; log_view && *line;) {
    const int length = (int)strcspn(line, "\n");

    PetscCall(PetscPrintf(session->comm, "%-10s %.*s\n", "choice", length, line));
    line += line[length] ? length + 1 : length;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print and record the number and size of the ranks' MPI messages. If the ranks of a host share
  memory, only messages between hosts count.
*/
static PetscErrorCode report_messages(const TrsSession *session, TrsResults results, int64_t steps)
{
  int64_t n_messages, bytes;
  double mine[2], most[2];
  char text[32];

  PetscFunctionBegin;
  TrsMachineMessages(&session->machine, &n_messages, &bytes);
  mine[0] = (double)n_messages / (double)PetscMax(steps, 1);
  mine[1] = (double)bytes / (double)PetscMax(steps, 1);
  PetscCall(record_by_rank(session, results, "exchanges/sent", 2, mine));
  PetscCallMPI(MPI_Allreduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, session->comm));
  if (most[0] > 0)
    PetscCall(PetscPrintf(session->comm, "%-10s %.1f a step, of %s together, at most on a rank\n", "messages",
                          most[0], TrsBytesText(most[1], text, sizeof(text))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportSummary(const TrsSession *session, const TrsProgress *progress, TrsResults results)
{
  const double elapsed_s = TrsClock() - progress->start_s;
  double seconds[TRS_N_STAGES], mean[TRS_N_STAGES], total = 0;
  char names[TRS_TEXT] = "", text[32];
  struct rusage usage;
  int64_t peak_bytes, rank_peak_bytes;

  PetscFunctionBegin;
  PetscCall(TrsStageTimes(seconds, PETSC_FALSE));
  getrusage(RUSAGE_SELF, &usage);
  rank_peak_bytes = peak_bytes = (int64_t)usage.ru_maxrss * 1024;
  PetscCall(record_prediction(session, results, progress, seconds, peak_bytes));
  PetscCallMPI(MPI_Allreduce(seconds, mean, TRS_N_STAGES, MPI_DOUBLE, MPI_SUM, session->comm));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &peak_bytes, 1, MPI_INT64_T, MPI_MAX, session->comm));
  for (int i = 0; i < TRS_STAGE_NONE; i++) {
    mean[i] /= session->size;
    total += mean[i];
    snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? "," : "",
             TrsStageName((TrsStage)i));
  }
  PetscCall(PetscPrintf(session->comm,
                        "trained on %" PRId64
                        " sample%s in %.2f s of steps (%.2f s with evaluations and checkpoints): %.0f "
                        "samples/s, peak memory %s a rank\n",
                        progress->samples, TrsPlural(progress->samples, "s"), progress->steps_s, elapsed_s,
                        TrsProgressSpeed(progress), TrsBytesText((double)peak_bytes, text, sizeof(text))));
  PetscCall(PetscPrintf(session->comm, "%-10s", "stages"));
  for (int i = 0; i < TRS_STAGE_NONE; i++)
    /* no stage is printed if no step ran, for example after early stopping */
    if (mean[i] > 0.005 * total)
      PetscCall(PetscPrintf(session->comm, " %s %.0f%%", TrsStageName((TrsStage)i), 100 * mean[i] / total));
  PetscCall(
      PetscPrintf(session->comm, " (%.2f ms a step)\n", 1e3 * total / (double)PetscMax(progress->steps, 1)));
  PetscCall(print_exposed(session, mean, total));
  PetscCall(report_messages(session, results, progress->steps));
  PetscCall(TrsModelParallelLookAheadView(session->model, session->comm));
  PetscCall(TrsReportCaches(session, results));
  PetscCall(record_products(session, results));
  PetscCall(report_memory(session, results, rank_peak_bytes));
  PetscCall(TrsResultsSetText(results, "stage_names", names));
  PetscCall(TrsResultsSetInt(results, "peak_memory_bytes", peak_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}
