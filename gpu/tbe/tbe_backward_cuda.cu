/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Table-batched embedding on the GPU: the backward, fused with the optimizer. Twin of
  src/cpu/tbe_cpu.c.

  All occurrences of a row form a run (tbe_occurrences_cuda.h), and each run makes one update. Long
  runs are cut into pieces. First, one group of lanes sums each piece; then the sums of the pieces
  are added in order. Kernels use no atomics, so the bits are the same each time the program is run.
  Bytes moved, without the bytes for finding the runs: gradient rows are read once. Rows that occur,
  and their states, are read once and written once.

  Source: FBGEMM split_embedding_backward_codegen_*, tbe_cpu.c
*/
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_sums_cuda.h"
#include "gpu/tbe/tbe_tiles_cuda.h"

#include <math.h>

enum {
  TRS_UPDATE_THREADS = 128,
  /* bytes of shared memory that a thread block can use without an opt-in */
  TRS_SHARED_PLAIN = 48 << 10
};

/*
  Number of thread blocks per multiprocessor for which the registers suffice. rowwise_adagrad has
  its own kernel.
*/
template <int KIND, int COLUMNS> constexpr int blocks_of = KIND == TRS_N_OPTIMS ? 6 : COLUMNS == 1 ? 7 : 8;

/* --- sums --- */

/*
  Sum the pieces of a class's long runs, with one group of lanes per piece. class_run points to the
  first run of the class, and then the first run of the next class.
*/
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_UPDATE_THREADS)
    piece_sums_kernel(Occurrences o, Gradients g, const int64_t *class_run, int lanes_log2)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t first_run = class_run[0], end_run = class_run[1], end = o.piece_begin[end_run];

  for (int64_t p = o.piece_begin[first_run] + (TrsCudaFirst() >> lanes_log2); p < end;
       p += TrsCudaStep() >> lanes_log2) {
    int64_t r = first_run, high = end_run - 1;

    while (r < high) {
      const int64_t middle = (r + high + 1) / 2;
      if (o.piece_begin[middle] <= p)
        r = middle;
      else
        high = middle - 1;
    }
    const int64_t run = o.begin[r], run_end = o.begin[r + 1], length = piece_length(run_end - run);
    const int64_t first = run + (p - o.piece_begin[r]) * length;
    const int64_t last = first + length < run_end ? first + length : run_end;
    const int dim = table_of(g, o.key_of[r])->table.dim;

    for (int col = lane * COLUMNS; col < dim; col += lanes * COLUMNS) {
      float acc[COLUMNS];

      sum_occurrences<COLUMNS>(o, g, first, last, col, acc);
      keep_floats<COLUMNS>(g.sums + p * g.sums_stride + col, acc);
    }
  }
}

/* --- use of the sums: one group of lanes per run --- */

/*
  Shared memory holds one row's gradient for each group of lanes in the thread block, and twice as
  many floats if the optimizer needs `scratch`. Each lane uses only its own columns.

  A row's time is mostly the time of its chain of dependent loads. So each load starts as soon as
  its address is known: the next run is loaded together with this run, and the row and its state are
  loaded before the gradients. A run's table is nearly always the same as for the group's previous
  run.
*/
template <int KIND, TrsDType DTYPE, int COLUMNS>
static __global__ void __launch_bounds__(TRS_UPDATE_THREADS, blocks_of<KIND, COLUMNS>)
    update_kernel(Occurrences o, Gradients gradients, const int64_t *class_run, int lanes_log2,
                  int group_floats, int scratch, Step step)
{
  CU_DYN_SHARED(float, shared);
  const int lanes = 1 << lanes_log2;
  float *const g = shared + static_cast<int64_t>(threadIdx.x >> lanes_log2) * group_floats;
  const int64_t r_end = class_run[1];
  int64_t r = class_run[0] + (TrsCudaFirst() >> lanes_log2);
  const UpdateTable *t;
  GroupRow<DTYPE, COLUMNS> at;
  Run run;

  if (r >= r_end) return; /* groups share no data, so this group may leave */
  run = load_run(o, r);
  t = table_of(gradients, run.key);
  at.lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  at.lanes = lanes;
  at.mask = group_mask(lanes);
  while (r < r_end) {
    const int64_t next = r + (TrsCudaStep() >> lanes_log2);
    Run next_run = run;

    if (next < r_end) next_run = load_run(o, next);
    if (run.key >= static_cast<uint64_t>(t[1].key_begin)) t = table_of(gradients, run.key);
    at.table = &t->table;
    at.row = static_cast<int64_t>(run.key) - t->key_begin;
    at.weight = static_cast<char *>(
        TrsCacheRow(at.table, at.row, gradients.location && at.table->lines ? gradients.location[r] : -1,
                    DTYPE == TRS_FP32 ? 4 : 2));
    begin_step<KIND, DTYPE, COLUMNS>(step, &at);
    FOR_COLUMNS(col)
    {
      float acc[COLUMNS];

      sum_run<COLUMNS>(o, gradients, r, run, col, acc);
      store_floats<COLUMNS>(g + col, acc);
    }
    step_row<KIND, DTYPE, COLUMNS>(step, at, g, g + scratch);
    r = next;
    run = next_run;
  }
}

/*
  For data_parallel tables: list the rows and their gradients in ascending order of table and row.
*/
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_UPDATE_THREADS, 8)
    list_kernel(Occurrences o, Gradients g, const int64_t *class_run, int lanes_log2, int64_t *rows,
                float *row_grad, int64_t row_stride, bool wide)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (int64_t r = class_run[0] + (TrsCudaFirst() >> lanes_log2); r < class_run[1];
       r += TrsCudaStep() >> lanes_log2) {
    const Run run = load_run(o, r);
    const UpdateTable *const t = table_of(g, run.key);

    if (lane == 0 && rows) rows[r] = static_cast<int64_t>(run.key) - t->key_begin;
    for (int col = lane * COLUMNS; col < t->table.dim; col += lanes * COLUMNS) {
      float acc[COLUMNS];

      sum_run<COLUMNS>(o, g, r, run, col, acc);
      if (wide) {
        keep_floats<COLUMNS>(row_grad + r * row_stride + col, acc);
      } else {
        for (int j = 0; j < COLUMNS; j++) row_grad[r * row_stride + col + j] = acc[j];
      }
    }
  }
}

/* --- one launch for each class --- */

template <int KIND, TrsDType DTYPE, int COLUMNS>
static PetscErrorCode launch_update(TrsStream stream, const Backward *b, int c, const Step &step)
{
  const int lanes_log2 = b->classes[c].key % 6, D = (b->classes[c].widest + 3) / 4 * 4;
#define NEEDS_SCRATCH(K, ...) StepOf<TRS_OPTIM_##K>::scratch,
  static constexpr bool needs_scratch[] = {TRS_EMBEDDING_OPTIMIZERS(NEEDS_SCRATCH)};
  const int scratch = needs_scratch[step.args.kind] ? D : 0, group_floats = D + scratch;
  int threads = TRS_UPDATE_THREADS, bytes, most, device;
  dim3 blocks;

  PetscFunctionBegin;
  while (threads > 32 && (threads >> lanes_log2) * group_floats * 4 > TRS_SHARED_PLAIN) threads /= 2;
  bytes = (threads >> lanes_log2) * group_floats * 4;
  if (bytes > TRS_SHARED_PLAIN) {
    TrsCallCUDA(cudaGetDevice(&device));
    TrsCallCUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    PetscCheck(bytes <= most, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
               "a shard of %d columns is wider than this GPU's update takes (%d): cut the table by columns",
               b->classes[c].widest, most / (scratch ? 8 : 4));
    TrsCallCUDA(cudaFuncSetAttribute(update_kernel<KIND, DTYPE, COLUMNS>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  }
  /*
    The runs are in table order. If all thread blocks are resident at once, they go through the
    tables together, so the current table's gradients stay in L2. If there were more thread blocks,
    the later ones would load all tables' gradients again.
  */
  PetscCall(TrsCudaResidentBlocks(update_kernel<KIND, DTYPE, COLUMNS>, b->o.n << lanes_log2, threads, bytes,
                                  &blocks));
  CU_LAUNCH((update_kernel<KIND, DTYPE, COLUMNS>), blocks, static_cast<unsigned>(threads),
            static_cast<size_t>(bytes), TrsCudaStream(stream), b->o, b->g, b->class_run + c, lanes_log2,
            group_floats, scratch, step);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS>
static PetscErrorCode launch_update_by_kind(TrsStream stream, const Backward *b, int c, const Step &step)
{
  PetscFunctionBegin;
  if (step.args.kind == TRS_OPTIM_ROWWISE_ADAGRAD)
    PetscCall((launch_update<TRS_OPTIM_ROWWISE_ADAGRAD, DTYPE, COLUMNS>)(stream, b, c, step));
  else
    PetscCall((launch_update<TRS_N_OPTIMS, DTYPE, COLUMNS>)(stream, b, c, step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sum the pieces. There is at most one piece for every SHORT_RUN / 2 occurrences. */
static PetscErrorCode launch_pieces(TrsStream stream, const Backward *b, int c)
{
  const int lanes_log2 = b->classes[c].key % 6;
  const dim3 blocks = TrsCudaBlocks((b->o.n / (TRS_SHORT_RUN / 2)) << lanes_log2, TRS_UPDATE_THREADS);

  PetscFunctionBegin;
  if (b->o.n <= TRS_SHORT_RUN) PetscFunctionReturn(PETSC_SUCCESS);
  if (b->classes[c].key / 6 % 2)
    CU_LAUNCH((piece_sums_kernel<4>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b->o, b->g,
              b->class_run + c, lanes_log2);
  else
    CU_LAUNCH((piece_sums_kernel<1>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b->o, b->g,
              b->class_run + c, lanes_log2);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the rows of a class, each with the sum of its gradients. */
static PetscErrorCode launch_list(TrsStream stream, const Backward *b, int c, int64_t *rows, float *row_grad,
                                  int64_t row_stride)
{
  const int lanes_log2 = b->classes[c].key % 6;
  const dim3 blocks = TrsCudaBlocks(b->o.n << lanes_log2, TRS_UPDATE_THREADS);
  const bool wide = TrsCudaIsAligned(row_grad, row_stride * 4, 16);

  PetscFunctionBegin;
  if (b->classes[c].key / 6 % 2)
    CU_LAUNCH((list_kernel<4>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b->o, b->g,
              b->class_run + c, lanes_log2, rows, row_grad, row_stride, wide);
  else
    CU_LAUNCH((list_kernel<1>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b->o, b->g,
              b->class_run + c, lanes_log2, rows, row_grad, row_stride, wide);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode update_classes(TrsStream stream, const Backward *b, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  for (int c = 0; c < b->n_classes; c++) {
    const TrsSparseOptimizerArgs *own = &args[b->classes[c].optimizer];
    const double t = static_cast<double>(own->step);
    bool done;
    const Step step = {*own, static_cast<float>(1.0 - pow(static_cast<double>(own->beta1), t)),
                       static_cast<float>(1.0 - pow(static_cast<double>(own->beta2), t))};

    PetscCall(launch_pieces(stream, b, c));
    PetscCall(TrsCudaUpdateTiles(stream, b, c, step, &done));
    if (done) continue;
    switch (b->classes[c].key / 6) {
    case 2 * TRS_FP32: PetscCall((launch_update_by_kind<TRS_FP32, 1>)(stream, b, c, step)); break;
    case 2 * TRS_FP32 + 1: PetscCall((launch_update_by_kind<TRS_FP32, 4>)(stream, b, c, step)); break;
    case 2 * TRS_FP16: PetscCall((launch_update_by_kind<TRS_FP16, 1>)(stream, b, c, step)); break;
    case 2 * TRS_FP16 + 1: PetscCall((launch_update_by_kind<TRS_FP16, 8>)(stream, b, c, step)); break;
    case 2 * TRS_BF16: PetscCall((launch_update_by_kind<TRS_BF16, 1>)(stream, b, c, step)); break;
    default: PetscCall((launch_update_by_kind<TRS_BF16, 8>)(stream, b, c, step)); break;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the kernels of the table --- */

PetscBool TrsTbeHasStepCuda(TrsSparseOptimizerKind kind)
{
#define HAS_STEP(K, ...) StepOf<TRS_OPTIM_##K>::defined,
  static constexpr bool has_step[] = {TRS_EMBEDDING_OPTIMIZERS(HAS_STEP)};

  return has_step[kind] ? PETSC_TRUE : PETSC_FALSE;
}

/*
  Find the cache location of each run's row. All ids of a run have the same location. The id of the
  run's first occurrence is searched in its bag.
*/
static __global__ void locations_kernel(Occurrences o, Gradients g, TrsTbeInput input, bool by_id,
                                        const int64_t *first_run, const int64_t *end_run)
{
  for (int64_t r = *first_run + TrsCudaFirst(); r < *end_run; r += TrsCudaStep()) {
    const Run run = load_run(o, r);
    const UpdateTable *const t = table_of(g, run.key);
    uint32_t place;

    if (!t->table.lines) continue;
    load_place(o, run.begin, &place);
    int64_t i = place;
    if (!by_id) {
      const int64_t row = static_cast<int64_t>(run.key) - t->key_begin;

      i = input.offsets[(place >> o.bag_bits) * input.batch + (place & ((1u << o.bag_bits) - 1))];
      while (input.values[i] != row) i++;
    }
    g.location[r] = input.locations[i];
  }
}

/* If there are caches, find the rows that are in a cache now. */
static PetscErrorCode locate(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input, Backward *b)
{
  bool cached = false;

  PetscFunctionBegin;
  for (int t = 0; input->locations && t < b->tbe->n_tables; t++) cached = cached || b->tbe->table[t].lines;
  if (!cached) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_LOCATIONS, b->o.n, sizeof(*b->g.location), &b->g.location));
  CU_LAUNCH(locations_kernel, TrsCudaBlocks(b->o.n, TRS_UPDATE_THREADS), TRS_UPDATE_THREADS, 0,
            TrsCudaStream(stream), b->o, b->g, *input, b->use == TRS_TBE_BY_ID, b->class_run,
            b->class_run + b->n_classes);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                               const TrsTbeInput *input, TrsTbeUse use, TrsMatrix grad,
                               const TrsSparseOptimizerArgs *args)
{
  Backward b = {};

  PetscFunctionBegin;
  if (input->n_values <= 0 || tbe->n_tables <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = tbe;
  b.use = use;
  PetscCall(TrsCudaOccurrences(stream, workspace, input, &b));
  PetscCall(TrsCudaGradients(stream, workspace, grad, &b));
  PetscCall(locate(stream, workspace, input, &b));
  PetscCall(update_classes(stream, &b, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeBackwardCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                  const TrsTbeInput *input, TrsMatrix grad,
                                  const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  PetscCall(backward(stream, workspace, tbe, input, TRS_TBE_BY_BAG, grad, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeBackwardRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                      const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                      const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  PetscCall(backward(stream, workspace, tbe, input, TRS_TBE_BY_ID, TrsFloats(grad, grad_stride), args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* If the caller needs the numbers of rows, the host waits for them. */
/* NOLINTNEXTLINE(readability-function-size): the function type has many parameters */
PetscErrorCode TrsTbeRowGradientsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                      const TrsTbeInput *input, TrsMatrix grad, int64_t *row_begin,
                                      int64_t *rows, float *row_grad, int64_t row_stride)
{
  Backward b = {};

  PetscFunctionBegin;
  if (row_begin) memset(row_begin, 0, static_cast<size_t>(tbe->n_tables + 1) * sizeof(*row_begin));
  if (input->n_values <= 0 || tbe->n_tables <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = tbe;
  b.use = TRS_TBE_LISTS;
  PetscCall(TrsCudaOccurrences(stream, workspace, input, &b));
  PetscCall(TrsCudaGradients(stream, workspace, grad, &b));
  for (int c = 0; c < b.n_classes; c++) {
    PetscCall(launch_pieces(stream, &b, c));
    PetscCall(launch_list(stream, &b, c, rows, row_grad, row_stride));
  }
  if (row_begin)
    PetscCall(TrsCudaAnswer(workspace, stream, (tbe->n_tables + 1) * static_cast<int64_t>(sizeof(*row_begin)),
                            b.table_run, row_begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeUpdateRowsCuda(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                    const TrsTbeTable *table, const TrsRowGradients *gradients,
                                    const TrsSparseOptimizerArgs *args)
{
  const TrsTbe tbe = {n_tables, 0, table, nullptr};
  Backward b = {};

  PetscFunctionBegin;
  if (gradients->n <= 0 || n_tables <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = &tbe;
  PetscCall(TrsCudaGivenOccurrences(stream, workspace, gradients->n, gradients->keys, gradients->index, &b));
  PetscCall(TrsCudaGradients(stream, workspace, TrsFloats(gradients->grad, gradients->stride), &b));
  PetscCall(update_classes(stream, &b, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}
