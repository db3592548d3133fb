/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/report.h"

#include "core/buffer.h"
#include "core/events.h"
#include "core/names.h"
#include "core/shared_memory.h"
#include "core/terminal.h"
#include "core/version.h"
#include "data/batch.h"
#include "data/label.h"
#include "io/library.h"
#include "run/report_caches.h"
#include "run/step_prediction.h"
#include "train/task_metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { TRS_TEXT = 512, TRS_PLAN_LINES = 40, TRS_SLOW_READER_MS = 1000 };

double TrsReportClock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The first "model name" of /proc/cpuinfo. */
static void cpu_name(char *text, size_t size)
{
  char line[TRS_TEXT];
  FILE *file = fopen("/proc/cpuinfo", "r");

  snprintf(text, size, "unknown CPU");
  while (file && fgets(line, sizeof(line), file)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (file) fclose(file);
}

/* Write "avx2, 1 thread a rank", or if ranks differ "portable to avx2, 1 to 2 threads a rank". */
static void compute_text(const TrsMachine *m, char *text, size_t size)
{
  const PetscBool mixed = (PetscBool)(strcmp(m->least_isa, m->most_isa) != 0);
  char threads[32];

  snprintf(threads, sizeof(threads), m->least_threads == m->most_threads ? "%d" : "%d to %d",
           m->least_threads, m->most_threads);
  snprintf(text, size, "%s%s%s%s, %s thread%s a rank", m->least_isa, mixed ? " to " : "",
           mixed ? m->most_isa : "", m->isa_is_common ? ", the best that all ranks have" : "", threads,
           TrsPlural(m->most_threads, "s"));
}

static PetscErrorCode hardware_text(const TrsSession *s, char *text, size_t size)
{
  char cpu[TRS_TEXT / 4], about[TRS_TEXT / 4] = "", compute[TRS_TEXT / 4];

  PetscFunctionBegin;
  cpu_name(cpu, sizeof(cpu));
  if (s->machine.device->about) PetscCall(s->machine.device->about(about, sizeof(about)));
  compute_text(&s->machine, compute, sizeof(compute));
  snprintf(text, size, "%s on %s%s%s (%s), %d host%s of %d rank%s, %s%s", s->machine.device->name, about,
           about[0] ? " beside " : "", cpu, compute, s->machine.groups.n_hosts,
           TrsPlural(s->machine.groups.n_hosts, "s"), s->machine.groups.local_world_size,
           TrsPlural(s->machine.groups.local_world_size, "s"), s->machine.groups.world->ops->name,
           s->machine.groups.world->n_shared > 1 ? " and shared memory" : "");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void libraries_text(const TrsSession *s, char *text, size_t size)
{
  const int version = s->machine.groups.world->ops->version ? s->machine.groups.world->ops->version() : 0;
  char core[TRS_TEXT / 2], hdf5[TRS_TEXT / 8], nccl[TRS_TEXT / 16] = "";

  TrsVersionLibraries(core, sizeof(core));
  TrsIoLibrary(hdf5, sizeof(hdf5));
  if (version)
    snprintf(nccl, sizeof(nccl), "NCCL %d.%d.%d, ", version / 10000, version / 100 % 100, version % 100);
  snprintf(text, size, "%s, %s, %s%s", core, hdf5, nccl, s->machine.compute->product_library());
}

static PetscErrorCode print_dataset(MPI_Comm comm, const char *what, TrsDataset dataset)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  if (!dataset) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(PetscPrintf(
      comm, "%-10s %s: %" PRId64 " sample%s, %d dense, %d sparse feature%s, %.1f ids a sample\n", what,
      info->path, info->num_samples, TrsPlural(info->num_samples, "s"), info->num_dense, info->n_features,
      TrsPlural(info->n_features, "s"), (double)info->num_values / (double)info->num_samples));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print which label it is that predictions and metrics are of, if the data has a choice. */
static PetscErrorCode print_label(const TrsSession *session)
{
  const TrsDatasetInfo *info;
  char raw[TRS_TEXT], label[TRS_TEXT], names[TRS_TEXT];

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->train ? session->train : session->eval, &info));
  if (!session->label || !info->label_names) PetscFunctionReturn(PETSC_SUCCESS);
  TrsLabelNames(info, raw, sizeof(raw));
  TrsNameEscape(raw, names, sizeof(names));
  TrsNameEscape(session->label, label, sizeof(label));
  PetscCall(PetscPrintf(session->comm,
                        "%-10s %s, of %s: loss, predictions and metrics are of this one alone\n", "label",
                        label, names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print where tables lie if they are not, or not only, in the device's memory. Collective. */
static PetscErrorCode print_host_rows(const TrsSession *session)
{
  int64_t bytes[2];
  char a[32], b[32];

  PetscFunctionBegin;
  PetscCall(TrsModelParallelHostBytes(session->model, &bytes[0], &bytes[1]));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, bytes, 2, MPI_INT64_T, MPI_MAX, session->comm));
  if (bytes[0] > 0)
    PetscCall(PetscPrintf(
        session->comm, "%-10s at most %s of these are rows and states in host memory; caches take %s more\n",
        "", TrsBytesText((double)bytes[0], a, sizeof(a)), TrsBytesText((double)bytes[1], b, sizeof(b))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportBanner(const TrsSession *session)
{
  MPI_Comm comm = session->comm;
  char text[TRS_TEXT], a[32], b[32], c[32];
  int64_t bytes[3];

  PetscFunctionBegin;
  PetscCall(hardware_text(session, text, sizeof(text)));
  PetscCall(PetscPrintf(comm, "%s %s (%s), %d rank%s\n%-10s %s\n", TRS_NAME, TRS_VERSION, TrsVersionCommit(),
                        session->size, TrsPlural(session->size, "s"), "runs on", text));
  libraries_text(session, text, sizeof(text));
  PetscCall(PetscPrintf(comm, "%-10s %s\n", "with", text));
  if (session->machine.device_reason[0])
    PetscCall(PetscPrintf(comm, "%-10s %s\n", "", session->machine.device_reason));
  if (session->machine.binding[0])
    PetscCall(PetscPrintf(comm, "%-10s %s\n", "placed", session->machine.binding));
  PetscCall(print_dataset(comm, "train data", session->train));
  PetscCall(print_dataset(comm, "eval data", session->eval));
  PetscCall(print_label(session));
  PetscCall(TrsModelParallelView(session->model, comm));
  PetscCall(TrsShardingPlanView(&session->plan, comm, TRS_PLAN_LINES));
  PetscCall(TrsModelParallelBytes(session->model, &bytes[0], &bytes[1], &bytes[2]));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, bytes, 3, MPI_INT64_T, MPI_MAX, comm));
  PetscCall(PetscPrintf(
      comm, "%-10s at most %s of tables, %s of their optimizer states, %s of dense layers a rank\n", "memory",
      TrsBytesText((double)bytes[0], a, sizeof(a)), TrsBytesText((double)bytes[1], b, sizeof(b)),
      TrsBytesText((double)bytes[2], c, sizeof(c))));
  PetscCall(print_host_rows(session));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportAttributes(const TrsSession *session, TrsResults results)
{
  char text[TRS_TEXT], *options, *plan;

  PetscFunctionBegin;
  PetscCall(TrsOptionsText(session->options, &options));
  PetscCall(TrsShardingPlanToJson(&session->plan, &plan));
  PetscCall(TrsResultsSetText(results, "options", options));
  PetscCall(TrsResultsSetText(results, "plan", plan));
  PetscCall(TrsResultsSetInt(results, "world_size", session->size));
  if (session->label) PetscCall(TrsResultsSetText(results, "label", session->label));
  PetscCall(hardware_text(session, text, sizeof(text)));
  PetscCall(TrsResultsSetText(results, "hardware", text));
  libraries_text(session, text, sizeof(text));
  PetscCall(TrsResultsSetText(results, "libraries", text));
  snprintf(text, sizeof(text), "%s %s", TRS_VERSION, TrsVersionCommit());
  PetscCall(TrsResultsSetText(results, "program", text));
  PetscCall(PetscFree(options));
  PetscCall(PetscFree(plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProgressStart(const TrsSession *session, int64_t total_steps, int64_t per_epoch,
                                int64_t first_step, TrsProgress *progress)
{
  const PetscBool terminal = TrsStdoutIsTerminal();
  double unused[TRS_N_STAGES];

  PetscFunctionBegin;
  *progress = (TrsProgress){
      .comm = session->comm, .total_steps = total_steps, .per_epoch = per_epoch, .first_step = first_step};
  progress->ne = progress->auc = (double)NAN;
  progress->interval_s = terminal ? 2 : 60;
  progress->dated = (PetscBool)!terminal;
  PetscCall(TrsOptionsGetReal(session->options, "-report_interval", &progress->interval_s, NULL));
  /* The stages count the steps and not the set-up. */
  PetscCall(TrsStageTimes(unused, PETSC_TRUE));
  progress->start_s = progress->line_s = TrsReportClock();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a time as "1:02:03". */
static void duration_text(double seconds, char *text, size_t size)
{
  const long s = lround(seconds);
  if (s >= 3600)
    snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else
    snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

/* "14:03:27", or "2026-11-22 14:03:27": the user's time. */
static void clock_text(PetscBool dated, char *text, size_t size)
{
  const time_t now = time(NULL);
  struct tm local;

  text[0] = '\0';
  if (!localtime_r(&now, &local)) return;
  if (dated)
    (void)strftime(text, size, "%Y-%m-%d %H:%M:%S", &local);
  else
    (void)strftime(text, size, "%H:%M:%S", &local);
}

/* Above this part of a batch's ids that became 0, every line of the progress says how many did. */
static const double many_bad_ids = 0.01;

static void bad_ids_text(const TrsProgress *p, char *text, size_t size)
{
  if (p->many_bad_ids)
    snprintf(text, size, "  %.1f%% of ids outside of their tables",
             100.0 * PetscMin(1.0, p->line_bad_ids / PetscMax(p->line_ids, 1.0)));
}

PetscErrorCode TrsProgressStep(TrsProgress *p, const TrsStepResult *result)
{
  const int64_t done = result->step + 1;
  const double now_s = TrsReportClock();
  char eta[32], at[32], metrics[64] = "", bad_ids[64] = "";

  PetscFunctionBegin;
  p->steps++;
  if (p->steps == TRS_WARM_UP_STEPS) PetscCall(TrsStageTimes(p->warm_up_s, PETSC_FALSE));
  p->samples += result->global_batch;
  p->line_samples += result->global_batch;
  p->line_loss += result->loss;
  p->line_steps++;
  p->line_ids += result->ids;
  p->line_bad_ids += (double)result->bad_ids;
  if ((double)result->bad_ids > many_bad_ids * result->ids) p->many_bad_ids = PETSC_TRUE;
  if (now_s - p->line_s < p->interval_s && p->steps > 1 && done < p->total_steps)
    PetscFunctionReturn(PETSC_SUCCESS);
  /* A line that would wait for its reader is left out. The next line has its steps. */
  p->paused = (PetscBool)!TrsStdoutTakes(p->paused ? 0 : TRS_SLOW_READER_MS);
  if (p->paused && done < p->total_steps) PetscFunctionReturn(PETSC_SUCCESS);
  duration_text((now_s - p->start_s) / (double)(done - p->first_step) * (double)(p->total_steps - done), eta,
                sizeof(eta));
  clock_text(p->dated, at, sizeof(at));
  bad_ids_text(p, bad_ids, sizeof(bad_ids));
  if (!isnan(p->auc)) snprintf(metrics, sizeof(metrics), "  NE %.5f  AUC %.5f", p->ne, p->auc);
  PetscCall(PetscPrintf(
      p->comm, "step %" PRId64 "/%" PRId64 "  %s  epoch %.2f  loss %.5f%s  %.0f samples/s  ETA %s%s\n", done,
      p->total_steps, at, (double)done / (double)p->per_epoch, p->line_loss / (double)p->line_steps, metrics,
      (double)p->line_samples / PetscMax(now_s - p->line_s, 1e-9), eta, bad_ids));
  p->line_s = now_s;
  p->line_samples = p->line_steps = 0;
  p->line_loss = p->line_ids = p->line_bad_ids = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Report n bad ids of a table, over all ranks. `bad` holds those of its features on this rank. */
static PetscErrorCode report_table(const TrsSession *session, const TrsDatasetInfo *info, const char *what,
                                   const TrsTableConfig *table, const TrsBadIds *bad, int64_t n)
{
  int64_t row, sample = INT64_MAX, found[2] = {INT64_MIN, INT64_MIN}; /* found: id and key */
  const char *path;
  char name[2 * TRS_TEXT];

  PetscFunctionBegin;
  for (int k = 0; k < table->n_features; k++)
    if (bad[k].n) sample = PetscMin(sample, bad[k].first.sample);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &sample, 1, MPI_INT64_T, MPI_MIN, session->comm));
  for (int k = table->n_features - 1; k >= 0; k--) {
    if (!bad[k].n || bad[k].first.sample != sample) continue;
    found[0] = bad[k].first.id;
    found[1] = bad[k].first.key;
  }
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, found, 2, MPI_INT64_T, MPI_MAX, session->comm));
  TrsNameEscape(info->features[found[1]], name, sizeof(name));
  path = TrsDatasetLocate(info, sample, &row);
  PetscCall(PetscFPrintf(session->comm, PETSC_STDERR,
                         "trshard: warning: %s: table %s: %" PRId64 " id%s outside of [0, %" PRId64
                         ") became 0, the first is %" PRId64 " of feature \"%.100s\" in sample %" PRId64
                         "%s%s (-bounds_check_mode)\n",
                         what, table->name, n, TrsPlural(n, "s"), table->num_embeddings, found[0], name, row,
                         info->n_files > 1 ? " of " : "", info->n_files > 1 ? path : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define BAD_NUMBERS \
  " number%s of the dataset: NaN, Inf, a label that its loss cannot have, or a weight below 0 " \
  "(-data_check)\n"

PetscErrorCode TrsReportBadInput(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader,
                                 const char *what)
{
  const TrsTableConfigs *tables = &session->tables;
  const int64_t mine = TrsReaderBadNumbers(reader);
  const TrsBadIds *bad;
  int64_t *counts, numbers;

  PetscFunctionBegin;
  PetscCall(TrsReaderBadIds(reader, &bad));
  PetscCall(PetscCalloc1((size_t)tables->n, &counts));
  for (int t = 0, f = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features; k++, f++)
      if (tables->table[t].bounds_check_mode == TRS_BOUNDS_WARNING) counts[t] += bad[f].n;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, counts, tables->n, MPI_INT64_T, MPI_SUM, session->comm));
  for (int t = 0; t < tables->n; bad += tables->table[t].n_features, t++)
    if (counts[t]) PetscCall(report_table(session, info, what, &tables->table[t], bad, counts[t]));
  PetscCall(PetscFree(counts));
  PetscCallMPI(MPI_Allreduce(&mine, &numbers, 1, MPI_INT64_T, MPI_SUM, session->comm));
  if (numbers)
    PetscCall(PetscFPrintf(session->comm, PETSC_STDERR, "trshard: warning: %s: %" PRId64 BAD_NUMBERS, what,
                           numbers, TrsPlural(numbers, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportUnchecked(const TrsSession *session, const char **words)
{
  int check = TRS_DATA_CHECK_FATAL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(session->options, "-data_check", &check, NULL));
  *words = check == TRS_DATA_CHECK_NONE ? "; or the data holds such numbers, which -data_check none lets pass"
                                        : "";
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportBadData(const TrsSession *session, const TrsDatasetInfo *info,
                                const TrsStepResult *result)
{
  char name[2 * TRS_TEXT];
  const char *path;
  int64_t row;

  PetscFunctionBegin;
  if (result->bad_ids) {
    path = TrsDatasetLocate(info, result->first_bad.sample, &row);
    TrsNameEscape(info->features[result->first_bad.key], name, sizeof(name));
    PetscCall(PetscFPrintf(session->comm, PETSC_STDERR,
                           "trshard: warning: step %" PRId64 ": %" PRId64
                           " id%s outside of their tables became 0; feature \"%.100s\" of sample %" PRId64
                           "%s%s has id %" PRId64 " (-bounds_check_mode)\n",
                           result->step, result->bad_ids, TrsPlural(result->bad_ids, "s"), name, row,
                           info->n_files > 1 ? " of " : "", info->n_files > 1 ? path : "",
                           result->first_bad.id));
  }
  if (result->bad_numbers)
    PetscCall(PetscFPrintf(session->comm, PETSC_STDERR,
                           "trshard: warning: step %" PRId64 ": %" PRId64 BAD_NUMBERS, result->step,
                           result->bad_numbers, TrsPlural(result->bad_numbers, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values)
{
  progress->ne = values->window.ne;
  progress->auc = values->window.auc;
}

/* Print what there is of a task whose labels are numbers or classes. */
static PetscErrorCode print_other(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                  const TrsMetricValues *values)
{
  PetscFunctionBegin;
  if (task->labels == TRS_LABEL_CLASS)
    PetscCall(PetscPrintf(comm, "%-10s loss %.5f  accuracy %.5f  (%" PRId64 " sample%s)\n", what,
                          values->loss, values->accuracy, values->n_samples,
                          TrsPlural(values->n_samples, "s")));
  else
    PetscCall(
        PetscPrintf(comm,
                    "%-10s loss %.5f  RMSE %.5f  MAE %.5f  mean label %.5f  mean prediction %.5f  (%" PRId64
                    " sample%s)\n",
                    what, values->loss, values->rmse, values->mae, values->ctr, values->prediction,
                    values->n_samples, TrsPlural(values->n_samples, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report_running(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                     const TrsMetricValues *values)
{
  char auc[32] = "";

  PetscFunctionBegin;
  if (task->labels != TRS_LABEL_PROBABILITY) {
    PetscCall(print_other(comm, what, task, values));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!isnan(values->auc)) snprintf(auc, sizeof(auc), "  AUC %.5f", values->auc);
  PetscCall(PetscPrintf(comm,
                        "%-10s NE %.5f%s  AUPRC %.5f  accuracy %.5f  calibration %.4f  CTR %.5f  RMSE %.5f  "
                        "(%" PRId64 " sample%s)\n",
                        what, values->ne, auc, values->auprc, values->accuracy, values->calibration,
                        values->ctr, values->rmse, values->n_samples, TrsPlural(values->n_samples, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print NE of the first segments, and the one of the largest NE. The results file holds all. */
static PetscErrorCode print_segments(MPI_Comm comm, const TrsGroupValues *values)
{
  enum { TRS_SHOWN = 8 };
  int worst = -1;

  PetscFunctionBegin;
  if (values->n_segments == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(comm, "%-10s NE of segments 0 ..:", ""));
  for (int i = 0; i < values->n_segments; i++) {
    const double ne = values->segment_ne[i];

    if (i < TRS_SHOWN) PetscCall(PetscPrintf(comm, isnan(ne) ? " -" : " %.5g", ne));
    if (!isnan(ne) && (worst < 0 || ne > values->segment_ne[worst])) worst = i;
  }
  PetscCall(PetscPrintf(comm, values->n_segments > TRS_SHOWN ? " ..." : ""));
  if (worst >= 0)
    PetscCall(PetscPrintf(comm, "  (worst: %d of %d, %.0f sample%s)", worst, values->n_segments,
                          values->segment_samples[worst],
                          TrsPlural((int64_t)values->segment_samples[worst], "s")));
  PetscCall(PetscPrintf(comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print the metrics of groups, with the groups that counted, if there are any. */
static PetscErrorCode print_groups(MPI_Comm comm, const char *what, const TrsGroupValues *values)
{
  PetscFunctionBegin;
  if (values->n_at == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(comm,
                        "%-10s %" PRId64 " group%s: GAUC %.5f  NE %.5f (%" PRId64
                        " group%s with both classes)  MSE %.5f  MAE %.5f",
                        what, values->n_groups, TrsPlural(values->n_groups, "s"), values->gauc, values->ne,
                        values->n_both, TrsPlural(values->n_both, "s"), values->mse, values->mae));
  for (int k = 0; k < values->n_at; k++)
    PetscCall(PetscPrintf(comm, "\n%-10s @%" PRId64 ": NDCG %.5f  recall %.5f  hit rate %.5f  precision %.5f",
                          "", values->at[k], values->ndcg[k], values->recall[k], values->hit_rate[k],
                          values->precision[k]));
  PetscCall(PetscPrintf(comm, " (%" PRId64 " group%s with a positive)\n", values->n_positive,
                        TrsPlural(values->n_positive, "s")));
  PetscCall(print_segments(comm, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The name of a line about a task: "eval", or of several tasks "eval, click". */
static const char *name_line(const TrsTaskConfigs *tasks, int t, const char *what, char *text, size_t size)
{
  if (tasks->n == 1) return what;
  snprintf(text, size, "%.40s, %.64s", what, tasks->task[t].name);
  return text;
}

PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values)
{
  char text[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  for (int t = 0; t < tasks->n; t++) {
    const char *what = name_line(tasks, t, "window", text, sizeof(text));

    PetscCall(report_running(comm, what, &tasks->task[t], &values[t].window));
    PetscCall(print_groups(comm, "in groups", &values[t].window.groups));
    what = name_line(tasks, t, "lifetime", text, sizeof(text));
    PetscCall(report_running(comm, what, &tasks->task[t], &values[t].lifetime));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report_task(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                  const TrsMetricValues *values)
{
  char name[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  snprintf(name, sizeof(name), "%.120s:", what);
  if (values->n_samples == 0)
    PetscCall(PetscPrintf(comm, "%s no sample has a label\n", name));
  else if (task->labels != TRS_LABEL_PROBABILITY)
    PetscCall(print_other(comm, name, task, values));
  else
    PetscCall(PetscPrintf(
        comm, "%s loss %.5f  AUC %.5f  NE %.5f  accuracy %.5f  calibration %.4f  (%" PRId64 " sample%s)\n",
        name, values->loss, values->auc, values->ne, values->accuracy, values->calibration, values->n_samples,
        TrsPlural(values->n_samples, "s")));
  PetscCall(print_groups(comm, "groups", &values->groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values)
{
  char text[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  for (int t = 0; t < tasks->n; t++)
    PetscCall(report_task(comm, name_line(tasks, t, what, text, sizeof(text)), &tasks->task[t], &values[t]));
  if (tasks->n > 1)
    PetscCall(PetscPrintf(comm, "%s: loss %.5f, the sum of the tasks' losses by their weights\n", what,
                          TrsTaskLoss(tasks, values)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Record numbers of every rank in the results, [size, n] on rank 0. Collective. */
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

/* The kinds of memory that this rank holds, and the other parts of its peak. */
enum {
  /* Other ranks' memory that this rank has read. Its owners count it, too. */
  TRS_HELD_BY_OTHERS = TRS_N_MEMORY_KINDS,
  TRS_HELD_REST, /* code and data of libraries, MPI's pools */
  TRS_N_HELD
};

static const char *held_name(int kind)
{
  if (kind == TRS_HELD_BY_OTHERS) return "others_pages";
  return kind == TRS_HELD_REST ? "libraries_and_rest" : TrsMemoryKindName((TrsMemoryKind)kind);
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

/* Print the memory of the largest rank by purpose, and record the memory of all ranks. */
static PetscErrorCode report_memory(const TrsSession *session, TrsResults results, int64_t peak_bytes)
{
  double held[TRS_N_HELD];
  char names[TRS_TEXT] = "", text[32];
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
    if (held[k] > 0)
      PetscCall(
          PetscPrintf(session->comm, " %s %s", held_name(k), TrsBytesText(held[k], text, sizeof(text))));
  }
  PetscCall(PetscPrintf(session->comm, " (rank %d)\n", largest.rank));
  PetscCall(TrsResultsSetText(results, "held_names", names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print the time of a step as predicted and as measured, for the slowest rank each: the part of the
  tables and of all exchanges without what ranks wait for, and the dense layers' part. Nothing is
  printed where the rates of dense layers are unknown. Collective.
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

/* The time of a step in each stage, ms, without the steps of the warm-up if there are others. */
static void warm_step_ms(const TrsProgress *progress, const double *stage_s, double *ms)
{
  const PetscBool warm = (PetscBool)(progress->steps > TRS_WARM_UP_STEPS);
  const int64_t steps = progress->steps - (warm ? TRS_WARM_UP_STEPS : 0);

  for (int i = 0; i < TRS_STAGE_NONE; i++)
    ms[i] = 1e3 * (stage_s[i] - (warm ? progress->warm_up_s[i] : 0.0)) / (double)PetscMax(steps, 1);
}

/* Record the plan's prediction beside the measurement for each rank: time of a step and memory. */
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
  Print the share of a step in which exchanges were not hidden by computation. Much waiting shows
  uneven ranks, much moving shows many bytes.
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

/* Record the algorithms that rank 0 chose by their time. */
static PetscErrorCode record_products(const TrsSession *session, TrsResults results)
{
  const char *choices = session->machine.compute->product_choices();

  PetscFunctionBegin;
  if (choices[0]) PetscCall(TrsResultsSetText(results, "products", choices));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print and record what the ranks sent by MPI: between hosts, if ranks of a host share memory. */
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
  const double elapsed_s = TrsReportClock() - progress->start_s;
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
                        "trained on %" PRId64 " sample%s in %.2f s: %.0f samples/s, peak memory %s a rank\n",
                        progress->samples, TrsPlural(progress->samples, "s"), elapsed_s,
                        (double)progress->samples / PetscMax(elapsed_s, 1e-9),
                        TrsBytesText((double)peak_bytes, text, sizeof(text))));
  PetscCall(PetscPrintf(session->comm, "%-10s", "stages"));
  for (int i = 0; i < TRS_STAGE_NONE; i++)
    if (mean[i] > 0.005 * total) /* none where no step ran, as behind early stopping */
      PetscCall(PetscPrintf(session->comm, " %s %.0f%%", TrsStageName((TrsStage)i), 100 * mean[i] / total));
  PetscCall(
      PetscPrintf(session->comm, " (%.2f ms a step)\n", 1e3 * total / (double)PetscMax(progress->steps, 1)));
  PetscCall(print_exposed(session, mean, total));
  PetscCall(report_messages(session, results, progress->steps));
  PetscCall(TrsReportCaches(session, results));
  PetscCall(record_products(session, results));
  PetscCall(report_memory(session, results, rank_peak_bytes));
  PetscCall(TrsResultsSetText(results, "stage_names", names));
  PetscCall(TrsResultsSetInt(results, "peak_memory_bytes", peak_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}
