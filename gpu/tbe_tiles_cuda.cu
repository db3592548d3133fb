/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/compute_cuda.h"
#include "gpu/tbe_sums_cuda.h"
#include "gpu/tbe_tiles_cuda.h"

#include <type_traits>

enum {
  TRS_TILE_THREADS = 128,
  TRS_TILE = 8,  /* number of adjacent runs that a group of lanes updates together */
  TRS_FLIGHT = 2 /* number of these runs whose rows are in flight at a time */
};

/* The pointer that another lane holds. */
template <int LANES, class T> static __device__ __forceinline__ T *shuffled(T *pointer, int lane)
{
  return reinterpret_cast<T *>(__shfl_sync(~0u, reinterpret_cast<unsigned long long>(pointer), lane, LANES));
}

/* Load COLUMNS numbers (a multiple of 4) that no code writes while the kernel runs. */
template <int COLUMNS, class G> static __device__ __forceinline__ void load_gradient(const G *from, float *x)
{
  typedef std::conditional_t<sizeof(G) == sizeof(float), float4, uint2> Four;

#pragma unroll
  for (int j = 0; j < COLUMNS; j += 4) {
    const Four four = __ldg(reinterpret_cast<const Four *>(from + j));
    load_numbers<4>(reinterpret_cast<const G *>(&four), x + j);
  }
}

/*
  The sum of x[0] over the group's lanes, returned in the group's lower half, and of x[1], returned
  in the upper half. The bits equal those of group_sum().
*/
template <int LANES> static __device__ __forceinline__ float two_sums(const float *x, bool upper)
{
  float sum = upper ? x[1] : x[0];

  sum += __shfl_xor_sync(~0u, upper ? x[0] : x[1], LANES / 2);
#pragma unroll
  for (int with = LANES / 4; with > 0; with /= 2) sum += __shfl_xor_sync(~0u, sum, with);
  return sum;
}

/*
  update_kernel waits for one row at a time, and all lanes of a group repeat work that one lane
  could do. Here a group of LANES handles a tile of TRS_TILE neighbouring runs. TRS_TILE of its
  lanes each find the addresses for one run. Each of them also starts to load this run's state and
  the data of one run of the next tile. Then the group processes the tile, with TRS_FLIGHT rows and
  their first gradients in flight. Lanes get the addresses by shuffles. A warp never diverges, so
  each shuffle names all lanes of the warp. If the lanes were known only at run time, nvcc would add
  several instructions before each shuffle.
*/
template <TrsDType DTYPE, int COLUMNS, class G, int LANES>
static __global__ void __launch_bounds__(TRS_TILE_THREADS, 6)
    update_tiles_kernel(Occurrences o, Gradients gradients, const int64_t *class_run, int dim, Step step)
{
  constexpr int RUNS = 32 / LANES * TRS_TILE; /* number of runs that a warp updates together */
  const TrsSparseOptimizerArgs &a = step.args;
  const int lane = static_cast<int>(threadIdx.x) & (LANES - 1), col = lane * COLUMNS,
            first = (static_cast<int>(threadIdx.x) & 31) / LANES * TRS_TILE, mine = first + lane % TRS_TILE;
  const bool upper = lane >= LANES / 2;
  const int64_t r_end = class_run[1], r_step = TrsCudaStep() / 32 * RUNS;
  int64_t r0 = class_run[0] + TrsCudaFirst() / 32 * RUNS;

  if (r0 >= r_end) return;
  Run next = load_run(o, r0 + mine < r_end ? r0 + mine : r_end - 1);
  uint32_t next_place;
  float next_factor = load_place(o, next.begin, &next_place);
  const UpdateTable *t = table_of(gradients, next.key);

  for (; r0 < r_end; r0 += r_step) {
    const Run run = next;
    const float factor = next_factor;
    const uint32_t place = next_place;
    const int64_t r = r0 + mine < r_end ? r0 + mine : r_end - 1, r_next = r + r_step;
    const int n = r_end - r0 - first < TRS_TILE ? static_cast<int>(r_end - r0 - first) : TRS_TILE;

    next = load_run(o, r_next < r_end ? r_next : r_end - 1);
    if (run.key >= static_cast<uint64_t>(t[1].key_begin)) t = table_of(gradients, run.key);
    const TrsTbeTable *const table = &t->table;
    const int64_t row = static_cast<int64_t>(run.key) - t->key_begin;
    char *const weight = static_cast<char *>(
        TrsCacheRow(table, row, gradients.location && table->lines ? gradients.location[r] : -1,
                    DTYPE == TRS_FP32 ? 4 : 2));
    float *const state = table->state[0] + row;
    /* each run's state is read and written by only one lane */
    const float value = lane < n ? *state : 0.0f;
    const G *const from = static_cast<const G *>(gradients.grad) +
                          (place & ((1u << o.bag_bits) - 1)) * gradients.stride +
                          gradients.out_column[place >> o.bag_bits];
    const bool repeats = __any_sync(~0u, run.end - run.begin > 1) != 0,
               stochastic = DTYPE != TRS_FP32 && __any_sync(~0u, table->stochastic_rounding) != 0;

    next_factor = load_place(o, next.begin, &next_place);
#pragma unroll 1
    for (int j = 0; j < TRS_TILE; j += TRS_FLIGHT) {
      RawColumns<DTYPE, COLUMNS> raw[TRS_FLIGHT];
      char *to[TRS_FLIGHT];
      float g[TRS_FLIGHT][COLUMNS], sum[TRS_FLIGHT];

#pragma unroll
      for (int u = 0; u < TRS_FLIGHT; u++) {
        const G *const its = shuffled<LANES>(from, j + u);

        to[u] = shuffled<LANES>(weight, j + u);
        raw[u] = {};
        for (int k = 0; k < COLUMNS; k++) g[u][k] = 0.0f;
        if (j + u < n && col < dim) {
          raw[u] = load_raw<DTYPE, COLUMNS>(to[u], col);
          load_gradient<COLUMNS>(its + col, g[u]);
        }
      }
#pragma unroll
      for (int u = 0; u < TRS_FLIGHT; u++) {
        if (o.scaled_place) {
          const float its = __shfl_sync(~0u, factor, j + u, LANES);
          for (int k = 0; k < COLUMNS; k++) g[u][k] *= its;
        }
        /* + 0.0f gives the same bits as a sum that starts with 0 */
        for (int k = 0; k < COLUMNS; k++) g[u][k] += 0.0f;
        if (repeats) {
          const Run whole = {0, __shfl_sync(~0u, run.begin, j + u, LANES),
                             __shfl_sync(~0u, run.end, j + u, LANES)};
          const bool there = whole.end - whole.begin > 1 && j + u < n && col < dim;

          if (there && whole.end - whole.begin > TRS_SHORT_RUN)
            sum_pieces<COLUMNS>(o, gradients, r0 + first + j + u, col, g[u]);
          else if (there)
            add_occurrences<COLUMNS, true, G>(o, gradients, whole.begin + 1, whole.end, col, g[u]);
          __syncwarp();
        }
        sum[u] = 0.0f;
        for (int k = 0; k < COLUMNS; k++) sum[u] += g[u][k] * g[u][k];
      }
#pragma unroll
      for (int u = 0; u < TRS_FLIGHT; u += 2) {
        const bool my_run = lane == j + u || lane == j + u + 1;
        const float m = __shfl_sync(~0u, value, j + u + upper, LANES) +
                        two_sums<LANES>(sum + u, upper) / static_cast<float>(dim),
                    rate = a.learning_rate / (sqrtf(m) + a.eps),
                    my_m = __shfl_sync(~0u, m, lane == j + u + 1 ? LANES / 2 : 0, LANES);

        if (my_run && lane < n) *state = my_m;
#pragma unroll
        for (int v = u; v < u + 2; v++) {
          const float scale = __shfl_sync(~0u, rate, v == u ? 0 : LANES / 2, LANES);
          GroupRow<DTYPE, COLUMNS> at;
          float w[COLUMNS];

          at.weight = to[v];
          if (stochastic) {
            at.table = shuffled<LANES>(table, j + v);
            at.row = static_cast<int64_t>(
                __shfl_sync(~0u, static_cast<unsigned long long>(row), j + v, LANES));
          }
          if (j + v >= n || col >= dim) continue;
          widen<DTYPE, COLUMNS>(raw[v], w);
          for (int k = 0; k < COLUMNS; k++) w[k] -= scale * g[v][k];
          if (stochastic)
            store_columns<DTYPE, COLUMNS>(step, at, col, w);
          else
            store_nearest<DTYPE, COLUMNS>(to[v], col, w);
        }
      }
    }
  }
}

template <TrsDType DTYPE, int COLUMNS, class G, int LANES>
static PetscErrorCode launch_tiles(TrsStream stream, const Backward *b, int c, const Step &step)
{
  dim3 blocks;

  PetscFunctionBegin;
  PetscCall(TrsCudaResidentBlocks(update_tiles_kernel<DTYPE, COLUMNS, G, LANES>,
                                  b->o.n * LANES / TRS_TILE + 1, TRS_TILE_THREADS, 0, &blocks));
  CU_LAUNCH((update_tiles_kernel<DTYPE, COLUMNS, G, LANES>), blocks, TRS_TILE_THREADS, 0,
            TrsCudaStream(stream), b->o, b->g, b->class_run + c, b->classes[c].widest, step);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS, class G>
static PetscErrorCode launch_tiles_by_lanes(TrsStream stream, const Backward *b, int c, const Step &step)
{
  PetscFunctionBegin;
  switch (b->classes[c].key % 6) {
  case 3: PetscCall((launch_tiles<DTYPE, COLUMNS, G, 8>)(stream, b, c, step)); break;
  case 4: PetscCall((launch_tiles<DTYPE, COLUMNS, G, 16>)(stream, b, c, step)); break;
  default: PetscCall((launch_tiles<DTYPE, COLUMNS, G, 32>)(stream, b, c, step)); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS>
static PetscErrorCode launch_tiles_by_gradient(TrsStream stream, const Backward *b, int c, const Step &step)
{
  PetscFunctionBegin;
  if (b->g.narrow)
    PetscCall((launch_tiles_by_lanes<DTYPE, COLUMNS, Bf16>)(stream, b, c, step));
  else
    PetscCall((launch_tiles_by_lanes<DTYPE, COLUMNS, float>)(stream, b, c, step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if all rows of the class have the same width, each row fits in a group of at least eight
  lanes, and gradients are aligned.
*/
static bool takes_tiles(const Backward *b, int c, const TrsSparseOptimizerArgs *args)
{
  const UpdateClass *own = &b->classes[c];
  const int lanes_log2 = own->key % 6, columns = own->key / 12 == TRS_FP32 ? 4 : 8;

  for (int t = own->first_table; t < own->end_table; t++)
    if (b->table[t].table.dim != own->widest) return false;
  return args->kind == TRS_OPTIM_ROWWISE_ADAGRAD && args->weight_decay_mode == TRS_DECAY_NONE &&
         own->key / 6 % 2 && b->g.aligned && lanes_log2 >= 3 && own->widest <= columns << lanes_log2;
}

PetscErrorCode TrsCudaUpdateTiles(TrsStream stream, const Backward *b, int c, const Step &step, bool *done)
{
  PetscFunctionBegin;
  *done = takes_tiles(b, c, &step.args);
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  switch (b->classes[c].key / 12) {
  case TRS_FP32: PetscCall((launch_tiles_by_gradient<TRS_FP32, 4>)(stream, b, c, step)); break;
  case TRS_FP16: PetscCall((launch_tiles_by_gradient<TRS_FP16, 8>)(stream, b, c, step)); break;
  default: PetscCall((launch_tiles_by_gradient<TRS_BF16, 8>)(stream, b, c, step)); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
