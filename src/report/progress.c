/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/progress.h"

#include "core/clock.h"
#include "core/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

enum { TRS_SLOW_READER_MS = 1000 };

PetscErrorCode TrsProgressStart(const TrsSession *session, int64_t total_steps, int64_t per_epoch,
                                int64_t first_step, int64_t shift, TrsProgress *progress)
{
  const PetscBool terminal = TrsStdoutIsTerminal();
  double unused[TRS_N_STAGES];

  PetscFunctionBegin;
  *progress = (TrsProgress){.comm = session->comm,
                            .total_steps = total_steps,
                            .per_epoch = per_epoch,
                            .first_step = first_step,
                            .shift = shift};
  progress->ne = progress->auc = (double)NAN;
  progress->interval_s = terminal ? 2 : 60;
  progress->dated = (PetscBool)!terminal;
  PetscCall(TrsOptionsGetReal(session->options, "-report_interval", &progress->interval_s, NULL));
  /* Reset the stages, so that they do not include the set-up. */
  PetscCall(TrsStageTimes(unused, PETSC_TRUE));
  progress->start_s = progress->line_s = TrsClock();
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

/* Write the local time as "14:03:27", or with `dated` as "2026-11-22 14:03:27". */
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

/*
  If a batch has a larger share of bad ids than this, all later progress lines show the number of
  bad ids.
*/
static const double many_bad_ids = 0.01;

static void bad_ids_text(const TrsProgress *p, char *text, size_t size)
{
  if (p->many_bad_ids)
    snprintf(text, size, "  %.1f%% of ids outside of their tables",
             100.0 * PetscMin(1.0, p->line_bad_ids / PetscMax(p->line_ids, 1.0)));
}

double TrsProgressSpeed(const TrsProgress *progress)
{
  return progress->steps ? (double)progress->samples / PetscMax(progress->steps_s, 1e-9) : 0.0;
}

PetscErrorCode TrsProgressStep(TrsProgress *p, const TrsStepResult *result, double seconds)
{
  const int64_t done = result->step + 1;
  const double now_s = TrsClock();
  char eta[32], at[32], metrics[64] = "", bad_ids[64] = "";

  PetscFunctionBegin;
  p->steps++;
  if (p->steps == TRS_WARM_UP_STEPS) PetscCall(TrsStageTimes(p->warm_up_s, PETSC_FALSE));
  p->samples += result->global_batch;
  p->line_samples += result->global_batch;
  p->steps_s += seconds;
  p->line_steps_s += seconds;
  p->line_loss += result->loss;
  p->line_steps++;
  p->line_ids += result->ids;
  p->line_bad_ids += (double)result->bad_ids;
  if ((double)result->bad_ids > many_bad_ids * result->ids) p->many_bad_ids = PETSC_TRUE;
  if (now_s - p->line_s < p->interval_s && p->steps > 1 && done < p->total_steps)
    PetscFunctionReturn(PETSC_SUCCESS);
  /* If printing would have to wait for the reader of standard output, skip the line. The next
     line includes its steps. */
  p->paused = (PetscBool)!TrsStdoutTakes(p->paused ? 0 : TRS_SLOW_READER_MS);
  if (p->paused && done < p->total_steps) PetscFunctionReturn(PETSC_SUCCESS);
  duration_text((now_s - p->start_s) / (double)(done - p->first_step) * (double)(p->total_steps - done), eta,
                sizeof(eta));
  clock_text(p->dated, at, sizeof(at));
  bad_ids_text(p, bad_ids, sizeof(bad_ids));
  if (p->one_class)
    snprintf(metrics, sizeof(metrics), "  NE, AUC no number (one class)");
  else if (!isnan(p->auc))
    snprintf(metrics, sizeof(metrics), "  NE %.5f  AUC %.5f", p->ne, p->auc);
  if (p->where[0])
    PetscCall(PetscPrintf(p->comm, "step %" PRId64 "  %s  %s  loss %.5f%s  %.0f samples/s%s\n",
                          done + p->shift, at, p->where, p->line_loss / (double)p->line_steps, metrics,
                          (double)p->line_samples / PetscMax(p->line_steps_s, 1e-9), bad_ids));
  else
    PetscCall(PetscPrintf(
        p->comm, "step %" PRId64 "/%" PRId64 "  %s  epoch %.2f  loss %.5f%s  %.0f samples/s  ETA %s%s\n",
        done + p->shift, p->total_steps + p->shift, at, (double)done / (double)p->per_epoch,
        p->line_loss / (double)p->line_steps, metrics,
        (double)p->line_samples / PetscMax(p->line_steps_s, 1e-9), eta, bad_ids));
  p->line_s = now_s;
  p->line_samples = p->line_steps = 0;
  p->line_loss = p->line_ids = p->line_bad_ids = p->line_steps_s = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values)
{
  progress->ne = values->window.ne;
  progress->auc = values->window.auc;
  progress->one_class = (PetscBool)(values->window.lack == TRS_LACK_CLASS);
}

void TrsProgressWhere(TrsProgress *p, int64_t sample, const char *file)
{
  snprintf(p->where, sizeof(p->where), "sample %" PRId64 " of %s", sample, file);
}

PetscBool TrsProgressIsDue(const TrsProgress *p)
{
  return (PetscBool)(TrsClock() - p->line_s >= p->interval_s);
}

PetscErrorCode TrsProgressLine(TrsProgress *p, const char *state, const char *about)
{
  char at[32];

  PetscFunctionBegin;
  p->paused = (PetscBool)!TrsStdoutTakes(p->paused ? 0 : TRS_SLOW_READER_MS);
  if (p->paused) PetscFunctionReturn(PETSC_SUCCESS);
  clock_text(p->dated, at, sizeof(at));
  PetscCall(PetscPrintf(p->comm, "%s  %s  after step %" PRId64 ": %s\n", state, at,
                        p->first_step + p->steps + p->shift, about));
  p->line_s = TrsClock();
  PetscFunctionReturn(PETSC_SUCCESS);
}
