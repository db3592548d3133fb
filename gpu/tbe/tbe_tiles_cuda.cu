/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_sums_cuda.h"
#include "gpu/tbe/tbe_tiles_cuda.h"

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
template <TrsDType DTYPE, int COLUMNS, class G, int LANES, bool STOCHASTIC>
static __global__ void __launch_bounds__(TRS_TILE_THREADS, 6)
    update_tiles_kernel(Occurrences o, Gradients gradients, const int64_t *class_run, int dim, Step step)
{
  constexpr int RUNS = 32 / LANES * TRS_TILE; /* number of runs that a warp updates together */
  const TrsSparseOptimizerArgs &a = step.args;
  const int lane = static_cast<int>(threadIdx.x) & (LANES - 1), col = lane * COLUMNS;
  const uint32_t first = (threadIdx.x & 31) / LANES * TRS_TILE,
                 mine = first + static_cast<uint32_t>(lane % TRS_TILE);
  const bool upper = lane >= LANES / 2;
  /* there are fewer than 2^32 runs */
  const uint32_t r_end = static_cast<uint32_t>(class_run[1]),
                 r_step = static_cast<uint32_t>(TrsCudaStep() / 32 * RUNS);
  uint32_t left = r_end - static_cast<uint32_t>(class_run[0]),
           skip = static_cast<uint32_t>(TrsCudaFirst() / 32 * RUNS);

  if (skip >= left) return;
  left -= skip; /* the runs from the warp's current ones to the end */
  Run next = load_run(o, r_end - left + (left > mine ? mine : left - 1));
  uint32_t next_place;
  load_place(o, next.begin, &next_place);
  const UpdateTable *t = table_of(gradients, next.key);

  for (;;) {
    const Run run = next;
    uint32_t place = next_place;
    /* loaded again, because most models have no factors, and this saves a register */
    const float factor = o.scaled_place ? load_place(o, run.begin, &place) : 1.0f;
    const uint32_t r = r_end - left + (left > mine ? mine : left - 1),
                   r_next = r_end - (left > r_step + mine ? left - r_step - mine : 1);
    /* whether the group's run k exists; a value instead would need a register */
    const auto exists = [first, left](int k) { return first + static_cast<uint32_t>(k) < left; };

    next = load_run(o, r_next);
    if (run.key >= static_cast<uint64_t>(t[1].key_begin)) t = table_of(gradients, run.key);
    const TrsTbeTable *const table = &t->table;
    const int64_t row = static_cast<int64_t>(run.key) - t->key_begin;
    char *const weight = static_cast<char *>(
        TrsCacheRow(table, row, gradients.location && table->lines ? gradients.location[r] : -1,
                    DTYPE == TRS_FP32 ? 4 : 2));
    float *const state = table->state[0] + row;
    /* each run's state is read and written by only one lane */
    const float value = lane < TRS_TILE && exists(lane) ? *state : 0.0f;
    const G *const from = static_cast<const G *>(gradients.grad) +
                          (place & ((1u << o.bag_bits) - 1)) * gradients.stride +
                          gradients.out_column[place >> o.bag_bits];
    const bool repeats = __any_sync(~0u, run.end - run.begin > 1) != 0;
    const uint64_t of_row = STOCHASTIC ? TrsRoundingFrom(rounding_row(step, table, row),
                                                         static_cast<uint32_t>(table->col_offset / 2))
                                       : 0;

    load_place(o, next.begin, &next_place);
#pragma unroll 1
    for (int j = 0; j < TRS_TILE; j += TRS_FLIGHT) {
      RawColumns<DTYPE, COLUMNS> raw[TRS_FLIGHT];
      float g[TRS_FLIGHT][COLUMNS], sum[TRS_FLIGHT];

#pragma unroll
      for (int u = 0; u < TRS_FLIGHT; u++) {
        const G *const its = shuffled<LANES>(from, j + u);
        const char *const old = shuffled<LANES>(weight, j + u);

        raw[u] = {};
        for (int k = 0; k < COLUMNS; k++) g[u][k] = 0.0f;
        if (exists(j + u) && col < dim) {
          raw[u] = load_raw<DTYPE, COLUMNS>(old, col);
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
          const bool there = whole.end - whole.begin > 1 && exists(j + u) && col < dim;

          if (there && whole.end - whole.begin > TRS_SHORT_RUN)
            sum_pieces<COLUMNS>(o, gradients, r_end - left + first + static_cast<uint32_t>(j + u), col, g[u]);
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

        if (my_run && exists(lane)) *state = my_m;
#pragma unroll
        for (int v = u; v < u + 2; v++) {
          const float scale = __shfl_sync(~0u, rate, v == u ? 0 : LANES / 2, LANES);
          char *const to = shuffled<LANES>(weight, j + v); /* again, to save registers in between */
          float w[COLUMNS];
          [[maybe_unused]] const uint64_t its_bits =
              STOCHASTIC ? __shfl_sync(~0u, static_cast<unsigned long long>(of_row), j + v, LANES) : 0;

          if (!exists(j + v) || col >= dim) continue;
          widen<DTYPE, COLUMNS>(raw[v], w);
          for (int k = 0; k < COLUMNS; k++) w[k] -= scale * g[v][k];
          if constexpr (STOCHASTIC)
            store_rounded<DTYPE, COLUMNS, true>(to, col, its_bits, static_cast<uint32_t>(col), w);
          else
            store_nearest<DTYPE, COLUMNS>(to, col, w);
        }
      }
    }
    if (left <= r_step) return;
    left -= r_step;
  }
}

template <TrsDType DTYPE, int COLUMNS, class G, int LANES, bool STOCHASTIC>
static PetscErrorCode launch_tiles(TrsStream stream, const Backward *b, int c, const Step &step)
{
  dim3 blocks;

  PetscFunctionBegin;
  PetscCall(TrsCudaResidentBlocks(update_tiles_kernel<DTYPE, COLUMNS, G, LANES, STOCHASTIC>,
                                  b->o.n * LANES / TRS_TILE + 1, TRS_TILE_THREADS, 0, &blocks));
  CU_LAUNCH((update_tiles_kernel<DTYPE, COLUMNS, G, LANES, STOCHASTIC>), blocks, TRS_TILE_THREADS, 0,
            TrsCudaStream(stream), b->o, b->g, b->class_run + c, b->classes[c].widest, step);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS, class G, bool STOCHASTIC>
static PetscErrorCode launch_tiles_by_lanes(TrsStream stream, const Backward *b, int c, const Step &step)
{
  PetscFunctionBegin;
  switch (b->classes[c].key % 6) {
  case 3: PetscCall((launch_tiles<DTYPE, COLUMNS, G, 8, STOCHASTIC>)(stream, b, c, step)); break;
  case 4: PetscCall((launch_tiles<DTYPE, COLUMNS, G, 16, STOCHASTIC>)(stream, b, c, step)); break;
  default: PetscCall((launch_tiles<DTYPE, COLUMNS, G, 32, STOCHASTIC>)(stream, b, c, step)); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS, bool STOCHASTIC>
static PetscErrorCode launch_tiles_by_gradient(TrsStream stream, const Backward *b, int c, const Step &step)
{
  PetscFunctionBegin;
  if (b->g.narrow)
    PetscCall((launch_tiles_by_lanes<DTYPE, COLUMNS, Bf16, STOCHASTIC>)(stream, b, c, step));
  else
    PetscCall((launch_tiles_by_lanes<DTYPE, COLUMNS, float, STOCHASTIC>)(stream, b, c, step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static bool is_stochastic(const Backward *b, int t)
{
  return b->table[t].table.dtype != TRS_FP32 && b->table[t].table.stochastic_rounding;
}

/*
  True if all rows of the class have the same width and rounding, each row fits in a group of at
  least eight lanes, and gradients are aligned. With stochastic rounding, shards must begin at an
  even column, because two columns use the same random word.
*/
static bool takes_tiles(const Backward *b, int c, const TrsSparseOptimizerArgs *args)
{
  const UpdateClass *own = &b->classes[c];
  const int lanes_log2 = own->key % 6, columns = own->key / 12 == TRS_FP32 ? 4 : 8;
  const bool stochastic = is_stochastic(b, own->first_table);

  for (int t = own->first_table; t < own->end_table; t++)
    if (b->table[t].table.dim != own->widest || is_stochastic(b, t) != stochastic ||
        (stochastic && b->table[t].table.col_offset % 2))
      return false;
  return args->kind == TRS_OPTIM_ROWWISE_ADAGRAD && args->weight_decay_mode == TRS_DECAY_NONE &&
         own->key / 6 % 2 && b->g.aligned && lanes_log2 >= 3 && own->widest <= columns << lanes_log2;
}

PetscErrorCode TrsCudaUpdateTiles(TrsStream stream, const Backward *b, int c, const Step &step, bool *done)
{
  PetscFunctionBegin;
  *done = takes_tiles(b, c, &step.args);
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  switch (2 * (b->classes[c].key / 12) + is_stochastic(b, b->classes[c].first_table)) {
  case 2 * TRS_FP32: PetscCall((launch_tiles_by_gradient<TRS_FP32, 4, false>)(stream, b, c, step)); break;
  case 2 * TRS_FP16: PetscCall((launch_tiles_by_gradient<TRS_FP16, 8, false>)(stream, b, c, step)); break;
  case 2 * TRS_FP16 + 1: PetscCall((launch_tiles_by_gradient<TRS_FP16, 8, true>)(stream, b, c, step)); break;
  case 2 * TRS_BF16: PetscCall((launch_tiles_by_gradient<TRS_BF16, 8, false>)(stream, b, c, step)); break;
  default: PetscCall((launch_tiles_by_gradient<TRS_BF16, 8, true>)(stream, b, c, step)); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
