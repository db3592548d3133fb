/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/banner.h"

#include "core/names.h"
#include "core/version.h"
#include "data/label.h"
#include "io/library.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRS_TEXT = 512, TRS_PLAN_LINES = 40 };

/* Read the first "model name" of /proc/cpuinfo. */
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

/*
  Write "avx2, 1 thread a rank". If ranks differ, write "portable to avx2, 1 to 2 threads a rank".
*/
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

/* If the data has several labels, print the label that the predictions and metrics are for. */
static PetscErrorCode print_label(const TrsSession *session)
{
  const TrsDatasetInfo *info;
  char names[TRS_TEXT];

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(session->train ? session->train : session->eval, &info));
  if (!session->label || !info->label_names) PetscFunctionReturn(PETSC_SUCCESS);
  TrsLabelNames(info, names, sizeof(names));
  PetscCall(PetscPrintf(session->comm,
                        "%-10s %s, of %s: loss, predictions and metrics are of this one alone\n", "label",
                        session->label, names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print where tables are stored, unless the device's memory holds all tables completely. Collective.
*/
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
