/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One training step of a sharded DLRM, on the kernels of src/compute and the exchanges of src/comm.

    mpirun -n 2 build/regression/examples/one_step

  Tables are row_wise: rank r holds rows [r * block, (r + 1) * block) of each. All ranks hold the
  dense layers. src/shard does this for every sharding type, and src/train overlaps batches.

  The program trains on all ranks, then on each rank by itself with whole tables and all samples.
  Both trainings must have the same losses, up to the rounding of sums.
*/
#include "comm/comm.h"
#include "core/random/random.h"
#include "core/start.h"

/* G samples of all ranks, T tables with one feature each, D columns. */
enum { G = 48, T = 3, D = 8, ROWS = 100, DENSE = 4, HIDDEN = 16, MAX_IDS = 3, STEPS = 50, SEED = 7 };
enum { VECTORS = 1 + T, CROSSED = D + VECTORS * (VECTORS - 1) / 2 /* the interaction's outputs */ };
enum { BAGS = T * G, N_WEIGHTS = D * (DENSE + 1) + HIDDEN * (CROSSED + 1) + HIDDEN + 1 };

/* Bags of ids: of this rank's samples; by rank, sent and received; of this rank's rows. */
enum { BATCH, SEND, RECV, MINE, N_BAGS };

/* A training. Its arrays have room for the case of a single rank with all samples, B = G. */
typedef struct {
  TrsComm comm;
  const TrsComputeOps *compute;
  TrsWorkspace workspace;
  int W;            /* ranks */
  int64_t B, block; /* samples of this rank, rows of a shard */
  TrsTbeTable table[T];
  TrsTbeFeature feature[T];
  _Alignas(64) float rows[T][ROWS * D], sums[T][ROWS * D]; /* this rank's shards */
  float weight[N_WEIGHTS], grad_weight[N_WEIGHTS];         /* the dense layers */
  TrsJagged ids[N_BAGS];
  int32_t lengths[N_BAGS][BAGS];
  int64_t offsets[N_BAGS][BAGS + 1], values[N_BAGS][BAGS * MAX_IDS];
  float dense[G * DENSE], labels[G];           /* [B, DENSE], [B] */
  float partial[G * T * D], pooled[G * T * D]; /* sums of my rows [G, T D], of all rows [B, T D] */
  float x[G * VECTORS * D], crossed[G * CROSSED], hidden[G * HIDDEN], z[G];     /* of this rank's B samples */
  float dx[G * VECTORS * D], dcrossed[G * CROSSED], dhidden[G * HIDDEN], dz[G]; /* their gradients */
  float dpooled[G * T * D], all_dpooled[G * T * D];                             /* [B, T D], [G, T D] */
} Trainer;

/* This rank's part of a batch. A sample's label is 1 if most of its ids are odd. */
static void make_batch(Trainer *t, uint64_t step)
{
  const uint64_t first = (uint64_t)(t->comm->rank * t->B);
  TrsJagged *ids = &t->ids[BATCH];
  int odd[G] = {0};

  ids->n_values = 0;
  for (int64_t bag = 0; bag < T * t->B; bag++) {
    const int64_t f = bag / t->B, b = bag % t->B;
    uint32_t bits[4];

    TrsRandom(SEED + (uint64_t)f, TRS_RANDOM_TEST, step, first + (uint64_t)b, bits);
    ids->lengths[bag] = (int32_t)(bits[3] % (MAX_IDS + 1));
    for (int i = 0; i < ids->lengths[bag]; i++) {
      ids->values[ids->n_values++] = bits[i] % ROWS;
      odd[b] += bits[i] % 2 ? 1 : -1;
    }
  }
  TrsRandomUniformFill(SEED, TRS_RANDOM_TEST, STEPS + step, first * DENSE, t->B * DENSE, -1, 1, t->dense);
  for (int64_t b = 0; b < t->B; b++) t->labels[b] = odd[b] > 0 ? 1 : 0;
}

/* Send each id to the rank that holds its row. Lengths of bags go first: they count the ids. */
static PetscErrorCode input_dist(Trainer *t)
{
  const int64_t bags = T * t->B; /* bags of each rank for each rank */
  const TrsBucketSpec each = {.bucket_rows = t->block}, spec[T] = {each, each, each};
  TrsJagged *batch = &t->ids[BATCH], *send = &t->ids[SEND], *recv = &t->ids[RECV];
  int64_t counts[G], displs[G], send_counts[G], send_displs[G], recv_counts[G], recv_displs[G];
  int64_t block_begin[BAGS + 1];
  int permutation[BAGS];
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(t->compute->offsets(NULL, bags, batch->lengths, batch->offsets));
  PetscCall(t->compute->bucketize(NULL, t->workspace, t->W, T, t->B, spec, batch, send, NULL));
  for (int q = 0; q < t->W; q++) counts[q] = bags, displs[q] = q * bags;
  PetscCall(TrsCommAlltoallv(t->comm, NULL, (TrsSentBlocks){send->lengths, counts, displs},
                             (TrsReceivedBlocks){recv->lengths, counts, displs}, sizeof(int32_t), &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscCall(t->compute->offsets(NULL, t->W * bags, send->lengths, send->offsets));
  PetscCall(t->compute->offsets(NULL, t->W * bags, recv->lengths, recv->offsets));
  for (int q = 0; q < t->W; q++) {
    send_displs[q] = send->offsets[q * bags];
    send_counts[q] = send->offsets[(q + 1) * bags] - send_displs[q];
    recv_displs[q] = recv->offsets[q * bags];
    recv_counts[q] = recv->offsets[(q + 1) * bags] - recv_displs[q];
  }
  PetscCall(TrsCommAlltoallv(t->comm, NULL, (TrsSentBlocks){send->values, send_counts, send_displs},
                             (TrsReceivedBlocks){recv->values, recv_counts, recv_displs}, sizeof(int64_t),
                             &request));
  PetscCall(TrsRequestWait(&request, NULL));
  /* [rank][table][sample] -> [table][rank][sample], which is the order of the global batch */
  for (int i = 0; i <= t->W * T; i++) block_begin[i] = i * t->B;
  for (int i = 0; i < t->W * T; i++) permutation[i] = i % t->W * T + i / t->W;
  PetscCall(t->compute->permute_blocks(NULL, t->workspace, t->W * T, block_begin, t->W * T, permutation, recv,
                                       &t->ids[MINE]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = activation(x W^T + b). W is at weight[at], b follows it, and so do their gradients. */
static TrsLinear layer(Trainer *t, int64_t at, int64_t in, int64_t out, TrsMatrix x, TrsMatrix y,
                       TrsActivation activation)
{
  const float *W = t->weight + at, *b = W + in * out;

  return (TrsLinear){t->B, in, out, x, TrsFloats(W, in), b, activation, y, NULL};
}

static PetscErrorCode backward(Trainer *t, const TrsLinear *l, TrsMatrix dy, TrsMatrix dx)
{
  float *dW = t->grad_weight + ((const float *)l->weight.data - t->weight);

  return t->compute->linear_backward(NULL, l, &(TrsLinearGradients){dy, dW, dW + l->in * l->out, dx});
}

/* The step. *loss: the mean over the global batch. */
static PetscErrorCode train_step(Trainer *t, uint64_t step, double *loss)
{
  const TrsComputeOps *compute = t->compute;
  const TrsTbe tbe = {.n_tables = T, .n_features = T, .table = t->table, .feature = t->feature};
  const TrsMatrix dense = TrsFloats(t->dense, DENSE), x = TrsFloats(t->x, VECTORS * D),
                  dx = TrsFloats(t->dx, VECTORS * D), crossed = TrsFloats(t->crossed, CROSSED),
                  dcrossed = TrsFloats(t->dcrossed, CROSSED), hidden = TrsFloats(t->hidden, HIDDEN),
                  dhidden = TrsFloats(t->dhidden, HIDDEN), z = TrsFloats(t->z, 1), dz = TrsFloats(t->dz, 1);
  const TrsLinear bottom = layer(t, 0, DENSE, D, dense, x, TRS_ACTIVATION_RELU);
  const TrsLinear middle = layer(t, D * (DENSE + 1), CROSSED, HIDDEN, crossed, hidden, TRS_ACTIVATION_RELU);
  const TrsLinear top = layer(t, N_WEIGHTS - HIDDEN - 1, HIDDEN, 1, hidden, z, TRS_ACTIVATION_NONE);
  const TrsColumnCopy pooled_to_x = {TrsFloats(t->pooled, T * D), TrsMatrixColumns(x, D), T * D};
  const TrsColumnCopy dx_to_pooled = {TrsMatrixColumns(dx, D), TrsFloats(t->dpooled, T * D), T * D};
  const TrsSparseOptimizerArgs adagrad = {.kind = TRS_OPTIM_ADAGRAD, .learning_rate = 0.1F, .eps = 1e-8F};
  const TrsDenseOptimizerArgs sgd = {.kind = TRS_DENSE_SGD, .learning_rate = 0.5F, .grad_scale = 1};
  TrsTbeInput input = {.batch = G, .offsets = t->offsets[MINE], .values = t->values[MINE]};
  int64_t counts[G], displs[G];
  double my_loss = 0;
  TrsLossArgs bce = {.batch = t->B, .classes = 1, .scale = 1.0F / G, .parameter = 1, .loss = &my_loss};
  TrsRequest request = NULL;

  PetscFunctionBegin;
  /* Every rank sums its own rows of each bag. The reduce-scatter adds the ranks' sums. */
  make_batch(t, step);
  PetscCall(input_dist(t));
  input.n_values = t->ids[MINE].n_values;
  PetscCall(compute->tbe_forward(NULL, t->workspace, &tbe, &input, TrsFloats(t->partial, T * D)));
  for (int q = 0; q < t->W; q++) counts[q] = t->B * T * D, displs[q] = q * t->B * T * D;
  PetscCall(TrsCommReduceScatterv(t->comm, NULL, t->partial, counts, t->pooled, &request));
  PetscCall(compute->linear_forward(NULL, &bottom)); /* while the rows are sent */
  PetscCall(TrsRequestWait(&request, NULL));
  PetscCall(compute->copy_columns(NULL, t->B, 1, &pooled_to_x));

  /* Interaction, over arch, loss, and back. */
  PetscCall(compute->dot_forward(NULL, t->B, VECTORS, D, D, 0, x, crossed));
  PetscCall(compute->linear_forward(NULL, &middle));
  PetscCall(compute->linear_forward(NULL, &top));
  bce.z = t->z, bce.y = t->labels, bce.dz = t->dz, bce.z_stride = bce.y_stride = 1;
  PetscCall(compute->bce(NULL, &bce));
  PetscCall(backward(t, &top, dz, dhidden));
  PetscCall(backward(t, &middle, dhidden, dcrossed));
  PetscCall(compute->dot_backward(NULL, t->B, VECTORS, D, D, x, dcrossed, dx));

  /* Send gradients of pooled rows to all shards; the update is in the same kernel. */
  PetscCall(compute->copy_columns(NULL, t->B, 1, &dx_to_pooled));
  PetscCall(
      TrsCommAllgatherv(t->comm, NULL, t->dpooled, t->all_dpooled, counts, displs, sizeof(float), &request));
  PetscCall(backward(t, &bottom, dx, TrsFloats(NULL, 0))); /* while the gradients are sent */
  PetscCall(TrsRequestWait(&request, NULL));
  PetscCall(
      compute->tbe_backward(NULL, t->workspace, &tbe, &input, TrsFloats(t->all_dpooled, T * D), &adagrad));

  /* All ranks make the same step of the dense layers, with the sum of their gradients. */
  PetscCall(TrsCommAllreduce(t->comm, NULL, NULL, t->grad_weight, N_WEIGHTS, &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscCall(compute->dense_update(NULL, N_WEIGHTS, &sgd, t->grad_weight, t->weight, NULL, NULL));
  PetscCallMPI(MPI_Allreduce(&my_loss, loss, 1, MPI_DOUBLE, MPI_SUM, t->comm->mpi));
  *loss /= G;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Random numbers are keyed by their place in the whole table, so any split has the same weights. */
static void make_weights(Trainer *t)
{
  const int64_t first = t->comm->rank * t->block, n_rows = PetscMin(t->block, PetscMax(0, ROWS - first));

  for (int i = 0; i < T; i++) {
    t->table[i] = (TrsTbeTable){.rows = n_rows, .stride = D, .dim = D, .weight = t->rows[i]};
    t->table[i].state[0] = t->sums[i];
    t->feature[i] = (TrsTbeFeature){.table = i, .out_column = i * D};
    TrsRandomUniformFill(SEED, TRS_RANDOM_TABLE_INIT, (uint64_t)i, (uint64_t)(first * D), n_rows * D, -0.3F,
                         0.3F, t->rows[i]);
  }
  TrsRandomUniformFill(SEED, TRS_RANDOM_DENSE_INIT, 0, 0, N_WEIGHTS, -0.4F, 0.4F, t->weight);
}

/* Collective on mpi: each of its ranks takes its part of every batch. */
static PetscErrorCode train(MPI_Comm mpi, double losses[STEPS])
{
  const TrsDeviceOps *const cpu = trs_device_backends[0];
  Trainer *t;

  PetscFunctionBegin;
  PetscCall(TrsDeviceAllocShared(cpu, sizeof(*t), (void **)&t)); /* zeroed */
  t->compute = &trs_compute_cpu;
  PetscCall(t->compute->workspace_create(&t->workspace));
  PetscCall(TrsCommCreate(mpi, "mpi", cpu, t->compute, &t->comm));
  t->W = t->comm->size;
  PetscCheck(G % t->W == 0, mpi, TRS_ERR_OPTION, "%d ranks do not divide %d samples", t->W, G);
  t->B = G / t->W;
  t->block = (ROWS + t->W - 1) / t->W;
  make_weights(t);
  for (int i = 0; i < N_BAGS; i++)
    t->ids[i] = (TrsJagged){T * t->B, 0, t->lengths[i], t->offsets[i], t->values[i], NULL};
  for (int step = 0; step < STEPS; step++) PetscCall(train_step(t, (uint64_t)step, &losses[step]));
  PetscCall(TrsCommDestroy(&t->comm));
  PetscCall(t->compute->workspace_destroy(&t->workspace));
  PetscCall(cpu->release((void **)&t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(void)
{
  double all[STEPS], alone[STEPS];

  PetscFunctionBegin;
  PetscCall(train(MPI_COMM_WORLD, all));
  PetscCall(train(MPI_COMM_SELF, alone));
  for (int i = 0; i < STEPS; i++) {
    PetscCheck(PetscAbsReal(all[i] - alone[i]) <= 1e-4 * alone[i], PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "step %d: loss %.9f on all ranks, %.9f on one", i + 1, all[i], alone[i]);
    if (i % 10 == 9) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "step %d loss %.6f\n", i + 1, all[i]));
  }
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "a single rank has the same losses\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  if (TrsStart(argc, argv)) return 70;
  if (!run()) return TrsStop(PETSC_FALSE) ? 70 : 0;
  fprintf(stderr, "one_step: %s\n", TrsErrorMessage());
  return MPI_Abort(MPI_COMM_WORLD, 1);
}
