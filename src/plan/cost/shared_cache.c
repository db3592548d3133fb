/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/cost/shared_cache.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { TRS_HALVINGS = 100, TRS_LINES_OF_A_SET = 32, TRS_SHOWN_CACHES = 8 };

/*
  A user's curve: n points with an increasing number of cache lines, from 0 to all rows that are
  ever used. `age` is the characteristic time at which the user fills these lines, in steps. In a
  run of few steps it is another measure of time, which is the same for all users.
*/
typedef struct {
  int n;
  double *lines, *hit, *age;
} TrsCurve;

/* --- curves --- */

/*
  Compute lines and hit. The histogram's last part counts lookups that only a cache of the whole
  table would serve, including the first uses of rows. A cache of all used rows misses only the
  first uses.
*/
static void fill_points(const TrsCacheUser *user, double steps, TrsCurve *curve)
{
  double sum = 0, below = 0, used = user->rows, last;

  for (int k = 0; k < user->n; k++) sum += user->hist[k];
  if (sum > 0 && steps > 0) used = PetscMin(used, steps * user->lookups * (user->hist[user->n - 1] / sum));
  curve->n = 0;
  for (int k = 0; k < user->n; k++) {
    const double lines = user->rows * k / user->n;

    if (k > 0 && lines >= used) break;
    curve->lines[curve->n] = lines;
    curve->hit[curve->n++] = sum > 0 ? below / sum : 0.0;
    below += user->hist[k];
  }
  last = steps > 0 ? 1.0 - used / PetscMax(steps * user->lookups, used) : 1.0;
  curve->lines[curve->n] = PetscMax(used, curve->lines[curve->n - 1]);
  curve->hit[curve->n] = PetscMax(last, curve->hit[curve->n - 1]);
  curve->n++;
}

/*
  Compute age. With many steps, the number of lines grows by the misses of each step, m = U (1 - h).
  With S steps, the curve is an average: S m(c) = c + (S - t) dc/dt at time t, and -log(1 - t/S)
  grows by dc / (S m - c).
*/
static void fill_ages(const TrsCacheUser *user, double steps, TrsCurve *curve)
{
  const double lookups = user->lookups * (steps > 0 ? steps : 1.0);

  curve->age[0] = 0.0;
  for (int k = 1; k < curve->n; k++) {
    double growth = 0.0;

    for (int i = k - 1; i <= k; i++)
      growth += 0.5 * PetscMax(lookups * (1.0 - curve->hit[i]) - (steps > 0 ? curve->lines[i] : 0.0), 0.0);
    curve->age[k] = curve->age[k - 1] + (curve->lines[k] - curve->lines[k - 1]) /
                                            PetscMax(growth, PetscMax(1e-9 * lookups, 1e-300));
  }
}

/* Interpolate y at x. xs must be ascending. Outside of xs, y is constant. */
static double interpolate(int n, const double *xs, const double *ys, double x)
{
  int low = 0, high = n - 1;

  if (x <= xs[0]) return ys[0];
  if (x >= xs[n - 1]) return ys[n - 1];
  while (high - low > 1) {
    const int middle = (low + high) / 2;

    *(xs[middle] <= x ? &low : &high) = middle;
  }
  return ys[low] + (ys[high] - ys[low]) * ((x - xs[low]) / (xs[high] - xs[low]));
}

/* --- sharing the lines --- */

static void share_lru(int n, const TrsCurve *curve, double lines, double *hit)
{
  double low = 0.0, high = 0.0;

  for (int u = 0; u < n; u++) high = PetscMax(high, curve[u].age[curve[u].n - 1]);
  for (int i = 0; i < TRS_HALVINGS; i++) {
    const double age = i == 0 ? high : 0.5 * (low + high);
    double filled = 0.0;

    for (int u = 0; u < n; u++) filled += interpolate(curve[u].n, curve[u].age, curve[u].lines, age);
    *(filled > lines ? &high : &low) = age;
    if (low >= high) break; /* all rows fit in the cache */
  }
  for (int u = 0; u < n; u++) hit[u] = interpolate(curve[u].n, curve[u].age, curve[u].hit, low);
}

/* Some lines of a user that all have the same gain. */
typedef struct {
  double gain, lines; /* gain: hits per step and line */
  int user;
} TrsLines;

static int by_gain(const void *a, const void *b)
{
  const TrsLines *x = a, *y = b;

  return x->gain != y->gain ? (x->gain < y->gain) - (x->gain > y->gain) : x->user - y->user;
}

/*
  Make the curve concave: remove points that lie below the straight line between their neighbours.
*/
static void make_concave(TrsCurve *curve)
{
  int n = 0;

  for (int k = 0; k < curve->n; k++) {
    const double x = curve->lines[k], y = curve->hit[k];

    while (n > 1 && (curve->hit[n - 1] - curve->hit[n - 2]) * (x - curve->lines[n - 1]) <=
                        (y - curve->hit[n - 1]) * (curve->lines[n - 1] - curve->lines[n - 2]))
      n--;
    curve->lines[n] = x;
    curve->hit[n++] = y;
  }
  curve->n = n;
}

static PetscErrorCode share_lfu(int n, const TrsCacheUser *users, TrsCurve *curve, double lines, double *hit)
{
  TrsLines *part;
  int n_parts = 0;

  PetscFunctionBegin;
  for (int u = 0; u < n; u++) n_parts += curve[u].n;
  PetscCall(PetscMalloc1(n_parts, &part));
  n_parts = 0;
  for (int u = 0; u < n; u++) {
    hit[u] = 0.0; /* until the last loop, hit[u] is the number of lines of user u */
    make_concave(&curve[u]);
    for (int k = 1; k < curve[u].n; k++) {
      const double width = curve[u].lines[k] - curve[u].lines[k - 1];

      if (width > 0)
        part[n_parts++] = (TrsLines){users[u].lookups * (curve[u].hit[k] - curve[u].hit[k - 1]) / width,
                                     width, u};
    }
  }
  qsort(part, (size_t)n_parts, sizeof(*part), by_gain);
  for (int i = 0; i < n_parts && lines > 0 && part[i].gain > 0; i++) {
    hit[part[i].user] += PetscMin(part[i].lines, lines);
    lines -= part[i].lines;
  }
  for (int u = 0; u < n; u++) hit[u] = interpolate(curve[u].n, curve[u].lines, curve[u].hit, hit[u]);
  PetscCall(PetscFree(part));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSharedCacheHits(int n, const TrsCacheUser *users, double lines, double steps, PetscBool lfu,
                                  double *hit)
{
  TrsCurve *curve;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(PetscMax(n, 1), &curve));
  for (int u = 0; u < n; u++) {
    const size_t points = (size_t)PetscMax(users[u].n, 1) + 1;

    PetscCall(PetscMalloc3(points, &curve[u].lines, points, &curve[u].hit, points, &curve[u].age));
    fill_points(&users[u], steps, &curve[u]);
    fill_ages(&users[u], steps, &curve[u]);
  }
  if (lfu)
    PetscCall(share_lfu(n, users, curve, lines, hit));
  else
    share_lru(n, curve, lines, hit);
  for (int u = 0; u < n; u++) PetscCall(PetscFree3(curve[u].lines, curve[u].hit, curve[u].age));
  PetscCall(PetscFree(curve));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the tables' caches --- */

/* The part of a table that is in a rank's cache. */
typedef struct {
  int rank, table;
  double load_factor, rows;
  PetscBool lfu;
} TrsCachedPart;

static int by_cache(const void *a, const void *b)
{
  const TrsCachedPart *x = a, *y = b;

  if (x->rank != y->rank) return x->rank - y->rank;
  if (x->load_factor != y->load_factor) return (x->load_factor > y->load_factor) ? 1 : -1;
  if (x->lfu != y->lfu) return (int)x->lfu - (int)y->lfu;
  return x->table - y->table;
}

/* The number of parts that share the cache of the first part. The parts are sorted by cache. */
static int cache_size(int n, const TrsCachedPart *part)
{
  int k = 1;

  while (k < n && part[k].rank == part[0].rank && part[k].load_factor == part[0].load_factor &&
         part[k].lfu == part[0].lfu)
    k++;
  return k;
}

/*
  Compute the hit rates of the n parts in one cache.
  Out: lines  the cache's size; lookups [n]  distinct rows per step of each part
*/
static PetscErrorCode hits_of_cache(const TrsTableConfigs *tables, int n, const TrsCachedPart *part,
                                    double steps, double *lines, double *lookups, double *hit)
{
  TrsCacheUser *user;
  double rows = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &user));
  for (int i = 0; i < n; i++) {
    const TrsTableConfig *table = &tables->table[part[i].table];

    rows += part[i].rows;
    lookups[i] = table->constraints.cache_stats_expected_lookups * part[i].rows /
                 (double)PetscMax(table->num_embeddings, 1);
    user[i] = (TrsCacheUser){table->constraints.n_cache_stats_mrc_hist,
                             table->constraints.cache_stats_mrc_hist, part[i].rows, lookups[i]};
  }
  *lines = PetscMax(ceil(floor(rows * part[0].load_factor) / TRS_LINES_OF_A_SET), 1.0) * TRS_LINES_OF_A_SET;
  PetscCall(TrsSharedCacheHits(n, user, *lines, steps, part[0].lfu, hit));
  PetscCall(PetscFree(user));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool has_curve(const TrsTableConfig *table)
{
  return (PetscBool)(table->constraints.has_cache_stats && table->constraints.n_cache_stats_mrc_hist > 0 &&
                     table->constraints.cache_stats_expected_lookups > 0 && table->num_embeddings > 0);
}

PetscErrorCode TrsSharedMissRates(const TrsTableConfigs *tables, double steps, double *miss)
{
  TrsCachedPart *part;
  double *hit, *lookups, lines;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc3(tables->n, &part, tables->n, &hit, tables->n, &lookups));
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConstraints *c = &tables->table[t].constraints;

    miss[t] = 1.0;
    if (!has_curve(&tables->table[t]) || !c->has_cache_load_factor) continue;
    if (c->compute_kernels && !(c->compute_kernels & TrsKernelsWhere(TrsKernelKeepsLines))) continue;
    part[n++] = (TrsCachedPart){0, t, c->cache_load_factor, (double)tables->table[t].num_embeddings,
                                c->cache_lfu};
  }
  qsort(part, (size_t)n, sizeof(*part), by_cache);
  for (int i = 0, k; i < n; i += k) {
    k = cache_size(n - i, part + i);
    PetscCall(hits_of_cache(tables, k, part + i, steps, &lines, lookups, hit));
    for (int j = 0; j < k; j++) miss[part[i + j].table] = 1.0 - hit[j];
  }
  PetscCall(PetscFree3(part, hit, lookups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the cached parts of a plan, sorted by cache. Free the list with PetscFree(). */
static PetscErrorCode list_parts(const TrsTableConfigs *tables, const TrsShardingPlan *plan, int *n,
                                 TrsCachedPart **part)
{
  size_t n_shards = 0;
  int at = 0;

  PetscFunctionBegin;
  for (int t = 0; t < plan->n_tables; t++) n_shards += (size_t)plan->table[t].n_shards;
  PetscCall(PetscMalloc1(PetscMax(n_shards, 1), part));
  *n = 0;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsTablePlan *found = TrsShardingPlanFindNext(plan, table->name, &at);

    if (!found || !TrsKernelKeepsLines(found->compute_kernel) || !has_curve(table)) continue;
    for (int s = 0; s < found->n_shards; s++)
      if (found->shard[s].rows > 0)
        (*part)[(*n)++] = (TrsCachedPart){found->shard[s].rank, t,
                                          found->has_cache_load_factor ? found->cache_load_factor
                                                                       : TRS_CACHE_LOAD_FACTOR,
                                          (double)found->shard[s].rows, table->constraints.cache_lfu};
  }
  qsort(*part, (size_t)*n, sizeof(**part), by_cache);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSharedCachesWrite(const TrsCostModel *model, const TrsShardingPlan *plan, TrsText *text)
{
  double *hit, *lookups, lines, all = 0, held = 0;
  TrsCachedPart *part;
  int n, n_caches = 0;

  PetscFunctionBegin;
  PetscCall(list_parts(model->tables, plan, &n, &part));
  PetscCall(PetscMalloc2(PetscMax(n, 1), &hit, PetscMax(n, 1), &lookups));
  for (int i = 0, k; i < n; i += k) {
    double mine = 0, in_cache = 0;

    k = cache_size(n - i, part + i);
    PetscCall(hits_of_cache(model->tables, k, part + i, (double)model->settings->cache_steps, &lines, lookups,
                            hit));
    for (int j = 0; j < k; j++) {
      mine += lookups[j];
      in_cache += lookups[j] * hit[j];
    }
    all += mine;
    held += in_cache;
    if (n_caches++ >= TRS_SHOWN_CACHES) continue;
    PetscCall(TrsTextPrintf(
        text, "Cache of rank %d, load factor %.3g, %s, %.0f rows: %.1f%% of %.0f rows hit:", part[i].rank,
        part[i].load_factor, part[i].lfu ? "lfu" : "lru", lines, 100 * in_cache / mine, mine));
    for (int j = 0; j < k; j++)
      PetscCall(TrsTextPrintf(text, "%s %s %.1f%%", j ? "," : "",
                              model->tables->table[part[i + j].table].name, 100 * hit[j]));
    PetscCall(TrsTextPrintf(text, "\n"));
  }
  if (n_caches > 0)
    PetscCall(TrsTextPrintf(text, "All caches: %.2f%% of %.0f rows hit; %.0f rows a step from host memory\n",
                            100 * held / all, all, all - held));
  PetscCall(PetscFree2(hit, lookups));
  PetscCall(PetscFree(part));
  PetscFunctionReturn(PETSC_SUCCESS);
}
