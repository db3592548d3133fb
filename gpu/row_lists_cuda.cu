/* SPDX-License-Identifier: BSD-3-Clause */
/*
  For tables that every rank holds (data_parallel), on the GPU: list the rows that occur in a batch,
  and merge the lists of all ranks. Twin of src/cpu/row_lists_cpu.c.

  Both operations sort stably by row, for all tables at once. A row's key is its index among the
  rows of all tables. Scratch: 24 bytes per entry, plus the scratch of the sort.
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"
#include "gpu/tbe/tbe_occurrences_cuda.h"

enum { TRS_LIST_THREADS = 256 };

/* --- rows of a batch --- */

/* table_run [n_tables + 1]: index of each table's first run. */
static __global__ void rows_of_runs_kernel(const uint64_t *key_of, const UpdateTable *table, int n_tables,
                                           const int64_t *table_run, int64_t *rows)
{
  for (int64_t r = TrsCudaFirst(); r < table_run[n_tables]; r += TrsCudaStep())
    rows[r] = static_cast<int64_t>(key_of[r]) - table[TrsCudaBlockOf(table_run, n_tables, r)].key_begin;
}

/* The host waits until it has the number of rows of each table. */
PetscErrorCode TrsTbeListRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                  const TrsTbeInput *input, int64_t *row_begin, int64_t *rows)
{
  const int n = tbe->n_tables;
  Backward b = {};

  PetscFunctionBegin;
  memset(row_begin, 0, static_cast<size_t>(n + 1) * sizeof(*row_begin));
  if (input->n_values <= 0 || n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = tbe;
  b.use = TRS_TBE_LISTS;
  PetscCall(TrsCudaOccurrences(stream, workspace, input, &b));
  CU_LAUNCH(rows_of_runs_kernel, TrsCudaBlocks(b.o.n, TRS_LIST_THREADS), TRS_LIST_THREADS, 0,
            TrsCudaStream(stream), b.o.key_of, b.g.table, n, b.table_run, rows);
  TrsCheckLaunch();
  PetscCall(TrsCudaAnswer(workspace, stream, (n + 1) * static_cast<int64_t>(sizeof(*row_begin)), b.table_run,
                          row_begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- merging --- */

/* A merge of lists. begin and key_begin are in device memory. */
struct Lists {
  int64_t n; /* number of entries in all lists */
  int n_tables, n_lists;
  const int64_t *begin;     /* [n_lists * n_tables + 1] index of the first entry of each list */
  const int64_t *key_begin; /* [n_tables + 1] first key of each table */
};

static __global__ void list_keys_kernel(Lists lists, const int64_t *rows, uint64_t *key, uint32_t *item)
{
  for (int64_t i = TrsCudaFirst(); i < lists.n; i += TrsCudaStep()) {
    const int64_t list = TrsCudaBlockOf(lists.begin, static_cast<int64_t>(lists.n_lists) * lists.n_tables, i);
    const int64_t t = list % lists.n_tables;
    const int64_t row = rows[i], first = lists.key_begin[t];
    const bool is_row = row >= 0 && row < lists.key_begin[t + 1] - first;

    key[i] = static_cast<uint64_t>(is_row ? first + row : lists.key_begin[lists.n_tables]);
    item[i] = static_cast<uint32_t>(i);
  }
}

static __global__ void widen_items_kernel(int64_t n, const uint32_t *item, int64_t *index)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) index[i] = static_cast<int64_t>(item[i]);
}

/* Upload begin and key_begin. n_keys is the number of rows of all tables. */
static PetscErrorCode upload_lists(TrsStream stream, TrsWorkspace workspace, const TrsTbeTable *table,
                                   const int64_t *begin, Lists *lists, int64_t *n_keys)
{
  const int64_t n_begin = static_cast<int64_t>(lists->n_lists) * lists->n_tables + 1, T = lists->n_tables;
  int64_t *host, *device;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_LISTS, n_begin + T + 1, sizeof(*host), &host));
  memcpy(host, begin, static_cast<size_t>(n_begin) * sizeof(*host));
  *n_keys = 0;
  for (int64_t t = 0; t < T; *n_keys += table[t++].rows) host[n_begin + t] = *n_keys;
  host[n_begin + T] = *n_keys;
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_LISTS, stream,
                               (n_begin + T + 1) * static_cast<int64_t>(sizeof(*host)), host, &device));
  lists->begin = device;
  lists->key_begin = device + n_begin;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMergeRowsCuda(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                const int64_t *rows, int64_t *keys, int64_t *index)
{
  Lists lists = {begin[static_cast<int64_t>(n_lists) * n_tables], n_tables, n_lists, nullptr, nullptr};
  const dim3 blocks = TrsCudaBlocks(lists.n, TRS_LIST_THREADS);
  uint32_t *item, *sorted_item;
  int64_t n_keys = 0;
  uint64_t *key;

  PetscFunctionBegin;
  if (lists.n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(lists.n < UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld rows of replicated tables in one batch of all ranks are more than a GPU takes (2^32)",
             static_cast<long long>(lists.n));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS, lists.n, sizeof(*key), &key));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS, lists.n, sizeof(*item), &item));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS_SORTED, lists.n, sizeof(*item), &sorted_item));
  PetscCall(upload_lists(stream, workspace, table, begin, &lists, &n_keys));
  CU_LAUNCH(list_keys_kernel, blocks, TRS_LIST_THREADS, 0, TrsCudaStream(stream), lists, rows, key, item);
  TrsCheckLaunch();
  PetscCall(TrsCudaSortPairs(workspace, stream, lists.n, TrsCudaBitsFor(static_cast<uint64_t>(n_keys)), key,
                             reinterpret_cast<uint64_t *>(keys), item, sorted_item));
  CU_LAUNCH(widen_items_kernel, blocks, TRS_LIST_THREADS, 0, TrsCudaStream(stream), lists.n, sorted_item,
            index);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
