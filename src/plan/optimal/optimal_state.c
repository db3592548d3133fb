/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal/optimal_state.h"

#include "plan/optimal/lower_bound.h"

#include <math.h>
#include <string.h>

enum {
  TRS_TRIED_HOSTS = 4,
  TRS_WORK_OF_TRIAL = 32, /* fixed work per option, in addition to the ranks looked at */
  TRS_WORK_OF_LOOK = 8
};

/*
  Small weights in a placement's score for the rank's load and the option's cost. They leave more
  room for other tables.
*/
#define RANK_WEIGHT 1e-3
#define COST_WEIGHT 2e-2

/* The four parts of the path to which an option's shards contribute. */
typedef struct {
  int part[4];
  double ms[4], total;
} TrsParts;

static TrsParts parts_of(const TrsPlanOption *option)
{
  const TrsPerf *perf = &option->shard_class[0].perf;
  int exchange = TRS_PATH_COMMS + 2 * ((int)option->module * TRS_N_SHARDINGS + (int)option->type);

  return (TrsParts){{TRS_PATH_FWD_COMPUTE, TRS_PATH_BWD_COMPUTE, exchange, exchange + 1},
                    {perf->fwd_compute, perf->bwd_compute, perf->fwd_comms, perf->bwd_comms},
                    option->shard_class[0].total};
}

static PetscBool is_uniform(const TrsPlanOption *option)
{
  return (PetscBool)(option->partition_by == TRS_PARTITION_UNIFORM);
}

PetscErrorCode TrsPlanStateCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                  const TrsReservation *reservation, TrsPlanState *state)
{
  int W = topology->world_size;

  PetscFunctionBegin;
  *state = (TrsPlanState){.world_size = W,
                          .group = topology->group,
                          .n_hosts = W / topology->group,
                          .n_tables = space->n_tables,
                          .most_shards = 1,
                          .rating_limit = HUGE_VAL,
                          .room_of = reservation->left,
                          .path_weight = 1};
  PetscCall(PetscCalloc1(W, &state->total));
  PetscCall(PetscMalloc1(W, &state->hbm));
  PetscCall(PetscMalloc1(W, &state->ddr));
  for (int r = 0; r < W; r++) {
    state->hbm[r] = reservation->left[r].hbm;
    state->ddr[r] = reservation->left[r].ddr;
    state->room.hbm = PetscMax(state->room.hbm, state->hbm[r]);
    state->room.ddr = PetscMax(state->room.ddr, state->ddr[r]);
  }
  PetscCall(PetscCalloc1(space->n_tables, &state->option));
  PetscCall(PetscCalloc1(space->n_tables, &state->rank));
  PetscCall(PetscCalloc1(space->n_tables, &state->capacity));
  for (int i = 0; i < space->n_options; i++)
    state->most_shards = PetscMax(state->most_shards, space->option[i].n_shards);
  PetscCall(PetscMalloc1(2 * (size_t)state->most_shards, &state->trial));
  PetscCall(PetscMalloc1(state->n_hosts, &state->n_blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanStateFree(TrsPlanState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < state->n_tables; t++) PetscCall(PetscFree(state->rank[t]));
  for (int p = 0; p < TRS_N_PATHS; p++) PetscCall(PetscFree(state->load[p]));
  PetscCall(PetscFree(state->total));
  PetscCall(PetscFree(state->hbm));
  PetscCall(PetscFree(state->ddr));
  PetscCall(PetscFree(state->option));
  PetscCall(PetscFree(state->rank));
  PetscCall(PetscFree(state->capacity));
  PetscCall(PetscFree(state->trial));
  PetscCall(PetscFree(state->n_blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

double TrsPlanStatePath(const TrsPlanState *state)
{
  double path = 0;

  for (int p = 0; p < TRS_N_PATHS; p++) path += state->most[p] + state->uniform[p];
  return path;
}

static double maximum(int n, const double *x)
{
  double most = 0;

  for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

double TrsPlanStateRating(const TrsPlanState *state)
{
  return maximum(state->world_size, state->total) + state->uniform_total;
}

static void add_shard(TrsPlanState *state, const TrsParts *parts, const TrsShardClass *shard, int rank)
{
  for (int k = 0; k < 4; k++) {
    double *load = &state->load[parts->part[k]][rank];

    *load += parts->ms[k];
    state->most[parts->part[k]] = PetscMax(state->most[parts->part[k]], *load);
  }
  state->total[rank] += parts->total;
  state->hbm[rank] -= shard->storage.hbm;
  state->ddr[rank] -= shard->storage.ddr;
}

static void remove_shard(TrsPlanState *state, const TrsParts *parts, const TrsShardClass *shard, int rank)
{
  for (int k = 0; k < 4; k++) state->load[parts->part[k]][rank] -= parts->ms[k];
  state->total[rank] -= parts->total;
  state->hbm[rank] += shard->storage.hbm;
  state->ddr[rank] += shard->storage.ddr;
}

/* Add (sign 1) or remove (-1) a uniform option. */
static void shift_uniform(TrsPlanState *state, const TrsPlanOption *option, int sign)
{
  TrsParts parts = parts_of(option);

  for (int k = 0; k < 4; k++) state->uniform[parts.part[k]] += sign * parts.ms[k];
  state->uniform_total += sign * parts.total;
  for (int r = 0; r < state->world_size; r++) {
    const TrsStorage *storage = &TrsOptionShard(option, r)->storage;

    state->hbm[r] -= sign * storage->hbm;
    state->ddr[r] -= sign * storage->ddr;
  }
}

static PetscErrorCode use_parts(TrsPlanState *state, const TrsParts *parts)
{
  PetscFunctionBegin;
  for (int k = 0; k < 4; k++) {
    double **load = &state->load[parts->part[k]];

    if (!*load) PetscCall(PetscCalloc1(state->world_size, load));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanStateAdd(TrsPlanState *state, int table, const TrsPlanOption *option, const int *rank)
{
  TrsParts parts = parts_of(option);

  PetscFunctionBegin;
  state->option[table] = option;
  state->sum_total += parts.total * option->n_shards;
  if (is_uniform(option)) {
    shift_uniform(state, option, 1);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(use_parts(state, &parts));
  if (state->capacity[table] < option->n_shards) {
    PetscCall(PetscFree(state->rank[table]));
    PetscCall(PetscMalloc1(option->n_shards, &state->rank[table]));
    state->capacity[table] = option->n_shards;
  }
  memmove(state->rank[table], rank, (size_t)option->n_shards * sizeof(*rank));
  for (int s = 0; s < option->n_shards; s++) add_shard(state, &parts, TrsOptionShard(option, s), rank[s]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsPlanStateRemove(TrsPlanState *state, int table)
{
  const TrsPlanOption *option = state->option[table];
  TrsParts parts = parts_of(option);

  state->option[table] = NULL;
  state->work += (int64_t)2 * state->world_size;
  state->sum_total -= parts.total * option->n_shards;
  if (is_uniform(option)) {
    shift_uniform(state, option, -1);
    return;
  }
  for (int s = 0; s < option->n_shards; s++)
    remove_shard(state, &parts, TrsOptionShard(option, s), state->rank[table][s]);
  for (int k = 0; k < 4; k++)
    state->most[parts.part[k]] = maximum(state->world_size, state->load[parts.part[k]]);
}

void TrsPlanStateClear(TrsPlanState *state)
{
  size_t bytes = (size_t)state->world_size * sizeof(double);

  for (int t = 0; t < state->n_tables; t++) {
    if (state->option[t]) state->work += (int64_t)2 * state->world_size;
    state->option[t] = NULL;
  }
  for (int r = 0; r < state->world_size; r++) {
    state->hbm[r] = state->room_of[r].hbm;
    state->ddr[r] = state->room_of[r].ddr;
  }
  for (int p = 0; p < TRS_N_PATHS; p++) {
    if (state->load[p]) memset(state->load[p], 0, bytes);
    state->most[p] = state->uniform[p] = 0;
  }
  memset(state->total, 0, bytes);
  state->uniform_total = state->sum_total = 0;
}

/* ---- placing an option's shards ---- */

static PetscBool has_room(const TrsPlanState *state, const TrsParts *parts, const TrsShardClass *shard, int r)
{
  return (PetscBool)(shard->storage.hbm <= state->hbm[r] && shard->storage.ddr <= state->ddr[r] &&
                     state->total[r] + state->uniform_total + parts->total <= state->rating_limit);
}

/* Memory in devices: device and host memory, each divided by the most that a device has. */
static double devices_of(const TrsPlanState *state, double hbm, double ddr)
{
  return (state->room.hbm > 0 ? hbm / (double)state->room.hbm : 0) +
         (state->room.ddr > 0 ? ddr / (double)state->room.ddr : 0);
}

/* The path's four parts if rank r took a shard, plus the price of the rank's free memory. */
static double path_with(const TrsPlanState *state, const TrsParts *parts, int r)
{
  double path = RANK_WEIGHT * state->total[r];

  if (state->memory_price > 0)
    path += state->memory_price * devices_of(state, (double)state->hbm[r], (double)state->ddr[r]);
  if (state->path_weight <= 0) return path;

  for (int k = 0; k < 4; k++) {
    double load = state->load[parts->part[k]][r] + parts->ms[k], most = state->most[parts->part[k]];

    path += load > most ? load : most;
  }
  return path;
}

static int best_rank(TrsPlanState *state, const TrsParts *parts, const TrsShardClass *shard, int from, int to)
{
  double least = HUGE_VAL;
  int best = -1;

  state->work += to - from;
  for (int r = from; r < to; r++) {
    double path;

    if (!has_room(state, parts, shard, r)) continue;
    path = path_with(state, parts, r);
    if (path < least) {
      least = path;
      best = r;
    }
  }
  return best;
}

/*
  Place the shards one by one, each on the best of ranks [from, to). If a shard does not fit, no
  shard is placed.
*/
static PetscBool place_each(TrsPlanState *state, const TrsPlanOption *option, const TrsParts *parts, int from,
                            int to, int *rank)
{
  for (int s = 0; s < option->n_shards; s++) {
    const TrsShardClass *shard = TrsOptionShard(option, s);

    rank[s] = best_rank(state, parts, shard, from, to);
    if (rank[s] >= 0) {
      add_shard(state, parts, shard, rank[s]);
      continue;
    }
    while (--s >= 0) remove_shard(state, parts, TrsOptionShard(option, s), rank[s]);
    return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

/* The path if a host took one column block's rows; HUGE_VAL if it has no room. */
static double host_path(const TrsPlanState *state, const TrsPlanOption *option, const TrsParts *parts,
                        int host)
{
  double worst = -HUGE_VAL;

  for (int s = 0; s < state->group; s++) {
    int r = host * state->group + s;

    if (!has_room(state, parts, TrsOptionShard(option, s), r)) return HUGE_VAL;
    worst = PetscMax(worst, path_with(state, parts, r));
  }
  return worst;
}

/*
  Place table_row_wise and grid_shard: each column block's rows go to the best host. A host gets a
  second block only if no unused host is left.
*/
static PetscBool place_rows_on_hosts(TrsPlanState *state, const TrsPlanOption *option, const TrsParts *parts,
                                     int *rank)
{
  int G = state->group, n_blocks = option->n_shards / G;

  if (state->n_hosts == 0 || option->n_shards % G) return PETSC_FALSE;
  memset(state->n_blocks, 0, (size_t)state->n_hosts * sizeof(*state->n_blocks));
  for (int block = 0; block < n_blocks; block++) {
    double least = HUGE_VAL;
    int best = -1;

    state->work += state->n_hosts;
    for (int h = 0; h < state->n_hosts; h++) {
      double path = state->n_blocks[h] > block / state->n_hosts ? HUGE_VAL
                                                                : host_path(state, option, parts, h);

      if (path < least) {
        least = path;
        best = h;
      }
    }
    if (best < 0) {
      for (int s = 0; s < block * G; s++) remove_shard(state, parts, TrsOptionShard(option, s), rank[s]);
      return PETSC_FALSE;
    }
    state->n_blocks[best]++;
    for (int s = block * G; s < (block + 1) * G; s++) {
      rank[s] = best * G + s % G;
      add_shard(state, parts, TrsOptionShard(option, s), rank[s]);
    }
  }
  return PETSC_TRUE;
}

/* List the least loaded hosts in ascending order of load, and return their number. */
static int find_idle_hosts(const TrsPlanState *state, int host[TRS_TRIED_HOSTS])
{
  double least[TRS_TRIED_HOSTS];
  int n = 0;

  for (int h = 0; h < state->n_hosts; h++) {
    double sum = 0;
    int i;

    for (int r = h * state->group; r < (h + 1) * state->group; r++) sum += state->total[r];
    if (n == TRS_TRIED_HOSTS && sum >= least[n - 1]) continue;
    if (n < TRS_TRIED_HOSTS) n++;
    for (i = n - 1; i > 0 && least[i - 1] > sum; i--) {
      least[i] = least[i - 1];
      host[i] = host[i - 1];
    }
    least[i] = sum;
    host[i] = h;
  }
  return n;
}

/* Place table_column_wise on the fullest host with room; used if only memory counts. */
static PetscBool pack_columns_on_host(TrsPlanState *state, const TrsPlanOption *option, const TrsParts *parts,
                                      int *rank)
{
  double least = HUGE_VAL;
  int best = -1;

  for (int h = 0; h < state->n_hosts; h++) {
    int first = h * state->group;
    double hbm = 0, ddr = 0;

    for (int r = first; r < first + state->group; r++) {
      hbm += (double)state->hbm[r];
      ddr += (double)state->ddr[r];
    }
    if (devices_of(state, hbm, ddr) >= least) continue;
    if (!place_each(state, option, parts, first, first + state->group, rank)) continue;
    for (int s = 0; s < option->n_shards; s++) remove_shard(state, parts, TrsOptionShard(option, s), rank[s]);
    least = devices_of(state, hbm, ddr);
    best = first;
  }
  return (PetscBool)(best >= 0 && place_each(state, option, parts, best, best + state->group, rank));
}

/* Place table_column_wise on the best of the least loaded hosts. */
static PetscBool place_columns_on_host(TrsPlanState *state, const TrsPlanOption *option,
                                       const TrsParts *parts, int *rank)
{
  int host[TRS_TRIED_HOSTS], n = find_idle_hosts(state, host), best = -1;
  double most[4], least = HUGE_VAL;

  for (int k = 0; k < 4; k++) most[k] = state->most[parts->part[k]];
  for (int i = 0; i < n; i++) {
    int first = host[i] * state->group;
    double path;

    if (place_each(state, option, parts, first, first + state->group, rank)) {
      path = TrsPlanStatePath(state);
      if (path < least) {
        least = path;
        best = first;
      }
      for (int s = 0; s < option->n_shards; s++)
        remove_shard(state, parts, TrsOptionShard(option, s), rank[s]);
    }
    for (int k = 0; k < 4; k++) state->most[parts->part[k]] = most[k];
  }
  return (PetscBool)(best >= 0 && place_each(state, option, parts, best, best + state->group, rank));
}

static PetscBool uniform_fits(TrsPlanState *state, const TrsPlanOption *option, const TrsParts *parts)
{
  state->work += state->world_size;
  for (int r = 0; r < state->world_size; r++) {
    if (!has_room(state, parts, TrsOptionShard(option, r), r)) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

/* The part of an option's score that does not depend on ranks: its cost and memory. */
static double fixed_score(const TrsPlanState *state, const TrsPlanOption *option)
{
  return COST_WEIGHT * (option->shard_class[0].total * option->n_shards) / state->world_size +
         state->memory_price *
             devices_of(state, (double)option->total_storage.hbm, (double)option->total_storage.ddr);
}

/*
  Compute an option's score on its best ranks; HUGE_VAL if it does not fit. The state is restored.
*/
static PetscErrorCode try_option(TrsPlanState *state, const TrsPlanOption *option, int *rank, double *score)
{
  TrsParts parts = parts_of(option);
  double most[4];
  PetscBool placed = PETSC_FALSE;

  PetscFunctionBegin;
  *score = HUGE_VAL;
  state->work += TRS_WORK_OF_TRIAL;
  if (is_uniform(option)) {
    if (!uniform_fits(state, option, &parts)) PetscFunctionReturn(PETSC_SUCCESS);
    *score = TrsPlanStatePath(state);
    for (int k = 0; k < 4; k++) *score += parts.ms[k];
  } else {
    PetscCall(use_parts(state, &parts));
    for (int k = 0; k < 4; k++) most[k] = state->most[parts.part[k]];
    if (option->partition_by == TRS_PARTITION_DEVICE) {
      placed = place_each(state, option, &parts, 0, state->world_size, rank);
    } else if (option->type == TRS_SHARDING_TABLE_COLUMN_WISE) {
      placed = state->path_weight > 0 ? place_columns_on_host(state, option, &parts, rank)
                                      : pack_columns_on_host(state, option, &parts, rank);
    } else {
      placed = place_rows_on_hosts(state, option, &parts, rank);
    }
    if (placed) {
      *score = TrsPlanStatePath(state);
      for (int s = 0; s < option->n_shards; s++)
        remove_shard(state, &parts, TrsOptionShard(option, s), rank[s]);
    }
    for (int k = 0; k < 4; k++) state->most[parts.part[k]] = most[k];
  }
  *score = *score < HUGE_VAL ? state->path_weight * *score + fixed_score(state, option) : HUGE_VAL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A lower bound on the option's score on any ranks. */
static double least_score(const TrsPlanState *state, const TrsPlanOption *option, double path)
{
  TrsParts parts = parts_of(option);
  double more = 0;

  for (int k = 0; k < 4; k++) {
    double spare = is_uniform(option) ? 0 : state->most[parts.part[k]];

    more += parts.ms[k] > spare ? parts.ms[k] - spare : 0;
  }
  return state->path_weight * (path + more) + fixed_score(state, option);
}

static PetscBool may_have(const TrsPlanState *state, const TrsPlanOption *option)
{
  return (PetscBool)(!(state->forbidden >> option->type & 1) && TrsOptionIsValid(option));
}

PetscErrorCode TrsPlanStateInsert(TrsPlanState *state, int table, int n, const TrsPlanOption *option,
                                  PetscBool *placed)
{
  const TrsPlanOption *best = NULL;
  double least = HUGE_VAL, score, now = TrsPlanStatePath(state);
  int *rank = state->trial, *best_rank_list = state->trial + state->most_shards, likely = 0;

  PetscFunctionBegin;
  state->work += (int64_t)n * TRS_WORK_OF_LOOK;
  /* Try the most promising option first, because its score rules out others. */
  for (int i = 0; i < n; i++) {
    score = may_have(state, &option[i]) ? least_score(state, &option[i], now) : HUGE_VAL;
    if (score >= least) continue;
    least = score;
    likely = i;
  }
  least = HUGE_VAL;
  for (int i = -1; i < n; i++) {
    const TrsPlanOption *mine = &option[i < 0 ? likely : i];

    if (i == likely || !may_have(state, mine) || least_score(state, mine, now) >= least) continue;
    PetscCall(try_option(state, mine, rank, &score));
    if (score < least) {
      int *swap = best_rank_list;

      least = score;
      best = mine;
      best_rank_list = rank;
      rank = swap;
    }
  }
  *placed = (PetscBool)(best != NULL);
  if (best) PetscCall(TrsPlanStateAdd(state, table, best, best_rank_list));
  PetscFunctionReturn(PETSC_SUCCESS);
}
