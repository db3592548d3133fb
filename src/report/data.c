/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/data.h"

#include "core/names.h"
#include "data/batch.h"

#include <inttypes.h>

enum { TRS_TEXT = 512 };

/*
  Report the n bad ids of a table, which is the number over all ranks. `bad` has the bad ids of the
  table's features on this rank.
*/
static PetscErrorCode report_table(const TrsSession *session, const TrsDatasetInfo *info, const char *what,
                                   const TrsTableConfig *table, const TrsBadIds *bad, int64_t n)
{
  /* found: the bad id and its key */
  int64_t row, sample = INT64_MAX, found[2] = {INT64_MIN, INT64_MIN};
  const char *path;

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
  path = TrsDatasetLocate(info, sample, &row);
  PetscCall(PetscFPrintf(session->comm, PETSC_STDERR,
                         "trshard: warning: %s: table %s: %" PRId64 " id%s outside of [0, %" PRId64
                         ") became 0, the first is %" PRId64 " of feature \"%.100s\" in sample %" PRId64
                         "%s%s (-bounds_check_mode)\n",
                         what, table->name, n, TrsPlural(n, "s"), table->num_embeddings, found[0],
                         info->features[found[1]], row, info->n_files > 1 ? " of " : "",
                         info->n_files > 1 ? path : ""));
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
  const char *path;
  int64_t row;

  PetscFunctionBegin;
  if (result->bad_ids) {
    path = TrsDatasetLocate(info, result->first_bad.sample, &row);
    PetscCall(PetscFPrintf(session->comm, PETSC_STDERR,
                           "trshard: warning: step %" PRId64 ": %" PRId64
                           " id%s outside of their tables became 0; feature \"%.100s\" of sample %" PRId64
                           "%s%s has id %" PRId64 " (-bounds_check_mode)\n",
                           result->step, result->bad_ids, TrsPlural(result->bad_ids, "s"),
                           info->features[result->first_bad.key], row, info->n_files > 1 ? " of " : "",
                           info->n_files > 1 ? path : "", result->first_bad.id));
  }
  if (result->bad_numbers)
    PetscCall(PetscFPrintf(session->comm, PETSC_STDERR,
                           "trshard: warning: step %" PRId64 ": %" PRId64 BAD_NUMBERS, result->step,
                           result->bad_numbers, TrsPlural(result->bad_numbers, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}
