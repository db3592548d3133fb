/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/ids.h"

#include "core/names.h"
#include "spec/text.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { TRS_COUNT_TEXT = 32, TRS_HELP_TEXT = 1024 };

/* A warning needs more than 1 young row of this many. */
enum { TRS_YOUNG_OF = 100 };

/* The columns /ids/<table>_<name>. */
static const struct {
  const char *name;
  size_t offset; /* in TrsDirectoryCounts */
} columns[] = {
    {"rows", offsetof(TrsDirectoryCounts, rows)},       {"held", offsetof(TrsDirectoryCounts, held)},
    {"given", offsetof(TrsDirectoryCounts, given)},     {"taken", offsetof(TrsDirectoryCounts, taken)},
    {"young", offsetof(TrsDirectoryCounts, young)},     {"youngest", offsetof(TrsDirectoryCounts, youngest)},
    {"lookups", offsetof(TrsDirectoryCounts, lookups)}, {"unknown", offsetof(TrsDirectoryCounts, unknown)},
    {"refused", offsetof(TrsDirectoryCounts, refused)}, {"dropped", offsetof(TrsDirectoryCounts, dropped)},
    {"bytes", offsetof(TrsDirectoryCounts, bytes)},
};
enum { TRS_N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static int64_t at(const TrsDirectoryCounts *counts, size_t offset)
{
  return *(const int64_t *)(const void *)((const char *)counts + offset);
}

/* Write 1234567 as "1,234,567". */
static const char *count_text(int64_t n, char text[TRS_COUNT_TEXT])
{
  char digits[TRS_COUNT_TEXT];
  const int n_digits = snprintf(digits, sizeof(digits), "%" PRId64, n);
  char *to = text;

  for (int i = 0; i < n_digits; i++) {
    if (i && (n_digits - i) % 3 == 0) *to++ = ',';
    *to++ = digits[i];
  }
  *to = '\0';
  return text;
}

static double share_of(int64_t part, int64_t whole)
{
  return whole > 0 ? (double)part / (double)whole : (double)NAN;
}

/* Add up a table's numbers of all ranks on rank 0; those since the start. Collective. */
static PetscErrorCode sum_counts(const TrsSession *session, int table, PetscBool anew,
                                 TrsDirectoryCounts *counts)
{
  const int n = (int)(sizeof(*counts) / sizeof(int64_t));
  TrsDirectoryCounts mine;
  int64_t youngest;

  PetscFunctionBegin;
  TrsDirectoryCount(TrsModelParallelShards(session->model), table, anew, &mine);
  youngest = mine.youngest < 0 ? INT64_MAX : mine.youngest;
  *counts = mine;
  PetscCallMPI(MPI_Reduce(&mine, counts, n, MPI_INT64_T, MPI_SUM, 0, session->comm));
  PetscCallMPI(MPI_Reduce(&youngest, &counts->youngest, 1, MPI_INT64_T, MPI_MIN, 0, session->comm));
  if (counts->youngest == INT64_MAX) counts->youngest = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIdReportStart(const TrsSession *session, TrsResults results, int64_t step, TrsIdReport *r)
{
  const size_t n = (size_t)PetscMax(session->tables.n, 1);

  PetscFunctionBegin;
  *r = (TrsIdReport){.session = session, .results = results, .first_step = step, .at_step = step};
  PetscCall(PetscCalloc4(n, &r->table, n, &r->row, n, &r->whole, n, &r->warned));
  for (int t = 0; t < session->tables.n; t++) {
    if (!TrsTableKeepsIds(&session->tables.table[t])) continue;
    r->whole[r->n].youngest = -1;
    r->table[r->n++] = t;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIdReportFree(TrsIdReport *r)
{
  PetscFunctionBegin;
  PetscCall(PetscFree4(r->table, r->row, r->whole, r->warned));
  r->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The numbers since the last row. Rows, held ids and bytes are those now. */
static TrsDirectoryCounts since(const TrsDirectoryCounts *before, const TrsDirectoryCounts *now)
{
  TrsDirectoryCounts row = *now;

  row.given -= before->given;
  row.taken -= before->taken;
  row.young -= before->young;
  row.lookups -= before->lookups;
  row.unknown -= before->unknown;
  row.refused -= before->refused;
  row.dropped -= before->dropped;
  return row;
}

static PetscErrorCode append_table(const TrsIdReport *r, int i)
{
  const char *table = r->session->tables.table[r->table[i]].name;
  const TrsDirectoryCounts *row = &r->row[i];
  char path[PETSC_MAX_PATH_LEN];

  PetscFunctionBegin;
  for (int c = 0; c < TRS_N_COLUMNS; c++) {
    PetscCall(PetscSNPrintf(path, sizeof(path), "ids/%s_%s", table, columns[c].name));
    PetscCall(TrsResultsAppendInt(r->results, path, at(row, columns[c].offset)));
  }
  PetscCall(PetscSNPrintf(path, sizeof(path), "ids/%s_unknown_share", table));
  PetscCall(TrsResultsAppend(r->results, path, share_of(row->unknown, row->lookups)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the warning --- */

/* Say which options of the table help, with their present values. */
static void advise(const TrsTableConfig *table, char text[TRS_HELP_TEXT])
{
  const char *name = TrsTableOptionName(table), *word = TrsIdMapName(table->id_map.kind);
  const PetscBool dynamic = (PetscBool)(table->id_map.kind == TRS_ID_MAP_DYNAMIC);
  size_t used;

  used = (size_t)snprintf(text, TRS_HELP_TEXT, "more rows (-table_%s_%s, now %" PRId64 ")", name,
                          dynamic ? "dynamic_cap" : "num_embeddings", table->num_embeddings);
  if (!dynamic && table->zch.interval > 1)
    used += (size_t)snprintf(text + used, TRS_HELP_TEXT - used,
                             ", evictions more often (-table_%s_zch_interval, now %" PRId64 ")", name,
                             table->zch.interval);
  if (dynamic && table->dynamic.ttl)
    used += (size_t)snprintf(text + used, TRS_HELP_TEXT - used,
                             ", an earlier end of unused ids (-table_%s_dynamic_ttl, now %" PRId64 ")", name,
                             table->dynamic.ttl);
  if (dynamic)
    snprintf(text + used, TRS_HELP_TEXT - used,
             ", or rows only for ids seen more often (-table_%s_dynamic_admit_after, now %" PRId64 ")", name,
             table->dynamic.admit_after);
  else if (table->zch.filter == TRS_ZCH_FILTER_NONE)
    snprintf(text + used, TRS_HELP_TEXT - used,
             ", or rows only for frequent ids (-table_%s_%s_filter average)", name, word);
}

/* Warn once if the table took too many rows from ids that were in use. Only on rank 0. */
static PetscErrorCode warn(TrsIdReport *r, int i)
{
  const TrsTableConfig *table = &r->session->tables.table[r->table[i]];
  const TrsDirectoryCounts *row = &r->row[i];
  char young[TRS_COUNT_TEXT], taken[TRS_COUNT_TEXT], help[TRS_HELP_TEXT] = "";

  PetscFunctionBegin;
  if (r->warned[i] || row->young * TRS_YOUNG_OF <= row->taken) PetscFunctionReturn(PETSC_SUCCESS);
  r->warned[i] = PETSC_TRUE;
  advise(table, help);
  PetscCall(
      PetscFPrintf(PETSC_COMM_SELF, PETSC_STDERR,
                   "trshard: warning: table %s takes rows from ids in use: of %s row%s taken since step "
                   "%" PRId64 ", %s had been used less than %" PRId64 " batches before (youngest: %" PRId64
                   "). It needs %s\n",
                   table->name, count_text(row->taken, taken), TrsPlural(row->taken, "s"), r->at_step,
                   count_text(row->young, young), TrsDirectoryYoung(table), row->youngest, help));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIdReportRow(TrsIdReport *r, int64_t step)
{
  PetscFunctionBegin;
  if (r->n == 0 || step == r->at_step) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < r->n; i++) {
    TrsDirectoryCounts now;
    int64_t youngest = r->whole[i].youngest;

    PetscCall(sum_counts(r->session, r->table[i], PETSC_TRUE, &now));
    r->row[i] = since(&r->whole[i], &now);
    r->whole[i] = now;
    if (now.youngest < 0 || (youngest >= 0 && youngest < now.youngest)) r->whole[i].youngest = youngest;
  }
  if (r->session->rank == 0) {
    PetscCall(TrsResultsDropLast(r->results, "ids/", "ids/step", step));
    PetscCall(TrsResultsAppendInt(r->results, "ids/step", step));
    for (int i = 0; i < r->n; i++) {
      PetscCall(append_table(r, i));
      PetscCall(warn(r, i));
    }
  }
  r->at_step = step;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- lines --- */

PetscErrorCode TrsIdReportSummary(const TrsIdReport *r)
{
  char held[TRS_COUNT_TEXT], rows[TRS_COUNT_TEXT], taken[TRS_COUNT_TEXT], bytes[32], unknown[64], age[64];

  PetscFunctionBegin;
  if (r->session->rank != 0 || r->at_step == r->first_step) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < r->n; i++) {
    const TrsDirectoryCounts *n = &r->whole[i];

    snprintf(unknown, sizeof(unknown), "%.1f %% of lookups unknown", 100 * share_of(n->unknown, n->lookups));
    snprintf(age, sizeof(age), " (youngest %" PRId64 " batch%s)", n->youngest, TrsPlural(n->youngest, "es"));
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s %s  %s of %s row%s, %s, %s taken%s, directory %s\n",
                          i ? "" : "ids", r->session->tables.table[r->table[i]].name,
                          count_text(n->held, held), count_text(n->rows, rows), TrsPlural(n->rows, "s"),
                          n->lookups ? unknown : "no lookups", count_text(n->taken, taken),
                          n->youngest < 0 ? "" : age, TrsBytesText((double)n->bytes, bytes, sizeof(bytes))));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportDroppedIds(const TrsSession *session)
{
  char dropped[TRS_COUNT_TEXT], all[TRS_COUNT_TEXT], rows[TRS_COUNT_TEXT];

  PetscFunctionBegin;
  for (int t = 0; t < session->tables.n; t++) {
    const TrsTableConfig *table = &session->tables.table[t];
    TrsDirectoryCounts n;

    if (!TrsTableKeepsIds(table)) continue;
    PetscCall(sum_counts(session, t, PETSC_FALSE, &n));
    if (session->rank != 0 || n.dropped == 0) continue;
    PetscCall(PetscPrintf(PETSC_COMM_SELF,
                          "%-10s table %s: %s of the checkpoint's %s ids lost their rows, because buckets of "
                          "%s row%s have no room "
                          "for them (-table_%s_dynamic_cap)\n",
                          "ids", table->name, count_text(n.dropped, dropped),
                          count_text(n.held + n.dropped, all), count_text(TrsTableRowUnit(table), rows),
                          TrsPlural(TrsTableRowUnit(table), "s"), TrsTableOptionName(table)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
