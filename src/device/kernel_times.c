/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/kernel_times.h"

#include "core/clock.h"

#include <pthread.h>
#include <string.h>

PetscBool trs_kernels_are_timed;

typedef struct {
  TrsEvent begin, end;
  int row;
} TrsTimedLaunch;

static struct {
  const TrsDeviceOps *device; /* NULL if the record is not open */
  PetscBool has_events;
  PetscBool wanted, paused; /* true: this step is timed; true: but not these launches */
  pthread_t main_thread;
  TrsTimedLaunch *span; /* [TRS_KERNEL_SPANS] the first n_spans have ended and are not read yet */
  int n_spans, n_rows;
  PetscBool in_launch;
  TrsKernelRow row[TRS_KERNEL_ROWS];
  const char *call; /* the current call, or NULL */
  int call_row;
  double call_start_s;
  int64_t n_steps, n_lost;
} record;

static void switch_timing(void)
{
  trs_kernels_are_timed = (PetscBool)(record.device && record.wanted && !record.paused);
}

PetscErrorCode TrsKernelTimesOpen(const TrsDeviceOps *device)
{
  PetscFunctionBegin;
  PetscCall(TrsKernelTimesClose());
  memset(&record, 0, sizeof(record));
  record.has_events = (PetscBool)(device->timed_event_create != NULL);
  if (record.has_events) PetscCall(PetscCalloc1(TRS_KERNEL_SPANS, &record.span));
  for (int i = 0; record.has_events && i < TRS_KERNEL_SPANS; i++) {
    PetscCall(device->timed_event_create(&record.span[i].begin));
    PetscCall(device->timed_event_create(&record.span[i].end));
  }
  record.main_thread = pthread_self();
  record.device = device;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKernelTimesClose(void)
{
  PetscFunctionBegin;
  for (int i = 0; record.span && i < TRS_KERNEL_SPANS; i++) {
    PetscCall(record.device->event_destroy(&record.span[i].begin));
    PetscCall(record.device->event_destroy(&record.span[i].end));
  }
  PetscCall(PetscFree(record.span));
  record.device = NULL;
  switch_timing();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Wait for all launches, and add their times to their rows. */
static PetscErrorCode collect(void)
{
  PetscFunctionBegin;
  for (int i = 0; i < record.n_spans; i++) {
    const TrsTimedLaunch *span = &record.span[i];
    double seconds;

    PetscCall(record.device->timed_event_took(span->begin, span->end, &seconds));
    record.row[span->row].seconds += seconds;
  }
  record.n_spans = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKernelTimesStep(PetscBool timed)
{
  PetscFunctionBegin;
  if (!record.device) PetscFunctionReturn(PETSC_SUCCESS);
  record.wanted = PETSC_FALSE;
  switch_timing();
  if (timed) PetscCall(collect());
  record.wanted = timed;
  record.n_steps += timed;
  switch_timing();
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsKernelTimesPause(PetscBool pause)
{
  record.paused = pause;
  switch_timing();
}

PetscErrorCode TrsKernelTimesRead(int *n, const TrsKernelRow **rows, int64_t *n_steps, int64_t *n_lost)
{
  PetscFunctionBegin;
  PetscCall(TrsKernelTimesStep(PETSC_FALSE));
  PetscCall(collect());
  *n = record.n_rows;
  *rows = record.row;
  *n_steps = record.n_steps;
  *n_lost = record.n_lost;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_main(void)
{
  return (PetscBool)(pthread_equal(pthread_self(), record.main_thread) != 0);
}

/* Find or make the row; -1 if there is no room for it. */
static int row_of(const char *call, const char *name)
{
  TrsKernelRow *row;

  for (int i = 0; i < record.n_rows; i++)
    if (strcmp(record.row[i].call, call) == 0 && strcmp(record.row[i].name, name) == 0) return i;
  if (record.n_rows == TRS_KERNEL_ROWS) return -1;
  row = &record.row[record.n_rows];
  row->call = call;
  (void)PetscStrncpy(row->name, name, sizeof(row->name));
  return record.n_rows++;
}

static void count(int row, double bytes, double flops)
{
  record.row[row].n++;
  record.row[row].bytes += bytes;
  record.row[row].flops += flops;
}

PetscErrorCode TrsKernelTimesBegin(const char *name, double bytes, double flops, TrsStream stream)
{
  const PetscBool is_product = (PetscBool)(bytes > 0 || flops > 0);
  char bare[TRS_KERNEL_NAME];
  int row;

  PetscFunctionBegin;
  if (!is_main() || !record.has_events) PetscFunctionReturn(PETSC_SUCCESS);
  while (*name == '(') name++;
  PetscCall(PetscStrncpy(bare, name, sizeof(bare)));
  if (!is_product) bare[strcspn(bare, "<)")] = '\0';
  row = row_of(record.call && !is_product ? record.call : "", bare);
  record.in_launch = (PetscBool)(row >= 0 && record.n_spans < TRS_KERNEL_SPANS);
  if (!record.in_launch) {
    record.n_lost++;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  count(row, bytes, flops);
  record.span[record.n_spans].row = row;
  PetscCall(record.device->event_record(record.span[record.n_spans].begin, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKernelTimesEnd(TrsStream stream)
{
  PetscFunctionBegin;
  if (!is_main() || !record.in_launch) PetscFunctionReturn(PETSC_SUCCESS);
  record.in_launch = PETSC_FALSE;
  PetscCall(record.device->event_record(record.span[record.n_spans++].end, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsKernelTimesCall(const char *call, double bytes, double flops)
{
  if (!is_main()) return;
  record.call_row = row_of(call, "");
  if (record.call_row < 0) return;
  record.call = call;
  count(record.call_row, bytes, flops);
  record.call_start_s = TrsClock();
}

void TrsKernelTimesCallEnd(void)
{
  if (!is_main() || !record.call) return;
  if (!record.has_events) record.row[record.call_row].seconds += TrsClock() - record.call_start_s;
  record.call = NULL;
}
