/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The cost of a shard as trshard's own exchanges and kernels make it, at measured rates. All times
  are ms, all rates bytes/ms.

  Source: src/plan/RULES.md, section 12
*/
#include "plan/perf_estimator.h"

#include <math.h>

#define ID_BYTES    8.0
#define FLOAT_BYTES 4.0

/* What a shard's rank has to do with a batch. */
typedef struct {
  double ids;      /* looked up, and updated */
  double distinct; /* rows among these ids */
  double rows;     /* that come out: of bags, or of ids */
  double sharers;  /* ranks among which a table's rows are spread */
} TrsShardWork;

/* The expected number of different rows among n ids that are drawn evenly from R rows. */
static double count_distinct(double n, double R)
{
  return R < 1.0 ? 0.0 : -R * expm1(n * log1p(-1.0 / PetscMax(R, 1.0 + 1e-9)));
}

static TrsShardWork work_of(const TrsPerfInput *in)
{
  const double W = in->world_size;
  TrsShardWork work = {.ids = in->n_ids * W, .rows = in->n_rows * W, .sharers = 1.0};

  switch (in->type) {
  case TRS_SHARDING_DATA_PARALLEL:
    work.ids = in->n_ids;
    work.rows = in->n_rows;
    break;
  case TRS_SHARDING_TABLE_WISE:
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE: break;
  case TRS_SHARDING_ROW_WISE: work.sharers = W; break;
  case TRS_SHARDING_TABLE_ROW_WISE:
  case TRS_SHARDING_GRID_SHARD: work.sharers = in->group; break;
  }
  work.ids /= work.sharers;
  if (!in->is_pooled) work.rows = work.ids; /* rows of ids travel alone */
  work.distinct = count_distinct(work.ids * work.sharers, in->table_rows) / work.sharers;
  return work;
}

/*
  The time of an update by `ids` ids, among which there are `read` gradients: ids of a bag share
  one, which the cache keeps. The update writes `written` rows with their states.
*/
static double update_ms(const TrsPerfInput *in, double ids, double read, double written, double cols)
{
  const TrsRowRates *rates = in->rates;
  const double gradients = ids * rates->update_overhead + read * FLOAT_BYTES * cols;
  const double rows = written * 2.0 * (FLOAT_BYTES * cols + in->state_row + in->state_element * cols);

  return (gradients + rows) / rates->update_bw * in->update_factor;
}

/* The time to send `bytes` of a rank's memory to all ranks, as many to each. */
static double exchange_ms(const TrsPerfInput *in, double bytes)
{
  const double W = in->world_size, L = PetscMin(in->local_world_size, in->world_size);
  const double near = bytes * (L - 1.0) / W, far = bytes * (W - L) / W;

  return near / in->intra_host_bw + (far > 0.0 ? far / in->inter_host_bw : 0.0);
}

/*
  The time of rows of a shard on their way to the samples, or of gradients on their way back, with
  the pass that puts them into the model's matrix. With rows spread over ranks every rank has a sum
  for each bag.
*/
static double rows_ms(const TrsPerfInput *in, const TrsShardWork *work, double cols, double element)
{
  const double n = work->rows * cols;

  if (in->world_size == 1) return 0.0;
  return exchange_ms(in, n * element) + 2.0 * FLOAT_BYTES * n / in->world_size / in->rates->stream_bw;
}

/* The backward of replicas: gradients of distinct rows go to all ranks, which update alike. */
static void replicas(const TrsPerfInput *in, const TrsShardWork *work, double cols, TrsPerf *perf)
{
  const double W = in->world_size, all = count_distinct(work->ids * W, in->table_rows);
  const double gradients = PetscMin(work->ids, work->rows);
  const double bytes = work->distinct * (FLOAT_BYTES * cols + ID_BYTES), merged = W * work->distinct;

  if (in->world_size == 1) {
    perf->bwd_compute = update_ms(in, work->ids, gradients, work->distinct, cols);
    return;
  }
  perf->bwd_comms = exchange_ms(in, W * bytes);
  /* Sum the own gradients by rows, without states; then merge those of all ranks, and update. */
  perf->bwd_compute = (work->ids * in->rates->update_overhead + gradients * FLOAT_BYTES * cols) /
                          in->rates->update_bw +
                      update_ms(in, merged, merged, all, cols);
}

TrsPerf TrsEstimateMeasured(const TrsPerfInput *in, int64_t cols)
{
  const TrsShardWork work = work_of(in);
  const TrsRowRates *rates = in->rates;
  const double width = (double)cols, weights = in->is_weighted ? FLOAT_BYTES : 0.0;
  const PetscBool reduces = (PetscBool)(in->is_pooled && work.sharers > 1.0);
  const double read = work.ids * (rates->read_overhead + in->elem * width + weights);
  TrsPerf perf = {.fwd_compute = (read + FLOAT_BYTES * work.rows * width) / rates->read_bw};

  if (in->type == TRS_SHARDING_DATA_PARALLEL) {
    replicas(in, &work, width, &perf);
  } else {
    const double ids = exchange_ms(in, work.ids * (ID_BYTES + weights));

    perf.fwd_comms = ids + rows_ms(in, &work, width, reduces ? in->sr_fwd : in->a2a_fwd);
    perf.bwd_comms = rows_ms(in, &work, width, reduces ? in->sr_bwd : in->a2a_bwd);
    perf.bwd_compute = update_ms(in, work.ids, PetscMin(work.ids, work.rows), work.distinct, width);
    if (in->missed_ids > 0)
      perf.prefetch_compute = in->missed_ids / work.sharers * width * in->elem / in->hbm_to_ddr_bw;
  }
  if (in->is_inference) perf.bwd_compute = perf.bwd_comms = 0.0;
  return perf;
}
