/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The greedy partitioner places options from the largest to the smallest. It gives each shard to the
  least loaded device that has enough memory.

  Source: TorchRec GreedyPerfPartitioner
*/
#include "plan/impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
  After TRS_FIRST_LOOK options, the partitioner checks for the first time if the remaining options
  will certainly be placed. A check reads all devices, so the partitioner places several options
  before the next check: an eighth of the placed options, and at least one option per
  TRS_LOOK_DEVICES devices.
*/
enum { TRS_FIRST_LOOK = 16, TRS_LOOK_PART = 8, TRS_LOOK_DEVICES = 32 };
/* The number of options between an option that is placed and one whose record is fetched. */
enum { TRS_FETCH_AHEAD = 4 };
/*
  Relative allowance for rounding errors. Sums of the same numbers in two orders differ by far less.
*/
#define ROUNDING 1e-9

static PetscBool fits(const TrsDevice *device, const TrsShardClass *shard)
{
  return (PetscBool)(shard->storage.hbm <= device->hbm && shard->storage.ddr <= device->ddr);
}

static void add_shard(TrsPartitioner p, int rank, const TrsShardClass *shard)
{
  TrsDevice *device = &p->device[rank];

  device->hbm -= shard->storage.hbm;
  device->ddr -= shard->storage.ddr;
  TrsPerfAdd(&device->perf, &shard->perf);
  device->total = TrsPerfTotal(&device->perf);
  p->slowest = PetscMax(p->slowest, device->total);
}

/* ---- uniform options: shard i on device i ---- */

/*
  Place an option shard by shard: shard i on device i. Used if an option made by hand has shards
  that differ in perf.
*/
static PetscBool place_each(TrsPartitioner p, const TrsPlanOption *option)
{
  for (int r = 0; r < option->n_shards; r++) {
    const TrsShardClass *shard = TrsOptionShard(option, r);

    if (!fits(&p->device[r], shard)) return PETSC_FALSE;
    add_shard(p, r, shard);
  }
  return PETSC_TRUE;
}

/* The time that the uniform options take on each device, added in proposal order. */
static TrsPerf uniform_perf(const struct TrsPartitionerImpl *p)
{
  TrsPerf perf = {0};

  for (int i = 0; i < p->n_records; i++)
    if (p->record[i].is_uniform) TrsPerfAdd(&perf, &p->record[i].first.perf);
  return perf;
}

/*
  Place all uniform options. An evenly split option costs every device the same time, so times are
  added once, in proposal order. Memory is known as differences between neighbouring devices. The
  results equal exactly those of a loop over devices.
*/
static PetscBool place_uniform(TrsPartitioner p)
{
  const PetscBool by_hand = (PetscBool)(p->n_uniform_by_hand > 0);
  int64_t hbm = 0, ddr = 0;
  TrsPerf perf = {0};

  if (p->n_misfits > 0) return PETSC_FALSE;
  if (!by_hand) perf = uniform_perf(p);
  p->slowest = TrsPerfTotal(&perf);
  for (int r = 0; r < p->config.world_size; r++) {
    if (!by_hand) {
      hbm += p->uniform_hbm[r];
      ddr += p->uniform_ddr[r];
    }
    p->device[r] = (TrsDevice){perf, p->slowest, p->left[r].hbm - hbm, p->left[r].ddr - ddr};
    if (p->n_uniform && !by_hand && (p->device[r].hbm < 0 || p->device[r].ddr < 0)) return PETSC_FALSE;
  }
  for (int i = 0; by_hand && i < p->n_records; i++) {
    if (p->record[i].is_uniform && !place_each(p, p->record[i].option)) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

/* ---- the trees of devices and hosts, which are brought up to date before a search ---- */

static void touch(TrsPartitioner p, int rank)
{
  const TrsDevice *device = &p->device[rank];
  int host = rank / p->config.group;

  if (p->devices_valid) TrsMinTreeSet(&p->devices, p->leaf_of[rank], device->total, device->hbm, device->ddr);
  if (p->hosts_valid && host < p->n_hosts && !p->host_changed[host]) {
    p->host_changed[host] = PETSC_TRUE;
    p->changed[p->n_changed++] = host;
  }
}

static void build_devices(TrsPartitioner p)
{
  if (p->devices_valid) return;
  for (int r = 0; r < p->config.world_size; r++)
    p->devices.node[p->devices.n_leaves + p->leaf_of[r]] = (TrsMinNode){
        .load = p->device[r].total, .hbm = p->device[r].hbm, .ddr = p->device[r].ddr};
  TrsMinTreeBuild(&p->devices);
  p->devices_valid = PETSC_TRUE;
}

/* Sum up a host's devices, in rank order. */
static TrsMinNode host_sums(const struct TrsPartitionerImpl *p, int host)
{
  TrsMinNode sum = {0};

  for (int i = 0; i < p->config.group; i++) {
    const TrsDevice *device = &p->device[host * p->config.group + i];

    sum.load += device->total;
    sum.hbm += device->hbm;
    sum.ddr += device->ddr;
  }
  return sum;
}

static void build_hosts(TrsPartitioner p)
{
  if (!p->hosts_valid) {
    for (int h = 0; h < p->n_hosts; h++) {
      p->hosts.node[p->hosts.n_leaves + h] = host_sums(p, h);
      p->host_changed[h] = PETSC_FALSE;
    }
    TrsMinTreeBuild(&p->hosts);
    p->hosts_valid = PETSC_TRUE;
  }
  for (int i = 0; i < p->n_changed; i++) {
    int host = p->changed[i];
    TrsMinNode sum = host_sums(p, host);

    TrsMinTreeSet(&p->hosts, host, sum.load, sum.hbm, sum.ddr);
    p->host_changed[host] = PETSC_FALSE;
  }
  p->n_changed = 0;
}

/* ---- one option ---- */

static PetscBool place_on_devices(TrsPartitioner p, const TrsOptionRecord *record, int *rank)
{
  build_devices(p);
  for (int s = 0; s < record->n_shards; s++) {
    const TrsShardClass *shard = TrsRecordShard(record, s);
    int leaf = TrsMinTreeFind(&p->devices, shard->storage.hbm, shard->storage.ddr);

    if (leaf < 0) return PETSC_FALSE;
    rank[s] = p->rank_of[leaf];
    add_shard(p, rank[s], shard);
    touch(p, rank[s]);
  }
  return PETSC_TRUE;
}

/* Place shard i on the rank rank[i]. Either all shards are placed or none. */
static PetscBool place_in_order(TrsPartitioner p, const TrsOptionRecord *record, const int *rank)
{
  for (int s = 0; s < record->n_shards; s++) {
    if (!fits(&p->device[rank[s]], TrsRecordShard(record, s))) return PETSC_FALSE;
  }
  for (int s = 0; s < record->n_shards; s++) {
    add_shard(p, rank[s], TrsRecordShard(record, s));
    touch(p, rank[s]);
  }
  return PETSC_TRUE;
}

/* Place each shard on the least loaded device of the host. Either all shards are placed or none. */
static PetscBool place_within_host(TrsPartitioner p, const TrsOptionRecord *record, int host, int *rank)
{
  int G = p->config.group, first = host * G;
  double slowest = p->slowest;

  memcpy(p->saved, &p->device[first], (size_t)G * sizeof(*p->saved));
  for (int s = 0; s < record->n_shards; s++) {
    const TrsShardClass *shard = TrsRecordShard(record, s);
    int best = -1;

    for (int r = first; r < first + G; r++) {
      if (fits(&p->device[r], shard) && (best < 0 || p->device[r].total < p->device[best].total)) best = r;
    }
    if (best < 0) {
      memcpy(&p->device[first], p->saved, (size_t)G * sizeof(*p->saved));
      p->slowest = slowest;
      return PETSC_FALSE;
    }
    rank[s] = best;
    add_shard(p, best, shard);
  }
  for (int s = 0; s < record->n_shards; s++) touch(p, rank[s]);
  return PETSC_TRUE;
}

static PetscBool place_on_host(TrsPartitioner p, const TrsOptionRecord *record, int host, int *rank)
{
  if (record->option->type == TRS_SHARDING_TABLE_COLUMN_WISE) return place_within_host(p, record, host, rank);
  if (record->n_shards != p->config.group) return PETSC_FALSE;
  for (int s = 0; s < record->n_shards; s++) rank[s] = host * p->config.group + s;
  return place_in_order(p, record, rank);
}

/* Try the hosts whose total memory suffices, from the least loaded on, until the option fits. */
static PetscBool place_on_hosts(TrsPartitioner p, const TrsOptionRecord *record, int *rank)
{
  PetscBool placed = PETSC_FALSE;
  int n_refused = 0;

  build_hosts(p);
  while (!placed) {
    int host = TrsMinTreeFind(&p->hosts, record->total_storage.hbm, record->total_storage.ddr);

    if (host < 0) break;
    placed = place_on_host(p, record, host, rank);
    if (!placed) { /* hide the host from the rest of this search */
      p->refused[n_refused++] = host;
      TrsMinTreeSet(&p->hosts, host, p->hosts.node[p->hosts.n_leaves + host].load, INT64_MIN, INT64_MIN);
    }
  }
  for (int i = 0; i < n_refused; i++) {
    TrsMinNode sum = host_sums(p, p->refused[i]);

    TrsMinTreeSet(&p->hosts, p->refused[i], sum.load, sum.hbm, sum.ddr);
  }
  return placed;
}

static void sort_hosts(TrsPartitioner p)
{
  build_hosts(p);
  for (int h = 0; h < p->n_hosts; h++) {
    double load = p->hosts.node[p->hosts.n_leaves + h].load;

    p->host_key[h] = (TrsGroupKey){.position = h};
    memcpy(&p->host_key[h].key[0], &load, sizeof(load));
    p->host_key[h].key[0] = -p->host_key[h].key[0]; /* the negative key sorts in ascending order */
  }
  qsort(p->host_key, (size_t)p->n_hosts, sizeof(*p->host_key), TrsGroupKeyCompare);
}

/*
  Place a grid_shard option. Each column block's row shards go to a separate host as long as there
  are hosts left.
*/
static PetscBool place_on_grid(TrsPartitioner p, const TrsOptionRecord *record, int *rank)
{
  int G = p->config.group, n = record->n_shards / G, n_windows;

  if (p->n_hosts == 0 || record->n_shards % G) return PETSC_FALSE;
  sort_hosts(p);
  n_windows = n >= p->n_hosts ? 1 : p->n_hosts - n + 1;
  for (int start = 0; start < n_windows; start++) {
    for (int s = 0; s < record->n_shards; s++)
      rank[s] = p->host_key[(start + s / G) % p->n_hosts].position * G + s % G;
    if (n < p->n_hosts) {
      if (place_in_order(p, record, rank)) return PETSC_TRUE;
      continue;
    }
    for (int s = 0; s < record->n_shards; s++) { /* a device may get several shards */
      const TrsShardClass *shard = TrsRecordShard(record, s);

      if (!fits(&p->device[rank[s]], shard)) return PETSC_FALSE;
      add_shard(p, rank[s], shard);
      touch(p, rank[s]);
    }
    return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/* ---- check if the remaining options will certainly be placed ---- */

/*
  The share of all remaining bytes that must be placed on a device so that the piece no longer fits
  on the device.
*/
static double cost_of_short(const TrsDevice *device, const TrsStorage *piece, double hbm, double ddr)
{
  double room_hbm = (double)(device->hbm - piece->hbm), room_ddr = (double)(device->ddr - piece->ddr);

  if (room_hbm < 0 || room_ddr < 0) return 0;
  return PetscMin(hbm > 0 ? room_hbm / hbm : HUGE_VAL, ddr > 0 ? room_ddr / ddr : HUGE_VAL);
}

/*
  True if at least one of n bins will certainly have enough memory for a piece. A bin consists of
  `width` devices, and the piece does not fit if one of the devices is too full. The cheapest way to
  fill all bins costs the sum of the bins' cheapest ways. If this sum exceeds all remaining bytes of
  device and host memory, at least one bin cannot be filled.
*/
static PetscBool one_has_room(const struct TrsPartitionerImpl *p, int n, int width, const TrsStorage *piece,
                              TrsInt128 hbm, TrsInt128 ddr)
{
  double cost = 0;

  for (int i = 0; i < n; i++) {
    double cheapest = HUGE_VAL;

    for (int r = i * width; r < (i + 1) * width; r++) {
      double one = cost_of_short(&p->device[r], piece, (double)hbm, (double)ddr);

      cheapest = PetscMin(cheapest, one);
    }
    cost += cheapest;
    if (cost > 2.001) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/*
  True if the memory certainly suffices for all remaining options, whatever ranks they get. The
  caller must know that no remaining option needs more than max_hbm bytes of device memory.
*/
static PetscBool rest_is_placed(const struct TrsPartitionerImpl *p, const TrsPieces *rest, int64_t max_hbm)
{
  TrsStorage piece[TRS_N_PIECES];
  int G = p->config.group;

  if (rest->n[TRS_PIECE_GRID] || rest->n_negative) return PETSC_FALSE;
  for (int kind = 0; kind < TRS_N_PIECES; kind++)
    piece[kind] = (TrsStorage){PetscMin(rest->largest[kind].hbm, max_hbm), rest->largest[kind].ddr};
  if (rest->n[TRS_PIECE_SHARD] &&
      !one_has_room(p, p->config.world_size, 1, &piece[TRS_PIECE_SHARD], rest->hbm, rest->ddr))
    return PETSC_FALSE;
  if (rest->n[TRS_PIECE_HOST_COLUMNS] &&
      !one_has_room(p, p->n_hosts * G, 1, &piece[TRS_PIECE_HOST_COLUMNS], rest->hbm, rest->ddr))
    return PETSC_FALSE;
  return (
      PetscBool)(!rest->n[TRS_PIECE_HOST_ROWS] ||
                 one_has_room(p, p->n_hosts, G, &piece[TRS_PIECE_HOST_ROWS], rest->host_hbm, rest->host_ddr));
}

static PetscErrorCode reserve_ranks(TrsPlacement *placement, int n)
{
  int *rank;

  PetscFunctionBegin;
  if (n <= placement->capacity) PetscFunctionReturn(PETSC_SUCCESS);
  n = PetscMax(n, 2 * placement->capacity);
  PetscCall(PetscMalloc1(n, &rank));
  if (placement->n_ranks) memcpy(rank, placement->rank, (size_t)placement->n_ranks * sizeof(*rank));
  PetscCall(PetscFree(placement->rank));
  placement->rank = rank;
  placement->capacity = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode place_option(TrsPartitioner p, int i, PetscBool *placed)
{
  const TrsOptionRecord *record = &p->record[i];
  TrsPlacement *placement = &p->placement;
  int *rank;

  PetscFunctionBegin;
  PetscCall(reserve_ranks(placement, placement->n_ranks + record->n_shards));
  placement->first[i] = placement->n_ranks;
  rank = placement->rank + placement->n_ranks;
  placement->n_ranks += record->n_shards;
  switch (record->partition_by) {
  case TRS_PARTITION_DEVICE: *placed = place_on_devices(p, record, rank); break;
  case TRS_PARTITION_HOST: *placed = place_on_hosts(p, record, rank); break;
  case TRS_PARTITION_UNIFORM:
  case TRS_PARTITION_MULTI_HOST: *placed = place_on_grid(p, record, rank); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Remove the pieces of the option of group g, which is placed. */
static void count_placed(const struct TrsPartitionerImpl *p, int g, TrsPieces *rest)
{
  const TrsOptionRecord *record = &p->record[p->group[g].position];

  if (record->is_uniform) return;
  if (record->piece != TRS_PIECE_SHARD && record->piece != TRS_PIECE_HOST_COLUMNS) {
    TrsPiecesCount(rest, record->option, -1, p->config.world_size, p->config.group);
    return;
  }
  /* the same as TrsPiecesCount(), but without reading the option */
  rest->n[record->piece]--;
  rest->n_negative -= record->is_negative;
  rest->hbm -= record->total_storage.hbm;
  rest->ddr -= record->total_storage.ddr;
  rest->host_hbm -= record->total_storage.hbm;
  rest->host_ddr -= record->total_storage.ddr;
}

/* Fetch a record into the cache before it is read. */
static void fetch(const TrsOptionRecord *record)
{
  __builtin_prefetch(record);
  __builtin_prefetch((const char *)record + 64);
}

PetscErrorCode TrsPartitionGreedy(TrsPartitioner p, const TrsProposal *proposal, const TrsPartitionHint *hint,
                                  PetscBool sort_by_perf, PetscBool balance_modules, PetscBool *placed,
                                  PetscBool *complete)
{
  /* The pieces of the options that remained to be placed at the group n_counted. */
  TrsPieces rest = hint->pieces ? *hint->pieces : (TrsPieces){0};
  int n_counted = 0;
  PetscBool largest_first = (PetscBool)(!sort_by_perf && !balance_modules), is_moot = hint->rating_is_moot;
  int next_look = TRS_FIRST_LOOK;

  PetscFunctionBegin;
  p->placement.n_ranks = 0;
  p->devices_valid = p->hosts_valid = PETSC_FALSE;
  p->n_changed = 0;
  *complete = PETSC_FALSE;
  TrsPartitionerTake(p, proposal);
  *placed = place_uniform(p);
  if (!*placed) PetscFunctionReturn(PETSC_SUCCESS);
  TrsPartitionerOrder(p, sort_by_perf, balance_modules);
  for (int g = 0; g < p->n_group && *placed; g++) {
    int i = p->group[g].position;

    if (g + TRS_FETCH_AHEAD < p->n_group) fetch(&p->record[p->group[g + TRS_FETCH_AHEAD].position]);
    p->placement.first[i] = -1;
    if (p->group[g].is_uniform) continue;
    is_moot = (PetscBool)(is_moot || p->slowest * (1 - ROUNDING) > hint->limit);
    if (is_moot && hint->only_below) {
      *placed = PETSC_FALSE;
      break;
    }
    if (is_moot && hint->pieces && g >= next_look) {
      for (; n_counted < g; n_counted++) count_placed(p, n_counted, &rest);
      if (rest_is_placed(p, &rest, largest_first ? p->record[i].total_storage.hbm : INT64_MAX))
        PetscFunctionReturn(PETSC_SUCCESS);
      next_look = g + PetscMax(TRS_FIRST_LOOK,
                               PetscMax(g / TRS_LOOK_PART, p->config.world_size / TRS_LOOK_DEVICES));
    }
    PetscCall(place_option(p, i, placed));
  }
  *complete = *placed;
  PetscFunctionReturn(PETSC_SUCCESS);
}
