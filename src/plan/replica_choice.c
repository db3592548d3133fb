/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/replica_choice.h"

#include "plan/plan_result.h"

void TrsReplicaCandidates(int world_size, int host_ranks, TrsReplicaChoice *choice)
{
  *choice = (TrsReplicaChoice){0};
  for (int n = 1; n <= world_size && choice->n < TRS_REPLICA_CANDIDATES; n++) {
    const int size = world_size / n;

    if (world_size % n == 0 && (size % host_ranks == 0 || host_ranks % size == 0))
      choice->candidate[choice->n++].replicas = n;
  }
}

const TrsReplicaCandidate *TrsReplicaBest(const TrsReplicaChoice *choice)
{
  const TrsReplicaCandidate *best = NULL;

  for (int i = 0; i < choice->n; i++) {
    const TrsReplicaCandidate *c = &choice->candidate[i];

    if (c->fits && (!best || c->path_ms + c->sync_ms < best->path_ms + best->sync_ms)) best = c;
  }
  return best;
}

/* The work of a rank to keep the copies equal. */
typedef struct {
  double bytes; /* bytes of a step's ids and gradients, or of weights and states */
  double ms;    /* time of the backward's updates */
} TrsSyncWork;

/*
  Bytes of a step's ids and gradients that arrive at a shard. If the copies are averaged instead,
  bytes of the shard's weights and states.
*/
static double shard_bytes(const TrsPlanSettings *settings, TrsStorageInput in, const TrsShard *shard)
{
  int64_t input, output;
  TrsStorage storage;

  if (settings->merges_copies) {
    in.out_bytes = sizeof(float); /* gradients are sent as floats */
    TrsEstimateIo(&in, shard->rows, shard->cols, &input, &output);
    return (double)input + (double)output;
  }
  in.ids = in.rows_out = 0;
  storage = TrsEstimateStorage(&in, shard->rows, shard->cols);
  return (double)storage.hbm + (double)storage.ddr;
}

/* Add each shard's work to the work of its rank. */
static PetscErrorCode add_shards(const TrsCostModel *model, const TrsShardingPlan *plan, TrsSyncWork *work)
{
  const TrsTableConfig **config;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(PetscMax(plan->n_tables, 1), &config));
  PetscCall(TrsPlanTables(model->tables, plan, config));
  for (int t = 0; t < plan->n_tables; t++) {
    const TrsTablePlan *table = &plan->table[t];
    const TrsPlanOption option = TrsPlannedOption(model, config[t], table);
    TrsStorageInput in;

    TrsCostStorageInput(model, &option, &in);
    for (int s = 0; s < table->n_shards; s++) {
      const TrsShard *shard = &table->shard[s];

      work[shard->rank].bytes += shard_bytes(model->settings, in, shard);
      work[shard->rank].ms += shard->perf.bwd_compute;
    }
  }
  PetscCall(PetscFree(config));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The time that a rank needs to keep its shards equal to the same shards of the other copies. */
static double rank_ms(const TrsCostModel *model, const TrsSyncWork *work)
{
  const TrsTopology *topology = model->topology;
  const double R = topology->replicas, intra_bw = topology->intra_host_bw, inter_bw = topology->inter_host_bw;
  const double own_bw = topology->is_cuda ? topology->hbm_mem_bw : topology->ddr_mem_bw;
  /* The number of copies of a shard on one host. */
  const double near = PetscMax(1.0, PetscMin(R, (double)topology->host_ranks / topology->world_size));
  double ring_ms, pass_ms;

  if (model->settings->merges_copies) /* every copy applies the gradients of all copies */
    return work->bytes * (near - 1.0) / intra_bw + work->bytes * (R - near) / inter_bw + (R - 1.0) * work->ms;
  ring_ms = 2.0 * (R - 1.0) / R * work->bytes / (near < R ? inter_bw : intra_bw);
  pass_ms = 2.0 * work->bytes / own_bw;
  return (ring_ms + pass_ms) / (double)model->settings->average_every;
}

/* True if tables are trained. Tables that are only read need no work to keep copies equal. */
static PetscBool trains(const TrsPlanSettings *settings)
{
  return (PetscBool)(!settings->is_inference && !settings->is_quant);
}

PetscErrorCode TrsReplicaSync(const TrsCostModel *model, const TrsShardingPlan *plan, double *ms)
{
  const TrsTopology *topology = model->topology;
  TrsSyncWork *work;

  PetscFunctionBegin;
  *ms = 0;
  if (topology->replicas == 1 || !trains(model->settings)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscCalloc1(topology->world_size, &work));
  PetscCall(add_shards(model, plan, work));
  for (int r = 0; r < topology->world_size; r++) *ms = PetscMax(*ms, rank_ms(model, &work[r]));
  PetscCall(PetscFree(work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReplicaChoiceWrite(const TrsCostModel *model, const TrsReplicaChoice *choice, TrsText *text)
{
  const int world_size = model->topology->world_size * model->topology->replicas;
  const TrsReplicaCandidate *best = TrsReplicaBest(choice);

  PetscFunctionBegin;
  for (int i = 0; i < choice->n; i++) {
    const TrsReplicaCandidate *c = &choice->candidate[i];

    PetscCall(TrsTextPrintf(text, "  %-10s %d of %d rank%s: ", i ? "" : "copies", c->replicas,
                            world_size / c->replicas, world_size == c->replicas ? "" : "s"));
    if (!c->fits)
      PetscCall(TrsTextPrintf(text, "no plan\n"));
    else if (!trains(model->settings))
      PetscCall(TrsTextPrintf(text, "%.4g ms of a copy%s\n", c->path_ms, c == best ? ", taken" : ""));
    else
      PetscCall(TrsTextPrintf(text, "%.4g ms = %.4g of a copy + %.4g to keep them equal%s\n",
                              c->path_ms + c->sync_ms, c->path_ms, c->sync_ms, c == best ? ", taken" : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
