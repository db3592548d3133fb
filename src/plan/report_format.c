/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/report_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void TrsRoundedText(double x, int places, char *text, size_t n)
{
  size_t length;

  snprintf(text, n, "%.*f", places, x);
  length = strlen(text);
  while (length > 2 && text[length - 1] == '0' && text[length - 2] != '.') text[--length] = '\0';
}

void TrsOneDigitText(double x, char *text, size_t n)
{
  snprintf(text, n, x < 1 ? "%.1g" : "%.0f", x);
}

void TrsPerfText(const TrsPerf *perf, char *text, size_t n)
{
  double part[5] = {perf->fwd_compute, perf->fwd_comms, perf->bwd_compute, perf->bwd_comms,
                    perf->prefetch_compute};
  char total[32], digit[5][32];

  TrsRoundedText(TrsPerfTotal(perf), 3, total, sizeof(total));
  for (int i = 0; i < 5; i++) TrsOneDigitText(part[i], digit[i], sizeof(digit[i]));
  snprintf(text, n, "%s (%s,%s,%s,%s,%s)", total, digit[0], digit[1], digit[2], digit[3], digit[4]);
}

void TrsGibText(double bytes, char *text, size_t n)
{
  const double gib = bytes / 1073741824.0;

  snprintf(text, n, gib >= 999.5 ? "%.0f" : "%.3g", gib);
}

void TrsBandwidthText(double bytes_per_ms, char *text, size_t n)
{
  static const struct {
    const char *suffix;
    double bytes;
  } units[2][3] = {{{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}},
                   {{"TiB/s", 1099511627776.0}, {"GiB/s", 1073741824.0}, {"MiB/s", 1048576.0}}};
  const double per_s = bytes_per_ms * 1000;
  char other[32];

  text[0] = '\0';
  for (int kind = 0; kind < 2; kind++) {
    int i = 0;

    while (i < 2 && per_s < units[kind][i].bytes) i++;
    snprintf(other, sizeof(other), "%.6g%s", per_s / units[kind][i].bytes, units[kind][i].suffix);
    if (kind == 0 || strlen(other) < strlen(text)) snprintf(text, n, "%s", other);
  }
}

void TrsLargestAdd(TrsLargest *largest, int index, double value)
{
  int i;

  if (largest->n == TRS_N_LARGEST && value <= largest->value[TRS_N_LARGEST - 1]) return;
  if (largest->n < TRS_N_LARGEST) largest->n++;
  for (i = largest->n - 1; i > 0 && largest->value[i - 1] < value; i--) {
    largest->value[i] = largest->value[i - 1];
    largest->index[i] = largest->index[i - 1];
  }
  largest->value[i] = value;
  largest->index[i] = index;
}

PetscErrorCode TrsRanksText(int n, const int *ranks, TrsText *text)
{
  PetscBool is_run = (PetscBool)(n > 1);

  PetscFunctionBegin;
  for (int i = 1; i < n; i++) is_run = (PetscBool)(is_run && ranks[i] == ranks[0] + i);
  if (is_run) {
    PetscCall(TrsTextPrintf(text, "%d-%d", ranks[0], ranks[n - 1]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int i = 0; i < n; i++) PetscCall(TrsTextPrintf(text, "%s%d", i ? "," : "", ranks[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReduceIntsText(int n, const int64_t *numbers, TrsText *text)
{
  PetscFunctionBegin;
  for (int i = 0, end; i < n; i = end) {
    for (end = i; end < n && numbers[end] == numbers[i];) end++;
    PetscCall(TrsTextPrintf(text, "%s%" PRId64, i ? ", " : "", numbers[i]));
    if (end - i > 1) /* the format of TorchRec's report */
      PetscCall(TrsTextPrintf(text, end < n ? " * %d" : "*%d", end - i));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMeasureImbalance(int n, const double *share, TrsImbalance *imbalance)
{
  double k = n, chi = 0, kl = 0;

  *imbalance = (TrsImbalance){0};
  for (int i = 0; i < n; i++) {
    double off = fabs(share[i] - 1 / k);

    imbalance->total_variation = PetscMax(imbalance->total_variation, off);
    imbalance->total_distance += off;
    chi += (off * off) * k;
    if (share[i] > 0) kl += share[i] * log(k * share[i]);
  }
  if (n < 2) return;
  imbalance->chi = chi / (((k - 1) / k) * ((k - 1) / k) * k + (k - 1) / k);
  imbalance->kl = kl / log(k);
}

PetscErrorCode TrsKeysWrite(int n, const TrsTableConfig *const *table, TrsText *text)
{
  char bytes[32];

  PetscFunctionBegin;
  for (int t = 0; t < n; t++) {
    const int64_t row_bytes = TrsTableKeysRowBytes(table[t]);
    const PetscBool capped = (PetscBool)(table[t]->id_map.kind == TRS_ID_MAP_DYNAMIC);

    if (row_bytes == 0) continue;
    PetscCall(TrsTextPrintf(
        text,
        "table %s: its directory of ids takes %" PRId64 " bytes of host memory a row, %s for %s%" PRId64
        " rows%s\n",
        table[t]->name, row_bytes,
        TrsBytesText((double)row_bytes * (double)table[t]->num_embeddings, bytes, sizeof(bytes)),
        capped ? "the cap of " : "", table[t]->num_embeddings,
        capped ? "; a run takes memory only for rows in use" : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
