/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/beside.h"

#include "core/c_locale.h"
#include "core/clock.h"
#include "core/events.h"
#include "core/names.h"
#include "device/cpu_bind.h"
#include "run/deltas.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* Ranks that wait for a file tell each other at this interval whether their threads are busy. */
static const double poll_s = 0.25;
static const struct timespec nap = {.tv_nsec = 1000000};

static const TrsOptionSpec specs[] = {
    {"-checkpoint_async", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "write the full checkpoints of -checkpoint_every beside the training. A row of a table is saved before "
     "its first change after the checkpoint's step, so that the file is of this step. Other checkpoints, "
     "increments and deltas still pause the training"},
    {"-checkpoint_async_bytes", TRS_OPTION_BYTES, "256MiB", "[4096,]", NULL, NULL,
     "memory of a rank for saved rows. If it is full, steps wait until rows are written"},
};
const TrsOptionGroup trs_beside_options = TRS_OPTION_GROUP("Checkpoints beside the training", specs);

PetscErrorCode TrsBesideFromOptions(TrsOptions options, TrsBeside *b)
{
  int64_t every;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-checkpoint_async", &b->wanted, NULL));
  PetscCall(TrsOptionsGetInt(options, "-checkpoint_every", &every, NULL));
  if (b->wanted && !every)
    PetscCall(TrsOptionError(options, "-checkpoint_async",
                             "needs -checkpoint_every, the steps between the checkpoints it is for"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBesideCheck(TrsBeside *b, const TrsSession *s)
{
  PetscFunctionBegin;
  if (!b->wanted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCheckNotesChanges(s, "-checkpoint_async"));
  PetscCall(PetscClassIdRegister("trshard checkpoint", &b->class_id));
  PetscCall(PetscLogEventRegister("checkpoint begin", b->class_id, &b->begin_event));
  PetscCall(PetscLogEventRegister("checkpoint wait", b->class_id, &b->wait_event));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the thread of a stage --- */

/* Do the writer's stage. An error is kept with its message, which belongs to this thread. */
static void *do_stage(void *context)
{
  TrsBeside *b = (TrsBeside *)context;

  TrsCpuHelps();
  (void)TrsCLocale(); /* messages contain numbers, which need a decimal point */
  b->error = TrsCheckpointDoStage(b->writer);
  if (b->error) {
    (void)snprintf(b->message, sizeof(b->message), "%s", TrsErrorMessage());
    TrsSnapshotAbandon(b->snapshot);
  }
  __atomic_store_n(&b->busy, 0, __ATOMIC_RELEASE);
  return NULL;
}

static PetscErrorCode start_stage(TrsBeside *b)
{
  sigset_t all, before;
  int status;

  PetscFunctionBegin;
  __atomic_store_n(&b->busy, 1, __ATOMIC_RELAXED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  status = pthread_create(&b->thread, NULL, do_stage, b);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (status) __atomic_store_n(&b->busy, 0, __ATOMIC_RELAXED);
  PetscCheck(status == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "cannot start a thread that writes a checkpoint: %s", strerror(status));
  b->has_thread = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Join the thread, which has ended or ends soon. Return its error. */
static PetscErrorCode join_stage(TrsBeside *b)
{
  PetscFunctionBegin;
  if (b->has_thread) (void)pthread_join(b->thread, NULL);
  b->has_thread = PETSC_FALSE;
  if (b->error) SETERRQ(PETSC_COMM_SELF, b->error, "%s", b->message);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a file --- */

/* Free the writer and the snapshot. */
static PetscErrorCode end_file(TrsBeside *b, TrsSnapshotCounts *counts)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointEnd(&b->writer));
  if (b->snapshot) PetscCall(TrsSnapshotRelease(b->snapshot, counts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBesideBegin(TrsBeside *b, TrsSession *s, TrsCheckpointFolder folder,
                              const TrsCheckpointInfo *info)
{
  const TrsState *state;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(b->begin_event, 0, 0, 0, 0));
  b->start_s = TrsClock();
  b->snapshot = TrsModelParallelSnapshot(s->model);
  b->error = PETSC_SUCCESS;
  b->info = (TrsCheckpointInfo){.step = info->step, .id = info->id};
  PetscCall(PetscStrncpy(b->info.run_id, info->run_id, sizeof(b->info.run_id)));
  PetscCall(TrsCheckpointPlace(s->comm, &s->state));
  ierr = TrsAgree(s->comm, TrsSnapshotTake(b->snapshot, &s->state, &state));
  if (!ierr) ierr = TrsCheckpointFolderBegin(folder, state, info, &b->writer);
  if (!ierr) ierr = TrsAgree(s->comm, start_stage(b));
  if (ierr) PetscCall(TrsBesideEnd(b));
  PetscCall(ierr);
  b->pause_s = TrsClock() - b->start_s;
  PetscCall(PetscLogEventEnd(b->begin_event, 0, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print a line about the file, and add its numbers to those of all files. */
static PetscErrorCode tell_file(TrsBeside *b, MPI_Comm comm, const TrsSnapshotCounts *counts)
{
  double most[] = {b->pause_s,
                   counts->wait_s > 0 ? counts->wait_s : 0,
                   (double)counts->saved_bytes,
                   (double)counts->most_bytes,
                   (double)counts->n_waits,
                   (double)counts->copied_bytes};
  const double writing_s = TrsClock() - b->start_s;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, most, sizeof(most) / sizeof(most[0]), MPI_DOUBLE, MPI_MAX, comm));
  b->n_files++;
  b->all_pause_s += most[0];
  b->most_pause_s = PetscMax(b->most_pause_s, most[0]);
  b->writing_s += writing_s;
  b->most.wait_s = PetscMax(b->most.wait_s, most[1]);
  b->most.saved_bytes = PetscMax(b->most.saved_bytes, (int64_t)most[2]);
  b->most.most_bytes = PetscMax(b->most.most_bytes, (int64_t)most[3]);
  b->most.copied_bytes = PetscMax(b->most.copied_bytes, (int64_t)most[5]);
  if (most[4] > 0 && b->n_waits == 0)
    PetscCall(PetscPrintf(comm,
                          "%-10s steps have waited up to %.2f s on a rank, because its memory for saved rows "
                          "was full: raise -checkpoint_async_bytes\n",
                          "async", most[1]));
  b->n_waits += (int64_t)most[4];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBesideAdvance(TrsBeside *b, MPI_Comm comm, TrsCheckpointFolder folder, PetscBool *written)
{
  const double start_s = TrsClock();
  TrsCheckpointStage stage = TRS_CHECKPOINT_TENSORS;
  TrsSnapshotCounts counts;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *written = PETSC_FALSE;
  ierr = TrsAgree(comm, join_stage(b));
  if (!ierr) ierr = TrsCheckpointNextStage(b->writer, &stage);
  if (!ierr && stage != TRS_CHECKPOINT_WRITTEN) ierr = TrsAgree(comm, start_stage(b));
  if (ierr) PetscCall(TrsBesideEnd(b));
  PetscCall(ierr);
  if (stage != TRS_CHECKPOINT_WRITTEN) {
    b->pause_s += TrsClock() - start_s;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(end_file(b, &counts));
  PetscCall(TrsCheckpointFolderAdd(folder, &b->info));
  b->pause_s += TrsClock() - start_s;
  *written = PETSC_TRUE;
  PetscCall(tell_file(b, comm, &counts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBesideIsBusy(TrsBeside *b, MPI_Comm comm, PetscBool *busy)
{
  int any = __atomic_load_n(&b->busy, __ATOMIC_ACQUIRE);

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, comm));
  *busy = (PetscBool)(any != 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sleep while this rank's thread is busy, but not longer than poll_s. */
static void wait_a_while(const TrsBeside *b)
{
  const double end_s = TrsClock() + poll_s;

  while (__atomic_load_n(&b->busy, __ATOMIC_ACQUIRE) && TrsClock() < end_s) (void)nanosleep(&nap, NULL);
}

PetscErrorCode TrsBesideWait(TrsBeside *b, MPI_Comm comm, TrsCheckpointFolder folder)
{
  const double start_s = TrsClock();
  int64_t before = 0;
  PetscBool busy, written = PETSC_FALSE;

  PetscFunctionBegin;
  if (!b->writer) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(b->wait_event, 0, 0, 0, 0));
  while (!written) {
    int64_t now = TrsCheckpointWrittenBytes(b->writer);

    wait_a_while(b);
    /* a rank whose thread is done makes progress as long as another rank's thread does */
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_INT64_T, MPI_SUM, comm));
    if (now != before) TrsStageProgress();
    before = now;
    PetscCall(TrsBesideIsBusy(b, comm, &busy));
    if (busy) continue;
    PetscCall(TrsBesideAdvance(b, comm, folder, &written));
  }
  b->waited_s += TrsClock() - start_s;
  PetscCall(PetscLogEventEnd(b->wait_event, 0, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBesideReport(TrsBeside *b, MPI_Comm comm, TrsResults results)
{
  PetscFunctionBegin;
  if (b->n_files == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(comm,
                        "%-10s %" PRId64 " checkpoint%s written beside the training in %.2f s: pauses of "
                        "%.1f ms on average, at most %.1f ms, and %.2f s of waiting for their end; at most "
                        "%.1f MiB of saved rows and %.1f MiB of "
                        "copies on a rank; %" PRId64 " wait%s for memory\n",
                        "async", b->n_files, TrsPlural(b->n_files, "s"), b->writing_s,
                        1e3 * b->all_pause_s / (double)b->n_files, 1e3 * b->most_pause_s, b->waited_s,
                        (double)b->most.most_bytes / (1 << 20), (double)b->most.copied_bytes / (1 << 20),
                        b->n_waits, TrsPlural(b->n_waits, "s")));
  PetscCall(TrsResultsSetInt(results, "async_checkpoints", b->n_files));
  PetscCall(TrsResultsSetInt(results, "async_pause_us", (int64_t)(1e6 * b->all_pause_s)));
  PetscCall(TrsResultsSetInt(results, "async_longest_pause_us", (int64_t)(1e6 * b->most_pause_s)));
  PetscCall(TrsResultsSetInt(results, "async_writing_us", (int64_t)(1e6 * b->writing_s)));
  PetscCall(TrsResultsSetInt(results, "async_waited_us", (int64_t)(1e6 * b->waited_s)));
  PetscCall(TrsResultsSetInt(results, "async_saved_bytes", b->most.saved_bytes));
  PetscCall(TrsResultsSetInt(results, "async_waits", b->n_waits));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBesideEnd(TrsBeside *b)
{
  PetscFunctionBegin;
  if (b->writer) TrsCheckpointStop(b->writer);
  TrsSnapshotAbandon(b->snapshot);
  if (b->has_thread) (void)pthread_join(b->thread, NULL);
  b->has_thread = PETSC_FALSE;
  PetscCall(end_file(b, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
