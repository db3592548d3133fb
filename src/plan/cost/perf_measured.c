/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Estimates a shard's cost from trshard's own exchanges and kernels and from measured rates. All
  times are in ms, all rates in bytes/ms.

  Source: src/plan/RULES.md, section 12
*/
#include "plan/cost/perf_estimator.h"

#include <math.h>

#define ID_BYTES    8.0
#define FLOAT_BYTES 4.0
/*
  Bytes that are copied in addition to the exchange of ids. The sender copies each id once, and the
  receiver writes it once. Both also copy each bag's length and compute its offset. The offsets are
  a serial prefix sum, which takes nearly as long as two copies of these bytes. A rank with replicas
  does half of this work.
*/
#define ID_COPIES (3.0 * ID_BYTES)
#define BAG_BYTES 80.0

/* The work of a shard's rank for one batch, as counts. */
typedef struct {
  double ids; /* ids that are looked up and updated */
  /* bags whose lengths arrive; 0 for sequence tables, where the number is unknown */
  double bags;
  double distinct; /* distinct rows among the ids */
  double rows;     /* output rows, one per bag or per id */
  double sharers;  /* number of ranks over which the table's rows are split */
} TrsShardWork;

/* The expected number of distinct rows among n ids that are drawn uniformly from R rows. */
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
  work.bags = in->is_pooled ? work.rows : 0.0;
  if (!in->is_pooled) work.rows = work.ids; /* each id's row is sent by itself */
  work.distinct = count_distinct(work.ids * work.sharers, in->table_rows) / work.sharers;
  return work;
}

/*
  The time to read `read` gradients for `ids` ids, and to write `written` rows with state_bytes
  each. All ids of a bag have the same gradient, which stays in the processor's cache.
*/
static double write_rows_ms(const TrsPerfInput *in, double ids, double read, double written, double cols,
                            double state_bytes)
{
  const TrsRowRates *rates = in->rates;
  const double gradients = ids * rates->update_overhead + read * FLOAT_BYTES * cols;

  return (gradients + written * 2.0 * (FLOAT_BYTES * cols + state_bytes)) / rates->update_bw;
}

/* The time of an update, which reads and writes rows together with their states. */
static double update_ms(const TrsPerfInput *in, double ids, double read, double written, double cols)
{
  return write_rows_ms(in, ids, read, written, cols, in->state_row + in->state_element * cols) *
         in->update_factor;
}

/* The part of exchange_ms() that is due to ranks on other hosts. */
static double far_exchange_ms(const TrsPerfInput *in, double bytes)
{
  const double W = in->world_size, L = PetscMin(in->local_world_size, in->world_size);

  return W > L ? bytes * (W - L) / W / in->inter_host_bw : 0.0;
}

/* The time to send `bytes` of a rank's memory to all ranks, the same amount to each. */
static double exchange_ms(const TrsPerfInput *in, double bytes)
{
  const double W = in->world_size, L = PetscMin(in->local_world_size, in->world_size);

  return bytes * (L - 1.0) / W / in->intra_host_bw + far_exchange_ms(in, bytes);
}

/*
  The time to send a shard's rows to the samples' ranks, or to send the gradients back. It includes
  the pass that copies rows into the model's matrix. If a table's rows are split over ranks, every
  rank sends a sum for each bag. With in_place there is no such pass, and on CPUs an unsplit shard's
  rows do not move inside a host.
*/
static double rows_ms(const TrsPerfInput *in, const TrsShardWork *work, double cols, double element)
{
  const double n = work->rows * cols;

  if (in->world_size == 1) return 0.0;
  if (in->in_place)
    return work->sharers > 1.0 || in->is_cuda ? exchange_ms(in, n * element)
                                              : far_exchange_ms(in, n * element);
  return exchange_ms(in, n * element) + 2.0 * FLOAT_BYTES * n / in->world_size / in->rates->stream_bw;
}

/* The time to send a batch's ids to the shard in the input dist. `bytes` is the size of one id. */
static double ids_ms(const TrsPerfInput *in, const TrsShardWork *work, double bytes)
{
  const TrsRowRates *rates = in->rates;
  double cut = 0.0;

  if (in->world_size == 1) return 0.0;
  if (work->sharers > 1.0 && rates->cut_bw > 0.0)
    cut = (work->ids * ID_BYTES + work->bags / work->sharers * rates->cut_overhead) / rates->cut_bw;
  return exchange_ms(in, work->ids * bytes) + cut +
         (work->ids * ID_COPIES + work->bags * BAG_BYTES) / rates->stream_bw;
}

/*
  Set the communication and backward times of replicas. Each rank lists the distinct rows of its
  batch, and all ranks merge the lists. The gradients of these rows go to all ranks, which all make
  the same update.
*/
static void replicas(const TrsPerfInput *in, const TrsShardWork *work, double cols, TrsPerf *perf)
{
  const double W = in->world_size, all = count_distinct(work->ids * W, in->table_rows);
  const double gradients = PetscMin(work->ids, work->rows), merged = W * work->distinct;
  const TrsRowRates *rates = in->rates;

  if (in->world_size == 1) {
    perf->bwd_compute = update_ms(in, work->ids, gradients, work->distinct, cols);
    return;
  }
  perf->fwd_comms = (work->ids * ID_COPIES / 2.0 + work->bags * BAG_BYTES / 2.0) / rates->stream_bw;
  if (in->is_inference) return; /* inference needs no lists */
  /* A list entry costs as much as one id in the list that an update makes. */
  perf->fwd_comms += exchange_ms(in, merged * ID_BYTES) +
                     (work->ids + merged) * rates->update_overhead / rates->update_bw;
  perf->bwd_comms = exchange_ms(in, merged * FLOAT_BYTES * cols);
  /* First each rank sums its gradients by row. Then it adds all ranks' gradients and updates the
     rows. */
  perf->bwd_compute = write_rows_ms(in, work->ids, gradients, work->distinct, cols, 0.0) +
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
    perf.fwd_comms = ids_ms(in, &work, ID_BYTES + weights) +
                     rows_ms(in, &work, width, reduces ? in->sr_fwd : in->a2a_fwd);
    perf.bwd_comms = rows_ms(in, &work, width, reduces ? in->sr_bwd : in->a2a_bwd);
    perf.bwd_compute = update_ms(in, work.ids, PetscMin(work.ids, work.rows), work.distinct, width);
    if (in->missed_ids > 0)
      perf.prefetch_compute = in->missed_ids / work.sharers * width * in->elem / in->hbm_to_ddr_bw;
  }
  if (in->is_inference) perf.bwd_compute = perf.bwd_comms = 0.0;
  return perf;
}
